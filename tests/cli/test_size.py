"""`prefold size`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefold.cli.size import size
from prefold.engine.checkpoint import Checkpoint
from prefold.errors import ModelError, UsageError

LLAMA_70B = {
    "model_type": "llama",
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_70B))
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(size, [str(argument) for argument in arguments], env={"COLUMNS": "100"})


def report(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exception is None
    assert "" == result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_config_file_as_json(config_file: Path) -> None:
    found = report(str(config_file), "--memory", "80GiB")
    assert {
        "schema_version": 1,
        "model": str(config_file),
        "attention": "GQA",
        "layers": 80,
        "kv_dtype": "bfloat16",
        "bytes_per_token": 327_680,
        "memory": 80 << 30,
        "context": {"tokens": 131_072, "bytes": 40 << 30, "requests": 2},
        "note": None,
    } == {key: value for key, value in found.items() if key != "contexts"}
    assert [4096, 8192, 16384, 32768, 65536, 131072] == [row["tokens"] for row in found["contexts"]]
    assert {"tokens": 4096, "bytes": 5 << 28, "requests": 64} == found["contexts"][0]


def test_the_table_says_the_same(config_file: Path) -> None:
    result = run(str(config_file), "--memory", "80GiB")
    assert result.exit_code == 0
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines() if "│" in line]
    assert ["1", "320 KiB", ""] in lines
    assert ["4,096", "1.25 GiB", "64"] in lines
    assert 1 == lines.count(["131,072", "40 GiB", "2"])
    assert "80 layers, GQA, bfloat16" in " ".join(result.stdout.split())


def test_without_memory_there_is_no_column_of_requests(config_file: Path) -> None:
    assert "requests" not in run(str(config_file)).stdout
    assert {"tokens", "bytes"} == set(report(str(config_file))["context"])


def test_context_and_dtype_can_be_given(config_file: Path) -> None:
    found = report(str(config_file), "--context", "1000", "--kv-dtype", "fp8")
    assert ("fp8", 174_080, {"tokens": 1000, "bytes": 174_080_000}) == (
        found["kv_dtype"],
        found["bytes_per_token"],
        found["context"],
    )


@pytest.mark.parametrize(
    ("per_token", "attention", "options"),
    [
        (327_680, "MHA or GQA", "--layers 80 --kv-heads 8 --head-dim 128"),
        (70_272, "MLA", "--layers 61 --kv-lora-rank 512 --rope-head-dim 64"),
    ],
)
def test_a_shape_can_be_described(per_token: int, attention: str, options: str) -> None:
    found = report(*options.split())
    assert (per_token, attention, None) == (found["bytes_per_token"], found["attention"], found["model"])
    assert 131_072 == found["context"]["tokens"]


def test_a_folder_and_a_model_that_prefold_cannot_serve(config_file: Path) -> None:
    config_file.write_text(json.dumps({**LLAMA_70B, "model_type": "mistral", "sliding_window": 4096}))
    found = report(str(config_file.parent))
    assert found["note"].startswith("Upper bound: layers 0-79 of 80 attend to a sliding window of 4096 tokens")
    assert "Upper bound" in run(str(config_file.parent)).stdout


def test_the_default_model(default_checkpoint: Checkpoint) -> None:
    assert default_checkpoint.folder.is_dir()  # so that nothing is fetched below
    assert (23_040, 8192) == (
        report("smollm2-135m-instruct")["bytes_per_token"],
        report("smollm2-135m-instruct")["context"]["tokens"],
    )


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("neither MODEL nor a shape", []),
        ("not described by --layers", ["--layers", "3"]),
        (
            "--kv-heads, --head-dim, --kv-lora-rank",
            ["--layers", "3", "--kv-heads", "1", "--head-dim", "1", "--kv-lora-rank", "1"],
        ),
        ("--layers describes a model, but MODEL is given too", ["smollm2-135m-instruct", "--layers", "3"]),
        ("'80G' has the unknown unit", ["--layers", "1", "--kv-heads", "1", "--head-dim", "1", "--memory", "80G"]),
        ("'int3' is not a dtype", ["--layers", "1", "--kv-heads", "1", "--head-dim", "1", "--kv-dtype", "int3"]),
    ],
)
def test_wrong_use_is_an_error_with_a_hint(message: str, arguments: list[str]) -> None:
    error = run(*arguments).exception
    assert isinstance(error, UsageError)
    assert message in error.message
    assert error.hint


def test_a_missing_model_is_named() -> None:
    error = run("no-such-model").exception
    assert isinstance(error, ModelError)
    assert "'no-such-model'" in error.message


def test_the_command_is_light_to_import() -> None:
    program = "import sys, prefold.cli.size; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    for heavy in ("torch", "transformers", "rich", "jinja2", "numpy", "prefold.engine.checkpoint"):
        assert f"'{heavy}'" not in loaded
