"""One request of a log, whatever the log's format: what every reader yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from prefold.core.tokens import count
from prefold.prompts.prompt import Dialect, Prompt
from prefold.providers.usage import Usage

if TYPE_CHECKING:
    import msgspec


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands.

    Attributes:
        file: its name, as messages show it.
        line: counted from 1; the record's number in files without lines.
    """

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Blocks:
    """A prompt given as ids instead of text: of blocks, or of tokens.

    Attributes:
        run: the ids, packed as in `prefold.core.tokens`. In one log the same ids at the same places mean the same
            tokens: a reader makes ids that are local to a session global.
        block_tokens: tokens that an id stands for; 1 for token ids.
        tokens: input tokens, at least those of all whole blocks; what is more follows the last block and never
            matches.
    """

    run: bytes
    block_tokens: int
    tokens: int

    @property
    def blocks(self) -> int:
        """Number of ids."""
        return count(self.run)


@dataclass(frozen=True)
class Body:
    """A prompt given as the body of a request, read when it is needed.

    Attributes:
        content: its bytes.
        dialect: its form; None to recognise it by content.
        fields: its fields, unread, where its reader had to tell them apart anyway; None where not.
    """

    content: bytes
    dialect: Dialect | None = None
    fields: Mapping[str, msgspec.Raw] | None = field(default=None, compare=False, repr=False)

    @cached_property
    def prompt(self) -> Prompt:
        """The request.

        Raises:
            InvalidRequest: if the body is none.
        """
        return Prompt.parse(self.content, self.dialect)


@dataclass(frozen=True, slots=True)
class Record:
    """One request of a log.

    Attributes:
        content: what was sent.
        place: where the record stands.
        time: when it was sent, in seconds since 1970, or since the trace began; None where the log does not say.
        model: as the request names it; empty where the log does not say.
        provider: who served it, where the log says so beside the model's name; else empty.
        tenant: the customer, user or team that it belongs to; else empty.
        session: the conversation that it belongs to; else empty.
        replica: the server that it went to; else empty.
        usage: what the provider counted; None where the log does not say.
        answer: what came back, as text or as ids like those of the prompt; None where the log does not say.
        output_tokens: length of the answer; None where the log does not say.
        stop: why the answer ended, such as `tool_use`; else empty.
        duration: seconds from request to the end of its answer; None where the log does not say.
        ttft: seconds from request to the first token of its answer; None where the log does not say.
        request_id: what tells a repeated record from a repeated request; else empty.
        miss_reason: the provider's own word on why its cache did not hold; else empty.
    """

    content: Body | Blocks
    place: Place
    time: float | None = None
    model: str = ""
    provider: str = ""
    tenant: str = ""
    session: str = ""
    replica: str = ""
    usage: Usage | None = None
    answer: str | Blocks | None = field(default=None, repr=False)
    output_tokens: int | None = None
    stop: str = ""
    duration: float | None = None
    ttft: float | None = None
    request_id: str = ""
    miss_reason: str = ""
