"""Two requests part because of the template that renders them, or they do not."""

from typing import Any

import pytest

from prefold.prompts.templates.breaks import TemplateBreak, template_break
from prefold.prompts.templates.chat_template import ChatTemplate

from .support import NOON, assistant, chat, system, template, user

ALL = ["plain", "default-system", "dated", "forgets-thoughts", "forgets-earlier-thoughts"]
TURN = [user("Why?"), assistant("Because.")]


def summary(found: TemplateBreak | None) -> tuple[str, str | None] | None:
    return None if found is None else (found.cause, None if found.path is None else str(found.path))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([user("Hi")], [user("Hi")]),
        ([user("Why?")], [*TURN, user("Really?")]),
        ([*TURN, user("Really?")], [*TURN, user("Really?"), assistant("Yes."), user("Oh.")]),
        ([*TURN, user("One")], [*TURN, user("Two")]),
        ([system("S"), user("One")], [system("S"), user("Two")]),
        ([system("S"), user("One")], [system("T"), user("One")]),
        ([user("One"), user("Two")], [user("One")]),
        ([user("One")], [user("One"), user("Two")]),
        ([user("One")], [user("Two")]),
    ],
)
def test_templates_are_not_to_blame_for_what_bodies_do(name, before, after):
    assert None is template_break(chat(*before), chat(*after), template(name))


def test_a_default_in_one_of_the_two():
    own, none = chat(system("Be brief."), user("Hi")), chat(user("Hi"))
    used = template("default-system")
    found = template_break(none, own, used)
    assert ("template_default", "messages[0]") == summary(found)
    assert found is not None
    assert ("You are Pat, a helpful assistant.", "Be brief.") == (found.before[:33], found.after[:9])
    assert len("<|im_start|>system\n") == found.char
    assert ("template_default", None) == summary(template_break(own, none, used))
    assert None is template_break(none, own, template("plain"))


def test_a_date_breaks_over_night():
    prompt = chat(system("S"), user("Hi"))
    used = template("dated")
    assert None is template_break(prompt, prompt, used)
    assert None is template_break(prompt, prompt, used, gap_seconds=3600)
    found = template_break(prompt, prompt, used, gap_seconds=86400)
    assert ("clock", None) == summary(found)
    assert found is not None
    assert ("29 Nov 2026", "30 Nov 2026") == (found.before[:11], found.after[:11])
    assert ("clock", None) == summary(template_break(prompt, chat(user("Other")), used, gap_seconds=86400))


@pytest.mark.parametrize("gap", [1e18, float("inf"), float("nan")])
def test_no_gap_is_too_long(gap):
    prompt = chat(user("Hi"))
    assert ("clock", None) == summary(template_break(prompt, prompt, template("dated"), gap_seconds=gap))


def test_bos_twice_in_one_of_the_two():
    found = template_break(
        chat(system("<begin>S"), user("Hi")), chat(system("S"), user("Hi")), template("forgets-thoughts")
    )
    assert ("bos", "messages[0]") == summary(found)


@pytest.mark.parametrize("name", ["forgets-thoughts", "forgets-earlier-thoughts"])
def test_thoughts_taken_from_the_history(name):
    asked = chat(user("Sure?"))
    found = template_break(
        asked, chat(user("Sure?"), assistant("<think>\nhm\n</think>\n\nYes."), user("Why?")), template(name)
    )
    assert ("text_edit", "messages[1]") == summary(found)
    assert found is not None
    assert "hm" in found.before
    assert found.after.lstrip().startswith("Yes.")
    assert "hm" in found.explanation


def test_thoughts_of_a_call_taken_from_the_history():
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    turn: list[dict[str, Any]] = [
        user("1 + 1?"),
        assistant("", reasoning_content="Add.", tool_calls=[call]),
        {"role": "tool", "content": "2"},
    ]
    found = template_break(
        chat(*turn), chat(*turn, assistant("Two."), user("Sure?")), template("forgets-earlier-thoughts")
    )
    assert ("text_edit", "messages[1].tool_calls[0]") == summary(found)
    assert found is not None
    assert found.before.startswith("<think>\nAdd.")


def test_a_template_that_opens_thoughts_for_the_newest_answer_only():
    used = ChatTemplate(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant><think>{% endif %}",
        clock=lambda: NOON,
    )
    found = template_break(chat(user("Hi")), chat(user("Hi"), assistant("Yes."), user("Why?")), used)
    assert ("text_edit", "messages[1]") == summary(found)
    assert found is not None
    assert ("<think>", "Yes.<user>Why?<assistant><think>") == (found.before, found.after)


def test_a_template_that_moves_the_system_message():
    """Such as to the newest question: everything behind its old place moves."""
    used = ChatTemplate(
        "{% for m in messages if m.role != 'system' %}"
        "{% if loop.last %}[{{ messages[0].content }}]{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}",
        clock=lambda: NOON,
    )
    found = template_break(
        chat(system("S"), user("Hi")), chat(system("S"), user("Hi"), assistant("Yes."), user("Why?")), used
    )
    assert ("text_edit", 0) == (found.cause, found.char) if found else None


def test_other_settings_are_the_requests_own_doing():
    one, other = ({"chat_template_kwargs": {"keep_thoughts": keep}} for keep in (True, False))
    history = [user("Sure?"), assistant("<think>hm</think>Yes."), user("Why?")]
    assert None is template_break(chat(*history, **one), chat(*history, **other), template("forgets-earlier-thoughts"))
