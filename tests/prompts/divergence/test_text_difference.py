"""How two texts differ at the first place where they do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.prompts.causes import CAUSES
from prefold.prompts.divergence.text_difference import are_alike, common_suffix, masked, shared_rest, text_cause
from prefold.prompts.sequences import common_length

TEXTS = st.text(st.sampled_from("ab 1.\n\u200b日"), max_size=12)


@given(TEXTS, TEXTS)
def test_common_length_is_that_of_the_definition(one: str, other: str) -> None:
    brute = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    assert brute == common_length(one, other)
    assert brute == common_length(list(one), list(other))


@given(TEXTS, TEXTS, st.integers(min_value=0, max_value=12))
def test_common_suffix_is_that_of_the_definition(one: str, other: str, limit: int) -> None:
    limit = min(limit, len(one), len(other))
    assert common_suffix(one, other, limit) == min(limit, common_length(one[::-1], other[::-1]))


def test_common_length_of_long_texts() -> None:
    text = "x" * 100_000
    assert 70_001 == common_length(text, text[:70_001] + "y" + text)


@given(TEXTS, TEXTS)
def test_every_difference_has_a_cause(one: str, other: str) -> None:
    if one != other:
        assert text_cause(one, other) in CAUSES


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        ("limit 10.0 EUR", "limit 10 EUR", "number_format"),
        ("limit 1,000 EUR", "limit 1000 EUR", "number_format"),
        ("limit 10 EUR", "limit 11 EUR", "text_edit"),
        ("items 1,2 now", "items 12 now", "text_edit"),  # a list, not a number
        ("a b", "a  b", "whitespace"),
        ("end", "end ", "whitespace"),
        ("caf\u00e9 au lait", "cafe\u0301 au lait", "whitespace"),
        ("at 10:15 sharp", "at 10:16 sharp", "clock"),
        ("on Monday", "on Friday", "clock"),
        ("现在是上午九点五十九分", "现在是上午十点零一分", "clock"),
        ("key 7f3a9c", "key 21be04", "identifier"),
        ("version 1.2.3", "version 1.2.4", "text_edit"),
        ("a\nb\nc\nd", "b\na\nc\nd", "block_order"),
        ("<s>[INST] a", "<s><s>[INST] a", "bos"),
        ("[INST] a", "<s>[INST] a", "bos"),
        ("one two three four five six seven", "one two three four", "truncation"),
        ("one two three four five six seven", "one two three…", "truncation"),
        ("kind words", "brief words", "text_edit"),
    ],
)
def test_causes(before: str, after: str, cause: str) -> None:
    assert cause == text_cause(before, after)


def test_masked_texts_are_equal_but_for_what_changes() -> None:
    assert masked("At 10:15 by 3f2b8f1e-0c1d-4a1b-9d7e-1f0a8f6f2b11.") == masked(
        "At 11:27 by 9c1d7a2e-77aa-4a1b-8d7e-2f0a8f6f2b55."
    )
    assert masked("At 10:15.") != masked("Until 10:15.")


def test_alike() -> None:
    assert are_alike("a long text with an end", "a long text with one end")
    assert not are_alike("a text", "other words")


def test_shared_rest_counts_bytes_that_come_again() -> None:
    rest = "these words are in both of the texts, behind the place. " * 8
    assert shared_rest("X" + rest, "YY" + rest, 0) > len(rest) * 0.7
    assert 0 == shared_rest("X" + rest, "nothing of it", 0)
    chinese = "这些字在两段文字里都有,都在这个位置的后面。" * 8
    assert shared_rest("甲" + chinese, "乙" + chinese, 0) > 2 * len(chinese)
