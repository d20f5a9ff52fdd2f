"""A folder's weight files and their headers, read without any library so that every fault names its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prefold.engine.model_config import read_json_object
from prefold.errors import ModelError, UnsupportedModel

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
# The format's own limit on its header.
_LARGEST_HEADER = 100_000_000


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make up a model, in name order.

    Raises:
        UnsupportedModel: if the only weights are pickles.
        ModelError: if there are none, or a shard that the index lists is missing.
    """
    index_path = folder / _INDEX
    if index_path.exists():
        weight_map = read_json_object(index_path).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise ModelError(f"{index_path} has no weight_map.", hint="Download the model again.")
        names = {str(name) for name in weight_map.values()}
        files = [folder / name for name in sorted(names)]
        for name, path in zip(sorted(names), files, strict=True):
            if Path(name).name != name or not path.is_file():
                raise ModelError(
                    f"{index_path} lists the file {name!r}, which is not in the folder.",
                    hint="The download is incomplete; download the model again.",
                )
        return files
    if (folder / _SINGLE).is_file():
        return [folder / _SINGLE]
    others = sorted(folder.glob("*.safetensors"))
    if len(others) == 1:
        return others
    if not others and any(any(folder.glob(pattern)) for pattern in _PICKLES):
        raise UnsupportedModel(
            f"{folder} holds its weights as pickles only, which can run any code when they are loaded.",
            hint="Use a copy of the model with *.safetensors; most models on the hub have one.",
        )
    raise ModelError(
        f"{folder} has no {_SINGLE} and no {_INDEX}.",
        hint="The download is incomplete, or this is not a model folder.",
    )


def read_header(path: Path) -> bytes:
    """The JSON header of a safetensors file, after checking that the file holds all the data it describes.

    Raises:
        ModelError: if the file is unreadable, truncated or not safetensors.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(_LARGEST_HEADER, size - 8):
                raise _damaged(path, "it is shorter than its header says, or no safetensors file at all")
            header = file.read(length)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", hint="Check its access rights.") from error
    try:
        tensors: dict[str, Any] = json.loads(header)
        end = max((entry["data_offsets"][1] for name, entry in tensors.items() if name != "__metadata__"), default=0)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise _damaged(path, "its header is not that of a safetensors file") from None
    if not isinstance(end, int) or size != 8 + length + end:
        raise _damaged(path, f"it is {size} bytes long where its header describes {8 + length} + {end}")
    return header


def _damaged(path: Path, why: str) -> ModelError:
    return ModelError(
        f"{path} is damaged or incomplete: {why}.",
        hint="Download the model again; a folder in prefold's own cache can be deleted and is then made afresh.",
    )
