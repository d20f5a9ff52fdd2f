import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.core.cache import Cache, Lease, NoValues
from prefold.core.naive import NaiveCache
from prefold.core.policies import FIFO, LFU, LRU, POLICIES, TTLLRU, Gittins, Pinned, Policy
from prefold.core.tokens import pack

from .contract_policy import PolicyContract, Watched
from .support import nothing, run
from .workload import Turn, conversations

# Three conversations of an agent that share a system prompt, and two requests that come once; a letter is a token.
TRACE = [
    *["syst.ab", "syst.cd", "sys1", "syst.abef", "syst.cdgh", "one-off", "syst.abefij", "syst.kl", "syst.cdghmn"],
    *["syst.abefijop", "one-off2", "syst.klqr", "syst.cdghmnst", "sys1uv", "syst.abefijopwx"],
]

# Tokens hit of 136, by policy and capacity in tokens. Every policy has a row; LRU's was counted with an OrderedDict.
SIZES = (15, 20, 24, 32, 38, 100)
GOLDEN = {
    "arc": (67, 76, 83, 95, 98, 98),
    "default": (62, 70, 77, 93, 98, 98),
    "fifo": (62, 70, 77, 93, 98, 98),
    "gdsf": (65, 74, 83, 96, 98, 98),
    "lfu": (67, 79, 87, 95, 98, 98),
    "lru": (62, 70, 77, 93, 98, 98),
    "pinned": (62, 70, 77, 93, 98, 98),
    "s3-fifo": (62, 72, 83, 93, 98, 98),
    "ttl-lru": (62, 70, 77, 93, 97, 97),
}

# Blocks hit of the 27,117 of `conversations(1, 2000)`, by policy and capacity in blocks; 20,274 if all are kept.
BUSY_SIZES = (100, 300, 1000)
BUSY_GOLDEN = {
    "arc": (12198, 17562, 19932),
    "default": (14625, 17828, 20198),
    "fifo": (9486, 17671, 20255),
    "gdsf": (10080, 16663, 19726),
    "lfu": (8106, 8951, 11784),
    "lru": (9486, 17671, 20255),
    "pinned": (9669, 15439, 20241),
    "s3-fifo": (11689, 16095, 18443),
    "ttl-lru": (9486, 17671, 20255),
}

MOONCAKE = Path(__file__).parents[3] / "shared/data/traces/mooncake/conversation_trace.jsonl"
# Blocks hit of 288,500, by policy and capacity in blocks.
MOONCAKE_SIZES = (1_000, 10_000)
MOONCAKE_GOLDEN = {
    "arc": (15262, 62935),
    "default": (22865, 68338),
    "fifo": (12842, 60852),
    "gdsf": (12943, 64211),
    "lfu": (13871, 38004),
    "lru": (12847, 61046),
    "pinned": (12847, 60469),
    "s3-fifo": (16033, 57180),
    "ttl-lru": (12847, 61046),
}


def play(policy: Policy, capacity: int, turns: Iterable[Turn]) -> Cache[None]:
    """Serve requests whose tokens are blocks, one after the other."""
    cache = Cache(capacity, NoValues(), None, policy=policy, always_computed=0)
    for turn in turns:
        lease = cache.admit(turn.run, make_value=nothing, now=turn.time)
        cache.release(lease, now=turn.time, output_tokens=turn.output_tokens, stop=turn.stop)
    return cache


def rows(golden: dict[str, tuple[int, ...]], sizes: tuple[int, ...]) -> list[tuple[str, int, int]]:
    return [(name, size, hits) for name, row in golden.items() for size, hits in zip(sizes, row, strict=True)]


class TestPolicies(PolicyContract):
    @pytest.fixture(params=sorted(POLICIES))
    def make(self, request: pytest.FixtureRequest) -> Callable[[], Policy]:
        return POLICIES[request.param]


@pytest.mark.parametrize("golden", [GOLDEN, BUSY_GOLDEN, MOONCAKE_GOLDEN], ids=["small", "busy", "mooncake"])
def test_every_policy_has_a_golden_row(golden: dict[str, tuple[int, ...]]) -> None:
    assert sorted(POLICIES) == sorted(golden)


