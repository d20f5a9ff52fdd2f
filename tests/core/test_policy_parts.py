"""The parts of the default policy, each on its own."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.core.cache import Cache, NoValues
from prefold.core.keys import SHARED
from prefold.core.policies.hazards import _WIDTHS, EDGES, Hazards, Life, gittins
from prefold.core.policies.memory import Memory, place_behind
from prefold.core.policies.shadow import LRUShadow
from prefold.core.radix import Node, RadixTree
from prefold.core.tokens import WIDTH, pack

from .support import nothing, run


def index_of_every_horizon(hazards: list[float], start: int) -> float:
    """The index by its definition: the best ratio of hits to time held over all buckets in which to give up."""
    alive, hits, held, best = 1.0, 0.0, 0.0, 0.0
    for hazard, width in [*zip(hazards, _WIDTHS, strict=True)][start:]:
        after = alive * math.exp(-hazard * width)
        hits += alive - after
        held += (alive - after) / hazard
        alive = after
        best = max(best, hits / held)
    return best


@given(st.lists(st.floats(-9, 1), min_size=len(EDGES), max_size=len(EDGES)))
def test_the_index_is_the_best_over_all_horizons(exponents: list[float]) -> None:
    hazards = [10**exponent for exponent in exponents]
    indexes = gittins(hazards)
    # Where hardly anybody is left, the definition has lost its digits; there, ratios are compared with what was alive.
    reached = [sum(h * w for h, w in zip(hazards[:start], _WIDTHS, strict=False)) for start in range(len(hazards))]
    for start in range(len(hazards)):
        if reached[start] < 5:
            assert index_of_every_horizon(hazards, start) == pytest.approx(indexes[start], rel=1e-3, abs=1e-12)


def test_without_memory_the_index_is_the_hazard() -> None:
    assert [0.001] * 30 == pytest.approx(gittins([0.001] * len(EDGES))[:30])


def test_it_is_worth_waiting_for_a_peak_and_not_after_it() -> None:
    hazards = [0.1 if 20 <= edge < 40 else 1e-6 for edge in EDGES]
    before, at, after = (gittins(hazards)[EDGES.index(min(e for e in EDGES if e >= age))] for age in (1, 20, 60))
    assert at > before > 100 * after


def lives(hazards: Hazards, requests: int) -> float:
    """Agents whose tools answer in ten seconds, and people who never come back; returns the time at the end."""
    now = 0.0
    for _ in range(requests):
        now += 10
        agent, person = (Life(depth=100, new=10, time=now) for _ in range(2))
        hazards.answered(agent, now, output_tokens=50, stop="tool_use")
        hazards.answered(person, now, output_tokens=50, stop="end_turn")
        hazards.ended(agent, now + 9.9)
        hazards.fit_if_due(now)
    return now


def test_it_learns_who_comes_back() -> None:
    hazards = Hazards()
    now = lives(hazards, 300)
    agent, person = (Life(depth=100, new=10, time=now) for _ in range(2))
    hazards.answered(agent, now, output_tokens=50, stop="tool_calls")
    hazards.answered(person, now, output_tokens=50, stop="stop")
    assert 300 == hazards.ends
    assert hazards.index(agent, now) > 10 * hazards.index(person, now)
    assert hazards.index(agent, now + 9) > hazards.index(agent, now)
    assert hazards.index(agent, now + 60) < hazards.index(agent, now) / 10


def test_it_learns_from_traits_alone() -> None:
    hazards = Hazards()
    for number in range(600):
        life = Life(depth=100, new=3 if number % 2 else 90, time=10.0 * number)
        hazards.answered(life, life.time, output_tokens=50, stop="")
        if number % 2:
            hazards.ended(life, life.time + 30)
        hazards.fit_if_due(life.time)
    few, many = (Life(depth=100, new=new, time=6000.0) for new in (3, 90))
    for life in (few, many):
        hazards.answered(life, 6000.0, output_tokens=50, stop="")
    assert hazards.index(few, 6010.0) > 3 * hazards.index(many, 6010.0)


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=7), max_size=60), st.integers(7, 20))
def test_the_shadow_hits_what_lru_hits(prompts: list[list[int]], capacity: int) -> None:
    cache = Cache(capacity, NoValues(), None, always_computed=0)
    shadow, last_used = LRUShadow(capacity), {}
    for prompt in prompts:
        shadow.begin()
        prefixes = [tuple(prompt[: length + 1]) for length in range(len(prompt))]
        for prefix in prefixes:
            if prefix in last_used:
                shadow.leave(last_used[prefix], 1)
            last_used[prefix] = shadow.moment
        shadow.enter(len(prompt))
        cache.release(cache.admit(pack(prompt), make_value=nothing))
        assert cache.counters.hit == shadow.hits


class Note:
    def __init__(self, key: int) -> None:
        self.key = key
        self.life = None
        self.moment = 7


def leaf(text: str) -> Node[None]:
    tree = RadixTree(None, NoValues().split)
    node = tree.insert(run(text), SHARED, nothing, 0).node
    node.note = Note(place_behind(0, node.edge))
    return node


def test_memory_finds_what_was_cut_piece_by_piece() -> None:
    memory = Memory(100)
    node = leaf("abcdefgh")
    behind = memory.remember(node, 6, 0)
    node.run = node.run[: 6 * WIDTH]
    memory.remember(node, 2, behind)
    node.run = node.run[: 2 * WIDTH]
    back = leaf("cdefgh and more")
    back.note = Note(place_behind(node.note.key, back.edge))
    assert [(6, 7)] == [(ghost.tokens, ghost.moment) for ghost in memory.recall(back)]
    assert [] == [*memory.recall(back)], "it is known again"


def test_memory_is_not_taken_in_by_the_first_token() -> None:
    memory = Memory(100)
    memory.remember(leaf("abcdefgh"), 0, 0)
    assert [] == [*memory.recall(leaf("abxxxxxx"))]
    assert [8] == [ghost.tokens for ghost in memory.recall(leaf("abcdefxx"))], "the end may differ"


def test_memory_is_bounded() -> None:
    memory = Memory(10)
    for text in ("aaaa", "bbbb", "cccc"):
        memory.remember(leaf(text), 0, 0)
    assert [[], [4], [4]] == [[g.tokens for g in memory.recall(leaf(text))] for text in ("aaaa", "bbbb", "cccc")]
