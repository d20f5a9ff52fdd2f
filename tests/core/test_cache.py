from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.core.cache import Cache, Counters, Lease, NoValues, eviction_step
from prefold.core.keys import SHARED, Scope
from prefold.core.policies import LRU
from prefold.core.radix import Node
from prefold.core.tokens import pack, unpack
from prefold.errors import CapacityError

from .support import Slots, nothing, run


class TextCache(Cache[list[int]]):
    """A cache over an honest store, told in text; a letter is a token."""

    def __init__(self, capacity: int, **options: Any) -> None:
        self.slots = Slots(capacity)
        super().__init__(capacity, self.slots, [], **options)

    def start(self, text: str, scope: Scope = SHARED, reserve: int = 0, **options: Any) -> Lease[list[int]]:
        make_value = self.slots.maker(run(text), scope)
        return self.admit(run(text), scope, reserve=reserve, make_value=make_value, **options)

    def finish(self, lease: Lease[list[int]], tail: str = "") -> None:
        self.release(lease, tail=run(tail), make_value=self.slots.maker(lease.run + run(tail), lease.scope))
        self.verify()

    def serve(self, *texts: str) -> None:
        for text in texts:
            self.finish(self.start(text))

    def known(self, text: str, scope: Scope = SHARED) -> int:
        return self.tree.peek(run(text), scope).length

    def verify(self) -> None:
        self.check()
        self.slots.check(self.tree)


@pytest.mark.parametrize(
    "bad",
    [
        {"capacity": 0},
        {"grain": 0},
        {"pin_limit": -0.1},
        {"pin_limit": 1.1},
        {"always_computed": -1},
        {"eviction_step": 0},
    ],
)
def test_options_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(bad.values())))):
        Cache(**{"capacity": 8, "store": NoValues(), "root_value": None, **bad})


@pytest.mark.parametrize(("step", "left"), [(1, 7), (2, 6), (4, 4), (7, 7), (9, 0)])
def test_of_what_is_evicted_in_part_whole_steps_stay(step: int, left: int) -> None:
    cache = TextCache(10, eviction_step=step)
    cache.serve("abcdefghij", "123")
    assert left == cache.known("abcdefghij")
    assert 10 - left == cache.counters.evicted


def test_small_memories_are_evicted_in_small_steps() -> None:
    assert [1, 3, 4, 256, 256] == [eviction_step(capacity, 256) for capacity in (1, 100, 128, 1 << 14, 1 << 20)]


def test_an_interrupted_request_is_not_told_as_answered() -> None:
    class Listening(LRU):
        def done(self, node: Node[Any], now: float, output_tokens: int, stop: str) -> None:
            told.append((now, output_tokens, stop))

    told: list[tuple[float, int, str]] = []
    cache = TextCache(100, policy=Listening())
    cache.release(cache.start("abcd", now=1.0), now=2.0, output_tokens=3, stop="preempted", answered=False)
    cache.release(cache.start("abcd", resumed=True, now=3.0), now=4.0, output_tokens=5, stop="length")
    assert [(4.0, 5, "length")] == told


def test_pinned_tokens_are_counted_once_and_follow_splits() -> None:
    cache = TextCache(40)
    cache.serve("abcdef", "abcxyz")
    pins = [cache.pin(run("abcdef")), cache.pin(run("abcxy"))]
    assert 8 == cache.pinned
    cache.serve("abQ")
    assert {"ab", "c", "def", "xy"} == {bytes(unpack(node.run)).decode() for node in cache.pinned_nodes()}
    cache.unpin(pins[0])
    assert 5 == cache.pinned
    cache.verify()


def test_a_first_request_hits_nothing_and_a_second_what_it_shares() -> None:
    cache = TextCache(100)
    assert 0 == cache.start("abcdef").hit
    assert 3 == cache.start("abcxyz").hit
    assert Counters(requests=2, input=12, hit=3, inserted=9) == cache.counters
    assert 9 == cache.counters.recomputed
    assert 0.25 == cache.counters.hit_rate
    cache.verify()


