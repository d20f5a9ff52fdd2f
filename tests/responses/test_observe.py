"""Repeats are counted as a cache would have met them."""

from hypothesis import given
from hypothesis import strategies as st

from prefold.responses.observe import RepeatCounter, Repeats


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.binary(min_size=1, max_size=1)), max_size=60))
def test_the_counter_agrees_with_a_cache(requests):
    now = [0.0]
    counter = RepeatCounter(7, 1_000, lambda: now[0])
    cache: dict[bytes, float] = {}
    hits = 0
    for gap, key in requests:
        now[0] += gap
        is_hit = key is not None and cache.get(key, -1e9) + 7 > now[0]
        if not is_hit and key is not None:
            cache[key] = now[0]
        hits += is_hit
        assert is_hit == counter.see(key)
    eligible = sum(key is not None for _, key in requests)
    assert Repeats(len(requests), eligible, hits, 0) == counter.counts
    assert (hits / len(requests) if requests else 0) == counter.counts.rate


def test_memory_is_bounded_and_says_so():
    counter = RepeatCounter(100, 10, lambda: 0.0)
    for number in range(30):
        counter.see(b"%d" % number)
    assert 20 == counter.counts.forgotten
    assert not counter.see(b"0")
    assert counter.see(b"29")
