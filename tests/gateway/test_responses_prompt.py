"""Prompts of the Responses API, as the chats that engines make of them."""

import pytest

from prefold.gateway.responses_prompt import as_chat

CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
FUNCTION = {"name": "look", "arguments": "{}"}
TOLD = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}]}
SAYS = {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "Yes"}]}


def user(*texts):
    return {"role": "user", "content": [{"type": "input_text", "text": text} for text in texts]}


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        ({"input": "Hello"}, [{"role": "user", "content": "Hello"}]),
        (
            {"instructions": "Be brief", "input": [user("a", "b")]},
            [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "a\nb"}],
        ),
        (
            {"input": [{"role": "developer", "content": "Be brief"}, SAYS, user("Go on")]},
            [
                {"role": "developer", "content": "Be brief"},
                {"role": "assistant", "content": "Yes"},
                {"role": "user", "content": "Go on"},
            ],
        ),
        (
            {"input": [user("Look"), CALL, {"type": "function_call_output", "call_id": "c1", "output": "a cat"}]},
            [
                {"role": "user", "content": "Look"},
                {**TOLD, "content": None},
                {"role": "tool", "content": "a cat", "tool_call_id": "c1"},
            ],
        ),
        (
            {"input": [{"type": "reasoning", "summary": []}, SAYS, CALL]},
            [{**TOLD, "content": "Yes"}],
        ),
        ({"input": [CALL, SAYS]}, [{**TOLD, "content": "Yes"}]),
        ({"input": []}, []),
    ],
)
def test_items_become_messages(fields, messages):
    assert {"messages": messages} == as_chat(fields)


def test_tools_stand_one_level_deeper():
    function = {"name": "look", "parameters": {"type": "object"}}
    tools = [{"type": "function", **function}, {"type": "web_search"}]
    chat = as_chat({"input": "Hello", "tools": tools, "cache_salt": "x", "temperature": 0})
    message = {"role": "user", "content": "Hello"}
    tool = {"type": "function", "function": function}
    assert {"messages": [message], "tools": [tool], "cache_salt": "x"} == chat


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"input": None},
        {"input": 7},
        {"input": "Hello", "previous_response_id": "resp_1"},
        {"input": "Hello", "conversation": "conv_1"},
        {"input": "Hello", "prompt": {"id": "p"}},
        {"input": "Hello", "tools": [7]},
        {"input": "Hello", "instructions": 7},
        {"input": ["Hello"]},
        {"input": [{"role": "user"}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": [{"type": "function_call", "name": "look"}]},
    ],
)
def test_what_cannot_be_told(fields):
    assert as_chat(fields) is None


def test_what_the_client_sent_stays_as_it_was():
    fields = {"input": [SAYS, CALL]}
    as_chat(fields)
    assert {"input": [SAYS, CALL]} == fields
    assert "tool_calls" not in SAYS
