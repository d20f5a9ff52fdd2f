"""The whole path, with a real embedder and a real store: every doubt is a miss, and the model answers it."""

import asyncio
import sqlite3
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from prefold.errors import UsageError
from prefold.responses.cache import Mode as ExactMode
from prefold.responses.semantic.decision.decision import DecisionOptions
from prefold.responses.semantic.embedders import make_embedder
from prefold.responses.semantic.options import Mode
from prefold.responses.semantic.question import QuestionOptions, read_question
from prefold.responses.semantic.report import read_report
from prefold.responses.semantic.types import Reason

from .cache_support import (
    KNOWN,
    TASKS,
    Broken,
    Clock,
    Failing,
    Model,
    document,
    first,
    gone,
    need_minilm,
    opened,
    request,
    second,
)

ROUTER = TASKS[0]
WORDINGS = (
    *("How do I {}?", "How can I {}?", "What is the best way to {}?"),
    *("Can you tell me how to {}?", "Please tell me how to {}.", "How should I {}?"),
)
ORDINARY = QuestionOptions()
PRINTER = ("How do I restart my printer?", "How can I restart my printer?", "Please, how can I restart my printer?")
HOW_TO_ROUTER = f"This is how to {ROUTER}."


@pytest.fixture(scope="module")
def minilm():
    need_minilm()
    return make_embedder("minilm", {})


def misses(bench):
    return dict(bench.cache.counts.misses)


async def entry_of(bench, question, partition="", options=ORDINARY):
    """The entry nearest to a question."""
    found = await bench.cache.explain(question_of(question, partition, options))
    return found.verdict.candidate.entry


async def witnesses(bench, question):
    """How many got the answer of the entry nearest to a question."""
    found = await bench.cache.explain(question_of(question))
    return found.verdict.candidate.principals


def question_of(text, partition="", options=ORDINARY, **fields):
    return read_question(
        "/v1/chat/completions",
        request(text, **fields),
        partition=partition,
        principal="",
        options=options,
        by_credentials=False,
    )


# From the first question to the first hit


def test_the_same_request_is_answered_once_and_by_its_words(tmp_path, minilm):
    async def run():
        async with opened(tmp_path, minilm) as bench:
            answers = [await bench.ask(first(ROUTER)) for _ in range(3)]
        assert [(HOW_TO_ROUTER, False)] * 3 == answers
        assert [first(ROUTER)] == bench.model.asked

    asyncio.run(run())


def test_shadow_serves_nothing_but_learns_and_proves(tmp_path, minilm):
    async def run():
        async with opened(tmp_path, minilm, mode=Mode.SHADOW) as bench:
            await bench.prove()
            third = f"Please tell me how I can {ROUTER}"
            assert (HOW_TO_ROUTER, False) == await bench.ask(third)
            assert third == bench.model.asked[-1]
            assert 0 == bench.cache.counts.hits
            assert 1 == misses(bench)[Reason.SHADOW]
            assert len(KNOWN) == bench.cache.counts.learned
            counts = await bench.cache.entries.counts()
            assert (len(KNOWN), 2 * len(KNOWN) + 1) == (counts["entries"], counts["wordings"])

    asyncio.run(run())


def test_off_does_nothing_at_all(tmp_path, minilm):
    async def run():
        async with opened(tmp_path, minilm, mode=Mode.OFF) as bench:
            await bench.ask(first(ROUTER))
            await bench.ask(second(ROUTER))
            assert {Reason.OFF: 2} == misses(bench)
            assert 0 == (await bench.cache.entries.counts())["entries"]

    asyncio.run(run())


def test_nothing_is_served_before_it_is_proven_and_then_it_is_marked(tmp_path, minilm):
    async def run():
        async with opened(tmp_path, minilm) as bench:
            served = []
            for number, wording in enumerate(WORDINGS):
                for task in TASKS[:12]:
                    text, is_hit = await bench.ask(wording.format(task), who=f"customer {number}")
                    assert f"This is how to {task}." == text
                    served.append(is_hit)
            assert [False] * 18 == served[:18]
            assert True in served
            assert served.count(True) == bench.cache.counts.hits
            found = await bench.cache.ask(request(f"Please, how can I {ROUTER}?"), bench.model)
            assert HOW_TO_ROUTER == found["choices"][0]["message"]["content"]
            assert "semantic" == found["prefold"]["cache"]
            assert first(ROUTER) == question_text(bench, found["prefold"]["entry"])
            assert found["usage"]["total_tokens"] == 15

    def question_text(bench, entry):
        with closing(sqlite3.connect(tmp_path / "meaning.sqlite")) as database:
            (text,) = database.execute(
                "SELECT w.text FROM wordings w JOIN entries e ON e.number = w.entry WHERE e.id = ? ORDER BY w.number",
                (entry.encode(),),
            ).fetchone()
        return text.decode()

    asyncio.run(run())


