"""A model's tensors from its safetensors files, memory-mapped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from prefold.engine.safetensors_file import read_header, weight_files
from prefold.errors import ModelError

if TYPE_CHECKING:
    import torch


def load_weights(folder: Path, dtype: torch.dtype, device: torch.device | str) -> dict[str, torch.Tensor]:
    """Every tensor of the model in `folder`, by its name in the checkpoint.

    On the CPU, a tensor that already has `dtype` is a read-only view of the mapped file and costs no memory of its
    own until it is touched; treat all of them as read-only. Integer tensors keep their type.

    Args:
        folder: a Hugging Face folder with one safetensors file or several and their index.
        dtype: type of the floating-point tensors returned.
        device: where the tensors returned live.

    Raises:
        ModelError: if a file is missing, truncated or damaged, naming it.
    """
    weights: dict[str, torch.Tensor] = {}
    for path in weight_files(folder):
        read_header(path)  # its faults are named better than the library's
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                for name in file.keys():  # noqa: SIM118 - not a mapping
                    tensor = file.get_tensor(name)
                    weights[name] = tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)
        except (SafetensorError, OSError) as error:
            raise ModelError(
                f"{path} cannot be loaded: {error}.",
                hint="The file is damaged; download the model again.",
            ) from error
    return weights
