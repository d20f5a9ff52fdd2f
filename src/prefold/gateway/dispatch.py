"""One call at one replica: in the words that the replica speaks, with the tenant's salt, and back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import msgspec

from prefold.errors import InvalidRequest
from prefold.gateway.call import Api, Call
from prefold.gateway.config import ReplicaTable
from prefold.gateway.isolation import takes_salt, with_salt
from prefold.gateway.translate import Translation, counting, errors, translate
from prefold.gateway.upstream import HOP_HEADERS, Answer, Headers, Outgoing, Upstream, UpstreamFailed
from prefold.prompts.tokens import counter_for
from prefold.server.asgi import HttpError, encode_json

_NOT_PASSED_ON = HOP_HEADERS | {b"host", b"content-length", b"expect", b"accept-encoding"}
_OWN_PREFIX = b"x-prefold-"
_REQUEST_ID = b"x-request-id"
_PLAIN = (b"accept-encoding", b"identity")  # what is compressed can be neither metered nor translated
_EVENT_STREAM = b"text/event-stream"
_JSON = (b"content-type", b"application/json")
_ESTIMATED = (b"x-prefold-tokens", b"estimated")
_MISSING = frozenset({404, 405})
_MISSING_WORDS = frozenset({"not found", "file not found", "method not allowed"})  # vLLM's and llama.cpp's


class Dispatcher:
    """Asks replicas.

    Args:
        private: names of headers that are for the gateway alone: the clients' credentials, where they are its own.
        now: Unix seconds.
    """

    def __init__(self, private: frozenset[bytes], now: Callable[[], float]) -> None:
        self._dropped = _NOT_PASSED_ON | private
        self._now = now

    async def ask(self, call: Call, table: ReplicaTable, upstream: Upstream) -> Answer:
        """Send a call, and wait for the head of its answer.

        Raises:
            UpstreamFailed: if there is none.
            InvalidRequest: if the replica's API cannot say what is asked.
            HttpError: if the replica cannot be asked this at all.
        """
        if _speaks(table, call.api) and (call.tenant.salt is None or takes_salt(table.kind, call.api)):
            answer = await _send(upstream, self._outgoing(call, with_salt(call, table.kind)))
            return await _unless_missing(answer, call.api) if answer.status in _MISSING else answer
        if call.api is Api.COUNT_TOKENS:
            return await self._count(call, table, upstream)
        translation = translate(call.api, call.fields, table.kind, int(self._now()))
        if translation is None or not _speaks(table, translation.api):
            if _speaks(table, call.api):
                return await _send(upstream, self._outgoing(call, with_salt(call, table.kind)))
            raise _unsupported(call.api)
        there = replace(
            call, api=translation.api, body=encode_json(translation.body), fields=translation.body, query=b"", fired=[]
        )
        answer = await _send(upstream, self._outgoing(there, with_salt(there, table.kind)))
        if _is_stream(answer):
            return TranslatedStream(answer, translation)
        return await _translated(answer, translation)

    def _outgoing(self, call: Call, body: bytes, path: str | None = None) -> Outgoing:
        dropped = self._dropped
        if connection := call.headers.get(b"connection"):  # what it names is for this hop alone (RFC 9110, 7.6.1)
            dropped = dropped.union(name.strip().lower() for name in connection.split(b","))
        if call.tenant.salt is not None:  # engines know requests by it, other tenants' too
            dropped |= {_REQUEST_ID}
        headers: Headers = [
            (name, value)
            for name, value in call.headers.items()
            if name not in dropped and not name.startswith(_OWN_PREFIX)
        ]
        headers.append(_PLAIN)
        return Outgoing("POST", path or call.path, headers, body)

    async def _count(self, call: Call, table: ReplicaTable, upstream: Upstream) -> Answer:
        """Tokens of a prompt in Anthropic's words: the replica's own number where it has one, or else ours."""
        request = counting.tokenize_request(call.fields, table.kind)
        if request is None:
            return WholeAnswer(200, encode_json(counting.estimate(call.fields, counter_for(call.model))), [_ESTIMATED])
        answer = await _send(upstream, self._outgoing(call, encode_json(request), counting.TOKENIZE_PATH))
        try:
            body = await _whole(answer)
        finally:
            await answer.close()
        if answer.status != 200:
            refusal = errors.to_anthropic(answer.status, body)
            return WholeAnswer(answer.status, encode_json(refusal), _own_headers(answer))
        return WholeAnswer(200, encode_json(counting.read_count(_object(body))))


async def _send(upstream: Upstream, outgoing: Outgoing) -> Answer:
    """Send a request and wait for the head of an answer that a client can use.

    Raises:
        UpstreamFailed: if there is none; so where it is a redirect, since no client could or should go there.
    """
    answer = await upstream.send(outgoing)
    if 300 <= answer.status < 400:
        await answer.close()
        raise UpstreamFailed(
            f"The upstream redirects elsewhere ({answer.status})",
            hint="give the URL that it redirects to",
            told=f"The server of this model answered with a redirect ({answer.status})",
        )
    return answer


class WholeAnswer:
    """An answer that is there already."""

    def __init__(self, status: int, body: bytes, headers: Headers | None = None) -> None:
        self.status = status
        self.headers: Headers = [*(headers or ()), _JSON, (b"content-length", str(len(body)).encode())]
        self._body = body

    async def chunks(self) -> AsyncIterator[bytes]:
        """See `Answer`."""
        yield self._body

    async def close(self) -> None:
        """Nothing to stop."""


class TranslatedStream:
    """A stream in the words of the client's API. An `Answer`."""

    def __init__(self, answer: Answer, translation: Translation) -> None:
        self.status = answer.status
        self.headers: Headers = [*_own_headers(answer), (b"content-type", _EVENT_STREAM)]
        self._answer = answer
        self._translation = translation

    async def chunks(self) -> AsyncIterator[bytes]:
        """See `Answer`."""
        stream = self._translation.stream()
        async for chunk in self._answer.chunks():
            if events := stream.feed(chunk):
                yield events
            if stream.is_over:
                return
        if events := stream.end():
            yield events

    async def close(self) -> None:
        """See `Answer`."""
        await self._answer.close()


