from weakref import WeakSet

import pytest

from prefold.core import radix
from prefold.core.keys import SHARED, Scope
from prefold.core.radix import Insertion, Leaves, Match, Node, RadixTree
from prefold.core.tokens import pack

from .support import run

A, B = Scope(salt="a"), Scope(salt="b")


class Tree(RadixTree[str]):
    """A tree of characters whose values are the characters that they stand for."""

    def __init__(self) -> None:
        super().__init__("", lambda value, length: (value[:length], value[length:]))
        self.clock = 0

    def add(self, text: str, scope: Scope = SHARED) -> Insertion[str]:
        self.clock += 1
        insertion = self.insert(run(text), scope, lambda start, stop: text[start:stop], self.clock)
        self.touch(insertion.node, self.clock)
        return insertion

    def look(self, text: str, scope: Scope = SHARED) -> Match[str]:
        return self.peek(run(text), scope)

    def known(self, text: str, scope: Scope = SHARED) -> int:
        return self.look(text, scope).length


def paths(tree: Tree) -> set[str]:
    return {"/".join(part.value for part in node.path()) for node in tree.nodes()}


def state(tree: Tree) -> list[object]:
    return sorted((node.start, node.run, node.value, node.pins, node.used, str(node.edge)) for node in tree.nodes())


def test_an_empty_tree_knows_nothing() -> None:
    tree = Tree()
    assert 0 == tree.known("abc")
    assert 0 == tree.known("")
    assert 0 == tree.size


def test_insert_says_how_much_existed_and_what_is_new() -> None:
    tree = Tree()
    first = tree.add("abcd")
    assert (0, ["abcd"], None) == (first.existed, [node.value for node in first.added], first.head)
    second = tree.add("abxy")
    assert (2, ["xy"], "ab") == (second.existed, [node.value for node in second.added], second.head.value)
    again = tree.add("abcd")
    assert (4, [], None) == (again.existed, [node.value for node in again.added], again.head)
    assert first.node is again.node
    assert 6 == tree.size


def test_a_sequence_ends_on_a_nodes_end() -> None:
    tree = Tree()
    tree.add("abcd")
    inner = tree.add("ab")
    assert (2, 2) == (inner.existed, inner.node.stop)
    assert {"ab", "ab/cd"} == paths(tree)


def test_a_split_cuts_values_where_sequences_part() -> None:
    tree = Tree()
    for text in ("abcdef", "abcxyz", "abq", "zzz"):
        tree.add(text)
    assert {"ab", "ab/c", "ab/c/def", "ab/c/xyz", "ab/q", "zzz"} == paths(tree)
    assert {(0, 2), (2, 3), (3, 6), (0, 3)} == {(node.start, node.stop) for node in tree.nodes()}


def test_the_node_that_ends_at_a_position_is_found_from_below_or_made() -> None:
    tree = Tree()
    tree.add("ab")
    leaf = tree.add("abcdef").node
    tree.pin(leaf)
    assert leaf is tree.ending(leaf, 6)
    assert "ab" == tree.ending(leaf, 2).value
    assert tree.root is tree.ending(leaf, 0) is tree.ending(tree.root, 0)
    assert {"ab", "ab/cdef"} == paths(tree)
    assert ("cde", 1) == (tree.ending(leaf, 5).value, tree.ending(leaf, 5).pins)
    assert "a" == tree.ending(leaf, 1).value
    assert {"a", "a/b", "a/b/cde", "a/b/cde/f"} == paths(tree)
    assert (6, "f") == (leaf.stop, leaf.value)


def test_a_match_may_end_inside_a_node() -> None:
    tree = Tree()
    node = tree.add("abcd").node
    match = tree.look("abz")
    assert (2, node) == (match.length, match.node)
    assert 2 < node.stop


def test_whoever_holds_a_node_still_holds_its_end_after_a_split() -> None:
    tree = Tree()
    held = tree.add("abcd").node
    tree.pin(held)
    tree.add("abxy")
    assert ("cd", 4) == (held.value, held.stop)
    assert {"ab": 1, "cd": 1, "xy": 0} == {node.value: node.pins for node in tree.nodes()}
    assert 4 == tree.pinned
    tree.unpin(held)
    assert {0} == {node.pins for node in tree.nodes()}
    assert 0 == tree.pinned


