"""Requests in larger units: a sixty-fourth of the ids, for what need not be exact to the token."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

from prefold.analysis.request import Request
from prefold.core.tokens import WIDTH

BLOCK_TOKENS = 64


def coarsened(request: Request) -> Request:
    """The same request in blocks of `BLOCK_TOKENS` tokens, each named by the tokens up to its end.

    What does not fill a block is left out of the run and stays in `tokens`. Traces of blocks stay as they are. Names
    have 32 bits and follow the name of the block before, so that two prompts that differ once have other names from
    there on but for one block in four milliards.
    """
    if request.unit != 1:
        return request
    step = BLOCK_TOKENS * WIDTH
    run, name = request.run, 0
    ids = bytearray()
    for start in range(0, len(run) - step + 1, step):
        name = crc32(run[start : start + step], name)
        ids += name.to_bytes(WIDTH, "little")
    return replace(
        request,
        run=bytes(ids),
        unit=BLOCK_TOKENS,
        ends=(),
        positions=(),
        markers=(),
        system_end=request.system_end // BLOCK_TOKENS,
        output=b"",
    )