@pytest.mark.parametrize(("name", "capacity", "expected"), rows(GOLDEN, SIZES))
def test_golden_hits(name: str, capacity: int, expected: int) -> None:
    cache = Cache(capacity, NoValues(), None, policy=POLICIES[name]())
    for minute, prompt in enumerate(TRACE):
        cache.release(cache.admit(run(prompt), make_value=nothing, now=60.0 * minute), now=60.0 * minute)
        cache.check()
    assert (136, expected) == (cache.counters.input, cache.counters.hit)


@pytest.mark.parametrize(("name", "capacity", "expected"), rows(BUSY_GOLDEN, BUSY_SIZES))
def test_golden_hits_of_many_conversations(name: str, capacity: int, expected: int) -> None:
    cache = play(POLICIES[name](), capacity, conversations(1, 2000))
    cache.check()
    assert expected == cache.counters.hit


@pytest.fixture(scope="module")
def mooncake() -> list[Turn]:
    """The conversation trace: an id is a block of 512 tokens."""
    if not MOONCAKE.exists():
        pytest.skip("the Mooncake conversation trace is not at ../shared/data")
    requests = map(json.loads, MOONCAKE.read_text().splitlines())
    return [Turn(r["timestamp"] / 1000, pack(r["hash_ids"]), r["output_length"], "") for r in requests]


@pytest.mark.parametrize(("name", "capacity", "expected"), rows(MOONCAKE_GOLDEN, MOONCAKE_SIZES))
def test_golden_hits_of_the_mooncake_trace(mooncake: list[Turn], name: str, capacity: int, expected: int) -> None:
    assert expected == play(POLICIES[name](), capacity, mooncake).counters.hit


@pytest.mark.parametrize(
    ("capacity", "expected"), [(1_000, 0.0445), (5_000, 0.1118), (10_000, 0.2116), (30_000, 0.3257), (200_000, 0.3664)]
)
def test_published_rates_of_the_mooncake_trace(mooncake: list[Turn], capacity: int, expected: float) -> None:
    assert expected == round(play(LRU(), capacity, mooncake).counters.hit_rate, 4)


@pytest.mark.parametrize(("capacity", "expected"), [*zip(SIZES, GOLDEN["lru"], strict=True)])
def test_the_oracle_agrees_on_lru(capacity: int, expected: int) -> None:
    oracle = NaiveCache(capacity)
    for prompt in TRACE:
        oracle.release(oracle.admit(run(prompt)))
    assert expected == oracle.counters.hit


class Served:
    """A cache of characters; `known` is what of a text would be found."""

    def __init__(self, capacity: int, policy: Policy) -> None:
        self.cache = Cache(capacity, NoValues(), None, policy=policy, always_computed=0)

    def serve(self, *texts: str, now: float = 0.0) -> None:
        for text in texts:
            self.cache.release(self.cache.admit(run(text), make_value=nothing, now=now), now=now)
            self.cache.check()

    def known(self, *texts: str) -> list[int]:
        return [self.cache.peek(run(text)) for text in texts]


def test_fifo_does_not_mind_uses() -> None:
    served = Served(6, FIFO())
    served.serve("aaa", "bbb", "aaa", "ccc")
    assert [0, 3, 3] == served.known("aaa", "bbb", "ccc")


def test_lfu_keeps_what_was_used_most() -> None:
    served = Served(6, LFU())
    served.serve("aaa", "aaa", "bbb", "ccc")
    assert [3, 0, 3] == served.known("aaa", "bbb", "ccc")


def test_ttl_lru_forgets_in_time_though_there_is_room() -> None:
    served = Served(100, TTLLRU(ttl=60))
    served.serve("head, one", now=0)
    served.serve("head, two", now=50)
    served.serve("other", now=60)
    assert [9, 9] == served.known("head, one", "head, two")
    served.serve("other", now=61)
    assert [6, 9] == served.known("head, one", "head, two")
    served.serve("other", now=111)
    assert [0, 0, 5] == served.known("head, one", "head, two", "other")
    assert 12 == served.cache.counters.evicted


