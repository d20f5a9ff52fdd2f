"""Documents in an order that does not change with their scores."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.prompts.canonical.documents import (
    count_uses,
    document_id,
    is_document,
    order_documents,
    with_ordered_blocks,
    with_ordered_elements,
)

TRACE = Path(__file__).parents[4] / "shared" / "data" / "traces" / "ragpulse" / "data"


def test_by_id() -> None:
    assert ["a", "b", "c"] == order_documents(["c", "a", "b"])
    documents = [{"id": "b", "score": 0.9}, {"id": "a", "score": 0.8}]
    assert documents[::-1] == order_documents(documents, id_of=lambda document: str(document["id"]))


def test_by_popularity_then_by_id() -> None:
    popularity = count_uses([["a", "b"], ["b", "c", "b"], ["b", "d"], ["d"]])
    assert {"a": 1, "b": 3, "c": 1, "d": 2} == popularity
    assert ["b", "d", "a", "c", "new"] == order_documents(["new", "c", "a", "d", "b"], popularity=popularity)


@given(st.lists(st.text()), st.dictionaries(st.text(), st.integers(0, 5)), st.randoms())
def test_the_order_of_retrieval_makes_no_difference(
    documents: list[str], popularity: dict[str, int], random: Any
) -> None:
    mixed = list(documents)
    random.shuffle(mixed)
    assert order_documents(documents) == order_documents(mixed)
    assert order_documents(documents, popularity=popularity) == order_documents(mixed, popularity=popularity)
    assert sorted(documents) == order_documents(documents)


DOCUMENT = '<document id="{0}">{0}</document>'
B, A = DOCUMENT.format("b"), DOCUMENT.format("a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{B}\n\n{A}", f"{A}\n\n{B}"),
        (f"x {B} {A} y", f"x {A} {B} y"),
        (f"{B} and {A}", f"{B} and {A}"),  # two runs of one
        (f"{B}{A} and {B}{A}", f"{A}{B} and {A}{B}"),
        (
            '<document index="1"><source>z</source>Z</document>\n<document index="2"><source>y</source>Y</document>',
            '<document index="1"><source>y</source>Y</document>\n<document index="2"><source>z</source>Z</document>',
        ),
        (
            "<document index='1'>Z</document><document index=\"2\">Y</document>",
            "<document index='1'>Y</document><document index=\"2\">Z</document>",
        ),
        ("<document>z</document><document>y</document>", "<document>y</document><document>z</document>"),
        ("<documents><document>b</document></documents>", "<documents><document>b</document></documents>"),
        (f"<document>{B}", f"<document>{B}"),  # one that does not end
        (f"{B}<document>", f"{B}<document>"),
    ],
)
def test_elements_in_a_text(text: str, expected: str) -> None:
    assert expected == with_ordered_elements(text)


def test_elements_by_popularity() -> None:
    assert f"{B}{A}" == with_ordered_elements(f"{A}{B}", {"b": 2})


def test_many_documents_that_do_not_end_take_linear_time() -> None:
    text = "<document " * 50_000  # what tried each of them to the end would take minutes
    assert text == with_ordered_elements(text)


PIECES = st.lists(
    st.sampled_from(
        [A, B, '<document index="2">q</document>', '<document index="1">p</document>', "<document>r</document>"]
    )
    | st.sampled_from([" ", "\n", "words", "<document>", "</document>"]),
    max_size=10,
).map("".join)


@given(PIECES)
def test_elements_are_sorted_once_and_for_all(text: str) -> None:
    once = with_ordered_elements(text)
    assert once == with_ordered_elements(once)
    assert sorted(text) == sorted(once)


def test_blocks_that_are_documents() -> None:
    documents = [
        {"type": "document", "title": "b"},
        {"type": "search_result", "source": "https://a"},
        {"document": {"name": "c", "format": "txt"}},
    ]
    assert ["b", "https://a", "c"] == [document_id(block) for block in documents]
    assert [True] * 3 == [is_document(block) for block in documents]
    others = [{"type": "text", "text": "document"}, {"type": "image"}, {"document": "text"}, "document", None]
    assert [False] * 5 == [is_document(block) for block in others]
    text = {"type": "text", "text": "?"}
    found = with_ordered_blocks([documents[0], documents[2], text, *documents])
    assert [documents[0], documents[2], text, documents[0], documents[2], documents[1]] == found


def test_a_document_without_a_name_is_known_by_what_is_in_it() -> None:
    one = {"type": "document", "source": {"type": "text", "data": "one"}}
    two = {"source": {"data": "one", "type": "text"}, "type": "document", "cache_control": {"type": "ephemeral"}}
    assert document_id(one) == document_id(two)


def prefix_hits(requests: Iterable[Sequence[int]], lengths: dict[int, int]) -> float:
    """Tokens of parts that some earlier request had at the front too, divided by all: an infinite prefix cache."""
    tree: dict[int, Any] = {}
    hits = total = 0
    for parts in requests:
        node = tree
        for part in parts:
            total += lengths[part]
            hits += lengths[part] if part in node else 0
            node = node.setdefault(part, {})
    return hits / total


def records(name: str) -> list[dict[str, Any]]:
    lines = (TRACE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def test_what_it_brings_in_a_real_service() -> None:
    """RAGPulse, 7,106 requests: the last block of the system prompt is new in nearly each of them."""
    if not TRACE.exists():
        pytest.skip("the shared data is not here")
    lengths: dict[int, int] = {}
    for name in ("1_sys_prompt", "2_passages", "3_history", "4_user_input", "5_web_search"):
        for record in records(name):
            length = record.pop("token_length")
            lengths[next(iter(record.values()))] = length
    requests = [record["hash_ids"] for record in records("0_trace")]
    popularity = count_uses(map(str, request["passages_ids"]) for request in requests)

    def share(order: Callable[[list[int]], list[int]], *, is_volatile_first: bool) -> float:
        def parts(request: dict[str, list[int]]) -> list[int]:
            *system, volatile = request["sys_prompt"]
            passages = order(request["passages_ids"])
            middle = [volatile, *passages] if is_volatile_first else [*passages, volatile]
            return [*system, *middle, *request["history"], *request["web_search"], *request["user_input"]]

        return round(prefix_hits(map(parts, requests), lengths), 3)

    assert 0.315 == share(list, is_volatile_first=True)  # as logged
    assert 0.368 == share(list, is_volatile_first=False)
    assert 0.385 == share(lambda ids: order_documents(ids, id_of="{:06}".format), is_volatile_first=False)
    assert 0.421 == share(lambda ids: order_documents(ids, popularity=popularity), is_volatile_first=False)
