"""Events, cut anywhere and written in every way that the standard allows."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.gateway.translate import sse
from prefold.gateway.translate.sse import Event, EventReader, EventTooLong

STREAM = (
    b'\xef\xbb\xbf: hello\nevent: a\ndata: {"x":\ndata:1}\nid: 7\n\nretry: 5\n\n'
    b"data:  two\nevent: b\n\n\ndata\n\ndata: last\n\n"
)
EVENTS = [Event("a", b'{"x":\n1}'), Event("b", b" two"), Event("", b"last")]


@given(st.sets(st.integers(0, len(STREAM))), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_cuts_and_line_ends_change_nothing(cuts, newline):
    stream = STREAM.replace(b"\n", newline)
    reader = EventReader()
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    events = [event for start, stop in pairwise(edges) for event in reader.feed(stream[start:stop])]
    assert EVENTS == events + reader.end()


def test_each_byte_on_its_own():
    stream = STREAM.replace(b"\n", b"\r\n")
    reader = EventReader()
    assert EVENTS == [event for byte in stream for event in reader.feed(bytes([byte]))]


@pytest.mark.parametrize("rest", [b"data: x", b"data: x\n", b"event: n\ndata: x\n"])
def test_an_event_without_its_empty_line_counts_at_the_end(rest):
    reader = EventReader()
    assert [] == reader.feed(rest)
    assert [b"x"] == [event.data for event in reader.end()]


def test_an_event_without_an_end(monkeypatch):
    monkeypatch.setattr(sse, "LONGEST_EVENT", 1000)
    reader = EventReader()
    for _ in range(50):
        assert 1 == len(reader.feed(b"data: " + b"x" * 900 + b"\n\n"))
    reader.feed(b"data: " + b"x" * 900)
    with pytest.raises(EventTooLong):
        reader.feed(b"x" * 900)
