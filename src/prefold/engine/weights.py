"""A model's tensors from its safetensors files."""

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

    Each has memory of its own, even where it could have stayed a view of the mapped file: whoever edits the file in
    place would else change a model that runs, and K/V would no longer be those of the weights they are kept under.
    Integer tensors keep their type.

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
                    wanted = dtype if tensor.is_floating_point() else tensor.dtype
                    weights[name] = tensor.to(device, wanted, copy=True)
        except (SafetensorError, OSError) as error:
            raise ModelError(
                f"{path} cannot be loaded: {error}.",
                hint="The file is damaged; download the model again.",
            ) from error
    return weights
