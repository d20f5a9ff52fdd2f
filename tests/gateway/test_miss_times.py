from __future__ import annotations

import pytest

from prefold.gateway.miss_times import LONGEST_SECONDS, START_SECONDS, MissTimes, Work

MISS = 0.001  # seconds a token


def taught(lengths: list[int], *, cached: float | None = 0.0, pace: float = MISS) -> MissTimes:
    times = MissTimes()
    for length in lengths:
        hit = None if cached is None else int(length * cached)
        times.add("m", Work(length), (length - (hit or 0)) * pace, cached=hit, size=length * 4)
    return times


def test_a_stated_start_before_anything_is_known():
    assert START_SECONDS * Work(1_000).weight == MissTimes().expected("m", Work(1_000))
    assert 1_000 < Work(1_000).weight < Work(1_000, 50).weight


def test_learned_from_misses_of_that_length():
    times = taught([1_000] * 8)
    assert pytest.approx(1.0, rel=0.2) == times.expected("m", Work(1_000))
    assert 1.0 <= times.expected("m", Work(1_000))


def test_the_longest_of_a_class_is_covered_by_the_shortest():
    times = taught([862] * 64)  # classes have four to an octave; this one goes to 1,024
    assert times.expected("m", Work(1_024)) == times.expected("m", Work(862))
    assert 1.024 <= times.expected("m", Work(1_024))


def test_few_accidents_count_for_nothing():
    times = taught([1_000] * 62)
    for _ in range(2):
        times.add("m", Work(1_000), 55.0, cached=0, size=4_000)
    assert 1.3 > times.expected("m", Work(1_000))
    times.add("m", Work(1_000), 55.0, cached=0, size=4_000)
    assert 55.0 <= times.expected("m", Work(1_000))


def test_hits_make_the_time_of_a_miss_no_shorter():
    times = taught([1_000] * 8)
    before = times.expected("m", Work(1_000))
    for _ in range(200):
        times.add("m", Work(1_000), 0.02, cached=990, size=4_000)
    assert before == times.expected("m", Work(1_000))


def test_a_hit_is_a_miss_of_what_was_left_to_read():
    times = taught([4_000] * 8, cached=0.75)
    assert pytest.approx(1.0, rel=0.2) == times.expected("m", Work(1_000))


def test_where_nothing_is_reported_hits_do_not_pass_for_misses():
    times = taught([1_000] * 200, cached=None, pace=MISS / 50)
    assert START_SECONDS * Work(1_000).weight == times.expected("m", Work(1_000))


def test_silence_is_a_miss_where_hits_have_been_reported():
    times = taught([1_000] * 8, cached=0.5)
    for _ in range(8):
        times.add("m", Work(1_000), 1.0, cached=None, size=4_000)
    assert pytest.approx(1.0, rel=0.2) == times.expected("m", Work(1_000))


def test_lengths_that_were_not_seen_take_as_long_a_token_as_the_slowest():
    times = taught([1_000])
    assert 4.0 > times.expected("m", Work(4_000)) > 3.5
    assert times.expected("m", Work(10)) > 0.01


def test_short_ones_that_waited_say_nothing_about_long_ones():
    times = taught([10], pace=0.3)
    assert START_SECONDS * Work(4_000).weight == times.expected("m", Work(4_000))


def test_never_longer_than_that():
    times = taught([1_000], pace=10.0)
    assert LONGEST_SECONDS == times.expected("m", Work(1_000))


def test_fields_that_nobody_reads_do_not_pass_for_a_prompt():
    """A long body with a short prompt must not teach that long prompts are fast."""
    times = taught([8_000] * 8)
    before = times.expected("m", Work(8_000))
    for _ in range(100):
        times.add("m", Work(20), 0.02, cached=0, size=32_000)
    assert before == times.expected("m", Work(8_000))


def test_tokens_are_guessed_by_the_densest_text_of_late():
    times = taught([1_000] * 20)
    assert 500 == MissTimes().tokens("m", 1_000)
    assert 250 == times.tokens("m", 1_000)
    times.add("m", Work(2_000), 2.0, cached=0, size=2_000)
    assert 1_000 == times.tokens("m", 1_000)


def test_answers_that_come_at_once_are_a_kind_of_their_own():
    times = taught([1_000] * 8)
    for _ in range(8):
        times.add("m", Work(1_000, 100), 6.0, cached=0, size=4_000)
    assert 2.0 > times.expected("m", Work(1_000))
    assert 6.0 <= times.expected("m", Work(1_000, 100)) < 8.0


def test_memory_is_bounded():
    times = MissTimes()
    for number in range(3_000):
        for length in (10, 100):
            times.add(f"model {number}", Work(length), 1.0, cached=0, size=2_000)
    assert 64 == len(times._models)
    assert 1_024 == len(times._rows)
