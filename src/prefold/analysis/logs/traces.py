"""Reading traces: requests whose prompts are ids instead of text.

Mooncake (kvcache-ai/Mooncake, `FAST25-release/traces`): `{"timestamp": 0, "input_length": 6758, "output_length": 500,
"hash_ids": [0, 1, ...]}`. An id stands for a block and all before it, in the whole trace; the last block need not be
full, but published figures count it so, and so do we. Time in milliseconds, blocks of 512 tokens, or as a field
`block_size` says. Traces of Qwen-Bailian (alibaba-edu/qwen-bailian-usagetraces-anon) have a `chat_id`, too; they have
time in seconds and blocks of 16.

Coding sessions (callanjfox/kv-cache-tester): `{"session": "trace_0001", "t": 0.0, "model": "...", "in": 71175,
"out": 169, "stop": "tool_use", "api_time": 7.3, "blocks": [[1, 1112], ...]}` with runs `[first id, count]` of whole
blocks of 64 tokens; ids, and times, belong to their session.

RAGPulse (flashserve/RAGPulse): `{"timestamp": "27", "input_length": 3861, "output_length": 127, "session_id": "...",
"hash_ids": {"sys_prompt": [...], "passages_ids": [...], "history": [...], "web_search": [...], "user_input": [...]}}`,
where an id stands for a part of the prompt. The lengths of parts are in files beside the trace.

prefold: what `prefold anonymise` writes, see `prefold.analysis.anonymise`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from prefold.analysis.anonymise import FORMAT, read_line
from prefold.analysis.logs.reader import BadLine, Head, Reader, Source
from prefold.analysis.logs.values import count, loaded, name, real, seconds
from prefold.analysis.record import Blocks, Record
from prefold.analysis.traced import TracedPrompt
from prefold.core.tokens import count as ids_in
from prefold.core.tokens import pack
from prefold.errors import InvalidRequest, InvalidTokens
from prefold.providers.usage import LARGEST_COUNT

_MOONCAKE_BLOCK = 512
_BAILIAN_BLOCK = 16
_CODING_BLOCK = 64
_PAGE = 4096  # ids of a session that are numbered together
_MOST_PAGES = 100_000
_ALL_PAGES = 2**32 // _PAGE


def _records(source: Source, record_of: Callable[[dict[str, Any]], Record | None]) -> Iterator[Record | BadLine]:
    """One record for each line that holds one."""
    for number, line in source.lines():
        try:
            value = loaded(line)
            if not isinstance(value, dict):
                yield BadLine(source.place(number), "There is no record of a trace.")
            elif (record := record_of(value)) is not None:
                yield record
        except (InvalidRequest, InvalidTokens) as error:
            yield BadLine(source.place(number), error.message)


class Mooncake:
    """Traces of chained blocks, as Mooncake's."""

    name = "mooncake"

    def recognises(self, head: Head, /) -> bool:
        """Whether each line has a list of ids."""
        return bool(head.objects) and all(
            "input_length" in value and isinstance(value.get("hash_ids"), list) for value in head.objects
        )

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """The records of a file."""

        def record_of(value: dict[str, Any]) -> Record:
            ids = value.get("hash_ids")
            if not isinstance(ids, list):
                raise InvalidRequest("There are no hash_ids.", hint="Check the trace.")
            is_bailian = "chat_id" in value
            block = count(value.get("block_size"), source) or (_BAILIAN_BLOCK if is_bailian else _MOONCAKE_BLOCK)
            time = real(value.get("timestamp"))
            run = pack(ids)
            return Record(
                content=Blocks(run, block, ids_in(run) * block),
                place=source.place(source.number),
                time=time if time is None or is_bailian else time / 1000,
                model=name(value.get("model")),
                output_tokens=count(value.get("output_length"), source),
            )

        return _records(source, record_of)


class CodingSessions:
    """The trace of coding sessions of kv-cache-tester."""

    name = "coding_sessions"

    def recognises(self, head: Head, /) -> bool:
        """Whether each line has runs of blocks in a session."""
        return bool(head.objects) and all(
            "session" in value and "in" in value and isinstance(value.get("blocks"), list) for value in head.objects
        )

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """The records of a file."""
        numbers = _Numbers()

        def record_of(value: dict[str, Any]) -> Record:
            session = name(value.get("session"))
            run = numbers.run(session, value.get("blocks"))
            return Record(
                content=Blocks(
                    run, _CODING_BLOCK, max(count(value.get("in"), source) or 0, ids_in(run) * _CODING_BLOCK)
                ),
                place=source.place(source.number),
                time=real(value.get("t")),
                model=name(value.get("model")),
                session=session,
                output_tokens=count(value.get("out"), source),
                stop=name(value.get("stop")),
                duration=seconds(value.get("api_time")),
            )

        return _records(source, record_of)


