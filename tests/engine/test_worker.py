"""The engine's thread, with the real model."""

from __future__ import annotations

import queue
import threading

import pytest

torch = pytest.importorskip("torch")

from prefold.core.tokens import pack  # noqa: E402 - after the check that torch is there
from prefold.engine.request import Request, SamplingOptions  # noqa: E402
from prefold.engine.worker import EngineWorker  # noqa: E402
from prefold.errors import CapacityError, EngineStopped, InvalidTokens, ModelError  # noqa: E402


@pytest.fixture
def worker(driver):
    worker = EngineWorker(lambda: driver(slots=600).engine)
    worker.start()
    yield worker
    worker.stop(drain=False)


def ask(worker, prompt, *, max_tokens=4):
    """Submit; returns the ticket and a queue of outputs."""
    outputs: queue.Queue = queue.Queue()
    options = SamplingOptions(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    (ticket,) = worker.submit(Request(pack(prompt), options, outputs.put))
    return ticket, outputs


def last_of(outputs):
    while (output := outputs.get(timeout=60)).finish is None:
        pass
    return output


def test_requests_from_many_threads_all_finish(worker):
    finished = []
    threads = [
        threading.Thread(target=lambda n=n: finished.append(last_of(ask(worker, [9] * 20 + [n])[1]))) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert ["length"] * 8 == [output.finish for output in finished]
    assert [0, *[20] * 7] == sorted(output.usage.cached for output in finished)


def test_cancelling_ends_a_request_whether_it_waits_or_runs(worker):
    first, first_outputs = ask(worker, [3] * 10, max_tokens=500)
    first_outputs.get(timeout=60)
    worker.cancel(first)
    second, second_outputs = ask(worker, [4] * 10, max_tokens=500)
    worker.cancel(second)
    assert "cancelled" == last_of(first_outputs).finish
    assert "cancelled" == last_of(second_outputs).finish
    assert (0, 0) == worker.call(lambda: (worker.engine.cache.reserved, len(worker.engine.scheduler.running))).result(9)


def test_a_bad_request_is_refused_in_the_callers_thread_and_a_bad_call_in_its_future(worker):
    with pytest.raises(InvalidTokens):
        ask(worker, [])

    def fail():
        raise CapacityError("no room")

    with pytest.raises(CapacityError):
        worker.call(fail).result(9)
    assert "length" == last_of(ask(worker, [1, 2])[1]).finish


def test_a_model_that_does_not_load_is_reported_by_start():
    def fail():
        raise ModelError("no such file")

    with pytest.raises(ModelError, match="no such file"):
        EngineWorker(fail).start()


def test_draining_finishes_what_is_there_and_takes_nothing_new(worker):
    _, outputs = ask(worker, [5] * 10, max_tokens=8)
    worker.stop(drain=True, timeout=60)
    assert "length" == last_of(outputs).finish
    with pytest.raises(EngineStopped):
        ask(worker, [1])


def test_stopping_cancels_what_is_there(worker):
    _, outputs = ask(worker, [6] * 10, max_tokens=500)
    outputs.get(timeout=60)
    worker.stop(drain=False)
    assert "cancelled" == last_of(outputs).finish
    assert not worker.failed


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_ends_everything_and_is_visible(worker):
    _, outputs = ask(worker, [7] * 10, max_tokens=500)
    outputs.get(timeout=60)
    worker.engine.step = lambda: 1 / 0
    assert "error" == last_of(outputs).finish
    worker._thread.join(60)
    assert worker.failed
    with pytest.raises(EngineStopped):
        ask(worker, [1])
