"""What every place for entries promises about what is counted, shared and bounded, and about strange contents."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefold.responses.semantic.types import Answer, KnownWording
from prefold.responses.store import StoreFailed

from ..entries_support import (  # noqa: TID252 - of the folder above
    EMBEDDER,
    NOW,
    answer_of,
    entry,
    fields_of,
    ids,
    nearest,
    question,
    run,
    sample,
    vector,
)


def test_samples(make):
    async def scenario(entries):
        kept = [sample(0.1 * number) for number in range(5)]
        for one in kept:
            await entries.record(one)
        found = await entries.samples("pool")
        assert kept == [type(one)(**{**fields_of(one), "number": 0}) for one in found]
        numbers = [one.number for one in found]
        assert sorted(set(numbers)) == numbers
        assert found[3:] == await entries.samples("pool", after=numbers[2])
        assert [] == await entries.samples("pool", after=numbers[-1])
        assert 5 == (await entries.counts())["samples"]

    run(make, scenario)


def test_samples_of_other_pools_are_not_mixed_in(make):
    async def scenario(entries):
        await entries.record(sample(1.0))
        await entries.record(sample(2.0, pool=""))
        await entries.record(sample(3.0))
        assert [1.0, 3.0] == [one.features[0] for one in await entries.samples("pool")]
        assert [2.0] == [one.features[0] for one in await entries.samples("")]
        assert [] == await entries.samples("other")
        assert ["", "pool"] == await entries.pools()
        assert 3 == (await entries.counts())["samples"]

    run(make, scenario)


def test_tallies_add_up(make):
    async def scenario(entries):
        other = make()
        assert {} == dict(await entries.tallies())
        assert [] == await entries.pools()
        await entries.tally({"hits": 2, "unsure": 1})
        await other.tally({"hits": 3})
        await other.tally({})
        assert {"hits": 5, "unsure": 1} == dict(await entries.tallies())
        await other.close()

    run(make, scenario)


def test_wordings_of_a_context(make):
    async def scenario(entries):
        for number, text in enumerate(["zero", "one", "two"]):
            await entries.put(entry(number, text, ttl=60 * (number + 1)))
        await entries.put(entry(3, "three", partition="q"))
        await entries.add_wording(f"{1:032x}", question("uno"), vector("uno"), EMBEDDER)
        await entries.quarantine(f"{2:032x}", "")
        make.clock[0] = NOW + 60
        found = await entries.wordings(question("anything"), EMBEDDER)
        assert [KnownWording("cluster-1", text, vector(text)) for text in ("one", "uno")] == found
        assert [] == await entries.wordings(question("anything"), "embedder-2")

    run(make, scenario)


OPEN = {"open_context": b"o" * 32}


async def nearest_of_all(entries, text):
    return await entries.nearest(question(text, context=b"o" * 32, partition=""), vector(text), EMBEDDER, 5)


def test_what_is_shared_is_found_by_everybody_by_its_own_question(make):
    async def scenario(entries):
        await entries.put(entry(1, "one", "ann", **OPEN))
        await entries.put(entry(2, "two", "ann"))
        await entries.add_wording(f"{1:032x}", question("uno", **OPEN), vector("uno"), EMBEDDER)
        assert [] == await nearest_of_all(entries, "one")
        for _ in range(2):
            assert await entries.share(f"{1:032x}")
        assert not await entries.share(f"{2:032x}")
        assert not await entries.share("f" * 32)
        (found,) = await nearest_of_all(entries, "uno")
        assert ("one", True) == (found.wording, found.vetted)
        assert await entries.answer(found.entry) is not None
        # Another partition's question is neither refused nor kept, but may be rejected.
        theirs = question("ein", context=b"d" * 32, partition="q", **OPEN)
        await entries.add_wording(found.entry, theirs, vector("ein"), EMBEDDER)
        assert "one" == (await nearest_of_all(entries, "ein"))[0].wording
        await entries.reject(found.entry, "ein")
        assert (await nearest_of_all(entries, "ein"))[0].rejected
        # The same question is theirs to put, in their own partition.
        put = entry(3, "one", context=b"d" * 32, partition="q", **OPEN)
        assert put.id == await entries.put(put)
        assert "uno" == (await nearest(entries, "uno", **OPEN))[0].wording
        await entries.quarantine(found.entry, "")
        assert [True] == [one.quarantined for one in await nearest_of_all(entries, "one")]
        assert await entries.delete(found.entry)
        assert [] == await nearest_of_all(entries, "one")

    run(make, scenario)


def test_the_newest_samples_are_kept(make):
    async def scenario(entries):
        for number in range(6):
            await entries.record(sample(float(number)))
        assert [3.0, 4.0, 5.0] == [one.features[0] for one in await entries.samples("pool")]

    run(make, scenario, samples=3)


def test_too_many_entries_make_room_by_what_they_cost_and_their_use(make):
    async def scenario(entries):
        costly = fields_of(entry(1, "costly"))
        costly["answer"] = Answer("It took long.", output_tokens=5_000)
        await entries.put(type(entry(1, "x"))(**costly))
        await entries.put(entry(2, "used"))
        for _ in range(3):
            await entries.answer(f"{2:032x}")
        for number in range(3, 8):
            await entries.put(entry(number, f"text {number}"))
        left = ids(await nearest(entries, "costly", 50))
        assert {1, 2, 7} <= set(left)
        assert 4 == len(left) == (await entries.counts())["entries"]

    run(make, scenario, entries=4)


def test_too_many_bytes_make_room(make):
    async def scenario(entries):
        for number in range(12):
            await entries.put(entry(number, f"{number}" * 5_000))
        counts = await entries.counts()
        assert counts["bytes"] <= 50_000
        assert 2 <= counts["entries"] < 12
        assert counts["entries"] == counts["wordings"]
        with pytest.raises(StoreFailed, match="larger"):
            await entries.put(entry(99, "x" * 60_000))

    run(make, scenario, bytes=50_000)


def test_bytes_are_given_back(make):
    async def scenario(entries):
        await entries.put(entry(1, "one"))
        before = (await entries.counts())["bytes"]
        await entries.add_wording(f"{1:032x}", question("uno"), vector("uno"), EMBEDDER)
        assert before + 3 + len(vector("uno")) == (await entries.counts())["bytes"]
        await entries.reject(f"{1:032x}", "uno")
        assert before == (await entries.counts())["bytes"]
        await entries.delete(f"{1:032x}")
        assert 0 == (await entries.counts())["bytes"]

    run(make, scenario)


def test_a_text_of_a_megabyte(make):
    async def scenario(entries):
        text = "长" * 350_000
        await entries.put(entry(1, text))
        (found,) = await nearest(entries, text)
        assert text == found.wording
        assert answer_of(text) == await entries.answer(found.entry)

    run(make, scenario)


@pytest.mark.parametrize("text", ["", "\ud800 alone", "a\0b", "'; DROP TABLE entries; --", "\u2028🙂é"])
def test_any_text_comes_back_as_it_was(make, text):
    async def scenario(entries):
        await entries.put(entry(1, text, text, tags=[text]))
        await entries.add_wording(f"{1:032x}", question(text + "!"), vector(text + "!"), EMBEDDER)
        assert {text + "!"} == {one.wording for one in await nearest(entries, text + "!")}
        assert answer_of(text) == await entries.answer(f"{1:032x}")
        await entries.quarantine(f"{1:032x}", text)
        assert text == (await entries.audit())[0].note
        assert 1 == await entries.invalidate(text)

    run(make, scenario)


answers = st.builds(
    Answer,
    text=st.text(st.characters()),
    model=st.text(),
    finish=st.sampled_from(["stop", "length"]),
    input_tokens=st.integers(0, 2**40),
    output_tokens=st.integers(0, 2**40),
    deltas=st.lists(st.integers(0, 99), max_size=9).map(tuple),
)
numbers = itertools.count(10)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answers)
def test_any_answer_comes_back_as_it_was(make, answer):
    async def scenario(entries):
        number = next(numbers)
        await entries.put(type(entry(1, ""))(**{**fields_of(entry(number, f"text {number}")), "answer": answer}))
        assert answer == await entries.answer(f"{number:032x}")

    run(make, scenario)


def test_a_closed_place_fails_and_closes_again(make):
    async def scenario(entries):
        await entries.put(entry(1, "one"))
        await entries.close()
        with pytest.raises(StoreFailed):
            await nearest(entries, "one")

    run(make, scenario)
