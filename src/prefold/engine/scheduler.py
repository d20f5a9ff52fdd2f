"""Which tokens run in the next step.

Work belongs to the tree, not to the request that brought it: a prompt's nodes join the tree when the request is
admitted, marked as not ready, and in every step the first request that needs an unready token computes it. A second
request with the same prefix therefore waits for nothing but that, goes on with its own part in the same step if it
can, and takes over if the first one is cancelled. No request owns another's progress, and nothing is computed twice.

Admission is by longest cached prefix (RadixAttention, Zheng et al., 2023), with ageing, which the original lacks: a
request that was overtaken often enough goes next. Room is taken as an answer grows; when there is none left, the
request that was admitted last gives its own up, and later goes on from what is still in the tree ("preemption by
recompute", Kwon et al., 2023). Pure Python: no torch, no clock.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prefold.core.cache import Cache, Lease
from prefold.core.radix import Node
from prefold.core.tokens import WIDTH, count, pack
from prefold.engine.options import EngineOptions
from prefold.engine.request import Request
from prefold.engine.slots import Runs, SlotPool, Span, cut, join, length

if TYPE_CHECKING:
    from prefold.engine.tiers.ladder import Ladder

TAIL_QUANTUM = 32
"""Slots by which a growing answer is extended, so that it stays in long runs."""

LPM_WINDOW = 128
"""Waiting requests, oldest first, that are ranked by their match and considered in one step."""


@dataclass(eq=False)
class Sequence:
    """One answer in the making.

    Attributes:
        request: what was asked.
        choice: which of the request's answers this is.
        arrival: serial number; lower came earlier.
        run: the prompt, and after a preemption also what was generated before it. Of a private sequence, the prompt up
            to its first chunk.
        fresh: tokens generated since the last admission. Of a private sequence, all that follows `run`.
        generated: all tokens generated.
        computed: positions before this one need no more computing for this sequence.
        cached: hit on the first admission, None before it.
        overtaken: how many later arrivals were admitted first.
        lease: hold on the prompt's nodes while running.
        prompt_slots: slots of `run`, in order; the tree may cut its nodes anew, but a token keeps its slot.
        tail: slots of `fresh`, more than it has tokens.
        private: what follows `run` is not exact (see `engine.blend`): it never joins the tree.
    """

    request: Request
    choice: int
    arrival: int
    run: bytes
    fresh: list[int] = field(default_factory=list)
    generated: int = 0
    computed: int = 0
    cached: int | None = None
    overtaken: int = 0
    lease: Lease[Span] | None = None
    prompt_slots: Runs = ()
    tail: Runs = ()
    private: bool = False

    @property
    def prefilling(self) -> bool:
        """Whether part of the prompt has yet to run."""
        return self.computed < count(self.run)

    @property
    def blendable(self) -> bool:
        """Whether the private part of its prompt is what is to run next."""
        return self.private and self.computed == count(self.run)

    def nodes(self) -> list[Node[Span]]:
        """The tree nodes of the prompt, in order; none unless running."""
        return self.lease.node.path() if self.lease is not None else []

    def ready(self) -> int:
        """Leading prompt tokens whose K and V are in place."""
        return self._frontier(lambda span: span.ready)

    def planned(self) -> int:
        """Leading prompt tokens whose K and V will be in place after the step being prepared."""
        return self._frontier(lambda span: span.planned)

    def _frontier(self, progress: Callable[[Span], int]) -> int:
        position = 0
        for node in self.nodes():
            position = node.start + progress(node.value)
            if position < node.stop:
                break
        return position

    def slots(self, begin: int, end: int) -> Runs:
        """Slots of the positions `begin` up to, not including, `end`."""
        offset = count(self.run)
        return join(cut(self.prompt_slots, begin, end), cut(self.tail, begin - offset, end - offset))


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """The tokens of one sequence that run in one step.

    Attributes:
        sequence: whose.
        start, stop: their positions, `stop` exclusive.
        write_from: K and V of earlier positions are in the pool, or are put there by another chunk of the same step;
            they are computed only for what depends on them and written nowhere.
        sample: whether the chunk ends the known tokens, so that a new one can be chosen.
    """

    sequence: Sequence
    start: int
    stop: int
    write_from: int
    sample: bool

    @property
    def of_prompt(self) -> bool:
        """Whether the tokens are the prompt's, not the newest of the answer."""
        return self.start < count(self.sequence.run)

    def token_bytes(self) -> bytes:
        """The tokens, packed."""
        if not self.of_prompt:
            return pack(self.sequence.fresh[-1:])
        return self.sequence.run[self.start * WIDTH : self.stop * WIDTH]


