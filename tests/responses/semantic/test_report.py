"""What a report says, and when it passes."""

import asyncio

import pytest

from prefold.errors import UsageError

pytest.importorskip("numpy", reason="the extra `answers` is not installed")

from prefold.responses.semantic.decision.decision import EVIDENCE, DecisionOptions
from prefold.responses.semantic.decision.shares import Share
from prefold.responses.semantic.report import make_report, read_report, require_proof
from prefold.responses.semantic.types import Reason, Sample

ALIKE = ("similarity", "covered", "same_words", "same_kind", "cosine", "agreement")
FEATURES = tuple(float(name in ALIKE) for name in EVIDENCE)
UNLIKE = (0.0,) * len(EVIDENCE)


def sample(*, same=True, probability=0.91, route="m", pool="p", features=FEATURES):
    return Sample(features, same, "entry", "cluster", route, probability, would_serve=True, at=0.0, pool=pool)


def enough(options):
    """How many right ones it takes to pass at the lowest threshold; `missing` is the least at any."""
    return next(count for count in range(1, 200) if make_report({"p": [sample()] * count}, {}, options).passes)


class Store:
    """Samples and tallies, as a store has them."""

    def __init__(self, samples, tallies=None):
        self._samples = samples
        self._tallies = tallies or {}

    async def pools(self):
        return list(self._samples)

    async def samples(self, pool, after=0):
        return self._samples[pool]

    async def tallies(self):
        return self._tallies


def test_an_empty_store_passes_nothing_and_says_how_much_is_missing():
    report = make_report({}, {}, DecisionOptions(max_wrong=0.01))
    assert (False, Share(0, 0), ()) == (report.passes, report.would_be, report.pools)
    assert make_report({"p": [sample()]}, {}, DecisionOptions(max_wrong=0.01)).missing == report.missing - 1


def test_just_as_many_right_ones_as_are_missing_pass():
    options = DecisionOptions(max_wrong=0.1)
    missing = enough(options)
    assert 1 == make_report({"p": [sample()] * (missing - 1)}, {}, options).missing
    assert make_report({}, {}, options).missing <= missing
    report = make_report({"p": [sample()] * missing}, {}, options)
    assert (True, 0) == (report.passes, report.missing)
    assert report.pools[0].bound < 0.1


def test_a_proof_of_earlier_probabilities_passes_nothing_while_nothing_reaches_them_now():
    options = DecisionOptions(max_wrong=0.1)
    missing = enough(options)
    (pool,) = make_report({"p": [sample(features=UNLIKE, probability=0.999)] * missing}, {}, options).pools
    assert pool.bound < 0.1
    assert (False, 1, Share(0, missing)) == (pool.passes, pool.missing, pool.reached)
    (pool,) = make_report({"p": [sample()] * missing}, {}, options).pools
    assert (True, 0, Share(missing, missing)) == (pool.passes, pool.missing, pool.reached)


def test_what_a_guard_holds_back_is_no_part_of_the_proof():
    guarded = tuple(value or float(name == "guard_operand") for name, value in zip(EVIDENCE, FEATURES, strict=True))
    (pool,) = make_report({"p": [sample(features=guarded)] * 10}, {}, DecisionOptions(max_wrong=0.1)).pools
    assert (10, Share(0, 0), 1.0, False) == (pool.samples, pool.wrong, pool.bound, pool.passes)


def test_wrong_ones_are_counted_by_route_and_set_the_proof_back():
    options = DecisionOptions(max_wrong=0.1)
    samples = [sample(route="a")] * 30 + [sample(route="b")] * 10 + [sample(route="b", same=False)] * 2
    samples += [sample(route="b", same=False, probability=0.3)] * 5
    (pool,) = make_report({"p": samples}, {}, options).pools
    assert (47, Share(2, 42)) == (pool.samples, pool.wrong)
    assert {"a": Share(0, 30), "b": Share(2, 12)} == pool.routes
    assert pool.missing > 0
    assert pool.bound > 0.1


def test_after_a_drift_the_record_begins_anew():
    options = DecisionOptions(max_wrong=0.1)
    proven = [sample()] * 200
    (pool,) = make_report({"p": proven + [sample(same=False)] * 20}, {}, options).pools
    assert (False, True) == (pool.passes, pool.drifts >= 1)
    assert pool.wrong.of < 20
    (pool,) = make_report({"p": proven}, {}, options).pools
    assert (True, 0, 200) == (pool.passes, pool.drifts, pool.wrong.of)


def test_one_proven_pool_is_enough_and_pools_do_not_add_up():
    options = DecisionOptions(max_wrong=0.1)
    missing = enough(options)
    half = [sample()] * (missing // 2 + 1)
    assert not make_report({"p": half, "q": half}, {}, options).passes
    report = make_report({"p": half, "q": [sample()] * missing}, {}, options)
    assert report.passes
    assert [True, False] == [pool.passes for pool in report.pools]


def test_samples_of_another_version_prove_nothing():
    (pool,) = make_report({"p": [sample(features=(1.0,))] * 1_000}, {}, DecisionOptions()).pools
    assert (0, False) == (pool.samples, pool.passes)


def test_would_be_hits_are_counted_with_their_interval():
    tallies = {
        "hits": 10,
        Reason.SHADOW.value: 20,
        Reason.AUDITED.value: 5,
        Reason.UNPROVEN.value: 15,
        Reason.UNSURE.value: 40,
        Reason.TIME_BOUND.value: 10,
        "learned": 30,
    }
    report = make_report({}, tallies, DecisionOptions())
    assert Share(50, 100) == report.would_be
    assert {"learned": 30} == report.learned
    shown = report.as_json()
    assert (100, 50, 0.5, 10) == tuple(
        shown[name] for name in ("questions", "would_be_hits", "would_be_hit_rate", "hits")
    )
    assert [round(end, 4) for end in shown["interval"]] == [0.4038, 0.5962]
    assert ["unsure", "shadow", "unproven", "time_bound", "audited"] == list(shown["misses"])


def test_switching_on_needs_a_report_that_passes():
    options = DecisionOptions(max_wrong=0.1)
    missing = enough(options)
    store = Store({"p": [sample()] * (missing - 1)})
    with pytest.raises(UsageError, match="at least 1 more right answer must"):
        asyncio.run(require_proof(store, options))
    asyncio.run(require_proof(Store({"p": [sample()] * missing}), options))
    assert asyncio.run(read_report(store, options)) == make_report({"p": [sample()] * (missing - 1)}, {}, options)
