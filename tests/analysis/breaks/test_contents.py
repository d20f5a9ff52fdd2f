"""Content that returns behind another beginning is found: in its own scope, while it is remembered."""

from __future__ import annotations

import random
from itertools import accumulate

from prefold.analysis.breaks.contents import Contents, Repeats, Stretch
from prefold.analysis.breaks.recent import Turn
from prefold.analysis.record import Body, Place, Record
from prefold.analysis.request import Request
from prefold.core.tokens import pack


def request(*segments: list[int], model: str = "m", salt: str | None = None) -> Request:
    ids = [each for segment in segments for each in segment]
    ends = tuple(accumulate(map(len, segments)))
    return Request(pack(ids), 1, len(ids), 0.0, Record(Body(b"{}"), Place("log", 1), model=model), ends, salt=salt)


def prose(seed: int, count: int = 200) -> list[int]:
    """Ids, one in eight of which is a full stop."""
    rng = random.Random(seed)
    return [rng.choice((13, *(rng.randrange(1000, 60_000) for _ in range(7)))) for _ in range(count)]


def visited(contents: Contents, new: Request, conversation: int) -> Repeats:
    return contents.visit(new, 0, 0, Turn(conversation))


def test_a_segment_is_found_as_a_whole_and_in_pieces() -> None:
    contents, text = Contents(), prose(1)
    assert Repeats() == visited(contents, request(prose(2), text), 1)
    assert Repeats([Stretch(50, 250)], {1: 200}) == visited(contents, request(prose(3, 50), text), 2)
    found = visited(contents, request(prose(4, 20) + text[100:]), 3)
    (stretch,) = found.stretches
    assert (120, {1: stretch.stop - stretch.start}) == (stretch.stop, found.votes)
    assert 20 <= stretch.start < 50


def test_what_ends_a_beginning_names_its_sender() -> None:
    contents, new = Contents(), request(prose(1), prose(2))
    assert contents.sender(new, 400) is None
    visited(contents, new, 7)
    assert 7 == contents.sender(new, 400)
    assert 7 == contents.sender(request(prose(1), prose(2), prose(3)), 410)
    assert 7 == contents.sender(request(prose(1) + prose(5)), 200)


def test_scopes_share_nothing() -> None:
    contents, text = Contents(), prose(1)
    visited(contents, request(text), 1)
    for other in (request(text, model="other"), request(text, salt="x")):
        assert contents.sender(other, 200) is None
        assert Repeats() == visited(contents, other, 2)
    assert 1 == contents.sender(request(text), 200)


def test_what_was_sent_least_recently_is_forgotten() -> None:
    contents, text = Contents(), request(prose(1))
    visited(contents, text, 1)
    for number in range(2, 6):  # any two of which fill a generation
        assert 1 == contents.sender(text, 200)
        first = number * 70_000
        visited(contents, request([each for n in range(first, first + 70_000) for each in (n, 13)]), number)
    assert 1 != contents.sender(text, 200)
