"""Files, folders, streams, compression, and lines of any length."""

import gzip
import io
import json
import os
import sys
import threading
import tracemalloc

import pytest
import zstandard

from prefold.analysis.logs import reader as reader_module
from prefold.analysis.logs.log import Progress, open_log
from prefold.analysis.logs.reader import Head, Source
from prefold.errors import InvalidRequest, MissingExtra, UsageError


def body(text, **more):
    return {"model": "gpt-4o", "messages": [{"role": "user", "content": text}], **more}


def lines_of(*values):
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def texts(log):
    return [record.content.prompt.segments[-1].text for record in log]


TWO = lines_of(body("one"), body("two"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.jsonl", TWO),
        ("log.jsonl.gz", gzip.compress(TWO)),
        ("members.gz", gzip.compress(lines_of(body("one"))) + gzip.compress(lines_of(body("two")))),
        ("log.zst", zstandard.compress(TWO)),
        (
            "frames.zst",
            zstandard.compress(lines_of(body("one"))) + zstandard.compress(lines_of(body("two"))),
        ),
        ("misnamed.txt", gzip.compress(TWO)),
        ("mark.jsonl", b"\xef\xbb\xbf" + TWO),
        ("crlf.jsonl", TWO.replace(b"\n", b"\r\n")),
        ("blank.jsonl", b"\n\n" + TWO.replace(b"\n", b"\n  \n")),
        ("list.json", json.dumps([body("one"), body("two")], indent=2).encode()),
        ("unended.jsonl", TWO.rstrip()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_same_records_however_they_are_stored(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    log = open_log([str(tmp_path / name)])
    assert ["one", "two"] == texts(log)
    assert ["one", "two"] == texts(log)  # once more
    assert 2 == log.notes.records


def test_a_single_body_that_spans_lines(tmp_path):
    (tmp_path / "body.json").write_text(json.dumps(body("alone"), indent=2))
    assert ["alone"] == texts(open_log([str(tmp_path / "body.json")]))


def test_a_folder_is_read_sorted_and_without_what_is_no_log(tmp_path):
    (tmp_path / "b.jsonl").write_bytes(lines_of(body("b")))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "deep.jsonl").write_bytes(lines_of(body("a")))
    (tmp_path / ".hidden.jsonl").write_bytes(lines_of(body("hidden")))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.jsonl").write_bytes(lines_of(body("hidden")))
    (tmp_path / "README.md").write_text("# No log\n")
    (tmp_path / "empty.jsonl").write_text("")
    assert ["a", "b"] == texts(open_log([str(tmp_path)]))


def test_files_are_merged_by_time(tmp_path):
    for name, times in (("late", [3, 6]), ("early", [1, 4, 5]), ("none", [None])):
        rows = [{"time": time, "body": body(f"{name} {time}")} for time in times]
        (tmp_path / name).write_bytes(lines_of(*rows))
    log = open_log([str(tmp_path)])
    assert ["early 1", "late 3", "early 4", "early 5", "late 6", "none None"] == texts(log)
    assert 0 == log.notes.problems["clock_backwards"]
    assert 1 == log.notes.problems["missing_time"]


def test_standard_input_can_be_read_twice(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(TWO))))
    log = open_log(["-"])
    assert ["one", "two"] == texts(log)
    assert ["one", "two"] == texts(log)
    copy = log._files.files[0].path
    assert copy.exists()
    log.close()
    assert not copy.exists()


def test_a_pipe_can_be_read_twice(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(TWO,))
    writer.start()
    log = open_log([str(pipe)])
    writer.join()
    assert ["one", "two"] == texts(log)
    assert ["one", "two"] == texts(log)
    log.close()


def test_what_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"There is no file .*gone\.jsonl"):
        open_log([str(tmp_path / "gone.jsonl")])
    with pytest.raises(UsageError, match="holds no file"):
        open_log([str(tmp_path)])
    with pytest.raises(UsageError, match="no log to read"):
        open_log([])
    with pytest.raises(UsageError, match="no file"):
        open_log(["a\0b"])
    with pytest.raises(UsageError, match="no log format 'nonsense'"):
        open_log([str(tmp_path)], log_format="nonsense")
    (tmp_path / "notes.txt").write_text("nothing here\n")
    with pytest.raises(UsageError, match="The folder holds no log"):
        list(open_log([str(tmp_path)]))
    with pytest.raises(UsageError, match=r"notes\.txt is in no known log format"):
        list(open_log([str(tmp_path / "notes.txt")]))
    (tmp_path / "garbage").write_bytes(bytes(range(256)) * 10)
    with pytest.raises(UsageError, match="garbage is in no known log format"):
        list(open_log([str(tmp_path / "garbage")], lenient=True))


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_file_that_must_not_be_read(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(TWO)
    path.chmod(0)
    with pytest.raises(UsageError, match="Permission denied"):
        list(open_log([str(path)]))


def test_a_file_that_goes_away(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(TWO)
    log = open_log([str(path)])
    path.unlink()
    with pytest.raises(UsageError, match="No such file"):
        list(log)


def test_an_empty_file_is_an_empty_log(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    log = open_log([str(tmp_path / "empty.jsonl")])
    assert [] == list(log)
    assert 0 == log.notes.records


def problems(log):
    return {name: number for name, number in log.notes.problems.items() if not name.startswith("missing")}


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_a_packed_file_that_is_cut_off(tmp_path, pack):
    path = tmp_path / "log.packed"
    packed = pack(lines_of(*(body(os.urandom(30_000).hex()) for _ in range(20))))
    path.write_bytes(packed[: len(packed) * 2 // 3])
    log = open_log([str(path)], lenient=True)
    assert 0 < len(list(log)) < 20
    assert {"bad_line": 1} == problems(log)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
@pytest.mark.parametrize("cut", [1, 3, 5, 100])
def test_however_little_is_missing(tmp_path, pack, cut):
    path = tmp_path / "log.packed"
    path.write_bytes(pack(lines_of(body("one"))) + pack(lines_of(body(os.urandom(500).hex())))[:-cut])
    with pytest.raises(InvalidRequest, match="ends too early"):
        list(open_log([str(path)]))
    log = open_log([str(path)], lenient=True)
    assert "one" == texts(log)[0]
    assert {"bad_line": 1} == problems(log)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_what_was_unpacked_before_the_damage_is_read(tmp_path, pack):
    path = tmp_path / "log.packed"
    whole = pack(lines_of(*(body(str(number)) for number in range(1000))))
    path.write_bytes(whole + whole[:6] + b"\xff" * 50)
    log = open_log([str(path)], lenient=True)
    assert 1000 == len(list(log))
    assert {"bad_line": 1} == problems(log)


def test_zeros_packed_to_nearly_nothing_take_little_memory(tmp_path):
    path = tmp_path / "bomb.zst"
    path.write_bytes(zstandard.compress(bytes(512 * 1024**2)))
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="no known log format"):
            list(open_log([str(path)]))
        assert 64 * 1024**2 > tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_damaged_packed_file_stops(tmp_path):
    path = tmp_path / "log.gz"
    packed = gzip.compress(TWO)
    path.write_bytes(packed[:-3])
    with pytest.raises(InvalidRequest, match=r"log\.gz:\d+: The file cannot be unpacked: it ends too early"):
        list(open_log([str(path)]))
    path = tmp_path / "log.zst"
    packed = bytearray(zstandard.compress(b"".join(os.urandom(500) for _ in range(900))))
    packed[-2000:-1000] = bytes(1000)
    path.write_bytes(packed)
    with pytest.raises((InvalidRequest, UsageError)):
        list(open_log([str(path)]))


def test_zstd_without_its_package(tmp_path, monkeypatch):
    path = tmp_path / "log.zst"
    path.write_bytes(zstandard.compress(TWO))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    with pytest.raises(MissingExtra, match="zstandard"):
        list(open_log([str(path)]))


def test_a_line_of_100_megabytes_is_left_out(tmp_path):
    path = tmp_path / "bomb.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(lines_of(body("one")) + b'{"messages": "')
        for _ in range(100):
            file.write(b"a" * 1024**2)
        file.write(b'"}\n' + lines_of(body("two")))
    log = open_log([str(path)], lenient=True)
    assert ["one", "two"] == texts(log)
    assert 1 == log.notes.problems["oversized_line"]
    assert ["2"] == [str(place).rpartition(":")[2] for place in log.notes.skipped_places]
    with pytest.raises(InvalidRequest, match=r"bomb\.jsonl\.gz:2: The line is longer than 32 MiB"):
        list(open_log([str(path)]))


def test_too_long_lines_and_items_are_never_held(monkeypatch):
    monkeypatch.setattr(reader_module, "LONGEST_LINE", 100)
    monkeypatch.setattr(reader_module, "_PIECE", 16)
    bad = []
    source = Source("f", io.BytesIO(b"short\n" + b"x" * 101 + b"\n" + b"y" * 99 + b"\nlast"), on_bad=bad.append)
    assert [(1, b"short"), (3, b"y" * 99), (4, b"last")] == list(source.lines())
    assert 4 == source.unfinished
    assert ["f:2"] == [str(line.place) for line in bad]
    bad.clear()
    content = json.dumps(["a", "b" * 200, {"c": [1, {"d": '"]'}]}]).encode()
    source = Source("f", io.BytesIO(content), on_bad=bad.append)
    assert [(1, b'"a"'), (3, b'{"c": [1, {"d": "\\"]"}]}')] == list(source.items())
    assert ["f:2"] == [str(line.place) for line in bad]


@pytest.mark.parametrize("piece", range(1, 40))
def test_items_of_a_list_wherever_its_pieces_end(monkeypatch, piece):
    items = [{"a": 'x,]"\\'}, [1, [2]], 's,\\"]', 3, None, {"b": {"c": [{}]}}, ""]
    monkeypatch.setattr(reader_module, "_PIECE", piece)
    source = Source("f", io.BytesIO((" " + json.dumps(items, indent=1) + " tail").encode()))
    assert items == [json.loads(item) for _, item in source.items()]


def test_a_list_that_ends_too_early():
    source = Source("f", io.BytesIO(b'[{"a": 1}, {"b"'))
    with pytest.raises(InvalidRequest, match="middle of item 2"):
        list(source.items())


def test_a_whole_file_has_a_limit(monkeypatch):
    monkeypatch.setattr(reader_module, "LARGEST_WHOLE", 10)
    with pytest.raises(InvalidRequest, match="one JSON value of more than"):
        Source("f", io.BytesIO(b"{" + b" " * 20 + b"}")).whole()


def test_a_head_longer_than_it_is_kept():
    items = [{"messages": ["x" * 200_000]}, {"b": "y" * 200_000}]
    head = Head.of("f", json.dumps(items).encode())
    assert head.first is None
    assert items[:1] == list(head.objects)


def test_progress_counts_stored_bytes(tmp_path):
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress(lines_of(*(body(str(number)) for number in range(600)))))
    seen = []
    log = open_log([str(path)], on_progress=seen.append)
    list(log)
    size = path.stat().st_size
    assert [256, 512, 600] == [progress.records for progress in seen]
    assert size == seen[-1].done == seen[-1].total
    assert all(0 <= progress.done <= size for progress in seen)


def test_rate():
    assert 50.0 == Progress(done=25, total=100, records=100, seconds=2.0).rate
    assert 0.0 == Progress(done=0, total=100, records=0, seconds=0.0).rate
