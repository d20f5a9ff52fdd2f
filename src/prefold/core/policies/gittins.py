"""prefold's own policy: keeps what is expected back soonest for its size, and never does much worse than LRU."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from prefold.core.policies.base import Policy
from prefold.core.policies.cost import Cost
from prefold.core.policies.guard import Guard
from prefold.core.policies.hazards import EDGES, Hazards, Life
from prefold.core.policies.memory import Memory, place_behind
from prefold.core.policies.shadow import LRUShadow
from prefold.core.radix import Leaves, Node
from prefold.core.tokens import WIDTH

_SIBLINGS = 3
"""More children than this make a node a shared head, which is no conversation's own."""
_REMEMBERED = 16
"""Tokens remembered of what was evicted, as a multiple of the capacity."""
_RENEWED = 4
"""Leaves that may be ranked anew for each request, since ranks change with time; few are always up to date."""
_ENOUGH = 64
"""Ends of lives to have seen before the ranking is trusted."""


class Note:
    """What is known of a node.

    Attributes:
        key: name of the place where it begins.
        life: of the request that used it last.
        moment: of its last use, 0 while it is new.
        gap: seconds between uses, the latest ones weighing most; 0 for a node that is no shared head.
        uses: requests that used it.
        ends: whether the latest prompt and answer end with it, and nothing was cut off yet.
        ghost_behind: key of the ghost of what was cut off it, 0 for none.
        rank: that of its valid entry in the ranking.
    """

    __slots__ = ("ends", "gap", "ghost_behind", "key", "life", "moment", "rank", "uses")

    def __init__(self, key: int) -> None:
        self.key = key
        self.life: Life | None = None
        self.moment = 0
        self.gap = 0.0
        self.uses = 0
        self.ends = False
        self.ghost_behind = 0
        self.rank = 0.0


class _RankedLeaves(Leaves[Any]):
    """Leaves in order of last use, and those that were offered since they were ranked."""

    def __init__(self) -> None:
        super().__init__()
        self.offered: dict[Node[Any], None] | None = None
        """Each once; None while nothing is ranked, or so much was offered that all is to be ranked again."""

    def offer(self, node: Node[Any]) -> None:
        """See `LeafQueue`."""
        if node.pins or node.children or node.parent is None:
            return
        if not node.queued:
            super().offer(node)
        if self.offered is not None:
            self.offered[node] = None
            if len(self.offered) > 1000:
                self.offered = None

    def queued(self) -> Iterable[Node[Any]]:
        """All evictable leaves, and some nodes that were."""
        return map(itemgetter(2), self._heap)


