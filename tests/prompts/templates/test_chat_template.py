"""Chat templates render as transformers renders them, byte for byte."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from prefold.engine.checkpoint import Checkpoint
from prefold.errors import InvalidRequest, ModelError
from prefold.prompts.templates.chat_template import ChatTemplate

NOON = datetime(2026, 11, 30, 12, 0, 0)  # noqa: DTZ001 - templates see a local time without a zone

USER = {"role": "user", "content": "What is 2 + 2?"}
SYSTEM = {"role": "system", "content": "Be brief.\n"}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 2}'}}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": 'Adds <two> numbers & says "done" — 加法',
            "parameters": {"type": "object", "properties": {"b": {"type": "number"}, "a": {"type": "number"}}},
        },
    }
]
CONVERSATIONS: list[list[dict[str, Any]]] = [
    [USER],
    [SYSTEM, USER],
    [USER, {"role": "assistant", "content": "4"}, {"role": "user", "content": "And 3 + 3?"}],
    [SYSTEM, {"role": "user", "content": "你好，世界！🌍 {{ 7 * 7 }} <|im_end|>"}],
    [{"role": "user", "content": ""}],
    [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "content": "4"}],
    [USER, {"role": "assistant", "content": "4", "name": None, "reasoning": "easy"}],
]

# One template for each thing the environment has to offer.
TEMPLATES = {
    "loop controls": "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.content }}"
    "{% if loop.index == 2 %}{% break %}{% endif %}\n{% endfor %}",
    "block trimming": "  {% for m in messages %}\n    {{- m.role }}:\n    {% if m.content %}\n{{ m.content }}\n"
    "    {% endif %}\n  {% endfor %}",
    "tojson": "{{ tools | tojson }}\n{{ tools | tojson(indent=2) }}\n{{ messages | tojson(sort_keys=true) }}"
    "{{ messages[0] | tojson(ensure_ascii=true, separators=(',', ':')) }}",
    "special tokens": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}{{ unknown_token }}",
    "arguments": "{{ documents is none }}{{ enable_thinking }}{{ add_generation_prompt }}{{ tools is none }}",
    "reasoning": "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }}|{{ 'name' in m }}{% endfor %}",
    "generation": "{% set a = 1 %}{% for m in messages %}{% generation %}{% set a = 2 %}{{ m.content }}"
    "{% endgeneration %}{{ a }}{% endfor %}",
    "namespace": "{% set n = namespace(count=0) %}{% for m in messages %}{% set n.count = n.count + 1 %}{% endfor %}"
    "{{ n.count }}{{ dict(a=1) }}{{ messages[0].content.strip().split('+') }}",
    "tool calls": "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments }}{% endfor %}"
    "{% endfor %}",
}


@pytest.fixture(scope="module")
def reference(default_checkpoint: Checkpoint) -> Any:
    """The default model's tokenizer as transformers loads it."""
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(default_checkpoint.folder)


@pytest.mark.parametrize("add_generation_prompt", [False, True])
@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_the_default_model_equals_transformers(
    default_checkpoint: Checkpoint,
    reference: Any,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    add_generation_prompt: bool,
) -> None:
    ours = ChatTemplate.from_folder(default_checkpoint.folder, clock=lambda: NOON)
    assert ours is not None
    theirs = reference.apply_chat_template(
        messages, tools=tools, add_generation_prompt=add_generation_prompt, tokenize=False
    )
    assert theirs == ours.render(messages, tools, add_generation_prompt)


@pytest.mark.parametrize("messages", CONVERSATIONS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_any_template_equals_transformers(reference: Any, name: str, messages: list[dict[str, Any]]) -> None:
    ours = ChatTemplate(TEMPLATES[name], clock=lambda: NOON, **reference.special_tokens_map)
    theirs = reference.apply_chat_template(
        messages, tools=TOOLS, chat_template=TEMPLATES[name], enable_thinking=False, tokenize=False
    )
    assert theirs == ours.render(messages, TOOLS, False, enable_thinking=False)


def test_the_default_system_message_is_inserted(default_checkpoint: Checkpoint) -> None:
    template = ChatTemplate.from_folder(default_checkpoint.folder, clock=lambda: NOON)
    assert template is not None
    expected = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert expected == template.render([USER])


def test_the_clock_is_the_one_passed_in() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y %H:%M') }}", clock=lambda: NOON)
    assert template.render([USER]) == "30 Nov 2026 12:00"


def test_tool_use_template_is_taken_where_there_are_tools() -> None:
    template = ChatTemplate({"default": "plain", "tool_use": "tools"}, clock=lambda: NOON)
    assert template.render([USER]) == "plain"
    assert template.render([USER], TOOLS) == "tools"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 1 }}", "str"),
        ("{{ messages[9].content.strip() }}", "no element 9"),
        ("{{ messages[0].content.__class__.__mro__ }}", "unsafe"),
        ("{{ 1 / 0 }}", "zero"),
        ("{{ messages.append(1) }}", "unsafe"),
    ],
)
def test_what_a_template_refuses_is_an_invalid_request(source: str, reason: str) -> None:
    template = ChatTemplate(source, clock=lambda: NOON)
    with pytest.raises(InvalidRequest, match=reason) as caught:
        template.render([USER])
    assert caught.value.param == "messages"
    assert caught.value.hint


def test_no_messages_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest, match="empty") as caught:
        ChatTemplate("x", clock=lambda: NOON).render([])
    assert caught.value.param == "messages"


def test_a_template_that_does_not_compile_names_its_folder(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("{% for m in %}")
    with pytest.raises(ModelError, match="not valid") as caught:
        ChatTemplate.from_folder(tmp_path, clock=lambda: NOON)
    assert str(tmp_path) in caught.value.message


def render_folder(folder: Path) -> str:
    template = ChatTemplate.from_folder(folder, clock=lambda: NOON)
    assert template is not None
    return template.render([USER])


def test_where_a_folder_keeps_its_template(tmp_path: Path) -> None:
    assert ChatTemplate.from_folder(tmp_path, clock=lambda: NOON) is None
    settings: dict[str, Any] = {"bos_token": {"content": "<s>", "lstrip": False}, "add_bos_token": True}
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**settings, "chat_template": "{{ bos_token }}a"}))
    assert render_folder(tmp_path) == "<s>a"
    named = [{"name": "default", "template": "{{ bos_token }}b"}, {"name": "rag", "template": "c"}]
    path.write_text(json.dumps({**settings, "chat_template": named}))
    assert render_folder(tmp_path) == "<s>b"
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<old>", "eos_token": "</s>"}))
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}d{{ eos_token }}")
    assert render_folder(tmp_path) == "<s>d</s>"


def test_a_damaged_settings_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer_config.json"
    path.write_text("{")
    with pytest.raises(ModelError) as caught:
        ChatTemplate.from_folder(tmp_path, clock=lambda: NOON)
    assert str(path) in caught.value.message