class _Numbers:
    """Makes ids that are local to their session global.

    Ids are numbered by the page, when the first of a page is seen, so that a session takes up no more numbers than it
    needs, and no table grows with the log: a page that was not used for `_MOST_PAGES` others is forgotten, and what
    comes of it later is taken for new.
    """

    def __init__(self) -> None:
        self._pages: OrderedDict[tuple[str, int], int] = OrderedDict()  # the latest that was used last
        self._next = 0

    def run(self, session: str, runs: object) -> bytes:
        """The ids in some `[first, count]`, packed.

        Raises:
            InvalidRequest: if they are no such runs, or absurdly long.
        """
        pieces = []
        left = LARGEST_COUNT // _CODING_BLOCK
        for first, length in _pairs(runs):
            left -= length
            if first < 0 or length < 0 or left < 0:
                raise InvalidRequest(f"There are no blocks [{first}, {length}].", hint="Check the trace.")
            at, end = first, first + length
            while at < end:
                page, offset = divmod(at, _PAGE)
                stop = min(end, at - offset + _PAGE)
                base = self._base(session, page) + offset
                pieces.append(pack(range(base, base + stop - at)))
                at = stop
        return b"".join(pieces)

    def _base(self, session: str, page: int) -> int:
        key = session, page
        base = self._pages.get(key)
        if base is None:
            base = self._pages[key] = self._next * _PAGE
            self._next = (self._next + 1) % _ALL_PAGES
            if len(self._pages) > _MOST_PAGES:
                self._pages.popitem(last=False)
        else:
            self._pages.move_to_end(key)
        return base


def _pairs(runs: object) -> Iterator[tuple[int, int]]:
    for pair in runs if isinstance(runs, list) else [None]:
        match pair:
            case [int(first), int(length)]:
                yield first, length
            case _:
                raise InvalidRequest("The blocks are no runs [first, count].", hint="Check the trace.")


class RagPulse:
    """The trace of a service that answers from documents."""

    name = "ragpulse"

    _RULES, _PASSAGES = "sys_prompt", "passages_ids"
    _PARTS = (_RULES, _PASSAGES, "history", "web_search", "user_input")  # in the order of the prompt
    _LENGTHS = ("1_sys_prompt", "2_passages", "3_history", "4_user_input", "5_web_search")

    def recognises(self, head: Head, /) -> bool:
        """Whether the lines have ids by part, or are those of a file of lengths, in which there is no request."""
        return bool(head.objects) and all(
            (isinstance(ids := value.get("hash_ids"), dict) and "sys_prompt" in ids) or _is_length(value)
            for value in head.objects
        )

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """The records of a file.

        A part becomes as many tokens as it is long, all with its id, and a content block of the prompt: what begins
        with the same parts begins with the same tokens, and different parts differ in their first token.
        """
        lengths: dict[int, int] = {}

        def record_of(value: dict[str, Any]) -> Record | None:
            if _is_length(value):
                return None
            lengths.update({} if lengths else self._read_lengths(source))
            ids = value.get("hash_ids")
            if not isinstance(ids, dict):
                raise InvalidRequest("There are no hash_ids.", hint="Check the trace.")
            named = [(field, part) for field in self._PARTS if isinstance(ids.get(field), list) for part in ids[field]]
            if unknown := [part for _, part in named if not isinstance(part, int) or part not in lengths]:
                raise InvalidRequest(f"Nothing says how long part {unknown[0]} is.", hint="Check the files of lengths.")
            parts = [(field, part) for field, part in named if lengths[part]]
            run = b"".join(pack((part,)) * lengths[part] for _, part in parts)
            return Record(
                content=TracedPrompt(
                    run,
                    1,
                    ids_in(run),
                    tuple(accumulate(lengths[part] for _, part in parts)),
                    system_end=sum(lengths[part] for field, part in parts if field == self._RULES),
                    names_content=True,
                    documents=tuple(index for index, (field, _) in enumerate(parts) if field == self._PASSAGES),
                ),
                place=source.place(source.number),
                time=real(value.get("timestamp")),
                session=name(value.get("session_id")),
                output_tokens=count(value.get("output_length"), source),
            )

        return _records(source, record_of)

    def _read_lengths(self, source: Source) -> dict[int, int]:
        """Tokens of each part.

        Raises:
            InvalidRequest: if a file of them is not beside the trace.
        """
        lengths: dict[int, int] = {}
        for file in self._LENGTHS:
            path = Path(source.name).with_name(f"{file}.jsonl")
            try:
                with path.open("rb") as stream:
                    for line in stream:
                        if line.strip() and _is_length(value := loaded(line)):
                            lengths[_id_of(value)] = min(value["token_length"], LARGEST_COUNT // 1000)
            except OSError:
                raise InvalidRequest(
                    f"{source.name} needs {path.name} beside it, for the lengths of its parts.",
                    hint="Keep the files of RAGPulse in one folder.",
                ) from None
        return lengths


def _is_length(value: Mapping[str, Any]) -> bool:
    return len(value) == 2 and isinstance(value.get("token_length"), int) and isinstance(_id_of(value), int)


def _id_of(value: Mapping[str, Any]) -> Any:
    return next((part for field, part in value.items() if field.endswith("_id")), None)


class Prefold:
    """What `prefold anonymise` writes."""

    name = "prefold"

    def recognises(self, head: Head, /) -> bool:
        """Whether the first line says so."""
        return bool(head.objects) and head.objects[0].get("format") == FORMAT

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """The records of a file."""
        return _records(source, lambda value: read_line(value, source.place(source.number)))


READERS: tuple[Reader, ...] = (Prefold(), Mooncake(), CodingSessions(), RagPulse())
