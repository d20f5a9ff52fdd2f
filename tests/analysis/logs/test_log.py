"""Bad input: each fault has a treatment and a count."""

import json
import os
import subprocess
import sys

import pytest

from prefold.analysis.logs.checks import REMEMBERED_REQUESTS, Check, Notes
from prefold.analysis.logs.log import open_log
from prefold.analysis.record import Blocks, Body, Place, Record
from prefold.cli.log_progress import reading, tell_notes
from prefold.errors import InvalidRequest
from prefold.providers.usage import Usage

LONG = " ".join(f"word{number}" for number in range(1000))


def record(time=1, text="hello", **more):
    return {"time": time, "request": {"model": "m", "messages": [{"role": "user", "content": text}]}, **more}


@pytest.fixture
def opened(tmp_path):
    def open_(*values, name="log.jsonl", lenient=False, log_format=None):
        content = b"".join((item if isinstance(item, bytes) else json.dumps(item).encode()) + b"\n" for item in values)
        (tmp_path / name).write_bytes(content)
        return open_log([str(tmp_path / name)], lenient=lenient, log_format=log_format)

    return open_


def problems(log):
    return {name: number for name, number in log.notes.problems.items() if number and name != "missing_usage"}


def test_the_first_bad_line_stops_and_is_named(opened, tmp_path):
    log = opened(record(), b"{broken", record())
    with pytest.raises(InvalidRequest, match=r"log\.jsonl:2: The line is not valid JSON") as error:
        list(log)
    assert "--lenient" in error.value.hint


def test_lenient_counts_and_shows_bad_lines(opened):
    log = opened(record(), *[b"{broken"] * 150, record(), lenient=True)
    assert 2 == len(list(log))
    assert (2, 150, 100) == (log.notes.records, log.notes.skipped, len(log.notes.skipped_places))
    assert [2, 3] == [place.line for place in log.notes.skipped_places[:2]]
    assert {"bad_line": 150} == problems(log)


def test_a_bad_first_line_does_not_hide_the_format(opened):
    log = opened(b"garbage", record(), lenient=True)
    assert 1 == len(list(log))


def test_half_a_last_line_never_stops(opened, tmp_path):
    log = opened(record(), record(2))
    path = tmp_path / "log.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert [1.0] == [item.time for item in log]
    assert {"half_last_line": 1} == problems(log)
    assert (1, ["2"]) == (log.notes.skipped, [str(place.line) for place in log.notes.skipped_places])


def test_a_clock_that_runs_backwards_is_counted(opened):
    log = opened(record(5), record(3), record(4), record(9))
    assert [5.0, 3.0, 4.0, 9.0] == [item.time for item in log]
    assert {"clock_backwards": 1} == problems(log)


def test_a_repeated_record_counts_once(opened):
    answer = {"id": "msg_1", "content": [{"type": "text", "text": "A"}]}
    log = opened(
        record(1, response=answer), record(1, response=answer), record(2), record(2), record(3, request_id="r")
    )
    assert [1.0, 2.0, 2.0, 3.0] == [item.time for item in log]  # without an id, the same words are another request
    assert {"duplicate": 1} == problems(log)
    assert 4 == sum(log.notes.formats.values())


def test_only_so_many_ids_are_remembered():
    notes, seen = Notes(), {}
    check = Check(notes, seen)
    for number in range(REMEMBERED_REQUESTS + 10):
        check.passed(Record(Blocks(b"", 1, 0), Place("f", 1), request_id=str(number)), "x")
    assert REMEMBERED_REQUESTS == len(seen)
    assert check.passed(Record(Blocks(b"", 1, 0), Place("f", 1), request_id="0"), "x")  # forgotten
    assert check.passed(Record(Blocks(b"", 1, 0), Place("f", 1), request_id=str(number)), "x") is None


def test_missing_usage_and_time_are_counted(opened):
    log = opened({"model": "m", "prompt": "x"}, {"model": "m", "prompt": "x"}, {"model": "m", "prompt_token_ids": [1]})
    assert 3 == len(list(log))
    assert {"missing_usage": 2, "missing_time": 3, "mixed_formats": 1} == dict(log.notes.problems)
    assert {"completion": 2, "token_ids": 1} == dict(log.notes.formats)


@pytest.mark.parametrize(
    ("text", "usage"),
    [
        (LONG, {"prompt_tokens": 10, "completion_tokens": 1}),
        (LONG, {"input_tokens": 0, "output_tokens": 1}),
        ("short", {"prompt_tokens": 50_000, "completion_tokens": 1}),
        (LONG, {"prompt_tokens": 2000, "prompt_tokens_details": {"cached_tokens": 3000}}),
        (LONG, {"input_tokens": 2000, "input_tokens_details": {"cached_tokens": 3000}}),
        (LONG, {"prompt_tokens": 2000, "cached_tokens": 3000}),
        (LONG, {"promptTokenCount": 2000, "cachedContentTokenCount": 3000}),
    ],
)
def test_usage_that_cannot_be_is_left_out(opened, text, usage):
    log = opened(record(text=text, usage=usage))
    assert [None] == [item.usage for item in log]
    assert 1 == log.notes.problems["usage_contradicts_text"]


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 2000, "prompt_tokens_details": {"cached_tokens": 2000}},
        {"input_tokens": 3, "cache_read_input_tokens": 1990, "cache_creation_input_tokens": 7},  # disjoint
        {"prompt_tokens": 1700, "completion_tokens": 5},
    ],
)
def test_usage_that_can_be_stays(opened, usage):
    log = opened(record(text=LONG, usage=usage))
    (item,) = log
    assert item.usage.input in (2000, 1700)
    assert {} == problems(log)


