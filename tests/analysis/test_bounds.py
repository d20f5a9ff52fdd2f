"""Hits at every capacity in one pass, against the engine's own cache, a plain list, and every possible schedule."""

import json
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.analysis.bounds import Bounds, Curve
from prefold.analysis.record import Blocks, Place, Record
from prefold.analysis.request import Request
from prefold.core.cache import Cache, NoValues
from prefold.core.keys import Scope
from prefold.core.tokens import WIDTH, count, pack
from prefold.errors import UsageError

MOONCAKE = Path(__file__).parents[3] / "shared" / "data" / "traces" / "mooncake" / "conversation_trace.jsonl"


def bounds_of(requests: Iterable[Request]) -> Bounds:
    bounds = Bounds()
    for each in requests:
        bounds.add(each)
    return bounds


def lru_curve(requests: Iterable[Request]) -> Curve:
    return bounds_of(requests).lru()


def optimum(requests: Iterable[Request], capacities: Iterable[int]) -> dict[int, int]:
    return bounds_of(requests).optima(list(capacities))


def request(
    tokens: Iterable[int], output: Iterable[int] = (), *, unit: int = 1, model: str = "", salt: str | None = None
) -> Request:
    run = pack(tokens)
    size = count(run) * unit
    record = Record(Blocks(run, unit, size), Place("test", 1), model=model)
    return Request(run, unit, size, 0.0, record, salt=salt, output=pack(output))


# Few different tokens and a shared start, so that paths meet, part and go on.
PATHS = st.lists(st.integers(0, 2), min_size=1, max_size=7)
REQUESTS = st.lists(
    st.builds(
        request,
        PATHS,
        st.lists(st.integers(0, 2), max_size=3),
        model=st.sampled_from(["", "m"]),
        salt=st.sampled_from([None, "s"]),
    ),
    max_size=14,
)


def hits_of_cache(requests: Sequence[Request], capacity: int) -> int:
    """What the engine's cache hits. Of a path that does not fit, it is given as much as does."""
    cache: Cache[None] = Cache(capacity, NoValues(), None)
    hits = 0
    for sent in requests:
        scope = Scope(sent.salt, namespace=sent.record.model)
        hits += cache.peek(sent.run, scope)
        run = sent.run[: capacity * WIDTH]
        tail = sent.output[: capacity * WIDTH - len(run)]
        lease = cache.admit(run, scope, reserve=count(tail), make_value=lambda start, stop: None)
        cache.release(lease, tail=tail, make_value=lambda start, stop: None)
        cache.check()
    return hits


def hits_of_list(requests: Sequence[Request], capacity: int) -> int:
    """The same told block by block: a list of prefixes, the latest used and of these the shortest first."""
    known: list[tuple[object, ...]] = []
    hits = 0
    for sent in requests:
        path = sent.run + sent.output
        prefixes = [(sent.scope, path[: length * WIDTH]) for length in range(1, count(path) + 1)]
        readable = prefixes[: sent.units - (sent.unit == 1)]
        hits += sum(prefix in known for prefix in readable)
        known = [*prefixes, *(prefix for prefix in known if prefix not in prefixes)][:capacity]
    return hits


@given(REQUESTS, st.integers(1, 25))
def test_lru_is_what_the_engines_cache_does(requests: list[Request], capacity: int) -> None:
    assert hits_of_cache(requests, capacity) == lru_curve(requests).hit_tokens(capacity)


@given(REQUESTS)
def test_lru_at_every_capacity(requests: list[Request]) -> None:
    curve = lru_curve(requests)
    sizes = range(40)
    assert [hits_of_list(requests, size) for size in sizes] == [curve.hit_tokens(size) for size in sizes]
    assert hits_of_list(requests, 10_000) == curve.hit_tokens(None)
    assert sum(sent.tokens for sent in requests) == curve.input_tokens


