"""Takes a request apart into what must be the same and the one text that may be worded freely: the last user turn.

Everything else counts as in the key of an exact answer, from which the context is made: each field, also one that
nobody here has heard of, but for a short list that changes nothing. `stream` and `stream_options` count for nothing
either, since an answer is rendered in the form that is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import Any

import msgspec

from prefold.responses.key import answer_key
from prefold.responses.semantic.eligibility import EligibilityOptions, ineligible
from prefold.responses.semantic.types import POLICY_VERSION, Question, Reason
from prefold.responses.semantic.wording.language import language_of

_CHAT = "/v1/chat/completions"
_COMPLETIONS = "/v1/completions"
_RESPONSES = "/v1/responses"
_MESSAGES = "/v1/messages"

_TURNS: Mapping[str, str] = MappingProxyType(
    {_CHAT: "messages", _MESSAGES: "messages", _RESPONSES: "input", _COMPLETIONS: "prompt"}
)
"""The field that holds the turns of a conversation."""

_EVERYBODY = "prefold: everybody"
"""Partition of what is shared; tenants' names hold no spaces."""
_INSTRUCTING = ("system", "developer")
_TEXT_PARTS = ("text", "input_text")
_FORM = frozenset(("stream", "stream_options"))
_TOOLS = ("tools", "functions", "mcp_servers", "web_search_options", "search_parameters", "plugins", "container")
_REMEMBERED = ("previous_response_id", "conversation")
_MORE_THAN_TEXT = ("logprobs", "top_logprobs", "audio", "echo", "include", "prompt_logprobs")


@dataclass(frozen=True, slots=True)
class QuestionOptions:
    """Which requests may be answered by meaning, beside those that always may.

    Attributes:
        earlier_turns: also with turns before the last one. They count exactly, and what the last one means may still
            hang on them in ways that no guard sees.
        tools: also with tools that the client runs. An answer that calls one is never kept.
        sampled: also where the answer is left to chance: with a temperature above 0, or with none, which means the
            server's own and is 1 nearly everywhere. A seed does not help: it fixes the answer to one wording only.
        eligibility: by the text alone.
        epoch: of whatever else answers depend on; what was kept in another one is not seen.
        tags: that entries get, by which they can be invalidated.
        shared: also from entries of other partitions that an administrator shared with all.
    """

    earlier_turns: bool = False
    tools: bool = False
    sampled: bool = False
    eligibility: EligibilityOptions = field(default_factory=EligibilityOptions)
    epoch: str = ""
    tags: frozenset[str] = frozenset()
    shared: bool = False


def read_question(
    api: str,
    fields: Mapping[str, Any],
    *,
    partition: str,
    principal: str,
    options: QuestionOptions,
    headers: Mapping[bytes, bytes] = MappingProxyType({}),
    by_credentials: bool = True,
) -> Question | Reason:
    """What a request asks, or why it may not be answered by meaning.

    Of several user turns at the end only the last is worded freely, and of its text parts only the last: what stands
    before it is nearly always material that the question is about, so that it counts exactly.

    Args:
        api: path of the endpoint, with the query where there is one.
        fields: the body as JSON.
        partition: whose entries may be seen.
        principal: hash of who asks; "" where nobody can tell.
        options: which requests may be answered.
        headers: the request's, in lower case; see `answer_key`.
        by_credentials: whether clients with different credentials are kept apart; see `answer_key`.
    """
    path = api.partition("?")[0]
    if path not in _TURNS:
        return Reason.NOT_A_QUESTION
    turns = _unfit(fields, options) or _turns(path, fields)
    if isinstance(turns, Reason):
        return turns
    text = turns.text.strip()
    may_be_answered = options.earlier_turns or not turns.earlier
    if reason := ineligible(text, options.eligibility) if may_be_answered else Reason.EARLIER_TURNS:
        return reason
    exact = {name: value for name, value in fields.items() if name not in _FORM}
    exact[_TURNS[path]] = turns.exact
    try:
        body = msgspec.json.encode(exact)

        def key_for(whose: str) -> bytes | None:
            # Whether the answer is left to chance was asked above.
            return answer_key(api, exact, body, whose, headers, by_credentials=by_credentials, every_request=True)

        key = key_for(partition)
        open_key = key_for(_EVERYBODY) if options.shared else None
    except (TypeError, ValueError, RecursionError):  # half a surrogate pair, or no JSON at all
        return Reason.UNREADABLE
    if key is None:
        return Reason.TOOLS if fields.get("tools") else Reason.NOT_A_QUESTION
    language = language_of(text)
    return Question(
        context=_context(key, language, options.epoch),
        partition=partition,
        principal=principal,
        route=model if isinstance(model := fields.get("model"), str) else "",
        text=text,
        language=language,
        tags=options.tags,
        open_context=_context(open_key, language, options.epoch) if open_key else b"",
    )


