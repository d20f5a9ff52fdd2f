"""Every dialect becomes the messages that chat templates take."""

import pytest

from prefold.errors import InvalidRequest
from prefold.prompts.prompt import Prompt
from prefold.prompts.templates.conversation import Conversation, conversation_of

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Now.", "parameters": SCHEMA}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
EXPECTED = [
    {"role": "system", "content": "Be brief.\nBe kind."},
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "I look.", "reasoning_content": "Oslo, I think.", "tool_calls": [CALL]},
    {"role": "tool", "content": "3 °C", "tool_call_id": "c1"},
    {"role": "user", "content": "Thanks."},
]

ANTHROPIC = {
    "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind.", "cache_control": {"x": 1}}],
    "tools": [
        {"name": "weather", "description": "Now.", "input_schema": SCHEMA},
        {"type": "web_search_20250305", "max_uses": 3},
    ],
    "messages": [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Oslo, I think.", "signature": "xx"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "3 °C"}]},
                {"type": "text", "text": "Thanks."},
            ],
        },
    ],
}
RESPONSES = {
    "instructions": "Be brief.\nBe kind.",
    "tools": [{"type": "function", "name": "weather", "description": "Now.", "parameters": SCHEMA}],
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "Oslo, I think."}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": {"city": "Oslo"}},
        {"type": "function_call_output", "call_id": "c1", "output": "3 °C"},
        {"role": "user", "content": "Thanks."},
    ],
}
GEMINI = {
    "systemInstruction": {"parts": [{"text": "Be brief."}, {"text": "Be kind."}]},
    "tools": [{"functionDeclarations": [{"name": "weather", "description": "Now.", "parameters": SCHEMA}]}],
    "contents": [
        {"role": "user", "parts": [{"text": "Weather?"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Oslo, I think.", "thought": True},
                {"text": "I look."},
                {"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Oslo"}}},
            ],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "c1", "name": "weather", "response": {"text": "3 °C"}}}],
        },
        {"role": "user", "parts": [{"text": "Thanks."}]},
    ],
}
BEDROCK = {
    "modelId": "some-model",
    "system": [{"text": "Be brief."}, {"text": "Be kind."}, {"cachePoint": {"type": "default"}}],
    "toolConfig": {
        "tools": [{"toolSpec": {"name": "weather", "description": "Now.", "inputSchema": {"json": SCHEMA}}}]
    },
    "messages": [
        {"role": "user", "content": [{"text": "Weather?"}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Oslo, I think."}}},
                {"text": "I look."},
                {"toolUse": {"toolUseId": "c1", "name": "weather", "input": {"city": "Oslo"}}},
            ],
        },
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "3 °C"}]}}, {"text": "Thanks."}],
        },
    ],
}
OPENAI = {"messages": EXPECTED, "tools": TOOLS}


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("anthropic", ANTHROPIC),
        ("responses", RESPONSES),
        ("gemini", GEMINI),
        ("bedrock", BEDROCK),
        ("openai", OPENAI),
    ],
)
def test_every_dialect_says_the_same(dialect, body):
    found = conversation_of(Prompt.of(body, dialect))
    assert (EXPECTED, TOOLS) == (found.messages, found.tools)
    assert len(EXPECTED) == len(found.paths)


def test_messages_know_where_they_come_from():
    found = conversation_of(Prompt.of(ANTHROPIC, "anthropic"))
    assert ["system", "messages[0]", "messages[1]", "messages[2]", "messages[2]"] == [str(path) for path in found.paths]


def test_openai_messages_are_taken_as_they_are():
    message = {
        "role": "developer",
        "name": "ops",
        "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}],
    }
    found = conversation_of(Prompt.of({"messages": [message, {"role": "user", "content": None}]}, "openai"))
    expected = [{**message, "content": "One.\nTwo."}, {"role": "user", "content": None}]
    assert (expected, None) == (found.messages, found.tools)


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("openai", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
        ("anthropic", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url"}}]}]}),
    ],
)
def test_pictures_stay_parts(dialect, body):
    content = body["messages"][0]["content"]
    assert content == conversation_of(Prompt.of(body, dialect)).messages[0]["content"]


def test_what_is_written_can_be_chosen():
    found = conversation_of(
        Prompt.of(ANTHROPIC, "anthropic"), lambda path, value: str(path) if isinstance(value, str) else value
    )
    contents = [message["content"] for message in found.messages]
    assert [
        "system[0]\nsystem[1]",
        "messages[0]",
        "messages[1].content[1]",
        "messages[2].content[0]",
        "messages[2].content[1]",
    ] == contents


def test_legacy_functions_are_tools():
    function = {"name": "f", "parameters": SCHEMA}
    body = {"messages": [{"role": "user", "content": "Hi"}], "functions": [function]}
    assert [{"type": "function", "function": function}] == conversation_of(Prompt.of(body, "openai")).tools


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": ["Hi"]}], "tools": ["x", None]},
        {"messages": [{"role": "assistant", "content": "", "tool_calls": ["x", {"function": 1}]}]},
    ],
)
def test_odd_bodies_are_taken_too(body):
    assert isinstance(conversation_of(Prompt.of(body, "openai")), Conversation)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "tool_use"},
        {"type": "tool_result"},
        {"type": "thinking"},
        {"type": "reasoning"},
        {"toolUse": 1},
        {"toolResult": None},
        {"reasoningContent": {}},
        {"functionCall": {}},
        {"type": "tool_result", "content": {"a": 1}},
    ],
)
@pytest.mark.parametrize("dialect", ["anthropic", "bedrock"])
def test_odd_blocks_are_taken_too(dialect, block):
    body = {"messages": [{"role": "user", "content": [{"text": "Hi"}, block]}]}
    assert conversation_of(Prompt.of(body, dialect)).messages


def test_a_plain_prompt_is_no_conversation():
    with pytest.raises(InvalidRequest, match="plain prompt"):
        conversation_of(Prompt.parse("Once upon a time"))
