"""K/V that outlives the process, on real disks and a real Redis."""

from __future__ import annotations

import queue
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.engine.conftest import Driver  # noqa: E402

from prefold.core.keys import Scope  # noqa: E402 - after the checks that the engine's packages are there
from prefold.core.tokens import pack  # noqa: E402
from prefold.engine.checkpoint import resolve  # noqa: E402
from prefold.engine.loading import load_engine  # noqa: E402
from prefold.engine.options import EngineOptions  # noqa: E402
from prefold.engine.request import Request, SamplingOptions  # noqa: E402
from prefold.engine.worker import EngineWorker  # noqa: E402

from .support import running_redis  # noqa: E402
from .tiered import prompt, save_model  # noqa: E402

BLOCK = 64


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_model(folder, 7)
    return folder


def engine_on(folder: Path, *tiers: str, slots: int = 600, **options):
    checkpoint = resolve(str(folder), cache_dir=folder.parent, progress=lambda *_: None)
    width = 2 * checkpoint.config.layers * checkpoint.config.kv_heads * checkpoint.config.head_dim * 4
    settings = EngineOptions(
        **{"dtype": "float32", "kv_memory": slots * width, "tiers": tiers, "kernel": "torch", **options}
    )
    return load_engine(checkpoint, settings)


class Run(Driver):
    """Engines that load from real tiers, so that a step may have nothing to do yet."""

    def __init__(self, engine) -> None:
        super().__init__(engine)
        engine.ladder.computed(1000, 1e9)  # so small a model computes faster than a busy disk reads

    def run(self) -> None:
        while self.engine.busy:
            if not self.engine.step() and self.engine.loading is not None:
                time.sleep(1e-3)
        self.check()

    def loaded(self) -> int:
        return sum(self.engine.ladder.loaded.values())


@pytest.fixture(scope="module")
def expected(folder):
    """Answers of an engine without tiers that remembers nothing."""
    known: dict[tuple[int, ...], list[int]] = {}

    def get(tokens: list[int]) -> list[int]:
        if tuple(tokens) not in known:
            known[tuple(tokens)] = Driver(engine_on(folder)).ask(tokens, max_tokens=6, ignore_eos=True).tokens
        return known[tuple(tokens)]

    return get


def ask(driver: Run, tokens: list[int], **options) -> tuple[list[int], int]:
    answer = driver.ask(tokens, max_tokens=6, ignore_eos=True, **options)
    return answer.tokens, answer.usage.cached


def test_a_restart_finds_what_was_asked_for_twice(folder, expected, tmp_path):
    disk = f"disk={tmp_path}/kv,100MiB"
    twice, once = prompt(1, 200), prompt(2, 200)
    first = Run(engine_on(folder, "host=16MiB", disk))
    for tokens in (twice, once, twice):
        ask(first, tokens)
    first.engine.close()
    second = Run(engine_on(folder, "host=16MiB", disk))
    assert (expected(twice), 192) == ask(second, twice)
    assert (expected(once), 0) == ask(second, once)
    assert {"disk": 192} == dict(second.engine.ladder.loaded)
    assert 0 == ask(second, twice, scope=Scope("mine"))[1]
    second.engine.close()


def test_files_that_are_cut_altered_or_gone_are_computed_again(folder, expected, tmp_path):
    disk = f"disk={tmp_path}/kv,100MiB"
    tokens = prompt(1, 330)
    first = Run(engine_on(folder, disk, tier_write="through"))
    ask(first, tokens)
    first.engine.close()
    draw = random.Random(3)
    for harm in ("flip", "cut", "remove", "flip", "remove", "cut"):
        run = Run(engine_on(folder, disk, tier_write="through"))
        files = sorted(path for path in (tmp_path / "kv").rglob("*") if path.is_file() and path.stat().st_size > 1000)
        victim = draw.choice(files)
        run.submit(tokens, max_tokens=1)  # it has been found by now, and not yet read, or only just
        content = bytearray(victim.read_bytes())
        match harm:
            case "flip":
                content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
                victim.write_bytes(content)
            case "cut":
                victim.write_bytes(content[: draw.randrange(len(content))])
            case "remove":
                victim.unlink()
        run.run()
        assert expected(tokens) == ask(run, tokens)[0]
        run.engine.reset()
        assert expected(tokens) == ask(run, tokens)[0]
        run.engine.close()


