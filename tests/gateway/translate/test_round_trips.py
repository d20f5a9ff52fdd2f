"""What goes there and back is what it was."""

import json

from hypothesis import given
from hypothesis import strategies as st

from prefold.gateway.config import Kind
from prefold.gateway.translate.anthropic_client import answer as message_answer
from prefold.gateway.translate.anthropic_client import request as message_request
from prefold.gateway.translate.openai_client import answer as chat_answer
from prefold.gateway.translate.openai_client import request as chat_request

from .support import CREATED, valid_for_anthropic, valid_for_openai

WORDS = st.text(min_size=1, max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS, lambda inner: st.lists(inner, max_size=3), max_leaves=5
)
ARGUMENTS = st.dictionaries(WORDS, VALUES, max_size=3)
MARKERS = st.sampled_from(
    [{}, {"cache_control": {"type": "ephemeral"}}, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}]
)


@st.composite
def texts(draw):
    return {"type": "text", "text": draw(WORDS), **draw(MARKERS)}


@st.composite
def images(draw):
    source = draw(
        st.sampled_from(
            [
                {"type": "base64", "media_type": "image/png", "data": "QUJD"},
                {"type": "url", "url": "https://example.org/a.png"},
            ]
        )
    )
    return {"type": "image", "source": source, **draw(MARKERS)}


@st.composite
def conversations(draw):
    """Turns of a user and an assistant that calls tools."""
    messages = []
    for turn in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(WORDS | st.lists(texts() | images(), min_size=1, max_size=3))})
        if draw(st.booleans()):
            messages.append({"role": "system", "content": draw(WORDS | st.lists(texts(), min_size=1, max_size=2))})
        calls = [
            {"type": "tool_use", "id": f"t{turn}.{n}", "name": "f", "input": draw(ARGUMENTS), **draw(MARKERS)}
            for n in range(draw(st.integers(0, 2)))
        ]
        words = draw(st.lists(texts(), min_size=0 if calls else 1, max_size=2))
        messages.append({"role": "assistant", "content": [*words, *calls]})
        if calls:
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": use["id"],
                    "content": [draw(texts().map(_unmarked))],
                    **draw(MARKERS),
                }
                for use in calls
            ]
            messages.append({"role": "user", "content": results})
    messages.append({"role": "user", "content": draw(WORDS)})
    return messages


def _unmarked(block):
    return {name: value for name, value in block.items() if name != "cache_control"}


@st.composite
def tools(draw):
    schema = {"type": "object", "properties": draw(st.dictionaries(WORDS, st.just({"type": "string"}), max_size=2))}
    return {"name": draw(st.sampled_from("fgh")), "description": draw(WORDS), "input_schema": schema, **draw(MARKERS)}


@given(
    conversations(),
    st.lists(tools(), min_size=1, max_size=2),
    st.none() | WORDS | st.lists(texts(), min_size=1, max_size=2),
    st.sampled_from([None, {"type": "auto"}, {"type": "any", "disable_parallel_tool_use": True}, {"type": "none"}]),
    MARKERS,
)
def test_requests_of_anthropic_clients(messages, offered, system, choice, marker):
    body = {"model": "m", "max_tokens": 5, "messages": messages, "tools": offered, **marker}
    body |= {} if system is None else {"system": system}
    body |= {} if choice is None else {"tool_choice": choice}
    body |= {"stop_sequences": ["x"], "temperature": 0.5, "stream": True, "metadata": {"user_id": "u"}}
    there = valid_for_openai(message_request.to_openai(valid_for_anthropic(body), Kind.OTHER))
    assert body == chat_request.to_anthropic(json.loads(json.dumps(there)))


@given(st.lists(texts().map(_unmarked), max_size=1), st.lists(ARGUMENTS, max_size=2), *[st.integers(0, 9)] * 4)
def test_answers_of_anthropic_upstreams(words, inputs, uncached, read, written, output):
    uses = [{"type": "tool_use", "id": f"t{n}", "name": "f", "input": given} for n, given in enumerate(inputs)]
    message = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [*words, *uses],
        "stop_reason": "tool_use" if uses else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": uncached,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
            "output_tokens": output,
        },
    }
    there = json.loads(json.dumps(chat_answer.to_openai(message, CREATED)))
    assert uncached + read + written == there["usage"]["prompt_tokens"]
    assert message == message_answer.to_anthropic(there)
