"""What `prefold bench kv-quality` measures."""

from __future__ import annotations

import json
from random import Random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from click.testing import CliRunner  # noqa: E402

from prefold.cli.bench import bench  # noqa: E402
from prefold.engine.checkpoint import resolve  # noqa: E402
from prefold.engine.loading import make_pool  # noqa: E402
from prefold.engine.options import EngineOptions  # noqa: E402
from prefold.engine.quantised.quality import TEXTS, compare, measure, packaged_text  # noqa: E402
from prefold.errors import UnsupportedModel  # noqa: E402

CPU = torch.device("cpu")


def texts(*lengths):
    dice = Random(4)
    return {f"text {length}": [dice.randrange(3, 160) for _ in range(length)] for length in lengths}


@pytest.fixture
def found(tiny_config, tiny_decoder):
    """Measures ways of keeping K and V, on random texts."""

    def measured(names, *lengths):
        def maker(name):
            return lambda slots: make_pool(tiny_config, EngineOptions(dtype="float32", kv_dtype=name), slots)

        others = {name: maker(name) for name in names}
        told = []
        qualities = measure(tiny_decoder, texts(*lengths), maker(""), others, told.append, device=CPU)
        assert told
        return {quality.name: quality for quality in qualities}

    return measured


def test_the_reference_is_like_itself(found):
    same = found(["float32"], 300, 40)["float32"]
    assert (340, 0.0, 0.0, 0.0) == (same.tokens, same.relative_error, same.largest_error, same.changed)
    assert same.reference_perplexity == same.perplexity
    assert (1.0, same.answer_tokens) == (same.agreed, same.agreed_prefix)
    assert 4 == same.answers  # three from the long text, one from the one that is no longer than a prompt


def test_fewer_bits_err_more(found):
    by_name = found(["bfloat16", "int8", "int4"], 300)
    two, eight, four = by_name.values()
    assert 0 < two.relative_error < eight.relative_error < four.relative_error < 1
    assert eight.changed <= four.changed
    assert eight.tokens_per_gib < four.tokens_per_gib
    assert 2 * 32 * 2 * 2 * 2 == two.bytes_per_token


def test_perplexity_is_that_of_the_text(tiny_decoder, tiny_config, tiny_folder, found):
    """Against transformers, which knows no pool."""
    import transformers  # noqa: PLC0415

    (text,) = texts(300).values()
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    with torch.inference_mode():
        loss = model(torch.tensor([text]), labels=torch.tensor([text])).loss
    assert found(["int8"], 300)["int8"].reference_perplexity == pytest.approx(loss.exp().item(), rel=1e-4)


def test_the_texts_travel_with_the_package():
    assert 3 == len(TEXTS)
    for name in TEXTS:
        assert 500 < len(packaged_text(name))
    assert "def run(" in packaged_text("code")


def test_a_model_is_compared_as_the_command_shows_it(tiny_folder):
    result = CliRunner().invoke(bench, ["kv-quality", str(tiny_folder), "--json"])
    assert 0 == result.exit_code, result.output
    report = json.loads(result.stdout)
    assert (1, "float32", "cpu") == (report["schema_version"], report["dtype"], report["device"])
    assert ["bfloat16", "int8", "int4"] == [kv["name"] for kv in report["kv"]]
    assert all(kv["tokens_per_gib"] == (1 << 30) // kv["bytes_per_token"] for kv in report["kv"])
    assert "Reading" in result.stderr

    shown = CliRunner().invoke(bench, ["kv-quality", str(tiny_folder), "--dtype", "bf16"], env={"COLUMNS": "140"})
    assert 0 == shown.exit_code, shown.output
    assert "int4" in shown.stdout


def test_a_model_that_does_not_fit_is_refused(tmp_path, save_model):
    save_model(tmp_path, head_dim=16)
    checkpoint = resolve(str(tmp_path), cache_dir=tmp_path, progress=lambda *_: None)
    with pytest.raises(UnsupportedModel, match="multiples of 32"):
        compare(checkpoint, EngineOptions(dtype="float32"), lambda _: None)


def test_a_short_context_cuts_the_texts(tmp_path, save_model):
    save_model(tmp_path, max_position_embeddings=80)
    checkpoint = resolve(str(tmp_path), cache_dir=tmp_path, progress=lambda *_: None)
    assert len(TEXTS) * 32 == compare(checkpoint, EngineOptions(dtype="float32"), lambda _: None)[0].tokens