def test_pins_count_and_reach_up_to_the_root() -> None:
    tree = Tree()
    inner, outer = tree.add("ab").node, tree.add("abcd").node
    tree.pin(outer)
    tree.pin(outer)
    tree.pin(inner)
    assert (3, 2) == (inner.pins, outer.pins)
    assert 4 == tree.pinned
    tree.unpin(outer)
    tree.unpin(outer)
    assert (1, 0) == (inner.pins, outer.pins)
    assert 2 == tree.pinned
    with pytest.raises(ValueError, match=r"2\.\.4 is not pinned"):
        tree.unpin(outer)


def test_the_root_can_be_held_by_those_who_hold_nothing() -> None:
    tree = Tree()
    tree.pin(tree.root)
    tree.unpin(tree.root)
    assert 0 == tree.pinned


def test_peek_changes_nothing() -> None:
    tree = Tree()
    for text, scope in (("abcd", SHARED), ("abxy", A), ("abxy", Scope("a", 2))):
        tree.add(text, scope)
    before = state(tree)
    for text in ("", "a", "abc", "abcd", "abcde", "abxy", "q"):
        for scope in (SHARED, A, B, Scope("a", 2), Scope(namespace="n")):
            tree.look(text, scope)
    assert before == state(tree)


def test_touch_renews_a_node_and_its_ancestors_alone() -> None:
    tree = Tree()
    tree.add("abcd")
    tree.add("abxy")
    tree.touch(tree.look("abcd").node, 7)
    assert {"ab": 7, "cd": 7, "xy": 2} == {node.value: node.used for node in tree.nodes()}


def test_salts_share_nothing_with_each_other_or_with_none() -> None:
    tree = Tree()
    for scope in (SHARED, A, B):
        assert 0 == tree.known("abcd", scope)
        assert 0 == tree.add("abcd", scope).existed
        assert 4 == tree.known("abcd", scope)
    assert 12 == tree.size


def test_a_salt_may_begin_at_a_position() -> None:
    tree = Tree()
    at_two = Scope(salt="a", salt_from=2)
    tree.add("abcd", at_two)
    assert {"ab", "ab/cd"} == paths(tree)
    assert 4 == tree.known("abcd", at_two)
    assert 2 == tree.known("abcd"), "public up to the salt"
    assert 2 == tree.known("abcd", Scope(salt="b", salt_from=2)), "not another tenant's"
    assert 0 == tree.known("abcd", A), "nor the same tenant's if all of it is private"
    assert 1 == tree.known("abcd", Scope(salt="a", salt_from=1))
    assert 2 == tree.known("abcd", Scope(salt="a", salt_from=3))


def test_a_salted_request_uses_what_is_public_before_its_salt_and_no_more() -> None:
    tree = Tree()
    tree.add("abcd")
    at_two = Scope(salt="a", salt_from=2)
    assert 2 == tree.known("abcd", at_two)
    insertion = tree.add("abcd", at_two)
    assert (2, "ab") == (insertion.existed, insertion.head.value)
    assert 6 == tree.size
    assert 4 == tree.known("abcd")


def test_a_salt_that_begins_behind_the_end_keeps_nothing_private() -> None:
    tree = Tree()
    tree.add("abcd", Scope(salt="a", salt_from=4))
    assert 4 == tree.known("abcd")


def test_new_tokens_on_both_sides_of_a_salt_get_a_node_and_a_value_each() -> None:
    tree = Tree()
    insertion = tree.add("abcde", Scope(salt="a", salt_from=3))
    assert ["abc", "de"] == [node.value for node in insertion.added]
    assert 5 == insertion.node.stop


def test_namespaces_share_nothing() -> None:
    tree = Tree()
    other = Scope(namespace="other model")
    tree.add("abcd")
    assert 0 == tree.add("abcd", other).existed
    assert 4 == tree.known("abcd", other)
    assert 0 == tree.known("abcd", Scope(namespace="third"))
    assert 0 == tree.known("abcd", Scope(salt="other model"))


