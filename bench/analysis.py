"""Time the analysis of a log: reading, encoding, attribution, and `prefold report` as a whole, beside its peers.

    python bench/analysis.py [--sessions 500] [--turns 20] [--breaking] [--peers BIN] [--tokenizer FOLDER] [--json]

The log is made here, the same each time, in a temporary folder: sessions of an OpenAI model that share a system prompt
and grow by a question and an answer with each turn, 10,000 requests of 19 KB on average. With `--breaking` a clock in
the system prompt breaks every prefix. Each job runs in a process of its own; its peak memory is that of the process.

    read        the log as records
    encode      records as requests, with exact tokens
    attribute   every token to one reason, under a cache that keeps all
    report      `prefold report LOG --json -`, which works in two processes: the memory is that of the larger one
    simulate    `prefold simulate LOG --json`: one cache, in one process
    peers       `promptcachelint report` (0.1.0) and `kvlint analyze` (0.1.1), where BIN has them; the former reads the
                same bodies in records of its own form, the latter needs a folder with a tokenizer of `transformers`
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prefold import __version__

WORDS = """
the of and to in a is that for it as was with be by on not he his but at are this have from or had an
they which one you were her all she there would their we him been has when who will more no if out so
said what up its about into than them can only other new some could time these two may then do first any
my now such like our over man me even most made after also did many before must through back years where
much your way well down should because each just those people how too little state good very make world
still own see men work long get here between both life being under never day same another know while
last might us great old year off come since against go came right used take three order refund parcel
customer invoice delivery address payment warehouse receipt account function request response database
server cluster latency throughput container exception parameter configuration temperature measurement
hypothesis experiment observation probability distribution international development
""".split()  # noqa: SIM905 - easier to read than a list of one word a line


def prose(dice: random.Random, size: int) -> str:
    """Sentences of about a size in characters."""
    written: list[str] = []
    length = 0
    while length < size:
        sentence = " ".join(dice.choices(WORDS, k=dice.randint(6, 18))).capitalize() + ". "
        if dice.random() < 0.15:
            sentence += "\n"
        written.append(sentence)
        length += len(sentence)
    return "".join(written)


def bodies(sessions: int, turns: int, *, breaking: bool) -> Iterator[tuple[float, int, dict[str, Any]]]:
    """Times, sessions and bodies, in order of time."""
    dice = random.Random(4)
    system = prose(dice, 4_300)
    events = []
    for session in range(sessions):
        at = dice.random() * 3_600
        for turn in range(turns):
            at += dice.expovariate(1 / 40)
            events.append((at, session, turn))
    histories: dict[int, list[dict[str, str]]] = {}
    for at, session, _ in sorted(events):
        history = histories.setdefault(session, [])
        if history:
            history.append({"role": "assistant", "content": prose(dice, dice.randint(500, 1_300))})
        history.append({"role": "user", "content": prose(dice, dice.randint(200, 800))})
        clock = f"Now: 2026-11-30T10:{int(at / 60) % 60:02}:{at % 60:09.6f}\n" if breaking else ""
        yield at, session, {"model": "gpt-4o", "messages": [{"role": "system", "content": clock + system}, *history]}


def write_logs(folder: Path, sessions: int, turns: int, *, breaking: bool) -> tuple[Path, Path]:
    """The log as bodies, and as `promptcachelint` records the same."""
    plain, recorded = folder / "requests.jsonl", folder / "recorded.jsonl"
    with plain.open("w") as one, recorded.open("w") as other:
        for at, session, body in bodies(sessions, turns, breaking=breaking):
            one.write(json.dumps({**body, "timestamp": at, "session_id": f"s{session}"}) + "\n")
            record = {"provider": "openai", "at": at, "model": body["model"], "session_id": f"s{session}", "body": body}
            other.write(json.dumps(record) + "\n")
    return plain, recorded


def stage(name: str, log: str) -> dict[str, float]:
    """Run stages up to one in this process."""
    from prefold.analysis.attribution import Attribution  # noqa: PLC0415 - a job loads only what it needs
    from prefold.analysis.caches.base import Reason, Served  # noqa: PLC0415
    from prefold.analysis.encode import Encoder  # noqa: PLC0415
    from prefold.analysis.logs.log import open_log  # noqa: PLC0415

    encoder, attribution = Encoder(), Attribution()
    requests = tokens = 0
    started = time.perf_counter(), time.process_time()
    for record in open_log([log]):
        requests += 1
        if name == "read":
            continue
        request = encoder.encode(record)
        tokens += request.tokens
        if name == "attribute":
            attribution.add(request, Served(attribution.history.look(request).own, otherwise=Reason.UNEXPLAINED))
    wall, processor = time.perf_counter() - started[0], time.process_time() - started[1]
    if name == "attribute" and sum(row.tokens for row in attribution.rows()) != tokens:
        raise SystemExit("The reasons do not sum to the tokens of the log.")
    return {"requests": requests, "tokens": tokens, "seconds": wall, "processor": processor}


def timed(command: list[str]) -> dict[str, Any]:
    """A command in a process of its own: seconds, and peak memory in MB."""
    started = time.perf_counter()
    measured = subprocess.run(
        [sys.executable, __file__, "--measure", *command], capture_output=True, text=True, check=False
    )
    if measured.returncode:
        return {"failed": measured.stderr.strip()[-300:]}
    last = measured.stdout.strip().rsplit("\n", 1)[-1]
    return {"seconds": time.perf_counter() - started, **json.loads(last)}


def measure(command: list[str]) -> int:
    """Run a command, or a stage of this script, and print its peak memory and what the stage said."""
    said: dict[str, Any] = {}
    if command[0] == "--stage":
        said = stage(*command[1:])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    else:
        started = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        said = {"seconds": time.perf_counter() - started}
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        if done.returncode > 1:
            return done.returncode
    print(json.dumps({**said, "peak_mb": round(peak / 1024)}))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--breaking", action="store_true", help="break every prefix by a clock")
    parser.add_argument("--peers", type=Path, help="folder with the peers' commands")
    parser.add_argument("--tokenizer", help="a tokenizer for kvlint, as `transformers` loads it")
    parser.add_argument("--json", action="store_true")
    if sys.argv[1:2] == ["--measure"]:
        return measure(sys.argv[2:])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain, recorded = write_logs(Path(folder), options.sessions, options.turns, breaking=options.breaking)
        requests = options.sessions * options.turns
        prefold = [sys.executable, "-m", "prefold"]
        jobs = {name: ["--stage", name, str(plain)] for name in ("read", "encode", "attribute")}
        jobs["report"] = [*prefold, "report", str(plain), "--json", "-"]
        jobs["simulate"] = [*prefold, "simulate", str(plain), "--json"]
        if options.peers:
            jobs["promptcachelint"] = [str(options.peers / "promptcachelint"), "report", "--json", str(recorded)]
            if options.tokenizer:
                jobs["kvlint"] = [str(options.peers / "kvlint"), "analyze", str(plain), "--model", options.tokenizer]
        results = {name: timed(command) for name, command in jobs.items()}
        size = plain.stat().st_size / requests
    for result in results.values():
        if "seconds" in result:
            result["requests_per_second"] = round(requests / result["seconds"])
    if options.json:
        print(json.dumps({"version": __version__, "requests": requests, "bytes": round(size), "jobs": results}))
        return 0
    print(f"prefold {__version__}, Python {sys.version.split()[0]}: {requests:,} requests of {size / 1000:.1f} KB")
    ours = results["report"].get("seconds")
    for name, result in results.items():
        if "failed" in result:
            print(f"{name:16} failed: {result['failed']}")
            continue
        ratio = f"  {result['seconds'] / ours:6.1f}x report" if ours else ""
        rate, peak = result["requests_per_second"], result["peak_mb"]
        print(f"{name:16} {result['seconds']:8.2f} s {rate:8,} requests/s {peak:6,} MB{ratio}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
