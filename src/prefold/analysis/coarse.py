"""Requests in larger units: a sixty-fourth of the ids, for what need not be exact to the token."""

from __future__ import annotations

import sys
from array import array
from itertools import starmap
from struct import iter_unpack
from zlib import crc32

from prefold.analysis.request import Request
from prefold.core.tokens import WIDTH

BLOCK_TOKENS = 64
_BLOCK_BYTES = BLOCK_TOKENS * WIDTH


def coarsened(request: Request) -> Request:
    """The prompt of a request in blocks of `BLOCK_TOKENS` tokens, and what says when it came, from whom and how long.

    What does not fill a block is left out of the run and stays in `tokens`. Traces of blocks stay as they are. A block
    is named by its tokens alone, in 32 bits: of two prompts that differ, the blocks that do have other names, but for
    one in four milliards.
    """
    if request.unit != 1:
        return request
    return Request(
        run=_block_names(request.run),
        unit=BLOCK_TOKENS,
        tokens=request.tokens,
        time=request.time,
        record=request.record,
        system_end=request.system_end // BLOCK_TOKENS,
        salt=request.salt,
        output_tokens=request.output_tokens,
    )


def _block_names(run: bytes) -> bytes:
    whole = run[: len(run) // _BLOCK_BYTES * _BLOCK_BYTES]
    names = array("I", starmap(crc32, iter_unpack(f"{_BLOCK_BYTES}s", whole)))
    if sys.byteorder == "big":
        names.byteswap()
    return names.tobytes()
