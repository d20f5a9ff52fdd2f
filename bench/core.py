"""Time prefold's core beside vLLM's block hashing and SGLang's radix trees, in one run.

    python bench/core.py --vllm-python VLLM/bin/python --sglang-python SGLANG/bin/python

Each side works in a process of its own, a peer's under the interpreter of its own environment. In each round the two
sides of a comparison take turns on the same tokens, and each gives the median of many executions; the round's ratio is
the peer's time divided by ours, so 2.00 means that we take half its time. The table shows medians over the rounds and
where the middle half of the ratios lies. A first round is not counted. A peer that is not given, or cannot be imported,
is named and skipped.

    keys      keys of all blocks of 100,000 tokens in blocks of 16. Ours includes packing the list of token ids; vLLM's
              is the hasher of its requests with its default, SHA-256 over pickled blocks.
    match     100,000 tokens that the tree holds: find the longest prefix and note its use
    insert    100,000 tokens into an empty tree, with a copy of one 8-byte slot number a token
    siblings  a request of 1,568 tokens, 1,500 of them shared, matched in a tree that holds it and 999 siblings

All trees are given tokens in the form in which they take them: ours packed as uint32, SGLang's as arrays of int64.
`sglang` is its RadixCache; `sglang-rust` is the tree in Rust that its server prefers, called directly, without the
adapter between it and the server.

Exit codes: 0 when every side that could be imported was measured, 1 when one failed on the way, 2 for wrong arguments.
"""

# ruff: noqa: PLC0415 (a worker imports nothing but the side that it is)

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import time
import types
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

TOKENS = 100_000
BLOCK_SIZE = 16
SIBLINGS = 1_000
SHARED, OWN = 1_500, 68

# For glibc's malloc: keep what was freed. Else insertions are timed with or without the page faults of fresh memory, on
# either side, as chance has it.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**30)}

Operation = Callable[[], Callable[[], object]]
"""Prepares one execution, untimed, and returns what is to be timed."""


@dataclass(frozen=True)
class Task:
    """One comparison: an operation, which does its thing `repeats` times, executed so many times a round and side."""

    name: str
    peer: str
    goal: float
    executions: int
    repeats: int = 1


TASKS = (
    Task("keys", "vllm", goal=2.0, executions=9),
    Task("match", "sglang", goal=1.0, executions=51),
    Task("insert", "sglang", goal=1.0, executions=51),
    Task("siblings", "sglang", goal=1.0, executions=9, repeats=SIBLINGS),
    Task("match", "sglang-rust", goal=1.0, executions=51),
    Task("insert", "sglang-rust", goal=1.0, executions=51),
    Task("siblings", "sglang-rust", goal=1.0, executions=9, repeats=SIBLINGS),
)


def tokens(count: int, seed: int) -> list[int]:
    """Token ids, the same on every side."""
    return random.Random(seed).choices(range(100, 40_000), k=count)


def tree_operations(
    new_tree: Callable[[], Any],
    insert: Callable[[Any, Any], None],
    match: Callable[[Any, Any], int],
    pack: Callable[[list[int]], Any],
) -> dict[str, Operation]:
    """The operations on trees, of whatever make. Nothing is ever looked up with the very object that was inserted."""
    prompt = tokens(TOKENS, 0)
    requests = [tokens(SHARED, 1) + tokens(OWN, 2 + sibling) for sibling in range(SIBLINGS)]
    full, crowded = new_tree(), new_tree()
    insert(full, pack(prompt))
    for request in requests:
        insert(crowded, pack(request))

    def expect(length: int, expected: int) -> None:
        if length != expected:
            raise AssertionError(f"{length} tokens matched, not {expected}")

    def prepare_match() -> Callable[[], object]:
        run = pack(prompt)
        return lambda: expect(match(full, run), TOKENS)

    def prepare_insert() -> Callable[[], object]:
        run, tree = pack(prompt), new_tree()
        return lambda: insert(tree, run)

    def prepare_siblings() -> Callable[[], object]:
        runs = [pack(request) for request in requests]
        return lambda: expect(sum(match(crowded, run) for run in runs), SIBLINGS * (SHARED + OWN))

    return {"match": prepare_match, "insert": prepare_insert, "siblings": prepare_siblings}


