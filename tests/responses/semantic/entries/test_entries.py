"""What every place for entries promises."""

import asyncio
import math

import numpy as np
import pytest

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
    vector,
)


def test_what_is_put_is_found_and_answers(make):
    async def scenario(entries):
        assert f"{1:032x}" == await entries.put(entry(1, "how tall is it", "ann"))
        await entries.put(entry(2, "how old is it", "bob"))
        first, second = await nearest(entries, "how high is it", near="how tall is it")
        assert "how tall is it" == first.wording
        assert 0.99 < first.similarity < 1
        assert ("cluster-1", 1, NOW, NOW + 3600) == (first.cluster, first.principals, first.created, first.expires)
        assert (False, False, False) == (first.vetted, first.quarantined, first.rejected)
        assert "how old is it" == second.wording
        assert answer_of("how tall is it") == await entries.answer(first.entry)
        assert await entries.answer("f" * 32) is None
        assert {"entries": 2, "wordings": 2, "quarantined": 0, "samples": 0} == {
            name: number for name, number in (await entries.counts()).items() if name != "bytes"
        }

    run(make, scenario)


def test_candidates_are_those_of_brute_force(make):
    async def scenario(entries):
        texts = [f"question {number}" for number in range(60)]
        for number, text in enumerate(texts):
            await entries.put(entry(number, text))
        query = np.frombuffer(vector("asked"), "<f4")
        cosines = {number: float(np.frombuffer(vector(text), "<f4") @ query) for number, text in enumerate(texts)}
        expected = sorted(cosines, key=cosines.__getitem__, reverse=True)[:7]
        found = await nearest(entries, "asked", 7)
        assert expected == ids(found)
        assert [pytest.approx(cosines[number], abs=1e-5) for number in expected] == [one.similarity for one in found]
        assert 60 == len(await nearest(entries, "asked", 100))

    run(make, scenario)


def test_another_instance_sees_the_same_and_keeps_in_step(make):
    async def scenario(entries):
        other = make()
        await entries.put(entry(1, "one"))
        assert [1] == ids(await nearest(other, "one"))
        await other.put(entry(2, "two"))
        await other.add_wording(f"{1:032x}", question("uno"), vector("uno"), EMBEDDER)
        assert "uno" == (await nearest(entries, "uno"))[0].wording
        assert {1, 2} == set(ids(await nearest(entries, "one")))
        assert await other.delete(f"{1:032x}")
        assert [2] == ids(await nearest(entries, "one"))
        assert await entries.answer(f"{1:032x}") is None
        await entries.put(entry(3, "three"))
        await entries.quarantine(f"{3:032x}", "")
        assert [True] == [one.quarantined for one in await nearest(other, "three", 1)]
        await other.close()

    run(make, scenario)


@pytest.mark.parametrize(
    "apart",
    [{"context": b"d" * 32}, {"partition": "q"}, {"embedder": "embedder-2"}],
    ids=["context", "partition", "embedder"],
)
def test_contexts_partitions_and_embedders_never_meet(make, apart):
    async def scenario(entries):
        await entries.put(entry(1, "one"))
        assert [] == await nearest(entries, "one", **apart)
        assert [1] == ids(await nearest(entries, "one"))

    run(make, scenario)


def test_vectors_of_another_size_never_meet(make):
    async def scenario(entries):
        await entries.put(entry(1, "one"))
        assert [] == await entries.nearest(question("one"), vector("one", 8), EMBEDDER, 5)

    run(make, scenario)


@pytest.mark.parametrize(
    "broken",
    [b"", b"abc", np.array([1, math.nan], "<f4").tobytes(), np.array([math.inf, -math.inf], "<f4").tobytes()],
    ids=["empty", "cut", "nan", "infinite"],
)
def test_what_is_no_vector_is_refused(make, broken):
    async def scenario(entries):
        whole = entry(1, "one")
        with pytest.raises(StoreFailed, match="vector"):
            await entries.put(type(whole)(**{**fields_of(whole), "vector": broken}))
        with pytest.raises(StoreFailed, match="vector"):
            await entries.nearest(question("one"), broken, EMBEDDER, 5)
        assert 0 == (await entries.counts())["entries"]

    run(make, scenario)


