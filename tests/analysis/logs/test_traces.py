import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from prefold.analysis.logs.formats import recognise
from prefold.analysis.logs.reader import BadLine, Head, Reader, Source
from prefold.analysis.logs.traces import CodingSessions, Mooncake, RagPulse
from prefold.analysis.record import Blocks, Record
from prefold.analysis.traced import TracedPrompt
from prefold.core.keys import SHARED as SHARED_SCOPE
from prefold.core.radix import RadixTree
from prefold.core.tokens import unpack

SHARED = Path(__file__).parents[4] / "shared" / "data" / "traces"

MOONCAKE = [
    {"timestamp": 1500, "input_length": 1300, "output_length": 7, "hash_ids": [0, 1, 2]},
    {"timestamp": 3000, "input_length": 600, "output_length": 9, "hash_ids": [0, 3]},
]


def coded(session: str, t: float, blocks: Any, *, tokens: int, out: int = 5, stop: str = "") -> dict[str, Any]:
    return {
        "session": session,
        "t": t,
        "model": "m",
        "in": tokens,
        "out": out,
        "api_time": 1.5,
        "stop": stop,
        "blocks": blocks,
    }


CODING = [
    coded("a", 0.0, [[1, 3]], tokens=200, stop="tool_use"),
    coded("b", 0.0, [[1, 2]], tokens=128),
    coded("a", 4.0, [[1, 2], [9, 3]], tokens=330),
]
PULSE = [
    {
        "timestamp": "27",
        "input_length": 12,
        "output_length": 3,
        "hash_ids": {"sys_prompt": [1, 2], "passages_ids": [7], "history": [], "web_search": [], "user_input": [9]},
        "session_id": "s",
    }
]
LENGTHS = {
    "1_sys_prompt": [{"sys_prompt_id": 1, "token_length": 4}, {"sys_prompt_id": 2, "token_length": 1}],
    "2_passages": [{"passage_id": 7, "token_length": 2}],
    "3_history": [],
    "4_user_input": [{"user_input_id": 9, "token_length": 3}],
    "5_web_search": [],
}


