"""Reading what a command line names: files, lines of a log, standard input."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from prefold.errors import UsageError

STANDARD_INPUT = "-"
_LONGEST_NUMBER = 12  # digits of a line's number
LARGEST = 512 * 1024 * 1024
"""Bytes of one input that is held in memory as a whole."""


def read_bytes(name: str) -> bytes:
    """A file's content, or that of standard input for `-`.

    Raises:
        UsageError: if it cannot be read, or is larger than `LARGEST`.
    """
    if name == STANDARD_INPUT:
        content = sys.stdin.buffer.read(LARGEST + 1)
    else:
        path = Path(name)
        try:
            with path.open("rb") as file:
                content = file.read(LARGEST + 1)
        except FileNotFoundError:
            raise UsageError(f"There is no file {name}.", hint="Check the path; - is standard input.") from None
        except OSError as error:
            raise UsageError(f"{name} cannot be read: {error.strerror}.", hint="Give a file.") from None
    if len(content) > LARGEST:
        raise UsageError(
            f"{shown(name)} is larger than {LARGEST // 1024**2} MiB.", hint="Give one request, not a whole log."
        )
    return content


def read_request(name: str) -> bytes:
    """A request: a file's content, or with `FILE:NUMBER` one line of it, counted from 1.

    Raises:
        UsageError: as `read_bytes`, or if the file has no such line.
    """
    file, colon, number = name.rpartition(":")
    is_number = number.isdecimal() and len(number) <= _LONGEST_NUMBER
    if not colon or not is_number or (name != STANDARD_INPUT and os.path.lexists(name)):
        return read_bytes(name)
    lines = read_bytes(file).splitlines()
    if not 1 <= int(number) <= len(lines):
        raise UsageError(f"{shown(file)} has {len(lines)} lines, not {number}.", hint="Lines are counted from 1.")
    return lines[int(number) - 1]


def shown(name: str) -> str:
    """How messages call an input."""
    return "Standard input" if name == STANDARD_INPUT else name