def test_the_same_question_is_one_entry_and_putting_it_again_counts_nobody(make):
    async def scenario(entries):
        assert f"{1:032x}" == await entries.put(entry(1, "one", "ann"))
        assert f"{1:032x}" == await entries.put(entry(2, "one", "ann"))
        assert f"{1:032x}" == await entries.put(entry(3, "one", ""))
        assert [1] == [one.principals for one in await nearest(entries, "one")]
        assert f"{1:032x}" == await entries.put(entry(4, "one", "bob"))
        assert [1] == [one.principals for one in await nearest(entries, "one")]
        assert (1, 1) == ((await entries.counts())["entries"], (await entries.counts())["wordings"])
        assert f"{5:032x}" == await entries.put(entry(5, "one", "bob", partition="q"))
        assert f"{6:032x}" == await entries.put(entry(6, "One", "bob"))

    run(make, scenario)


def test_nobody_in_particular_counts_as_one_at_most(make):
    async def scenario(entries):
        await entries.put(entry(1, "one", ""))
        for who, counted in (("", 1), ("ann", 1), ("", 1), ("bob", 2)):
            await entries.add_wording(f"{1:032x}", question("one", who), vector("one"), EMBEDDER)
            assert [counted] == [one.principals for one in await nearest(entries, "one")]

    run(make, scenario)


def test_concurrent_puts_of_the_same_question_end_as_one_entry(make):
    async def scenario(entries):
        other = make()
        got = await asyncio.gather(
            *(place.put(entry(number, "one", f"who-{number}")) for number, place in enumerate([entries, other] * 10)),
            return_exceptions=True,
        )
        # Two writers may keep each other waiting for too long; whoever was answered was given the same entry.
        assert all(isinstance(one, str | StoreFailed) for one in got)
        answered = [one for one in got if isinstance(one, str)]
        assert 1 == len(set(answered))
        (found,) = await nearest(entries, "one")
        assert 1 == found.principals
        assert (1, 1) == ((await entries.counts())["entries"], (await entries.counts())["wordings"])
        await other.close()

    run(make, scenario)


def test_a_known_text_is_added_for_another_embedder_but_not_by_putting_it(make):
    async def scenario(entries):
        await entries.put(entry(1, "one"))
        again = fields_of(entry(2, "one"))
        again |= {"embedder": "embedder-2", "vector": vector("other", 8)}
        assert f"{1:032x}" == await entries.put(type(entry(1, "one"))(**again))
        assert [] == await entries.nearest(question("one"), vector("other", 8), "embedder-2", 5)
        await entries.add_wording(f"{1:032x}", question("one"), vector("other", 8), "embedder-2")
        assert [1] == ids(await entries.nearest(question("one"), vector("other", 8), "embedder-2", 5))
        assert [1] == ids(await nearest(entries, "one"))

    run(make, scenario)


def test_wordings(make):
    async def scenario(entries):
        await entries.put(entry(1, "one", "ann"))
        await entries.put(entry(2, "two", "ann"))
        for _ in range(2):
            await entries.add_wording(f"{1:032x}", question("uno", "bob"), vector("uno"), EMBEDDER)
        best, second = await nearest(entries, "uno")
        assert (1, "uno", 2) == (int(best.entry, 16), best.wording, best.principals)
        assert pytest.approx(1, abs=1e-5) == best.similarity
        assert "two" == second.wording  # each entry once, by its nearest wording
        assert f"{1:032x}" == await entries.put(entry(3, "uno", "eve"))
        assert 2 == (await nearest(entries, "uno"))[0].principals
        await entries.add_wording(f"{1:032x}", question("uno", "eve"), vector("uno"), EMBEDDER)
        assert 3 == (await nearest(entries, "uno"))[0].principals
        assert 3 == (await entries.counts())["wordings"]
        await entries.add_wording("f" * 32, question("x"), vector("x"), EMBEDDER)
        with pytest.raises(StoreFailed, match="context"):
            await entries.add_wording(f"{1:032x}", question("x", context=b"d" * 32), vector("x"), EMBEDDER)
        assert 3 == (await entries.counts())["wordings"]

    run(make, scenario)


