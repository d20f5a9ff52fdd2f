"""The formats of logs that can be read, and which of them a file has."""

from __future__ import annotations

from prefold.analysis.logs import agents, sharegpt, traces, transcripts
from prefold.analysis.logs.bodies import Bodies
from prefold.analysis.logs.gateway import Gateway
from prefold.analysis.logs.langfuse import Langfuse
from prefold.analysis.logs.litellm import LiteLLM
from prefold.analysis.logs.reader import Head, Reader
from prefold.analysis.logs.spans import Spans
from prefold.analysis.logs.tables import CSV, Parquet
from prefold.analysis.logs.vllm import VLLM
from prefold.errors import InvalidRequest, UsageError
from prefold.prompts.prompt import Dialect

READERS: tuple[Reader, ...] = (
    Parquet(),
    VLLM(),
    Spans(),
    Langfuse(),
    LiteLLM(),
    *transcripts.READERS,
    *traces.READERS,
    *agents.READERS,
    *sharegpt.READERS,
    CSV(),
    Gateway(),
    Bodies(),
)
"""The most particular first: whatever holds a body is one for the last."""


def recognise(head: Head) -> Reader | None:
    """The reader of a file that begins so; None if it is in no known format."""
    return next((reader for reader in READERS if reader.recognises(head)), None)


def reader_named(name: str) -> Reader:
    """The reader of a format; that of bodies in one dialect for the name of a dialect.

    Raises:
        UsageError: listing the known formats.
    """
    plain = name.strip().lower().replace("-", "_")
    for reader in READERS:
        if reader.name == plain:
            return reader
    try:
        return Bodies(Dialect.named(plain))
    except InvalidRequest:
        raise UsageError(f"There is no log format {name!r}.", hint=f"Known formats: {names()}.") from None


def names() -> str:
    """The names of all formats."""
    return ", ".join((*(reader.name for reader in READERS), *Dialect))
