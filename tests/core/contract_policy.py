"""What every eviction policy owes the cache, whatever its taste. `test_policies.py` runs this over all of them."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from prefold.core.cache import Cache, Counters
from prefold.core.keys import Scope
from prefold.core.policies import Policy
from prefold.core.radix import Node
from prefold.core.tokens import count
from prefold.errors import CapacityError

from .support import Slots, run


class Watched(Policy):
    """A policy that checks what it is told and what it answers, and keeps its own list of the nodes there are."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.leaves = policy.leaves
        self.nodes: set[Node[Any]] = set()
        self.now = 0.0

    def sized(self, capacity: int) -> None:
        assert not self.nodes
        self.policy.sized(capacity)

    def added(self, node: Node[Any], origin: Node[Any] | None) -> None:
        assert node not in self.nodes
        assert origin is None or origin in self.nodes
        assert origin is None or origin.parent is node
        assert origin is not None or node.parent in self.nodes or node.parent.parent is None
        self.nodes.add(node)
        self.policy.added(node, origin)

    def used(self, node: Node[Any], now: float) -> None:
        assert set(node.path()) <= self.nodes
        assert self.now <= now
        self.now = now
        self.policy.used(node, now)

    def done(self, node: Node[Any], now: float, output_tokens: int, stop: str) -> None:
        assert set(node.path()) <= self.nodes
        assert self.now <= now
        self.now = now
        self.policy.done(node, now, output_tokens, stop)

    def removing(self, node: Node[Any], keep: int) -> None:
        assert 0 <= keep < node.length
        assert node.evictable
        if not keep:
            self.nodes.remove(node)
        self.policy.removing(node, keep)

    def expired(self, now: float) -> Node[Any] | None:
        leaf = self.policy.expired(now)
        assert leaf is None or leaf in set(self.leaves)
        return leaf

    def victim(self) -> Node[Any] | None:
        evictable = set(self.leaves)
        victim = self.policy.victim()
        assert victim in evictable if evictable else victim is None
        assert evictable == set(self.leaves), "asking changes nothing"
        return victim


def traffic(seed: int, requests: int = 150) -> Iterator[tuple[str, Scope, str, bool]]:
    """Prompt, scope, answer and whether the client stays, of conversations over a few system prompts, interleaved."""
    random = Random(seed)
    scopes = [Scope(), Scope(), Scope(salt="a", salt_from=3), Scope(namespace="other")]
    conversations = [(random.choice(["You help. ", "You code. ", "Hi. "]), random.choice(scopes)) for _ in range(8)]
    for _ in range(requests):
        which = random.randrange(len(conversations))
        history, scope = conversations[which]
        prompt = history + "".join(random.choices("abc", k=random.randint(1, 4)))
        answer = "".join(random.choices("xyz", k=random.randint(0, 3)))
        conversations[which] = (prompt + answer if len(prompt) < 25 else history[:10], scope)
        yield prompt, scope, answer, random.random() < 0.9


def play(policy: Policy, capacity: int, seed: int, *, check: bool = False) -> Counters:
    """Send the traffic through a cache, up to three requests at a time."""
    slots = Slots(capacity)
    cache = Cache(capacity, slots, [], policy=policy)
    running: list[Callable[[float], None]] = []
    now = 0.0
    for prompt, scope, answer, stays in traffic(seed):
        now += 0.5
        if len(running) == 3:
            running.pop(0)(now)
        make_value = slots.maker(run(prompt + answer), scope)
        lease = cache.admit(run(prompt), scope, reserve=len(answer), make_value=make_value, now=now)

        def finish(now, lease=lease, answer=answer, stays=stays, make_value=make_value) -> None:
            if stays:
                stop = "tool_use" if len(answer) > 1 else "end_turn"
                cache.release(lease, tail=run(answer), make_value=make_value, now=now, stop=stop)
            else:
                cache.release(lease, keep=count(lease.run) // 2, now=now)

        running.append(finish)
        if check:
            cache.check()
            slots.check(cache.tree)
            assert set(cache.tree.nodes()) == policy.nodes
    return cache.counters


class PolicyContract:
    """To be subclassed with a fixture `make` that gives a new policy each time it is called."""

    def test_nothing_to_evict_is_nobody(self, make: Callable[[], Policy]) -> None:
        policy = make()
        policy.sized(10)
        assert policy.victim() is None

    def test_a_pinned_leaf_is_nobody(self, make: Callable[[], Policy]) -> None:
        policy = make()
        cache = Cache(8, Slots(8), [], policy=policy, pin_limit=1)
        cache.admit(run("abcd"), make_value=lambda start, stop: [0] * (stop - start))
        assert policy.victim() is None

    @pytest.mark.parametrize("capacity", [120, 200, 1000])
    @pytest.mark.parametrize("seed", range(3))
    def test_it_is_told_everything_and_answers_with_evictable_leaves(
        self, make: Callable[[], Policy], capacity: int, seed: int
    ) -> None:
        counters = play(Watched(make()), capacity, seed, check=True)
        assert 150 == counters.requests
        assert (capacity < 1000) == (counters.evicted > 0), "the small ones are small enough to matter"

    def test_the_same_requests_give_the_same_hits(self, make: Callable[[], Policy]) -> None:
        assert play(make(), 120, seed=7) == play(make(), 120, seed=7)

    def test_it_does_not_matter_while_there_is_room(self, make: Callable[[], Policy]) -> None:
        roomy = play(make(), 5000, seed=7)
        assert roomy.hit >= play(make(), 120, seed=7).hit

    def test_a_pinned_prefix_outlives_any_traffic(self, make: Callable[[], Policy]) -> None:
        slots = Slots(40)
        cache = Cache(40, slots, [], policy=make())
        pinned = run("pinned prefix")
        cache.release(cache.admit(pinned, make_value=slots.maker(pinned)))
        pin = cache.pin(pinned)
        for index in range(50):
            other = run(f"pinned {index} and more")
            cache.release(cache.admit(other, make_value=slots.maker(other)))
        assert 13 == cache.peek(pinned + run("!"))
        cache.unpin(pin)
        cache.reset()
        assert 0 == cache.tree.size

    def test_all_of_the_room_can_be_had(self, make: Callable[[], Policy]) -> None:
        slots = Slots(30)
        cache = Cache(30, slots, [], policy=make())
        for text in ("abcdef", "abcxyz", "other", "more"):
            cache.release(cache.admit(run(text), make_value=slots.maker(run(text))))
        everything = run("a" * 30)
        with pytest.raises(CapacityError):
            cache.admit(everything, reserve=1, make_value=slots.maker(everything))
        lease = cache.admit(everything, make_value=slots.maker(everything))
        assert (0, 30) == (cache.free, cache.tree.size)
        cache.release(lease)
        cache.check()
