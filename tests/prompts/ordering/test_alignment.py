"""Alignment of lists."""

from hypothesis import given
from hypothesis import strategies as st

from prefold.prompts.ordering.alignment import align, gaps_of

ITEMS = st.lists(st.sampled_from("abcdefgh"), max_size=20)


@given(ITEMS, ITEMS)
def test_places_increase_and_hold_the_same_items(wanted: list[str], found: list[str]) -> None:
    places = align(wanted, found)
    assert len(wanted) == len(places)
    pairs = [(item, place) for item, place in zip(wanted, places, strict=True) if place is not None]
    assert [item for item, _ in pairs] == [found[place] for _, place in pairs]
    assert sorted({place for _, place in pairs}) == [place for _, place in pairs]


@given(st.lists(st.integers(), unique=True, max_size=30), st.sets(st.integers(0, 29)))
def test_of_items_that_differ_all_that_are_left_are_found(numbers: list[int], removed: set[int]) -> None:
    items = [str(number) for number in numbers]
    left = [item for place, item in enumerate(items) if place not in removed]
    assert len(left) == sum(place is not None for place in align(items, left))


def test_the_longest_run_in_order_is_kept() -> None:
    assert [3, 0, 1, 2] != align(list("dabc"), list("abcd"))
    assert [None, 0, 1, 2] == align(list("dabc"), list("abcd"))


def test_repeated_items_are_matched_beside_what_is_unique() -> None:
    assert [0, 1, 2, 4, 5, 6] == align(["-", "a", "-", "-", "b", "-"], ["-", "a", "-", "new", "-", "b", "-"])


def test_gaps_are_counted_by_the_wanted_items_before_them() -> None:
    found = ["new", "a", "other", "more", "b", "end"]
    assert [0, None, 1, 1, None, 2] == gaps_of(found, align(["a", "b"], found))
    assert [0, None, 2] == gaps_of(["x", "b", "y"], align(["a", "b"], ["x", "b", "y"]))


def test_long_lists_take_linear_time() -> None:
    """A quadratic alignment of these would not end within the time allowed for a test."""
    wanted = [str(number % 7 if number % 3 else number) for number in range(100_000)]
    found = [item for number, item in enumerate(wanted) if number % 11]
    assert 30_000 < sum(place is not None for place in align(wanted, found))