def test_what_was_proven_outlives_the_process(tmp_path, minilm):
    async def run():
        async with opened(tmp_path, minilm) as bench:
            await bench.prove()
            now = bench.clock.now
        async with opened(tmp_path, minilm, clock=Clock(now)) as bench:
            # The first question may be a miss: what tokens of kept wordings look like is not kept, and made for it.
            await bench.ask(f"Could you tell me how I can {ROUTER}?")
            assert (HOW_TO_ROUTER, True) == await bench.ask(f"Please, how can I {ROUTER}?")

    asyncio.run(run())


def test_a_share_of_hits_goes_to_the_model_for_ever(tmp_path, minilm):
    async def run():
        async with opened(tmp_path, minilm, draw=lambda: 0.0) as bench:
            await bench.prove()
            third = f"Please, how can I {ROUTER}?"
            samples = (await bench.cache.entries.counts())["samples"]
            assert (HOW_TO_ROUTER, False) == await bench.ask(third)
            assert third == bench.model.asked[-1]
            assert misses(bench)[Reason.AUDITED] >= 1
            assert samples + 1 == (await bench.cache.entries.counts())["samples"]

    asyncio.run(run())


def test_streams_are_for_the_gateway(tmp_path, minilm):
    async def run():
        async with opened(tmp_path, minilm) as bench:
            with pytest.raises(UsageError):
                await bench.cache.ask(request(first(ROUTER), stream=True), bench.model)

    asyncio.run(run())


# What is not the same


def test_another_answer_becomes_a_stored_negative(tmp_path, minilm):
    annual, monthly = "How much is the annual plan?", "How much is the annual plans?"
    model = Model({annual: "It costs 90 euros.", monthly: "It costs 9 euros."})

    async def run():
        async with opened(tmp_path, minilm, model=model) as bench:
            await bench.prove()
            await bench.ask(annual, who="ann")
            entry = await entry_of(bench, annual)
            await bench.cache.vet(entry)
            bench.clock.now += 4_000  # the exact answers are over
            found = await bench.cache.explain(question_of(monthly))
            assert (None, entry) == (found.verdict.reason, found.verdict.candidate.entry)
            await bench.cache.entries.reject(entry, monthly)
            found = await bench.cache.explain(question_of(monthly))
            assert entry != found.verdict.candidate.entry
            assert [True] == [other.rejected for other in found.verdict.others if other.entry == entry]
            assert ("It costs 9 euros.", False) == await bench.ask(monthly)

    asyncio.run(run())


def test_where_nobody_can_compare_answers_they_are_not_the_same(tmp_path, minilm):
    model = Model({first(ROUTER): "Hold the button.", second(ROUTER): "Press the button for long."})

    async def run():
        async with opened(tmp_path, minilm, model=model, judge=None) as bench:
            await bench.ask(first(ROUTER))
            await bench.ask(second(ROUTER))
            counts = await bench.cache.entries.counts()
            assert (2, 0, 0) == (counts["entries"], bench.cache.counts.rejected, bench.cache.counts.aliases)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("said", "aliases", "rejected"), [("SAME", 1, 0), ("different.", 0, 1), ("SAME or not?", 0, 0), ("", 0, 0)]
)
def test_what_the_judge_says_decides(tmp_path, minilm, said, aliases, rejected):
    model = Model({first(ROUTER): "Hold the button.", second(ROUTER): "Press the button for long."})
    seen = []

    async def judge(messages, partition):
        seen.append(messages)
        return said

    async def run():
        async with opened(tmp_path, minilm, model=model, judge=judge) as bench:
            await bench.ask(first(ROUTER))
            await bench.ask(second(ROUTER))
            assert (aliases, rejected) == (bench.cache.counts.aliases, bench.cache.counts.rejected)
        assert 1 == len(seen)
        assert "Hold the button." in seen[0][-1]["content"]

    asyncio.run(run())


