"""The comparison in a second process: the same as in this one, and nothing is left of it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from prefold.analysis.caches.named import named_rules
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.comparison import Compared, Comparison, ComparisonAside, ComparisonHere
from prefold.analysis.encode import Encoder
from prefold.analysis.request import Request
from prefold.analysis.second_process import SecondProcess
from prefold.analysis.synthetic.workload import workload
from prefold.cli.pricing import load_prices
from prefold.errors import PrefoldError, UsageError

LONG = 700
"""Requests for which a second process is worth it."""


def caches() -> list[CacheSpec]:
    return [
        CacheSpec("vllm", named_rules("vllm"), capacity=40_000),
        CacheSpec("anthropic", named_rules("anthropic")),
        CacheSpec("own", None),
    ]


# The second process must be able to import what it is given, which it cannot do with this module.
no_prices = partial({}.get, "prices")
refuses_prices = partial(load_prices, None, None, "no currency", None)


def requests(count: int) -> Iterator[Request]:
    encoder = Encoder()
    return (encoder.encode(record) for record in workload(f"agent:bad,requests={count}")) if count else iter(())


def compared(comparison: Comparison, count: int) -> Compared:
    for request in requests(count):
        comparison.add(request)
    return comparison.result()


@pytest.mark.parametrize("count", [0, 20, LONG])
def test_both_say_the_same(count: int) -> None:
    with SecondProcess(no_prices) as second:
        there = compared(ComparisonAside(caches(), second), count)
        process = second.process
        assert (count == LONG) == (process is not None and process.is_alive())
    assert compared(ComparisonHere(caches(), None), count) == there
    assert process is None or not process.is_alive()


@pytest.mark.parametrize("count", [0, 1, LONG])
def test_one_that_was_started_before_is_used_however_few_there_are(count: int) -> None:
    with SecondProcess(no_prices) as second:
        second.start()
        there = compared(ComparisonAside(caches(), second), count)
    assert compared(ComparisonHere(caches(), None), count) == there


def test_it_works_while_the_first_does_something_else() -> None:
    with SecondProcess(no_prices) as second:
        aside = ComparisonAside(caches(), second)
        for request in requests(LONG):
            aside.add(request)
        aside.finish()
        assert second.start().poll(60)
        assert LONG == aside.result().rows[0].requests


def test_its_errors_arrive() -> None:
    with SecondProcess(refuses_prices) as second, pytest.raises(UsageError, match="no currency"):
        compared(ComparisonAside(caches(), second), LONG)
    with SecondProcess(no_prices) as second, pytest.raises(UsageError, match="magic"):
        compared(ComparisonAside([CacheSpec("x", None, policy="magic")], second), LONG)


def test_one_that_is_killed_is_missed() -> None:
    with SecondProcess(no_prices) as second:
        aside = ComparisonAside(caches(), second)
        for request in requests(LONG):
            aside.add(request)
        process = second.process
        assert process is not None
        process.kill()
        process.join()
        with pytest.raises(PrefoldError, match="has ended"):
            aside.result()


def test_an_interrupt_loses_no_request_and_sends_none_twice() -> None:
    """Ctrl-C comes at any moment, and most often while the second process is waited for."""
    sent = 0
    with SecondProcess(no_prices) as second:
        aside = ComparisonAside(caches(), second)
        try:
            for request in requests(4 * LONG):
                sent += 1
                if sent == LONG:
                    # Ctrl-C from now on, at some moment of what follows.
                    signal.setitimer(signal.ITIMER_REAL, 0.05)
                aside.add(request)
        except KeyboardInterrupt:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        rows = aside.result().rows
    assert {sent} == {row.requests for row in rows} or {sent - 1} == {row.requests for row in rows}


@pytest.fixture(autouse=True)
def alarm_is_an_interrupt() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, partial(_interrupt))
    yield
    signal.signal(signal.SIGALRM, before)


def _interrupt(_number: int, _frame: object) -> None:
    signal.raise_signal(signal.SIGINT)


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from test_comparison import LONG, ComparisonAside, SecondProcess, caches, no_prices, requests

if __name__ == "__main__":
    with SecondProcess(no_prices) as second:
        aside = ComparisonAside(caches(), second)
        while True:
            for request in requests(LONG):
                aside.add(request)
            print(second.process.pid, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_none_is_left_behind(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "compare.py"
    script.write_text(SCRIPT.format(folder=str(Path(__file__).parent)))
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that a signal to the group is the terminal's Ctrl-C
    ) as running:
        assert running.stdout
        assert running.stderr
        second = int(running.stdout.readline())
        if number is signal.SIGINT:
            os.killpg(running.pid, number)
        else:
            running.send_signal(number)
        running.wait(timeout=60)
        errors = running.stderr.read()  # to its end: the second process has closed it too
    assert number == -running.returncode
    assert 1 >= errors.count("Traceback")
    deadline = time.monotonic() + 30
    while Path(f"/proc/{second}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
