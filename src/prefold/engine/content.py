"""The whole content of a model's weights as one digest, for K/V that outlives the process.

`checkpoint.fingerprint` looks at samples, which is enough within a process and takes milliseconds. K/V on disk is met
again months later, perhaps by a model of which somebody has edited a few tensors in place: so every byte counts here.
SHA-256 makes about 2 GB/s; digests are remembered beside what tells that a file is still the same (its size, inode, and
times of modification and of change, the last of which no program can set).
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from prefold.engine.progress import Progress
from prefold.engine.safetensors_file import weight_files
from prefold.errors import ModelError

_CHUNK = 1 << 24
_REMEMBERED = 1000


def content_digest(folder: Path, memory: Path, progress: Progress) -> str:
    """Hex SHA-256 of all bytes of a model's weight files and their names.

    Args:
        folder: in the Hugging Face layout.
        memory: file in which digests are remembered; made, and left alone where that does not work.
        progress: told how far it is.

    Raises:
        ModelError: if a file cannot be read.
    """
    known = _recall(memory)
    digest = hashlib.sha256()
    try:
        files = weight_files(folder)
        for path in files:
            digest.update(f"{path.name}\0{_file_digest(path, known, progress)}\n".encode())
    except OSError as error:
        raise ModelError(
            f"{error.filename or folder} cannot be read: {error.strerror}.", hint="Check that it exists and its rights."
        ) from error
    _remember(memory, known)
    return digest.hexdigest()


def _file_digest(path: Path, known: dict[str, str], progress: Progress) -> str:
    with path.open("rb") as file:
        identity = _identity(path, file.fileno())
        if identity not in known:
            digest = hashlib.sha256()
            total = os.fstat(file.fileno()).st_size
            done = 0
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                done += len(chunk)
                progress(f"Checking {path.name}", done, total)
            if identity != _identity(path, file.fileno()):
                raise ModelError(f"{path} changed while it was read.", hint="Try again once it is complete.")
            known[identity] = digest.hexdigest()
        return known[identity]


def _identity(path: Path, descriptor: int) -> str:
    """What tells that a file is still the same."""
    about = os.fstat(descriptor)
    numbers = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    return f"{path.resolve()} {' '.join(map(str, numbers))}"


def _recall(memory: Path) -> dict[str, str]:
    try:
        known = json.loads(memory.read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in known.items()} if isinstance(known, dict) else {}


def _remember(memory: Path, known: dict[str, str]) -> None:
    latest = dict(list(known.items())[-_REMEMBERED:])
    with suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=memory.parent, prefix=f".{memory.name}-", delete=False) as draft:
            json.dump(latest, draft)
        Path(draft.name).replace(memory)
