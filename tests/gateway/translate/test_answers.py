"""Whole answers, their reasons to end and their numbers."""

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion

from prefold.gateway.translate.anthropic_client.answer import to_anthropic
from prefold.gateway.translate.openai_client.answer import to_openai
from prefold.gateway.upstream import UpstreamFailed

from .support import CREATED


def chat(message=None, usage=None, **choice):
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": message or {"role": "assistant", "content": "Hi"},
                "finish_reason": "stop",
                **choice,
            }
        ],
        "usage": usage or {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }


def message(*content, stop_reason="end_turn", **usage):
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": list(content) or [{"type": "text", "text": "Hi"}],
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 2, **usage},
    }


def for_anthropic(*arguments, **fields):
    made = to_anthropic(chat(*arguments, **fields))
    Message.model_validate(made)
    return made


def for_openai(*content, **fields):
    made = to_openai(message(*content, **fields), CREATED)
    ChatCompletion.model_validate(made)
    return made


def test_a_message_of_everything():
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}]
    spoken = {"role": "assistant", "content": "Hi", "reasoning": "Hm.", "tool_calls": calls}
    made = for_anthropic(spoken, finish_reason="tool_calls")
    assert [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"x": 1}},
    ] == made["content"]
    assert ("tool_use", None) == (made["stop_reason"], made["stop_sequence"])
    assert ("chatcmpl-1", "m") == (made["id"], made["model"])


def test_calls_without_an_id_or_with_broken_arguments():
    calls = [{"function": {"name": "f", "arguments": arguments}} for arguments in ("", "{broken", "[1]")]
    content = for_anthropic({"content": None, "tool_calls": calls})["content"]
    assert [{}, {"arguments": "{broken"}, {"arguments": "[1]"}] == [block["input"] for block in content]
    assert 3 == len({block["id"] for block in content})


@pytest.mark.parametrize(
    ("expected", "choice"),
    [
        (("end_turn", None), {"finish_reason": "stop"}),
        (("end_turn", None), {"finish_reason": "stop", "stop_reason": 128001}),
        (("stop_sequence", "END"), {"finish_reason": "stop", "stop_reason": "END"}),
        (("stop_sequence", "END"), {"finish_reason": "stop", "matched_stop": "END"}),
        (("max_tokens", None), {"finish_reason": "length"}),
        (("refusal", None), {"finish_reason": "content_filter"}),
        (("refusal", None), {"message": {"content": None, "refusal": "No."}}),
        (("tool_use", None), {"message": {"tool_calls": [{"id": "c", "function": {"name": "f"}}]}}),
        (
            ("max_tokens", None),
            {"message": {"tool_calls": [{"id": "c", "function": {"name": "f"}}]}, "finish_reason": "length"},
        ),
    ],
)
def test_why_an_answer_for_anthropic_ended(expected, choice):
    made = for_anthropic(**choice)
    assert expected == (made["stop_reason"], made["stop_sequence"])


def test_cached_tokens_are_apart_for_anthropic():
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "total_tokens": 107,
        "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 16},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    assert {
        "input_tokens": 20,
        "cache_read_input_tokens": 64,
        "cache_creation_input_tokens": 16,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 5},
    } == for_anthropic(usage=usage)["usage"]


def test_what_an_upstream_does_not_report_is_null():
    usage = for_anthropic()["usage"]
    assert (10, None, None) == (
        usage["input_tokens"],
        usage["cache_read_input_tokens"],
        usage["cache_creation_input_tokens"],
    )


def test_an_answer_of_everything_for_openai():
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    hidden = {"type": "redacted_thinking", "data": "x"}
    made = for_openai(
        thinking,
        hidden,
        {"type": "text", "text": "Hi"},
        {"type": "text", "text": "!"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}},
        stop_reason="tool_use",
    )
    assert {
        "role": "assistant",
        "content": "Hi!",
        "refusal": None,
        "reasoning_content": "Hm.",
        "thinking_blocks": [thinking, hidden],
        "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}],
    } == made["choices"][0]["message"]
    assert ("msg_1", CREATED, "m", "tool_calls") == (
        made["id"],
        made["created"],
        made["model"],
        made["choices"][0]["finish_reason"],
    )


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        ("stop", "end_turn"),
        ("stop", "stop_sequence"),
        ("stop", "pause_turn"),
        ("length", "max_tokens"),
        ("length", "model_context_window_exceeded"),
        ("tool_calls", "tool_use"),
        ("content_filter", "refusal"),
    ],
)
def test_why_an_answer_for_openai_ended(expected, reason):
    assert expected == for_openai(stop_reason=reason)["choices"][0]["finish_reason"]


def test_the_prompt_for_openai_is_the_sum():
    made = for_openai(
        cache_read_input_tokens=64, cache_creation_input_tokens=16, output_tokens_details={"thinking_tokens": 1}
    )
    assert {
        "prompt_tokens": 83,
        "completion_tokens": 2,
        "total_tokens": 85,
        "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 16},
        "completion_tokens_details": {"reasoning_tokens": 1},
    } == made["usage"]


@pytest.mark.parametrize("garbage", [{}, {"choices": []}, {"choices": "x"}, {"content": None}])
def test_what_is_no_answer(garbage):
    with pytest.raises(UpstreamFailed):
        to_anthropic(garbage)
    with pytest.raises(UpstreamFailed):
        to_openai(garbage, CREATED)
