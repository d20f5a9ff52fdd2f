"""Where a watcher takes hold of a client.

At the one method through which all requests of an SDK pass, replaced on this one object. Everything above it, such as
`create`, `parse`, `stream`, `with_raw_response`, chats and tool runners, comes through there, and is neither known here
nor changed: classes, types and error handling stay those of the SDK. What is needed of an SDK is little:

    openai, anthropic   client.request(cast_to, options, ...), options.url, options.json_data, client.copy(...)
    google-genai        client._api_client.request(method, path, body, ...) and its three siblings

The client is changed in place, not copied: a client of google-genai closes its connections when it is collected, so
that a copy of one that nobody else holds would be dead.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from prefold.clients.bodies import UnreadableIterator, without_absent
from prefold.clients.watcher import Call, Watcher
from prefold.prompts.prompt import Dialect

_DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "/chat/completions": Dialect.OPENAI,
        "/completions": Dialect.COMPLETION,
        "/responses": Dialect.RESPONSES,
        "/v1/messages": Dialect.ANTHROPIC,
    }
)
_WITH_STREAM_OPTIONS = (Dialect.OPENAI, Dialect.COMPLETION)
_GEMINI_METHODS = ("generateContent", "streamGenerateContent")
_USAGE_OF_GEMINI = '"usageMetadata"'
_decode: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class _Begun:
    """A request to be sent: what to tell about it, and the arguments to send it with."""

    call: Call
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]


def attach_to_rest(client: Any, watcher: Watcher) -> None:
    """Watch a client of openai or anthropic, and those made of it by `copy` and `with_options`."""

    def begin(cast_to: Any, options: Any, **named: Any) -> _Begun | None:
        dialect = _DIALECTS.get(str(options.url).partition("?")[0])
        if dialect is None or not isinstance(options.json_data, Mapping):
            return None
        merged = {**options.json_data, **(options.extra_json or {})}  # as the SDK does later
        body = without_absent(merged)
        call = watcher.begin(body, dialect)
        sent = call.body
        if watcher.include_usage and dialect in _WITH_STREAM_OPTIONS and sent.get("stream"):
            sent = {**sent, "stream_options": {"include_usage": True, **(sent.get("stream_options") or {})}}
        if sent is not body:
            options = copy.copy(options)
            options.json_data, options.extra_json = sent, None
        return _Begun(call, (cast_to, options), named)

    copied = client.copy

    @functools.wraps(copied)
    def watched_copy(**named: Any) -> Any:
        other = copied(**named)
        attach_to_rest(other, watcher)
        return other

    client.request = _watched(client.request, watcher, begin, _observe_answer)
    client.copy = client.with_options = watched_copy
    client.prefold = watcher


def attach_to_genai(client: Any, watcher: Watcher) -> None:
    """Watch a client of google-genai, with its `aio`, `models` and chats."""

    def begin(http_method: str, path: str, body: Mapping[str, Any], *rest: Any, **named: Any) -> _Begun | None:
        model, _, method = path.partition("?")[0].rpartition(":")
        if method not in _GEMINI_METHODS:
            return None
        # The SDK keeps the parts of the address in fields of their own, and the model there alone.
        fields = {key: value for key, value in body.items() if not key.startswith("_")}
        seen = {"model": model.rpartition("/")[2], **fields}
        call = watcher.begin(seen, Dialect.GEMINI)
        if call.body is not seen:
            body = {**body, **{key: value for key, value in call.body.items() if key != "model"}}
        return _Begun(call, (http_method, path, body, *rest), named)

    api = client._api_client  # private, but the SDK has no other place that all requests pass
    api.request = _watched(api.request, watcher, begin, _observe_gemini)
    api.async_request = _watched(api.async_request, watcher, begin, _observe_gemini)
    api.request_streamed = _watched(api.request_streamed, watcher, begin, _observe_gemini_stream)
    api.async_request_streamed = _watched(api.async_request_streamed, watcher, begin, _observe_gemini_stream)
    client.prefold = watcher


def _watched(
    send: Callable[..., Any],
    watcher: Watcher,
    begin: Callable[..., _Begun | None],
    observe: Callable[[Any, Call], Any],
) -> Callable[..., Any]:
    """A method that sends requests, watched.

    Args:
        send: the method, bound; a coroutine function or not.
        watcher: is told what goes wrong here.
        begin: takes its arguments; None for a request that is none of ours.
        observe: takes the answer and returns what the caller gets.
    """

    def observed(answer: Any, call: Call) -> Any:
        try:
            return observe(answer, call)
        except Exception as error:  # noqa: BLE001 - the same
            watcher.fault(error)
            return answer

    if inspect.iscoroutinefunction(send):

        @functools.wraps(send)
        async def watched_coroutine(*arguments: Any, **named: Any) -> Any:
            request = _begun(begin, watcher, arguments, named)
            if request is None:
                return await send(*arguments, **named)
            with request.call:
                answer = await send(*request.arguments, **request.named)
            return observed(answer, request.call)

        return watched_coroutine

    @functools.wraps(send)
    def watched(*arguments: Any, **named: Any) -> Any:
        request = _begun(begin, watcher, arguments, named)
        if request is None:
            return send(*arguments, **named)
        with request.call:
            answer = send(*request.arguments, **request.named)
        return observed(answer, request.call)

    return watched


def _begun(
    begin: Callable[..., _Begun | None], watcher: Watcher, arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> _Begun | None:
    try:
        return begin(*arguments, **named)
    except UnreadableIterator as failure:
        raise failure.error from None
    except Exception as error:  # noqa: BLE001 - an SDK of another form: its requests go on unwatched
        watcher.fault(error)
        return None


def _observe_answer(answer: Any, call: Call) -> Any:
    """An answer of openai or anthropic: a stream, a raw response that the caller will parse, or the answer itself."""
    kind = type(answer)
    if hasattr(kind, "__stream__"):
        tap = AsyncTap if hasattr(kind, "__anext__") else Tap
        answer._iterator = tap(answer._iterator, call, _as_it_is)  # what both SDKs iterate over
    elif hasattr(kind, "parse") and hasattr(answer, "http_response"):

        def begin(*arguments: Any, **named: Any) -> _Begun:
            return _Begun(call, arguments, named)

        answer.parse = _watched(answer.parse, call.watcher, begin, _observe_answer)
    else:
        call.answered(answer)
    return answer


def _observe_gemini(answer: Any, call: Call) -> Any:
    call.answered(_gemini_usage(answer))
    return answer


def _observe_gemini_stream(answer: Any, call: Call) -> Any:
    return (AsyncTap if hasattr(answer, "__anext__") else Tap)(answer, call, _gemini_usage)


def _gemini_usage(response: Any) -> Mapping[str, Any]:
    """The usage in a response of google-genai, whose body is JSON text at this point; the rest of it is not read.

    The name cannot stand in a text of the answer: quotes in it are escaped.
    """
    body = response.body or ""
    start = body.rfind(_USAGE_OF_GEMINI)
    if start < 0:
        return {}
    value = body.index(":", start) + 1
    while body[value].isspace():
        value += 1
    return {"usageMetadata": _decode(body, value)[0]}


def _as_it_is(item: object) -> object:
    return item


class Tap:
    """Passes on the items of an iterator, and tells a call of each at the moment it passes.

    Args:
        items: the iterator.
        call: what to tell.
        read: makes of an item what holds its usage.
    """

    __slots__ = ("_call", "_items", "_read")

    def __init__(self, items: Iterator[Any], call: Call, read: Callable[[Any], object]) -> None:
        self._items = items
        self._call = call
        self._read = read

    def __iter__(self) -> Tap:
        return self

    def __next__(self) -> Any:
        with self._call:
            item = next(self._items, _END)
        if item is _END:
            self._call.ended()
            raise StopIteration
        self._call.fed(item, self._read)
        return item

    def __getattr__(self, name: str) -> Any:
        """What else a generator has, such as `close`."""
        return getattr(self._items, name)


class AsyncTap:
    """The same for an asynchronous iterator."""

    __slots__ = ("_call", "_items", "_read")

    def __init__(self, items: AsyncIterator[Any], call: Call, read: Callable[[Any], object]) -> None:
        self._items = items
        self._call = call
        self._read = read

    def __aiter__(self) -> AsyncTap:
        return self

    async def __anext__(self) -> Any:
        with self._call:
            item = await anext(self._items, _END)
        if item is _END:
            self._call.ended()
            raise StopAsyncIteration
        self._call.fed(item, self._read)
        return item

    def __getattr__(self, name: str) -> Any:
        """What else an asynchronous generator has, such as `aclose`."""
        return getattr(self._items, name)


_END = object()
