"""What a model's own template makes of a request, where each part lies, and what the template does to prefixes."""

from typing import Any

import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.errors import InvalidRequest, ModelError
from prefold.prompts.prompt import Prompt
from prefold.prompts.templates.chat_template import ChatTemplate
from prefold.prompts.templates.rendered import Rendered, rendered
from prefold.prompts.templates.scene import template_in, tokenizer_adds_bos

from .support import NOON, TEMPLATES, assistant, chat, system, template, user

QUESTIONS = [user("Why?"), assistant("Because."), user("Really?")]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def parts(found: Rendered) -> list[tuple[str, str]]:
    return [(str(piece.path), found.text[piece.header_end : piece.end]) for piece in found.pieces]


def causes(found: Rendered) -> list[tuple[str, str | None, str]]:
    """Findings: cause, path and the text at fault."""
    return [
        (finding.cause, None if finding.path is None else str(finding.path), found.text[finding.start : finding.end])
        for finding in found.findings
    ]


def test_the_text_is_the_templates():
    found = rendered(chat(system("Be brief."), user("Hi")), template("plain"))
    assert "system: Be brief.\nuser: Hi\nassistant: " == found.text
    assert [("messages[0]", "Be brief."), ("messages[1]", "Hi")] == parts(found)
    assert () == found.findings


def test_an_answer_at_the_end_is_continued():
    assert "user: Hi\nassistant: Well\n" == rendered(chat(user("Hi"), assistant("Well")), template("plain")).text


def test_every_kind_of_part_is_found():
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": {"a": "one"}}}
    prompt = chat(system(" Be brief. "), user("1 + 1\n"), assistant("So:", tool_calls=[call]), user("?"), tools=[TOOL])
    assert [
        ("messages[0]", "Be brief."),
        (
            "tools[0]",
            '{\n        "name": "add",\n        "parameters": {\n            "type": "object"\n        }\n    }',
        ),
        ("messages[1]", "1 + 1"),
        ("messages[2]", "So:"),
        ("messages[2].tool_calls[0]", '{"name": "add", "parameters": {"a": "one"}}'),
        ("messages[3]", "?"),
    ] == parts(rendered(prompt, template("dated")))


def test_other_dialects_keep_their_paths():
    body = {
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }
    found = rendered(Prompt.of(body, "anthropic"), template("plain"))
    assert "system: Be brief.\nuser: Hi\nassistant: " == found.text
    assert [("system[0]", "Be brief."), ("messages[0].content[0]", "Hi")] == parts(found)


def test_a_default_system_message_is_named():
    found = rendered(chat(user("Hi")), template("default-system"))
    assert [("template_default", None, "You are Pat, a helpful assistant.")] == causes(found)
    assert [("messages[0]", "Hi")] == parts(found)


@pytest.mark.parametrize("name", ["plain", "default-system", "forgets-earlier-thoughts"])
def test_a_request_with_its_own_system_message_is_clean(name):
    assert () == rendered(chat(system("Be brief."), *QUESTIONS), template(name)).findings


@pytest.mark.parametrize("name", ["plain", "dated", "forgets-thoughts", "forgets-earlier-thoughts"])
def test_templates_without_a_default_have_none(name):
    """Those that always open a system message, and those that open none, put nothing in for want of one."""
    found = rendered(chat(*QUESTIONS), template(name))
    assert "template_default" not in {finding.cause for finding in found.findings}


def test_a_date_is_a_clock():
    found = rendered(chat(system("Be brief."), user("Hi")), template("dated"))
    assert [("clock", None, "30 Nov 2026")] == causes(found)


@pytest.mark.parametrize(("pattern", "shown"), [("%Y", "2026"), ("%Y-%m-%d", "2026-11-30"), ("%B", "November")])
def test_the_time_is_shown_in_whole_words(pattern, shown):
    used = ChatTemplate(f"Now: {{{{ strftime_now('{pattern}') }}}}.", clock=lambda: NOON)
    found = rendered(chat(user("Hi")), used)
    assert [("clock", None, shown)] == causes(found)
    assert f'writes the time, "{shown}", and' in found.findings[0].message


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ raise_exception('No tools.') }}", "messages: No tools."),
        ("{% for i in range(10**6) %}{% endfor %}", "(100000)."),
    ],
)
def test_a_sentence_ends_once(source, said):
    with pytest.raises(InvalidRequest) as caught:
        rendered(chat(user("Hi")), ChatTemplate(source, clock=lambda: NOON))
    assert caught.value.message.endswith(said)
    assert not caught.value.message.endswith("..")


@pytest.mark.parametrize("name", ["dated", "forgets-thoughts"])
def test_a_tokenizer_that_adds_bos_doubles_it(name):
    used = template(name)
    assert tokenizer_adds_bos(TEMPLATES / name, used.bos)
    found = rendered(chat(user("Hi")), used, adds_bos=True)
    assert ("bos", None, used.bos) == causes(found)[0]
    assert "bos" not in {finding.cause for finding in rendered(chat(user("Hi")), used).findings}


