"""Text to tokens and back: the default model's tokenizer, and small ones of the other kinds made here."""

import json
from functools import cache
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, processors

from prefold.engine.checkpoint import Checkpoint
from prefold.engine.tokenizer import Tokenizer
from prefold.errors import InvalidRequest, InvalidTokens, ModelError

TEXTS = [
    "The quick brown fox, it's said, jumps over 12,345.67 lazy dogs.",
    "你好，世界！今天是2026年11月30日。",
    "def f(x):\n\treturn x**2  # 平方\r\n\n\n",
    "👩‍👩‍👧‍👦 a family, 🏳️‍🌈 a flag, 🤦🏽‍♂️ a gesture",
    "naïve café Ω≈ç√ e\u0301 \u200b\u00a0\u3000 １２３ ½ ٣",
    "  leading and trailing  ",
    '{"a": [1, 2.50, null], "b": "\\u00e9"}',
    "�� real replacement characters �",
    "",
]


@pytest.fixture(scope="module")
def tokenizer(default_checkpoint: Checkpoint) -> Tokenizer:
    return Tokenizer(default_checkpoint.folder)


@pytest.mark.parametrize(
    ("expected", "text"),
    [  # as llama.cpp reads the GGUF file itself
        ([788, 216, 34, 32, 34, 38, 28, 216, 33, 34, 35, 36, 17837, 30], "In 2026, 1234 tokens."),
        ([1604, 275, 24, 104, 727, 198, 197, 5406, 1792, 828, 34, 216, 907, 216, 16738, 216, 164, 113],
         "def f(x):\n\treturn x**2  # ½ ٣"),
        ([1, 4093, 198, 18645, 250, 48392, 138, 15107, 235, 119, 321, 231, 10813, 235, 119, 321, 231, 10813, 235, 117,
          321, 231, 10813, 235, 116, 2], "<|im_start|>user\n你好 👩‍👩‍👧‍👦<|im_end|>"),
    ],
)  # fmt: skip
def test_the_default_model_splits_text_as_it_was_trained_to(
    tokenizer: Tokenizer, expected: list[int], text: str
) -> None:
    assert expected == tokenizer.encode(text, add_special=True)
    assert expected == tokenizer.encode(text, add_special=False)


@pytest.mark.parametrize("text", TEXTS)
def test_texts_survive_the_round_trip(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special=True)
    assert text == tokenizer.decode(ids)
    assert text.encode() == b"".join(tokenizer.token_bytes(token) for token in ids)


@given(st.text(), st.booleans())
@example("<|im_start|>user\nHi<|im_end|>\n" * 3, True)
@example(" ".join(TEXTS) * 40, False)
def test_ids_are_those_that_the_library_gives_one_text(
    tokenizer: Tokenizer, default_checkpoint: Checkpoint, text: str, add_special: bool
) -> None:
    library = _library(default_checkpoint.folder)
    assert library.encode(text, add_special_tokens=add_special).ids == tokenizer.encode(text, add_special=add_special)


