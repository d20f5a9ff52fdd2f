"""Sums over what caches did, and costs made from them."""

import random
from datetime import UTC, datetime

import pytest

from prefold.analysis.caches.base import Served
from prefold.analysis.record import Blocks, Place, Record
from prefold.analysis.request import Request
from prefold.analysis.tally import Billed, Meter, PriceOf, Tally
from prefold.core.tokens import pack
from prefold.providers.prices import Price, Prices
from prefold.providers.rules import Control, rules_for
from prefold.providers.usage import Usage

NOW = datetime(2026, 11, 30, tzinfo=UTC)
DEARER = Price(6, 0.6, 7.5, 12, 0)
PRICE = Price(3, 0.3, 3.75, 6, 0, writes=((43_200, 9),), longer=((200_000, DEARER),))


def request(tokens: int, **record: object) -> Request:
    run = pack([0])
    return Request(run, tokens, tokens, 0.0, Record(Blocks(run, tokens, tokens), Place("log", 1), **record))


def tiered(sent: Request) -> Price | None:
    return PRICE.at(sent.tokens) if sent.record.model else None


def test_a_meter_counts_and_bills() -> None:
    meter = Meter(tiered)
    meter.add(request(1000, model="m"), Served(600, {300: 100, 3600: 50}))
    meter.add(request(500, model="m"), Served(0, replica=1))
    meter.add(request(300), Served(100))
    tally = meter.tally
    assert (3, 1800, 700, 150, 1) == (
        tally.requests,
        tally.input_tokens,
        tally.hit_tokens,
        tally.written_tokens,
        tally.unpriced_requests,
    )
    assert {0: 600, 1: 500} == tally.computed
    assert {PRICE: Billed(750, 600, {300: 100, 3600: 50})} == tally.billed
    assert (750 * 3 + 600 * 0.3 + 100 * 3.75 + 50 * 6) / 1e6 == pytest.approx(tally.cost)


def test_a_request_beyond_a_limit_costs_more_for_all_of_its_tokens() -> None:
    meter = Meter(tiered)
    for tokens in (200_000, 200_001, 200_000, 200_001):  # the price changes from one to the next
        meter.add(request(tokens, model="m"), Served(100_000))
    assert {PRICE: Billed(200_000, 200_000), DEARER: Billed(200_002, 200_000)} == meter.tally.billed
    usual, dear = 200_000 * 3.3, 200_002 * 6 + 200_000 * 0.6
    assert (usual + dear) / 1e6 == pytest.approx(meter.tally.cost)


def test_parts_of_a_log_add_up_to_the_whole_in_any_order() -> None:
    dice = random.Random(1)
    log = []
    for _ in range(200):
        tokens = dice.choice([7, 1000, 250_000])
        hit = dice.randint(0, tokens)
        served = Served(hit, {dice.choice([300, 3600, 43_200]): tokens - hit} if hit < tokens else {}, replica=hit % 3)
        log.append((request(tokens, model=dice.choice(["m", ""])), served))
    whole = Meter(tiered)
    parts = [Meter(tiered) for _ in range(3)]
    for number, (sent, served) in enumerate(log):
        whole.add(sent, served)
        parts[number % 3].add(sent, served)
    for order in ((0, 1, 2), (2, 0, 1)):
        total = Tally()
        for index in order:
            total.merge(parts[index].tally)
        assert whole.tally.cost == total.cost  # to the last digit
        assert (whole.tally.requests, whole.tally.hit_tokens, whole.tally.computed) == (
            total.requests,
            total.hit_tokens,
            total.computed,
        )


def test_nothing_priced_costs_nothing_that_is_known() -> None:
    meter = Meter(PriceOf(None))
    meter.add(request(10, model="m"), Served(0))
    assert (1, None) == (meter.tally.unpriced_requests, meter.tally.cost)


@pytest.mark.parametrize(("ttl", "price"), [(0, 3.75), (300, 3.75), (3600, 6), (43_200, 9)])
def test_each_lifetime_has_its_price(ttl: int, price: float) -> None:
    assert price == PRICE.write_for(ttl)
    assert 10 * price / 1e6 == pytest.approx(Billed(written={ttl: 10}).cost(PRICE))


def test_what_was_reported_is_billed_as_it_was_written() -> None:
    billed = Billed()
    billed.add_usage(Usage(uncached=100, read=1000, write=60, write_5m=10, write_1h=20, is_reported=True))
    billed.add_usage(Usage(uncached=1, read=0, write=5, is_reported=True))
    assert Billed(101, 1000, {0: 35, 300: 10, 3600: 20}) == billed
    assert 1166 == billed.tokens
    assert (101 * 3 + 1000 * 0.3 + 45 * 3.75 + 20 * 6) / 1e6 == pytest.approx(billed.cost(PRICE))


def test_a_resource_pays_for_the_time_that_it_is_kept() -> None:
    rules = rules_for("gemini-2.5-pro", control=Control.RESOURCE)
    price = Prices.load(given="miss=2", now=NOW).price_of("gemini-2.5-pro", rules=rules)
    assert rules is not None
    assert price is not None
    billed = Billed()
    billed.add(1_000_000, Served(0, {3600: 1_000_000}))
    assert 2 + rules.storage_usd_per_million_hour == pytest.approx(billed.cost(price))
