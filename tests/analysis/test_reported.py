"""What a provider reported is what counts; what was simulated explains it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.analysis.caches.base import Loss, Reason, Served
from prefold.analysis.record import Blocks, Place, Record
from prefold.analysis.reported import Reported, fitted, reported_usage
from prefold.analysis.request import Request
from prefold.core.tokens import pack
from prefold.providers.usage import Usage


def request(tokens: int, usage: Usage | None) -> Request:
    run = pack(range(tokens))
    return Request(run, 1, tokens, 0.0, Record(Blocks(run, 1, tokens), Place("log", 1), usage=usage))


def reported(uncached: int, read: int, write: int = 0) -> Usage:
    return Usage(uncached, read, write, is_reported=True)


EXPIRED = Loss(Reason.EXPIRED, 900)


@pytest.mark.parametrize(
    ("usage", "hit", "lost"),
    [
        (None, 800, (EXPIRED,)),
        (Usage(1000), 800, (EXPIRED,)),
        (reported(200, 800), 800, (EXPIRED,)),
        (reported(700, 300), 300, (Loss(Reason.NOT_KEPT, 800), EXPIRED)),
        (reported(0, 0, 1000), 0, (Loss(Reason.NOT_KEPT, 800), EXPIRED)),
        (reported(100, 950), 904, (EXPIRED,)),
        (reported(1000, 1000), 500, (Loss(Reason.NOT_KEPT, 800), EXPIRED)),  # of the input, half was read
        (reported(0, 0), 800, (EXPIRED,)),  # nothing is no input
        (reported(-500, 800), 800, (EXPIRED,)),  # more was read than sent
    ],
)
def test_the_hit_is_the_reported_one(usage: Usage | None, hit: int, lost: tuple[Loss, ...]) -> None:
    served = fitted(request(1000, usage), Served(800, {300: 100}, (EXPIRED,), Reason.BREAKPOINT))
    assert Served(hit, {300: 100}, lost, Reason.BREAKPOINT) == served


@given(st.integers(0, 50), st.integers(0, 60), st.integers(-5, 100), st.integers(-5, 100), st.integers(-5, 100))
def test_a_hit_lies_within_the_prompt(tokens: int, simulated: int, uncached: int, read: int, write: int) -> None:
    one = request(tokens, reported(uncached, read, write))
    served = fitted(one, Served(simulated))
    if reported_usage(one) is None:
        assert Served(simulated) == served
    else:
        assert 0 <= served.hit <= tokens
        assert (served.hit == tokens) >= (read > 0 and uncached == write == 0)


def test_the_sums_stand_beside_what_was_simulated() -> None:
    usages = (reported(300, 0), reported(100, 200), Usage(300), None, reported(-1, 5))
    sums = Reported()
    for usage in usages:
        sums = sums.plus(request(250, usage), Served(150))
    assert Reported(2, 600, 200, 500, 300) == sums
    assert -100 == sums.difference_tokens