@given(st.lists(st.builds(request, PATHS, unit=st.just(16)), max_size=12), st.integers(0, 300))
def test_blocks_are_hit_whole_and_the_last_one_too(requests: list[Request], capacity: int) -> None:
    assert hits_of_list(requests, capacity // 16) * 16 == lru_curve(requests).hit_tokens(capacity)


@given(REQUESTS, st.integers(1, 10))
def test_what_is_forgotten_changes_nothing_below_the_limit(requests: list[Request], most: int) -> None:
    exact, bounds = lru_curve(requests), Bounds(most_units=most)
    for sent in requests:
        bounds.add(sent)
    curve = bounds.lru()
    assert [exact.hit_tokens(size) for size in range(most + 1)] == [curve.hit_tokens(size) for size in range(most + 1)]
    assert exact.hit_tokens(None) >= curve.hit_tokens(None)
    assert curve.limit == (None if bounds.is_exact else most)
    assert not bounds.is_exact or exact.hit_tokens(None) == curve.hit_tokens(None)


@given(REQUESTS, st.integers(1, 6))
def test_stretches_are_forgotten_too(requests: list[Request], most: int) -> None:
    exact, bounds = lru_curve(requests), Bounds(most_stretches=most)
    for sent in requests:
        bounds.add(sent)
    curve = bounds.lru()
    limit = 50 if curve.limit is None else curve.limit
    assert [exact.hit_tokens(size) for size in range(limit + 1)] == [
        curve.hit_tokens(size) for size in range(limit + 1)
    ]
    assert bounds.is_exact == (curve.limit is None)


def best_schedule(requests: Sequence[Request], capacity: int, *, is_closed: bool) -> int:
    """Most hits over everything that could be kept after each request, of what was there and what the request brought.

    Args:
        requests: what is asked for.
        capacity: in units.
        is_closed: keep prefixes of what is kept; otherwise any blocks, each a hit wherever it stands.
    """
    best: dict[frozenset[bytes], int] = {frozenset(): 0}
    for sent in requests:
        path = [sent.run[: length * WIDTH] for length in range(1, sent.units + 1)]
        after: dict[frozenset[bytes], int] = {}
        for kept, hits in best.items():
            total = hits + sum(prefix in kept for prefix in path[: sent.units - (sent.unit == 1)])
            candidates = kept.union(path)
            for size in range(min(capacity, len(candidates)) + 1):
                for chosen in combinations(sorted(candidates), size):
                    held = frozenset(chosen)
                    if is_closed and any(len(prefix) > WIDTH and prefix[:-WIDTH] not in held for prefix in held):
                        continue
                    after[held] = max(total, after.get(held, 0))
        best = after
    return max(best.values())


@given(
    st.lists(
        st.builds(request, st.lists(st.integers(0, 1), min_size=1, max_size=3), unit=st.sampled_from([8])), max_size=6
    )
    | st.lists(st.builds(request, st.lists(st.integers(0, 1), min_size=1, max_size=4)), max_size=5),
    st.integers(1, 3),
)
def test_no_schedule_is_better_than_the_optimum_and_one_is_as_good(requests: list[Request], places: int) -> None:
    unit = requests[0].unit if requests else 1
    found = optimum(requests, [places * unit])[places * unit]
    assert best_schedule(requests, places, is_closed=True) * unit == found
    assert best_schedule(requests, places, is_closed=False) * unit == found


@given(REQUESTS)
def test_the_optimum_lies_between_lru_and_a_cache_without_limit(requests: list[Request]) -> None:
    curve = lru_curve(requests)
    found = optimum(requests, range(30))
    assert sorted(found.values()) == list(found.values())
    assert all(curve.hit_tokens(size) <= hits <= curve.hit_tokens(None) for size, hits in found.items())


@given(REQUESTS, st.lists(st.integers(0, 30), max_size=5))
def test_the_optimum_does_not_depend_on_what_else_is_asked(requests: list[Request], capacities: list[int]) -> None:
    alone = {capacity: optimum(requests, [capacity])[capacity] for capacity in capacities}
    assert list(alone.items()) == list(optimum(requests, capacities).items())


def test_models_and_salts_share_nothing_but_the_room() -> None:
    one, other = request([1, 2, 3], model="a"), request([1, 2, 3], model="b")
    assert 4 == lru_curve([one, other, one, other]).hit_tokens(6)
    assert 0 == lru_curve([one, other, one, other]).hit_tokens(3)
    assert 4 == lru_curve([one, one, one]).hit_tokens(3)
    salted = request([1, 2, 3], salt="a/b@c")  # a salt that no engine takes
    assert 0 == lru_curve([request([1, 2, 3]), salted]).hit_tokens(None)


def test_units_must_be_the_same() -> None:
    bounds = Bounds()
    bounds.add(request([1]))
    with pytest.raises(UsageError, match=r"test:1 has ids of 64 tokens, the requests before it of 1\."):
        bounds.add(request([1], unit=64))


def test_an_empty_log() -> None:
    assert Curve(1, 0, None, [], [], []) == lru_curve([])
    assert 0.0 == lru_curve([]).hit_rate(10)
    assert {5: 0} == optimum([], [5])
    assert 0 == lru_curve([request([]), request([])]).hit_tokens(None)


def test_the_work_does_not_depend_on_the_length_of_prompts() -> None:
    """Twenty turns of a conversation with long prompts: one stretch for each turn after the first."""
    bounds = Bounds()
    for turn in range(1, 21):
        bounds.add(request(range(10_000 * turn)))
    assert 19 * 20 / 2 * 10_000 == bounds.lru().hit_tokens(None)
    assert 2 >= len(bounds.lru().corners) - 19


def test_the_published_figures_of_the_conversation_trace() -> None:
    if not MOONCAKE.exists():
        pytest.skip("the shared data is not here")
    bounds = Bounds()
    with MOONCAKE.open(encoding="utf-8") as lines:
        for line in lines:
            bounds.add(request(json.loads(line)["hash_ids"], unit=512))
    blocks = [1_000, 5_000, 10_000, 30_000, 50_000]
    curve = bounds.lru()
    assert [0.0445, 0.1118, 0.2116, 0.3257, 0.3546] == [round(curve.hit_rate(512 * size), 4) for size in blocks]
    assert 0.366 == round(curve.hit_rate(None), 3)
    best = bounds.optima([512 * size for size in (1_000, 10_000, 30_000, 50_000)])
    assert [0.191, 0.366, 0.366, 0.366] == [round(hits / bounds.input_tokens, 3) for hits in best.values()]
