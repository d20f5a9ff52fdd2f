"""Whether the kernel is used: `EngineOptions.kernel`, the model, the device, and what can be had on this machine."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from prefold.engine.model_config import ModelConfig
from prefold.engine.native.build import NoKernel
from prefold.engine.native.library import Kernel, load_kernel
from prefold.engine.native.pool import fits
from prefold.engine.options import EngineOptions
from prefold.engine.progress import Progress
from prefold.errors import UsageError

if TYPE_CHECKING:
    import torch

_log = logging.getLogger(__name__)


def choose_kernel(
    config: ModelConfig, options: EngineOptions, device: torch.device, folder: Path, progress: Progress
) -> Kernel | None:
    """The kernel, or None where torch's own are used. Says so in the log if they need not have been.

    Args:
        config: the model's shape.
        options: see `EngineOptions.kernel`.
        device: where the model runs.
        folder: where compiled kernels are kept.
        progress: told when it is compiled.

    Raises:
        UsageError: if the kernel is asked for and cannot be used.
    """
    if options.kernel == "torch" or (options.kernel == "auto" and (device.type != "cpu" or options.grid > 1)):
        return None  # on a grid, logits are promised to the bit: the kernel's depend on where in a page a token lies
    reason = ""
    if device.type != "cpu":
        reason = f"it runs on the CPU, not on {device.type}"
    elif not fits(config.head_dim):
        reason = f"heads must have a multiple of 16 numbers, this model's have {config.head_dim}"
    else:
        try:
            kernel = load_kernel(folder, progress)
        except NoKernel as error:
            reason = str(error)
        else:
            _log.info("The model runs on the native kernel for %s", kernel.name)
            return kernel
    if options.kernel == "native":
        raise UsageError(
            f"The native kernel cannot be used: {reason}", hint="use --kernel auto, which goes on without it"
        )
    _log.warning("The model runs on torch's kernels, which are slower than the native one: %s", reason)
    return None
