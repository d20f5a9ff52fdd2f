"""Hit rates of prefold's eviction policies on public traces, beside the offline optimum, and what they cost.

    python bench/policies.py
    python bench/policies.py --trace coding --policy default --seed 1 --beside
    python bench/policies.py --policy default --attention-span 3072

Each policy drives `prefold.core.cache.Cache` without values, one request after the other: admitted and released at the
time that the trace gives. An id is a block of 512 tokens. Rates are blocks hit divided by blocks sent, counted from the
middle of the trace on, so that no policy is judged on what it has not had time to fill or to learn (`--from 0` for all
of it). A request longer than the capacity is a miss and is not kept.

    gap     share of the distance from LRU to MIN that the policy closes. MIN evicts the block whose next use lies
            furthest ahead, deepest first, and so never breaks a chain; it may also refuse a block. A cache cannot: the
            prompt that is being computed is in it. `held` is the optimum of caches that must take each prompt in.
            With `--beside` it need not be: running requests have room of their own, and only what they leave behind
            competes for the capacity, so that a policy may refuse it as MIN does. LRU and the default only: the
            others count on a tree within the capacity.
    saved   with `--attention-span TOKENS`, at which position attention costs as much as all the rest of a token (3,072
            for SmolLM2-135M, 24,576 for a model 4,096 wide): policies are told what blocks cost, as the engine tells
            them, and the second figure is not `gap` but the share of all computation that hits save
    us      CPU time a block, all of the cache's work included, in microseconds; LRU's line shows what the tree takes

Traces:
    mooncake  the conversation trace
    coding    sessions with coding agents, 120 of them drawn and started over four hours by `--seed`; blocks of 64
              tokens taken by eights. With the reasons why answers ended
    silent    the same without these reasons

Exit codes: 0, or 2 for wrong arguments or where the traces are not there.
"""

from __future__ import annotations

import argparse
import gzip
import heapq
import json
import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prefold.core.cache import Cache, Lease, NoValues
from prefold.core.keys import SHARED
from prefold.core.policies import POLICIES, Cost
from prefold.core.tokens import count, pack, unpack

DATA = Path(__file__).resolve().parents[2] / "shared/data"
CAPACITIES = {
    "mooncake": (1_000, 5_000, 10_000, 30_000, 50_000),
    "coding": (1_000, 2_000, 4_000, 6_000),
    "silent": (1_000, 2_000, 4_000, 6_000),
}
SESSIONS, SPREAD = 120, 4 * 3600.0
NEVER = 1 << 60


@dataclass(frozen=True)
class Request:
    """One request: seconds, ids of its blocks, tokens of its answer, why that ended."""

    time: float
    run: bytes
    output_tokens: int
    stop: str


def mooncake(data: Path) -> list[Request]:
    """The conversation trace."""
    lines = (data / "traces/mooncake/conversation_trace.jsonl").read_text().splitlines()
    return [Request(r["timestamp"] / 1000, pack(r["hash_ids"]), r["output_length"], "") for r in map(json.loads, lines)]


def coding(data: Path, seed: int) -> list[Request]:
    """Coding sessions, interleaved. Ids are made global: those of the file are local to a session."""
    sessions: dict[str, list[dict[str, Any]]] = {}
    with gzip.open(data / "traces/claude_code/sessions_even.jsonl.gz", "rt") as lines:
        for line in lines:
            record = json.loads(line)
            sessions.setdefault(record["session"], []).append(record)
    chance = random.Random(seed)
    names = sorted(sessions)
    chance.shuffle(names)
    ids: dict[tuple[object, ...], int] = {}
    requests = []
    for name in names[:SESSIONS]:
        start = chance.random() * SPREAD
        for record in sessions[name]:
            small = [block for first, length in record["blocks"] for block in range(first, first + length)]
            eights = zip(*[iter(small)] * 8, strict=False)
            blocks = [ids.setdefault((name, *eight), len(ids)) for eight in eights]
            if blocks:
                requests.append(Request(start + record["t"], pack(blocks), record["out"], record["stop"]))
    return sorted(requests, key=lambda request: request.time)


def load(trace: str, data: Path, seed: int) -> list[Request]:
    """The requests of a trace."""
    if trace == "mooncake":
        return mooncake(data)
    requests = coding(data, seed)
    return requests if trace == "coding" else [replace(request, stop="") for request in requests]


def optimum(requests: list[Request], capacity: int, skip: int, *, held: bool) -> int:
    """Blocks hit by MIN from request `skip` on; `held`: a prompt must be taken in whole.

    A block is used whenever one behind it is, so that evicting what is used last, and of equals the deepest, evicts
    leaves only.
    """
    prompts = [unpack(request.run) for request in requests]
    if held:  # a prompt that does not fit uses nothing
        prompts = [prompt if len(prompt) <= capacity else [] for prompt in prompts]
    later: list[list[int]] = [[] for _ in prompts]
    seen: dict[int, int] = {}
    for number in range(len(prompts) - 1, -1, -1):
        later[number] = [seen.get(block, NEVER) for block in prompts[number]]
        seen.update(dict.fromkeys(prompts[number], number))
    cached: dict[int, int] = {}
    heap: list[tuple[int, int, int]] = []  # stale entries included

    def evict(room: int) -> None:
        while len(cached) > room:
            use, _, block = heapq.heappop(heap)
            if cached.get(block) == -use:
                del cached[block]

    hits = 0
    for number, prompt in enumerate(prompts):
        known = next((depth for depth, block in enumerate(prompt) if block not in cached), len(prompt))
        hits += known if number >= skip else 0
        if held:
            cached.update(dict.fromkeys(prompt[:known], number))  # not to be evicted now
            evict(capacity - len(prompt) + known)
        for depth, (block, use) in enumerate(zip(prompt, later[number], strict=True)):
            cached[block] = use
            heapq.heappush(heap, (-use, -depth, block))
        evict(capacity)
    return hits


