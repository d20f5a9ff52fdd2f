"""Whatever goes wrong around an engine, its answers are those of a cold one.

Killed at any moment, files cut or altered, a frozen Redis: see `tiers/test_lasting`. Single stores: see `tiers`.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from prefold.core.tokens import pack  # noqa: E402 - after the checks that the engine's packages are there
from prefold.engine import loading  # noqa: E402
from prefold.engine.checkpoint import fingerprint  # noqa: E402
from prefold.engine.pins import PinWish  # noqa: E402
from prefold.errors import CapacityError, ModelError, UsageError  # noqa: E402

from .conftest import Driver  # noqa: E402
from .tiers.support import running_redis  # noqa: E402
from .tiers.test_lasting import SERVER, Run, ask, engine_on  # noqa: E402
from .tiers.tiered import prompt, save_model  # noqa: E402

Expected = Callable[[list[int]], list[int]]

LENGTH = 330
"""Of most prompts: five whole blocks of 16 KiB, and a few tokens."""


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("models") / "tiny"
    save_model(folder, 7)
    return folder


@pytest.fixture(scope="module")
def expected(folder: Path) -> Expected:
    """Answers of an engine without tiers that remembers nothing."""
    known: dict[bytes, list[int]] = {}
    cold = Driver(engine_on(folder))

    def get(tokens: list[int]) -> list[int]:
        run = pack(tokens)
        if run not in known:
            cold.engine.reset()
            known[run] = cold.ask(tokens, max_tokens=6, ignore_eos=True).tokens
        return known[run]

    return get


def settle(run: Run) -> None:
    """Let everything that goes down arrive."""
    assert run.engine.ladder._mover.wait(lambda: False)


def check(run: Run, expected: Expected, seeds: Iterable[int] = range(4)) -> int:
    """Forget, ask, compare; how many tokens were found below."""
    settle(run)
    run.engine.reset()
    before = run.loaded()
    for seed in seeds:
        tokens = prompt(seed, LENGTH)
        assert expected(tokens) == ask(run, tokens)[0]
    return run.loaded() - before


# Disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a file system of its own, or mounts it anew with other options."""
    folder = tmp_path / "small"
    folder.mkdir()

    def mount(options: str) -> Path:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False
        )
        if done.returncode and "remount" not in options:
            pytest.skip("this needs the right to mount a file system")
        done.check_returncode()
        return folder

    yield mount
    subprocess.run(["umount", "-l", folder], check=False, capture_output=True)


@pytest.mark.parametrize("options", ["size=200k", "size=64k", "size=1m,nr_inodes=8"])
def test_a_disk_that_is_full(folder: Path, expected: Expected, small_disk: Callable[[str], Path], options: str) -> None:
    disk = small_disk(options)
    run = Run(engine_on(folder, "host=64KiB", f"disk={disk},50MiB", tier_write="through"))
    for _ in range(3):
        check(run, expected)
    run.engine.close()
    small_disk("remount,size=10m,nr_inodes=1000")
    run = Run(engine_on(folder, f"disk={disk},50MiB", tier_write="through"))
    check(run, expected)
    assert 4 * 320 == check(run, expected)
    run.engine.close()