def _context(key: bytes, language: str, epoch: str) -> bytes:
    digest = sha256(b"prefold question %d" % POLICY_VERSION)
    for part in (key, language.encode(), epoch.encode("utf-8", "surrogatepass")):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def _unfit(fields: Mapping[str, Any], options: QuestionOptions) -> Reason | None:
    """What speaks against a request beside its turns."""
    if any(fields.get(name) not in (None, 1) for name in ("n", "best_of")):
        return Reason.MANY_ANSWERS
    if any(fields.get(name) for name in _REMEMBERED):
        return Reason.EARLIER_TURNS
    if any(fields.get(name) for name in _TOOLS[0 if not options.tools else 2 :]):
        return Reason.TOOLS
    if any(fields.get(name) not in (None, False, 0, []) for name in _MORE_THAN_TEXT):
        return Reason.NOT_TEXT
    if fields.get("modalities") not in (None, ["text"]):
        return Reason.NOT_TEXT
    temperature = fields.get("temperature")
    is_greedy = type(temperature) in (int, float) and temperature == 0
    return None if is_greedy or options.sampled else Reason.SAMPLED


@dataclass(frozen=True, slots=True)
class _Turns:
    """The last user turn's text, and all turns without it.

    Attributes:
        text: worded freely.
        exact: the field that it was taken from, with nothing in its place.
        earlier: whether anybody but an instructor has spoken before.
    """

    text: str
    exact: object
    earlier: bool = False


def _turns(path: str, fields: Mapping[str, Any]) -> _Turns | Reason:
    value = fields.get(_TURNS[path])
    if path == _COMPLETIONS:
        return _prompt(value)
    if path == _RESPONSES and isinstance(value, str):
        return _Turns(value, None)
    if not isinstance(value, list) or not value or not all(isinstance(turn, Mapping) for turn in value):
        return Reason.NOT_A_QUESTION
    *before, last = value
    if last.get("role") != "user":
        # In Responses the outputs of tools are items of their own.
        return Reason.NOT_A_QUESTION if last.get("role") in ("assistant", *_INSTRUCTING) else Reason.NOT_TEXT
    content = last.get("content")
    text, rest = _last_text(content)
    if text is None:
        return Reason.NOT_TEXT
    earlier = any(turn.get("role") not in _INSTRUCTING for turn in before)
    return _Turns(text, [*before, {**last, "content": rest}], earlier)


def _last_text(content: object) -> tuple[str | None, list[Any] | None]:
    """The last text of a turn, and its parts without it; None for a turn that holds anything but text."""
    if isinstance(content, str):
        return content, None
    if not isinstance(content, list) or not content or not all(map(_is_text, content)):
        return None, None
    *before, last = content
    # A marker for the provider's prefix cache changes nothing.
    rest = {name: value for name, value in last.items() if name not in ("text", "cache_control")}
    return last["text"], [*before, rest] if before or rest.keys() != {"type"} else None


def _is_text(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str)


def _prompt(value: object) -> _Turns | Reason:
    """A prompt is continued, so that the white space at its ends counts."""
    if isinstance(value, list) and len(value) > 1 and all(isinstance(item, str | list) for item in value):
        return Reason.MANY_ANSWERS
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        return Reason.NOT_TEXT  # token ids
    before, after = len(value) - len(value.lstrip()), len(value.rstrip())
    return _Turns(value, [value[:before], value[after:]])
