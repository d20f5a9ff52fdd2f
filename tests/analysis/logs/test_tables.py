"""CSV and Parquet with named columns."""

import gzip
import io
import json
import sys

import pyarrow as pa
import pytest
from pyarrow import parquet

from prefold.analysis.logs.formats import recognise
from prefold.analysis.logs.log import open_log
from prefold.analysis.logs.reader import BadLine, Head, Source
from prefold.analysis.logs.tables import COLUMNS
from prefold.core.tokens import unpack
from prefold.errors import InvalidRequest, MissingExtra
from prefold.providers.usage import Usage

MESSAGES = [{"role": "system", "content": "S"}, {"role": "user", "content": "two\nlines"}]


def read_csv(text, expected="csv"):
    content = text.encode()
    reader = recognise(Head.of("log.csv", content))
    assert expected == reader.name
    return list(reader.read(Source("log.csv", io.BytesIO(content))))


def told(record):
    return [(segment.role, segment.text) for segment in record.content.prompt.segments]


def quoted(value):
    return '"' + (value if isinstance(value, str) else json.dumps(value)).replace('"', '""') + '"'


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_columns_by_name(delimiter):
    header = ["Time Stamp", "MODEL", "user-id", "sessionId", "Messages", "input_tokens", "cached_tokens"]
    header += ["Output Tokens", "latency_ms", "response", "finish_reason", "request_id", "other"]
    row = ["2026-01-02T03:04:05Z", "gpt-4o", "ann", "s1", quoted(MESSAGES), "50", "32", "9", "1500", "Yes", "stop", "r"]
    record, _second = read_csv(
        delimiter.join(header) + "\n" + delimiter.join([*row, ""]) + "\n" + delimiter.join(row).replace("r", "q") + "\n"
    )
    assert [("system", "S"), ("user", "two\nlines")] == told(record)
    assert (1767323045.0, "gpt-4o", "ann", "s1", 1.5) == (
        *(record.time, record.model, record.tenant, record.session, record.duration),
    )
    assert Usage(uncached=18, read=32, output=9, is_reported=True) == record.usage
    assert ("Yes", "stop", "r", 9) == (record.answer, record.stop, record.request_id, record.output_tokens)
    assert "log.csv:2" == str(record.place)


def test_a_rows_place_is_where_it_begins():
    first, second = read_csv('prompt,model\n"one\ntwo\nthree",m\nfour,m\n')
    assert ([("", "one\ntwo\nthree")], [("", "four")]) == (told(first), told(second))
    assert (2, 5) == (first.place.line, second.place.line)


def test_system_and_prompt_are_two_messages():
    (record,) = read_csv("system,prompt,model,tools\nS,U,gpt-4o," + quoted([{"function": {"name": "f"}}]) + "\n")
    assert [("system", "S"), ("user", "U")] == told(record)[1:]
    assert "gpt-4o" == record.model


def test_a_body_names_its_model():
    (record,) = read_csv("body,time\n" + quoted({"model": "gpt-4o", "messages": MESSAGES}) + ",1\n")
    assert "gpt-4o" == record.model


@pytest.mark.parametrize(
    ("header", "row", "usage"),
    [
        (
            "input_tokens,cache_read_input_tokens,cache_creation_input_tokens",
            "5,90,7",
            Usage(5, 90, 7, is_reported=True),
        ),
        ("prompt_tokens,completion_tokens", "100,3", Usage(100, output=3)),
        ("prompt_tokens,completion_tokens,cached_tokens", "100,3,", Usage(100, output=3)),
        ("usage", quoted({"prompt_tokens": 9, "cached_tokens": 4}), Usage(5, 4, is_reported=True)),
        ("prompt_tokens", "100", None),
    ],
)
def test_usage_of_a_row(header, row, usage):
    (record,) = read_csv(f"prompt,{header}\nx,{row}\n")
    assert usage == record.usage


def test_ids_of_blocks_and_tokens():
    (record,) = read_csv('timestamp,input_length,output_length,hash_ids\n1,1100,5,"[7, 8, 9]"\n')
    assert [7, 8] == unpack(record.content.run)  # the third block is not full
    assert (512, 1100, 5) == (record.content.block_tokens, record.content.tokens, record.output_tokens)
    (record,) = read_csv("block_ids,block_size,model\n3 4 5,16,m\n")
    assert ([3, 4, 5], 16, 48) == (*(unpack(record.content.run), record.content.block_tokens, record.content.tokens),)
    (record,) = read_csv("prompt_token_ids;model\n[1, 2];m\n")
    assert ([1, 2], 1) == (unpack(record.content.run), record.content.block_tokens)


