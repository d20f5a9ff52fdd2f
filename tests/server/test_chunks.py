"""Chunks of messages in rendered text, and their tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.core.tokens import unpack
from prefold.errors import InvalidRequest
from prefold.server.chunks import Range, ranges_in_rendered, tokens_of_text


def render(messages):
    """A template that trims, as many do."""
    return "".join(f"<{message['role']}>{(message.get('content') or '').strip()}</>\n" for message in messages)


def test_chunks_are_found_where_a_template_puts_them():
    messages = [{"role": "system", "content": None}, {"role": "user", "content": "  one two three\n"}]
    ranges = [[], [Range(0, 6), Range(10, 16)]]
    text = render(messages)
    found = ranges_in_rendered(messages, ranges, text, render)
    assert ["one", "three"] == [text[chunk.start : chunk.stop] for chunk in found]


def test_private_characters_in_a_prompt_stay():
    messages = [{"role": "user", "content": "\ue000one\ue001 two"}]
    text = render(messages)
    (found,) = ranges_in_rendered(messages, [[Range(0, 5)]], text, render)
    assert "\ue000one\ue001" == text[found.start : found.stop]


@pytest.mark.parametrize(
    "template",
    [
        lambda messages: messages[0]["content"] * 2,
        lambda messages: messages[0]["content"][::-1],
        lambda messages: messages[0]["content"][:4],
        lambda messages: f"{len(messages[0]['content'])}{messages[0]['content']}",
        lambda messages: ascii(messages[0]["content"]),
        lambda messages: "nothing" if messages else "",
    ],
)
def test_a_template_that_rewrites_contents_is_refused(template):
    messages = [{"role": "user", "content": "one two three"}]
    with pytest.raises(InvalidRequest, match="template"):
        ranges_in_rendered(messages, [[Range(4, 7)]], template(messages), template)


WORDS = st.text("ab é\n漢", min_size=1, max_size=12).filter(str.strip)


@given(st.lists(st.tuples(st.text("x \n", max_size=4), WORDS), min_size=1, max_size=5), st.text("?\n ", max_size=5))
def test_a_chunk_has_the_same_tokens_wherever_it_stands(model, parts, rest):
    text, ranges = "", []
    for before, chunk in parts:
        text += before
        ranges.append(Range(len(text), len(text) + len(chunk)))
        text += chunk
    text += rest
    pieces = tokens_of_text(text, ranges, model.encode, begins_itself=False)
    ids = unpack(pieces.run)
    for (_, chunk), (start, stop) in zip(parts, pieces.chunks, strict=True):
        assert model.tokenizer.encode(chunk.strip(), add_special=False) == ids[start:stop]
    assert text == model.tokenizer.decode(ids)


def test_what_a_model_expects_before_a_text_comes_once():
    def encode(text, *, add_special):
        return b"BOS." * add_special + b"".join(letter.encode() * 4 for letter in text)

    pieces = tokens_of_text("ab", [Range(0, 1)], encode, begins_itself=False)
    assert (b"BOS.aaaabbbb", ((1, 2),)) == (pieces.run, pieces.chunks)
    assert b"aaaabbbb" == tokens_of_text("ab", [Range(0, 1)], encode, begins_itself=True).run
    assert b"BOS.aaaabbbb" == tokens_of_text("ab", [], encode, begins_itself=False).run