def prefold() -> dict[str, Operation]:
    """Our core."""
    from prefold.core.keys import SHARED as EVERYBODY
    from prefold.core.keys import block_keys, root_key
    from prefold.core.radix import RadixTree
    from prefold.core.tokens import pack

    prompt, root = tokens(TOKENS, 0), root_key("model")
    slots = array("q", range(TOKENS))

    def new_tree() -> RadixTree[array[int]]:
        return RadixTree(slots[:0], lambda value, length: (value[:length], value[length:]))

    def insert(tree: RadixTree[array[int]], run: bytes) -> None:
        tree.touch(tree.insert(run, EVERYBODY, lambda start, stop: slots[start:stop], 1).node, 1)

    def match(tree: RadixTree[array[int]], run: bytes) -> int:
        found = tree.peek(run)
        tree.touch(found.node, 2)
        return found.length

    operations = tree_operations(new_tree, insert, match, pack)
    operations["keys"] = lambda: lambda: block_keys(root, pack(prompt), BLOCK_SIZE)
    return operations


def vllm() -> dict[str, Operation]:
    """The hashing of a request's blocks in vLLM."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)
    hasher = get_request_block_hasher(BLOCK_SIZE, sha256)
    request = Request("request", tokens(TOKENS, 0), SamplingParams(max_tokens=1), None)
    # The request does not take over what the hasher returns, so that all blocks are hashed each time.
    return {"keys": lambda: lambda: hasher(request)}


def sglang() -> dict[str, Operation]:
    """SGLang's radix tree.

    Its package asks for CUDA libraries that the tree has no use for. So the package's own start-up is left out, and two
    modules of which the tree's module takes nothing but names are stood in for.
    """
    spec = importlib.util.find_spec("sglang")
    if spec is None:
        raise ModuleNotFoundError("No module named 'sglang'")
    metrics = ("RadixCacheMetricsCollector", "STAT_LOGGER_ROLE_RADIX_CACHE", "radix_cache_metric_labels")
    stand_ins: dict[str, dict[str, object]] = {
        "sglang": {"__path__": spec.submodule_search_locations},
        "sglang.srt.mem_cache.memory_pool": {"ReqToTokenPool": object},
        "sglang.srt.observability.metrics_collector": dict.fromkeys((*metrics, "resolve_collector_class")),
    }
    for name, members in stand_ins.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(members)

    import torch
    from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams
    from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

    torch.set_num_threads(1)
    slots = torch.arange(TOKENS)

    def insert(cache: Any, run: array[int]) -> None:
        cache.insert(InsertParams(key=RadixKey(run), value=slots[: len(run)]))

    def match(cache: Any, run: array[int]) -> int:
        return int(cache.match_prefix(MatchPrefixParams(key=RadixKey(run))).device_prefix_len)

    return tree_operations(RadixCache.create_simulated, insert, match, lambda prompt: array("q", prompt))


def sglang_rust() -> dict[str, Operation]:
    """SGLang's radix tree in Rust, straight from its extension module.

    Raises:
        ImportError: if this SGLang has none, or not for this Python.
    """
    import torch  # brings the libraries that the extension links to

    package = importlib.util.find_spec("sglang")
    folders = (package.submodule_search_locations if package else None) or ()
    files = [file for folder in folders for file in Path(folder, "srt/mem_cache/rust_tree_core").glob("mem_cache.*.so")]
    spec = importlib.util.spec_from_file_location("mem_cache", files[0]) if files else None
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("there is no sglang/srt/mem_cache/rust_tree_core/mem_cache.*.so")
    tree_core = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tree_core)

    torch.set_num_threads(1)
    slots = torch.arange(TOKENS)

    def new_tree() -> Any:
        return tree_core.RustUnifiedTreeCoreBinding(tree_core.TreeCoreInitParamsBinding(), [0])  # 0: full attention

    def insert(tree: Any, run: array[int]) -> None:
        tree.insert(tree_core.InsertParamsBinding(run, slots[: len(run)]))

    def match(tree: Any, run: array[int]) -> int:
        return int(tree.match_prefix(tree_core.MatchParamsBinding(run)).device_prefix_len)

    return tree_operations(new_tree, insert, match, lambda prompt: array("q", prompt))


SIDES = {"prefold": prefold, "vllm": vllm, "sglang": sglang, "sglang-rust": sglang_rust}


def work(name: str) -> None:
    """Be one side: say the version, then answer each line `[operation, executions]` with the median of the seconds."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print goes to stderr
    try:
        operations = SIDES[name]()
    except ImportError as error:
        print(json.dumps({"problem": str(error)}), file=answers, flush=True)
        return
    print(json.dumps({"version": metadata.version(name.partition("-")[0])}), file=answers, flush=True)
    gc.freeze()
    for line in sys.stdin:
        operation, executions = json.loads(line)
        seconds = []
        for _ in range(executions):
            execute = operations[operation]()
            start = time.perf_counter()
            execute()
            seconds.append(time.perf_counter() - start)
            del execute
            gc.collect()  # a tree's nodes know their parents; its memory is free before the next one asks for some
        print(json.dumps(statistics.median(seconds)), file=answers, flush=True)


