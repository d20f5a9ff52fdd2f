"""A log that grows, with a real file: what is done to it while the reader waits."""

import io
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.analysis.follow.tail import Piped, Tail
from prefold.errors import UsageError


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "requests.jsonl"
    file.write_bytes(b"old 1\nold 2\n")
    return file


def append(file: Path, content: bytes) -> None:
    with file.open("ab") as stream:
        stream.write(content)


def read(
    file: Path, *steps: Callable[[], object], from_start: bool = False, limit: int = -1
) -> tuple[list[bytes], dict[str, int]]:
    """All lines, while one step is done each time the reader waits."""
    to_do = list(steps)

    def wait() -> bool:
        if not to_do:
            return False
        to_do.pop(0)()
        return True

    events: Counter[str] = Counter()
    with io.BufferedReader(
        Tail(file, wait=wait, from_start=from_start, on_restart=lambda event: events.update([event]))
    ) as tail:
        lines = list(iter(lambda: tail.readline(limit), b""))
        assert b"" == tail.readline()
    assert [] == to_do
    return lines, dict(events)


def test_what_is_there_already(log: Path) -> None:
    assert ([b"old 1\n", b"old 2\n"], {}) == read(log, from_start=True)
    assert ([], {}) == read(log)


def test_new_lines(log: Path) -> None:
    lines, events = read(log, lambda: append(log, b"new 1\n"), lambda: None, lambda: append(log, b"new 2\nnew 3\n"))
    assert ([b"new 1\n", b"new 2\n", b"new 3\n"], {}) == (lines, events)


def test_a_line_that_comes_in_pieces(log: Path) -> None:
    pieces = [lambda piece=piece: append(log, piece) for piece in (b"ne", b"w ", b"1", b"\nnew", b" 2\n")]
    assert [b"new 1\n", b"new 2\n"] == read(log, *pieces)[0]


def test_half_a_last_line_is_given_when_waiting_is_given_up(log: Path) -> None:
    assert [b"new 1\n", b"hal"] == read(log, lambda: append(log, b"new 1\nhal"), lambda: None)[0]


def test_half_a_line_that_was_there_is_given_as_a_whole(log: Path) -> None:
    append(log, b"hal")
    assert [b"half\n"] == read(log, lambda: append(log, b"f\n"))[0]


def test_rotation(log: Path) -> None:
    moved = log.with_suffix(".1")
    lines, events = read(
        log,
        lambda: append(log, b"new 1\n"),
        lambda: log.rename(moved),
        lambda: append(moved, b"late\nha"),
        lambda: append(log, b"next 1\n"),
        lambda: append(log, b"next 2\n"),
    )
    assert [b"new 1\n", b"late\n", b"ha\n", b"next 1\n", b"next 2\n"] == lines
    assert {"rotated": 1} == events


def test_rotation_by_another_file_in_its_place(log: Path) -> None:
    def replace() -> None:
        other = log.with_suffix(".new")
        other.write_bytes(b"next 1\n")
        append(log, b"last\n")
        other.replace(log)

    assert ([b"last\n", b"next 1\n"], {"rotated": 1}) == read(log, replace)


def test_truncation(log: Path) -> None:
    lines, events = read(log, lambda: append(log, b"ha"), lambda: log.write_bytes(b""), lambda: append(log, b"new\n"))
    assert ([b"new\n"], {"truncated": 1}) == (lines, events)


def test_truncation_and_more_than_there_was(log: Path) -> None:
    """The size alone does not tell it."""
    lines, events = read(log, lambda: log.write_bytes(b"new 1\nnew 2\nnew 3\n"), from_start=False)
    assert ([b"new 1\n", b"new 2\n", b"new 3\n"], {"truncated": 1}) == (lines, events)


def test_a_file_that_was_empty(tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    file.touch()
    assert ([b"a\n", b"b\n"], {}) == read(file, lambda: append(file, b"a\n"), lambda: append(file, b"b\n"))


def test_long_lines_come_in_pieces(log: Path) -> None:
    assert [b"1234", b"56\n", b"7\n"] == read(log, lambda: append(log, b"123456\n7\n"), limit=4)[0]


def test_a_line_longer_than_the_buffer(log: Path) -> None:
    line = b"x" * 700_000 + b"\n"
    assert [line] == read(log, lambda: append(log, line[:400_000]), lambda: append(log, line[400_000:]))[0]


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not there"):
        Tail(tmp_path / "none", wait=lambda: False)
    with pytest.raises(UsageError, match="is no file"):
        Tail(tmp_path, wait=lambda: False)


def test_a_pipe_gives_line_by_line() -> None:
    with io.BufferedReader(Piped(io.BytesIO(b"first\nsecond\nhal")), 64) as lines:
        assert b"first\n" == lines.peek()
        assert [b"first\n", b"second\n", b"hal"] == list(lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return tmp_path_factory.mktemp("tails")


@given(st.lists(st.binary(max_size=12), max_size=12))
def test_no_byte_is_lost_or_read_twice(folder: Path, pieces: list[bytes]) -> None:
    file = folder / "log"
    file.unlink(missing_ok=True)
    file.touch()
    lines, events = read(file, *(lambda piece=piece: append(file, piece) for piece in pieces))
    assert b"".join(pieces) == b"".join(lines)
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines[:-1])
    assert {} == events