def test_partitions_never_meet(tmp_path, minilm):
    async def run():
        async with opened(tmp_path, minilm) as bench:
            await bench.prove(partition="acme")
            asked = len(bench.model.asked)
            assert (HOW_TO_ROUTER, False) == await bench.ask(first(ROUTER), partition="beta")
            assert (HOW_TO_ROUTER, False) == await bench.ask(second(ROUTER), partition="beta")
            assert asked + 2 == len(bench.model.asked)
            assert (HOW_TO_ROUTER, True) == await bench.ask(f"Please, how can I {ROUTER}?", partition="acme")

    asyncio.run(run())


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "another"},
        {"max_tokens": 20},
        {"response_format": {"type": "json_object"}},
        {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": second(ROUTER)}]},
    ],
    ids=["model", "max_tokens", "response_format", "system"],
)
def test_all_but_the_last_turn_is_exact(tmp_path, minilm, fields):
    async def run():
        async with opened(tmp_path, minilm) as bench:
            await bench.ask(first(ROUTER))
            assert (HOW_TO_ROUTER, False) == await bench.ask(second(ROUTER), **fields)
            assert 2 == misses(bench)[Reason.NO_CANDIDATE]

    asyncio.run(run())


def test_shared_entries_are_found_by_others_and_nothing_else_is(tmp_path, minilm):
    shared = QuestionOptions(shared=True)

    async def run():
        async with opened(tmp_path, minilm) as bench:
            for task in TASKS[:2]:
                await bench.ask(first(task), partition="acme", options=shared)
                await bench.ask(second(task), partition="acme", options=shared)
            theirs = question_of(second(ROUTER), "beta", shared)
            assert Reason.NO_CANDIDATE == (await bench.cache.explain(theirs)).verdict.reason
            entry = await entry_of(bench, first(ROUTER), "acme", shared)
            assert await bench.cache.share(entry)
            found = (await bench.cache.explain(theirs)).verdict.others
            assert [(entry, first(ROUTER))] == [(candidate.entry, candidate.wording) for candidate in found]
            other = question_of(second(TASKS[1]), "beta", shared)
            assert [entry] == [candidate.entry for candidate in (await bench.cache.explain(other)).verdict.others]
            unasked = question_of(second(ROUTER), "beta")
            assert Reason.NO_CANDIDATE == (await bench.cache.explain(unasked)).verdict.reason

    asyncio.run(run())


# Poisoning


def test_the_same_words_again_prove_nothing(tmp_path, minilm):
    """Neither many questions, each again and again, nor one; only blanks, case and punctuation differ."""
    asked = [f"{question}{' ' * blanks}" for question in map(first, KNOWN) for blanks in range(5)]
    asked += [f"{spelt}{'!' * marks}" for spelt in (second(ROUTER), second(ROUTER).lower()) for marks in range(20)]

    async def run():
        async with opened(tmp_path, minilm) as bench:
            for question in asked:
                assert not (await bench.ask(question, who="mallory"))[1]
            report = await read_report(bench.cache.entries, DecisionOptions(max_wrong=0.5))
            judged = sum(pool.samples for pool in report.pools)
            assert (len(KNOWN), False) == (judged, report.passes)  # other words than the nearest: each task once
            assert 40 < bench.cache.counts.aliases  # all the same, they became wordings

    asyncio.run(run())


def test_a_pair_that_was_rejected_is_not_judged_again(tmp_path, minilm):
    model = Model({second(ROUTER): "Ask your provider."})
    judged = []

    async def counted(messages, partition):
        judged.append(messages)
        return "DIFFERENT"

    async def run():
        async with opened(tmp_path, minilm, model=model, judge=counted) as bench:
            await bench.ask(first(ROUTER), who="ann")
            for blanks in range(2):
                await bench.ask(second(ROUTER) + " " * blanks, who="ben")
                assert await bench.cache.delete(await entry_of(bench, second(ROUTER)))  # the first is near again
            assert (1, 1) == (misses(bench)[Reason.REJECTED], len(judged))
            (pool,) = await bench.cache.entries.pools()
            assert [False] == [sample.same for sample in await bench.cache.entries.samples(pool)]

    asyncio.run(run())


