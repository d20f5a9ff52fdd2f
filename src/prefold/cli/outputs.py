"""Writing files that a user asked for."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from prefold.errors import UsageError


def write_file(path: Path, content: bytes) -> None:
    """Put a file's content in its place at once, so that nobody ever reads half of it; an existing file keeps its mode.

    Raises:
        UsageError: if it cannot be written.
    """
    target = path.resolve()  # a link stays a link
    try:
        descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            if target.exists():
                shutil.copymode(target, draft)
            else:
                Path(draft).chmod(0o666 & ~_umask())
            Path(draft).replace(target)
        except BaseException:  # Ctrl-C, too, leaves no draft behind
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}.", hint="Check the path and the rights of its folder."
        ) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
