"""Paths in a body."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.errors import UsageError
from prefold.prompts.paths import Path

STEPS = st.lists(st.text() | st.integers(min_value=0, max_value=10**6), max_size=5)


@given(STEPS)
def test_reads_what_it_writes(steps: list[str | int]) -> None:
    assert Path(tuple(steps)) == Path.parse(str(Path(tuple(steps))))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (Path.of("messages", 2, "content", 0), "messages[2].content[0]"),
        (Path.of("tools", 0, "input_schema"), "tools[0].input_schema"),
        (Path.of("a b", "c.d", 0), '["a b"]["c.d"][0]'),
        (Path.of("工具", 0), "工具[0]"),
        (Path(), ""),
    ],
)
def test_form(path: Path, text: str) -> None:
    assert text == str(path)


@pytest.mark.parametrize("text", ["a..b", ".a", "a[", "a[x]", "a b", "[-1]"])
def test_texts_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="is not a path"):
        Path.parse(text)


def test_get_and_set() -> None:
    value = {"a": [{"b": 1}, {"c": 2}], "d": {}}
    path = Path.of("a", 0, "b")
    changed = path.set(value, 7)
    assert 1 == path.get(value)
    assert {"a": [{"b": 7}, {"c": 2}], "d": {}} == changed
    assert value["a"][1] is changed["a"][1]
    assert value["d"] is changed["d"]
    assert {"b": 1, "z": 2} == Path.of("z").set({"b": 1}, 2)


@pytest.mark.parametrize("path", [Path.of("a", 5), Path.of("x", 0), Path.of("a", "b"), Path.of("t", 0)])
def test_places_that_are_not_there(path: Path) -> None:
    value = {"a": [1], "t": "text"}
    with pytest.raises(LookupError):
        path.get(value)
    with pytest.raises(LookupError):
        path.set(value, 1)
