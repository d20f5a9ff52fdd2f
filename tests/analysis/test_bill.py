"""Costs rest on what was reported, and what could be saved on what was lost without need."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from prefold.analysis.attribution import Row
from prefold.analysis.bill import Bill
from prefold.analysis.caches.base import Reason, Served
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.record import Blocks, Place, Record
from prefold.analysis.request import Request
from prefold.core.tokens import pack
from prefold.providers.prices import Prices
from prefold.providers.usage import Usage

NOW = datetime(2026, 11, 30, tzinfo=UTC)
MILLION = 1_000_000


def bill(given: str = "miss=2,hit=0.2") -> Bill:
    return Bill(CacheSpec("own", None), Prices.load(given=given, now=NOW))


def request(usage: Usage | None = None, tokens: int = 1000, model: str = "gpt-4o") -> Request:
    run = pack(range(10))
    return Request(run, 1, tokens, 0.0, Record(Blocks(run, 1, tokens), Place("log", 1), model=model, usage=usage))


def rows(hit: int, lost: int, cold: int, avoidable: int | None = None) -> list[Row]:
    found = [
        Row(Reason.HIT, "", "", hit, 1),
        Row(Reason.EXPIRED, "expired", "", lost, 1, lost if avoidable is None else avoidable),
        Row(Reason.COLD, "", "", cold, 1),
    ]
    return [row for row in found if row.tokens]


def costs(of: Bill) -> tuple[float, float, float]:
    found = of.as_json()
    assert found is not None
    return found["now"], found["possible"], found["without_cache"]


def test_as_simulated_where_nothing_was_reported() -> None:
    one = bill()
    one.add(request(), Served(600), rows(600, 300, 100))
    assert (0.00092, 0.00038, 0.002) == pytest.approx(costs(one))
    assert pytest.approx(0.00054) == one.saved


def test_as_reported_where_it_was() -> None:
    one = bill()
    one.add(request(Usage(400, 1600, is_reported=True)), Served(100), rows(800, 100, 100))
    # Twice as many tokens were billed as were counted: of 2,000, 200 need not have been computed.
    assert (0.00112, 0.00076, 0.004) == pytest.approx(costs(one))


def test_writes_are_spared_last() -> None:
    one = bill("miss=3")  # completed by Anthropic's multipliers
    usage = Usage(100, 0, 900, 900, is_reported=True)
    one.add(request(usage, model="claude-sonnet-4-5"), Served(0), rows(0, 500, 500))
    now = (100 * 3 + 900 * 3.75) / MILLION
    assert (now, now - (100 * 2.7 + 400 * 3.45) / MILLION, 3000 / MILLION) == pytest.approx(costs(one))


def test_nothing_can_be_saved_where_nothing_was_lost_without_need() -> None:
    one = bill()
    one.add(request(Usage(30, 970, is_reported=True)), Served(0), rows(970, 30, 0, avoidable=0))
    now, possible, _ = costs(one)
    assert now == possible > 0
    assert 0 == one.saved


@pytest.mark.parametrize("read", [0, 1, 500, 1000])
@pytest.mark.parametrize("write", [0, 400])
def test_what_is_possible_is_between_nothing_and_now(read: int, write: int) -> None:
    one = bill("miss=3")
    usage = Usage(1400 - read - write, read, write, is_reported=True)
    one.add(
        request(usage, model="claude-sonnet-4-5"), Served(0), rows(read * 1000 // 1400, 1000 - read * 1000 // 1400, 0)
    )
    now, possible, _ = costs(one)
    assert 0 < possible <= now


def test_rows_sum_to_the_cost_and_dear_ones_cost_more() -> None:
    one = bill()
    first, second = rows(600, 300, 100), rows(0, 0, 1000)
    one.add(request(), Served(600), first)
    one.add(request(Usage(2000, is_reported=True)), Served(0), second)
    keys = {row.key for row in (*first, *second)}
    assert pytest.approx(costs(one)[0]) == sum(one.of_row(key) or 0.0 for key in keys)
    expired = Reason.EXPIRED, "expired", ""
    assert pytest.approx(300 * 2 / MILLION) == one.of_row(expired)
    assert pytest.approx(300 * 1.8 / MILLION) == one.of_break(expired)


def test_the_reported_length_decides_on_the_price_of_long_prompts() -> None:
    pytest.importorskip("genai_prices")
    usage = Usage(250_000, is_reported=True)
    bills = [Bill(CacheSpec("own", None), Prices.load(now=NOW)) for _ in range(2)]
    bills[0].add(request(usage, model="gemini-2.5-pro"), Served(0), rows(0, 0, 1000))
    bills[1].add(request(None, tokens=250_000, model="gemini-2.5-pro"), Served(0), rows(0, 0, 250_000))
    assert pytest.approx(costs(bills[1])[0]) == costs(bills[0])[0]
    short = Bill(CacheSpec("own", None), Prices.load(now=NOW))
    short.add(request(None, tokens=100_000, model="gemini-2.5-pro"), Served(0), rows(0, 0, 100_000))
    assert costs(bills[0])[0] > 2.6 * costs(short)[0]


def test_without_prices_there_are_no_costs() -> None:
    one = Bill(CacheSpec("own", None), None)
    one.add(request(), Served(600), rows(600, 300, 100))
    assert one.as_json() is None
    assert (None, None, None) == (one.saved, one.of_computed(1), one.of_row((Reason.HIT, "", "")))
