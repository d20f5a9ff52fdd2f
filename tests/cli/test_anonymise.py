"""`prefold anonymise`."""

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefold.analysis.logs.log import open_log
from prefold.cli.anonymise import anonymise
from prefold.errors import InvalidRequest, PrefoldError, UsageError

SECRET = {"TRACE_KEY": "correct horse battery"}


def line(number: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Where is order {number}?"}]
    body = {"model": "gpt-4o", "messages": [{"role": "system", "content": "You help. " * 50}, *messages]}
    return {"request": body, "timestamp": 1_700_000_000 + number, "user": "ACME", "session_id": f"visit {number % 2}"}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(line(number)) + "\n" for number in range(4)), "utf-8")
    return path


def run(*arguments: str | Path, env: Mapping[str, str] | None = None, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(anonymise, [str(argument) for argument in arguments], input=stdin, env=env)
    assert 0 == result.exit_code, result.output
    return result


def refused(*arguments: str | Path, env: Mapping[str, str] | None = None) -> PrefoldError:
    result = CliRunner().invoke(anonymise, [str(argument) for argument in arguments], env=env)
    assert isinstance(result.exception, PrefoldError)
    return result.exception


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_file(log: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    result = run(log, "-o", trace)
    assert "" == result.stdout
    assert "4 requests." in result.stderr
    header, *rest = lines(trace.read_text())
    assert {"format": "prefold-trace", "version": 1} == header
    assert [0.0, 1.0, 2.0, 3.0] == [value["time"] for value in rest]
    assert all("gpt-4o" == value["model"] for value in rest)
    assert "ACME" not in trace.read_text()
    records = list(open_log([str(trace)]))
    assert 4 == len(records)
    assert 2 == len({record.session for record in records})
    assert {log, trace} == set(tmp_path.iterdir())
    assert trace.stat().st_mode == log.stat().st_mode


def test_standard_streams(log: Path) -> None:
    result = run("-", stdin=log.read_text())
    assert 5 == len(lines(result.stdout))


def test_a_key_makes_exports_comparable(log: Path) -> None:
    def exported(*more: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        return lines(run(log, *more, env=env).stdout)[1]

    first, second = (exported("--key-env", "TRACE_KEY", env=SECRET) for _ in range(2))
    assert first == second
    assert first["hashes"]
    other, another = exported(), exported()
    assert other["tenant"] != another["tenant"]
    assert "hashes" not in other
    assert {key for key in other if other[key] != another[key]} == {"tenant", "session"}


def test_models_can_be_renamed(log: Path) -> None:
    assert "gpt-4o" not in run(log, "--rename-models").stdout


@pytest.mark.parametrize("env", [{}, {"TRACE_KEY": "short"}])
def test_a_key_that_could_be_guessed_is_refused(log: Path, env: dict[str, str]) -> None:
    error = refused(log, "--key-env", "TRACE_KEY", env=env)
    assert isinstance(error, UsageError)
    assert "TRACE_KEY" in error.message
    assert "short" not in str(error).replace("shorter", "")


def test_what_cannot_be_read_leaves_what_was_there(log: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("kept")
    with log.open("a") as file:
        file.write('{"request": {"messages": 5}}\n{broken}\n')
    assert isinstance(refused(log, "-o", trace), InvalidRequest)
    assert "kept" == trace.read_text()
    assert {log, trace} == set(tmp_path.iterdir())
    result = run(log, "-o", trace, "--lenient")
    assert "2 lines were left out" in result.stderr
    assert 5 == len(lines(trace.read_text()))


def test_a_folder_that_is_not_there(log: Path, tmp_path: Path) -> None:
    error = refused(log, "-o", tmp_path / "none" / "trace.jsonl")
    assert isinstance(error, UsageError)
    assert "trace.jsonl cannot be written" in error.message


def test_a_log_is_not_replaced_by_its_trace(log: Path) -> None:
    before = log.read_bytes()
    assert "is one of the logs that are read" in refused(log, "-o", log).message
    assert before == log.read_bytes()


def test_a_pipe_gets_the_trace_and_stays(log: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as threads:
        reading = threads.submit(pipe.read_text)
        run(log, "-o", pipe)
        assert 5 == len(lines(reading.result()))
    assert pipe.is_fifo()
    assert {log, pipe} == set(tmp_path.iterdir())
