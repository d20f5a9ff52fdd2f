"""Tokens of prompts by pieces, against the tokenizer's own of the whole."""

import asyncio
import json
from threading import current_thread, main_thread

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors

from prefold.core.tokens import pack, unpack
from prefold.engine.tokenizer import Tokenizer
from prefold.gateway import prompt_tokens
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


class Watched(Tokenizer):
    """Notes how many characters are tokenised, and who renders."""

    def __init__(self, folder):
        super().__init__(folder)
        self.characters = 0
        self.in_loop = []

    def encode(self, text, *, add_special):
        self.characters += len(text)
        return super().encode(text, add_special=add_special)

    def apply_chat_template(self, messages, **options):
        self.in_loop.append(current_thread() is main_thread())
        return super().apply_chat_template(messages, **options)


@pytest.fixture
def watched(default_checkpoint):
    return Watched(default_checkpoint.folder)


@pytest.mark.parametrize("name", ["completion", "chat"])
def test_what_a_longer_prompt_begins_with_is_not_tokenised_again(watched, name):
    story = "".join(f"Line {number} of a long story.\n" for number in range(3_000))
    tokens = PromptTokens(watched)
    for new, prompt in ((len(story), story), (9_000, f"{story}The end.\n"), (0, f"{story}The end.\n")):
        watched.characters = 0
        if name == "chat":
            messages = [{"role": "user", "content": prompt}]
            asked, expected = call(messages=messages), whole(watched, messages)
        else:
            asked, expected = call(Api.COMPLETIONS, prompt=prompt), watched.encode(prompt, add_special=True)
        before = watched.characters
        (run,) = run_of(tokens, asked)
        assert expected == unpack(run)
        assert watched.characters - before <= new + 300  # for what a template writes


def test_tenants_share_no_pieces(watched):
    tokens = PromptTokens(watched)
    one, other = (
        Call(Api.COMPLETIONS, b"", {"prompt": "A secret"}, "m", False, Tenant(salt, TENANT.group, salt), {})
        for salt in ("one", "other")
    )
    watched.characters = 0
    run_of(tokens, one, one)
    assert len("A secret") == watched.characters
    run_of(tokens, other)
    assert 2 * len("A secret") == watched.characters


WORDS = ["a word", "It's", ".", "12", "_", "\u00e9", "e\u0301", "\u0301", "\u4e2d\u3002", "\U0001f600", "<|im_end|>"]
BLANKS = [" ", "\t", "\n", "\n", "\r\n", "\u00a0", "\x1c", "\u2028", "\u200b"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([*WORDS, *BLANKS]), max_size=30).map("".join))
def test_lines_have_the_tokens_of_the_whole(tokenizer, text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompt_tokens, "_LONG_CHARACTERS", 1)
        tokens = PromptTokens(tokenizer)
        (run,) = run_of(tokens, call(Api.COMPLETIONS, prompt=text))
    assert tokenizer.encode(text, add_special=True) == unpack(run)


def test_a_prompt_of_many_pieces_is_the_same(tokenizer):
    text = "word <|im_start|> " * 10_000
    tokens = PromptTokens(tokenizer)
    (run,) = run_of(tokens, call(Api.COMPLETIONS, prompt=text))
    assert tokenizer.encode(text, add_special=True) == unpack(run)


@pytest.mark.parametrize(("size", "in_loop"), [(100, True), (100_000, False)])
def test_large_bodies_are_rendered_off_the_event_loop(watched, size, in_loop):
    messages = [{"role": "user", "content": "a" * size}]
    asked = Call(Api.CHAT, b"a" * size, {"messages": messages}, "m", False, TENANT, {})
    run_of(PromptTokens(watched), asked)
    assert [in_loop] == watched.in_loop


@pytest.mark.parametrize("single", ["<s> $A", "$A </s>", "<s> $A </s>", "$A"])
@pytest.mark.parametrize("space", ["Whitespace", "Metaspace"])
def test_tokens_around_completions(tmp_path, single, space):
    vocab = {"<s>": 0, "</s>": 1, "[UNK]": 2, "hello": 3, "world": 4, "\u2581hello": 5, "\u2581world": 6, "a": 7}
    words = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    words.pre_tokenizer = getattr(pre_tokenizers, space)()
    words.add_special_tokens(["<s>", "</s>"])
    words.post_processor = processors.TemplateProcessing(single=single, special_tokens=[("<s>", 0), ("</s>", 1)])
    words.save(str(tmp_path / "tokenizer.json"))
    config = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 1}
    config |= {"vocab_size": len(vocab), "max_position_embeddings": 64, "bos_token_id": 0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(tmp_path)
    texts = ["hello", "hello world</s>world", "<s>hello", "", "</s>", "hello<s> hello", "a\nhello " * 2_000]
    runs = run_of(PromptTokens(tokenizer), *(call(Api.COMPLETIONS, prompt=text) for text in texts))
    assert [tokenizer.encode(text, add_special=True) for text in texts] == [unpack(run) for run in runs]


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