def test_a_guard_decides_until_its_own_pairs_have_shown_otherwise(tmp_path, minilm):
    narrower = "How can I reset my router in Paris?"

    async def run():
        async with opened(tmp_path, minilm) as bench:
            await bench.prove()
            found = await bench.cache.explain(question_of(narrower))
            guards = found.verdict.guards
            assert guards[0] == found.verdict.reason
            before = misses(bench)[guards[0]]
            assert (HOW_TO_ROUTER, False) == await bench.ask(narrower, who="carl")
            assert before + 1 == misses(bench)[guards[0]]
            (pool,) = await bench.cache.entries.pools()
            held = (await bench.cache.entries.samples(pool))[-1]
            assert (True, False) == (held.same, held.would_serve)
            for _ in range(60):
                await bench.cache.entries.record(replace(held, probability=0.91))
            bench.clock.now += 6.0
            assert (HOW_TO_ROUTER, True) == await bench.ask("How can I reset my router in London?", who="carl")

    asyncio.run(run())


def test_one_witness_is_none(tmp_path, minilm):
    lie = "Throw it out of the window."
    new = "How do I restart my printer?"
    model = Model({new: lie})

    async def run():
        async with opened(tmp_path, minilm, model=model) as bench:
            await bench.prove()
            await bench.ask(new, who="mallory")
            unconfirmed, rejected = misses(bench).get(Reason.UNCONFIRMED, 0), bench.cache.counts.rejected
            truth = "How can I restart my printer?"
            model.answers[truth] = "Press and hold its button."
            assert ("Press and hold its button.", False) == await bench.ask(truth, who="alice")
            assert unconfirmed + 1 == misses(bench)[Reason.UNCONFIRMED]
            assert rejected + 1 == bench.cache.counts.rejected

    asyncio.run(run())


def test_a_second_principal_or_an_administrator_confirms(tmp_path, minilm):
    new = PRINTER
    model = Model(dict.fromkeys(new, "Press and hold its button."))

    async def run():
        async with opened(tmp_path, minilm, model=model) as bench:
            await bench.prove()
            await bench.ask(new[0], who="ann")
            assert not (await bench.ask(new[1], who="ben"))[1]
            assert (model.answers[new[0]], True) == await bench.ask(new[2], who="eve")
        async with opened(tmp_path / "other", minilm, model=model) as bench:
            await bench.prove()
            await bench.ask(new[0], who="ann")
            assert await bench.cache.vet(await entry_of(bench, new[0]))
            assert (model.answers[new[0]], True) == await bench.ask(new[1], who="eve")

    asyncio.run(run())


async def unsure(messages, partition):
    """A judge that does not say what it finds."""
    return "I cannot tell."


@pytest.mark.parametrize("judge", [None, unsure], ids=["no judge", "an unsure judge"])
def test_nobody_is_a_witness_of_an_answer_that_he_did_not_get(tmp_path, minilm, judge):
    lie, truth = "Call 555-SCAM.", "Press and hold its button."
    model = Model({PRINTER[0]: lie})

    async def run():
        async with opened(tmp_path, minilm, model=model, judge=judge, exact=ExactMode.OFF) as bench:
            await bench.prove()
            await bench.ask(PRINTER[0], who="mallory")
            model.answers = dict.fromkeys(PRINTER, truth)
            assert (truth, False) == await bench.ask(PRINTER[0], who="bob")
            assert 1 == await witnesses(bench, PRINTER[0])
            for wording in PRINTER[1:]:
                assert (truth, False) == await bench.ask(wording, who="carl")

    asyncio.run(run())


def test_one_who_asks_again_is_no_second_witness(tmp_path, minilm):
    asked, plain = "How do I season a wok, jokingly?", "How do I season a wok?"
    model = Model({f"{asked}{' ' * blanks}": "With glitter." for blanks in range(3)} | {plain: "With hot oil."})

    async def run():
        async with opened(tmp_path, minilm, model=model) as bench:
            await bench.prove()
            for blanks in range(3):
                assert ("With glitter.", False) == await bench.ask(f"{asked}{' ' * blanks}", who="mallory")
            assert 1 == await witnesses(bench, asked)
            assert ("With hot oil.", False) == await bench.ask(plain, who="victim")

    asyncio.run(run())