def test_a_disk_that_can_only_be_read(folder: Path, expected: Expected, small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("size=10m")
    run = Run(engine_on(folder, f"disk={disk},50MiB", tier_write="through"))
    check(run, expected)
    run.engine.close()
    small_disk("remount,ro")
    run = Run(engine_on(folder, f"disk={disk},50MiB", tier_write="through"))
    for _ in range(2):
        assert 4 * 320 == check(run, expected, range(8))
    run.engine.close()


def test_a_folder_that_is_emptied_between_requests(folder: Path, expected: Expected, tmp_path: Path) -> None:
    disk = f"disk={tmp_path}/kv,50MiB"
    run = Run(engine_on(folder, disk, tier_write="through"))
    other = Run(engine_on(folder, disk, tier_write="through"))
    for empty in (
        lambda: [shutil.rmtree(path) for path in (tmp_path / "kv").iterdir() if path.is_dir()],
        lambda: other.engine.clear_tiers().result(timeout=60),
        lambda: shutil.rmtree(tmp_path / "kv"),
    ):
        check(run, expected)
        assert check(run, expected) > 0
        settle(run)
        empty()
        check(run, expected)
    run.engine.close()
    other.engine.close()


def test_another_process_that_writes_in_the_same_folder(folder: Path, expected: Expected, tmp_path: Path) -> None:
    disk = f"disk={tmp_path}/kv,400KiB"  # too little for both, so that each evicts what is the other's
    command = [sys.executable, "-c", SERVER, str(folder), disk, "through"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        try:
            assert process.stdout is not None
            for _ in range(3):
                assert process.stdout.readline()
            run = Run(engine_on(folder, disk, tier_write="through"))
            found = 0
            for seed in range(12):
                found += check(run, expected, range(seed % 3, seed % 3 + 2))
                tokens = prompt(seed, 200) + prompt(9, 7)
                assert expected(tokens) == ask(run, tokens)[0]
            assert process.poll() is None
            run.engine.close()
        finally:
            process.kill()
    assert found > 0


def test_two_engines_in_one_process_and_one_folder(folder: Path, expected: Expected, tmp_path: Path) -> None:
    answers = {seed: expected(prompt(seed, LENGTH)) for seed in range(8)}
    outcomes: list[bool] = []
    loaded: list[int] = []

    def serve(number: int) -> None:
        run = Run(engine_on(folder, f"disk={tmp_path}/kv,300KiB", slots=500, tier_write="through"))
        draw = random.Random(number)
        for _ in range(40):
            seed = draw.randrange(8)
            if draw.random() < 0.3:
                run.engine.reset()
            if draw.random() < 0.05:
                run.engine.clear_tiers()
            outcomes.append(answers[seed] == ask(run, prompt(seed, LENGTH))[0])
        loaded.append(run.loaded())
        run.engine.close()

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [True] * 80 == outcomes
    assert sum(loaded) > 0


# Redis


def test_a_slow_redis(folder: Path, expected: Expected, tmp_path: Path) -> None:
    redis = pytest.importorskip("redis", reason="redis comes with the extra `tiers`")
    with running_redis(tmp_path) as (url, _):
        run = Run(engine_on(folder, url, tier_write="through"))
        check(run, expected)
        assert 4 * 320 == check(run, expected)
        with redis.Redis.from_url(url) as client:
            for milliseconds in (20, 300, 1500):
                settle(run)
                client.client_pause(milliseconds)
                check(run, expected)
            client.flushall()
        check(run, expected)
        run.engine.close()


# Pins


def test_pins_at_their_limit_leave_room(folder: Path, expected: Expected, tmp_path: Path) -> None:
    run = Run(engine_on(folder, f"disk={tmp_path}/kv,50MiB", pin_limit=0.9, tier_write="through"))
    engine, pinned = run.engine, []
    for seed in range(15):
        tokens = prompt(seed, 90 if seed < 5 else 10)
        ask(run, tokens)
        if seed < 14:
            engine.pin(PinWish(pack(tokens)))
            pinned.append(tokens)
    with pytest.raises(CapacityError):
        engine.pin(PinWish(pack(tokens)))
    assert engine.cache.pin_limit == engine.cache.pinned
    for length in (10, 20, 50):
        tokens = prompt(31, length)
        assert expected(tokens) == ask(run, tokens)[0]
    engine.reset()
    for tokens in pinned:
        answer, cached = ask(run, tokens)
        assert (expected(tokens), len(tokens) - 1) == (answer, cached)
    run.engine.close()


# The model's own files


@pytest.mark.parametrize("is_lean", [True, False])
def test_weights_edited_in_place_are_not_those_of_a_running_engine(
    folder: Path, expected: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lean: bool
) -> None:
    if not is_lean:
        monkeypatch.setattr(loading, "is_lean", lambda _: False)
    own = tmp_path / folder.name
    shutil.copytree(folder, own)
    weights = own / "model.safetensors"
    before = weights.read_bytes()
    disk = f"disk={tmp_path}/kv,50MiB"
    run = Run(engine_on(own, disk, tier_write="through"))
    with weights.open("r+b") as file:
        file.seek(len(before) // 3)
        file.write(bytes(len(before) // 3))
    assert 0 == check(run, expected)
    run.engine.close()
    with weights.open("r+b") as file:
        file.write(before)
    run = Run(engine_on(own, disk))
    assert 4 * 320 == check(run, expected)
    run.engine.close()


@pytest.mark.parametrize("is_seen_by_samples", [True, False])
def test_weights_replaced_while_they_are_loaded_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_seen_by_samples: bool
) -> None:
    folder = tmp_path / "model"
    save_model(folder, 7, hidden_size=128, intermediate_size=512)
    weights = folder / "model.safetensors"
    load, before = loading.load_decoder, fingerprint(folder)

    def load_and_replace(*arguments):
        decoder = load(*arguments)
        content = bytearray(weights.read_bytes())
        content[-4 if is_seen_by_samples else int(len(content) * 10.5 / 63)] ^= 1
        draft = tmp_path / "draft"
        draft.write_bytes(content)
        draft.replace(weights)
        assert is_seen_by_samples == (fingerprint(folder) != before)
        return decoder

    monkeypatch.setattr(loading, "load_decoder", load_and_replace)
    with pytest.raises(ModelError, match="changed while"):
        engine_on(folder, f"disk={tmp_path}/kv,50MiB")


def test_tiers_that_cannot_be_are_refused_before_anything_is_loaded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("it was loaded")

    monkeypatch.setattr(loading, "load_decoder", never)
    monkeypatch.setattr(loading, "content_digest", never)
    disk = f"disk={tmp_path}/kv,50MiB"
    for tiers in ([f"disk={tmp_path}/kv"], ["host=1MiB", "host=2MiB"], [disk, "redis://h/0?ttl=soon"]):
        with pytest.raises(UsageError):
            engine_on(folder, *tiers)
    with pytest.raises(UsageError, match="without a tier"):
        engine_on(folder, tier_write="through")
    monkeypatch.setenv("PREFOLD_TIER_KEY", "short")
    with pytest.raises(UsageError, match="PREFOLD_TIER_KEY"):
        engine_on(folder, disk)


# Numbers that are none


class Poisoned:
    """A decoder that gives no numbers when it is told so, from the K/V on."""

    def __init__(self, decoder) -> None:
        self.decoder, self.poisons = decoder, False

    def forward(self, batch, kv):
        logits = self.decoder.forward(batch, kv)
        if self.poisons:
            for layer in range(len(kv.k)):
                kv.k[layer][batch.write] = torch.nan
            logits = torch.full_like(logits, torch.nan)
        return logits


@pytest.mark.parametrize("step_tokens", [1024, 100])
def test_a_step_without_numbers_leaves_nothing(
    folder: Path, expected: Expected, tmp_path: Path, step_tokens: int
) -> None:
    run = Run(engine_on(folder, f"disk={tmp_path}/kv,50MiB", tier_write="through", step_tokens=step_tokens))
    engine, tokens = run.engine, prompt(1, LENGTH)
    poisoned = engine._decoder = Poisoned(engine._decoder)
    known, other = tokens[:100], prompt(2, LENGTH)
    ask(run, known)
    poisoned.poisons = True
    _, (bad,) = run.submit(tokens, max_tokens=6, ignore_eos=True)
    run.run()
    poisoned.poisons = False
    assert ("error", 100) == (bad.finish, engine.cache.peek(pack(tokens)))
    assert (expected(tokens), 100) == ask(run, tokens)
    assert (expected(other), 0) == ask(run, other)
    # In an answer: what was generated before stays.
    engine.reset()
    _, (bad,) = run.submit(other, max_tokens=6, ignore_eos=True)
    while len(bad.tokens) < 3:
        engine.step()
    poisoned.poisons = True
    run.run()
    poisoned.poisons = False
    assert ("error", expected(other)[:3]) == (bad.finish, bad.tokens)
    longer = other + expected(other)
    assert LENGTH + 2 == engine.cache.peek(pack(longer))
    assert expected(longer) == ask(run, longer)[0]
    run.engine.close()
