"""What is kept of earlier requests is bounded."""

from __future__ import annotations

from prefold.analysis.breaks.recent import Recent
from prefold.analysis.record import Body, Place, Record
from prefold.analysis.request import Request
from prefold.core.tokens import pack


def request(size: int) -> Request:
    """A request with a body of some bytes."""
    return Request(pack([1, 2]), 1, 2, 0.0, Record(Body(b"x" * size), Place("log", 1)), (2,))


def test_bodies_that_are_kept_are_bounded() -> None:
    recent = Recent(capacity=8_000)
    for _ in range(100):
        recent.put(recent.turn(request(1_100), 0, None).conversation, request(1_100))
    kept = [recent.get(number) for number in range(101)]
    assert 8_000 >= sum(len(earlier.content) for earlier in kept if earlier) > 4_000
    latest = recent.get(100)
    assert latest is not None
    assert Body(b"x" * 1_100) == latest.body


def test_a_body_that_is_too_long_is_not_kept() -> None:
    recent = Recent(capacity=8_000)
    recent.put(1, request(1_100))
    recent.put(1, request(2_001))
    latest = recent.get(1)
    assert latest is not None
    assert latest.body is None
