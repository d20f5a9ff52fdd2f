"""Where the characters of a JSON string's value lie."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.lint.places import Place, Spans
from prefold.prompts.json_text import JsonText
from prefold.prompts.paths import Path


@given(st.text(alphabet=st.sampled_from('a"\\\n\t\x01é你😀/'), min_size=1), st.booleans())
def test_each_character_is_found_in_the_literal(value: str, ascii_only: bool) -> None:
    literal = json.dumps(value, ensure_ascii=ascii_only)
    place = Place().within_string(0, literal)
    ends = [*(place.at(index) for index in range(1, len(value))), len(literal) - 1]
    starts = [place.at(index) for index in range(len(value))]
    assert list(value) == [json.loads(f'"{literal[start:end]}"') for start, end in zip(starts, ends, strict=True)]


def test_a_string_in_a_string() -> None:
    inner = json.dumps({"text": "a\nb"})
    outer = json.dumps({"body": inner})
    start = outer.index('"{')
    place = Place(100).within_string(start, outer[start:-1])
    text = place.within_string(inner.index('"a'), '"a\\nb"')
    assert outer.index('b\\"}') + 100 == text.at(2)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_every_value_is_found(value: object, indent: int | None, has_mark: bool) -> None:
    source = ("\ufeff" if has_mark else "") + json.dumps(value, indent=indent) + " \n"
    spans, document = Spans(source), JsonText.parse(source)
    waiting = [Path()]
    while waiting:
        path = waiting.pop()
        assert document.span(path) == spans.of(path)
        found = path.get(value)
        steps = found if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else ()
        waiting += [path / step for step in steps]


def test_a_value_that_is_not_there() -> None:
    with pytest.raises(LookupError):
        Spans('{"a": [1]}').of(Path.of("a", 1))