class Gittins(Policy):
    """Evicts the leaf with the lowest Gittins index (see `hazards`), guarded so that LRU is never much better.

    A request goes on with an earlier one if it knows nearly all of it: the path in the tree, and behind it the ghosts
    of what was evicted, say how much. All nodes of a path share the latest request's life, so that work is done for
    nodes and requests, not for tokens. The heads that many conversations share are ranked by the pace of their uses
    instead, and what the continuation of a conversation left behind goes first.

    A shadow counts what LRU would have hit. Where the ranking falls behind, leaves go in order of last use instead (see
    `guard`), so that the hits stay within about one percent of LRU's. It starts as LRU, and stays so for a host that
    tells no time.
    """

    leaves: _RankedLeaves

    def __init__(self) -> None:
        self.leaves = _RankedLeaves()
        self._hazards = Hazards()
        self._now = 0.0
        self._ranking: list[tuple[float, int, int, Node[Any]]] = []
        self._changes = 0  # of the ranking since it was made, and those allowed for by time
        self._serial = 0  # breaks ties before nodes are compared
        self._went_on = 2.0  # conversations that went on
        self._overhung = 1.0  # those of which the last token was not part of what went on
        self._input = 0.0
        self._cost: Cost | None = None

    def sized(self, capacity: int) -> None:
        """See `Policy`."""
        self._memory = Memory(_REMEMBERED * capacity)
        self._shadow = LRUShadow(capacity)
        self._guard = Guard(capacity)

    def priced(self, cost: Cost) -> None:
        """See `Policy`."""
        self._cost = cost

    # Hearing

    def added(self, node: Node[Any], origin: Node[Any] | None) -> None:
        """See `Policy`."""
        if origin is None:
            parent: Note | None = None if node.parent is None else node.parent.note
            node.note = Note(place_behind(parent.key if parent else 0, node.edge))
            if parent:
                parent.ghost_behind = 0
            return
        rest: Note = origin.note
        note = node.note = Note(rest.key)
        note.life, note.moment, note.gap, note.uses = rest.life, rest.moment, rest.gap, rest.uses
        rest.key = place_behind(rest.key, origin.edge)

    def used(self, node: Node[Any], now: float) -> None:
        """See `Policy`."""
        self._now = now
        self._changes += _RENEWED
        shadow = self._shadow
        moment = shadow.begin()
        hits_before = shadow.hits
        path = node.path()
        known = new = before = None
        hit = 0
        for one in path:
            note: Note = one.note
            if not note.uses:
                new = one
                break
            known = one
            length = len(one.run) // WIDTH
            hit += length
            shadow.leave(note.moment, length)
        if known is not None and len(known.children) <= _SIBLINGS:
            before = known.note.life
        matched = hit
        if new is not None:
            for ghost in self._memory.recall(new):
                shadow.leave(ghost.moment, ghost.tokens)
                matched += ghost.tokens
                before = ghost.life
        depth = node.stop
        shadow.enter(depth)
        life = self._born(before, depth, min(matched, depth), now, exact=matched == hit)
        for one in path:
            note = one.note
            if len(one.children) > _SIBLINGS and note.life is not None:
                gap = now - note.life.time
                note.gap = 0.75 * note.gap + 0.25 * gap if note.gap else gap
            note.uses += 1
            note.moment = moment
            note.life = life
            note.ends = False
        self._judge(depth, hit, shadow.hits - hits_before)

    def _born(self, before: Life | None, depth: int, matched: int, now: float, *, exact: bool) -> Life:
        """The life of a request that knows `matched` of its `depth` tokens, most of them from the life `before`."""
        new = depth - matched
        if before is None or before.end is not None:
            return Life(depth, new, now)
        if not before.answered:  # the same request once more, or one beside it
            return Life(depth, new, now, before.turn, before.gap)
        overhang = before.depth - matched
        if overhang > 1 and overhang > before.new // 2:
            return Life(depth, new, now)
        self._hazards.ended(before, now)
        if exact:
            self._went_on += 1
            self._overhung += overhang > 0
        return Life(depth, new, now, before.turn + 1, now - before.time)

    def done(self, node: Node[Any], now: float, output_tokens: int, stop: str) -> None:
        """See `Policy`."""
        self._now = now
        end = node
        answer = []
        while not node.note.uses and node.parent is not None:
            answer.append(node)
            node = node.parent
        life: Life = node.note.life
        # Where another request went on from this one while it ran, the path has that one's life by now.
        own = life.depth == node.stop and life.end is None and not life.answered
        for one in answer:
            note: Note = one.note
            note.uses, note.moment, note.life = 1, self._shadow.moment, life
            self._shadow.enter(one.length)
        if own:
            life.depth = end.stop
            life.new += end.stop - node.stop
            end.note.ends = not end.children
            self._hazards.answered(life, now, output_tokens, stop)
        if self._hazards.fit_if_due(now):
            self.leaves.offered = None

    def removing(self, node: Node[Any], keep: int) -> None:
        """See `Policy`."""
        note: Note = node.note
        if not keep or not note.ends:
            note.ghost_behind = self._memory.remember(node, keep, note.ghost_behind)
        else:
            note.ends = False
            if self.leaves.offered is not None:
                self.leaves.offered[node] = None

    # Deciding

    def _judge(self, tokens: int, hit: int, lru_hit: int) -> None:
        """Compare what was saved with what LRU would have saved: both hit the beginning of the prompt."""
        guard, cost = self._guard, self._cost
        if cost is None:
            self._input += tokens
            average = self._input / self._shadow.moment
            guard.judge(tokens, hit, lru_hit, average)
        else:
            self._input += cost.compute(0, tokens)
            average = self._input / self._shadow.moment
            guard.judge(tokens, cost.compute(0, hit), cost.compute(0, lru_hit), average)
        if not guard.follows and self._hazards.ends >= _ENOUGH and self._now > 0 and guard.may_follow(average):
            self.leaves.offered = None

    def victim(self) -> Node[Any] | None:
        """See `Policy`."""
        leaves = self.leaves
        if not self._guard.follows:
            return leaves.oldest()
        # What was used after it was ranked was offered again; it gets its new rank before the old one is looked at.
        if leaves.offered is None or self._changes > 2 * len(self._ranking):
            self._rank_all()
        elif leaves.offered:
            self._changes += len(leaves.offered)
            for entry in self._ranked(leaves.offered):
                heapq.heappush(self._ranking, entry)
            leaves.offered.clear()
        ranking = self._ranking
        while ranking:
            rank, _, _, node = ranking[0]
            if node.note.rank == rank and node.evictable:
                self._changes += 1
                return node
            heapq.heappop(ranking)
        return leaves.oldest()

    def portion(self, victim: Node[Any]) -> int:
        """See `Policy`. The last token of a prompt goes alone: if it is a block, it is often one that was not full."""
        return 1 if self._guard.follows and victim.note.ends else victim.length

    def _ranked(self, nodes: Iterable[Node[Any]]) -> list[tuple[float, int, int, Node[Any]]]:
        """Entries of the ranking for those of the nodes that are evictable."""
        now, work_out, cost = self._now, self._hazards.work_out, self._cost
        serial = self._serial
        entries = []
        for node in nodes:
            if node.pins or node.children or node.parent is None:
                continue
            note: Note = node.note
            life = note.life
            if life is None or life.end is not None:
                rank = 0.0
            elif note.gap:
                rank = 1 / max(note.gap, now - life.time, 1e-3)
            else:
                rank = (life.indexes or work_out(life))[bisect_right(EDGES, now - life.time) - 1]
                if note.ends:
                    rank *= 1 - self._overhung / self._went_on
            if cost is not None:
                rank *= cost.again(node) / node.length
            note.rank = rank
            serial += 1
            entries.append((rank, note.moment, serial, node))
        self._serial = serial
        return entries

    def _rank_all(self) -> None:
        self._ranking = self._ranked(self.leaves.queued())
        heapq.heapify(self._ranking)
        self._changes = 0
        self.leaves.offered = {}