def test_the_last_token_always_runs() -> None:
    cache = TextCache(100)
    cache.serve("abcdef")
    assert 5 == cache.peek(run("abcdef"))
    assert 5 == cache.start("abcdef").hit
    assert 0 == TextCache(100).start("a").hit
    assert 6 == cache.peek(run("abcdefg"))


@pytest.mark.parametrize(("always_computed", "expected"), [(0, 4), (1, 3), (3, 1), (9, 0)])
def test_how_much_of_a_known_prompt_runs_can_be_chosen(always_computed: int, expected: int) -> None:
    cache = Cache(100, NoValues(), None, always_computed=always_computed)
    cache.release(cache.admit(run("abcd"), make_value=nothing))
    assert expected == cache.peek(run("abcd")) == cache.admit(run("abcd"), make_value=nothing).hit


def test_policies_hear_what_the_host_knows_and_no_clock_that_runs_backwards() -> None:
    class Listener(LRU):
        def __init__(self) -> None:
            super().__init__()
            self.heard: list[tuple[Any, ...]] = []

        def used(self, node: Node[Any], now: float) -> None:
            self.heard.append(("used", node.stop, now))

        def done(self, node: Node[Any], now: float, output_tokens: int, stop: str) -> None:
            self.heard.append(("done", node.stop, now, output_tokens, stop))

    listener = Listener()
    cache = Cache(100, NoValues(), None, policy=listener)
    lease = cache.admit(run("abc"), reserve=2, make_value=nothing, now=10)
    cache.release(lease, tail=run("de"), make_value=nothing, now=9)
    cache.release(cache.admit(run("abcde"), make_value=nothing, now=11), now=12.5, output_tokens=7, stop="tool_use")
    cache.release(cache.admit(run("x"), make_value=nothing))
    assert [
        ("used", 3, 10),
        ("done", 5, 10, 2, ""),
        ("used", 5, 11),
        ("done", 5, 12.5, 7, "tool_use"),
        ("used", 1, 12.5),
        ("done", 1, 12.5, 0, ""),
    ] == listener.heard


def test_requests_that_run_together_share() -> None:
    cache = TextCache(100)
    first, second = cache.start("abcd"), cache.start("abcd")
    assert first.node is second.node
    assert (0, 3) == (first.hit, second.hit)
    assert 4 == cache.tree.size


@pytest.mark.parametrize(("grain", "expected"), [(1, 11), (2, 10), (4, 8), (8, 8), (12, 0), (16, 0)])
def test_hits_are_whole_multiples_of_the_grain(grain: int, expected: int) -> None:
    cache = TextCache(100, grain=grain)
    cache.serve("a" * 12)
    assert expected == cache.peek(run("a" * 12)) == cache.start("a" * 12).hit


def test_a_prompt_of_no_tokens() -> None:
    cache = TextCache(100)
    cache.serve("a")
    assert 0 == cache.peek(b"")
    with pytest.raises(ValueError, match="at least one token"):
        cache.start("")


def test_what_was_generated_is_hit_by_the_next_turn() -> None:
    cache = TextCache(100)
    lease = cache.start("question", reserve=10)
    assert (10, 10) == (cache.reserved, lease.reserved)
    cache.finish(lease, "answer")
    assert 0 == cache.reserved
    assert 14 == cache.start("questionanswer, next").hit


def test_a_salt_that_begins_in_the_answer() -> None:
    cache = TextCache(100)
    scope = Scope(salt="a", salt_from=5)
    cache.finish(cache.start("abc", scope, reserve=4), "defg")
    assert (7, 5) == (cache.known("abcdefg", scope), cache.known("abcdefg"))


def test_generated_tokens_beyond_the_reservation_are_refused() -> None:
    cache = TextCache(100)
    lease = cache.start("abc", reserve=1)
    with pytest.raises(ValueError, match="2 generated tokens exceed the 1 reserved"):
        cache.finish(lease, "xy")
    with pytest.raises(ValueError, match="1 generated tokens without make_value"):
        cache.release(lease, tail=run("x"))
    cache.grow(lease, 1)
    cache.finish(lease, "xy")
    assert 5 == cache.tree.size


