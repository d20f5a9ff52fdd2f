"""The watcher by itself: labels, limits, threads and processes."""

import contextlib
import os
import subprocess
import sys
import threading

import pytest

from prefold.clients.counters import Counters
from prefold.clients.watcher import OTHER_LABELS, Watcher
from prefold.clients.worker import Worker
from prefold.prompts.prompt import Dialect
from prefold.providers.usage import Usage

BODY = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hi"}]}
USAGE = {"prompt_tokens": 2_000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 500}}


def test_report():
    watcher = Watcher()
    watcher.begin(BODY, Dialect.OPENAI).answered({"usage": USAGE})
    with watcher.label("planner"):
        watcher.begin(BODY, Dialect.OPENAI).answered({"usage": {"prompt_tokens": 7}})
        watcher.begin(BODY, Dialect.OPENAI)
    system = "\n".join(f"Rule {number}: check item {number} before you answer." for number in range(300))
    for minute in range(3):
        messages = [{"role": "system", "content": f"Now: 10:0{minute}\n{system}"}, *BODY["messages"]]
        watcher.begin({**BODY, "messages": messages}, Dialect.OPENAI)
    assert watcher.flush()
    assert (
        "label    requests  unfinished  failed  input  read  written  output  hit rate  breaks\n"
        "-               4           3       0  2,000   500        0       5     25.0%       2\n"
        "planner         2           1       0      7     0        0       0   unknown       0\n"
        "\n"
        "breaks  label  cause  path\n"
        "     2  -      clock  messages[...]" == watcher.report()
    )


def test_report_of_nothing():
    assert "label  requests  unfinished  failed  input  read  written  output  hit rate  breaks" == Watcher().report()
    assert (None, Usage(), Counters(), ()) == (
        Watcher().hit_rate(),
        Watcher().usage,
        Watcher().total,
        Watcher().breaks,
    )
    assert Watcher().last_break is None


def test_labels_are_those_of_the_context():
    watcher = Watcher(label="outside")

    def elsewhere():
        watcher.begin(BODY, Dialect.OPENAI)

    with watcher.label("inside"):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with contextlib.suppress(KeyError), watcher.label("deeper"):
            watcher.begin(BODY, Dialect.OPENAI)
            raise KeyError
        watcher.begin(BODY, Dialect.OPENAI)
    assert ["outside", "deeper", "inside"] == list(watcher.counters)


def test_too_many_labels_share_one():
    watcher = Watcher()
    for number in range(1_003):
        watcher.count(str(number), Counters(requests=1))
    assert 3 == watcher.counters[OTHER_LABELS].requests
    assert 1_003 == watcher.total.requests


def test_a_call_is_counted_once():
    watcher = Watcher()
    call = watcher.begin(BODY, Dialect.OPENAI)
    call.answered({"usage": USAGE})
    call.answered({"usage": USAGE})
    with pytest.raises(KeyError), call:
        raise KeyError
    expected = Counters(requests=1, answered=1, usage=Usage(1_500, 500, output=5, is_reported=True))
    assert expected == watcher.total


def test_a_worker_does_everything_in_order_and_refuses_what_is_too_much():
    done, may_go = [], threading.Event()

    def handle(job):
        may_go.wait(5)
        done.append(job)

    worker = Worker(handle, capacity=3)
    assert worker.wait(1)
    taken = [worker.submit(job) for job in range(9)]
    assert taken.count(True) in (3, 4)  # three wait, and one may be in hand
    assert not taken[-1]
    assert not worker.wait(0.01)
    may_go.set()
    assert worker.wait(5)
    assert [job for job in range(9) if taken[job]] == done
    assert worker.submit(2)
    assert worker.wait(5)
    assert 2 == done[-1]


def test_a_worker_ends_when_idle_and_starts_again(monkeypatch):
    monkeypatch.setattr("prefold.clients.worker.IDLE_SECONDS", 0.01)
    done = []
    worker = Worker(done.append, capacity=3)
    for job in range(3):
        worker.submit(job)
        assert worker.wait(5)
        for thread in threading.enumerate():
            if thread.name == "prefold-watch":
                thread.join(5)
        assert "prefold-watch" not in {thread.name for thread in threading.enumerate()}
    assert [0, 1, 2] == done


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_goes_on():
    script = """
import os, sys
from prefold.clients.watcher import Watcher
from prefold.prompts.prompt import Dialect

watcher = Watcher()
body = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hi"}]}
watcher.begin(body, Dialect.OPENAI)
assert watcher.flush()
with watcher._lock, watcher._worker._changed:  # held by other threads at the moment of the fork
    child = os.fork()
    if child == 0:
        watcher.begin(body, Dialect.OPENAI)
        ok = watcher.flush() and watcher.total.requests == 2 and watcher.faults == 0
        os._exit(0 if ok else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    assert 0 == subprocess.run(command, timeout=60, check=False).returncode
