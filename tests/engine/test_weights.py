"""Loading tensors from safetensors files."""

import json
from pathlib import Path

import pytest

from prefold.errors import ModelError

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

from prefold.engine.weights import load_weights  # noqa: E402 - after the skips


def save(folder: Path, name: str, **tensors: object) -> None:
    safetensors.save_file(tensors, folder / name)


def test_types_are_converted_and_whole_numbers_kept(tmp_path: Path) -> None:
    exact = torch.tensor([[1.0, -2.5], [0.1, 3e38]])
    save(tmp_path, "model.safetensors", half=exact.bfloat16(), full=exact, count=torch.tensor([2**40]))
    full = load_weights(tmp_path, torch.float32, "cpu")
    assert torch.equal(exact.bfloat16().float(), full["half"])
    assert torch.equal(exact, full["full"])
    half = load_weights(tmp_path, torch.bfloat16, "cpu")
    assert torch.equal(exact.bfloat16(), half["full"])
    assert torch.int64 == half["count"].dtype
    assert 2**40 == half["count"].item()


def test_shards_are_read_together(tmp_path: Path) -> None:
    save(tmp_path, "model-1.safetensors", a=torch.ones(2))
    save(tmp_path, "model-2.safetensors", b=torch.zeros(3))
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert {"a": (2,), "b": (3,)} == {
        name: tuple(tensor.shape) for name, tensor in load_weights(tmp_path, torch.float32, "cpu").items()
    }


@pytest.mark.parametrize("length", [0, 7, 30, -1])
def test_a_truncated_file_is_named(tmp_path: Path, length: int) -> None:
    save(tmp_path, "model.safetensors", a=torch.ones(100))
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ModelError) as caught:
        load_weights(tmp_path, torch.float32, "cpu")
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_a_header_that_only_the_library_faults_is_named(tmp_path: Path) -> None:
    save(tmp_path, "model.safetensors", a=torch.ones(100))
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b"F32", b"F3x"))
    with pytest.raises(ModelError, match="cannot be loaded") as caught:
        load_weights(tmp_path, torch.float32, "cpu")
    assert str(path) in caught.value.message
