"""What a frame of the flame graph shows: an excerpt of the text at its place, and the path of that text in the request.

Reading a body costs more than counting it, so it is put off until a frame has to be shown. Until then the body that
brought a leaf is held; it holds the text of all frames above it too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from prefold.analysis.record import Body
from prefold.analysis.report.counts import Counts, Label
from prefold.analysis.request import Request
from prefold.core.radix import Node, RadixTree
from prefold.core.tokens import unpack
from prefold.errors import InvalidRequest
from prefold.prompts.sequences import common_length

_EXCERPT = 96  # characters
_CONTEXT = 24  # characters before a place within a text that are looked at for the beginning of its word


@dataclass(frozen=True, slots=True)
class _Held:
    body: Body
    ends: tuple[int, ...]
    units: int


@dataclass(frozen=True, slots=True)
class _Parts:
    """A body that was read: its texts, their paths, and the units before the end of each.

    What a template puts before a text, such as the name of its role, counts as a part of it.
    """

    texts: Sequence[str]
    paths: Sequence[str]
    ends: Sequence[int]

    def place(self, unit: int) -> tuple[int, int]:
        """The part that a unit lies in, and about which character of it."""
        index = min(bisect_right(self.ends, unit), len(self.ends) - 1)
        first = self.ends[index - 1] if index else 0
        share = (unit - first) / max(1, self.ends[index] - first)
        return index, int(min(1.0, max(0.0, share)) * len(self.texts[index]))

    def excerpt(self, index: int, begin: int, end: int) -> Label:
        """A label for these characters of a part, with the beginning of the word that they cut."""
        text = self.texts[index]
        if begin > 0:
            context = text[max(0, begin - _CONTEXT) : begin]
            begin -= len(context) - 1 - max(context.rfind(space) for space in " \n\t")
        shown = text[begin : min(end, begin + _EXCERPT)]
        if not shown:  # what a template puts around texts, or a place that was estimated badly
            return Label(f"…{text[begin : begin + _CONTEXT]}…" if begin else "‹…›", self.paths[index])
        return Label(f"{'…' if begin else ''}{shown}{'…' if end < len(text) else ''}", self.paths[index])

    def label(self, node: Node[Counts], begin: int | None = None, end: int | None = None) -> Label:
        """A label for the part of a node in its first text; where that begins or ends is estimated if not given."""
        index, about = self.place(node.start)
        last, about_end = self.place(node.stop)
        if end is None:
            end = about_end if last == index and node.stop < self.ends[index] else len(self.texts[index])
        return self.excerpt(index, about if begin is None else begin, end)


class Labeller:
    """Labels nodes from the bodies that pass through them.

    Args:
        max_bytes: of bodies held at once; beyond it the oldest are read at once and let go.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._held: OrderedDict[Node[Counts], _Held] = OrderedDict()

    def hold(self, end: Node[Counts], request: Request) -> None:
        """Keep the body of a request that ends at a new leaf, in place of the one that ends above it, if there is one.

        There is one at most: of two, the lower one came later and took the place of the other.
        """
        content = request.record.content
        if not isinstance(content, Body):
            return
        above = end.parent
        while above is not None and above not in self._held:
            above = above.parent
        if above is not None:
            self._drop(above)
        self._held[end] = _Held(content, request.ends, request.units)
        self._bytes += len(content.content)
        while self._bytes > self._max_bytes:
            oldest, held = next(iter(self._held.items()))
            self._drop(oldest)
            _label_path(oldest.path(), _read(held))

    def lift(self, leaf: Node[Counts], parent: Node[Counts]) -> None:
        """A leaf was merged into its parent: if that is a leaf now, it keeps the body."""
        held = self._held.get(leaf)
        if held is not None:
            self._drop(leaf)
            if parent.evictable:
                self._held[parent] = held
                self._bytes += len(held.body.content)

    def _drop(self, node: Node[Counts]) -> None:
        self._bytes -= len(self._held.pop(node).body.content)

    def label(self, tree: RadixTree[Counts]) -> None:
        """Label all nodes of a tree that can be, and let go of their bodies.

        Where two prompts part within a text, the place is found by comparing the two texts; a place that cannot be
        compared is estimated from the share of its tokens.
        """
        before: tuple[list[Node[Counts]], _Parts] | None = None
        begins: dict[Node[Counts], int] = {}
        for node in tree.nodes():  # depth first: neighbours share the longest prefixes
            held = self._held.get(node)
            if held is None:
                continue
            parts = _read(held)
            self._drop(node)
            if parts is None:
                continue
            path = node.path()
            _label_path(path, parts)
            if before is not None:
                _label_fork(*before, path, parts, begins)
            before = path, parts


def _read(held: _Held) -> _Parts | None:
    try:
        segments = held.body.prompt.segments
    except InvalidRequest:
        return None
    if not segments:
        return None
    ends: Sequence[int] = held.ends
    if len(ends) != len(segments):  # by the share of characters, where the ends of texts are not known
        lengths = list(accumulate(len(segment.text) for segment in segments))
        ends = [held.units * length // max(1, lengths[-1]) for length in lengths]
    return _Parts(
        texts=[segment.text for segment in segments],
        paths=[str(segment.path) for segment in segments],
        ends=ends,
    )


def _label_path(path: Sequence[Node[Counts]], parts: _Parts | None) -> None:
    if parts is None:
        return
    for node in path:
        if node.value.label is None:
            node.value.label = parts.label(node)


def _label_fork(
    path: Sequence[Node[Counts]],
    parts: _Parts,
    other_path: Sequence[Node[Counts]],
    other: _Parts,
    begins: dict[Node[Counts], int],
) -> None:
    """Label the two nodes at which two paths part, and the one above them, by where their texts part.

    Args:
        path: a path.
        parts: the body that it was read from.
        other_path: its neighbour.
        other: the body of that one.
        begins: the characters at which nodes were found to begin; those of the two are added.
    """
    shared = common_length(path, other_path)
    if shared >= min(len(path), len(other_path)):
        return
    one, two = path[shared], other_path[shared]
    (index, about), (other_index, _) = parts.place(one.start), other.place(two.start)
    if index != other_index or not about:
        return
    fork = common_length(parts.texts[index], other.texts[index])
    begins[one] = begins[two] = fork
    one.value.label = parts.label(one, fork)
    two.value.label = other.label(two, fork)
    if shared and parts.place(path[shared - 1].start)[0] == index:
        above = path[shared - 1]
        above.value.label = other.label(above, begins.get(above), fork)


def label_blocks(tree: RadixTree[Counts]) -> None:
    """Label the nodes of a trace of blocks by the numbers of the first ones."""
    for node in tree.nodes():
        if node.value.label is None:
            node.value.label = _block_label(node)


def _block_label(node: Node[Counts]) -> Label:
    ids = unpack(node.run[:8])
    more = f", {ids[1]}" + (", …" if node.length > 2 else "") if len(ids) > 1 else ""
    return Label(f"{'blocks' if more else 'block'} {ids[0]}{more}", "")