@dataclass(frozen=True)
class Run:
    """What a policy did: blocks hit from the middle on, what share of the cost they save, and CPU seconds a block."""

    hits: int
    saved: float
    seconds: float


def play(name: str, capacity: int, requests: Sequence[Request], skip: int, *, beside: bool, cost: Cost | None) -> Run:
    """Drive the requests through a cache.

    `beside`: while they run they have room beside its capacity; `cost`: what policies are told that blocks cost.
    """
    policy = POLICIES[name]()
    room = max(count(request.run) for request in requests) if beside else 0
    cache = Cache(capacity + room, NoValues(), None, policy=policy, cost=cost, always_computed=0)
    cache.reserved = room
    others = Lease(b"", SHARED, cache.tree.root, 0, room)
    before, blocks = 0, 0
    judge, saved, whole = cost or Cost(math.inf), 0.0, 0.0
    if beside:
        policy.sized(capacity)
    start = time.process_time()
    for number, request in enumerate(requests):
        if number == skip:
            before = cache.counters.hit
        length = count(request.run)
        blocks += length
        if number >= skip:
            whole += judge.compute(0, length)
        if length > capacity:
            continue
        lent = length if beside else 0
        cache.reserved -= lent
        lease = cache.admit(request.run, make_value=nothing, now=request.time)
        if number >= skip:
            saved += judge.compute(0, lease.hit)
        cache.release(lease, now=request.time, output_tokens=request.output_tokens, stop=request.stop)
        cache.grow(others, lent)
    seconds = time.process_time() - start
    return Run(cache.counters.hit - before, saved / whole, seconds / blocks)


def nothing(start: int, stop: int) -> None:
    """The value of new blocks."""


def main() -> int:
    """Print a table for each trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the public data (default: %(default)s)")
    parser.add_argument("--trace", action="append", choices=sorted(CAPACITIES), help="only this one; may be repeated")
    parser.add_argument("--policy", action="append", choices=sorted(POLICIES), help="only this one; may be repeated")
    parser.add_argument("--capacity", action="append", type=int, metavar="BLOCKS", help="instead of the usual ones")
    parser.add_argument("--from", dest="start", type=float, default=0.5, metavar="SHARE", help="where counting begins")
    parser.add_argument("--beside", action="store_true", help="running requests have room beside the capacity")
    parser.add_argument("--attention-span", type=float, metavar="TOKENS", help="weigh blocks by what they cost")
    parser.add_argument("--seed", type=int, default=0, help="which coding sessions, and when they start")
    arguments = parser.parse_args()
    if not 0 <= arguments.start < 1:
        parser.error(f"--from {arguments.start} is not in 0..1")
    if arguments.beside and not set(arguments.policy or ()) <= {"lru", "default"}:
        parser.error("--beside works with the policies lru and default")
    if arguments.beside:
        arguments.policy = ["default"]
    cost = None if arguments.attention_span is None else Cost(arguments.attention_span / 512)
    policies = ["lru", *(name for name in arguments.policy or sorted(POLICIES) if name != "lru")]
    for trace in arguments.trace or CAPACITIES:
        try:
            requests = load(trace, arguments.data, arguments.seed)
        except OSError as error:
            print(f"{trace}: {error.filename}: {error.strerror}", file=sys.stderr)
            return 2
        skip = int(len(requests) * arguments.start)
        blocks = sum(count(request.run) for request in requests[skip:])
        capacities = arguments.capacity or CAPACITIES[trace]
        best = {size: optimum(requests, size, skip, held=False) for size in capacities}
        held = {size: optimum(requests, size, skip, held=True) for size in capacities}
        print(f"\n{trace}: {len(requests):,} requests, {blocks:,} blocks counted")
        print(f"{'':10}" + "".join(f"{size:>12,} blocks   us" for size in capacities))
        for name, row in (("MIN", best), ("held", held)):
            print(f"{name:10}" + "".join(f"{row[size] / blocks:>14.4f}" + 10 * " " for size in capacities))
        lru: dict[int, int] = {}
        for policy in policies:
            cells = []
            for size in capacities:
                run = play(policy, size, requests, skip, beside=arguments.beside, cost=cost)
                lru.setdefault(size, run.hits)
                gap = (run.hits - lru[size]) / max(1, best[size] - lru[size])
                second = f"{gap:>+5.0%}" if cost is None else f"{run.saved:.3f}"
                cells.append(f"{run.hits / blocks:>9.4f} {second} {run.seconds * 1e6:>7.2f}")
            print(f"{policy:10}" + "  ".join(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
