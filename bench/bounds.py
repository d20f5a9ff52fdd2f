"""Bounds of hit rates from a trace, beside kvcache-simulator from PyPI on the same file.

    python bench/bounds.py CONVERSATION_TRACE [--peer-python PYTHON] [--coding CODING_TRACE] [--rounds 5] [--json]

    points    least recently used and the optimum at five capacities
    curve     least recently used at a hundred capacities; ours gives every other capacity too

Each side works in its own process, one at a time, in an order that rotates from round to round, and counts its CPU
time, that of its child processes included, from opening the file to the last figure, and again from where the file has
been read; without starting Python, without imports and, for the peer's C++ part, without compiling it. No side uses
more than one core, so on an idle machine the time on the clock is the same.

The peer has two parts that do the same: `cpp`, its default, and `python`. Both simulate each policy at each capacity;
`cpp` reads the file in Python, gives it to a compiled program in files of its own, and reads what that says. It
measures the second half of a trace and weighs a last block that is not full by its tokens, so its rates are shown
beside ours of that half, and differ by up to some hundredths of themselves. The coding trace, for which the peer takes
no runs of blocks, is timed alone, from the file through prefold's own reader.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from array import array
from pathlib import Path
from typing import Any

BLOCK_TOKENS = 512
POINTS = (1_000, 5_000, 10_000, 30_000, 50_000)
JOBS: dict[str, dict[str, Any]] = {
    "points": {"blocks": POINTS, "policies": ("lru", "optimal"), "peers": ("cpp", "python")},
    "curve": {"blocks": tuple(range(500, 50_001, 500)), "policies": ("lru",), "peers": ("cpp",)},  # python: minutes
}

PEER = """
import json, sys, time
from resource import RUSAGE_CHILDREN, getrusage
from importlib.metadata import version
from kvcache_sim.calculator import load_models_data
from kvcache_sim.cpp_backend import ensure_cpp_simulator
from kvcache_sim.simulator import run_sweep
from kvcache_sim.trace import parse_trace_file
backend, path, block_tokens, job = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
data = load_models_data()
model = next(model["id"] for model in data["models"] if model["formula"] == "standard_gqa")
if backend == "cpp":
    ensure_cpp_simulator()
# Its capacities are given as memory, so the size of a block in this model is asked for first.
probe = parse_trace_file(path, block_size=block_tokens, max_records=1)
settings = {"model_id": model, "policies": job["policies"], "backend": backend, "models_data": data}
size = run_sweep(probe, budgets_gib=[1.0], **settings)["metadata"]["bytesPerBlock"]
budgets = [(count + 0.5) * size / 1024**3 for count in job["blocks"]]
def cpu():
    compiled = getrusage(RUSAGE_CHILDREN)
    return time.process_time() + compiled.ru_utime + compiled.ru_stime
