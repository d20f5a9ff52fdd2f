"""Langfuse's exports: observations as JSON, JSON Lines or CSV, whole traces, and answers of its public API.

Fields are those of Langfuse's page `blob-storage-export-fields`, seen on 2026-11-30, in both of the spellings that its
exports and its API have: `usageDetails` and `usage_details`. The usage types beside `input`, `output` and `total` are
names that integrations were seen to give. Only generations are requests; other observations are passed over.
Usage types are disjoint there, so that `input` does not hold what was read from cache, unless `total` says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from prefold.analysis.logs.answers import read_answer
from prefold.analysis.logs.contents import body_of, object_of, value_of
from prefold.analysis.logs.reader import BadLine, Head, Source
from prefold.analysis.logs.tables import csv_rows, header_of
from prefold.analysis.logs.values import count, first, loaded, moment, name, seconds
from prefold.analysis.record import Place, Record
from prefold.errors import InvalidRequest
from prefold.providers.usage import Usage

_TYPE = "generation"
_OWN = frozenset(
    {"usagedetails", "providedmodelname", "completionstarttime", "costdetails", "internalmodel", "parentobservationid"}
)
_LISTS = ("observations", "data")
_INPUT = ("input", "prompt_tokens", "input_tokens", "promptTokens", "inputTokens")
_READ = ("input_cached_tokens", "cache_read_input_tokens", "input_cache_read", "cached_tokens", "cache_read")
_WRITE = ("cache_creation_input_tokens", "input_cache_creation", "cache_write_input_tokens", "cache_creation")
_OUTPUT = ("output", "completion_tokens", "output_tokens", "completionTokens", "outputTokens")


class Langfuse:
    """Reads generations of Langfuse."""

    name = "langfuse"

    def recognises(self, head: Head, /) -> bool:
        """Whether the first objects are observations, or hold some; or the columns are theirs."""
        values = [*head.objects, head.first] if isinstance(head.first, dict) else list(head.objects)
        for value in values:
            with suppress(InvalidRequest):
                if any(_is_observation(item) for item in _observations(value)):
                    return True
        return len(_OWN & {_plain(column) for column in header_of(head)}) > 1

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """The records of a file."""
        is_json = source.peek().removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")
        for number, row in source.values() if is_json else csv_rows(source):
            place = source.place(number)
            try:
                for observation in _observations(loaded(row)) if isinstance(row, bytes) else [row]:
                    if str(observation.get("type", _TYPE)).lower() == _TYPE:
                        yield _record(observation, place, source)
            except InvalidRequest as error:
                yield BadLine(place, error.message)


def _plain(column: str) -> str:
    return column.replace("_", "").lower()


def _is_observation(value: Mapping[str, Any]) -> bool:
    kind = str(value.get("type", "")).lower()
    columns = {_plain(str(field)) for field in value}
    return (kind in (_TYPE, "span", "event") and "traceid" in columns) or len(_OWN & columns) > 1


def _observations(value: object) -> list[dict[str, Any]]:
    """The observations in a JSON value, in order of time: one, or those of a trace with its user and session.

    Raises:
        InvalidRequest: if the value is no object.
    """
    if not isinstance(value, dict):
        raise InvalidRequest("This is no observation of Langfuse.", hint="It is an object with type and input.")
    inner = next((value[field] for field in _LISTS if isinstance(value.get(field), list)), None)
    if inner is None and not _is_observation(value):
        raise InvalidRequest("This is no observation of Langfuse.", hint="It is an object with type and traceId.")
    if inner is None:
        return [value]
    trace = value["trace"] if isinstance(value.get("trace"), dict) else value
    shared = {field: trace[field] for field in ("userId", "user_id", "sessionId", "session_id") if trace.get(field)}
    found = [{**shared, **item} for item in inner if isinstance(item, dict)]
    return sorted(found, key=lambda item: moment(_get(item, "startTime")) or 0.0)


def _get(observation: Mapping[str, Any], field: str) -> Any:
    """A field in one of its two spellings."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in field)
    value = first(observation, (field, snake))
    return None if value == "" else value


def _record(observation: dict[str, Any], place: Place, source: Source) -> Record:
    model = name(*(_get(observation, field) for field in ("providedModelName", "model", "internalModel")))
    parameters = object_of(_get(observation, "modelParameters"))
    answer = read_answer(value_of(_get(observation, "output")), source)
    usage = _usage(observation, source) or answer.usage
    begun, ended = moment(_get(observation, "startTime")), moment(_get(observation, "endTime"))
    first_token = moment(_get(observation, "completionStartTime"))
    ttft = seconds(_get(observation, "timeToFirstToken"))
    if ttft is None and begun is not None and first_token is not None and first_token >= begun:
        ttft = first_token - begun
    text = answer.text if answer.text is not None else _words(value_of(_get(observation, "output")))
    return Record(
        content=body_of(_get(observation, "input"), model, tools=parameters.get("tools")),
        place=place,
        time=begun,
        model=model,
        tenant=name(_get(observation, "userId")),
        session=name(_get(observation, "sessionId"), _get(observation, "traceId")),
        usage=usage,
        answer=text,
        output_tokens=usage.output if usage else None,
        stop=answer.stop,
        duration=ended - begun if begun is not None and ended is not None and ended >= begun else None,
        ttft=ttft,
        request_id=name(observation.get("id")),
        miss_reason=answer.miss_reason,
    )


def _words(output: object) -> str | None:
    """An answer that is kept as a message."""
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        return str(output["content"])
    return None


def _usage(observation: Mapping[str, Any], source: Source) -> Usage | None:
    details = object_of(_get(observation, "usageDetails")) or object_of(observation.get("usage"))
    uncached = count(first(details, _INPUT), source)
    if uncached is None:
        return None
    given = count(first(details, _READ), source)
    read, write = given or 0, count(first(details, _WRITE), source) or 0
    output = count(first(details, _OUTPUT), source) or 0
    total = count(details.get("total"), source)
    includes = total == uncached + output and read + write <= uncached
    if includes:
        uncached -= read + write
    return Usage(uncached, read, write, output=output, is_reported=given is not None)