def test_the_same_words_that_another_one_got_make_a_second_witness(tmp_path, minilm):
    async def run():
        async with opened(tmp_path, minilm, exact=ExactMode.OFF) as bench:
            await bench.ask(first(ROUTER), who="ann")
            await bench.ask(first(ROUTER), who="ann")
            assert 1 == await witnesses(bench, first(ROUTER))
            await bench.ask(first(ROUTER), who="ben")
            assert 2 == await witnesses(bench, first(ROUTER))
            counts = await bench.cache.entries.counts()
            assert (1, 1) == (counts["entries"], counts["wordings"])

    asyncio.run(run())


def test_where_nobody_can_be_told_apart_the_judge_is_the_second_witness(tmp_path, minilm):
    model = Model(dict.fromkeys(PRINTER, "Press and hold its button."))

    async def run():
        async with opened(tmp_path, minilm, model=model) as bench:
            await bench.prove()
            await bench.ask(PRINTER[0])
            assert not (await bench.ask(PRINTER[1]))[1]
            assert 2 == await witnesses(bench, PRINTER[0])
            assert (model.answers[PRINTER[2]], True) == await bench.ask(PRINTER[2])

    asyncio.run(run())


def test_what_was_kept_is_found_by_another_embedder_when_it_is_asked_again(tmp_path, minilm):
    other = make_embedder("minilm", {})
    other.fingerprint = "another"

    async def run():
        async with opened(tmp_path, minilm) as bench:
            await bench.ask(first(TASKS[1]), who="ann")  # has the id that the next bench gives first
            await bench.ask(first(ROUTER), who="ann")
            now = bench.clock.now
        async with opened(tmp_path, other, clock=Clock(now), exact=ExactMode.OFF) as bench:
            await bench.ask(first(ROUTER), who="ben")
            assert 1 == await witnesses(bench, first(ROUTER))  # ben's answer was compared with nothing
            assert 2 == (await bench.cache.entries.counts())["entries"]

    asyncio.run(run())


def test_insertions_are_rationed_for_each_principal(tmp_path, minilm):
    async def run():
        async with opened(tmp_path, minilm, options={"inserts_per_minute": 2}) as bench:
            bench.clock.now = 0.0
            frozen = [
                asyncio.create_task(bench.cache.ask(request(first(task)), bench.model, principal="mallory"))
                for task in TASKS[:6]
            ]
            await asyncio.gather(*frozen)
            await bench.settled()
            assert 2 == (await bench.cache.entries.counts())["entries"]
            await bench.cache.ask(request(first(TASKS[7])), bench.model, principal="ann")
            await bench.settled()
            assert 3 == (await bench.cache.entries.counts())["entries"]

    asyncio.run(run())


# Life and removal


def test_quarantine_holds_from_the_next_question_on(tmp_path, minilm):
    async def run():
        async with opened(tmp_path, minilm) as bench:
            await bench.prove()
            assert (await bench.ask(f"Please, how can I {ROUTER}?"))[1]
            assert await bench.cache.quarantine(await entry_of(bench, first(ROUTER)), "wrong button")
            asked = len(bench.model.asked)
            assert (HOW_TO_ROUTER, False) == await bench.ask(f"Could you tell me how I can {ROUTER}?")
            assert asked + 1 == len(bench.model.asked)
            assert 1 == misses(bench)[Reason.QUARANTINED]

    asyncio.run(run())


def test_hits_do_not_prolong_a_life(tmp_path, minilm):
    async def run():
        async with opened(tmp_path, minilm, options={"ttl_seconds": 10_000.0}) as bench:
            await bench.prove()
            start = bench.clock.now
            for number in range(1, 4):
                bench.clock.now = start + 2_000 * number
                assert (await bench.ask(f"{'Please, ' * number}how can I {ROUTER}?"))[1], number
            bench.clock.now = start + 10_001
            assert (HOW_TO_ROUTER, False) == await bench.ask(f"Could you tell me how I can {ROUTER}?")
            assert Reason.NO_CANDIDATE in misses(bench)

    asyncio.run(run())