start = cpu()
trace = parse_trace_file(path, block_size=block_tokens)
read = cpu()
result = run_sweep(trace, budgets_gib=budgets, **settings)
end = cpu()
points = {point["cacheBlocks"]: point["results"]["lru"]["hitRate"] for point in result["points"]}
rates = [points.get(count) for count in job["blocks"]]
times = {"seconds": end - start, "after_reading": end - read}
print(json.dumps({**times, "version": version("kvcache-simulator"), "second_half": rates}))
"""


def ours(path: str, job: dict[str, Any]) -> dict[str, Any]:
    """A job on the conversation trace."""
    import msgspec  # noqa: PLC0415 - the process that compares needs none of these

    from prefold import __version__  # noqa: PLC0415
    from prefold.analysis.bounds import Bounds, Curve  # noqa: PLC0415
    from prefold.core.tokens import count  # noqa: PLC0415

    class Line(msgspec.Struct):
        hash_ids: list[int]

    decode = msgspec.json.Decoder(Line).decode
    start = time.process_time()
    with Path(path).open("rb") as lines:
        runs = [array("I", decode(line).hash_ids).tobytes() for line in lines]
    read = time.process_time()
    bounds, half = Bounds(), Curve(1, 0, None, (), (), ())
    for number, run in enumerate(runs, start=1):
        bounds.add_run(run, BLOCK_TOKENS, count(run) * BLOCK_TOKENS)
        if number == len(runs) // 2:
            half = bounds.lru()
    curve = bounds.lru()
    capacities = [blocks * BLOCK_TOKENS for blocks in job["blocks"]]
    lru = [curve.hit_rate(capacity) for capacity in capacities]
    best = bounds.optima(capacities) if "optimal" in job["policies"] else {}
    optimum = [hits / bounds.input_tokens for hits in best.values()]
    end = time.process_time()
    behind = curve.input_tokens - half.input_tokens
    second_half = [(curve.hit_tokens(capacity) - half.hit_tokens(capacity)) / behind for capacity in capacities]
    times = {"seconds": end - start, "after_reading": end - read}
    return {**times, "version": __version__, "lru": lru, "optimum": optimum, "second_half": second_half}


def coding(path: str) -> dict[str, Any]:
    """Both bounds at five capacities on the coding trace, its sessions 40 at a time."""
    from prefold.analysis.bounds import Bounds  # noqa: PLC0415 - as above
    from prefold.analysis.encode import Encoder  # noqa: PLC0415
    from prefold.analysis.interleave import interleave  # noqa: PLC0415
    from prefold.analysis.logs.log import open_log  # noqa: PLC0415

    start = time.process_time()
    bounds, encoder = Bounds(), Encoder()
    requests = units = 0
    for record in interleave(open_log([path]), 40):
        request = encoder.encode(record)
        bounds.add(request)
        requests, units = requests + 1, units + request.units
    curve = bounds.lru()
    capacities = [blocks * BLOCK_TOKENS for blocks in POINTS]
    lru = [curve.hit_rate(capacity) for capacity in capacities]
    optimum = [hits / bounds.input_tokens for hits in bounds.optima(capacities).values()]
    seconds = time.process_time() - start
    return {"seconds": seconds, "requests": requests, "blocks": units, "lru": lru, "optimum": optimum}


def run(side: str, job: str, path: str, peer_python: str) -> dict[str, Any]:
    """One run of a side in a process of its own."""
    if side == "prefold":
        command = [sys.executable, __file__, "--job", job, path]
    else:
        command = [peer_python, "-c", PEER, side, path, str(BLOCK_TOKENS), json.dumps(JOBS[job])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{side}: {done.stderr.strip()}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def compared(job: str, sides: list[str], path: str, peer_python: str, rounds: int) -> dict[str, Any]:
    """A job by all sides, round by round."""
    results = []
    for number in range(rounds):
        order = sides[number % len(sides) :] + sides[: number % len(sides)]
        results.append({side: run(side, job, path, peer_python) for side in order})
    return {
        "versions": {side: results[-1][side]["version"] for side in sides},
        "results": {side: results[-1][side] for side in sides},
        "times": {
            what: {
                "seconds": {side: statistics.median(result[side][what] for result in results) for side in sides},
                "ratios": {
                    side: sorted(result[side][what] / result["prefold"][what] for result in results)
                    for side in sides[1:]
                },
            }
            for what in ("seconds", "after_reading")
        },
    }


def show(report: dict[str, Any]) -> None:
    """Print what was measured."""
    for job, found in report["jobs"].items():
        for what, times in found["times"].items():
            print(job, "after reading" if what == "after_reading" else "from the file on")
            for side, seconds in times["seconds"].items():
                print(f"  {side} {found['versions'][side]}: {seconds:.3f} s")
            for side, ratios in times["ratios"].items():
                print(f"  {side} / prefold: {statistics.median(ratios):.1f} ({ratios[0]:.1f}..{ratios[-1]:.1f})")
    results = report["jobs"]["points"]["results"]
    print(f"{'blocks':>10} {'LRU':>7} {'optimum':>8}   LRU in the second half: {', '.join(results)}")
    for index, blocks in enumerate(POINTS):
        halves = "  ".join(f"{result['second_half'][index]:.4f}" for result in results.values())
        rates = results["prefold"]
        print(f"{blocks:>10,} {rates['lru'][index]:>7.4f} {rates['optimum'][index]:>8.4f}   {halves}")
    if found := report.get("coding"):
        print(f"coding: {found['requests']:,} requests of {found['blocks']:,} blocks in {found['seconds']:.1f} s")
        print("  LRU", *(f"{rate:.4f}" for rate in found["lru"]))
        print("  optimum", *(f"{rate:.4f}" for rate in found["optimum"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", help="conversation trace of Mooncake, JSON Lines")
    parser.add_argument("--peer-python", help="Python of an environment with kvcache-simulator; none to run ours alone")
    parser.add_argument("--coding", help="trace of coding sessions")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not Path(options.trace).is_file():
        sys.exit(f"{options.trace} is not there: give the conversation trace of Mooncake")
    if options.job:
        print(json.dumps(ours(options.trace, JOBS[options.job])))
        return
    report: dict[str, Any] = {"jobs": {}}
    for job, what in JOBS.items():
        sides = ["prefold", *(what["peers"] if options.peer_python else ())]
        report["jobs"][job] = compared(job, sides, options.trace, options.peer_python, options.rounds)
    if options.coding:
        report["coding"] = coding(options.coding)
    if options.json:
        print(json.dumps(report))
    else:
        show(report)


if __name__ == "__main__":
    main()