def test_usage_above_the_text_stays_where_the_log_hides_parts(opened):
    span = {"gen_ai.request.model": "m", "gen_ai.prompt.0.content": "x", "gen_ai.usage.input_tokens": 50_000}
    log = opened({"attributes": span})  # neither tools nor the system prompt
    assert [50_000] == [item.usage.input for item in log]
    assert 0 == log.notes.problems["usage_contradicts_text"]


def test_a_file_without_requests_is_counted(opened):
    log = opened({"type": "summary", "summary": "A title", "leafUuid": "x"})
    assert [] == list(log)
    assert {"no_records": 1} == problems(log)


def test_what_is_not_text_can_have_any_length(opened):
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 50_000}}]
    pointing = {"model": "m", "input": "x", "previous_response_id": "resp_0"}
    log = opened(record(text=image, usage={"prompt_tokens": 90}), {"body": pointing, "usage": {"input_tokens": 40_000}})
    assert [90, 40_000] == [item.usage.input for item in log]
    assert 0 == log.notes.problems["usage_contradicts_text"]


@pytest.mark.parametrize("absurd", [-5, 10**12, 10**30, float("inf"), "-1"])
def test_absurd_counts_count_as_absent(opened, absurd):
    usage = {"prompt_tokens": 100, "completion_tokens": absurd, "prompt_tokens_details": {"cached_tokens": absurd}}
    log = opened(record(usage=usage), record(usage={"input_tokens": absurd}))
    first, second = log
    assert Usage(uncached=100) == first.usage
    assert second.usage is None
    expected = {} if absurd == float("inf") else {"absurd_count": 3}
    assert expected == problems(log)


def test_dialects_may_be_mixed(opened):
    log = opened(
        {"model": "gpt-4o", "messages": [{"role": "system", "content": "S"}]},
        {"model": "claude", "system": "S", "messages": [{"role": "user", "content": "U"}]},
        {"timestamp": 1, "body": {"contents": [{"role": "user", "parts": [{"text": "U"}]}]}},
        {"model": "gpt-4o", "messages": [{"role": "system", "content": "S"}]},
    )
    assert 4 == len(list(log))
    assert {"openai": 2, "anthropic": 1, "gemini": 1} == dict(log.notes.formats)
    assert 2 == log.notes.problems["mixed_formats"]


def test_formats_may_be_mixed_in_one_file(opened):
    span = {
        "name": "chat",
        "attributes": {"gen_ai.request.model": "m", "gen_ai.input.messages": '[{"role": "user", "content": "U"}]'},
    }
    log = opened(record(), span, record(), b'INFO 01-02 03:04:05 logger.py:39] Received request a: prompt: "x", p')
    records = list(log)
    assert [1, 2, 3, 4] == [item.place.line for item in records]
    assert {"openai": 2, "otel": 1, "vllm": 1} == dict(log.notes.formats)
    assert 2 == log.notes.problems["mixed_formats"]


def test_a_named_format_is_not_recognised(opened):
    log = opened({"model": "x", "messages": [{"role": "user", "content": "U"}]}, log_format="claude")
    assert ["anthropic"] == [item.content.dialect for item in log]
    assert {"anthropic": 1} == dict(log.notes.formats)
    log = opened(record(), log_format="vllm")
    assert [] == list(log)


def test_a_body_that_turns_out_to_be_none(opened):
    log = opened(record(), lenient=True)
    for item in log:
        log.refuse(item.place, "The content of messages[0] is none.")
    assert (0, 1, 1) == (log.notes.records, log.notes.skipped, log.notes.problems["bad_line"])
    strict = opened(record())
    with pytest.raises(InvalidRequest, match=r"log\.jsonl:1: It is none\."):
        strict.refuse(Place("log.jsonl", 1), "It is none.")


def test_an_iteration_that_is_left_closes_its_files(opened, tmp_path):
    log = opened(record(), record(2))
    (tmp_path / "other.jsonl").write_text(json.dumps(record(1)) + "\n")
    for item in open_log([str(tmp_path)]):
        assert isinstance(item.content, Body)
        break
    assert 2 == len(list(log))


def test_reading_shows_no_bar_where_there_is_no_terminal(opened, tmp_path, monkeypatch, capsys):
    opened(record(5), record(3), b"{broken")
    with reading([str(tmp_path / "log.jsonl")], lenient=True) as log:
        assert 2 == len(list(log))
    tell_notes(log.notes)
    out, err = capsys.readouterr()
    assert "" == out
    assert f"1 line was left out: {tmp_path / 'log.jsonl'}:3.\nRecords earlier than the one before them: 1." in err


def test_reading_shows_a_bar_on_a_terminal(opened, tmp_path):
    opened(*(record(number) for number in range(300)))
    program = (
        "import sys\nfrom prefold.cli.log_progress import reading\n"
        "with reading(sys.argv[1:]) as log: print(len(list(log)))"
    )
    master, terminal = os.openpty()
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "log.jsonl")],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        check=True,
    )
    os.close(terminal)
    shown = os.read(master, 65_536).decode()
    os.close(master)
    assert b"300\n" == done.stdout
    assert "Reading" in shown
    assert "requests/s" in shown
