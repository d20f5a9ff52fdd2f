"""Fixes applied to a text."""

from hypothesis import given
from hypothesis import strategies as st

from prefold.lint.findings import Finding, Replacement
from prefold.lint.fixes import difference, fixed


def finding(*fix: tuple[int, int, str]) -> Finding:
    return Finding("PF201", "", "f", 0, 1, "", fix=tuple(Replacement(*item) for item in fix))


def test_replacements_are_applied_from_the_end() -> None:
    new = fixed("abcdef", [finding((0, 1, "A")), finding((4, 6, ""), (2, 3, "CCC"))])
    assert ("AbCCCd", 2) == (new.text, new.count)


def test_of_two_that_touch_the_first_is_applied() -> None:
    new = fixed("abcdef", [finding((0, 3, "X")), finding((2, 4, "Y")), finding((5, 6, "Z"))])
    assert ("XdeZ", 2) == (new.text, new.count)


def test_the_same_replacement_twice_is_applied_once() -> None:
    new = fixed("f(a)", [finding((3, 3, ", b")), finding((3, 3, ", b"))])
    assert ("f(a, b)", 2) == (new.text, new.count)


def test_python_stays_python() -> None:
    new = fixed("f(a)", [finding((3, 4, "")), finding((2, 3, "b"))], is_python=True)
    assert ("f(b)", 1) == (new.text, new.count)


def test_one_bad_fix_among_many_leaves_the_others() -> None:
    lines = 2000
    text = "f(a)\n" * lines
    good = [finding((5 * line + 2, 5 * line + 3, "b")) for line in range(lines) if line != 700]
    bad = finding((5 * 700 + 3, 5 * 700 + 4, ""))
    new = fixed(text, [*good[:300], bad, *good[300:]], is_python=True)
    assert lines - 1 == new.count
    assert "f(b)\n" * 700 + "f(a)\n" + "f(b)\n" * 1299 == new.text


@given(st.text(max_size=30), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), st.text(max_size=3))))
def test_what_is_not_replaced_stays(text: str, edits: list[tuple[int, int, str]]) -> None:
    inside = [(start, min(len(text), start + length), new) for start, length, new in edits if start <= len(text)]
    new = fixed(text, [finding(edit) for edit in inside])
    removed = sum(end - start for start, end, _ in inside)
    assert len(text) - removed <= len(new.text)
    assert new.count <= len(inside)


def test_difference() -> None:
    assert "--- f\n+++ f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n" == difference("a", "b\n", "f")