def test_deleting_and_invalidating_leave_nothing_to_serve(tmp_path, minilm):
    tagged = QuestionOptions(tags=frozenset(("handbook",)))

    async def run():
        async with opened(tmp_path, minilm) as bench:
            await bench.prove()
            entry = await entry_of(bench, first(ROUTER))
            assert await bench.cache.delete(entry)
            assert not await bench.cache.delete(entry)
            assert not (await bench.ask(f"Please, how can I {ROUTER}?"))[1]
            bench.model.answers = dict.fromkeys(PRINTER, "Press and hold its button.")
            await bench.ask(PRINTER[0], options=tagged)
            await bench.ask(PRINTER[1], options=tagged)
            assert (1, 0) == (await bench.cache.invalidate("handbook"), await bench.cache.invalidate("handbook"))
            assert not (await bench.ask(PRINTER[2], options=tagged))[1]

    asyncio.run(run())


@pytest.mark.parametrize("jump", [-1e9, -3_600.0, 1e9])
def test_a_jump_of_the_clock_makes_misses(tmp_path, minilm, jump):
    async def run():
        async with opened(tmp_path, minilm) as bench:
            await bench.prove()
            bench.clock.now += jump
            assert (HOW_TO_ROUTER, False) == await bench.ask(f"Please, how can I {ROUTER}?")

    asyncio.run(run())


# Parts that fail


def slow():
    time.sleep(0.3)
    return np.eye(1, 384, dtype=np.float32)


@pytest.mark.parametrize(
    ("fail", "reason"),
    [
        (gone, Reason.EMBEDDER_MISSING),
        (slow, Reason.EMBEDDER_SLOW),
        (lambda: np.eye(1, 100, dtype=np.float32), Reason.EMBEDDER_FAILED),
        (lambda: np.full((1, 384), np.nan, np.float32), Reason.EMBEDDER_FAILED),
        (lambda: 1 / 0, Reason.EMBEDDER_FAILED),
    ],
    ids=["missing", "slow", "another size", "not a number", "raises"],
)
def test_without_a_vector_the_model_answers(tmp_path, fail, reason):
    async def run():
        async with opened(tmp_path, Broken(fail), deadline=0.05) as bench:
            assert (HOW_TO_ROUTER, False) == await bench.ask(first(ROUTER))
            assert {reason: 1} == misses(bench)

    asyncio.run(run())


