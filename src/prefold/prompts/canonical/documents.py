"""Retrieved documents in an order that does not change with their scores.

A retriever returns passages by score, so two questions about the same passages read them in two orders and share
nothing. Sorted by id they share what they have in common from the front; sorted by how often each is used they share
more, because what most requests have stands first, as in the prefix tree of the FP-growth algorithm (Han, Pei and Yin,
Mining Frequent Patterns without Candidate Generation, 2000).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, TypeVar

from prefold.prompts.canonical.sorting import sorted_between_markers, without_markers

D = TypeVar("D")

_BLOCK_TYPES = ("document", "search_result")
_ID_FIELDS = ("id", "document_id", "title", "name", "source")

_DOCUMENT = re.compile(r"<document\b(?P<attributes>[^<>]*)>(?P<inner>(?:(?!<document\b).)*?)</document>", re.DOTALL)
_ID_ATTRIBUTE = re.compile(r"""\b(?:id|document_id|doc_id|source|title|name)\s*=\s*(["'])(.*?)\1""")
_INDEX_ATTRIBUTE = re.compile(r"""\bindex\s*=\s*(["']?)\d+\1""")
_SOURCE = re.compile(r"<source>(.*?)</source>", re.DOTALL)


def count_uses(requests: Iterable[Iterable[str]]) -> Counter[str]:
    """In how many requests each document is, from the ids in each: the popularity that `order_documents` takes."""
    return Counter(identifier for documents in requests for identifier in set(documents))


def order_documents(
    documents: Iterable[D],
    *,
    popularity: Mapping[str, int] | None = None,
    id_of: Callable[[D], str] = str,
) -> list[D]:
    """Documents by id, or by how often they are used; those of one id as they were.

    Args:
        documents: as retrieved.
        popularity: in how many requests each id was, from `count_uses`: the most used first, by id where they are
            equal, so that common prefixes are longest. Change it seldom: a new order is a new prefix. None for the
            order of ids.
        id_of: the id of a document; without it, documents are their own ids.
    """
    return sorted(documents, key=lambda document: _rank(id_of(document), popularity))


def with_ordered_blocks(blocks: Iterable[Any], popularity: Mapping[str, int] | None = None) -> list[Any]:
    """Content blocks with the documents that stand next to each other in order.

    No document is moved across a cache marker; put the markers back with `with_markers_of`.
    """
    ordered: list[Any] = []
    for are_documents, group in groupby(blocks, is_document):
        run = list(group)
        if are_documents:
            run = sorted_between_markers(run, lambda block: _rank(document_id(block), popularity))
        ordered += run
    return ordered


def is_document(block: Any) -> bool:
    """Whether a content block is a document: Anthropic's `document` and `search_result`, and Bedrock's `document`."""
    if not isinstance(block, dict):
        return False
    return block.get("type") in _BLOCK_TYPES or ("type" not in block and isinstance(block.get("document"), dict))


def document_id(block: Mapping[str, Any]) -> str:
    """What a document block is known by: its id, title, name or source, else all that is in it."""
    inner = block.get("document")
    named = inner if isinstance(inner, dict) else block
    identifier = next(
        (named[field] for field in _ID_FIELDS if named.get(field) and isinstance(named[field], str)), None
    )
    return identifier or json.dumps(without_markers(block), sort_keys=True)


def with_ordered_elements(text: str, popularity: Mapping[str, int] | None = None) -> str:
    """A text with its `<document ...>...</document>` elements that follow each other in order.

    They are known by an attribute such as `id`, else by their `<source>`, else by what is in them. Numbers in `index`
    attributes stay in their place: the first document is still number 1.
    """
    runs: list[list[re.Match[str]]] = []
    for element in _DOCUMENT.finditer(text):
        if runs and not text[runs[-1][-1].end() : element.start()].strip():
            runs[-1].append(element)
        else:
            runs.append([element])
    written: list[str] = []
    end = 0
    for run in runs:
        for element, new in zip(run, _ordered_elements([element[0] for element in run], popularity), strict=True):
            written += (text[end : element.start()], new)
            end = element.end()
    return "".join([*written, text[end:]])


def _rank(identifier: str, popularity: Mapping[str, int] | None) -> tuple[int, str]:
    return -(popularity or {}).get(identifier, 0), identifier


def _ordered_elements(elements: list[str], popularity: Mapping[str, int] | None) -> list[str]:
    by_content = sorted(elements, key=_without_index)
    ordered = order_documents(by_content, popularity=popularity, id_of=_element_id)
    if ordered == elements:
        return elements
    indexes = [_index_of(element) for element in elements]
    if None in indexes:
        return ordered
    return [_with_index(element, str(index)) for element, index in zip(ordered, indexes, strict=True)]


def _opening(element: str) -> str:
    return element[: element.index(">")]


def _element_id(element: str) -> str:
    if named := _ID_ATTRIBUTE.search(_opening(element)):
        return named[2]
    if source := _SOURCE.search(element):
        return source[1].strip()
    return _without_index(element)


def _without_index(element: str) -> str:
    return _with_index(element, "") if _index_of(element) else element


def _index_of(element: str) -> str | None:
    index = _INDEX_ATTRIBUTE.search(_opening(element))
    return index and index[0]


def _with_index(element: str, index: str) -> str:
    opening = _opening(element)
    return _INDEX_ATTRIBUTE.sub(lambda _: index, opening, count=1) + element[len(opening) :]
