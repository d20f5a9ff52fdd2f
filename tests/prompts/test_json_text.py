"""JSON that keeps its bytes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.errors import InvalidRequest
from prefold.prompts.json_text import JsonText
from prefold.prompts.paths import Path

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)
SPACES = st.text(" \t\n\r", max_size=2)


@st.composite
def documents(draw: st.DrawFn, values: st.SearchStrategy[object] = VALUES) -> str:
    """A value as JSON with white space anywhere it may be, and any escapes."""

    def write(value: object) -> str:
        before, after = draw(SPACES), draw(SPACES)
        if isinstance(value, dict):
            members = (f"{draw(SPACES)}{write(key)}:{write(item)}" for key, item in value.items())
            text = "{" + ",".join(members) + draw(SPACES) + "}"
        elif isinstance(value, list):
            text = "[" + ",".join(write(item) for item in value) + draw(SPACES) + "]"
        else:
            text = json.dumps(value, ensure_ascii=draw(st.booleans()))
        return before + text + after

    return write(draw(values))


def every_path(value: object, path: Path) -> list[tuple[Path, object]]:
    found = [(path, value)]
    if isinstance(value, dict):
        found += [pair for key, item in value.items() for pair in every_path(item, path / key)]
    elif isinstance(value, list):
        found += [pair for index, item in enumerate(value) for pair in every_path(item, path / index)]
    return found


@given(documents())
def test_spans_are_where_the_values_are(source: str) -> None:
    document = JsonText.parse(source)
    for path, value in every_path(document.value, Path()):
        start, end = document.span(path)
        assert value == json.loads(source[start:end])
        assert source[start:end] == source[start:end].strip()


@given(documents(), VALUES)
def test_any_other_value_can_take_its_place(source: str, value: object) -> None:
    assert value == json.loads(JsonText.parse(source).with_value(value).source)


@given(documents(), st.data())
def test_a_change_leaves_all_other_bytes_alone(source: str, data: st.DataObject) -> None:
    document = JsonText.parse(source)
    path, _ = data.draw(st.sampled_from(every_path(document.value, Path())))
    start, end = document.span(path)
    changed = document.with_value(path.set(document.value, ["changed"]))
    text = changed.source
    assert source[:start] == text[:start]
    assert source[end:] == text[len(text) - (len(source) - end) :]
    assert ["changed"] == path.get(json.loads(text))


def test_moved_items_take_their_text_along() -> None:
    document = JsonText.parse('{ "tools": [ {"b" : 1e5},\n {"a":"\\u00e9"} ] , "x":1.50}')
    tools = document.value["tools"]
    moved = document.with_value({**document.value, "tools": tools[::-1]})
    assert '{ "tools": [ {"a":"\\u00e9"},\n {"b" : 1e5} ] , "x":1.50}' == moved.source


def test_added_and_removed_members() -> None:
    document = JsonText.parse('{"a":[1.50,2,3],"b":{"c" : "\\u4f60"}}')
    value = document.value
    assert '{"b":{"c" : "\\u4f60"},"d":true}' == document.with_value({"b": value["b"], "d": True}).source
    assert '{"a":[1.50,3],"b":{"c" : "\\u4f60"}}' == document.with_value({**value, "a": value["a"][::2]}).source


def test_of_two_members_with_one_name_the_last_counts() -> None:
    document = JsonText.parse('{"a": 1, "a": [2]}')
    assert '{"a": [3]}' == document.with_value({"a": [3]}).source
    assert (14, 17) == document.span(Path.of("a"))


def test_half_of_a_surrogate_pair_stays_an_escape() -> None:
    document = JsonText.parse('{"a": "é"}')
    assert '{"a": "\\ud83d"}' == document.with_value({"a": "\ud83d"}).source


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('{"a": 1,\n "b" 2}', "line 2, column 6"),
        ('{"a": "unfinished', "line 1, column 7"),
        ('{"a": 1} {"b": 2}', "Extra data in line 1, column 10"),
        ("[" * 100_000, "nested too deeply"),
        ('{"n": ' + "9" * 5000 + "}", "cannot be read"),
    ],
)
def test_faults_say_where(source: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        JsonText.parse(source)


def test_a_value_that_is_no_json() -> None:
    with pytest.raises(InvalidRequest, match="Object of type set"):
        JsonText.of({"a": {1}})