def test_the_answer_of_two_requests_alike_is_kept_once() -> None:
    cache = TextCache(100)
    first, second = cache.start("abc", reserve=3), cache.start("abc", reserve=3)
    cache.finish(first, "xyz")
    cache.finish(second, "xyw")
    assert 7 == cache.tree.size


def test_eviction_takes_the_longest_unused_tail_first_and_no_token_more() -> None:
    cache = TextCache(12)
    cache.serve("abcdef", "uvwxyz")
    cache.serve("123")
    assert [3, 6, 3] == [cache.known(text) for text in ("abcdef", "uvwxyz", "123")]
    assert 3 == cache.counters.evicted
    cache.serve("1234567")
    assert [0, 5, 7] == [cache.known(text) for text in ("abcdef", "uvwxyz", "1234567")]
    assert 7 == cache.counters.evicted


def test_use_renews_the_whole_path() -> None:
    cache = TextCache(8)
    cache.serve("abcd", "abxy", "ef", "abcd")
    cache.serve("z")
    assert [4, 3, 2] == [cache.known(text) for text in ("abcd", "abxy", "ef")]


def test_looking_does_not_renew() -> None:
    cache = TextCache(4)
    cache.serve("ab", "cd")
    cache.peek(run("ab"))
    cache.can_admit(run("ab"))
    cache.serve("e")
    assert [1, 2] == [cache.known(text) for text in ("ab", "cd")]


def test_what_runs_is_never_evicted() -> None:
    cache = TextCache(10)
    lease = cache.start("abcdef", reserve=2)
    cache.serve("xy")
    assert not cache.can_admit(run("123"))
    with pytest.raises(CapacityError, match="3 tokens do not fit: 0 are free and 2 can be evicted"):
        cache.start("123")
    assert [6, 2] == [cache.known("abcdef"), cache.known("xy")]
    cache.finish(lease)
    cache.serve("123")
    assert 6 == cache.known("abcdef")


def test_a_request_that_does_not_fit_changes_nothing() -> None:
    cache = TextCache(10)
    running = cache.start("abcdef", reserve=1)
    cache.serve("abc")
    before = (cache.counters.since(Counters()), cache.free, cache.evictable, cache.reserved)
    for text, reserve in (("abcxyz123", 0), ("abcd", 5), ("x", 3)):
        assert not cache.can_admit(run(text), reserve=reserve)
        with pytest.raises(CapacityError) as raised:
            cache.start(text, reserve=reserve)
        assert raised.value.hint
    with pytest.raises(CapacityError):
        cache.grow(running, 4)
    assert before == (cache.counters, cache.free, cache.evictable, cache.reserved)
    cache.verify()
    cache.grow(running, 3)
    cache.finish(running, "wxyz")
    assert 10 == cache.tree.size


def test_what_a_request_shares_is_not_evicted_to_make_room_for_the_rest_of_it() -> None:
    cache = TextCache(8)
    cache.serve("abcd", "xyzw")
    lease = cache.start("abcd1234")
    assert 4 == lease.hit
    assert 0 == cache.known("xyzw")
    cache.verify()


def test_a_prompt_may_fill_the_cache() -> None:
    cache = TextCache(4)
    cache.serve("abcd", "wxyz")
    assert [0, 4] == [cache.known("abcd"), cache.known("wxyz")]
    assert not cache.can_admit(run("12345"))