def test_many_wordings_of_one_entry_do_not_hide_the_others(make):
    async def scenario(entries):
        await entries.put(entry(1, "one"))
        await entries.put(entry(2, "two"))
        for number in range(50):
            text = f"one {number}"
            await entries.add_wording(f"{1:032x}", question(text), vector(text, near="one"), EMBEDDER)
        assert [1, 2] == ids(await nearest(entries, "one", 2))

    run(make, scenario)


def test_wordings_are_bounded_but_principals_count(make):
    async def scenario(entries):
        await entries.put(entry(1, "one", "0"))
        for number in range(1, 6):
            text = f"one {number}"
            await entries.add_wording(f"{1:032x}", question(text, str(number)), vector(text), EMBEDDER)
        assert 3 == (await entries.counts())["wordings"]
        assert [6] == [one.principals for one in await nearest(entries, "one")]

    run(make, scenario, wordings=3)


def test_time_is_absolute(make):
    async def scenario(entries):
        await entries.put(entry(1, "one", "ann", ttl=60))
        make.clock[0] = NOW + 59
        assert f"{1:032x}" == await entries.put(entry(2, "one", "bob", ttl=600))
        assert await entries.answer(f"{1:032x}") is not None
        make.clock[0] = NOW + 60
        assert [] == await nearest(entries, "one")
        assert await entries.answer(f"{1:032x}") is None
        await entries.add_wording(f"{1:032x}", question("uno"), vector("uno"), EMBEDDER)
        assert [] == await nearest(entries, "uno")
        assert f"{3:032x}" == await entries.put(entry(3, "one", created=NOW + 60))
        assert [3] == ids(await nearest(entries, "one"))
        assert (1, 1) == ((await entries.counts())["entries"], (await entries.counts())["wordings"])

    run(make, scenario)


def test_an_entry_may_never_expire(make):
    async def scenario(entries):
        await entries.put(entry(1, "one", ttl=math.inf))
        make.clock[0] = NOW * 1000
        assert [math.inf] == [one.expires for one in await nearest(entries, "one")]

    run(make, scenario)


def test_an_entry_from_the_future_is_none_until_its_time_comes(make):
    async def scenario(entries):
        await entries.put(entry(1, "one"))
        make.clock[0] = NOW - 100
        assert [] == await nearest(entries, "one")
        assert await entries.answer(f"{1:032x}") is None
        assert f"{2:032x}" == await entries.put(entry(2, "one", created=NOW - 100))
        assert [2] == ids(await nearest(entries, "one"))
        make.clock[0] = NOW
        assert [1, 2] == sorted(ids(await nearest(entries, "one")))

    run(make, scenario)


def test_rejection(make):
    async def scenario(entries):
        await entries.put(entry(1, "one"))
        await entries.add_wording(f"{1:032x}", question("uno"), vector("uno"), EMBEDDER)
        await entries.reject(f"{1:032x}", "uno")
        (found,) = await nearest(entries, "uno")
        assert ("one", True) == (found.wording, found.rejected)
        assert [False] == [one.rejected for one in await nearest(entries, "ein")]
        await entries.add_wording(f"{1:032x}", question("uno"), vector("uno"), EMBEDDER)
        assert [True] == [one.rejected for one in await nearest(entries, "uno")]
        assert 1 == (await entries.counts())["wordings"]
        assert f"{2:032x}" == await entries.put(entry(2, "uno"))
        assert [(2, False), (1, True)] == [(int(one.entry, 16), one.rejected) for one in await nearest(entries, "uno")]
        await entries.reject("f" * 32, "uno")

    run(make, scenario)


