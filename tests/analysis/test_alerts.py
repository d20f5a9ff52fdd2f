"""Alerts on a stream of requests."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.analysis.alerts import Alert, Alerts, Sample, Thresholds, Traffic


def minutes(start: int, stop: int, hit: float, **fields: object) -> Iterator[Sample]:
    """One request a second of 1,000 tokens."""
    for second in range(60 * start, 60 * stop):
        yield replace(Sample(second, 1_000, int(1_000 * hit), prefix=b"p", prefix_tokens=500), **fields)


def run(samples: Iterable[Sample], thresholds: Thresholds | None = None) -> list[Alert]:
    alerts = Alerts(thresholds)
    return [alert for sample in samples for alert in alerts.add(sample)] + alerts.finish()


def test_all_is_well() -> None:
    assert [] == run(minutes(0, 120, 0.9, tenant="a", ttft=0.1))


def test_nothing_at_all() -> None:
    assert [] == Alerts().finish()


def test_a_tenant_is_low_for_half_an_hour_and_well_again() -> None:
    found = run(
        [*minutes(0, 10, 0.9, tenant="a"), *minutes(10, 50, 0.55, tenant="a"), *minutes(50, 70, 0.9, tenant="a")]
    )
    assert [("tenant_hit_rate", "a", False), ("tenant_hit_rate", "a", True)] == [
        (alert.name, alert.tenant, alert.is_over) for alert in found
    ]
    fired, over = found
    # The rate of five minutes falls below 60 % in the fifth minute; half an hour later it is an alert.
    assert (44 * 60, 0.55, 0.6) == (fired.time, pytest.approx(fired.value), fired.limit)
    assert over.time > 50 * 60
    assert over.value >= over.limit == 0.8


def test_a_tenant_that_is_low_for_less_is_no_alert() -> None:
    samples = [*minutes(0, 10, 0.9, tenant="a"), *minutes(10, 35, 0.55, tenant="a"), *minutes(35, 70, 0.9, tenant="a")]
    assert [] == run(samples)
    assert ["tenant_hit_rate"] * 2 == [alert.name for alert in run(samples, Thresholds(tenant_minutes=10))]


def test_between_low_and_healthy_nothing_ends() -> None:
    found = run([*minutes(0, 60, 0.55, tenant="a"), *minutes(60, 120, 0.75, tenant="a")])
    assert [False] == [alert.is_over for alert in found]


def test_one_tenant_of_two() -> None:
    bad = minutes(0, 60, 0.1, tenant="bad")
    good = minutes(0, 60, 0.95, tenant="good")
    found = run(sample for pair in zip(bad, good, strict=True) for sample in pair)
    assert ["bad"] == [alert.tenant for alert in found]


def test_the_share_of_hit_tokens() -> None:
    found = run([*minutes(0, 30, 0.9), *minutes(30, 60, 0.3), *minutes(60, 90, 0.9)])
    assert [("hit_share", False), ("hit_share", True)] == [(alert.name, alert.is_over) for alert in found]
    assert found[0].limit == 0.5
    assert found[1].limit == 0.7


def test_thresholds_can_be_moved() -> None:
    assert [] == run(minutes(0, 60, 0.3), Thresholds(hit_share=0.2))
    assert ["hit_share"] == [alert.name for alert in run(minutes(0, 60, 0.85), Thresholds(hit_share=0.9))]


@pytest.mark.parametrize(("hits", "names"), [(0.2, []), (0.85, ["ttft_gain"])])
def test_hits_that_bring_nothing(hits: float, names: list[str]) -> None:
    slow = minutes(0, 10, 0.0, ttft=1.0)
    quick = minutes(0, 10, 1.0, ttft=hits)
    found = run((s for pair in zip(slow, quick, strict=True) for s in pair), Thresholds(hit_share=0.0))
    assert names == [alert.name for alert in found]
    assert all(alert.value == pytest.approx(0.15) for alert in found)


def test_the_gain_is_one_of_the_99th_percentile() -> None:
    misses = [Sample(number, 10, 0, ttft=1.0) for number in range(1_000)]
    hits = [Sample(number, 10, 10, ttft=1.0 if number % 50 == 0 else 0.1) for number in range(1_000)]
    found = run((s for pair in zip(misses, hits, strict=True) for s in pair), Thresholds(hit_share=0.0))
    assert [0.0] == [alert.value for alert in found]


def test_evictions_jump() -> None:
    found = run(
        [
            *minutes(0, 40, 0.9, evicted_tokens=10),
            *minutes(40, 50, 0.8, evicted_tokens=100),
            *minutes(50, 100, 0.9, evicted_tokens=10),
        ]
    )
    assert [("eviction_jump", False), ("eviction_jump", True)] == [(alert.name, alert.is_over) for alert in found]
    assert found[0].value > 3


def test_few_evictions_are_no_jump() -> None:
    assert [] == run([*minutes(0, 40, 0.9), *minutes(40, 50, 0.9, evicted_tokens=9)])


def varied(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Each with a prefix of its own."""
    for number, sample in enumerate(samples):
        yield replace(sample, prefix=b"%d" % number)


def test_other_traffic_is_no_fault() -> None:
    same = run([*minutes(0, 30, 0.9), *minutes(30, 60, 0.3)])
    other = run([*minutes(0, 30, 0.9), *varied(minutes(30, 60, 0.3))])
    assert ([False], [True]) == ([alert.is_new_traffic for alert in same], [alert.is_new_traffic for alert in other])
    assert (Traffic(1, 500), Traffic(1, 500)) == (same[0].before, same[0].now)
    assert 100 < other[0].now.prefixes
    assert 500 * other[0].now.prefixes == pytest.approx(other[0].now.cache_tokens, rel=0.1)


def test_a_tenants_alert_compares_with_the_time_before_it_was_low() -> None:
    samples = [*minutes(0, 20, 0.9, tenant="a"), *varied(minutes(20, 60, 0.55, tenant="a"))]
    (alert,) = run(samples)
    assert alert.is_new_traffic


def test_memory_is_bounded() -> None:
    alerts = Alerts()
    for number in range(20_000):
        alerts.add(Sample(number * 30.0, 10, 5, tenant=str(number), prefix=b"%d" % number, ttft=0.1))
    sizes = (len(alerts._tenants), len(alerts._closed), len(alerts._miss_times) + len(alerts._hit_times))
    assert all(size <= 4_096 for size in sizes)


def test_many_prefixes_are_estimated() -> None:
    alerts = Alerts(Thresholds(hit_share=0.5))
    found = []
    for number in range(60_000):
        found += alerts.add(Sample(number / 200, 10, 1, prefix=b"%d" % number, prefix_tokens=10))
    found += alerts.finish()
    (alert,) = [alert for alert in found if alert.name == "hit_share"]
    assert 60_000 == pytest.approx(alert.now.prefixes, rel=0.25)


@given(st.lists(st.builds(Sample, st.floats(0, 1e5), st.integers(0, 100), st.just(0), st.sampled_from(["", "a"]))))
def test_any_order_of_times(samples: list[Sample]) -> None:
    assert all(0 <= alert.value <= 1 for alert in run(samples))