class Unavailable(Exception):
    """A side that cannot be measured."""


class Worker:
    """A side in its own process.

    Raises:
        Unavailable: if it cannot be started or imported.
    """

    def __init__(self, name: str, python: str) -> None:
        self.name = name
        try:
            self._process = subprocess.Popen(
                [python, str(Path(__file__).resolve()), "work", name],
                env=os.environ | KEEP_MEMORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            raise Unavailable(f"{python}: {error.strerror}") from None
        hello = self._answer()
        if "problem" in hello:
            raise Unavailable(hello["problem"])
        self.version = hello["version"]

    def seconds(self, task: Task) -> float:
        """Time the task; median seconds for one repeat.

        Raises:
            Unavailable: if the process ended.
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # that it has ended shows in its answer
            print(json.dumps([task.name, task.executions]), file=self._process.stdin, flush=True)
        return float(self._answer()) / task.repeats

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Unavailable(f"its process ended with exit code {self._process.wait()}")
        return json.loads(line)

    def stop(self) -> None:
        """End the process."""
        self._process.communicate()


@dataclass(frozen=True)
class Result:
    """Times in seconds and ratios of the peer's time to ours, over the rounds. None without the peer."""

    task: str
    ours_s: float
    peer: str | None = None
    peer_s: float | None = None
    ratio: float | None = None
    ratio_middle_half: tuple[float, float] | None = None
    goal: float | None = None


def compare(task: Task, us: Worker, peer: Worker | None, rounds: int) -> Result:
    """Time a task on both sides in turns, the order changing from round to round."""
    sides = [us] if peer is None else [us, peer]
    times: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(rounds + 1):
        for side in sides if number % 2 else sides[::-1]:
            times[side.name].append(side.seconds(task))
    ours = times[us.name][1:]
    if peer is None:
        return Result(task.name, statistics.median(ours))
    theirs = times[peer.name][1:]
    ratios = [their / our for their, our in zip(theirs, ours, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Result(
        task.name,
        statistics.median(ours),
        f"{peer.name} {peer.version}",
        statistics.median(theirs),
        middle,
        (low, high),
        task.goal,
    )


def line_of(result: Result) -> str:
    """A result as one line of the table."""
    line = f"{result.task:10}{result.ours_s * 1e6:>12,.1f} us"
    if result.peer_s is None or result.ratio is None or result.ratio_middle_half is None or result.goal is None:
        return f"{line}   no peer"
    low, high = result.ratio_middle_half
    ratio = f"{result.ratio:6.2f} ({low:.2f} to {high:.2f})"
    goal = f"{result.goal:.1f} {'met' if result.ratio >= result.goal else 'missed'}"
    return f"{line}{result.peer_s * 1e6:>12,.1f} us  {ratio:26}{goal:12}{result.peer}"


def start(pythons: dict[str, str | None]) -> dict[str, Worker]:
    """The sides that can be started; says which cannot, and why."""
    workers = {}
    for name, python in pythons.items():
        if python is None:
            print(f"{name} is skipped: its --...-python was not given", file=sys.stderr)
            continue
        try:
            workers[name] = Worker(name, python)
        except Unavailable as problem:
            print(f"{name} is skipped: {problem}", file=sys.stderr)
    return workers


def main() -> int:
    """Run every comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", metavar="PATH", help="interpreter of an environment with vLLM")
    parser.add_argument("--sglang-python", metavar="PATH", help="interpreter of an environment with SGLang")
    parser.add_argument("--rounds", type=int, default=21, help="rounds of each comparison (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error("--rounds must be at least 2")

    pythons = {"prefold": sys.executable, "vllm": arguments.vllm_python}
    workers = start(pythons | dict.fromkeys(("sglang", "sglang-rust"), arguments.sglang_python))
    us = workers.get("prefold")
    if us is None:
        return 1
    if not arguments.json:
        print(f"prefold {us.version}, Python {sys.version.split()[0]}, {arguments.rounds} rounds")
        print(f"{'':10}{'prefold':>15}{'peer':>15}   {'ratio (middle half)':25}goal")
    results: list[Result] = []
    for task in TASKS:
        if task.peer not in workers and task.name in [result.task for result in results]:
            continue  # our own time is there already
        try:
            results.append(compare(task, us, workers.get(task.peer), arguments.rounds))
        except Unavailable as problem:
            print(f"{task.name} failed: {problem}", file=sys.stderr)
            return 1
        if not arguments.json:
            print(line_of(results[-1]), flush=True)
    if arguments.json:
        print(json.dumps({"schema_version": 1, "prefold": us.version, "results": [asdict(each) for each in results]}))
    for worker in workers.values():
        worker.stop()
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2])
    else:
        sys.exit(main())