def test_an_entry_rejected_for_its_own_question_is_quarantined_and_replaced(make):
    async def scenario(entries):
        await entries.put(entry(1, "one"))
        await entries.reject(f"{1:032x}", "one")
        (found,) = await nearest(entries, "one")
        assert (True, True) == (found.quarantined, found.rejected)
        assert f"{2:032x}" == await entries.put(entry(2, "one"))
        assert await entries.answer(f"{1:032x}") is None
        assert await entries.answer(f"{2:032x}") is not None

    run(make, scenario)


def test_quarantine_and_vetting(make):
    async def scenario(entries):
        await entries.put(entry(1, "one", "ann"))
        assert await entries.quarantine(f"{1:032x}", "somebody complained")
        (found,) = await nearest(entries, "one")
        assert (True, False) == (found.quarantined, found.vetted)
        assert await entries.answer(f"{1:032x}") is None
        assert 1 == (await entries.counts())["quarantined"]
        # The same answer does not come back by being asked for again, and nobody confirms it.
        assert f"{1:032x}" == await entries.put(entry(2, "one", "bob"))
        await entries.add_wording(f"{1:032x}", question("uno", "eve"), vector("uno"), EMBEDDER)
        assert [1] == [one.principals for one in await nearest(entries, "one")]
        assert 1 == (await entries.counts())["wordings"]
        assert await entries.vet(f"{1:032x}")
        (found,) = await nearest(entries, "one")
        assert (False, True) == (found.quarantined, found.vetted)
        assert await entries.answer(f"{1:032x}") is not None
        assert not await entries.quarantine("f" * 32, "x")
        assert not await entries.vet("f" * 32)

    run(make, scenario)


def test_deletion_takes_all_with_it(make):
    async def scenario(entries):
        for number, text in enumerate(["one", "two"]):
            await entries.put(entry(number, text, tags=["t"]))
        await entries.add_wording(f"{0:032x}", question("uno"), vector("uno"), EMBEDDER)
        await entries.reject(f"{0:032x}", "two")
        await entries.quarantine(f"{0:032x}", "about uno")
        assert await entries.delete(f"{0:032x}")
        assert not await entries.delete(f"{0:032x}")
        assert [1] == ids(await nearest(entries, "uno"))
        assert [("quarantine", ""), ("delete", ""), ("delete", "")] == [
            (line.act, line.note) for line in await entries.audit()
        ]
        assert f"{2:032x}" == await entries.put(entry(2, "uno"))
        assert (2, 2) == ((await entries.counts())["entries"], (await entries.counts())["wordings"])
        assert not (await nearest(entries, "two"))[0].rejected
        assert 1 == await entries.invalidate("t")

    run(make, scenario)


def test_invalidation_by_tag(make):
    async def scenario(entries):
        await entries.put(entry(1, "one", tags=["manual", "version 1"]))
        await entries.put(entry(2, "two", tags=["version 1"], partition="q"))
        await entries.put(entry(3, "three", tags=["version 2"]))
        assert 2 == await entries.invalidate("version 1")
        assert 0 == await entries.invalidate("version 1")
        assert 0 == await entries.invalidate("manual")
        assert [3] == ids(await nearest(entries, "one"))
        assert [] == await nearest(entries, "two", partition="q")

    run(make, scenario)


def test_audit(make):
    async def scenario(entries):
        await entries.put(entry(1, "one", tags=["t"]))
        await entries.quarantine(f"{1:032x}", "wrong")
        await entries.vet(f"{1:032x}")
        lines = await entries.audit()
        assert [("quarantine", f"{1:032x}", "wrong", 1, NOW), ("vet", f"{1:032x}", "", 1, NOW)] == [
            (line.act, line.subject, line.note, line.entries, line.at) for line in lines
        ]
        await entries.invalidate("t")
        assert [("invalidate", "t", 1)] == [
            (line.act, line.subject, line.entries) for line in await entries.audit(lines[-1].number)
        ]
        assert [""] == [line.note for line in await entries.audit() if line.act == "quarantine"]

    run(make, scenario)
