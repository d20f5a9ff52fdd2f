"""Which entries go first."""

from hypothesis import given
from hypothesis import strategies as st

from prefold.responses.semantic.entries.eviction import Shelf, worth_of
from prefold.responses.semantic.types import Answer


def order(shelf):
    gone = []
    while (victim := shelf.victim()) is not None:
        shelf.remove(victim)
        gone.append(victim)
    return gone


def test_what_costs_least_for_its_size_and_use_goes_first():
    shelf = Shelf()
    for number, worth, uses in [(1, 8, 0), (2, 1, 0), (3, 1, 20), (4, 64, 0)]:
        shelf.add(number, worth, uses)
    assert [2, 1, 3, 4] == order(shelf)


def test_what_is_not_used_ages():
    shelf = Shelf()
    shelf.add(1, 4, 0)
    for number in range(2, 20):
        shelf.add(number, 1, 0)
        if len(shelf) > 3:
            shelf.remove(shelf.victim())
    assert 1 not in order(shelf)


def test_use_keeps_and_what_is_gone_is_no_matter():
    shelf = Shelf()
    for number in (1, 2, 3):
        shelf.add(number, 1, 0)
    shelf.use(1)
    shelf.use(99)
    shelf.remove(99)
    shelf.add(2, 64, 9)  # known already
    assert [2, 3, 1] == order(shelf)
    assert 3 == shelf.latest


@given(st.lists(st.tuples(st.sampled_from(["add", "use", "remove", "evict"]), st.integers(1, 30), st.integers(1, 64))))
def test_all_go_once(acts):
    shelf, there = Shelf(), set()
    for act, number, worth in acts:
        if act == "add":
            shelf.add(number, worth, 0)
            there.add(number)
        elif act == "use":
            shelf.use(number)
        elif act == "remove":
            shelf.remove(number)
            there.discard(number)
        elif (victim := shelf.victim()) is not None:
            shelf.remove(victim)
            there.remove(victim)
        assert len(there) == len(shelf)
    assert there == set(gone := order(shelf))
    assert len(gone) == len(there)


def test_worth():
    assert 1 == worth_of(Answer("short", output_tokens=1), 1_000_000)
    assert 64 == worth_of(Answer("short", input_tokens=100_000, output_tokens=1), 2_000)
    assert 8 * (1_000 + 4 * 500) // 2_000 == worth_of(Answer("x", input_tokens=1_000, output_tokens=500), 2_000)
    # Where nothing was reported, length stands for tokens.
    assert worth_of(Answer("x" * 400, output_tokens=100), 300) == worth_of(Answer("x" * 400), 300)
