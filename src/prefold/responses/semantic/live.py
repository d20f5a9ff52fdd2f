"""Live answers that come from the semantic cache, or from which it learns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec

from prefold.errors import PrefoldError
from prefold.responses.cache import Replay, Source
from prefold.responses.flights import Headers, LiveAnswer
from prefold.responses.semantic.forms import read_answer, render
from prefold.responses.semantic.types import Answer, Hit
from prefold.responses.store import StoredAnswer

_OK = 200
_LONGEST_READ = 1 << 20


def replay(hit: Hit, api: str, fields: Mapping[str, Any], identity: str, now: float) -> Replay:
    """A kept answer in the form that a request asks for.

    Args:
        hit: to be served.
        api: path of the endpoint.
        fields: of the request.
        identity: of the answer.
        now: Unix seconds.
    """
    stream_options = fields.get("stream_options")
    headers, chunks = render(
        hit.answer,
        api,
        stream=fields.get("stream") is True,
        include_usage=isinstance(stream_options, Mapping) and stream_options.get("include_usage") is True,
        id=identity,
        created=now,
        provenance={
            "entry": hit.candidate.entry,
            "age_seconds": round(hit.age),
            "similarity": round(hit.candidate.similarity, 4),
            "probability": round(hit.probability, 4),
        },
        request=fields,
    )
    own = tuple(header for header in headers if header[0] != b"x-prefold-cache")  # which comes of `Reply.source`
    stored = StoredAnswer(_OK, own, chunks, now, hit.answer.input_tokens, hit.answer.output_tokens)
    return Replay(stored, Source.SEMANTIC)


class NotJson(PrefoldError):
    """A model's answer holds what JSON has no form for, so that it can be neither kept nor shared."""


class Document:
    """A whole answer that somebody else fetched. A `LiveAnswer`.

    Raises:
        NotJson: if it cannot be one.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.status = _OK
        try:
            self._body = msgspec.json.encode(document)
        except (TypeError, ValueError):
            raise NotJson("The model's answer is no JSON.") from None
        self.headers: Headers = [(b"content-type", b"application/json")]

    async def chunks(self) -> AsyncIterator[bytes]:
        """See `LiveAnswer`."""
        yield self._body

    async def close(self) -> None:
        """See `LiveAnswer`."""


class Learning:
    """A live answer that is read as it passes. A `LiveAnswer`.

    Args:
        answer: passed on as it is.
        api: path of the endpoint that gives it.
        learn: called with it once it has come whole, if it is an answer to keep.
    """

    def __init__(self, answer: LiveAnswer, api: str, learn: Callable[[Answer], None]) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._answer = answer
        self._api = api
        self._learn = learn

    async def chunks(self) -> AsyncIterator[bytes]:
        """See `LiveAnswer`."""
        held: list[bytes] = []
        size = 0
        async for chunk in self._answer.chunks():
            size += len(chunk)
            if size <= _LONGEST_READ and self.status == _OK:
                held.append(chunk)
            yield chunk
        if size <= _LONGEST_READ and self.status == _OK:
            answer = read_answer(self._api, dict(self.headers), b"".join(held))
            if answer is not None:
                self._learn(answer)

    async def close(self) -> None:
        """See `LiveAnswer`."""
        await self._answer.close()