def test_a_locked_store_is_a_miss(tmp_path, minilm):
    async def run():
        async with opened(tmp_path, minilm) as bench:
            await bench.ask(first(ROUTER))
            with closing(sqlite3.connect(tmp_path / "meaning.sqlite", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                assert (HOW_TO_ROUTER, False) == await bench.ask(second(ROUTER))
                other.execute("ROLLBACK")
            assert (HOW_TO_ROUTER, False) == await bench.ask(f"Please, how can I {ROUTER}?")
            assert 1 == bench.cache.counts.aliases

    asyncio.run(run())


@pytest.mark.parametrize("content", [b"", b"no database" * 1_000], ids=["emptied", "garbage"])
def test_a_broken_store_is_a_miss(tmp_path, minilm, content):
    async def run():
        async with opened(tmp_path, minilm) as bench:
            await bench.prove()
        for end in ("-wal", "-shm"):
            (tmp_path / f"meaning.sqlite{end}").unlink(missing_ok=True)
        (tmp_path / "meaning.sqlite").write_bytes(content)
        async with opened(tmp_path, minilm) as bench:
            assert (HOW_TO_ROUTER, False) == await bench.ask(f"Please, how can I {ROUTER}?")
            expected = Reason.STORE_FAILED if content else Reason.NO_CANDIDATE
            assert {expected: 1} == misses(bench)

    asyncio.run(run())


def test_a_store_that_hangs_is_a_miss(tmp_path, minilm):
    async def run():
        async with opened(tmp_path, minilm, options={"store_seconds": 0.05}) as bench:
            await bench.ask(first(ROUTER))

            async def hang(*_):
                await asyncio.sleep(60)

            bench.cache.entries.nearest = hang
            before = misses(bench).get(Reason.STORE_FAILED, 0)  # on a busy machine the real one may be late, too
            assert (HOW_TO_ROUTER, False) == await bench.ask(second(ROUTER))
            assert before + 1 == misses(bench)[Reason.STORE_FAILED]

    asyncio.run(run())


class Verdicts:
    """A verifier whose words are given."""

    def __init__(self, probability):
        self.probability = probability

    async def same(self, a, b):
        if self.probability is None:
            raise Failing("It is gone.")
        return self.probability


def test_a_verifier_that_fails_is_a_miss(tmp_path, minilm):
    verifier = Verdicts(0.99)

    async def run():
        async with opened(tmp_path, minilm, verifier=verifier) as bench:
            await bench.prove()
            assert (await bench.ask(f"Please, how can I {ROUTER}?"))[1]
            verifier.probability = None
            assert not (await bench.ask(f"Could you tell me how I can {ROUTER}?"))[1]
            assert 1 == misses(bench)[Reason.VERIFIER_FAILED]

    asyncio.run(run())


# Questions and answers that are none


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("a" * 1_000_000, Reason.TOO_LONG),
        ("Why is\x00 the sky blue?", Reason.UNREADABLE),
        ("Why is the sky blue \ud800?", Reason.UNREADABLE),
        ("What is the weather today?", Reason.TIME_BOUND),
        ("今天的天气怎么样？", Reason.TIME_BOUND),
        ("What is my account balance?", Reason.PERSONAL),
        (" \n ", Reason.NOT_A_QUESTION),
    ],
    ids=["1 MB", "control", "half a surrogate pair", "time", "time in Chinese", "personal", "blank"],
)
def test_questions_that_only_the_model_answers(tmp_path, minilm, question, reason):
    async def run():
        async with opened(tmp_path, minilm) as bench:
            for _ in range(2):
                text, is_hit = await bench.ask(question)
                assert (f"About {question[:80]}.", False) == (text, is_hit)
            assert (await bench.cache.entries.counts())["entries"] == 0
            if reason is not Reason.NOT_A_QUESTION:
                assert {reason} == set(misses(bench))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"temperature": 0.7}, Reason.SAMPLED),
        ({"n": 2}, Reason.MANY_ANSWERS),
        ({"tools": [{"type": "function", "function": {"name": "look"}}]}, Reason.TOOLS),
    ],
)
def test_requests_that_only_the_model_answers(tmp_path, minilm, fields, reason):
    async def run():
        async with opened(tmp_path, minilm) as bench:
            assert not (await bench.ask(first(ROUTER), **fields))[1]
            assert {reason: 1} == misses(bench)
            assert (await bench.cache.entries.counts())["entries"] == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    "answer",
    [
        document("", finish="tool_calls", tool_calls=[{"id": "1", "type": "function", "function": {"name": "look"}}]),
        document("I'm sorry, but I can't help with that."),
        document(None, refusal="No."),
        document("Half an answ", finish="length"),
        document("", finish="content_filter"),
        {"error": {"message": "out of memory"}},
    ],
    ids=["tool call", "refusing text", "refusal", "cut off", "filtered", "error"],
)
def test_answers_that_are_not_kept(tmp_path, minilm, answer):
    async def model(_):
        return answer

    async def run():
        async with opened(tmp_path, minilm) as bench:
            assert answer == await bench.cache.ask(request(first(ROUTER)), model)
            await bench.settled()
            assert (await bench.cache.entries.counts())["entries"] == 0

    asyncio.run(run())


def test_a_model_that_fails_fails_the_request_and_nothing_else(tmp_path, minilm):
    async def model(_):
        raise Failing("The model is gone.")

    async def run():
        async with opened(tmp_path, minilm) as bench:
            with pytest.raises(Failing):
                await bench.cache.ask(request(first(ROUTER)), model)
            assert (await bench.cache.entries.counts())["entries"] == 0
            assert (HOW_TO_ROUTER, False) == await bench.ask(first(ROUTER))

    asyncio.run(run())


def test_a_hundred_at_once_ask_the_model_once(tmp_path, minilm):
    async def run():
        async with opened(tmp_path, minilm) as bench:
            documents = await asyncio.gather(
                *(bench.cache.ask(request(first(ROUTER)), bench.model) for _ in range(100))
            )
            assert [HOW_TO_ROUTER] * 100 == [found["choices"][0]["message"]["content"] for found in documents]
            assert [first(ROUTER)] == bench.model.asked
            await bench.settled()
            assert 1 == (await bench.cache.entries.counts())["entries"]

    asyncio.run(run())


def test_counts_are_kept_in_the_store(tmp_path, minilm):
    async def run():
        for _ in range(2):
            async with opened(tmp_path, minilm) as bench:
                await bench.ask("What is the weather today?")
        async with opened(tmp_path, minilm) as bench:
            assert 2 == (await bench.cache.entries.tallies())[Reason.TIME_BOUND]

    asyncio.run(run())
