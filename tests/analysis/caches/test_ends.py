"""What is remembered by prefix, against a plain dictionary of prefixes."""

from hypothesis import given
from hypothesis import strategies as st

from prefold.analysis.caches.ends import Ends, values
from prefold.core.keys import SHARED, Scope
from prefold.core.tokens import pack

OTHER = Scope(namespace="other")

RUNS = st.lists(st.integers(0, 1), max_size=8)
PUTS = st.lists(st.tuples(RUNS, st.sampled_from([SHARED, OTHER]), st.sets(st.integers(0, 8), min_size=1)), max_size=12)


def put(ends: Ends[str], run: list[int], places: list[int], value: str | None = None, scope: Scope = SHARED) -> None:
    packed = pack(run)
    for node in ends.put(packed, scope, ends.find(packed, scope), places):
        node.value = value


def found(ends: Ends[str], run: list[int], scope: Scope = SHARED) -> tuple[int, list[tuple[int, str]]]:
    match = ends.find(pack(run), scope)
    return match.length, list(values(match))


def test_values_are_found_by_prefix_the_longest_first():
    ends: Ends[str] = Ends(100)
    put(ends, [1, 2, 3, 4], [2, 4], "a")
    assert (4, [(4, "a"), (2, "a")]) == found(ends, [1, 2, 3, 4, 5])
    assert (3, [(2, "a")]) == found(ends, [1, 2, 3])
    assert (1, []) == found(ends, [1, 9])


def test_what_was_only_seen_has_no_value():
    ends: Ends[str] = Ends(100)
    put(ends, [1, 2, 3], [3])
    assert (3, []) == found(ends, [1, 2, 3])


def test_the_nodes_are_those_of_the_ends_in_their_order():
    ends: Ends[str] = Ends(100)
    run = pack([1, 2, 3, 4, 5])
    put(ends, [1, 2, 3], [1, 3], "a")
    nodes = ends.put(run, SHARED, ends.find(run, SHARED), [1, 2, 2, 5])
    assert [(1, "a"), (2, None), (2, None), (5, None)] == [(node.stop, node.value) for node in nodes]


def test_what_was_not_used_for_longest_is_forgotten():
    ends: Ends[str] = Ends(4)
    put(ends, [1, 2], [2], "a")
    put(ends, [3, 4], [2], "b")
    put(ends, [1, 2], [1], "a")  # of the two prefixes only the shorter one was used
    assert not ends.has_forgotten
    put(ends, [5], [1], "c")
    assert ends.has_forgotten
    assert [1, 2, 1] == [found(ends, run)[0] for run in ([1, 2], [3, 4], [5, 6])]
    put(ends, [7], [1], "d")
    assert [1, 0, 1, 1] == [found(ends, run)[0] for run in ([1, 2], [3, 4], [5, 6], [7, 8])]


def test_what_has_no_room_at_all_is_kept_as_far_as_it_has():
    ends: Ends[str] = Ends(4)
    put(ends, [1, 2, 3, 4, 5, 6], [3, 6], "a")
    assert (3, [(3, "a")]) == found(ends, [1, 2, 3, 4, 5, 6])


@given(PUTS)
def test_all_ends_at_once_are_what_they_are_one_by_one(puts):
    together: Ends[str] = Ends(1000)
    single: Ends[str] = Ends(1000)
    known: dict[tuple[Scope, tuple[int, ...]], str] = {}
    for number, (run, scope, places) in enumerate(puts):
        inside = sorted({min(place, len(run)) for place in places})
        put(together, run, inside, str(number), scope)
        for place in inside:
            put(single, run, [place], str(number), scope)
            known[scope, tuple(run[:place])] = str(number)
    for run, scope, _ in puts:
        for longer in (run, [*run, 7], run[: len(run) // 2]):
            expected = [(end, known.get((scope, tuple(longer[:end])))) for end in range(len(longer), 0, -1)]
            assert found(single, longer, scope) == found(together, longer, scope)
            assert [pair for pair in expected if pair[1] is not None] == found(together, longer, scope)[1]


@given(PUTS, st.integers(1, 20))
def test_they_also_leave_the_same_where_there_is_little_room(puts, capacity):
    together: Ends[str] = Ends(capacity)
    single: Ends[str] = Ends(capacity)
    for number, (run, scope, places) in enumerate(puts):
        inside = sorted({min(place, len(run)) for place in places})
        put(together, run, inside, str(number), scope)
        for place in inside:
            put(single, run, [place], str(number), scope)
        assert together.has_forgotten == single.has_forgotten
        for other, of, _ in puts:
            assert found(single, other, of) == found(together, other, of)
