"""What cannot be seen, made visible."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.prompts.invisible import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words", "plain words"),
        ("a  b", "a··b"),
        (" a ", "·a·"),
        ("a\nb\r\n\tc", "a⏎b␍⏎⇥c"),
        ("a \nb", "a·⏎b"),
        ("a\u00a0b", "a⍽b"),
        ("a\u200bb", "a<U+200B>b"),
        ("e\u0301 and é", "e<U+0301> and é"),
        ("中文", "中文"),
        ("", ""),
    ],
)
def test_form(text: str, shown: str) -> None:
    assert shown == visible(text)


@given(st.text())
def test_one_line_that_can_be_printed(text: str) -> None:
    assert all(letter.isprintable() for letter in visible(text))