def lines(values: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def read(reader: Reader, content: bytes, name: str = "trace.jsonl") -> list[Record]:
    found = list(reader.read(Source(name, io.BytesIO(content))))
    assert not [bad for bad in found if isinstance(bad, BadLine)]
    return [record for record in found if isinstance(record, Record)]


def blocks(record: Record) -> Blocks:
    assert isinstance(record.content, Blocks)
    return record.content


def prefix_hits(records: Iterable[Record]) -> tuple[int, int]:
    """Units that an infinite cache has, and all."""
    tree: RadixTree[None] = RadixTree(None, lambda _value, _length: (None, None))
    hits = total = 0
    for number, record in enumerate(records):
        run = blocks(record).run
        hits += tree.insert(run, SHARED_SCOPE, lambda _start, _stop: None, number).existed
        total += blocks(record).blocks
    return hits, total


def test_mooncake() -> None:
    first, second = read(Mooncake(), lines(MOONCAKE))
    assert [0, 1, 2] == unpack(blocks(first).run)
    assert (512, 3 * 512, 1.5, 7) == (blocks(first).block_tokens, blocks(first).tokens, first.time, first.output_tokens)
    assert 3.0 == second.time


def test_other_blocks_than_those_of_mooncake() -> None:
    [told] = read(Mooncake(), lines([{**MOONCAKE[0], "block_size": 64}]))
    assert (64, 192, 1.5) == (blocks(told).block_tokens, blocks(told).tokens, told.time)
    [bailian] = read(Mooncake(), lines([{**MOONCAKE[0], "chat_id": 3, "timestamp": 61.114}]))
    assert (16, 48, 61.114) == (blocks(bailian).block_tokens, blocks(bailian).tokens, bailian.time)


def test_ids_of_sessions_become_global() -> None:
    first, other, later = read(CodingSessions(), lines(CODING))
    known, new, grown = (unpack(blocks(record).run) for record in (first, other, later))
    assert known[:2] == grown[:2]
    assert len({*known, *new, *grown}) == len(known) + len(new) + 3
    assert (64, 200, "a", "tool_use", 1.5, 5, 0.0) == (
        blocks(first).block_tokens,
        blocks(first).tokens,
        first.session,
        first.stop,
        first.duration,
        first.output_tokens,
        first.time,
    )


def test_long_runs_cross_pages() -> None:
    wide = {**CODING[0], "blocks": [[1, 10_000]]}
    part = {**CODING[0], "blocks": [[4_000, 200]]}
    whole, piece = read(CodingSessions(), lines([wide, CODING[1], part]))[::2]
    assert unpack(blocks(piece).run) == unpack(blocks(whole).run)[3_999:4_199]
    assert 640_000 == blocks(whole).tokens


@pytest.mark.parametrize("runs", [None, [[1]], [["a", 2]], [[-1, 2]], [[1, -2]], [[1, 10**15]]])
def test_blocks_that_are_none(runs: Any) -> None:
    content = lines([{**CODING[0], "blocks": runs}, CODING[1]])
    bad, good = CodingSessions().read(Source("trace.jsonl", io.BytesIO(content)))
    assert isinstance(bad, BadLine)
    assert isinstance(good, Record)


def written(folder: Path) -> Path:
    for name, values in LENGTHS.items():
        (folder / f"{name}.jsonl").write_bytes(lines(values))
    trace = folder / "0_trace.jsonl"
    trace.write_bytes(lines(PULSE))
    return trace


def test_parts_become_as_many_tokens_as_they_are_long(tmp_path: Path) -> None:
    trace = written(tmp_path)
    [record] = read(RagPulse(), trace.read_bytes(), str(trace))
    assert [1, 1, 1, 1, 2, 7, 7, 9, 9, 9] == unpack(blocks(record).run)
    assert isinstance(record.content, TracedPrompt)
    assert ((4, 5, 7, 10), 5, True) == (record.content.ends, record.content.system_end, record.content.names_content)
    assert (1, 10, 27.0, "s", 3) == (
        blocks(record).block_tokens,
        blocks(record).tokens,
        record.time,
        record.session,
        record.output_tokens,
    )


def test_files_of_lengths_hold_no_request(tmp_path: Path) -> None:
    written(tmp_path)
    for name in LENGTHS:
        content = (tmp_path / f"{name}.jsonl").read_bytes()
        assert [] == read(RagPulse(), content)
        assert not content or RagPulse().recognises(Head.of(name, content))


def test_lengths_are_needed(tmp_path: Path) -> None:
    trace = written(tmp_path)
    (tmp_path / "2_passages.jsonl").write_bytes(b"")
    [bad] = RagPulse().read(Source(str(trace), io.BytesIO(trace.read_bytes())))
    assert isinstance(bad, BadLine)
    assert "part 7" in bad.problem
    (tmp_path / "2_passages.jsonl").unlink()
    [bad] = RagPulse().read(Source(str(trace), io.BytesIO(trace.read_bytes())))
    assert isinstance(bad, BadLine)
    assert "2_passages.jsonl" in bad.problem


@pytest.mark.parametrize("reader", [Mooncake(), CodingSessions(), RagPulse()])
def test_bad_lines(reader: Reader) -> None:
    content = b'5\n{\n{"hash_ids": 4}\n{"hash_ids": [-1]}\n{"hash_ids": ["x"]}\n'
    found = list(reader.read(Source("trace.jsonl", io.BytesIO(content))))
    assert [BadLine] * 5 == [type(one) for one in found]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("mooncake", MOONCAKE),
        ("coding_sessions", CODING),
        ("ragpulse", PULSE),
        ("prefold", [{"format": "prefold-trace", "version": 1}, {"time": 0.0, "tokens": 1, "units": 1, "path": []}]),
    ],
)
def test_recognised(name: str, values: list[Any]) -> None:
    reader = recognise(Head.of("trace.jsonl", lines(values)))
    assert reader is not None
    assert name == reader.name


def test_other_versions_of_our_own_are_refused() -> None:
    content = lines([{"format": "prefold-trace", "version": 99}])
    reader = recognise(Head.of("trace.jsonl", content))
    assert reader is not None
    [bad] = reader.read(Source("trace.jsonl", io.BytesIO(content)))
    assert isinstance(bad, BadLine)
    assert "99" in bad.problem


def test_the_published_share_of_ragpulse() -> None:
    trace = SHARED / "ragpulse" / "data" / "0_trace.jsonl"
    if not trace.exists():
        pytest.skip("the shared data is not here")
    hits, total = prefix_hits(read(RagPulse(), trace.read_bytes(), str(trace)))
    assert 0.315 == round(hits / total, 3)


def test_the_published_share_of_mooncake() -> None:
    trace = SHARED / "mooncake" / "conversation_trace.jsonl"
    if not trace.exists():
        pytest.skip("the shared data is not here")
    hits, total = prefix_hits(read(Mooncake(), trace.read_bytes()))
    assert (288_500, 0.366) == (total, round(hits / total, 3))