@given(
    served=st.lists(st.text("ab", min_size=1, max_size=6), max_size=4),
    running=st.lists(st.text("ab", min_size=1, max_size=6), max_size=2),
    asked=st.text("ab", min_size=1, max_size=8),
    reserve=st.integers(0, 4),
    capacity=st.integers(6, 14),
)
def test_can_admit_says_what_admit_does(
    served: list[str], running: list[str], asked: str, reserve: int, capacity: int
) -> None:
    cache = TextCache(capacity)
    cache.serve(*served)
    for text in running:
        if cache.can_admit(run(text)):
            cache.start(text)
    if cache.can_admit(run(asked), reserve=reserve):
        assert reserve == cache.start(asked, reserve=reserve).reserved
    else:
        with pytest.raises(CapacityError):
            cache.start(asked, reserve=reserve)
    cache.verify()


def test_a_resumed_request_is_counted_once() -> None:
    cache = TextCache(100)
    cache.finish(cache.start("abcd", reserve=2), "xy")
    lease = cache.start("abcdxy", resumed=True)
    assert 5 == lease.hit
    assert Counters(requests=1, input=4, inserted=6) == cache.counters


def test_an_abandoned_request_leaves_only_what_is_ready() -> None:
    cache = TextCache(100)
    cache.serve("ab")
    for keep, left in ((5, 5), (2, 2), (4, 4), (0, 0)):
        cache.release(cache.start("abcdef"), keep=keep)
        assert left == cache.tree.size == cache.known("abcdef")
        cache.verify()


def test_an_abandoned_request_leaves_what_others_hold() -> None:
    cache = TextCache(100)
    abandoned, shorter, longer = cache.start("abcdef"), cache.start("abcd"), cache.start("abcxyz")
    cache.release(abandoned, keep=0)
    assert [4, 6] == [cache.known("abcdef"), cache.known("abcxyz")]
    cache.verify()
    cache.release(longer, keep=1)
    assert [4, 3] == [cache.known("abcdef"), cache.known("abcxyz")]
    cache.release(shorter, keep=1)
    assert 1 == cache.tree.size
    cache.verify()


def test_an_abandoned_request_leaves_what_others_built_on_it() -> None:
    cache = TextCache(100)
    abandoned = cache.start("abcd")
    cache.serve("abcdef")
    cache.release(abandoned, keep=1)
    assert 6 == cache.tree.size
    cache.verify()


def test_a_pinned_prefix_stays_until_it_is_unpinned() -> None:
    cache = TextCache(10)
    cache.serve("abcde")
    pin = cache.pin(run("abcXYZ"))
    assert (3, 3) == (pin.length, pin.node.stop)
    cache.serve("1234567")
    assert (3, 10) == (cache.known("abcde"), cache.tree.size)
    cache.unpin(pin)
    cache.serve("1234567890")
    assert 0 == cache.known("abcde")


def test_pins_hold_at_most_their_share_and_shared_tokens_count_once() -> None:
    cache = TextCache(20, pin_limit=0.3)
    cache.serve("abcd", "abxy", "1234")
    first = cache.pin(run("abcd"))
    cache.pin(run("abxy"))
    with pytest.raises(CapacityError, match="Pinning 1 tokens would bring the pinned ones to 7 of 20") as raised:
        cache.pin(run("1"))
    assert raised.value.hint.startswith("at most 6 may be pinned")
    cache.verify()
    cache.pin(run("ab"))
    cache.unpin(first)
    cache.pin(run("12"))
    assert 6 == cache.tree.pinned
    cache.verify()


def test_running_requests_do_not_use_up_the_share_of_pins() -> None:
    cache = TextCache(10, pin_limit=0.4)
    cache.start("abcdef")
    assert 4 == cache.pin(run("abcd")).length


def test_a_pin_on_nothing_known_holds_nothing() -> None:
    cache = TextCache(10, pin_limit=0)
    pin = cache.pin(run("abc"))
    assert 0 == pin.length
    cache.unpin(pin)
    cache.verify()


def test_reset_leaves_what_is_held() -> None:
    cache = TextCache(100)
    cache.serve("abcdef", "uvw", "123")
    lease, pin = cache.start("abc"), cache.pin(run("12"))
    assert 3 + 3 + 1 == cache.reset()
    assert [3, 0, 2] == [cache.known(text) for text in ("abcdef", "uvw", "123")]
    cache.verify()
    cache.unpin(pin)
    cache.finish(lease)
    assert 5 == cache.reset()
    assert (0, 100) == (cache.tree.size, cache.free)
    assert 0 == cache.counters.evicted, "a reset is no eviction"


