"""Tokens of prompts by pieces, against the tokenizer's own of the whole."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.core.tokens import pack, unpack
from prefold.engine.tokenizer import Tokenizer
from prefold.gateway.call import Api, Call, Tenant
from prefold.gateway.config import GroupTable
from prefold.gateway.prompt_tokens import PromptTokens

TENANT = Tenant("default", GroupTable(name="default"))


def call(api=Api.CHAT, **fields):
    return Call(api, b"", fields, "m", False, TENANT, {})


@pytest.fixture(scope="module")
def tokenizer(default_checkpoint):
    return Tokenizer(default_checkpoint.folder)


def whole(tokenizer, messages, **options):
    text = tokenizer.apply_chat_template(messages, **options)
    return tokenizer.encode(text, add_special=False)


def run_of(tokens, *calls):
    async def all_of():
        return [await tokens.run(each) for each in calls]

    return asyncio.run(all_of())


TEXTS = st.text(st.sampled_from("ab ,.\n\t<|im_end|>\u00e9\u4e2d\U0001f600"), max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), TEXTS), min_size=1, max_size=5))
def test_pieces_have_the_tokens_of_the_whole(tokenizer, turns):
    messages = [{"role": role, "content": text} for role, text in turns]
    tokens = PromptTokens(tokenizer)
    expected = whole(tokenizer, messages)
    for run in run_of(tokens, call(messages=messages), call(messages=messages)):
        assert expected == unpack(run)


def test_a_long_prompt_is_the_same(tokenizer):
    messages = [{"role": "user", "content": "A long story, told twice. " * 1_000}]
    (run,) = run_of(PromptTokens(tokenizer), call(messages=messages))
    assert whole(tokenizer, messages) == unpack(run)


def test_little_is_remembered_and_all_is_right(tokenizer):
    tokens = PromptTokens(tokenizer, capacity=2_000)
    for turn in range(30):
        messages = [{"role": "user", "content": f"question {i} " * 20} for i in range(turn)] + [
            {"role": "user", "content": "last"}
        ]
        (run,) = run_of(tokens, call(messages=messages))
        assert whole(tokenizer, messages) == unpack(run)


def test_two_at_once(tokenizer):
    tokens = PromptTokens(tokenizer, capacity=10_000)
    messages = [[{"role": "user", "content": f"{i} and much more text. " * 300}] for i in range(4)]

    async def at_once():
        return await asyncio.gather(*(tokens.run(call(messages=each)) for each in messages * 2))

    assert [whole(tokenizer, each) for each in messages * 2] == [unpack(run) for run in asyncio.run(at_once())]


def test_parts_of_text_are_lines(tokenizer):
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    (run,) = run_of(PromptTokens(tokenizer), call(messages=[{"role": "user", "content": parts}]))
    assert whole(tokenizer, [{"role": "user", "content": "one\ntwo"}]) == unpack(run)


def test_completions(tokenizer):
    tokens = PromptTokens(tokenizer)
    text = tokenizer.encode("Once upon a time", add_special=True)
    runs = run_of(
        tokens,
        call(Api.COMPLETIONS, prompt="Once upon a time"),
        call(Api.COMPLETIONS, prompt=["Once upon a time"]),
        call(Api.COMPLETIONS, prompt=[1, 2, 3]),
    )
    assert [pack(text), pack(text), pack([1, 2, 3])] == runs


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"messages": None},
        {"messages": ["x"]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"messages": [{"role": "user", "content": "\ud800"}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": 3},
    ],
)
def test_what_cannot_be_told(tokenizer, fields):
    assert [None] == run_of(PromptTokens(tokenizer), call(**fields))


@pytest.mark.parametrize("prompt", [None, [], ["a", "b"], [[1], [2]], {"a": 1}, [True], "\ud800"])
def test_completions_that_cannot_be_told(tokenizer, prompt):
    assert [None] == run_of(PromptTokens(tokenizer), call(Api.COMPLETIONS, prompt=prompt))
