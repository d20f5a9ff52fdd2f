"""Pairs of questions that are labelled with whether both have the same answer, from files and by name."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefold.errors import UsageError
from prefold.responses.semantic.wording.conversations import histories_agree, history

_LABELS = ("y", "same_answer", "label")
_HINT = 'Write lines such as {"a": "...", "b": "...", "y": 1}.'
_FOW_CACHE = "fow_cache"
_NAMED = {
    "fow-cache": ("data/pairs.jsonl",),
    "fow-cache:conversations": ("data/conv-parts/*.jsonl", "data/conv-long/*.jsonl"),
}


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two questions, and whether they have the same answer.

    Attributes:
        a: one; of a conversation, its last turn.
        b: the other.
        same: whether they have.
        name: from the file; "" where it has none.
        apart: whether turns before the last ones give a reason to answer them differently.
    """

    a: str
    b: str
    same: bool
    name: str = ""
    apart: bool = False


def read_pairs(source: Path | str) -> list[LabelledPair]:
    """The pairs of a file, or those that come with the package fow-cache.

    A file is JSONL. Each line has `a`, `b` and `y` (or `same_answer`, or `label`: true, false, 1 or 0); `a` and `b` are
    texts, or lists of messages that end with the user's. Pairs with a label that is null or a word count as traps: to
    serve what is ambiguous is not what anybody asked for. Lines of ScoNe are known by their fields: all its pairs are
    traps, a sentence with and without a negation, and two of which at most one entails the other.

    Args:
        source: path of the file, or "fow-cache", or "fow-cache:conversations".

    Raises:
        UsageError: if there is no such file, or it is not of labelled pairs.
    """
    pairs = [pair for path in _files(source) for pair in _read(path)]
    if not pairs:
        raise UsageError(f"{source} holds no pairs.", hint=_HINT)
    return pairs


def _files(source: Path | str) -> list[Path]:
    if not isinstance(source, str) or source not in _NAMED:
        return [Path(source)]
    found = importlib.util.find_spec(_FOW_CACHE)
    if found is None or not found.submodule_search_locations:
        raise UsageError("The package fow-cache is not installed.", hint="pip install fow-cache")
    folder = Path(found.submodule_search_locations[0])
    return [path for pattern in _NAMED[source] for path in sorted(folder.glob(pattern))]


def _read(path: Path) -> Iterator[LabelledPair]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise UsageError(f"There is no file {path}.", hint=f"Check the path, or name {', '.join(_NAMED)}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", hint="Give a JSONL file.") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        pairs = list(_pairs(row)) if isinstance(row, Mapping) else []
        if not pairs:
            raise UsageError(
                f"Line {number} of {path.name} is no labelled pair.",
                hint=_HINT,
            )
        yield from pairs


def _pairs(row: Mapping[str, Any]) -> Iterator[LabelledPair]:
    """The pairs of a line; none if it is no labelled pair."""
    if "sentence1" in row:
        yield from _of_scone(row)
        return
    name = str(row.get("id", ""))
    labels = [row[label] for label in _LABELS if label in row]
    if not labels or not (labels[0] is None or isinstance(labels[0], str) or labels[0] in (0, 1)):
        return
    same = labels[0] in (0, 1) and bool(labels[0])
    a, b = row.get("a"), row.get("b")
    if isinstance(a, str) and isinstance(b, str):
        yield LabelledPair(a, b, same, name)
    elif (first := _turns(a)) and (second := _turns(b)):
        apart = not histories_agree(history(first), history(second))
        yield LabelledPair(first[-1][1], second[-1][1], same, name, apart)


def _turns(messages: object) -> list[tuple[str, str]]:
    """Role and text of each turn; empty if it is no conversation that ends with a user's turn."""
    if not isinstance(messages, list):
        return []
    turns = [(turn.get("role"), turn.get("content")) for turn in messages if isinstance(turn, Mapping)]
    known = [(role, text) for role, text in turns if isinstance(role, str) and isinstance(text, str)]
    return known if len(known) == len(messages) and known and known[-1][0] == "user" else []


def _of_scone(row: Mapping[str, Any]) -> Iterator[LabelledPair]:
    first, second = row.get("sentence1"), row.get("sentence2")
    edited, second_edited = row.get("sentence1_edited"), row.get("sentence2_edited")
    name = f"scone-{row.get('group_index', '')}"
    for a, b in ((first, second), (edited, second_edited), (first, edited)):
        if isinstance(a, str) and isinstance(b, str):
            yield LabelledPair(a, b, same=False, name=name)
