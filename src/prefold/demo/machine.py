"""What a measurement ran on."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """A computer, as a reader of a result needs it.

    Attributes:
        processor: its model, as well as the system knows it.
        cores: logical ones that this process may use.
        system: operating system and architecture.
    """

    processor: str
    cores: int
    system: str


def this_machine() -> Machine:
    """The computer that this process runs on."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only; elsewhere a process may use all of them
    return Machine(
        processor=_model_name() or platform.processor() or platform.machine(),
        cores=len(affinity(0)) if affinity else os.cpu_count() or 1,
        system=f"{platform.system()} {platform.machine()}",
    )


def _model_name() -> str:
    """The processor's name on Linux, where `platform` does not tell it; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