def test_ttl_lru_never_drops_what_a_request_holds() -> None:
    cache = Cache(100, NoValues(), None, policy=TTLLRU(ttl=60))
    lease = cache.admit(run("slow"), make_value=nothing, now=0)
    cache.release(cache.admit(run("next"), make_value=nothing, now=1000), now=1000)
    cache.check()
    cache.release(lease, now=1000)
    assert 4 == cache.peek(run("slow!"))


def test_pinned_keeps_the_head_that_many_share() -> None:
    for policy, expected in ((Pinned(sharers=4), 5), (LRU(), 0)):
        served = Served(20, policy)
        served.serve("head.a", "head.b", "head.c", "head.d")
        served.serve(*(str(number) * 7 for number in range(9)))
        assert [expected] == served.known("head.")


def test_pinned_heads_hold_at_most_half() -> None:
    served = Served(20, Pinned(sharers=2))
    served.serve("first head.a", "first head.b", "2nd.a", "2nd.b", *(str(number) * 6 for number in range(9)))
    assert [2, 4] == served.known("first head.", "2nd."), "no more of the one than had to go"


def test_without_a_clock_the_default_is_lru() -> None:
    turns = [Turn(0.0, turn.run, turn.output_tokens, turn.stop) for turn in conversations(2, 1500)]
    assert play(LRU(), 200, turns).counters == play(Gittins(), 200, turns).counters


@pytest.mark.parametrize("capacity", [100, 300, 1000, 2000])
@pytest.mark.parametrize("forget", [0.1, 0.5, 0.9])
def test_the_default_is_never_more_than_one_percent_below_lru(capacity: int, forget: float) -> None:
    turns = conversations(3, 4000, forget=forget)
    lru, own = (play(policy, capacity, turns).counters.hit for policy in (LRU(), Gittins()))
    assert own >= 0.99 * lru


def test_the_guard_holds_when_what_was_learned_turns_out_wrong() -> None:
    # Long prompts never came back; now they do, and the short ones no more.
    turns = [*conversations(4, 2000)]
    start, ids = turns[-1].time, iter(range(10**8, 10**9))
    for number in range(1500):
        prompt = pack([next(ids) for _ in range(20)])
        turns += [Turn(start + 10 * number + wait, prompt, 100, "end_turn") for wait in (0, 25)]
        turns += [Turn(start + 10 * number + 1, pack([next(ids)] * 2), 100, "tool_use")]
    turns.sort(key=lambda turn: turn.time)
    lru, own = (play(policy, 150, turns).counters.hit for policy in (LRU(), Gittins()))
    assert lru > 20_000
    assert own >= 0.99 * lru


def test_the_default_keeps_to_the_contract_while_it_ranks() -> None:
    policy = Watched(Gittins())
    cache = play(policy, 100, conversations(5, 1000))
    cache.check()
    assert set(cache.tree.nodes()) == policy.nodes
    assert cache.counters.hit > 1.2 * play(LRU(), 100, conversations(5, 1000)).counters.hit


@pytest.mark.parametrize("side_by_side", [2, 6])
def test_the_default_ranks_while_requests_run_side_by_side(side_by_side: int) -> None:
    hits = []
    for policy in (LRU(), Watched(Gittins())):
        cache = Cache(200, NoValues(), None, policy=policy, always_computed=0)
        running: list[tuple[Lease[None], Turn]] = []
        for number, turn in enumerate(conversations(6, 1500)):
            if len(running) == side_by_side:
                # Not always the first one: some are overtaken by the next turn of their own conversation.
                lease, of = running.pop(number % side_by_side)
                tail = pack([10**9 + number])
                cache.release(
                    lease, tail=tail, make_value=nothing, now=turn.time, output_tokens=of.output_tokens, stop=of.stop
                )
            running.append((cache.admit(turn.run, reserve=1, make_value=nothing, now=turn.time), turn))
            if number % 50 == 0:
                cache.check()
        cache.check()
        hits.append(cache.counters.hit)
    assert hits[1] >= hits[0]


@given(st.integers(0, 10**6))
def test_the_default_serves_no_more_than_was_ever_sent(seed: int) -> None:
    turns = conversations(seed, 150)
    ideal = play(LRU(), 10**6, turns).counters.hit
    cache = play(Gittins(), 80, turns)
    cache.check()
    assert 0 <= cache.counters.hit <= ideal
