"""Texts that stand for the ids of traces, and what moves those."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from prefold.analysis.opening import Opening
from prefold.analysis.record import Blocks, Body, Place, Record
from prefold.analysis.request import Marker
from prefold.analysis.traced import TracedPrompt
from prefold.analysis.whatif.alternatives import what_if
from prefold.analysis.whatif.standins import Names, is_named, restored, shown, stand_in
from prefold.cli.report import report
from prefold.cli.simulate import simulate
from prefold.core.tokens import pack, unpack
from prefold.errors import UsageError

RAGPULSE = Path(__file__).parents[3] / "shared" / "data" / "traces" / "ragpulse" / "data" / "0_trace.jsonl"
MOVED = ["reordered", "documents_by_id", "documents_by_popularity"]

Part = tuple[int, int]
"""An id, and the tokens of its content block."""


def traced(system: list[Part], documents: list[Part], rest: list[Part], **more: Any) -> TracedPrompt:
    parts = [*system, *documents, *rest]
    ends = [sum(length for _, length in parts[: index + 1]) for index in range(len(parts))]
    return TracedPrompt(
        pack(identifier for identifier, length in parts for _ in range(length)),
        1,
        sum(length for _, length in parts),
        tuple(ends),
        system_end=sum(length for _, length in system),
        names_content=True,
        documents=tuple(range(len(system), len(system) + len(documents))),
        **more,
    )


def blocks(content: Any) -> list[int]:
    """The first id of each content block."""
    ids = unpack(content.run)
    return [ids[begin] for begin in (0, *content.ends[:-1])]


def service() -> list[Record]:
    """A system prompt whose second block is new in each request, before two of three passages."""
    return [
        Record(
            traced([(1, 100), (1000 + n, 50)], [(10 + n % 2, 300), (12, 200)][:: 1 - 2 * (n % 3 > 0)], [(2000 + n, 9)]),
            Place("trace", n),
            time=float(n),
            session=f"s{n}",
        )
        for n in range(1, 60)
    ]


parts = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 5)), max_size=4)


@given(parts, parts, parts)
def test_what_stands_for_a_prompt_gives_it_back(system: list[Part], documents: list[Part], rest: list[Part]) -> None:
    content = traced(system, documents, rest)
    prompt = stand_in(content).prompt
    assert content == restored(content, prompt)
    assert content.tokens == sum(Names().size(segment.text) for segment in prompt.segments)


@given(st.lists(st.tuples(parts, parts, parts), min_size=1, max_size=8), st.sampled_from(MOVED))
def test_content_blocks_move_as_a_whole(prompts: list[tuple[list[Part], list[Part], list[Part]]], name: str) -> None:
    log = [Record(traced(*prompt), Place("trace", line)) for line, prompt in enumerate(prompts, start=1)]
    for (system, documents, rest), found in zip(prompts, what_if(name, log), strict=True):
        assert isinstance(found.content, TracedPrompt)
        ids = unpack(found.content.run)
        runs = [ids[begin:end] for begin, end in zip((0, *found.content.ends), found.content.ends, strict=False)]
        assert sorted([identifier] * length for identifier, length in [*system, *documents, *rest]) == sorted(runs)
        are = [[identifier] * length for identifier, length in documents]
        assert sorted(are) == sorted(runs[index] for index in found.content.documents)


def test_names_sort_like_ids_and_are_shown_as_such() -> None:
    content = traced([(9, 1)], [(10, 3)], [])
    nine, ten = Names().blocks("".join(segment.text for segment in stand_in(content).prompt.segments))
    assert nine < ten
    assert "id 9, id 10" == shown(f"{nine} <document>{ten}")


def test_blocks_of_several_tokens_and_empty_ones() -> None:
    content = TracedPrompt(pack([1, 2, 2]), 16, 50, (1, 1, 3), system_end=1, names_content=True, documents=(2,))
    found = restored(content, stand_in(content).prompt)
    assert ((1, 3), 1, (1,), 50) == (found.ends, found.system_end, found.documents, found.tokens)
    assert 48 == sum(Names().size(segment.text) for segment in stand_in(content).prompt.segments)


def test_what_changes_goes_behind_the_question_and_markers_keep_their_number() -> None:
    log = [
        *service(),
        Record(
            traced([(1, 100), (999, 70)], [], [(3, 8)], markers=(Marker(100), Marker(178, 300))), Place("trace", 60)
        ),
    ]
    *_, found = [record.content for record in what_if("reordered", log)]
    assert isinstance(found, TracedPrompt)
    assert [1, 3, 999] == blocks(found)
    assert ((100, 108, 178), 100, (Marker(100), Marker(178, 300))) == (found.ends, found.system_end, found.markers)


def test_passages_by_popularity() -> None:
    for record in what_if("documents_by_popularity", service()):
        _, _, first, second, _ = blocks(record.content)
        assert (12, True) == (first, second in (10, 11))


def test_an_order_is_proposed_for_a_trace() -> None:
    opening = Opening()
    for record in service():
        opening.add(record)
    opening.add(Record(Body(b'{"prompt": "of another kind"}'), Place("log", 1)))
    order = opening.as_json()
    assert order is not None
    assert 59 == order["requests"]
    total = 59 * 659
    assert (58 * 100 / total) == pytest.approx(order["share_before"])
    assert order["share_after"] > 0.6
    move = {"path": "system", "text": "id 1059", "to": "behind the newest user message", "tokens": 50}
    assert [move] == order["moves"]


@pytest.mark.parametrize("name", MOVED)
def test_ids_that_name_no_content_are_refused(name: str) -> None:
    content = traced([(1, 2)], [(2, 2)], [(3, 2)])
    chained = TracedPrompt(content.run, 1, 6, content.ends, system_end=2)
    for refused in (chained, Blocks(content.run, 1, 6), TracedPrompt(content.run, 1, 6, names_content=True)):
        with pytest.raises(UsageError, match="trace:1 has ids instead of text"):
            list(what_if(name, [Record(refused, Place("trace", 1))]))
    assert not is_named(chained)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_real_service_through_the_commands(tmp_path: Path) -> None:
    """RAGPulse: 31.5 % are prefix hits as logged, 37 % in the order proposed, 42 % with passages by popularity too."""
    if not RAGPULSE.exists():
        pytest.skip("needs ../shared/data/traces")
    options = [option for name in ("reordered", "reordered+documents_by_popularity") for option in ("--what-if", name)]
    result = CliRunner().invoke(simulate, [str(RAGPULSE), *options, "--json"])
    assert [0.315, 0.371, 0.423] == [round(row["hit_rate"], 3) for row in json.loads(result.stdout)["rows"]]
    figures = tmp_path / "report.json"
    CliRunner().invoke(report, [str(RAGPULSE), "--json", str(figures)], catch_exceptions=False)
    order = json.loads(figures.read_text("utf-8"))["order"]
    assert [0.315, 0.371] == [round(order[name], 3) for name in ("share_before", "share_after")]
