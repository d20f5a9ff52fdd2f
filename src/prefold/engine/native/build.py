"""The C++ kernel compiled on first use, with the compiler that is there, and kept in the user's cache folder.

The file's name holds a hash of everything that it depends on: source, compiler, flags. It is compiled under another
name and renamed into place, so that two processes may build at once, and it ends with the hash of its own content, so
that a damaged one is seen and built anew.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prefold.engine.progress import Progress

ISA_VARIABLE = "PREFOLD_NATIVE_ISA"
"""Environment variable that chooses a target by its name, where the CPU has more than one."""

_FLAGS = ["-O3", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-math-errno"]
_SOURCES = ("vector.h", "tile.h", "crew.h", "quantised.h", "pool.h", "attention.h", "native.cpp")
_MAIN = "native.cpp"
_TIMEOUT_SECONDS = 300
_CPU_INFO = Path("/proc/cpuinfo")


class NoKernel(Exception):
    """Why the kernel cannot be used here, as half a sentence."""


@dataclass(frozen=True, slots=True)
class Target:
    """A set of instructions that the kernel has a form for.

    Attributes:
        name: what it is called.
        needs: what /proc/cpuinfo calls the features.
        flags: for the compiler.
    """

    name: str
    needs: frozenset[str]
    flags: tuple[str, ...]


_AVX2 = frozenset({"avx2", "fma", "f16c", "bmi1", "bmi2", "movbe", "abm"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
TARGETS = (
    Target("avx512bf16", _AVX512 | {"avx512_bf16"}, ("-march=x86-64-v4", "-mavx512bf16")),
    Target("avx512", _AVX512, ("-march=x86-64-v4",)),
    Target("avx2", _AVX2, ("-march=x86-64-v3",)),
)
"""The fastest first."""


def targets_here() -> list[Target]:
    """Those that this CPU can run, the fastest first."""
    if platform.machine() not in ("x86_64", "AMD64") or not _CPU_INFO.exists():
        return []
    for line in _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("flags"):
            features = set(line.partition(":")[2].split())
            return [target for target in TARGETS if target.needs <= features]
    return []


def choose_target(environ: Mapping[str, str]) -> Target:
    """The fastest target, or the one that `PREFOLD_NATIVE_ISA` names.

    Raises:
        NoKernel: if there is none.
    """
    found = targets_here()
    if not found:
        raise NoKernel(f"there is no kernel for this CPU ({platform.machine()}, {platform.system()})")
    wanted = environ.get(ISA_VARIABLE)
    if not wanted:
        return found[0]
    for target in found:
        if target.name == wanted:
            return target
    names = ", ".join(target.name for target in found)
    raise NoKernel(f"{ISA_VARIABLE} is {wanted!r}, and this CPU has {names}")


def build(folder: Path, environ: Mapping[str, str], progress: Progress) -> Path:
    """The compiled kernel for this CPU, from `folder` or put there.

    Args:
        folder: where compiled kernels are kept.
        environ: `CXX` is the compiler, `c++` without it; `PREFOLD_NATIVE_ISA` see `choose_target`.
        progress: told when something is compiled.

    Raises:
        NoKernel: if there is no compiler, it fails, or the CPU is unknown.
    """
    target = choose_target(environ)
    compiler = _compiler(environ)
    sources = {name: Path(__file__).with_name(name).read_bytes() for name in _SOURCES}
    flags = [*_FLAGS, *target.flags]
    path = folder / f"{target.name}-{_key(sources, compiler, flags)}.so"
    if is_whole(path):
        return path
    stage = f"Compiling the CPU kernel for {target.name}"
    progress(stage, 0, 0)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch:
            for name, content in sources.items():
                Path(scratch, name).write_bytes(content)
            made = Path(scratch, "kernel.so")
            _compile([*compiler, *flags, str(Path(scratch, _MAIN)), "-o", str(made)])
            with made.open("ab") as file:
                file.write(hashlib.sha256(made.read_bytes()).digest())
            made.replace(path)
    except OSError as error:
        raise NoKernel(f"the compiled kernel cannot be kept: {error}") from error
    progress(stage, 1, 1)
    return path


def is_whole(path: Path) -> bool:
    """Whether a compiled kernel is there as it was written."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return len(content) > 32 and hashlib.sha256(content[:-32]).digest() == content[-32:]


def _compiler(environ: Mapping[str, str]) -> list[str]:
    """The command; `CXX` may hold arguments too, as everywhere."""
    command = shlex.split(environ.get("CXX", "")) or ["c++"]
    found = shutil.which(command[0], path=environ.get("PATH"))
    if found is None:
        raise NoKernel(f"there is no C++ compiler ({command[0]} is not found)")
    return [found, *command[1:]]


def _key(sources: Mapping[str, bytes], compiler: list[str], flags: list[str]) -> str:
    """Hash of what the compiled file depends on; of the compiler its path, size and time, which an update changes."""
    status = os.stat(compiler[0])  # noqa: PTH116 - follows the links behind c++
    digest = hashlib.sha256(repr((compiler, status.st_size, status.st_mtime_ns, flags)).encode())
    for name, content in sorted(sources.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:24]


def _compile(command: list[str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own compiler
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoKernel(f"the C++ compiler cannot be run: {error}") from error
    if done.returncode:
        lines = done.stderr.splitlines() or ["it says nothing"]
        said = next((line for line in lines if "error" in line), lines[0])
        raise NoKernel(f"{command[0]} failed with exit code {done.returncode}: {said.strip()}")
