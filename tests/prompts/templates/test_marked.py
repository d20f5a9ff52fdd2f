"""Parts of a rendered text are found where the template wrote them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.prompts.paths import Path
from prefold.prompts.templates.marked import locate

A, B, C = Path.of("a"), Path.of("b"), Path.of("c")


def found(render: Any) -> list[tuple[str, str, str]]:
    """The parts of what `render` makes: path, what stands before it, and itself."""
    text = render(lambda _, value: value)
    pieces = locate(text, render)
    return [
        (str(piece.path), text[piece.start : piece.header_end], text[piece.header_end : piece.end]) for piece in pieces
    ]


def test_parts_are_not_taken_for_the_templates_words():
    assert [("a", "user: ", "user"), ("b", "\nuser: ", "s")] == found(
        lambda write: f"user: {write(A, 'user')}\nuser: {write(B, 's')}\n"
    )


def test_parts_may_come_in_another_order_twice_or_not_at_all():
    def render(write: Any) -> str:
        first, _, third = write(A, "one"), write(B, "two"), write(C, "three")
        return f"{third} {first} {third}"

    assert [("c", "", "three"), ("a", " ", "one")] == found(render)


def test_a_template_may_trim():
    assert [("a", "<", "one"), ("b", "> <", "two")] == found(
        lambda write: f"<{write(A, ' one ').strip()}> <{write(B, 'two').strip()}>"
    )


def test_a_template_may_take_away_the_beginning():
    thought = "<think>Why?\nBecause.</think>\n\nYes."
    assert [("a", "A: <b>", "Yes.")] == found(lambda write: "A: <b>" + write(A, thought).split("</think>")[-1].lstrip())


def test_a_template_may_take_away_the_end():
    assert [("a", "", "Long"), ("b", " ... ", "rest")] == found(
        lambda write: f"{write(A, 'Long|text').split('|')[0]} ... {write(B, 'rest')}"
    )


@pytest.mark.parametrize("position", range(3))
def test_a_template_may_look_at_a_part(position):
    """A part that the template tests for stays without marks, and still is found between the others."""
    words = ["a", "a", "a"]
    words[position] = "<result>"

    def render(write: Any) -> str:
        written = [write(path, word) for path, word in zip((A, B, C), words, strict=True)]
        return "".join(f"a{'!' if word.startswith('<result>') else '?'}{word}" for word in written)

    headers = ["a!" if word == "<result>" else "a?" for word in words]
    assert list(zip("abc", headers, words, strict=True)) == found(render)


TOOL = {"name": "f", "description": "Does {this}.", "parameters": {"type": "object", "required": []}}


@pytest.mark.parametrize("indent", [None, 2, 4])
def test_json_is_found_as_a_whole(indent):
    def render(write: Any) -> str:
        tool = {"type": "function", "function": write(A, TOOL)}
        return "Tools: " + json.dumps(tool, indent=indent, ensure_ascii=False)

    ((path, _, written),) = found(render)
    assert ("a", TOOL) == (path, json.loads(written))


def test_json_in_the_templates_own_words_is_found_from_its_first_text_to_its_last():
    def render(write: Any) -> str:
        tool = write(A, TOOL)
        return f"{{ {tool['name']}: {tool['description']} ({tool['parameters']['type']}) }}"

    assert [("a", "{ ", "f: Does {this}. (object")] == found(render)


def test_json_without_texts_is_not_found():
    assert [] == found(lambda write: json.dumps(write(A, {"n": 1})))


def test_texts_that_hold_marks_are_looked_for():
    odd = "x\U000f0000y\U00100000z"
    assert [("a", "1: ", odd), ("b", "\n2: ", "two")] == found(
        lambda write: f"1: {write(A, odd)}\n2: {write(B, 'two')}"
    )


UNMARKED = st.text(st.characters(exclude_categories=["Cs", "Co"]), max_size=20)  # private use is what marks are made of


@given(st.lists(UNMARKED, max_size=6), UNMARKED)
def test_every_part_is_where_it_was_written(texts, between):
    def render(write: Any) -> str:
        return between.join(write(Path.of(index), text) for index, text in enumerate(texts))

    text = render(lambda _, value: value)
    pieces = locate(text, render)
    expected = [part for part in texts if part.strip()]
    assert expected == [text[piece.header_end : piece.end] for piece in pieces]
    assert [piece.start for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
