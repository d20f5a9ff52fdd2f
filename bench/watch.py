"""Time what `prefold.watch` adds to a request of 32 KiB, without a network.

    python bench/watch.py [--rounds 200] [--wait 0.02] [--json]

The official openai SDK sends a growing conversation to a transport in this process, which waits as a provider would and
answers. Watched and unwatched client alternate. Figures are medians of the differences of pairs, with the middle half
of them: of the time on the clock, of the processor's time of the calling thread, which a busy machine blurs less, and
of the processor's time of the whole process until the comparison is done as well.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import time
from typing import Any

import httpx2
import openai

from prefold import __version__
from prefold.clients import watch, watcher_of

RULES = "\n".join(f"Rule {number}: check item {number} of the handbook before you answer." for number in range(400))
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": f"Look up the records of department {number}.",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}},
        },
    }
    for number in range(20)
]
ANSWER = {
    "id": "chat-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-5",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Blue."}, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 8000,
        "completion_tokens": 5,
        "total_tokens": 8005,
        "prompt_tokens_details": {"cached_tokens": 7680},
    },
}


def client_of(seconds: float) -> openai.OpenAI:
    """A client whose requests are answered in this process after some seconds."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        time.sleep(seconds)
        return httpx2.Response(200, json=ANSWER)

    transport = httpx2.MockTransport(answer)
    return openai.OpenAI(api_key="none", max_retries=0, http_client=httpx2.Client(transport=transport))


def body(number: int) -> dict[str, Any]:
    """The request number `number` of conversations of 16 turns."""
    messages = [{"role": "system", "content": RULES}]
    for turn in range(number % 16 + 1):
        messages.append({"role": "user", "content": f"Question {turn} of {number // 16}: " + "what of it? " * 10})
        messages.append({"role": "assistant", "content": "It is blue. " * 10})
    messages.pop()
    return {"model": "gpt-5", "messages": messages, "tools": TOOLS}


KINDS = ("clock", "caller's processor", "whole processor")


def seconds_of(client: openai.OpenAI, request: dict[str, Any]) -> tuple[float, ...]:
    """Time of a call, in each of the kinds."""
    before = time.perf_counter(), time.thread_time(), time.process_time()
    client.chat.completions.create(**request)
    clock, caller = time.perf_counter(), time.thread_time()
    if hasattr(client, "prefold"):
        watcher_of(client).flush()
    after = clock, caller, time.process_time()
    return tuple(end - begin for begin, end in zip(before, after, strict=True))


def pairs(wait: float, rounds: int, options: dict[str, bool]) -> list[tuple[float, ...]]:
    """Seconds that watching adds, call by call, in each of the kinds."""
    plain, watched = client_of(wait), watch(client_of(wait), **options)
    added = []
    for number in range(rounds + 8):
        request = body(number)
        order = [plain, watched] if number % 2 else [watched, plain]
        times = {id(client): seconds_of(client, request) for client in order}
        if number >= 8:  # the first ones warm up
            pair = zip(times[id(plain)], times[id(watched)], strict=True)
            added.append(tuple(after - before for before, after in pair))
    watcher = watcher_of(watched)
    if watcher.faults or watcher.dropped or watcher.total.breaks:
        sys.exit(f"not a clean run:\n{watcher.report()}")
    return added


def main() -> int:
    parser = argparse.ArgumentParser(description="Time what prefold.watch adds to a request.")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--wait", type=float, default=0.02, help="seconds that the provider takes")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.getLogger("httpx2").setLevel(logging.WARNING)

    sizes = [len(json.dumps(body(number))) for number in range(16)]
    cases: dict[str, dict[str, bool]] = {
        "watched": {},
        "and canonicalised": {"canonicalize": True},
        "and breakpoints placed": {"canonicalize": True, "breakpoints": True},
    }
    rows = {name: pairs(arguments.wait, arguments.rounds, options) for name, options in cases.items()}
    figures = {}
    for name, row in rows.items():
        for kind, seconds in zip(KINDS, zip(*row, strict=True), strict=True):
            low, median, high = (1e3 * point for point in statistics.quantiles(seconds, n=4))
            figures[f"{name}, {kind}"] = {"median_ms": median, "from_ms": low, "to_ms": high}
    if arguments.json:
        print(json.dumps({"schema_version": 1, "prefold": __version__, "wait_s": arguments.wait, "figures": figures}))
        return 0
    kib = min(sizes) / 1024, max(sizes) / 1024
    print(f"prefold {__version__}: requests of {kib[0]:.0f} to {kib[1]:.0f} KiB, answered after {arguments.wait} s")
    for name, row in figures.items():
        print(f"{name:44} adds {row['median_ms']:6.3f} ms   {row['from_ms']:.3f}..{row['to_ms']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
