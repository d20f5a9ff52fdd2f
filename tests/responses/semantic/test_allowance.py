"""Each name has its own bucket, which fills with time."""

from __future__ import annotations

from prefold.responses.semantic.allowance import Allowance


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_then_what_comes_back() -> None:
    clock = Clock()
    allowance = Allowance(60, 2, clock)
    assert [allowance.take("a") for _ in range(3)] == [True, True, False]
    clock.now += 1.0
    assert [allowance.take("a") for _ in range(2)] == [True, False]


def test_no_more_gathers_than_the_burst() -> None:
    clock = Clock()
    allowance = Allowance(60, 2, clock)
    allowance.take("a")
    clock.now += 3_600
    assert [allowance.take("a") for _ in range(3)] == [True, True, False]


def test_names_do_not_take_from_each_other() -> None:
    allowance = Allowance(0, 1, Clock())
    assert [allowance.take("a"), allowance.take("b"), allowance.take("a")] == [True, True, False]


def test_a_clock_that_goes_back_gives_nothing() -> None:
    clock = Clock()
    allowance = Allowance(60, 1, clock)
    assert allowance.take("a")
    clock.now -= 50
    assert not allowance.take("a")


def test_names_are_bounded() -> None:
    allowance = Allowance(0, 1, Clock(), names=2)
    assert allowance.take("a")
    assert allowance.take("b")
    assert allowance.take("c")  # and "a" is forgotten
    assert allowance.take("a")
    assert not allowance.take("c")
