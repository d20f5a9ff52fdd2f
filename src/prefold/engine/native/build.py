"""The C++ kernel compiled on first use, with the compiler that is there, and kept in the user's cache folder.

The file's name holds two hashes: of source and flags, and of the compiler, so that an update compiles it anew. Where
nothing can be compiled, the file of any compiler will do. It is compiled under another name and renamed into place, so
that two processes may build at once, and it ends with the hash of its own content, so that a damaged one is seen and
built anew.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prefold.engine.progress import Progress
from prefold.errors import UsageError

ISA_VARIABLE = "PREFOLD_NATIVE_ISA"
"""Environment variable that chooses a target by its name, where the CPU has more than one."""

_FLAGS = ["-O3", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-math-errno"]
_SOURCES = ("vector.h", "tile.h", "crew.h", "quantised.h", "pool.h", "attention.h", "native.cpp")
_MAIN = "native.cpp"
_TIMEOUT_SECONDS = 60
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
        UsageError: if there is no target of that name for any CPU.
    """
    wanted = environ.get(ISA_VARIABLE)
    known = [target.name for target in TARGETS]
    if wanted and wanted not in known:
        raise UsageError(f"{ISA_VARIABLE} is {wanted!r}", hint=f"known: {', '.join(known)}")
    found = targets_here()
    if not found:
        raise NoKernel(f"there is no kernel for this CPU ({platform.machine()}, {platform.system()})")
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
        NoKernel: if the CPU is unknown, or nothing is kept and there is no compiler, or it fails.
        UsageError: see `choose_target`.
    """
    target = choose_target(environ)
    sources = {name: Path(__file__).with_name(name).read_bytes() for name in _SOURCES}
    flags = [*_FLAGS, *target.flags]
    stem = f"{target.name}-{_key(sources, flags)}"
    try:
        compiler = _compiler(environ)
        path = folder / f"{stem}-{_key_of_compiler(compiler)}.so"
        if not is_whole(path):
            stage = f"Compiling the CPU kernel for {target.name}"
            progress(stage, 0, 0)
            _make(path, sources, [*compiler, *flags])
            progress(stage, 1, 1)
    except NoKernel:
        kept = next(filter(is_whole, sorted(folder.glob(f"{stem}-*.so"))), None)
        if kept is None:
            raise
        return kept
    return path


def _make(path: Path, sources: Mapping[str, bytes], command: list[str]) -> None:
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch:
            for name, content in sources.items():
                Path(scratch, name).write_bytes(content)
            made = Path(scratch, "kernel.so")
            _compile([*command, str(Path(scratch, _MAIN)), "-o", str(made)], Path(scratch, "said"))
            try:
                ctypes.CDLL(str(made))
            except OSError as error:
                raise NoKernel(f"what {command[0]} made cannot be loaded: {error}") from error
            with made.open("ab") as file:
                file.write(hashlib.sha256(made.read_bytes()).digest())
            made.replace(path)
    except OSError as error:
        raise NoKernel(f"the compiled kernel cannot be kept: {error}") from error


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
        raise NoKernel(f"there is no C++ compiler ({command[0]} is not found; on Debian and Ubuntu, apt install g++)")
    return [found, *command[1:]]


def _key_of_compiler(command: list[str]) -> str:
    """Hash of the command, and of the compiler's size and time, which an update changes."""
    status = os.stat(command[0])  # noqa: PTH116 - follows the links behind c++
    return hashlib.sha256(repr((command, status.st_size, status.st_mtime_ns)).encode()).hexdigest()[:12]


def _key(sources: Mapping[str, bytes], flags: list[str]) -> str:
    digest = hashlib.sha256(repr(flags).encode())
    for name, content in sorted(sources.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:24]


def _compile(command: list[str], said: Path) -> None:
    """Run a compiler.

    Args:
        command: what to run.
        said: file for what it says; a pipe would be held open by whatever a wrapper has started.
    """
    try:
        with said.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603 - the user's own compiler
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
    except OSError as error:
        raise NoKernel(f"the C++ compiler cannot be run: {error}") from error
    try:
        code = process.wait(_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise NoKernel(f"{command[0]} has not ended after {_TIMEOUT_SECONDS} seconds") from error
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # a wrapper has children
            process.wait()
    if code:
        lines = said.read_text(errors="replace").splitlines() or ["it says nothing"]
        told = next((line for line in lines if "error" in line), lines[0])
        raise NoKernel(f"{command[0]} failed with exit code {code}: {told.strip()}")