def test_a_model_swapped_under_the_same_name_finds_nothing(folder, expected, tmp_path):
    disk = f"disk={tmp_path}/kv,100MiB"
    tokens = prompt(1, 200)
    first = Run(engine_on(folder, disk, tier_write="through"))
    assert expected(tokens) == ask(first, tokens)[0]
    first.engine.close()
    other = tmp_path / "elsewhere" / folder.name
    save_model(other, 8)
    swapped = Run(engine_on(other, disk, tier_write="through"))
    answer, cached = ask(swapped, tokens)
    assert 0 == cached
    assert Driver(engine_on(other)).ask(tokens, max_tokens=6, ignore_eos=True).tokens == answer != expected(tokens)
    swapped.engine.close()
    again = Run(engine_on(folder, disk))
    assert (expected(tokens), 192) == ask(again, tokens)
    again.engine.close()


def test_two_engines_share_a_redis_that_may_go(folder, expected, tmp_path):
    pytest.importorskip("redis", reason="redis comes with the extra `tiers`")
    with running_redis(tmp_path) as (url, server):
        tokens = prompt(1, 200)
        one, two = (Run(engine_on(folder, url, tier_write="through")) for _ in range(2))
        assert (expected(tokens), 0) == ask(one, tokens)
        assert one.engine.ladder._mover.wait(lambda: False)
        assert (expected(tokens), 192) == ask(two, tokens)
        assert 192 == two.loaded()
        server.send_signal(signal.SIGSTOP)
        try:
            two.engine.reset()
            assert (expected(tokens), 0) == ask(two, tokens)
            assert expected(prompt(2, 200)) == ask(one, prompt(2, 200))[0]
        finally:
            server.send_signal(signal.SIGCONT)
    one.engine.reset()
    assert expected(tokens) == ask(one, tokens)[0]
    for run in (one, two):
        run.engine.close()


SERVER = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from tests.engine.tiers.test_lasting import Run, engine_on, ask
from tests.engine.tiers.tiered import prompt
run = Run(engine_on(Path(sys.argv[1]), sys.argv[2], slots=400, tier_write=sys.argv[3]))
turn = 0
while True:
    print(turn, flush=True)
    for seed in range(4):
        ask(run, prompt(turn + seed, 200) + prompt(9, turn % 50 + 1))
    turn += 1
    if turn == 2:
        run.engine.ladder._mover.wait(lambda: False)  # some blocks are there for sure
"""


@pytest.mark.parametrize("write", ["through", "evict"])
def test_killed_at_any_moment_it_answers_right_when_it_is_back(folder, expected, tmp_path, write):
    disk = f"disk={tmp_path}/kv,100MiB"
    draw = random.Random(1)
    for _ in range(2):
        command = [sys.executable, "-c", SERVER, str(folder), disk, write]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]) as process:
            assert process.stdout is not None
            for _ in range(3):
                assert process.stdout.readline()
            time.sleep(draw.random() / 4)
            process.kill()
        back = Run(engine_on(folder, disk, slots=400))
        for seed in range(4):
            tokens = prompt(seed, 200) + prompt(9, 7)
            assert expected(tokens) == ask(back, tokens)[0]
        assert back.loaded() > 0
        back.engine.close(lambda: True)


def test_the_worker_sleeps_while_it_waits_for_a_load_and_wakes_when_it_has_come(folder, expected, tmp_path):
    disk = f"disk={tmp_path}/kv,100MiB"
    tokens = prompt(1, 200)
    first = Run(engine_on(folder, disk, tier_write="through"))
    ask(first, tokens)
    first.engine.close()
    worker = EngineWorker(lambda: engine_on(folder, disk))
    worker.start()
    steps = []
    step = worker.engine.step
    worker.engine.step = lambda: steps.append(step()) or steps[-1]
    outputs: queue.Queue = queue.Queue()
    options = SamplingOptions(max_tokens=6, temperature=0.0, ignore_eos=True)
    worker.submit(Request(pack(tokens), options, outputs.put))
    got = []
    while not got or got[-1].finish is None:
        got.append(outputs.get(timeout=60))
    worker.stop(drain=True, timeout=60)
    assert (expected(tokens), 192) == ([token for output in got for token in output.tokens], got[-1].usage.cached)
    assert 6 == steps.count(True)
    assert steps.count(False) <= 3  # waiting is no spinning: one for each reason to wake
