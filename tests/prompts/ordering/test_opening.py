"""Units of an opening."""

import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.prompts.ordering.opening import Openings, split_question
from prefold.prompts.prompt import Prompt


def units(system: str) -> list[str]:
    value = {"model": "m", "messages": [{"role": "system", "content": system}, {"role": "user", "content": "Hello."}]}
    return [unit.text for unit in Openings().units(Prompt.of(value))]


@given(st.text(alphabet=st.sampled_from("abcA.。 \n1:?\t"), max_size=60))
def test_units_are_the_text(system: str) -> None:
    assert system == "".join(units(system))


@given(st.text(alphabet=st.sampled_from("abc \n"), max_size=40))
def test_a_prompt_is_what_comes_before_the_question_and_that(text: str) -> None:
    assert text == "".join(split_question(text))


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("One.\nTwo.\n\nThree", ["One.\n", "Two.\n\n", "Three"]),
        ("\n\nOne.\n", ["\n\nOne.\n"]),
        ("You help people. Today is Monday. Be kind.", ["You help people. ", "Today is Monday. ", "Be kind."]),
        ("It is Nov. 5, 2026. Ask Dr. Smith.", ["It is Nov. 5, 2026. ", "Ask Dr. Smith."]),
        (
            "See e.g. the list. It costs 3.50 or 4. Then go.",
            ["See e.g. the list. ", "It costs 3.50 or 4. ", "Then go."],
        ),
        ("你是客服。今天是11月1日。请回答。", ["你是客服。", "今天是11月1日。", "请回答。"]),
        ("他说：“好。”然后走了。", ["他说：“好。”然后走了。"]),
        ("Zurück gehört. Über alles.", ["Zurück gehört. ", "Über alles."]),
        ("", []),
    ],
)
def test_lines_and_sentences(system: str, expected: list[str]) -> None:
    assert expected == units(system)


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("1. Be kind.\n2. Now: noon.\n", ["1. Be kind.\n", "2. Now: noon.\n"]),
        ("- Be kind. Be brief.\n\n Then go.", ["- Be kind. Be brief.\n\n", " Then go."]),
        ("a) One.\n  More of it.\n  - Two.\n", ["a) One.\n  More of it.\n", "  - Two.\n"]),
        ("(1.2) One. Two.\nThree.", ["(1.2) One. Two.\n", "Three."]),
        ("## 1. Be kind.\nStep 2. Go there. Stop.", ["## 1. Be kind.\n", "Step 2. Go there. ", "Stop."]),
        ("Rules: 1. Be kind. Be brief.", ["Rules: 1. Be kind. ", "Be brief."]),
        ("It is 10. Be kind.", ["It is 10. ", "Be kind."]),
    ],
)
def test_items_of_lists_stay_whole(system: str, expected: list[str]) -> None:
    assert expected == units(system)


@pytest.mark.parametrize(
    ("system", "enclosed"),
    [
        ('{"a": 1,\n "b": 2}\nEnd.', ['{"a": 1,\n', ' "b": 2}\n']),
        ("[Be kind. Be brief.] Go.", ["[Be kind. ", "Be brief.] Go."]),
        ("Use { to open.\nGo on.", []),
        ("{now}\n[a] and {b}\n", []),
        ("} One {\nTwo.", []),
        ("Run:\n```\nls\n```\nGo.", ["```\n", "ls\n", "```\n"]),
        ("Run:\n~~~ sh\nls", ["~~~ sh\n", "ls"]),
        ('"""\nA text.\n"""\nB.', ['"""\n', "A text.\n", '"""\n']),
        ("| a |\n|---|\n| b |\nEnd.", ["| a |\n", "|---|\n", "| b |\n"]),
    ],
)
def test_parts_of_a_structure_are_enclosed(system: str, enclosed: list[str]) -> None:
    value = {"model": "m", "messages": [{"role": "system", "content": system}, {"role": "user", "content": "Hello."}]}
    assert enclosed == [unit.text for unit in Openings().units(Prompt.of(value)) if unit.is_enclosed]


def test_many_brackets_take_no_longer_than_their_number() -> None:
    text = "[\n" * 30_000 + "]\n" * 30_000
    value = {"model": "m", "messages": [{"role": "system", "content": text}, {"role": "user", "content": "Hello."}]}
    assert 60_000 == sum(unit.is_enclosed for unit in Openings().units(Prompt.of(value)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rules.\n\nQuestion: why?\nAnswer:", ("Rules.\n\n", "Question: why?\nAnswer:")),
        ("Rules.\nWhy?\n", ("Rules.\n", "Why?\n")),
        ("Why?", ("", "Why?")),
        ("Rules.\n\nWhy?\n\n", ("Rules.\n\n", "Why?\n\n")),
    ],
)
def test_the_question_is_the_last_paragraph(text: str, expected: tuple[str, str]) -> None:
    assert expected == split_question(text)


def test_what_is_remembered_has_few_bytes_and_is_gone_afterwards() -> None:
    """Lines of one word take most for their text."""
    tracemalloc.start()
    try:
        openings = Openings()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(60):
            text = "\n".join(f"{number}" for _ in range(1_600))
            assert 1_600 == len(openings.keys(Prompt.of({"messages": [{"role": "system", "content": text}]})))
        gc.collect()
        assert 1_000_000 < tracemalloc.get_traced_memory()[0] - before < 9_000_000
        del openings
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 500_000
    finally:
        tracemalloc.stop()