@cache
def _library(folder: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_others_go_on_while_a_thread_tokenises(tokenizer: Tokenizer) -> None:
    """The library holds Python's lock in `encode`; then this loop would come around once or twice."""
    text = "some word " * 200_000
    rounds = 0
    thread = Thread(target=tokenizer.encode, args=(text,), kwargs={"add_special": False})
    thread.start()
    while thread.is_alive():
        rounds += 1
        sleep(0.001)
    assert rounds > 10


def test_special_tokens(tokenizer: Tokenizer) -> None:
    assert frozenset({2}) == tokenizer.eos_ids
    assert tokenizer.vocab_size == 49_152
    ids = tokenizer.encode("<|im_start|>a<|im_end|>", add_special=False)
    assert tokenizer.decode(ids) == "a"
    assert tokenizer.decode(ids, skip_special=False) == "<|im_start|>a<|im_end|>"
    assert tokenizer.token_text(1) == "<|im_start|>"
    assert tokenizer.token_bytes(1) == b"<|im_start|>"


def test_unknown_ids_have_no_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([49_152, 10**6]) == ""
    assert tokenizer.token_bytes(49_152) == b""


@pytest.mark.parametrize("ids", [[-1], [2**32], ["a"], [1.5]])
def test_what_is_no_token_id_is_refused(tokenizer: Tokenizer, ids: list[Any]) -> None:
    with pytest.raises(InvalidTokens):
        tokenizer.decode(ids)


def test_equals_transformers(default_checkpoint: Checkpoint, tokenizer: Tokenizer) -> None:
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoTokenizer.from_pretrained(default_checkpoint.folder)
    for text in TEXTS:
        assert reference.encode(text) == tokenizer.encode(text, add_special=True)
    messages = [{"role": "user", "content": "你好 42"}]
    theirs = reference.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert theirs == tokenizer.encode(tokenizer.apply_chat_template(messages), add_special=False)


@pytest.mark.parametrize(("place", "text"), [(1, "a\ud83d"), (0, "\udc00"), (3, "ok \ud83d\ud83d")])
def test_lone_surrogates_are_an_invalid_request(tokenizer: Tokenizer, place: int, text: str) -> None:
    with pytest.raises(InvalidRequest, match=f"at character {place}") as caught:
        tokenizer.encode(text, add_special=False)
    assert "pair" in caught.value.hint


def streamed(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = tokenizer.stream()
    return [*(stream.push(token) for token in ids), stream.flush()]


@pytest.mark.parametrize("text", TEXTS[:-2])
def test_streamed_text_never_shows_half_a_character(tokenizer: Tokenizer, text: str) -> None:
    pieces = streamed(tokenizer, tokenizer.encode(text, add_special=False))
    assert text == "".join(pieces)
    assert not any("\ufffd" in piece for piece in pieces)
    assert pieces[-1] == ""


def test_streamed_text_comes_as_soon_as_it_is_certain(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a👩b", add_special=False)
    assert ["a", "", "", "", "👩", "b", ""] == streamed(tokenizer, [ids[0], *_bytes_of(tokenizer, "👩"), ids[-1]])


def _bytes_of(tokenizer: Tokenizer, text: str) -> list[int]:
    """The text spelled by one token per byte."""
    single = {tokenizer.token_bytes(token): token for token in range(tokenizer.vocab_size)}
    return [single[bytes([byte])] for byte in text.encode()]


def test_an_unfinished_character_comes_out_at_the_end(tokenizer: Tokenizer) -> None:
    assert ["", "", "\ufffd"] == streamed(tokenizer, _bytes_of(tokenizer, "👩")[:2])


def test_a_long_run_of_replacement_characters_is_not_held_back(tokenizer: Tokenizer) -> None:
    pieces = streamed(tokenizer, tokenizer.encode("\ufffd" * 50, add_special=False))
    assert "\ufffd" * 50 == "".join(pieces)
    assert max(len(piece) for piece in pieces) <= 6


@given(st.lists(st.integers(min_value=0, max_value=49_151), max_size=40))
def test_any_stream_equals_decoding_at_once(tokenizer: Tokenizer, ids: list[int]) -> None:
    assert tokenizer.decode(ids) == "".join(streamed(tokenizer, ids))


@given(st.lists(st.integers(min_value=17, max_value=272), max_size=40))
def test_any_stream_of_single_bytes_equals_decoding_at_once(tokenizer: Tokenizer, ids: list[int]) -> None:
    """Mostly invalid UTF-8."""
    assert tokenizer.decode(ids) == "".join(streamed(tokenizer, ids))


def make_folder(folder: Path, tokenizer: tokenizers.Tokenizer, **config: Any) -> Path:
    shape = {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": 8,
        "num_attention_heads": 1,
        "vocab_size": tokenizer.get_vocab_size(),
        "max_position_embeddings": 64,
    }
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({**shape, **config}))
    return folder


def test_bos_is_added_once(tmp_path: Path) -> None:
    words = tokenizers.Tokenizer(models.WordLevel({"<s>": 0, "hello": 1, "world": 2, "[UNK]": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.add_special_tokens(["<s>"])
    words.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = Tokenizer(make_folder(tmp_path, words, bos_token_id=0))
    assert [0, 1, 2] == tokenizer.encode("hello world", add_special=True)
    assert [0, 1, 2] == tokenizer.encode("<s>hello world", add_special=True)
    assert [0, 1, 2] == tokenizer.encode("<s>hello world", add_special=False)
    assert [1, 2] == tokenizer.encode("hello world", add_special=False)


def test_texts_are_neither_cut_nor_filled_up(tmp_path: Path) -> None:
    """Whatever the file was saved with, as transformers has it too."""
    words = tokenizers.Tokenizer(models.WordLevel({"hello": 0, "[PAD]": 1}, unk_token="hello"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.enable_truncation(2)
    words.enable_padding(length=4, pad_id=1)
    tokenizer = Tokenizer(make_folder(tmp_path, words))
    assert [0] == tokenizer.encode("hello", add_special=False)
    assert [0] * 9 == tokenizer.encode("hello " * 9, add_special=False)


@pytest.fixture
def sentencepiece(tmp_path: Path) -> Tokenizer:
    """A tokenizer of Llama 2's kind: spaces as U+2581, unknown characters as bytes, the first space dropped."""
    vocab = {"<unk>": 0, "</s>": 1} | {f"<0x{byte:02X}>": 2 + byte for byte in range(256)}
    for piece in ["▁", "h", "i", "t", "e", "▁h", "▁hi", "▁t", "he", "▁the"]:
        vocab[piece] = len(vocab)
    merges = [("▁", "h"), ("▁h", "i"), ("▁", "t"), ("h", "e"), ("▁t", "he")]
    made = tokenizers.Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    made.add_special_tokens(["</s>"])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(make_folder(tmp_path, made, eos_token_id=1))


def test_sentencepiece_streams_spaces_and_bytes(sentencepiece: Tokenizer) -> None:
    ids = sentencepiece.encode("hi the 你 hi", add_special=False)
    pieces = streamed(sentencepiece, ids)
    assert pieces == ["hi", " the", " ", "", "", "你", " hi", ""]
    assert sentencepiece.decode(ids) == "".join(pieces)
    assert " hi the 你 hi".encode() == b"".join(sentencepiece.token_bytes(token) for token in ids)


def test_sentencepiece_keeps_spaces_after_special_tokens(sentencepiece: Tokenizer) -> None:
    hi, the = sentencepiece.encode("hi the", add_special=False)
    ids = [1, hi, 1, the, 1, 1, hi, hi]
    assert "hi the hi hi" == sentencepiece.decode(ids) == "".join(streamed(sentencepiece, ids))


def test_a_model_without_template_refuses_chats(sentencepiece: Tokenizer) -> None:
    assert not sentencepiece.has_chat_template
    with pytest.raises(InvalidRequest, match="no chat template"):
        sentencepiece.apply_chat_template([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", '{"model": {"type": "BPE"}}'])
def test_a_missing_or_damaged_file_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ModelError) as caught:
        Tokenizer(tmp_path)
    assert str(path) in caught.value.message
    assert caught.value.hint
