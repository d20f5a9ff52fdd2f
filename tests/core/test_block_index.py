"""Which replica holds which blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from prefold.core.block_index import BlockIndex
from prefold.core.keys import SHARED, Scope, block_keys, root_key
from prefold.core.tokens import WIDTH, count, pack

# Two tokens and short prompts, so that sequences meet and part all the time.
RUNS = st.lists(st.integers(0, 1), max_size=9).map(pack)
SCOPES = st.builds(
    Scope,
    salt=st.sampled_from([None, "a", "b"]),
    salt_from=st.integers(0, 5),
    namespace=st.sampled_from(["", "a", "other"]),
)
REPLICAS = st.integers(0, 2)


@given(pairs=st.lists(st.tuples(RUNS, SCOPES), min_size=2, max_size=12), size=st.integers(1, 3))
def test_keys_are_equal_exactly_where_those_that_leave_the_process_are(pairs, size):
    index = BlockIndex(1)
    ours, theirs = [], []
    for run, scope in pairs:
        ours += index.keys(run, size, scope)
        theirs += block_keys(root_key(scope.namespace), run, size, scope)
    assert [theirs.index(key) for key in theirs] == [ours.index(key) for key in ours]


@given(run=RUNS, scope=SCOPES, size=st.integers(1, 3))
def test_keys_made_one_by_one_are_the_same(run, scope, size):
    index = BlockIndex(1)
    keys: list[int] = []
    for number in range(count(run) // size):
        block = run[number * size * WIDTH : (number + 1) * size * WIDTH]
        begins = scope.salt is not None and number == scope.salt_from // size
        salt = scope.salt if begins else None
        parent = keys[-1] if keys else None
        keys.append(index.next_key(parent, block, salt=salt, namespace=scope.namespace))
    assert keys == index.keys(run, size, scope)


class IndexAndOracle(RuleBasedStateMachine):
    """The index beside sets of prefixes; it has room for all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.index = BlockIndex(10_000)
        self.held: dict[int, set[tuple[Scope, bytes]]] = {}

    def blocks(self, run: bytes, scope: Scope) -> list[tuple[Scope, bytes]]:
        return [(scope, run[:stop]) for stop in range(WIDTH, len(run) + 1, WIDTH)]

    @rule(replica=REPLICAS, run=RUNS, salt=st.sampled_from([None, "a"]), start=st.integers(0, 9))
    def add(self, replica: int, run: bytes, salt: str | None, start: int) -> None:
        scope = Scope(salt)
        self.index.add(replica, self.index.keys(run, 1, scope)[start:])
        self.held.setdefault(replica, set()).update(self.blocks(run, scope)[start:])

    @rule(replica=REPLICAS, run=RUNS, salt=st.sampled_from([None, "a"]), start=st.integers(0, 9))
    def remove(self, replica: int, run: bytes, salt: str | None, start: int) -> None:
        scope = Scope(salt)
        self.index.remove(replica, self.index.keys(run, 1, scope)[start:])
        self.held.get(replica, set()).difference_update(self.blocks(run, scope)[start:])

    @rule(replica=REPLICAS)
    def clear(self, replica: int) -> None:
        self.index.clear(replica)
        self.held.pop(replica, None)

    @rule(run=RUNS, salt=st.sampled_from([None, "a"]))
    def match(self, run: bytes, salt: str | None) -> None:
        expected = []
        for replica in range(max(self.held, default=-1) + 1):
            have = [block in self.held.get(replica, set()) for block in self.blocks(run, Scope(salt))]
            expected.append([*have, False].index(False))
        assert expected == self.index.match(self.index.keys(run, 1, Scope(salt)))

    @invariant()
    def counts(self) -> None:
        assert len(set().union(*self.held.values())) == self.index.size
        for replica in range(3):
            assert len(self.held.get(replica, ())) == self.index.blocks_of(replica)


TestIndexAndOracle = IndexAndOracle.TestCase


def test_a_match_ends_at_the_first_gap():
    index = BlockIndex(100)
    keys = index.keys(pack(range(10)), 2)
    index.add(0, keys)
    index.add(1, keys[:2])
    index.add(3, keys[1:])
    assert [5, 2, 0, 0] == index.match(keys)
    index.remove(0, keys[3:4])
    assert [3, 2, 0, 0] == index.match(keys)
    index.clear(3)
    assert [3, 2] == index.match(keys)
    assert [0, 0] == index.match([])


def test_scopes_share_what_lies_before_their_salt():
    index = BlockIndex(100)
    run = pack(range(12))
    index.add(0, index.keys(run, 2, Scope("a", salt_from=5)))
    assert [2] == index.match(index.keys(run, 2, SHARED))
    assert [2] == index.match(index.keys(run, 2, Scope("b", salt_from=5)))
    assert [6] == index.match(index.keys(run, 2, Scope("a", salt_from=4)))
    assert [0] == index.match(index.keys(run, 2, Scope(namespace="other")))


@pytest.mark.parametrize("most", [1, 7, 100, 1000])
def test_no_more_blocks_are_kept_than_was_said(most):
    index = BlockIndex(most)
    for number in range(50):
        index.add(number % 3, index.keys(pack(range(number * 100, number * 100 + 40)), 1))
        assert index.size <= most
        assert index.size <= sum(index.blocks_of(replica) for replica in range(3))
    assert most * 0.95 <= index.size


def test_the_oldest_blocks_are_forgotten_but_for_those_in_use():
    index = BlockIndex(1000)
    system, cold, latest = (index.keys(pack(range(start, start + 100)), 1) for start in (0, 10_000, 20_000))
    index.add(0, system)
    index.add(1, cold)
    for number in range(40):
        index.add(2, index.keys(pack(range(10**6 + number * 100, 10**6 + number * 100 + 100)), 1))
        assert 100 == index.match(system)[0]
    index.add(2, latest)
    assert [100, 0, 0] == index.match(system)
    assert 0 == index.match(cold)[1]
    assert 100 == index.match(latest)[2]
    for _ in range(3):  # no longer in use
        for number in range(40):
            index.add(2, index.keys(pack(range(2 * 10**6 + number * 100, 2 * 10**6 + number * 100 + 100)), 1))
    assert 0 == index.match(system)[0]


def test_what_was_forgotten_can_be_removed_and_cleared():
    index = BlockIndex(10)
    old = index.keys(pack(range(10)), 1)
    index.add(0, old)
    index.add(1, old)
    index.add(1, index.keys(pack(range(100, 110)), 1))
    index.remove(0, old)
    index.clear(0)
    assert (0, 10, 10) == (index.blocks_of(0), index.blocks_of(1), index.size)
    index.clear(1)
    assert 0 == index.size