@pytest.mark.parametrize("name", ["plain", "default-system"])
def test_tokenizers_without_bos_add_none(name):
    assert not tokenizer_adds_bos(TEMPLATES / name, template(name).bos)


def test_bos_in_the_first_message_doubles_it():
    found = rendered(chat(system("<begin>Be brief."), user("Hi")), template("forgets-thoughts"))
    assert [("bos", "messages[0]", "<begin>")] == causes(found)


@pytest.mark.parametrize("name", ["forgets-thoughts", "forgets-earlier-thoughts"])
@pytest.mark.parametrize("answer", ["<think>\nhm\n</think>\n\nYes.", "<think>hm</think>Yes."])
def test_thoughts_taken_from_the_history_are_named(name, answer):
    found = rendered(chat(system("S"), user("Sure?"), assistant(answer), user("Why?")), template(name))
    ((cause, path, text),) = causes(found)
    assert ("text_edit", "messages[2]", "Yes.") == (cause, path, text.strip())
    assert "hm" in found.findings[0].message


def test_thoughts_in_a_field_of_their_own_are_named_too():
    prompt = chat(user("Sure?"), assistant("Yes.", reasoning_content="hm"), user("Why?"))
    found = rendered(prompt, template("forgets-earlier-thoughts"))
    assert [("text_edit", "messages[1]", "Yes.")] == causes(found)


def test_thoughts_between_calls_are_kept_until_the_next_question():
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    turn = [
        user("1 + 1?"),
        assistant("", reasoning_content="Add.", tool_calls=[call]),
        {"role": "tool", "content": "2"},
    ]
    used = template("forgets-earlier-thoughts")
    assert () == rendered(chat(*turn), used).findings
    found = rendered(chat(*turn, assistant("Two."), user("Sure?")), used)
    ((cause, path, text),) = causes(found)
    assert ("text_edit", "messages[1].tool_calls[0]") == (cause, path)
    assert "<tool_call>" in text


def test_settings_in_the_request_reach_the_template():
    prompt = chat(
        user("Sure?"),
        assistant("<think>hm</think>Yes."),
        user("Why?"),
        chat_template_kwargs={"keep_thoughts": True, "messages": [], "add_generation_prompt": False},
    )
    found = rendered(prompt, template("forgets-earlier-thoughts"))
    assert () == found.findings
    assert "hm" in found.text
    assert found.text.endswith("assistant\n")


@pytest.mark.parametrize("kwargs", [None, 3, "x", []])
def test_odd_settings_are_passed_over(kwargs):
    assert rendered(chat(user("Hi"), chat_template_kwargs=kwargs), template("plain")).text


def test_what_a_template_refuses_is_said():
    with pytest.raises(InvalidRequest, match="does not accept"):
        rendered(chat(user("Hi")), ChatTemplate("{{ raise_exception('no') }}", clock=lambda: NOON))
    with pytest.raises(InvalidRequest, match="empty"):
        rendered(chat(), template("plain"))


def test_a_folder_needs_a_template(tmp_path):
    with pytest.raises(ModelError, match="no chat template") as raised:
        template_in(tmp_path, clock=lambda: NOON)
    assert str(tmp_path) in raised.value.message


@pytest.mark.parametrize(
    "definition", ["[]", '{"post_processor": 3}', '{"post_processor": {"processors": [1], "single": ["x"]}}']
)
def test_odd_tokenizer_files_add_no_bos(tmp_path, definition):
    (tmp_path / "tokenizer.json").write_text(definition)
    assert not tokenizer_adds_bos(tmp_path, "<s>")


WORDS = st.text(st.characters(exclude_categories=["Cs", "Co"]), max_size=12)
TURNS = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), WORDS), min_size=1, max_size=6)


@given(turns=TURNS, name=st.sampled_from(["plain", "default-system", "dated", "forgets-earlier-thoughts"]))
def test_any_conversation_is_rendered_and_mapped(turns, name):
    messages: list[dict[str, Any]] = [{"role": role, "content": content} for role, content in turns]
    used = template(name)
    found = rendered(chat(*messages), used)
    assert used.render(messages, add_generation_prompt=turns[-1][0] != "assistant") == found.text
    position = 0
    for piece in found.pieces:
        assert position == piece.start <= piece.header_end <= piece.end <= len(found.text)
        position = piece.end
    if name == "plain":
        expected = [(f"messages[{index}]", words) for index, (_, words) in enumerate(turns) if words.strip()]
        assert expected == parts(found)


def test_the_default_models_own_template():
    folders = sorted((platformdirs.user_cache_path("prefold") / "models").glob("smollm2-135m-instruct-*"))
    if not folders:
        pytest.skip("the default model has not been fetched")
    used = template_in(folders[-1], clock=lambda: NOON)
    found = rendered(chat(user("Hi")), used, adds_bos=tokenizer_adds_bos(folders[-1], used.bos))
    ((cause, path, text),) = causes(found)
    assert ("template_default", None) == (cause, path)
    assert text.startswith("You are a helpful AI assistant named SmolLM")
    assert () == rendered(chat(system("Be brief."), *QUESTIONS), used).findings
