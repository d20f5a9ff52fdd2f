"""What decides which K/V goes down to the tiers and what comes back up, and when.

Down: K and V of whole blocks are read from the pool right before their slots are freed. Memory takes all of them; a
slow tier takes what was asked for before (see `demand`), so that what nobody will want again does not wear it out.
Whatever is below has its parents there too.

Up: when a request is queued, the blocks behind its match in the tree are looked for below. Where reading them is
expected to take less time than computing them, they are read in a thread of their own while the queue moves, and when
the request is admitted they are put into its slots, as if they had been in the tree. Whoever waits for that holds
nobody up, and goes without when it takes longer than computing would.

All of this runs in the engine's thread, between two steps; only bytes are moved by another (see `mover`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from prefold.core.keys import block_keys
from prefold.core.radix import Node
from prefold.engine.kv_pool import KVPool
from prefold.engine.options import TierWrite
from prefold.engine.slots import Runs, Span, cut, join
from prefold.engine.tiers.arrivals import Arrivals, Piece
from prefold.engine.tiers.base import Layout, Tier, TierUsage
from prefold.engine.tiers.demand import Demand, forget_oldest
from prefold.engine.tiers.mover import BATCH, Mover, Source, Write, attempt
from prefold.engine.tiers.names import Namer
from prefold.engine.tiers.rates import Rate

if TYPE_CHECKING:
    from prefold.engine.scheduler import Sequence as Answer

BLOCK_TOKENS = 64
"""Tokens of a block, where nothing else is said."""

_LOOKS = 3  # at the tiers for one request, while the tree loses what it had matched
_FAST, _SLOW = 4e9, 4e8  # bytes a second that a tier is taken to read until that is measured
_QUICK = 2e-3  # seconds that a look into a tier may take in the engine's thread
_UNKNOWN = 1.0  # seconds that a load may take as long as nothing was computed that it could be compared with
_PATIENCE = 0.1  # part of the time that computing takes, to wait for word of what there is
_AT_ONCE = 32  # blocks that go from the pool to memory; each call of a pool costs a few milliseconds beside the copying
_SHARE_OF_POOL = 4  # the staging area, and what waits to be written, are each as large as one part in so many of it


@dataclass(slots=True, eq=False)
class _Wait:
    """A queued request.

    Attributes:
        keys: of the whole blocks of its prompt.
        matched: tokens that the tree had when it was looked for in the tiers.
        since: when that was.
        cost: seconds that computing what is looked for would take.
        pieces: what comes from below, in order.
        looks: how often it was looked for.
        delayed: it is to be looked for when there is room for it.
        settled: it waits for nothing more.
    """

    keys: list[bytes]
    matched: int
    since: float = 0.0
    cost: float = 0.0
    pieces: list[Piece] = field(default_factory=list)
    looks: int = 0
    delayed: bool = False
    settled: bool = False

    @property
    def has_come(self) -> bool:
        """Whether there is nothing more to wait for."""
        return not self.delayed and all(piece.load.finished for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class TierState:
    """How a tier stands.

    Attributes:
        name: of the tier.
        loaded: tokens put into the pool from it since the start.
        usage: what it says itself.
    """

    name: str
    loaded: int
    usage: TierUsage


class Ladder:
    """Tiers below a pool. For the engine's thread only.

    Args:
        tiers: fast to slow; closed by `close`.
        layout: of their blocks.
        pool: K and V.
        write: when blocks go down: `evict`, when they leave the pool; `through`, also as soon as they are ready, and
            then slow tiers take all of them.
        burden: how dear a second of computing prompts is, in seconds of waiting for a load: more than 1 where it holds
            up what is dearer, such as the tokens of others.
        clock: monotonic seconds.
        told: called in another thread when a load has come; see `Mover`. May be set later.

    Attributes:
        tiers: as given.
        loaded: tokens put into the pool, by name of the tier that they came from.
        late: requests that went without what was on its way to them.
        dropped: blocks that did not go down because too many waited to be written already.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        layout: Layout,
        pool: KVPool,
        *,
        write: TierWrite = "evict",
        burden: float = 1.0,
        clock: Callable[[], float],
        told: Callable[[], None] | None = None,
    ) -> None:
        self.tiers = tuple(tiers)
        self.loaded: Counter[str] = Counter()
        self.late = 0
        self.dropped = 0
        self.told = told
        self._size = layout.block_tokens
        self._record = layout.record_bytes
        self._fast = self.tiers[0] if self.tiers and not self.tiers[0].slow else None
        self._has_slow = any(tier.slow for tier in self.tiers)
        self._pool = pool
        self._through = write == "through"
        self._burden = burden
        self._clock = clock
        self._namer = Namer(layout.fingerprint, layout.block_tokens)
        share = max(pool.capacity // self._size // _SHARE_OF_POOL, BATCH)
        self._arrivals = Arrivals(share, self._size, pool.bytes_per_token)
        self._write_limit = share * self._record
        self._reading = [Rate(_SLOW if tier.slow else _FAST) for tier in self.tiers]
        self._finding = [Rate(1 / _QUICK) for _ in self.tiers]
        self._prefill = Rate(None)
        self._demand = Demand()
        self._below: OrderedDict[bytes, None] = OrderedDict()
        self._waits: dict[Answer, _Wait] = {}
        self._quiet = False
        self._mover = Mover(self.tiers, self._record, self._arrivals.memory, self._tell, clock)

    def _tell(self) -> None:
        if self.told is not None:
            self.told()

    # Up

    @property
    def loading(self) -> bool:
        """Whether any request waits for a load."""
        return any(not wait.settled for wait in self._waits.values())

    def patience(self) -> float:
        """Seconds until the first request that waits for a load goes without it; 0 or more."""
        ends = [self._deadline(wait) for wait in self._waits.values() if not wait.settled]
        return max(min(ends, default=0.0) - self._clock(), 0.0)

    def look(self, answer: Answer, matched: int) -> None:
        """Look for what a request that was queued does not find in the tree.

        Args:
            answer: which.
            matched: tokens of its prompt that the tree has.
        """
        scope = answer.request.scope
        keys = block_keys(self._namer.root(scope.namespace), answer.run, self._size, scope)
        if answer.cached is None:  # else it is another choice of the same request, or comes again
            self._demand.asked(keys)
        wait = self._waits[answer] = _Wait(keys, matched)
        self._look(wait, matched)

    def settled(self, answer: Answer) -> bool:
        """Whether a queued request waits for nothing from below."""
        wait = self._waits[answer]
        if wait.settled:
            return True
        if wait.delayed:
            self._find(wait)
        wait.settled = wait.has_come or self._clock() >= self._deadline(wait)
        return wait.settled

    def fits(self, answer: Answer, matched: int) -> bool:
        """Whether a settled request can go with what it has.

        Not where the tree has lost some of its match since: then the tiers are asked again.

        Args:
            answer: which.
            matched: tokens of its prompt that the tree has now.
        """
        wait = self._waits[answer]
        if wait.looks < _LOOKS and (wait.delayed or matched // self._size < wait.matched // self._size):
            self._leave(wait)
            self._look(wait, matched)
        return wait.settled

    def covered(self, answer: Answer) -> int:
        """Leading tokens of a queued request's prompt that are in the tree or come from below."""
        wait = self._waits[answer]
        pieces = wait.pieces
        return pieces[-1].end * self._size if pieces else wait.matched

    def take(self, answer: Answer) -> int:
        """Put what has come for a request into its slots, now that it is admitted; how many of its tokens are ready."""
        wait = self._waits.pop(answer)
        before = position = answer.ready()
        for piece in wait.pieces:
            come = piece.come  # more may come at any moment
            if piece.block * self._size > position:
                break
            if (piece.block + come) * self._size > position:
                position = self._put(answer, piece, come, position)
            if come < piece.blocks:
                break
        self.late += not wait.has_come
        self._leave(wait)
        if position > before:
            for node in answer.nodes():
                if node.start >= position:
                    break
                span = node.value
                span.ready = max(span.ready, min(position, node.stop) - node.start)
                span.planned = max(span.planned, span.ready)
        return position

    def drop(self, answer: Answer) -> None:
        """A queued request will not be admitted."""
        self._leave(self._waits.pop(answer))

    def computed(self, tokens: int, seconds: float) -> None:
        """A step with so many tokens of prompts took so long."""
        if tokens >= self._size:
            self._prefill.add(tokens, seconds, self._clock())

    def collect(self) -> None:
        """Take in what has been moved."""
        now = self._clock()
        while self._mover.done:
            job = self._mover.done.popleft()
            if isinstance(job, Write):
                if not job.complete:
                    for key in job.keys:
                        self._below.pop(key, None)
                continue
            for spent in job.spent:
                if spent.blocks is None:
                    self._finding[spent.tier].add(1, spent.seconds, now)
                elif spent.blocks:
                    self._reading[spent.tier].add(spent.blocks * self._record, spent.seconds, now)
            for key in job.keys[len(job.origin) :]:
                self._below.pop(key, None)  # it was not, or is no more
            # What is there as well at the end of the ladder need not be brought there.
            last = len(self.tiers) - 1
            self._below.update((key, None) for key, tier in zip(job.keys, job.origin, strict=False) if tier == last)
            self._arrivals.finished(job)

    def _deadline(self, wait: _Wait) -> float:
        """When a request goes without what it waits for."""
        known = all(piece.load.found for piece in wait.pieces)
        return wait.since + wait.cost * (1.0 if known else _PATIENCE)

    def _look(self, wait: _Wait, matched: int) -> None:
        """Look for a request's blocks behind `matched`."""
        wait.looks += 1
        wait.matched, wait.since = matched, self._clock()
        wait.cost = self._seconds_to_compute(len(wait.keys) - matched // self._size)
        self._find(wait)
        wait.settled = wait.has_come

    def _find(self, wait: _Wait) -> None:
        """Find what a request still lacks in what is on its way already, and in the tiers."""
        wait.delayed = False
        first = wait.matched // self._size
        wait.pieces += self._arrivals.join(wait.keys, wait.pieces[-1].end if wait.pieces else first)
        at, end = wait.pieces[-1].end if wait.pieces else first, len(wait.keys)
        if at == end:
            return
        sources = self._sources(wait.keys, at)
        known = sum(source.blocks or 0 for source in sources)
        blocks = end - at if any(source.blocks is None for source in sources) else known
        room = self._arrivals.room_for(blocks)
        if room:
            piece = self._arrivals.start(wait.keys[at : at + room], at, sources)
            wait.pieces.append(piece)
            self._mover.load(piece.load)
        wait.delayed = room == 0 < blocks

    def _sources(self, keys: list[bytes], at: int) -> tuple[Source, ...]:
        """The tiers from which a chain's blocks from `at` on should be read."""
        sources: list[Source] = []
        queued = self._arrivals.backlog * self._record
        for number, tier in enumerate(self.tiers):
            rest = keys[at:]
            if not rest:
                break
            found: int | None = None
            now = self._clock()
            if 1 / (self._finding[number].value(now) or 1.0) <= _QUICK and (
                not sources or sources[-1].blocks is not None
            ):
                found = attempt(partial(tier.find, rest))
                self._finding[number].add(1, self._clock() - now, now)
            blocks = len(rest) if found is None else found
            seconds = (queued + blocks * self._record) / (self._reading[number].value(now) or _SLOW)
            if blocks and seconds < self._seconds_to_compute(blocks):
                sources.append(Source(number, found))
                queued += blocks * self._record
                at += found or 0
            elif blocks:
                break  # what lies behind is of no use without this
        if self._has_slow and (not sources or sources[-1].blocks is not None):
            for key in keys[at:]:
                self._below.pop(key, None)  # whatever became of it, it is not there
        return tuple(sources)

    def _leave(self, wait: _Wait) -> None:
        """A request has done with its loads."""
        self._arrivals.leave(wait.pieces)
        wait.pieces = []

    def _put(self, answer: Answer, piece: Piece, come: int, begin: int) -> int:
        """Fill a request's slots from position `begin` on with the blocks of a piece that have come; where they end."""
        for arrived in self._arrivals.records(piece, come, begin):
            self._pool.load(answer.slots(arrived.start, arrived.stop), arrived.records)
        for block in range(begin // self._size, piece.block + come):
            origin = piece.load.origin[block - piece.block + piece.at]
            self.loaded[self.tiers[origin].name] += (block + 1) * self._size - max(begin, block * self._size)
        return (piece.block + come) * self._size

    def _seconds_to_compute(self, blocks: int) -> float:
        rate = self._prefill.value(self._clock())
        return self._burden * blocks * self._size / rate if rate else _UNKNOWN

    # Down

    def leaving(self, leaf: Node[Span], keep: int) -> None:
        """Tokens of a leaf behind its first `keep` are about to leave the pool."""
        blocks = (leaf.start + leaf.value.ready) // self._size
        if not self._quiet and blocks * self._size > leaf.start + keep:
            self._hand_down(leaf.path(), blocks, everything=self._through)

    def ready(self, path: Sequence[Node[Span]]) -> None:
        """More of a path has K and V."""
        if not self._through:
            return
        self._hand_down(path, _ready(path) // self._size, everything=True)

    def ended(self, path: Sequence[Node[Span]], prompt: int) -> None:
        """An answer has ended.

        Args:
            path: of prompt and answer.
            prompt: tokens of the prompt alone.
        """
        self._demand.ended(self._namer.keys(path), prompt // self._size)

    def share(self, path: Sequence[Node[Span]], tokens: int) -> Future[bool]:
        """Bring the whole blocks of a path to the slow tiers, where other engines find them.

        Args:
            path: nodes from below the root down.
            tokens: how many leading ones matter.

        Returns:
            Whether they are all there, once that is known. If not, others have removed some: share it again.
        """
        self.collect()
        blocks = min(tokens, _ready(path)) // self._size
        keys = self._namer.keys(path)[:blocks]
        return self._mover.after(self._carry(path, keys, self._missing(keys)))

    def _hand_down(self, path: Sequence[Node[Span]], blocks: int, *, everything: bool, carried: bool = False) -> None:
        """Bring the first blocks of a path, whose K and V are in the pool, to the tiers that want and do not have them.

        Args:
            path: nodes from below the root down.
            blocks: how many.
            everything: slow tiers want all of them.
            carried: what goes to slow tiers does not go by way of the fast one, which may be smaller than the pool.
        """
        keys = self._namer.keys(path)[:blocks]
        if not keys:
            return
        if self._fast is not None and not carried:
            self._keep_fast(self._fast, path, keys)
        if not self._has_slow:
            return
        wanted = len(keys) if everything else self._demand.wanted(keys)
        chain = keys[:wanted]
        first = self._missing(chain)
        if first == wanted:
            return
        if self._fast is not None and not carried:
            first = wanted
        elif self._mover.queued_bytes + (wanted - first) * self._record > self._write_limit and not carried:
            self.dropped += wanted - first
            return
        self._mover.write(self._carry(path, chain, first))

    def _missing(self, keys: Sequence[bytes]) -> int:
        """Number of the first block behind all that are believed to be in the slow tiers."""
        first = len(keys)
        while first and keys[first - 1] not in self._below:
            first -= 1
        return first

    def _carry(self, path: Sequence[Node[Span]], keys: Sequence[bytes], first: int) -> Write:
        """What brings a path's first blocks to the slow tiers, those from `first` on out of the pool."""
        self._below.update(dict.fromkeys(keys))
        forget_oldest(self._below)
        records = self._dump(path, first, len(keys)) if first < len(keys) else memoryview(b"")
        return Write(tuple(keys), first, records)

    def _keep_fast(self, tier: Tier, path: Sequence[Node[Span]], keys: list[bytes]) -> None:
        """Copy to memory what it does not have, in parts, so that little is held twice."""
        if attempt(partial(tier.find, keys[-1:])):
            return
        have = attempt(partial(tier.find, keys))
        stored = 1
        while have < len(keys) and stored:
            end = min(have + _AT_ONCE, len(keys))
            write = partial(tier.write, keys[have:end], range(have, end), self._dump(path, have, end))
            stored = attempt(partial(write, keys[have - 1] if have else None))
            have += stored

    def _dump(self, path: Sequence[Node[Span]], first: int, end: int) -> memoryview:
        """The records of a path's blocks from `first` up to `end`."""
        begin, stop = first * self._size, end * self._size
        runs: Runs = join(*(cut(node.value.runs, begin - node.start, stop - node.start) for node in path))
        return self._pool.dump(runs).view(-1).numpy().data

    # Whole

    def state(self) -> list[TierState]:
        """How the tiers stand, fast to slow."""
        return [TierState(tier.name, self.loaded[tier.name], tier.usage()) for tier in self.tiers]

    def quietly(self, function: Callable[[], int]) -> int:
        """Do something during which nothing that leaves the pool goes down."""
        self._quiet = True
        try:
            return function()
        finally:
            self._quiet = False

    def clear(self) -> Future[int]:
        """Empty the tiers; the number of blocks that were in them, when that is done."""
        for wait in self._waits.values():
            self._leave(wait)
            wait.settled, wait.delayed = True, False
        self._demand.clear()
        self._below.clear()
        return self._mover.call(lambda: sum(attempt(tier.clear) for tier in self.tiers))

    def close(self, leaves: Iterable[Node[Span]], enough: Callable[[], bool]) -> None:
        """Bring to slow tiers what the pool holds and was asked for twice or is pinned, then let go of all tiers.

        Args:
            leaves: of the tree.
            enough: asked now and then; whether to leave it at that.
        """
        if self._has_slow:
            for leaf in leaves:
                if enough() or not self._mover.wait(enough, self._write_limit):
                    break
                self._save(leaf)
            self._mover.wait(enough)
        self._mover.close()
        for tier in self.tiers:
            tier.close()

    def _save(self, leaf: Node[Span]) -> None:
        path = leaf.path()
        blocks = (leaf.start + leaf.value.ready) // self._size
        pinned = max((node.stop for node in path if node.pins), default=0) // self._size
        self._hand_down(path, min(pinned, blocks), everything=True, carried=True)
        self._hand_down(path, blocks, everything=self._through, carried=True)


def _ready(path: Sequence[Node[Span]]) -> int:
    """Leading tokens of a path that have K and V."""
    position = 0
    for node in path:
        position = node.start + node.value.ready
        if position < node.stop:
            break
    return position
