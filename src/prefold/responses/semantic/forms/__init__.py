"""Answers of every API, whole or streamed, into `Answer` and back, so that one form's answer serves all.

An answer is read only if nothing of it is lost: one text that ended by itself. Tool calls, refusals, reasoning,
citations, probabilities, several choices and what was cut off are not answers to give to somebody else.

A rendered answer says what it is: `prefold` at the top level of its document, and of the first event of its stream, and
the headers x-prefold-cache and x-prefold-entry. Its usage has the numbers that the upstream reported when it gave the
answer, with all input as read from cache, so that sums work out and nothing counts as processed twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from prefold.errors import UsageError
from prefold.responses.endings import EVENTS, event_data, usage_if_whole
from prefold.responses.semantic.forms.chat import Chat, Completions
from prefold.responses.semantic.forms.form import Form, Hit, Said
from prefold.responses.semantic.forms.messages import Messages
from prefold.responses.semantic.forms.refusals import refuses
from prefold.responses.semantic.forms.responses import Responses
from prefold.responses.semantic.types import Answer

_FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "/v1/chat/completions": Chat(),
        "/v1/completions": Completions(),
        "/v1/messages": Messages(),
        "/v1/responses": Responses(),
    }
)
_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
"""Characters at which some clients cut lines, as JSON may write them too."""


def read_answer(api: str, headers: Mapping[bytes, bytes], body: bytes) -> Answer | None:
    """The answer in a response with status 200; None where it is not whole, or more or less than one text.

    Args:
        api: path of the endpoint that was asked, with the query where there is one.
        headers: of the response, in lower case.
        body: all of it.
    """
    form = _FORMS.get(api.partition("?")[0])
    usage = usage_if_whole(headers, body) if form is not None else None
    if form is None or usage is None:
        return None
    is_stream = headers.get(b"content-type", b"").lower().startswith(EVENTS)
    said = _read(form, body, is_stream=is_stream)
    if said is None:
        return None
    text = "".join(said.pieces)
    if not text.strip() or refuses(text):
        return None
    return Answer(
        text=text,
        model=said.model,
        input_tokens=usage.input,
        output_tokens=usage.output,
        deltas=tuple(len(piece) for piece in said.pieces if piece) if is_stream else (),
    )


def render(
    answer: Answer,
    api: str,
    *,
    stream: bool,
    include_usage: bool,
    id: str,  # noqa: A002 - it is what all these APIs call it
    created: float,
    provenance: Mapping[str, Any],
    request: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[tuple[tuple[bytes, bytes], ...], tuple[bytes, ...]]:
    """Headers and body of a response with status 200: one chunk, or one for each event of a stream.

    Args:
        answer: to be given.
        api: path of the endpoint that was asked, with the query where there is one.
        stream: whether events were asked for. They have the pieces in which the answer first came.
        include_usage: whether `stream_options.include_usage` was; Anthropic's and Responses always have it.
        id: of the response, without the prefix that each API has.
        created: Unix seconds of this response.
        provenance: what the mark says beside the kind of cache: `entry`, `age_seconds`, `similarity`.
        request: the fields asked with; Responses repeat some.

    Raises:
        UsageError: for an API that has no answers in text.
    """
    form = _FORMS.get(api.partition("?")[0])
    if form is None:
        raise UsageError(f"There is no form for answers of {api}.", hint=f"Use one of {', '.join(_FORMS)}.")
    hit = Hit(id, int(created), {**provenance, "cache": "semantic"}, include_usage, request)
    marks = (
        (b"x-prefold-cache", b"semantic"),
        *(((b"x-prefold-entry", str(provenance["entry"]).encode("ascii")),) if "entry" in provenance else ()),
    )
    if not stream:
        body = _encode({**form.document(answer, hit), "prefold": hit.mark})
        length = str(len(body)).encode()
        return ((b"content-type", b"application/json"), (b"content-length", length), *marks), (body,)
    (first_name, first), *rest = form.events(answer, hit)
    events = ((first_name, {**first, "prefold": hit.mark}), *rest)
    chunks = [
        (b"event: %b\n" % name.encode() if name else b"") + b"data: %b\n\n" % _encode(data) for name, data in events
    ]
    if form.last_data:
        chunks.append(b"data: %b\n\n" % form.last_data)
    return (
        (b"content-type", EVENTS + b"; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        *marks,
    ), tuple(chunks)


def _read(form: Form, body: bytes, *, is_stream: bool) -> Said | None:
    try:
        if not is_stream:
            return form.read(msgspec.json.decode(body, type=dict))
        return form.read_events(
            [msgspec.json.decode(data, type=dict) for data in event_data(body) if data != form.last_data]
        )
    except (msgspec.DecodeError, RecursionError):
        return None


def _encode(value: object) -> bytes:
    encoded = msgspec.json.encode(value)
    for character, escaped in _LINE_ENDS:
        encoded = encoded.replace(character, escaped)
    return encoded
