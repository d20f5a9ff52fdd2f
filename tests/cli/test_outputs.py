"""Files that a user asked for: whole or not at all, and never in the place of what is read."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from prefold.cli.outputs import check_output, replacing, write_file
from prefold.errors import UsageError

BODY = '{"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello."}]}\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    path = tmp_path / "logs" / "requests.jsonl"
    path.write_text(BODY * 2)
    return path


def test_a_file_keeps_its_mode_and_a_link_stays_one(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    write_file(link, b"new")
    assert ("new", 0o640, True) == (file.read_text(), file.stat().st_mode & 0o777, link.is_symlink())


def test_an_interrupted_draft_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")

    def interrupted() -> None:
        with replacing(file) as draft:
            draft.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert ["file"] == [path.name for path in tmp_path.iterdir()]
    assert "old" == file.read_text()


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as threads:
        read = threads.submit(pipe.read_bytes)
        write_file(pipe, b"new")
        assert b"new" == read.result()
    assert pipe.is_fifo()


def test_a_device_is_written_to() -> None:
    device = Path(os.devnull)
    before = device.stat()
    write_file(device, b"new")
    assert (before.st_ino, before.st_mode) == (device.stat().st_ino, device.stat().st_mode)


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="there are no names for open files")
def test_standard_output_by_its_name() -> None:
    read, write = os.pipe()
    write_file(Path(f"/dev/fd/{write}"), b"new")
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert b"new" == pipe.read()


def test_a_pipe_that_nobody_reads_any_more() -> None:
    """It is no wrong path: `main` ends as with any broken pipe."""
    read, write = os.pipe()
    os.close(read)
    try:
        with pytest.raises(BrokenPipeError):
            write_file(Path(f"/dev/fd/{write}"), b"new")
    finally:
        os.close(write)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        write_file(tmp_path, b"new")
    with pytest.raises(UsageError, match="no such folder"):
        check_output(tmp_path / "none" / "file", [])


@pytest.mark.parametrize("of", ["itself", "link", "hard link", "its folder", "another folder"])
def test_a_log_that_is_read(log: Path, tmp_path: Path, of: str) -> None:
    output, source = log, log
    if of == "link":
        output = tmp_path / "link"
        output.symlink_to(log)
    elif of == "hard link":
        output = tmp_path / "link"
        output.hardlink_to(log)
    elif of == "its folder":
        source = log.parent
    elif of == "another folder":
        source = tmp_path
    with pytest.raises(UsageError, match="is one of the logs that are read"):
        check_output(output, ["other.jsonl", str(source)])
    assert BODY * 2 == log.read_text()


def test_standard_input_that_is_the_file(log: Path) -> None:
    before = os.dup(0)
    try:
        with log.open() as stream:
            os.dup2(stream.fileno(), 0)
            with pytest.raises(UsageError, match="is one of the logs"):
                check_output(log, ["-"])
            check_output(log.parent / "new", ["-"])
    finally:
        os.dup2(before, 0)
        os.close(before)


def test_what_is_no_log_may_be_replaced_in_a_folder_that_is_read(log: Path) -> None:
    page = log.parent / "report.html"
    check_output(page, [str(log.parent)])
    page.write_text("<!doctype html><title>A report</title>")
    check_output(page, [str(log.parent)])
    check_output(log, [str(log.parent / "other")])