def test_counters_since_an_earlier_copy() -> None:
    cache = TextCache(100)
    cache.serve("abcd")
    earlier = cache.counters.since(Counters())
    cache.serve("abcd", "abxy")
    assert Counters(requests=2, input=8, hit=5, inserted=2) == cache.counters.since(earlier)
    assert 0.0 == Counters().hit_rate


@pytest.mark.parametrize(
    ("prefix", "suffix", "requests", "hit_rate", "computed"),
    [
        (100, 20, 100, "82.5%", "17.5%"),
        (100, 100, 100, "49.5%", "50.5%"),
        (20, 100, 100, "16.5%", "83.5%"),
        (400, 20, 1000, "95.1%", "4.9%"),
    ],
)
def test_the_teaching_rates_of_block_hash_caches(
    prefix: int, suffix: int, requests: int, hit_rate: str, computed: str
) -> None:
    cache = Cache(100_000, NoValues(), None, grain=4)
    for request in range(requests):
        own = range(1000 + request * suffix, 1000 + (request + 1) * suffix)
        cache.release(cache.admit(pack([*range(prefix), *own]), make_value=nothing))
    counters = cache.counters
    assert (hit_rate, computed) == (f"{counters.hit_rate:.1%}", f"{counters.recomputed / counters.input:.1%}")


def test_a_policy_that_answers_wrongly_harms_nothing() -> None:
    class Confused(LRU):
        def victim(self) -> Node[Any] | None:
            return pinned.node

    cache = TextCache(8, policy=Confused(), pin_limit=1)
    cache.serve("abcd", "wxyz")
    pinned = cache.pin(run("abcd"))
    with pytest.raises(ValueError, match="pinned"):
        cache.start("12")
    assert 0 == cache.counters.evicted
    cache.verify()


def _misplace(cache: TextCache) -> None:
    cache.tree.peek(run("abcd")).node.start += 1


def _rename(cache: TextCache) -> None:
    node = cache.tree.peek(run("abcd")).node
    node.run = run("z") + node.run[4:]


FAULTS: dict[str, Callable[[TextCache], None]] = {
    "listed 0 times": lambda cache: vars(cache.tree.leaves)["_heap"].clear(),
    "listed 2 times": lambda cache: vars(cache.tree.leaves)["_heap"].append(vars(cache.tree.leaves)["_heap"][0]),
    "has 1 pins, its holders make 0": lambda cache: cache.tree.pin(cache.tree.peek(run("12")).node),
    "used after its parent": lambda cache: setattr(cache.tree.peek(run("abcd")).node, "used", 99),
    "does not start where": _misplace,
    "on the edge of another token": _rename,
    "is empty": lambda cache: setattr(cache.tree.peek(run("abcd")).node, "run", b""),
    "adrift": lambda cache: setattr(cache.tree.peek(run("12")).node, "edge", run("z")),
    "tree.size is": lambda cache: setattr(cache.tree, "size", 0),
    "tree.pinned is": lambda cache: setattr(cache.tree, "pinned", 1),
    "reserved is": lambda cache: setattr(cache, "reserved", 5),
    "over capacity": lambda cache: setattr(cache, "capacity", 5),
    "hits exceed": lambda cache: setattr(cache.counters, "hit", 1000),
    "a lease on 2 ends at 4": lambda cache: setattr(cache.start("12"), "node", cache.tree.peek(run("abcd")).node),
}


@pytest.mark.parametrize("message", FAULTS)
def test_check_finds_every_kind_of_fault(message: str) -> None:
    cache = TextCache(100)
    cache.serve("abcd", "abxy", "12")
    cache.check()
    FAULTS[message](cache)
    with pytest.raises(AssertionError, match=message):
        cache.check()