class Scheduler:
    """Decides who runs. Deterministic: the same calls give the same steps.

    Args:
        cache: of spans; its capacity is the pool's.
        pool: of slots.
        options: order, budgets, grid.
        on_ready: called with the nodes of a sequence, from below the root down, when more of them has K and V.
        ladder: of the tiers below the pool, where there are any.
    """

    def __init__(
        self,
        cache: Cache[Span],
        pool: SlotPool,
        options: EngineOptions,
        on_ready: Callable[[list[Node[Span]]], None] | None = None,
        ladder: Ladder | None = None,
    ) -> None:
        self.waiting: list[Sequence] = []
        """In order of arrival."""
        self.running: list[Sequence] = []
        """In order of admission."""
        self.preemptions = 0
        self.computed_tokens = 0
        """Prompt tokens planned for computing, each time they are."""
        self._cache = cache
        self._pool = pool
        self._options = options
        self._on_ready = on_ready
        self._ladder = ladder
        self._now = 0.0

    def add(self, sequence: Sequence) -> None:
        """Put a sequence into the queue."""
        insort(self.waiting, sequence, key=lambda other: other.arrival)
        if self._ladder is not None:
            self._ladder.look(sequence, self._matched(sequence))

    def schedule(self, now: float = 0.0) -> list[Chunk]:
        """Chunks of the next step: a token of each running answer, then prompts for the rest of `step_tokens`.

        Args:
            now: seconds, for the cache's policy.
        """
        self._now = now
        chunks = self._decode()
        step = self._options.step_tokens
        budget = max(step - len(chunks), step // 4, self._options.grid)  # decoding does not starve prompts
        for sequence in self.running:
            if sequence.prefilling:
                budget -= self._prefill(sequence, budget, chunks)
        self._admit_waiting(budget, chunks)
        return chunks

    def commit(self, chunks: list[Chunk]) -> None:
        """Note that the chunks have run, and gave numbers."""
        for chunk in chunks:
            chunk.sequence.computed = chunk.stop
            if chunk.of_prompt:
                nodes = chunk.sequence.nodes()
                for node in nodes:
                    node.value.ready = node.value.planned
                if self._on_ready is not None:
                    self._on_ready(nodes)
                if chunk.sample and self._ladder is not None:  # not before what follows from it is known to be numbers
                    self._ladder.ready(nodes)

    def blendable(self) -> Sequence | None:
        """The first running sequence whose private part is to run next; that is a step of its own."""
        return next((sequence for sequence in self.running if sequence.blendable), None)

    def blended(self, sequence: Sequence) -> None:
        """Note that the private part of a prompt has run, and gave numbers."""
        sequence.computed = count(sequence.run) + len(sequence.fresh)
        if self._ladder is not None:
            self._ladder.ready(sequence.nodes())

    def release(self, sequence: Sequence, now: float = 0.0, *, stop: str = "") -> None:
        """Take a sequence out for good, wherever it is.

        What it has computed stays in the tree for others; the slots that it alone needed are free.

        Args:
            sequence: that waits or runs.
            now: seconds, for the cache's policy.
            stop: why its answer ended. After an `error` before the first token, nothing of the prompt stays but what
                was there when it was admitted, or others hold: its K and V are not to be trusted.
        """
        self._release(sequence, now, stop=stop, answered=True)

    def _release(self, sequence: Sequence, now: float, *, stop: str, answered: bool) -> None:
        if sequence.lease is None:
            if sequence in self.waiting:
                self.waiting.remove(sequence)
                if self._ladder is not None:
                    self._ladder.drop(sequence)
            return
        self.running.remove(sequence)
        offset = count(sequence.run)
        made = 0 if sequence.private else max(0, sequence.computed - offset)
        taken: list[Runs] = []

        def keep_in_tree(start: int, stop: int) -> Span:
            runs = cut(sequence.tail, start - offset, stop - offset)
            taken.append(runs)
            return Span(runs, stop - start, stop - start)

        ready = sequence.ready() if stop != "error" else min(sequence.ready(), sequence.lease.hit)
        for node in sequence.nodes():
            if not made and node.pins == 1:  # what goes is not to be handed to the tiers as if it were good
                node.value.ready = min(node.value.ready, max(0, ready - node.start))
            node.value.planned = node.value.ready  # a step that was planned and failed
        tail = pack(sequence.fresh[:made])
        self._cache.release(
            sequence.lease,
            tail=tail,
            make_value=keep_in_tree,
            keep=None if made else ready,
            now=now,
            output_tokens=sequence.generated,
            stop=stop,
            answered=answered,
        )
        if made:
            path = self._cache.tree.peek(sequence.run + tail, sequence.request.scope).node.path()
            if self._on_ready is not None:
                self._on_ready(path)
            if self._ladder is not None:
                self._ladder.ready(path)
                self._ladder.ended(path, offset)
        kept = sum(length(runs) for runs in taken)
        first = made - kept  # the tree had these tokens already
        self._pool.free(cut(sequence.tail, 0, first))
        self._pool.free(cut(sequence.tail, made, length(sequence.tail)))
        sequence.lease, sequence.prompt_slots, sequence.tail = None, (), ()

    # Inside

    def _decode(self) -> list[Chunk]:
        chunks = []
        for sequence in list(self.running):
            if sequence.lease is None or sequence.prefilling or sequence.blendable:
                continue
            if self._extend(sequence):
                position = count(sequence.run) + len(sequence.fresh) - 1
                chunks.append(Chunk(sequence, position, position + 1, position, sample=True))
        return chunks

    def _extend(self, sequence: Sequence) -> bool:
        """Make room for the K and V of the newest token; False if the sequence had to give way."""
        if length(sequence.tail) >= len(sequence.fresh):
            return True
        while sequence.lease is not None:
            more = min(TAIL_QUANTUM, sequence.request.sampling.max_tokens - sequence.generated + 1)
            if not self._cache.can_grow(more):
                more = 1
            if self._cache.can_grow(more):
                self._cache.grow(sequence.lease, more)
                after = sequence.tail[-1][1] if sequence.tail else None
                sequence.tail = join(sequence.tail, self._pool.allocate(more, after=after))
                return True
            self._preempt(self.running[-1])
        return False

    def _preempt(self, sequence: Sequence) -> None:
        self.preemptions += 1
        self._release(sequence, self._now, stop="", answered=False)
        if not sequence.private:
            sequence.run += pack(sequence.fresh)
            sequence.fresh = []
        sequence.computed = 0
        sequence.overtaken = self._options.max_overtakes
        self.add(sequence)

    def _prefill(self, sequence: Sequence, budget: int, chunks: list[Chunk]) -> int:
        """Plan a chunk of the sequence's prompt, at most `budget` tokens; returns its length."""
        end = count(sequence.run)
        frontier = sequence.planned()
        start = min(sequence.computed, frontier)
        grid = self._options.grid
        stop = min(end, start + budget if grid == 1 else (start // grid + 1) * grid)
        if stop <= start or stop - start > budget:
            return 0
        for node in sequence.nodes():
            if node.start < stop:
                node.value.planned = max(node.value.planned, min(stop, node.stop) - node.start)
        chunks.append(Chunk(sequence, start, stop, frontier, sample=stop == end and not sequence.private))
        self.computed_tokens += stop - start
        return stop - start

    def _admit_waiting(self, budget: int, chunks: list[Chunk]) -> None:
        if not self.waiting or budget < self._options.grid or len(self.running) >= self._options.max_running:
            return
        queue = self._settled()
        ranked = iter(self._ranked(queue))
        while queue and budget >= self._options.grid and len(self.running) < self._options.max_running:
            oldest = queue[0]
            in_order = self._options.order == "fcfs" or oldest.overtaken >= self._options.max_overtakes
            sequence = oldest if in_order else next((other for other in ranked if other in queue), None)
            if sequence is None:
                break
            if self._ladder is not None and not self._ladder.fits(sequence, self._matched(sequence)):
                queue.remove(sequence)
            elif self._admit(sequence):
                queue.remove(sequence)
                budget -= self._prefill(sequence, budget, chunks)
            elif in_order:
                break  # nobody may go before it; under lpm the next in rank may fit

    def _settled(self) -> list[Sequence]:
        """Who waits for room only, in order of arrival: not those whose K and V are on their way from a tier."""
        if self._ladder is None:
            return list(self.waiting)
        self._ladder.collect()
        return [sequence for sequence in self.waiting if self._ladder.settled(sequence)]

    def _matched(self, sequence: Sequence) -> int:
        return self._cache.tree.peek(sequence.run, sequence.request.scope).length

    def _ranked(self, queue: list[Sequence]) -> list[Sequence]:
        if self._options.order == "fcfs":
            return []
        window = queue[:LPM_WINDOW]
        hits = {id(sequence): self._hit(sequence) for sequence in window}
        window.sort(key=lambda sequence: -hits[id(sequence)])  # stable: equal hits in order of arrival
        return window

    def _hit(self, sequence: Sequence) -> int:
        hit = self._cache.peek(sequence.run, sequence.request.scope)
        return hit if self._ladder is None else max(hit, self._ladder.covered(sequence))

    def _admit(self, sequence: Sequence) -> bool:
        """Start a waiting sequence if there is room; False if there is none yet."""
        scope = sequence.request.scope
        quantum = min(TAIL_QUANTUM, sequence.request.sampling.max_tokens - sequence.generated)
        reserve = len(sequence.fresh) + quantum
        if not self._cache.can_admit(sequence.run, scope, reserve):
            return False
        last: list[int] = []

        def make_span(start: int, stop: int) -> Span:
            runs = self._pool.allocate(stop - start, after=last[-1] if last else None, spare=reserve)
            last.append(runs[-1][1])
            return Span(runs, 0, 0)

        lease = self._cache.admit(
            sequence.run,
            scope,
            reserve=reserve,
            make_value=make_span,
            resumed=sequence.cached is not None,
            now=self._now,
        )
        sequence.lease = lease
        sequence.prompt_slots = join(*(node.value.runs for node in sequence.nodes()))
        if self._ladder is not None:
            self._cache.credit(lease, self._ladder.take(sequence))
            if self._on_ready is not None:
                self._on_ready(sequence.nodes())
        sequence.computed = lease.hit
        if sequence.cached is None:
            sequence.cached = lease.hit
        sequence.tail = self._pool.allocate(reserve, after=sequence.prompt_slots[-1][1])
        self.waiting.remove(sequence)
        self.running.append(sequence)
        for other in self.waiting:
            if other.arrival > sequence.arrival:
                break
            other.overtaken += 1
        return True