def test_a_salt_works_inside_a_namespace() -> None:
    tree = Tree()
    private = Scope(salt="a", salt_from=2, namespace="n")
    tree.add("abcd", private)
    assert [4, 2, 0] == [tree.known("abcd", scope) for scope in (private, Scope(namespace="n"), SHARED)]
    tree.add("abcd", Scope(salt="a", namespace="n"))
    assert 8 == tree.size


def test_truncate_cuts_the_tail_of_a_leaf() -> None:
    tree = Tree()
    leaf = tree.add("abcd").node
    assert "d" == tree.truncate(leaf, 3)
    assert ("abc", 3, 3) == (leaf.value, leaf.stop, tree.size)
    assert 3 == tree.known("abcd")


def test_truncate_removes_a_leaf_and_leaves_its_parent_to_be_next() -> None:
    tree = Tree()
    tree.add("ab")
    leaf = tree.add("abcd").node
    assert [leaf] == list(tree.leaves)
    assert "cd" == tree.truncate(leaf, 0)
    assert {"ab"} == paths(tree)
    assert ["ab"] == [node.value for node in tree.leaves]


def test_truncate_refuses_pinned_inner_gone_and_short_nodes() -> None:
    tree = Tree()
    inner, leaf = tree.add("ab").node, tree.add("abcd").node
    tree.pin(leaf)
    before = state(tree)
    for node, keep in ((leaf, 0), (leaf, 1), (inner, 0), (tree.root, 0)):
        with pytest.raises(ValueError, match="pinned, inner, gone"):
            tree.truncate(node, keep)
    tree.unpin(leaf)
    for keep in (2, 3, -1):
        with pytest.raises(ValueError, match="not longer than"):
            tree.truncate(leaf, keep)
    tree.pin(leaf)
    assert before == state(tree)
    tree.unpin(leaf)
    tree.truncate(leaf, 0)
    with pytest.raises(ValueError, match="gone"):
        tree.truncate(leaf, 0)


def test_leaves_come_in_order_of_last_use() -> None:
    tree = Tree()
    for text in ("ax", "ay", "b", "ax"):
        tree.add(text)
    gone = []
    while (leaf := tree.leaves.oldest()) is not None:
        gone.append(tree.truncate(leaf, 0))
    assert ["y", "b", "x", "a"] == gone
    assert 0 == tree.size


def test_a_pinned_leaf_waits_and_keeps_its_place_in_the_order() -> None:
    tree = Tree()
    nodes = [tree.add(text).node for text in "abc"]
    tree.pin(nodes[0])
    assert "b" == tree.leaves.oldest().value
    assert {"b", "c"} == {leaf.value for leaf in tree.leaves}
    tree.unpin(nodes[0])
    assert "a" == tree.leaves.oldest().value


def test_what_is_removed_out_of_order_is_not_kept_in_memory() -> None:
    # Where requests are cancelled and nothing is ever evicted, removed leaves are never the oldest.
    class Value:
        pass

    alive: WeakSet[Value] = WeakSet()

    def make_value(start: int, stop: int) -> Value:
        value = Value()
        alive.add(value)
        return value

    tree: RadixTree[Value | None] = RadixTree(None, lambda value, length: (value, value))
    tree.insert(run("first"), SHARED, make_value, 0)
    for index in range(1000):
        tree.truncate(tree.insert(pack([1000 + index]), SHARED, make_value, index).node, 0)
    assert 1 == len(list(tree.leaves))
    assert len(alive) <= 3


class CountingChildren(dict[radix.Edge, Node[str]]):
    """Children that count how often one is looked up."""

    lookups = 0

    def get(self, *arguments):
        type(self).lookups += 1
        return super().get(*arguments)


@pytest.mark.parametrize("siblings", [2, 10, 1000])
def test_nodes_visited_do_not_grow_with_siblings(siblings: int) -> None:
    tree = Tree()
    requests = [run("system prompt, ") + pack([1000 + index]) + run("question") for index in range(siblings)]
    for request in requests:
        tree.insert(request, SHARED, lambda start, stop: "x" * (stop - start), 1)
    for node in (tree.root, *tree.nodes()):
        node.children = CountingChildren(node.children)
    CountingChildren.lookups = 0
    assert 24 == tree.peek(requests[0], SHARED).length
    assert 2 == CountingChildren.lookups


def test_an_empty_tree_has_no_leaf() -> None:
    assert Leaves[None]().oldest() is None
