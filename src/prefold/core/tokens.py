"""Token runs as packed bytes.

A run of tokens is `bytes`: little-endian uint32, four bytes a token. In that form a run is hashed without
conversion, compared by `memcmp` and sliced by `memcpy`, which is what makes matching run at memory speed in plain
Python. Positions and lengths in every public interface are counted in tokens, never in bytes.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable

from prefold.errors import InvalidTokens

WIDTH = 4
"""Bytes per token."""


def pack(tokens: Iterable[int]) -> bytes:
    """Pack token ids into a run.

    Raises:
        InvalidTokens: for an id that is not a whole number from 0 to 2**32 - 1.
    """
    if isinstance(tokens, bytes | bytearray):
        # array() would take them as packed already, in the byte order of the machine.
        raise InvalidTokens("Not a list of token ids: bytes", hint="a run of tokens needs no packing")
    try:
        packed = array("I", tokens)
    except (TypeError, OverflowError) as error:
        raise InvalidTokens(f"Not a list of token ids: {error}", hint="token ids are whole numbers >= 0") from None
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack(run: bytes) -> list[int]:
    """Token ids of a run."""
    tokens = array("I")
    tokens.frombytes(run)
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens.tolist()


def count(run: bytes) -> int:
    """Number of tokens in a run."""
    return len(run) // WIDTH


def common_prefix(run: bytes, other: bytes, at: int = 0) -> int:
    """Number of leading tokens that `run` shares with `other` from token `at` on.

    Halves the interval that holds the first difference and compares only what is still unknown, so no byte is
    compared more than about twice.
    """
    start = at * WIDTH
    low, high = 0, min(len(run), len(other) - start)
    if other.startswith(run[:high], start):
        return high // WIDTH
    # run[:low] is equal, run[:high] is not.
    while high - low > WIDTH:
        middle = low + (high - low) // (2 * WIDTH) * WIDTH
        if other.startswith(run[low:middle], start + low):
            low = middle
        else:
            high = middle
    return low // WIDTH
