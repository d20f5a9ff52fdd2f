"""Leaf-first order, against brute force."""

from hypothesis import given
from hypothesis import strategies as st

from prefold.engine.tiers.order import LeafFirst


class Oracle:
    """The same by looking at everything each time."""

    def __init__(self) -> None:
        self.parent: dict[bytes, bytes | None] = {}
        self.used: dict[bytes, int] = {}
        self.size: dict[bytes, int] = {}

    def raise_ancestors(self, key: bytes, now: int) -> None:
        at: bytes | None = key
        while at is not None and at in self.used:
            self.used[at] = max(self.used[at], now)
            at = self.parent[at]

    def add(self, key: bytes, parent: bytes | None, size: int, now: int) -> None:
        if key not in self.used:
            self.parent[key], self.used[key], self.size[key] = parent, now, size
        self.raise_ancestors(key, now)
        for other in sorted(self.used, key=self.used.__getitem__):
            self.raise_ancestors(other, self.used[other])

    def discard(self, key: bytes) -> None:
        for table in (self.parent, self.used, self.size):
            table.pop(key, None)

    def oldest_leaf(self, keep: bytes | None) -> bytes | None:
        parents = {self.parent[key] for key in self.used}
        leaves = [(used, key) for key, used in self.used.items() if key not in parents and key != keep]
        return min(leaves)[1] if leaves else None

    def descendants(self, key: bytes) -> set[bytes]:
        found: set[bytes] = set()
        while more := {k for k, p in self.parent.items() if p in found | {key}} - found:
            found |= more
        return found


# A forest: the parent of node n is a node with a smaller number, or none.
FOREST = [None, 0, 1, 2, 1, 4, None, 6, 6, 8, 0, 10]
KEYS = [bytes([number]) for number in range(len(FOREST))]
PARENTS = [None if parent is None else KEYS[parent] for parent in FOREST]

numbers = st.integers(0, len(FOREST) - 1)
acts = st.lists(
    st.one_of(
        st.tuples(st.just("add"), numbers, st.integers(0, 3)),
        st.tuples(st.just("use"), numbers, st.integers(0, 3)),
        st.tuples(st.just("discard"), numbers, st.just(0)),
        st.tuples(st.just("evict"), numbers, st.just(0)),
    ),
    max_size=60,
)


@given(acts)
def test_as_brute_force(chosen: list[tuple[str, int, int]]) -> None:
    order, oracle = LeafFirst(), Oracle()
    now = 0
    for act, number, ahead in chosen:
        key = KEYS[number]
        now += ahead
        if act == "add":
            order.add(key, PARENTS[number], number + 1, now)
            oracle.add(key, PARENTS[number], number + 1, now)
        elif act == "use" and key in order:
            order.use(key, now)
            oracle.raise_ancestors(key, now)
        elif act == "discard":
            order.discard(key)
            oracle.discard(key)
        elif act == "evict":
            leaf = order.oldest_leaf()
            assert oracle.oldest_leaf(None) == leaf
            if leaf is not None:
                order.discard(leaf)
                oracle.discard(leaf)
        assert set(oracle.used) == set(order)
        assert oracle.used == {key: order.used(key) for key in order}
        assert sum(oracle.size.values()) == order.total
        assert oracle.oldest_leaf(key) == order.oldest_leaf(key)
        assert oracle.oldest_leaf(None) == order.oldest_leaf()
        assert oracle.descendants(key) == set(order.descendants(key))


def test_use_tells_what_it_renewed() -> None:
    order = LeafFirst()
    order.add(b"a", None, 1, 1)
    order.add(b"b", b"a", 1, 5)
    order.add(b"c", b"a", 1, 6)
    assert [b"b"] == order.use(b"b", 6)
    assert [b"b", b"a"] == order.use(b"b", 7)
    assert [] == order.use(b"b", 7)


def test_blocks_that_name_each_other_as_parents_hang_nobody() -> None:
    order = LeafFirst()
    order.add(b"a", b"b", 1, 1)
    order.add(b"b", b"a", 1, 2)
    assert {b"a", b"b"} == set(order.descendants(b"a"))
    assert order.oldest_leaf() is None


def test_stale_pairs_do_not_pile_up() -> None:
    order = LeafFirst()
    order.add(b"a", None, 1, 0)
    for now in range(10_000):
        order.use(b"a", now)
    assert len(order._leaves) < 100
