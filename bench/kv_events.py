"""How many block events a second reach the index: decoding, keys of our own, and indexing, in one thread.

    python bench/kv_events.py [--prompts 2000] [--rounds 5] [--json]

Each message stores blocks of one prompt in vLLM's form, 32 blocks of 16 tokens behind a shared beginning, or as many
tokens in pages of one, which is SGLang's default. Then all of them are taken back. A block event is one block stored or
removed, as the engine counts blocks. The median of the rounds is shown, by CPU time, and the time that a lookup takes
of a prompt of 8,192 tokens among eight replicas.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator

import msgspec

from prefold.core.block_index import BlockIndex
from prefold.core.tokens import pack
from prefold.gateway.events.decode import Removed, Stored, decode_batch
from prefold.gateway.events.holdings import Holdings
from prefold.gateway.events.places import Places

BLOCK_SIZE = 16
SHARED_BLOCKS = 8
OWN_BLOCKS = 32
REPLICAS = 8
LOOKUP_TOKENS = 8_192


def messages(prompts: int, page: int, *, is_positional: bool) -> tuple[list[bytes], int]:
    """Messages that store the blocks of prompts and take them back, and how many blocks are in them."""
    draw = random.Random(1)
    encode = msgspec.msgpack.Encoder().encode
    names = (draw.randbytes(32) if page == BLOCK_SIZE else draw.getrandbits(63) for _ in iter(int, 1))
    stored, removed, blocks = [], [], 0

    def event(kind: str, **fields: object) -> object:
        return [kind, *fields.values()] if is_positional else {"type": kind, **fields}

    def store(tokens: int, parent: object) -> object:
        nonlocal blocks
        hashes = [next(names) for _ in range(tokens // page)]
        blocks += 2 * len(hashes)
        told = event(
            "BlockStored",
            block_hashes=hashes,
            parent_block_hash=parent,
            token_ids=draw.choices(range(150_000), k=tokens),
            block_size=page,
            lora_id=None,
            medium="GPU",
        )
        stored.append(encode([time.time(), [told], 0]))
        removed.append(encode([time.time(), [event("BlockRemoved", block_hashes=hashes, medium="GPU")], 0]))
        return hashes[-1]

    beginning = store(SHARED_BLOCKS * BLOCK_SIZE, None)
    for _ in range(prompts):
        store(OWN_BLOCKS * BLOCK_SIZE, beginning)
    return [*stored, *reversed(removed)], blocks


def follow(payloads: list[bytes], blocks: int) -> int:
    """Follow messages into an index; how many of our blocks it held at most."""
    index = BlockIndex(2 * blocks)
    places, holdings, most = Places(index, BLOCK_SIZE, blocks), Holdings(0, index), 0
    for payload in payloads:
        for event in decode_batch(payload).events:
            if isinstance(event, Stored):
                holdings.add(places.stored(event).keys)
            elif isinstance(event, Removed):
                most = max(most, index.size)
                holdings.remove(places.removed(event))
    return most


def lookup_seconds() -> float:
    """Time to make the keys of a prompt that all replicas hold and to match them."""
    run = pack(random.Random(2).choices(range(150_000), k=LOOKUP_TOKENS))
    index = BlockIndex(100_000)
    for replica in range(REPLICAS):
        index.add(replica, index.keys(run, BLOCK_SIZE))
    times = []
    for _ in range(200):
        start = time.perf_counter()
        index.match(index.keys(run, BLOCK_SIZE))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def figures(prompts: int, rounds: int) -> Iterator[tuple[str, float]]:
    """Names and values."""
    for name, page, is_positional in (
        ("maps, blocks of 16", BLOCK_SIZE, False),
        ("arrays, blocks of 16", BLOCK_SIZE, True),
        ("maps, pages of 1", 1, False),
    ):
        payloads, blocks = messages(
            prompts if page > 1 else max(prompts // BLOCK_SIZE, 1), page, is_positional=is_positional
        )
        rates = []
        for _ in range(rounds):
            start = time.process_time()
            if not follow(payloads, blocks):
                raise SystemExit("nothing was indexed")
            rates.append(blocks / (time.process_time() - start))
        yield f"{name}, block events/s", statistics.median(rates)
    yield f"lookup of {LOOKUP_TOKENS:,} tokens, ms", 1_000 * lookup_seconds()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measured = dict(figures(options.prompts, options.rounds))
    if options.json:
        print(json.dumps(measured))
    else:
        for name, value in measured.items():
            print(f"{name:40} {value:14,.3f}")


if __name__ == "__main__":
    main()
