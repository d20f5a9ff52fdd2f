"""The official SDK and curl."""

import asyncio
import json
import shutil
import subprocess

import openai
import pytest

from .support import MODEL

MESSAGES = [{"role": "user", "content": "Name a colour."}]


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_a_chat(client):
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=5, temperature=0, logprobs=True)
    assert 5 == answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0
    assert answer.choices[0].message.content == "".join(item.token for item in answer.choices[0].logprobs.content)
    assert "length" == answer.choices[0].finish_reason


def test_a_chat_that_is_streamed(client):
    whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_completion_tokens=5, temperature=0)
    with client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        max_completion_tokens=5,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert whole.choices[0].message.content == text
    assert whole.usage.prompt_tokens - 1 == chunks[-1].usage.prompt_tokens_details.cached_tokens


def test_a_completion(client):
    answer = client.completions.create(model=MODEL, prompt=["A", "B"], max_tokens=3, temperature=0, logprobs=1)
    assert [0, 1] == [choice.index for choice in answer.choices]
    assert [3, 3] == [len(choice.logprobs.tokens) for choice in answer.choices]
    with client.completions.create(model=MODEL, prompt=["A", "B"], max_tokens=3, temperature=0, stream=True) as stream:
        texts = ["", ""]
        for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].text
    assert [choice.text for choice in answer.choices] == texts


def test_extra_fields(client):
    extra = {"cache_salt": "alice", "cache_salt_from": {"message": 0}, "ignore_eos": True, "top_k": 5}
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=2, extra_body=extra)
    assert 2 == answer.usage.completion_tokens


def test_models(client):
    assert [MODEL] == [model.id for model in client.models.list()]
    assert MODEL == client.models.retrieve(MODEL).id


def test_errors_are_those_that_the_sdk_knows(client):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-5", messages=MESSAGES)
    assert ("model_not_found", "model") == (unknown.value.code, unknown.value.param)
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, temperature=9)
    assert ("temperature", "invalid_request_error") == (bad.value.param, bad.value.type)


def test_the_asynchronous_client(server):
    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            options = {"model": MODEL, "messages": MESSAGES, "max_tokens": 4, "temperature": 0}
            whole, other = await asyncio.gather(*(client.chat.completions.create(**options) for _ in range(2)))
            text = ""
            async for chunk in await client.chat.completions.create(**options, stream=True):
                text += chunk.choices[0].delta.content or ""
            return [answer.choices[0].message.content for answer in (whole, other)] + [text]

    answers = asyncio.run(ask())
    assert 1 == len(set(answers))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(server):
    def curl(path, *options):
        command = ["curl", "-sS", "--fail-with-body", f"{server.url}{path}", *options]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    body = {"messages": MESSAGES, "max_tokens": 3, "temperature": 0}
    answer = json.loads(curl("/v1/chat/completions", "-d", json.dumps(body)))
    stream = curl("/v1/chat/completions", "--no-buffer", "-d", json.dumps({**body, "stream": True}))
    events = [line.removeprefix("data: ") for line in stream.splitlines() if line]
    assert "[DONE]" == events.pop()
    text = "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events)
    assert answer["choices"][0]["message"]["content"] == text
    assert "freed_tokens" in json.loads(curl("/cache/reset", "-X", "POST"))
    assert "llm_ttft_seconds_bucket" in curl("/metrics")