def test_long_ids_are_hashed_alike():
    first, second = read_csv('hash_ids,model\n"[18446744073709551615, 5]",m\n"18446744073709551615;5",m\n')
    assert first.content.run == second.content.run
    assert 5 == unpack(first.content.run)[1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("prompt,model\n,m\n", "holds no prompt"),
        ('hash_ids,model\n"{""a"": 1}",m\n', None),
        ("prompt_token_ids,model\n[1,m\n", "not valid JSON"),
    ],
)
def test_rows_that_hold_no_prompt(text, problem):
    (item,) = read_csv(text)
    if problem:
        assert isinstance(item, BadLine)
        assert problem in item.problem


@pytest.mark.parametrize("tail", [b'"never closed,m\n', b"x\xff,m\n", b'"a"b,m\n'])
def test_a_broken_table_ends_the_file(tmp_path, tail):
    path = tmp_path / "log.csv"
    path.write_bytes(b"prompt,model\nfine,m\n" + tail)
    log = open_log([str(path)], lenient=True)
    assert 1 == len(list(log))
    assert 1 == log.notes.skipped
    with pytest.raises(InvalidRequest, match=r"log\.csv:\d"):
        list(open_log([str(path)]))


def test_a_table_without_prompts_is_no_log():
    for text in ("a,b\n1,2\n", "model,time\nm,1\n", "prompt\nx\n", "prompt,prompt\nx,y\n"):
        assert recognise(Head.of("x.csv", text.encode())) is None


def test_a_meaning_has_no_column_of_another():
    columns = [column for names in COLUMNS.values() for column in names]
    assert len(columns) == len(set(columns))


def write_parquet(path, **columns):
    parquet.write_table(pa.table(columns), path, row_group_size=2)


def test_parquet(tmp_path):
    path = tmp_path / "log.parquet"
    write_parquet(
        path,
        Timestamp=pa.array([1767323045000, 1767323046000, None], pa.timestamp("ms")),
        messages=[MESSAGES, [{"role": "user", "content": "U"}], None],
        model=["gpt-4o", "gpt-4o", "gpt-4o"],
        input_tokens=[50, 20, None],
        cached_tokens=[32, None, None],
        unknown=[object.__name__] * 3,
    )
    log = open_log([str(path)], lenient=True)
    first, second = log
    assert [("system", "S"), ("user", "two\nlines")] == told(first)
    assert (1767323045.0, 1767323046.0) == (first.time, second.time)
    assert Usage(18, 32, is_reported=True) == first.usage
    assert {"parquet": 2} == dict(log.notes.formats)
    assert [3] == [place.line for place in log.notes.skipped_places]


def test_parquet_of_ids_within_gzip(tmp_path):
    write_parquet(tmp_path / "x", hash_ids=[[1, 2], [1, 3]], input_length=[1024, 1024])
    (tmp_path / "x.gz").write_bytes(gzip.compress((tmp_path / "x").read_bytes()))
    log = open_log([str(tmp_path / "x.gz")])
    assert [[1, 2], [1, 3]] == [unpack(record.content.run) for record in log]


def test_damaged_parquet(tmp_path):
    path = tmp_path / "log.parquet"
    write_parquet(path, prompt=["x"] * 100, model=["m"] * 100)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InvalidRequest, match=r"log\.parquet:1: The table is damaged"):
        list(open_log([str(path)]))
    write_parquet(path, prompt=[str(number) * 50 for number in range(100)], model=["m"] * 100)
    content = bytearray(path.read_bytes())
    content[1000:1200] = bytes(200)  # of the data: what unpacks it raises errors of the disk's kind
    path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=r"log\.parquet:\d+: The table is damaged: \w"):
        list(open_log([str(path)]))
    log = open_log([str(path)], lenient=True)
    list(log)
    assert 1 == log.notes.problems["bad_line"]
    write_parquet(path, a=[1])
    with pytest.raises(InvalidRequest, match="No column of the table holds prompts"):
        list(open_log([str(path)]))


def test_parquet_without_its_package(tmp_path, monkeypatch):
    write_parquet(tmp_path / "x", prompt=["a"], model=["m"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match="pyarrow"):
        list(open_log([str(tmp_path / "x")]))
