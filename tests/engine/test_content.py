"""The digest of a model's weights."""

import json
import os
import struct
from pathlib import Path

import pytest

from prefold.engine.content import content_digest
from prefold.errors import ModelError


def write_model(folder: Path, last: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    header = json.dumps({"w": {"dtype": "U8", "shape": [100_000], "data_offsets": [0, 100_000]}}).encode()
    weights = folder / "model.safetensors"
    weights.write_bytes(struct.pack("<Q", len(header)) + header + bytes(99_999) + bytes([last]))
    return weights


def digest(folder: Path, memory: Path, seen: list[str] | None = None) -> str:
    return content_digest(folder, memory, lambda stage, *_: seen.append(stage) if seen is not None else None)


def test_every_byte_counts(tmp_path: Path) -> None:
    memory = tmp_path / "memory" / "digests.json"
    write_model(tmp_path / "one")
    write_model(tmp_path / "same")
    write_model(tmp_path / "other", last=1)
    assert digest(tmp_path / "one", memory) == digest(tmp_path / "same", memory)
    assert digest(tmp_path / "one", memory) != digest(tmp_path / "other", memory)


def test_it_is_computed_once(tmp_path: Path) -> None:
    memory = tmp_path / "digests.json"
    write_model(tmp_path / "one")
    seen: list[str] = []
    first = digest(tmp_path / "one", memory, seen)
    assert ["Checking model.safetensors"] == seen
    assert first == digest(tmp_path / "one", memory, seen)
    assert 1 == len(seen)


def test_a_byte_changed_in_place_is_seen_whatever_the_clock_says(tmp_path: Path) -> None:
    memory = tmp_path / "digests.json"
    weights = write_model(tmp_path / "one")
    first = digest(tmp_path / "one", memory)
    about = weights.stat()
    with weights.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\1")
    os.utime(weights, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert first != digest(tmp_path / "one", memory)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_a_damaged_memory_is_none(tmp_path: Path, content: bytes) -> None:
    memory = tmp_path / "digests.json"
    write_model(tmp_path / "one")
    expected = digest(tmp_path / "one", memory)
    memory.write_bytes(content)
    assert expected == digest(tmp_path / "one", memory)


def test_a_memory_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    write_model(tmp_path / "one")
    assert 64 == len(digest(tmp_path / "one", tmp_path / "file" / "digests.json"))


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        digest(tmp_path, tmp_path / "digests.json")
