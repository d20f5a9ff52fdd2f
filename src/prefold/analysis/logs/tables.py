"""Logs that are tables: CSV and Parquet with named columns.

Columns are recognised by name, whatever their case and whether words are joined by `_`, `-`, a space or nothing. One
of them must hold the prompt: as a body, as messages, as text, or as ids of tokens or blocks.
"""

from __future__ import annotations

import csv
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

from prefold.analysis.logs.answers import read_answer
from prefold.analysis.logs.bodies import token_blocks
from prefold.analysis.logs.contents import body_of, value_of
from prefold.analysis.logs.reader import LONGEST_LINE, BadLine, Head, Source
from prefold.analysis.logs.source import seekable
from prefold.analysis.logs.values import count, first, loaded, moment, name, seconds, usage_of
from prefold.analysis.record import Blocks, Body, Place, Record
from prefold.core.tokens import count as length
from prefold.core.tokens import pack
from prefold.errors import InvalidRequest, MissingExtra, PrefoldError
from prefold.providers.usage import Usage

_PARQUET = b"PAR1"
_ROWS = 256
_DELIMITERS = (",", "\t", ";", "|")
_DEFAULT_BLOCK = 512
"""Tokens of a block where the table does not say: as in Mooncake's traces."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "body": ("body", "request", "requestbody", "payload"),
    "messages": ("messages", "input", "contents", "conversation"),
    "prompt": ("prompt", "prompttext", "inputtext", "text", "query", "question"),
    "system": ("system", "systemprompt", "instructions"),
    "tools": ("tools",),
    "token_ids": ("prompttokenids", "tokenids", "inputids"),
    "block_ids": ("hashids", "blockids", "blockhashes", "blocks"),
    "block_tokens": ("blocksize", "blocktokens"),
    "model": ("model", "modelname", "modelid"),
    "provider": ("provider", "customllmprovider"),
    "time": (
        *("timestamp", "time", "ts", "starttime", "start", "requesttime", "createdat", "created", "arrivaltime"),
        *("arrivedat", "date", "datetime"),
    ),
    "end": ("endtime", "end", "completedat", "finishedat"),
    "tenant": (
        *("tenant", "tenantid", "customer", "customerid", "organization", "orgid", "team", "teamid", "user", "userid"),
        *("enduser", "accountid"),
    ),
    "session": ("session", "sessionid", "conversationid", "threadid", "chatid"),
    "replica": ("replica", "server", "worker", "backend", "pod", "host"),
    "input": ("inputtokens", "prompttokens", "inputlength", "promptlength", "contexttokens", "numprefilltokens"),
    "cached": ("cachedtokens", "cachedinputtokens", "promptcachehittokens", "cachehittokens"),
    "read": ("cachereadinputtokens", "cachereadtokens"),
    "write": ("cachecreationinputtokens", "cachecreationtokens", "cachewritetokens", "cachewriteinputtokens"),
    "output": ("outputtokens", "completiontokens", "outputlength", "generatedtokens", "numdecodetokens"),
    "usage": ("usage",),
    "answer": ("answer", "response", "completion", "output", "outputtext"),
    "stop": ("stopreason", "finishreason", "stop"),
    "duration": ("duration", "durations", "latency", "latencys"),
    "duration_ms": ("durationms", "latencyms"),
    "ttft": ("ttft", "ttfts", "timetofirsttoken"),
    "ttft_ms": ("ttftms", "timetofirsttokenms"),
    "request_id": ("requestid", "xrequestid", "responseid"),
}
"""Columns by what they mean, without case and separators; the first that a row fills counts."""

_CONTENT = ("body", "messages", "prompt", "token_ids", "block_ids")
_MEANINGS = {column: meaning for meaning, columns in COLUMNS.items() for column in columns}


class CSV:
    """Reads comma-separated values, and those separated by tab, semicolon or bar, below a line of names."""

    name = "csv"

    def recognises(self, head: Head, /) -> bool:
        """Whether the first line names a column that can hold prompts, and another that is known."""
        return _are_known(header_of(head))

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """The records of a file; a row's place is the line that it begins in."""
        for number, row in csv_rows(source):
            yield from _read(row, source.place(number), source)


