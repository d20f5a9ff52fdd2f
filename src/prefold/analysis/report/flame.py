"""The tree behind the prefix flame graph: which text was sent how often, and how much of it was read from a cache.

Requests go into a radix tree, one for each model and salt, as in the caches themselves, so that a frame ends exactly
where prompts part. Counting is lazy: a request is counted only at the node where it ends and at the one where its hit
ends; what went through a node is the sum over what lies below it. Adding a request costs a walk down the tree, and one
up to where its hit ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from prefold.analysis.record import Blocks
from prefold.analysis.report.counts import Counts, split_counts
from prefold.analysis.report.labels import Labeller, label_blocks
from prefold.analysis.request import Request
from prefold.core.keys import SHARED
from prefold.core.radix import Node, RadixTree

MERGED = -1
"""Label of a frame that stands for all that was too small to be kept apart."""

_ScopeKey = tuple[str, str | None, int, bool]  # model, salt, tokens of a unit, whether units are blocks of a trace


@dataclass(slots=True)
class _Frame:
    """A node on its way to the page: what lies in it and below."""

    depth: int
    node: Node[Counts] | None
    parent: int
    tokens: int = 0
    hit: int = 0
    requests: int = 0
    hits_beyond: int = 0
    children: list[int] = field(default_factory=list)


class _NoQueue:
    """Keeps no order among leaves: what is merged is chosen by size."""

    def offer(self, node: Node[Counts]) -> None:
        """Nothing is to be noted."""

    def forget(self, node: Node[Counts]) -> None:
        """The same."""

    def __iter__(self) -> Iterator[Node[Counts]]:
        return iter(())


class FlameTree:
    """Builds the flame graph request by request, in bounded memory: with these bounds at most some 60 MB.

    Args:
        max_nodes: nodes kept, about a kilobyte each; beyond it the smallest leaves are merged into their parents.
        max_units: ids kept in all of them together, four bytes each.
        max_held_bytes: bodies kept until their frames are labelled, which needs them to be parsed.
    """

    def __init__(
        self, *, max_nodes: int = 30_000, max_units: int = 4_000_000, max_held_bytes: int = 16_000_000
    ) -> None:
        self._max_nodes = max_nodes
        self._max_units = max_units
        self._trees: dict[_ScopeKey, RadixTree[Counts]] = {}
        self._nodes = 0
        self._units = 0
        self._requests = 0
        self._forgotten = Counts(1)  # of scopes without a node left
        self._labeller = Labeller(max_held_bytes)

    def add(self, request: Request, hit_tokens: int) -> None:
        """Count a request.

        Args:
            request: what was sent.
            hit_tokens: how many of its first tokens were read from a cache; more than it has ids for counts as all.
        """
        self._requests += 1
        unit = request.unit
        is_blocks = isinstance(request.record.content, Blocks)
        key = (request.record.model, request.salt, unit, is_blocks)
        tree = self._trees.get(key)
        if tree is None:
            tree = self._trees[key] = RadixTree(Counts(unit), split_counts, _NoQueue())
            self._nodes += 1
        units = tree.size
        insertion = tree.insert(request.run, SHARED, lambda _start, _stop: Counts(unit), self._requests)
        self._units += tree.size - units
        self._nodes += len(insertion.added) + (insertion.head is not None)

        end = insertion.node
        end.value.ended += 1
        end.value.tail += request.tokens - end.stop * unit
        if hit := min(hit_tokens, end.stop * unit):
            node = end
            while node.start * unit >= hit and node.parent is not None:
                node = node.parent
            hits, stop = node.value.hits, hit - node.start * unit
            hits[stop] = hits.get(stop, 0) + 1
        if insertion.added:
            self._labeller.hold(end, request)
        if self._nodes > self._max_nodes or self._units > self._max_units:
            self._shrink()

    def as_json(self) -> dict[str, Any]:
        """The tree as the page takes it: nodes in preorder, wider siblings first.

        `tokens` of a node are those sent in it and below it, `hit` those of them that were read from a cache: what a
        node has beyond its children was sent in its own text. Labels and paths are indexes; -1 is `MERGED` for a label
        and "none" for a path.
        """
        frames = self._frames()
        labels: dict[str, int] = {"": 0}
        paths: dict[str, int] = {}
        nodes: dict[str, list[int]] = {"depth": [], "tokens": [], "hit": [], "label": [], "path": []}
        merged = self._forgotten.merged_nodes

        def put(depth: int, tokens: int, hit: int, label: int, path: int) -> None:
            for name, value in zip(nodes, (depth, tokens, hit, label, path), strict=True):
                nodes[name].append(value)

        def put_merged(depth: int, counts: Counts) -> None:
            if counts.merged_tokens:
                put(depth, counts.merged_tokens, counts.merged_hit, MERGED, -1)

        names = {id(tree.root): self._scope_name(key) for key, tree in self._trees.items()}
        # Behind all children of a node comes what was merged below it: an entry of its own on the stack.
        stack: list[tuple[int, Counts | None]] = [(0, None)]
        while stack:
            index, rest = stack.pop()
            frame = frames[index]
            if rest is not None:
                put_merged(frame.depth + 1, rest)
                continue
            text, path = "", ""
            counts = self._forgotten
            if frame.node is not None:
                counts = frame.node.value
                label = counts.label
                text, path = (label.text, label.path) if label else (names.get(id(frame.node), ""), "")
                merged += counts.merged_nodes
            put(
                frame.depth,
                frame.tokens,
                frame.hit,
                labels.setdefault(text, len(labels)),
                paths.setdefault(path, len(paths)) if path else -1,
            )
            stack.append((index, counts))
            stack.extend((child, None) for child in sorted(frame.children, key=lambda child: frames[child].tokens))
        return {"nodes": nodes, "labels": list(labels), "paths": list(paths), "merged": merged}

    def _frames(self) -> list[_Frame]:
        """All nodes, parents first, with tokens and hits added up; the first stands for the whole log."""
        frames = [_Frame(0, None, -1, self._forgotten.merged_tokens, self._forgotten.merged_hit)]
        with_scopes = len(self._trees) > 1
        for (_, _, _, is_blocks), tree in self._trees.items():
            if is_blocks:
                label_blocks(tree)
            else:
                self._labeller.label(tree)
            at = {id(tree.root): 0}
            if with_scopes:
                frames.append(_Frame(1, tree.root, 0))
                at[id(tree.root)] = len(frames) - 1
            else:
                _count_own(frames[0], tree.root)
            for node in tree.nodes():
                parent = at[id(node.parent)]
                at[id(node)] = len(frames)
                frames.append(_Frame(frames[parent].depth + 1, node, parent))
        for index in range(len(frames) - 1, 0, -1):
            frame = frames[index]
            if frame.node is not None:
                _count_own(frame, frame.node)
            parent_frame = frames[frame.parent]
            parent_frame.tokens += frame.tokens
            parent_frame.hit += frame.hit
            parent_frame.requests += frame.requests
            parent_frame.hits_beyond += frame.hits_beyond
            parent_frame.children.append(index)
        return frames

    def _scope_name(self, key: _ScopeKey) -> str:
        model, salt, *_ = key
        return " · ".join(part for part in (model, salt) if part)

    def _shrink(self) -> None:
        """Merge the smallest leaves into their parents until a quarter of the bounds is free."""
        for key in [key for key, tree in self._trees.items() if not tree.root.children]:
            self._forget(key)
        leaves = [(key, node) for key, tree in self._trees.items() for node in tree.nodes() if node.evictable]
        heap = [(_own_tokens(node), serial, key, node) for serial, (key, node) in enumerate(leaves)]
        heapq.heapify(heap)
        serial = len(heap)
        while heap and (4 * self._nodes > 3 * self._max_nodes or 4 * self._units > 3 * self._max_units):
            _, _, key, node = heapq.heappop(heap)
            parent = node.parent
            if parent is None:
                continue
            self._merge(self._trees[key], node, parent)
            if parent.evictable:
                serial += 1
                heapq.heappush(heap, (_own_tokens(parent), serial, key, parent))
            elif not parent.length and not parent.children:
                self._forget(key)

    def _merge(self, tree: RadixTree[Counts], leaf: Node[Counts], parent: Node[Counts]) -> None:
        """Add what a leaf counts to its parent, and drop it."""
        counts, into = leaf.value, parent.value
        into.ended += counts.ended
        into.merged_tokens += _own_tokens(leaf)
        into.merged_hit += counts.merged_hit + sum(stop * requests for stop, requests in counts.hits.items())
        into.merged_nodes += counts.merged_nodes + 1
        hits = sum(counts.hits.values())
        if hits and parent.length:  # they went all through the parent
            whole = parent.length * into.unit
            into.hits[whole] = into.hits.get(whole, 0) + hits
        self._nodes -= 1
        self._units -= leaf.length
        tree.truncate(leaf, 0)
        self._labeller.lift(leaf, parent)

    def _forget(self, key: _ScopeKey) -> None:
        """Drop a tree of which only the root is left."""
        counts = self._trees.pop(key).root.value
        self._nodes -= 1
        self._forgotten.merged_tokens += counts.merged_tokens + counts.tail
        self._forgotten.merged_hit += counts.merged_hit
        self._forgotten.merged_nodes += counts.merged_nodes


def _own_tokens(leaf: Node[Counts]) -> int:
    counts = leaf.value
    return counts.ended * leaf.length * counts.unit + counts.tail + counts.merged_tokens


def _count_own(frame: _Frame, node: Node[Counts]) -> None:
    """Add to a frame, which holds what lies below it, what lies in the node itself."""
    counts = node.value
    frame.requests += counts.ended
    length = node.length * counts.unit
    frame.tokens += frame.requests * length + counts.tail + counts.merged_tokens
    frame.hit += frame.hits_beyond * length + counts.merged_hit
    for stop, requests in counts.hits.items():
        frame.hit += stop * requests
        frame.hits_beyond += requests
