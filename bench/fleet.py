"""Several replicas behind a router: hits beside a single cache, evenness of loads, and the speed of the block index.

    python bench/fleet.py                        the conversation trace of Mooncake
    python bench/fleet.py TRACE... --json        other traces, any log that `prefold simulate` reads
    python bench/fleet.py TRACE --sessions 40    its sessions, so many side by side
    python bench/fleet.py --index                the index alone

Fleet: every routing drives the simulator, as `prefold simulate TRACE --replicas N --routing NAME --capacity SIZE` does.
Replicas have the same capacity, least recently used goes first, and all of them together have that of the single cache
that is called ideal.

    share      hit rate divided by that of the single cache
    imbalance  computed tokens of the replica that computed most, divided by their mean
    prefix_hash at other lengths than the usual one says what the number of hashed tokens is worth

`--half first` reads the first half of the requests only: what constants of the policies were chosen on.

Index: medians and spread over rounds, in microseconds of CPU time. A store or removal event has one block and its
parent's key, as engines send them while they generate; the prompt has 512 blocks of 16 tokens, eight replicas hold a
part of it each, and the index holds a million other blocks.

Exit codes: 0, or 2 for wrong arguments or where a trace is not there.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from prefold.analysis.caches.common import Replica
from prefold.analysis.caches.prefixes import PrefixCache
from prefold.analysis.caches.replicas import Fleet
from prefold.analysis.caches.resolve import PLAIN
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.encode import Encoder
from prefold.analysis.interleave import interleave
from prefold.analysis.logs.log import open_log
from prefold.analysis.request import Request
from prefold.analysis.simulate import simulate
from prefold.core.block_index import BlockIndex
from prefold.core.routing import HASH_TOKENS, POLICIES
from prefold.core.tokens import WIDTH

TRACE = Path(__file__).resolve().parents[2] / "shared/data/traces/mooncake/conversation_trace.jsonl"
REPLICAS = (4, 8, 20)
TOTALS = (None, 25_600_000, 10_240_000)
"""Tokens of all replicas together; None for no limit. At 8 replicas 3.2 and 1.28 million each."""
OTHER_LENGTHS = (512, 2_048)
BLOCK_SIZE, PROMPT_BLOCKS, INDEXED, HOLDERS = 16, 512, 1_000_000, 8


@dataclass(frozen=True)
class Row:
    """What a routing did: capacity of all replicas in tokens, their number, hit rate, its share of ideal, imbalance."""

    total: int | None
    replicas: int
    routing: str
    hit_rate: float
    share: float
    imbalance: float


def requests_of(paths: Sequence[str], sessions: int | None) -> list[Request]:
    """All requests of some logs, in order of time."""
    encoder, log = Encoder(), open_log(list(paths))
    return [encoder.encode(record) for record in (interleave(log, sessions) if sessions else log)]


def rows_of(requests: Sequence[Request], total: int | None, counts: Sequence[int]) -> Iterator[Row]:
    """Every routing at one capacity."""
    (single,) = simulate(requests, [CacheSpec("ideal", PLAIN, capacity=total)])
    ideal = single.hit_rate
    yield Row(total, 1, "ideal", ideal, 1.0, 1.0)
    for replicas in counts:
        capacity = None if total is None else total // replicas
        spec = CacheSpec("fleet", PLAIN, capacity=capacity, replicas=replicas)
        for routing in POLICIES:
            fleet = CacheSpec(routing, PLAIN, capacity=capacity, replicas=replicas, routing=routing)
            (row,) = simulate(requests, [fleet])
            yield Row(total, replicas, routing, row.hit_rate, row.hit_rate / ideal, row.load_imbalance)
        for tokens in OTHER_LENGTHS:
            caches: list[Replica] = [PrefixCache(spec, PLAIN, requests[0].unit) for _ in range(replicas)]
            hit_rate, imbalance = drive(Fleet(caches, "prefix_hash", tokens), requests, replicas)
            yield Row(total, replicas, f"prefix_hash of {tokens}", hit_rate, hit_rate / ideal, imbalance)


def drive(fleet: Fleet, requests: Sequence[Request], replicas: int) -> tuple[float, float]:
    """Hit rate and imbalance of a fleet."""
    hit, computed = 0, [0] * replicas
    for request in requests:
        served = fleet.serve(request)
        hit += served.hit
        computed[served.replica] += request.tokens - served.hit
    return hit / sum(request.tokens for request in requests), max(computed) * replicas / sum(computed)


def timed(operation: Callable[[], object], rounds: int) -> list[float]:
    """CPU time of each round in microseconds, ascending."""
    times = []
    for _ in range(rounds):
        start = time.process_time_ns()
        operation()
        times.append((time.process_time_ns() - start) / 1000)
    return sorted(times)


def index_figures(rounds: int) -> dict[str, list[float]]:
    """Microseconds of each operation on an index, ascending."""
    chance = random.Random(0)
    index = BlockIndex(INDEXED + 100_000)
    step = BLOCK_SIZE * WIDTH
    for replica in range(HOLDERS):
        index.add(replica, index.keys(chance.randbytes(INDEXED // HOLDERS * step), BLOCK_SIZE))
    prompt = chance.randbytes(PROMPT_BLOCKS * step)
    keys = index.keys(prompt, BLOCK_SIZE)
    for replica in range(HOLDERS):
        index.add(replica, keys[: PROMPT_BLOCKS * (replica + 1) // HOLDERS])
    blocks = [chance.randbytes(step) for _ in range(10_000)]
    events: list[int] = []

    def store() -> None:
        events.clear()
        parent = None
        for number, block in enumerate(blocks):
            parent = index.next_key(parent, block)
            index.add(number % HOLDERS, (parent,))
            events.append(parent)

    def remove() -> None:
        for number, key in enumerate(events):
            index.remove(number % HOLDERS, (key,))

    stored, removed = [], []
    for _ in range(rounds):
        stored += timed(store, 1)
        removed += timed(remove, 1)
    return {
        "store": sorted(each / len(blocks) for each in stored),
        "remove": sorted(each / len(blocks) for each in removed),
        "keys": timed(lambda: index.keys(prompt, BLOCK_SIZE), 20 * rounds),
        "match": timed(lambda: index.match(keys), 20 * rounds),
        "keys and match": timed(lambda: index.match(index.keys(prompt, BLOCK_SIZE)), 20 * rounds),
        "clear, per block": [each * HOLDERS / INDEXED for each in timed(lambda: index.clear(0), 1)],
    }


def show_index(figures: dict[str, list[float]]) -> None:
    """Print what was measured."""
    for name, times in figures.items():
        middle = statistics.median(times)
        tenth = len(times) // 10
        spread = f"({times[tenth]:.2f}..{times[-1 - tenth]:.2f})"
        rate = f"  {1_000_000 / middle:,.0f} a second" if name in ("store", "remove") else ""
        print(f"{name:>18} {middle:8.2f} us {spread}{rate}")


def show(row: Row) -> None:
    """Print a row."""
    total = "unlimited" if row.total is None else f"{row.total:,}"
    print(
        f"{total:>12} {row.replicas:>9} {row.routing:<20} {row.hit_rate:8.4f} {row.share:7.3f} {row.imbalance:10.3f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", default=[str(TRACE)], help="logs  [default: Mooncake's conversations]")
    parser.add_argument("--replicas", type=int, nargs="+", default=list(REPLICAS), help="how many")
    parser.add_argument("--capacity", type=int, nargs="+", help="tokens of all replicas together; 0 for no limit")
    parser.add_argument("--sessions", type=int, help="run so many sessions of the log side by side")
    parser.add_argument("--half", choices=["first", "second"], help="of the requests")
    parser.add_argument("--limit", type=int, help="read no more requests than this")
    parser.add_argument("--index", action="store_true", help="time the block index instead")
    parser.add_argument("--rounds", type=int, default=20, help="of the index")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.index:
        figures = index_figures(options.rounds)
        if options.json:
            print(json.dumps({name: statistics.median(times) for name, times in figures.items()}))
        else:
            show_index(figures)
        return
    for path in options.traces:
        if not Path(path).is_file():
            print(f"{path} is not there: give a trace", file=sys.stderr)
            sys.exit(2)
    requests = requests_of(options.traces, options.sessions)[: options.limit]
    middle = len(requests) // 2
    requests = requests[: middle if options.half == "first" else None]
    requests = requests[middle if options.half == "second" else 0 :]
    totals = TOTALS if options.capacity is None else [total or None for total in options.capacity]
    rows = (row for total in totals for row in rows_of(requests, total, options.replicas))
    if options.json:
        print(json.dumps({"requests": len(requests), "rows": [asdict(row) for row in rows]}))
        return
    print(f"{len(requests):,} requests; prefix_hash goes by {HASH_TOKENS:,} tokens where no other number is named")
    print(f"{'capacity':>12} {'replicas':>9} {'routing':<20} {'hit rate':>8} {'share':>7} {'imbalance':>10}")
    for row in rows:
        show(row)


if __name__ == "__main__":
    main()