class Parquet:
    """Reads Parquet files, some rows at a time."""

    name = "parquet"

    def recognises(self, head: Head, /) -> bool:
        """Whether the file begins as Parquet files do."""
        return head.start.startswith(_PARQUET)

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """The records of a file; a row's place is its number.

        Raises:
            InvalidRequest: if the file is damaged, or has no column that can hold prompts.
            MissingExtra: if there is nothing to read Parquet with.
        """
        try:
            arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        except ModuleNotFoundError:
            raise MissingExtra(
                "A Parquet file needs the package pyarrow, which is not installed.",
                hint="pip install 'prefold[analysis]'.",
            ) from None
        try:
            with seekable(source.raw) as file:
                table = parquet.ParquetFile(file)
                columns = [column for column in table.schema_arrow.names if _plain(column) in _MEANINGS]
                if not _are_known(columns, at_least=1):
                    raise InvalidRequest(
                        "No column of the table holds prompts.", hint="Name one prompt, messages, body or hash_ids."
                    )
                for batch in table.iter_batches(batch_size=_ROWS, columns=columns, use_threads=False):
                    for row in batch.to_pylist():
                        source.number += 1
                        yield from _read(row, source.place(source.number), source)
        except (arrow.ArrowException, OSError, ValueError, OverflowError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the disk; pyarrow's own have no number
            problem = str(error).partition("\n")[0].rstrip(".")
            raise InvalidRequest(f"The table is damaged: {problem}.", hint="Check that it is complete.") from None


def header_of(head: Head) -> list[str]:
    """The names of columns in the first line of a file; none if it cannot be a table."""
    line, newline, _ = head.start.partition(b"\n")
    if not newline or line[:1] in (b"{", b"[") or len(line) > 10_000:
        return []
    try:
        text = line.decode().rstrip("\r")
        rows = list(csv.reader([text], delimiter=_delimiter_of(text)))
    except (UnicodeDecodeError, csv.Error):
        return []
    return rows[0] if rows else []


def csv_rows(source: Source) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of comma-separated values, by column, with the number of the line that each begins in.

    Raises:
        InvalidRequest: if the file is no text, or a quote in it is never closed.
    """
    # A limit of the process, not of the reader: prompts are longer than what the module takes for a fault.
    csv.field_size_limit(LONGEST_LINE)
    try:
        lines = (line.decode() for line in source.whole_lines())
        header = next(lines, "")
        rows = csv.reader(lines, delimiter=_delimiter_of(header), strict=True)
        columns = next(csv.reader([header], delimiter=_delimiter_of(header)), [])
        while True:
            begin = source.number + 1
            row = next(rows, None)
            if row is None:
                return
            if row:
                yield begin, dict(zip(columns, row, strict=False))
    except UnicodeDecodeError as error:
        problem = f"The line is not UTF-8 text: byte {error.start + 1} is 0x{error.object[error.start]:02X}."
    except csv.Error as error:
        problem = f"The row is broken: {error}."
    raise InvalidRequest(problem, hint="Check the quotes of the file from there on.")


def _delimiter_of(header: str) -> str:
    return max(_DELIMITERS, key=header.count)


def _plain(column: str) -> str:
    return column.strip().lower().replace("_", "").replace("-", "").replace(" ", "").replace(".", "")


def _are_known(columns: Iterable[str], *, at_least: int = 2) -> bool:
    meanings = {_MEANINGS[plain] for column in columns if (plain := _plain(column)) in _MEANINGS}
    return len(meanings) >= at_least and not meanings.isdisjoint(_CONTENT)


def _read(row: Mapping[str, Any], place: Place, source: Source) -> Iterator[Record | BadLine]:
    try:
        yield _record(_by_meaning(row), place, source)
    except InvalidRequest as error:
        yield BadLine(place, error.message)


def _by_meaning(row: Mapping[str, Any]) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    for column, value in row.items():
        if value is not None and value != "":
            filled[_plain(column)] = value.decode(errors="replace") if isinstance(value, bytes) else value
    found = ((meaning, first(filled, columns)) for meaning, columns in COLUMNS.items())
    return {meaning: value for meaning, value in found if value is not None}


def _record(row: Mapping[str, Any], place: Place, source: Source) -> Record:
    usage = _usage(row, source)
    answer = read_answer(value_of(row.get("answer")), source)
    usage = usage or answer.usage
    begun, ended = moment(row.get("time")), moment(row.get("end"))
    duration = _seconds(row, "duration")
    if duration is None and begun is not None and ended is not None and ended >= begun:
        duration = ended - begun
    output = count(row.get("output"), source)
    content = _content(row, source)
    model = name(row.get("model"))
    if not model and isinstance(content, Body):
        model = content.prompt.model
    return Record(
        content=content,
        place=place,
        time=begun,
        model=model,
        provider=name(row.get("provider")),
        tenant=name(row.get("tenant")),
        session=name(row.get("session")),
        replica=name(row.get("replica")),
        usage=usage,
        answer=answer.text,
        output_tokens=usage.output if output is None and usage else output,
        stop=name(row.get("stop"), answer.stop),
        duration=duration,
        ttft=_seconds(row, "ttft"),
        request_id=name(row.get("request_id"), answer.response_id),
        miss_reason=answer.miss_reason,
    )


def _seconds(row: Mapping[str, Any], meaning: str) -> float | None:
    whole = seconds(row.get(meaning))
    return seconds(row.get(f"{meaning}_ms"), unit=1e-3) if whole is None else whole


def _usage(row: Mapping[str, Any], source: Source) -> Usage | None:
    """Usage of a row: columns named as Anthropic's fields are disjoint, all others hold what was cached."""
    if (given := value_of(row.get("usage"))) and isinstance(given, dict):
        return usage_of(given, source)
    if "input" not in row or not {"cached", "read", "write", "output"} & row.keys():
        return None
    if "read" in row and "cached" not in row:
        fields = (
            ("input", "input_tokens"),
            ("read", "cache_read_input_tokens"),
            ("write", "cache_creation_input_tokens"),
        )
    else:
        fields = ("input", "prompt_tokens"), ("cached", "cached_tokens"), ("write", "cache_creation_input_tokens")
    return usage_of(
        {field: row[meaning] for meaning, field in (*fields, ("output", "output_tokens")) if meaning in row}, source
    )


def _content(row: Mapping[str, Any], source: Source) -> Body | Blocks:
    """The prompt of a row.

    Raises:
        InvalidRequest: if it has none.
    """
    if "block_ids" in row:
        return _blocks(row, source)
    if "token_ids" in row:
        return token_blocks(_packed(row["token_ids"]))
    model = name(row.get("model"))
    prompt = value_of(first(row, ("body", "messages", "prompt")))
    system = row.get("system")
    if system is not None and not isinstance(prompt, dict):
        messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        prompt = [{"role": "system", "content": value_of(system)}, *messages]
    return body_of(prompt, model, tools=value_of(row.get("tools")))


def _blocks(row: Mapping[str, Any], source: Source) -> Blocks:
    run = _packed(row["block_ids"])
    block_tokens = count(row.get("block_tokens"), source) or _DEFAULT_BLOCK
    tokens = count(row.get("input"), source)
    whole = length(run) * block_tokens
    if tokens is None:
        return Blocks(run, block_tokens, whole)
    # The last id of a trace often stands for a block that is not full: it never matches as a whole.
    full = min(length(run), tokens // block_tokens)
    return Blocks(run[: full * 4], block_tokens, tokens)


def _packed(ids: object) -> bytes:
    """Ids as a run: a list, its JSON, or numbers with something between them. Long ids are hashed to 32 bits.

    Raises:
        InvalidRequest: if they are none.
    """
    if isinstance(ids, str):
        text = ids.strip()
        ids = loaded(text) if text[:1] == "[" else text.replace(",", " ").replace(";", " ").split()
    if not isinstance(ids, list):
        raise InvalidRequest("The ids are not a list.", hint="Write them as [1, 2, 3].")
    try:
        return pack(_short(item) for item in ids)
    except PrefoldError as error:
        raise InvalidRequest(error.message, hint=error.hint) from None


def _short(item: object) -> int:
    if isinstance(item, int) and 0 <= item < 2**32:
        return int(item)
    if isinstance(item, str) and item.isdecimal() and len(item) < 10:
        return int(item)
    return zlib.crc32(item.encode(errors="surrogatepass") if isinstance(item, str) else json.dumps(item).encode())
