"""Sessions side by side."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.analysis.interleave import interleave
from prefold.analysis.record import Blocks, Place, Record
from prefold.errors import UsageError


def session(name: str, *times: float | None, duration: float | None = None) -> list[Record]:
    return [
        Record(Blocks(b"", 1, 0), Place(name, line), time=time, session=name, duration=duration)
        for line, time in enumerate(times, start=1)
    ]


def shown(records: Iterator[Record]) -> list[tuple[str, float | None]]:
    return [(str(record.place), record.time) for record in records]


def test_one_starts_when_another_ends() -> None:
    log = [*session("a", 0, 10, 20), *session("b", 5, 17), *session("c", 0, 1), *session("d", 0)]
    assert [
        ("a:1", 0),
        ("b:1", 0),
        ("a:2", 10),
        ("b:2", 12),
        ("c:1", 12),
        ("c:2", 13),
        ("d:1", 13),
        ("a:3", 20),
    ] == shown(interleave(log, 2))


def test_the_last_answer_belongs_to_a_session() -> None:
    log = [*session("a", 0, 10, duration=4.5), *session("b", 0)]
    assert [("a:1", 0), ("a:2", 10), ("b:1", 14.5)] == shown(interleave(log, 1))


def test_a_clock_that_runs_backwards_stands_still() -> None:
    assert [("a:1", 0), ("a:2", 4), ("a:3", 4)] == shown(interleave(session("a", 5, 9, 7), 3))


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6).map(sorted), max_size=8),
    st.integers(1, 4),
)
def test_all_records_come_once_in_order_of_time_and_no_more_run_at_a_time(
    sessions: list[list[int]], concurrent: int
) -> None:
    log = [record for number, times in enumerate(sessions) for record in session(f"s{number}", *times)]
    mixed = list(interleave(log, concurrent))
    times = [record.time for record in mixed if record.time is not None]
    assert len(log) == len(times)
    assert sorted(times) == times
    assert {str(record.place) for record in log} == {str(record.place) for record in mixed}
    spans = [
        (min(own), max(own))
        for number in range(len(sessions))
        for own in [[record.time or 0.0 for record in mixed if record.session == f"s{number}"]]
    ]
    for start, _ in spans:
        assert concurrent >= sum(other[0] <= start < other[1] for other in spans)
    assert mixed == list(interleave(log, concurrent))


def test_only_running_sessions_are_read() -> None:
    read: list[str] = []

    def log() -> Iterator[Record]:
        for number in range(100):
            for record in session(f"s{number}", 0, 1):
                read.append(record.session)
                yield record

    mixed = interleave(log(), 3)
    next(mixed)
    assert {"s0", "s1", "s2", "s3"} == set(read)  # the first record of the fourth ends the third


@pytest.mark.parametrize(
    ("log", "message"),
    [(session("a", None), r"a:1 has no time\."), (session("", 1), r":1 has no session\.")],
)
def test_what_has_no_session_or_time_is_refused(log: list[Record], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list(interleave(log, 1))
    with pytest.raises(UsageError, match="0 sessions cannot run"):
        interleave(log, 0)