async def _translated(answer: Answer, translation: Translation) -> Answer:
    """A whole answer in the words of the client's API. It is read to its end: half of one could not be translated.

    Raises:
        UpstreamFailed: if it breaks off, or is none.
    """
    try:
        body = await _whole(answer)
    finally:
        await answer.close()
    if answer.status >= 400:
        value = translation.error(answer.status, body)
    else:
        try:
            value = translation.answer(_object(body))
        except InvalidRequest as error:
            raise UpstreamFailed(f"The upstream's answer cannot be read: {error.message}") from error
    return WholeAnswer(answer.status, encode_json(value), _own_headers(answer))


def _unsupported(api: Api) -> HttpError:
    return HttpError(
        400,
        f"The servers of this model have no {api.value}",
        hint="use an endpoint that they have",
        code="unsupported_endpoint",
    )


async def _unless_missing(answer: Answer, api: Api) -> Answer:
    """An answer that might say that there is no such endpoint, where it says something else, of the model for example.

    Servers say that in no words at all, in those of their framework, or (prefold) by a code.

    Raises:
        HttpError: if it does.
        UpstreamFailed: if it breaks off.
    """
    try:
        body = await _whole(answer)
    finally:
        await answer.close()
    try:
        error = _object(body).get("error")
    except UpstreamFailed:
        error = None
    told = error if isinstance(error, dict) else {"message": error}
    if error is None or told.get("code") == "not_found" or str(told.get("message")).lower() in _MISSING_WORDS:
        raise _unsupported(api)
    return WholeAnswer(answer.status, body, _own_headers(answer))


def _is_stream(answer: Answer) -> bool:
    return answer.status < 400 and any(
        name == b"content-type" and value.startswith(_EVENT_STREAM) for name, value in answer.headers
    )


def _own_headers(answer: Answer) -> Headers:
    return [(name, value) for name, value in answer.headers if name not in (b"content-length", b"content-type")]


def _speaks(table: ReplicaTable, api: Api) -> bool:
    return ("anthropic" if api.is_anthropic else "openai") in table.dialects


async def _whole(answer: Answer) -> bytes:
    return b"".join([chunk async for chunk in answer.chunks()])


def _object(body: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        UpstreamFailed: if it is none.
    """
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UpstreamFailed("The upstream's answer is not a JSON object", hint="check what is served there") from None
