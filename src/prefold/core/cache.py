"""The prefix cache: a radix tree, a policy, a capacity, pins, and the books.

The engine, the simulator and the demo all drive this one class with the same three calls, so what one predicts is what
the other does:

    admit    a request arrives: how many of its tokens are known; the whole prompt is in the tree from now on, held
    grow     it needs room for what it generates
    release  it is done: what it generated joins the tree, and its hold is dropped

A prompt is in the tree from the moment it is admitted, before anything has been computed. So a second request with the
same prefix finds it even if both arrive together, and the prefix is computed once. Whether the values are ready is the
host's business; a host that stops half-way says with `release(keep=...)` how far they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Generic, Protocol, TypeVar

from prefold.core.keys import SHARED, Scope
from prefold.core.policies import LRU, Cost, Policy
from prefold.core.radix import Insertion, Match, Node, RadixTree
from prefold.core.tokens import WIDTH, count
from prefold.errors import CapacityError

V = TypeVar("V")


class Store(Protocol[V]):
    """What a host does with the values on the nodes."""

    def split(self, value: V, length: int) -> tuple[V, V]:
        """Cut a value into those of its first `length` tokens and of the rest."""

    def free(self, value: V) -> None:
        """Take back a value whose tokens left the cache."""


class NoValues:
    """A store for hosts that only count."""

    def split(self, value: None, length: int) -> tuple[None, None]:  # noqa: ARG002 (the protocol's names)
        """See `Store`."""
        return None, None

    def free(self, value: None) -> None:
        """See `Store`."""


@dataclass(slots=True)
class Counters:
    """Totals since the start, in tokens except `requests`.

    `input = hit + recomputed`, where a hit is a prompt token whose K and V some earlier request had already paid for.
    """

    requests: int = 0
    input: int = 0
    hit: int = 0
    inserted: int = 0
    evicted: int = 0

    @property
    def recomputed(self) -> int:
        """Input tokens that had to be computed."""
        return self.input - self.hit

    @property
    def hit_rate(self) -> float:
        """Input tokens served from cache divided by input tokens; 0 before the first request."""
        return self.hit / self.input if self.input else 0.0

    def since(self, earlier: Counters) -> Counters:
        """The difference to an earlier copy."""
        return Counters(*(getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)))


@dataclass(slots=True, eq=False)
class Lease(Generic[V]):
    """A running request's hold on its prompt.

    Attributes:
        run: the prompt.
        scope: who may share it.
        node: the node that ends where the prompt ends; pinned.
        hit: prompt tokens that need not be computed; at most the prompt less what is always computed of
            it, such as the last one, which must run to give logits.
        reserved: tokens of room held outside the tree for what will be generated.
        counted: whether the request is in the counters by this lease; those that resume are by an earlier one.
    """

    run: bytes
    scope: Scope
    node: Node[V]
    hit: int
    reserved: int
    counted: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Pin(Generic[V]):
    """A prefix that stays until `Cache.unpin`.

    Attributes:
        node: the node that ends where the pinned prefix ends.
        length: tokens pinned.
    """

    node: Node[V]
    length: int


class Cache(Generic[V]):
    """A prefix cache of `capacity` tokens.

    Args:
        capacity: tokens that tree and reservations may hold together, at least 1.
        store: what to do with values; `NoValues()` to count only.
        root_value: value of the tree's root.
        policy: who is evicted, of this cache only; least recently used by default.
        cost: what it takes to have evicted tokens again, for policies that weigh it; None where the host cannot say.
        grain: hits are whole multiples of this many tokens (1 for exact, 16 to behave as blocks of 16).
        always_computed: trailing tokens of a prompt that are computed even if they are known: the last one, since it
            must run to give logits. 0 where ids stand for blocks and every known block counts.
        pin_limit: share of the capacity that pins may hold, so that they can never fill it.
        eviction_step: of a node that is evicted in part, a whole multiple of so many tokens stays. With 1 nothing goes
            that need not; a larger one leaves memory in longer pieces.
        leaving: called with a leaf whose tokens behind its first so many are about to leave the tree, while their
            values can still be read.
    """

    def __init__(
        self,
        capacity: int,
        store: Store[V],
        root_value: V,
        *,
        policy: Policy | None = None,
        cost: Cost | None = None,
        grain: int = 1,
        always_computed: int = 1,
        pin_limit: float = 0.5,
        eviction_step: int = 1,
        leaving: Callable[[Node[V], int], None] | None = None,
    ) -> None:
        if min(capacity, grain, eviction_step) < 1 or always_computed < 0 or not 0 <= pin_limit <= 1:
            raise ValueError(
                f"capacity {capacity}, grain {grain} and eviction_step {eviction_step} must be >= 1, "
                f"always_computed {always_computed} >= 0, pin_limit {pin_limit} in 0..1"
            )
        self.capacity = capacity
        self.grain = grain
        self.always_computed = always_computed
        self.reserved = 0
        """Tokens held outside the tree by running requests."""
        self.counters = Counters()
        self._store = store
        self._leaving = leaving
        self._policy = policy or LRU()
        self._policy.sized(capacity)
        if cost is not None:
            self._policy.priced(cost)
        self.tree: RadixTree[V] = RadixTree(root_value, store.split, self._policy.leaves)
        self._eviction_step = eviction_step
        self.pin_limit = int(capacity * pin_limit)
        """Tokens that pins may hold."""
        self.pinned = 0
        """Tokens that pins hold."""
        self._pins: set[Pin[V]] = set()
        self._pinned_nodes: frozenset[Node[V]] | None = None  # as far as it is known
        self._leases: set[Lease[V]] = set()
        self._clock = 0
        self._now = 0.0

    # Looking

    @property
    def free(self) -> int:
        """Tokens of room that nothing occupies."""
        return self.capacity - self.tree.size - self.reserved

    @property
    def evictable(self) -> int:
        """Tokens that eviction could free."""
        return self.tree.size - self.tree.pinned

    def peek(self, run: bytes, scope: Scope = SHARED) -> int:
        """The hit that `admit` would give this prompt now, in tokens. Changes nothing."""
        return self._hit(self.tree.peek(run, scope).length, count(run))

    def can_admit(self, run: bytes, scope: Scope = SHARED, reserve: int = 0) -> bool:
        """Whether `admit` with the same arguments would find room."""
        match = self.tree.peek(run, scope)
        # What the prompt matches will be held and can then not be evicted to make room for the rest of it.
        held = sum(min(node.stop, match.length) - node.start for node in match.node.path() if not node.pins)
        return count(run) - match.length + reserve <= self.free + self.evictable - held

    def attainable(self, run: bytes, scope: Scope = SHARED) -> int:
        """Tokens that a prompt and its answer may take up when nothing else runs: all but what others' pins hold."""
        held = self.pinned_nodes()
        own = sum(node.length for node in self.tree.peek(run, scope).node.path() if node in held) if held else 0
        return self.capacity - self.pinned + own

    def can_grow(self, tokens: int) -> bool:
        """Whether `grow` would find room."""
        return tokens <= self.free + self.evictable

    def _hit(self, matched: int, length: int) -> int:
        return max(0, min(matched, length - self.always_computed)) // self.grain * self.grain

    # Using

    def admit(
        self,
        run: bytes,
        scope: Scope = SHARED,
        *,
        reserve: int = 0,
        make_value: Callable[[int, int], V],
        resumed: bool = False,
        now: float = 0.0,
    ) -> Lease[V]:
        """Take in a prompt of at least one token and hold it.

        Args:
            run: the prompt.
            scope: who may share it.
            reserve: tokens of room to hold for what will be generated.
            make_value: gives the value of the new prompt tokens `start..stop`; called when the room is free, must not
                fail.
            resumed: the request was counted when it was first admitted.
            now: seconds on any clock, for policies that go by it; a time before the latest one counts as that one.

        Raises:
            CapacityError: if there is not enough room; nothing is changed but what eviction removed.
        """
        if not run:
            raise ValueError("a prompt has at least one token")
        self._now = max(self._now, now)
        while (leaf := self._policy.expired(self._now)) is not None:
            self.counters.evicted += leaf.length
            self._remove(leaf, 0)
        match = self.tree.peek(run, scope)
        known = match.length
        room = count(run) - known + reserve
        if room <= self.free:
            end = self._insert(run, scope, make_value, match).node
            self.tree.pin(end)
        else:
            held = self._insert(run[: known * WIDTH], scope, make_value).node
            self.tree.pin(held)
            try:
                self._make_room(room)
                end = self._insert(run, scope, make_value).node
                self.tree.pin(end)
            finally:
                self.tree.unpin(held)
        self.tree.touch(end, self._tick())
        self._policy.used(end, self._now)
        self.reserved += reserve
        lease = Lease(run, scope, end, self._hit(known, count(run)), reserve, not resumed)
        self._leases.add(lease)
        if not resumed:
            self.counters.requests += 1
            self.counters.input += count(run)
            self.counters.hit += lease.hit
        return lease

    def credit(self, lease: Lease[V], known: int) -> None:
        """Count the first `known` tokens of a prompt, just admitted, as found: their values came from elsewhere."""
        hit = max(lease.hit, self._hit(known, count(lease.run)))
        if lease.counted:
            self.counters.hit += hit - lease.hit
        lease.hit = hit

    def grow(self, lease: Lease[V], tokens: int) -> None:
        """Hold room for `tokens` more generated tokens.

        Raises:
            CapacityError: if there is not enough.
        """
        self._make_room(tokens)
        self.reserved += tokens
        lease.reserved += tokens

    def release(
        self,
        lease: Lease[V],
        *,
        tail: bytes = b"",
        make_value: Callable[[int, int], V] | None = None,
        keep: int | None = None,
        now: float = 0.0,
        output_tokens: int | None = None,
        stop: str = "",
        answered: bool = True,
    ) -> None:
        """Drop a request's hold, and its reservation with it.

        Args:
            lease: from `admit`; of no use afterwards.
            tail: generated tokens that have values, to be found by the next turn; at most `lease.reserved`.
            make_value: gives the value of positions `start..stop` of prompt and tail, for those that are new.
            keep: prompt tokens whose values are ready; what lies behind is removed unless others hold it. None for all.
            now: seconds, as in `admit`.
            output_tokens: length of the answer, for policies that go by it; that of `tail` by default.
            stop: why the answer ended, in the words of any provider, for policies that go by it.
            answered: False where the request is only interrupted and will be admitted again, as `resumed`.
        """
        if count(tail) > lease.reserved:
            raise ValueError(f"{count(tail)} generated tokens exceed the {lease.reserved} reserved")
        if tail and make_value is None:
            raise ValueError(f"{count(tail)} generated tokens without make_value")
        self._leases.remove(lease)
        self.reserved -= lease.reserved
        end = lease.node
        if tail and make_value is not None:
            end = self._insert(lease.run + tail, lease.scope, make_value).node
        self.tree.touch(end, self._tick())
        self._now = max(self._now, now)
        if answered:
            self._policy.done(end, self._now, count(tail) if output_tokens is None else output_tokens, stop)
        self.tree.unpin(lease.node)
        if keep is not None:
            self._prune(lease.node, keep)

    def pin(self, run: bytes, scope: Scope = SHARED) -> Pin[V]:
        """Keep as much of a prefix as the cache holds until `unpin`.

        Raises:
            CapacityError: if pins would hold more than their share of the capacity.
        """
        known = self.tree.peek(run, scope).length
        node = self._insert(run[: known * WIDTH], scope, _no_new_tokens).node
        held = self.pinned_nodes().union(node.path())
        total = sum(other.length for other in held)
        if total > self.pin_limit:
            raise CapacityError(
                f"Pinning {known} tokens would bring the pinned ones to {total} of {self.capacity}",
                hint=f"at most {self.pin_limit} may be pinned; unpin something or give the pool more memory",
            )
        self.tree.pin(node)
        pin = Pin(node, known)
        self._pins.add(pin)
        self._pinned_nodes, self.pinned = held, total
        return pin

    def unpin(self, pin: Pin[V]) -> None:
        """Let a pinned prefix be evicted again."""
        self._pins.remove(pin)
        self.tree.unpin(pin.node)
        self._pinned_nodes = None
        self.pinned = sum(node.length for node in self.pinned_nodes())

    def pinned_nodes(self) -> frozenset[Node[V]]:
        """What pins hold, ancestors included."""
        if self._pinned_nodes is None:
            self._pinned_nodes = frozenset(node for pin in self._pins for node in pin.node.path())
        return self._pinned_nodes

    def reset(self) -> int:
        """Remove everything that no request and no pin holds; returns how many tokens that was."""
        before = self.tree.size
        while (leaf := self._policy.victim()) is not None:
            self._remove(leaf, 0)
        return before - self.tree.size

    # Inside

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _insert(
        self, run: bytes, scope: Scope, make_value: Callable[[int, int], V], match: Match[V] | None = None
    ) -> Insertion[V]:
        insertion = self.tree.insert(run, scope, make_value, self._clock, match)
        if insertion.head is not None:
            self._pinned_nodes = None  # the head may be of one of them
            self._policy.added(insertion.head, next(iter(insertion.head.children.values())))
        for node in insertion.added:
            self._policy.added(node, None)
            self.counters.inserted += node.length
        return insertion

    def _make_room(self, tokens: int) -> None:
        if tokens > self.free + self.evictable:
            raise CapacityError(
                f"{tokens} tokens do not fit: {self.free} are free and {self.evictable} can be evicted",
                hint="wait for running requests, unpin prefixes, or give the pool more memory",
            )
        while self.free < tokens:
            leaf = self._policy.victim()
            if leaf is None:
                raise AssertionError("evictable tokens without an evictable leaf")
            keep = max(0, leaf.length - (tokens - self.free)) // self._eviction_step * self._eviction_step
            keep = max(keep, leaf.length - max(1, self._policy.portion(leaf)))
            gone = leaf.length - keep
            self._remove(leaf, keep)
            self.counters.evicted += gone

    def _remove(self, leaf: Node[V], keep: int) -> None:
        self._policy.removing(leaf, keep)
        if self._leaving is not None:
            self._leaving(leaf, keep)
        self._store.free(self.tree.truncate(leaf, keep))

    def _prune(self, node: Node[V], keep: int) -> None:
        """Remove unpinned leaves, from `node` up, as far as they lie behind position `keep`."""
        while node.evictable and node.stop > keep:
            parent = node.parent
            self._remove(node, max(0, keep - node.start))
            if parent is None or node.parent is not None:
                break
            node = parent

    def check(self) -> None:
        """Verify every invariant, in time linear in the tree's size.

        Raises:
            AssertionError: naming the first invariant that does not hold.
        """
        expected: Counter[Node[V]] = Counter()
        for end in [*(lease.node for lease in self._leases), *(pin.node for pin in self._pins)]:
            expected.update(end.path())
        for lease in self._leases:
            _require(lease.node.stop == count(lease.run), f"a lease on {count(lease.run)} ends at {lease.node.stop}")
        for pin in self._pins:
            _require(pin.node.stop == pin.length, f"a pin of {pin.length} ends at {pin.node.stop}")
        size = pinned = nodes = 0
        listed = Counter(self.tree.leaves)
        for node in self.tree.nodes():
            place = f"node {node.start}..{node.stop}"
            size += node.length
            nodes += 1
            pinned += node.length if node.pins else 0
            _require(node.length > 0, f"{place} is empty")
            _require(node.parent is not None and node.parent.children.get(node.edge) is node, f"{place} is adrift")
            if node.parent is not None:
                _require(node.start == node.parent.stop, f"{place} does not start where its parent stops")
                _require(
                    node.parent is self.tree.root or node.used <= node.parent.used, f"{place} used after its parent"
                )
            first = node.edge if isinstance(node.edge, bytes) else node.edge[-1]
            _require(node.run.startswith(first), f"{place} hangs on the edge of another token")
            _require(node.pins == expected[node], f"{place} has {node.pins} pins, its holders make {expected[node]}")
            _require(node.evictable == listed[node], f"{place} is listed {listed[node]} times as evictable")
        _require(size == self.tree.size, f"tree.size is {self.tree.size}, its nodes hold {size}")
        _require(nodes == self.tree.node_count, f"tree.node_count is {self.tree.node_count}, there are {nodes}")
        _require(pinned == self.tree.pinned, f"tree.pinned is {self.tree.pinned}, its nodes make {pinned}")
        reserved = sum(lease.reserved for lease in self._leases)
        _require(reserved == self.reserved, f"reserved is {self.reserved}, leases make {reserved}")
        _require(self.free >= 0, f"{-self.free} tokens over capacity")
        kept = {node for pin in self._pins for node in pin.node.path()}
        _require(kept == self.pinned_nodes(), "what pins hold is not what is noted of it")
        total = sum(node.length for node in kept)
        _require(total == self.pinned <= self.pin_limit, f"pinned is {self.pinned}, pins make {total}")
        _require(0 <= self.counters.hit <= self.counters.input, "hits exceed input")


def eviction_step(capacity: int, most: int) -> int:
    """`Cache.eviction_step` for a host whose memory should not fall to pieces: `most`, or a 32nd of a small memory."""
    return max(1, min(most, capacity // 32))


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _no_new_tokens(start: int, stop: int) -> V:  # type: ignore[type-var]
    raise AssertionError(f"no value for {start}..{stop}: the prefix was known")
