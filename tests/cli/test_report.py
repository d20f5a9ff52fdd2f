"""`prefold report`."""

import contextlib
import gzip
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefold.analysis.advice import advise
from prefold.analysis.analyse import Analysis
from prefold.analysis.caches.base import Reason
from prefold.analysis.record import Body
from prefold.analysis.situation import Situation
from prefold.analysis.synthetic.workload import workload
from prefold.cli.main import prefold as main
from prefold.cli.report import report
from prefold.errors import InvalidRequest, PrefoldError, UsageError

PREFOLD = [sys.executable, "-c", "from prefold.cli.main import main; main()"]
PRICE = ("--price", "miss=2,hit=0.2")


def lines(shape: str = "agent:bad", requests: int = 60, gap: float = 1.0, **more: Any) -> str:
    """A log of bodies."""
    made = []
    for number, record in enumerate(workload(f"{shape},requests={requests}")):
        assert isinstance(record.content, Body)
        body = json.loads(record.content.content)
        made.append({"timestamp": 1e9 + gap * number, "session": record.session, **more, "request": body})
    return "".join(json.dumps(line) + "\n" for line in made)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "requests.jsonl"
    path.write_text(lines(requests=60), "utf-8")
    return path


def run(*arguments: str | Path, stdin: str | None = None, code: int = 0) -> Result:
    result = CliRunner().invoke(report, [str(argument) for argument in arguments], input=stdin)
    assert code == result.exit_code, (result.output, result.exception)
    return result


def figures(*arguments: str | Path, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--json", "-", **options).stdout)
    return found


def refused(*arguments: str | Path) -> PrefoldError:
    result = CliRunner().invoke(report, [str(argument) for argument in arguments])
    assert isinstance(result.exception, PrefoldError), result.output
    return result.exception


def test_the_summary(log: Path) -> None:
    shown = run(log, *PRICE).stdout
    found = figures(log, *PRICE)
    assert "60 requests" in " ".join(shown.split())
    assert f"{found['input_tokens']:,}" in shown
    assert "What to do first" in shown
    assert "Where every token went" in shown


def test_figures(log: Path) -> None:
    found = figures(log, *PRICE)
    assert (1, True, False) == (found["schema_version"], found["complete"], found["redacted"])
    assert found["input_tokens"] == sum(row["tokens"] for row in found["attribution"])
    assert found["input_tokens"] == found["hit_tokens"] + found["recomputed_tokens"]
    assert found["input_tokens"] * 2 / 1e6 == pytest.approx(found["cost"]["without_cache"])
    assert 10 == len(found["caches"])
    assert {"llama.cpp", "prefold", "anthropic"} <= {row["cache"] for row in found["caches"]}


def test_a_page_and_a_file_of_figures(log: Path, tmp_path: Path) -> None:
    page, file = tmp_path / "page.html", tmp_path / "figures.json"
    result = run(log, "-o", page, "--json", file)
    assert "" == result.stdout
    assert f"Wrote {page}." in result.stderr
    assert page.read_text().lower().startswith("<!doctype html>")
    assert figures(log)["attribution"] == json.loads(file.read_text())["attribution"]
    run(log, "-o", page)  # again
    assert {log, page, file} == set(tmp_path.iterdir())


def test_shapes_and_hashes_instead_of_text(tmp_path: Path) -> None:
    page, log = tmp_path / "page.html", tmp_path / "private.jsonl"
    rules = "Say nothing of this. " * 400
    bodies = [
        {"model": "gpt-4o", "messages": [{"role": "system", "content": f"Zanzibar {n}. {rules}"}]} for n in range(4)
    ]
    log.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    shown = [run(log, "--json", "-", "-o", page, *redact).stdout + page.read_text() for redact in ([], ["--redact"])]
    assert [True, False] == ["Zanzibar" in text for text in shown]


def test_standard_input_and_folders(log: Path, tmp_path: Path) -> None:
    alone = figures(log)
    piped = figures("-", stdin=log.read_text())
    assert (["Standard input"], alone["attribution"]) == (piped["log"]["sources"], piped["attribution"])
    folder = tmp_path / "folder"
    folder.mkdir()
    text = log.read_text().splitlines(keepends=True)
    (folder / "a.jsonl").write_text("".join(text[:30]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("".join(text[30:]).encode()))
    assert alone["attribution"] == figures(folder)["attribution"]


def test_lines_that_cannot_be_read(log: Path) -> None:
    log.write_text("{broken\n" + log.read_text())
    assert isinstance(refused(log), InvalidRequest)
    result = run(log, "--lenient", "--json", "-")
    assert "1 line was left out" in result.stderr
    assert (60, 1) == tuple(json.loads(result.stdout)["log"][name] for name in ("requests", "skipped"))


def test_a_log_without_requests(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    for more in ([], ["--json", "-"], ["-o", str(tmp_path / "page.html")]):
        error = refused(empty, *more)
        assert isinstance(error, UsageError)
        assert "The log holds no requests." == error.message
    assert {empty} == set(tmp_path.iterdir())


def test_costs_in_a_currency(log: Path) -> None:
    dollars, euros = figures(log, *PRICE), figures(log, *PRICE, "--currency", "EUR")
    assert ("USD", "EUR") == (dollars["cost"]["currency"], euros["cost"]["currency"])
    assert dollars["cost"]["now"] == euros["cost"]["now"]


def test_a_cache_of_ones_own(log: Path) -> None:
    found = figures(log, "--cache", "vllm", "--capacity", "64blocks", "--situation", "own_engine")
    assert ("vllm", "own_engine") == (found["cache"], found["situation"])
    assert figures(log, "--cache", "vllm")["hit_tokens"] > found["hit_tokens"]


# ---------------------------------------------------------------------------------------------------------- outputs


@pytest.mark.parametrize("option", ["-o", "--json"])
def test_a_log_is_never_replaced(log: Path, option: str) -> None:
    before = log.read_text()
    for source in (log, log.parent):
        assert "is one of the logs that are read" in refused(source, option, log).message
    assert before == log.read_text()


def test_outputs_are_checked_before_the_log_is_read(log: Path, tmp_path: Path) -> None:
    log.write_text("{broken\n")
    assert "no such folder" in refused(log, "-o", tmp_path / "none" / "page.html").message
    same = tmp_path / "same"
    assert "are both" in refused(log, "-o", same, "--json", tmp_path / "." / "same").message


# ----------------------------------------------------------------------------------------------------------- advice


@pytest.fixture(params=["bodies", "packed", "injection", "two", "folder", "lenient", "mooncake", "tau", "markers"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Sources of a log, in the working directory."""
    text = lines(requests=20)
    match request.param:
        case "bodies":
            return _written(tmp_path, "requests.jsonl", text)
        case "packed":
            (tmp_path / "requests.jsonl.gz").write_bytes(gzip.compress(text.encode()))
            return ["requests.jsonl.gz"]
        case "injection":
            return _written(tmp_path, "my log; touch PWNED $(touch PWNED) 'x'.jsonl", text)
        case "two":
            half = text.splitlines(keepends=True)
            return _written(tmp_path, "a.jsonl", "".join(half[:9])) + _written(tmp_path, "b", "".join(half[9:]))
        case "folder":
            (tmp_path / "logs").mkdir()
            _written(tmp_path / "logs", "requests.jsonl", text)
            return ["logs"]
        case "lenient":
            return [*_written(tmp_path, "requests.jsonl", text + "{broken\n" + text), "--lenient"]
        case "mooncake":
            trace = [
                {"timestamp": n, "input_length": 2048, "output_length": 1, "hash_ids": [n % 5, 9 + n % 5, 20 + n, 90]}
                for n in range(40)
            ]
            return _written(tmp_path, "trace.jsonl", "".join(json.dumps(line) + "\n" for line in trace))
        case "tau":
            turns = [{"role": ["system", "user", "assistant"][n % 3], "content": f"Turn {n}. " * 400} for n in range(9)]
            runs = [{"task_id": n, "reward": 1.0, "info": {}, "traj": turns, "trial": 0} for n in range(4)]
            return _written(tmp_path, "runs.json", json.dumps(runs))
        case _:
            model = {"model": "claude-sonnet-4-5", "max_tokens": 5}
            system: list[dict[str, Any]] = [{"type": "text", "text": f"Rule {n}. " * 40} for n in range(60)]
            system[-1]["cache_control"] = {"type": "ephemeral"}
            bodies = [
                {**model, "system": system, "messages": [{"role": "user", "content": f"Hello {n}."}]} for n in range(40)
            ]
            times = [1000 * n for n in range(40)]
            made = [{"timestamp": when, "request": body} for when, body in zip(times, bodies, strict=True)]
            return _written(tmp_path, "marked.jsonl", "".join(json.dumps(line) + "\n" for line in made))


def _written(folder: Path, name: str, text: str) -> list[str]:
    (folder / name).write_text(text, "utf-8")
    return [name]


def test_what_is_advised_runs_as_it_is_printed(kind: list[str], tmp_path: Path, monkeypatch: Any) -> None:
    """In a shell's reading, in the folder where the report was made."""
    monkeypatch.chdir(tmp_path)
    advised: set[str] = set()
    own = ("--cache", "vllm", "--capacity", "8192tokens", "--replicas", "2")
    for cache in ((), ("--cache", "anthropic"), own):
        found = figures(*kind, *cache)
        # Every reason, so that every command is there.
        total = found["input_tokens"]
        found["attribution"] += [{"reason": str(reason), "tokens": total} for reason in Reason]
        for situation in Situation:
            advised |= {
                step["command"]
                for step in advise(situation, found, [part for part in kind if part == "--lenient"])
                if step["command"]
            }
    assert any("--curve" in command for command in advised)
    for command in sorted(advised):
        name, *arguments = shlex.split(command)
        assert "prefold" == name
        if arguments[0] == "serve":
            continue
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code in (0, 1), (command, result.output, result.exception)
        assert not isinstance(result.exception, PrefoldError), (command, result.exception)
    assert not list(tmp_path.glob("PWNED*"))


def test_standard_input_is_not_read_again() -> None:
    found = figures("-", "--cache", "anthropic", stdin=lines())
    assert {None, "prefold providers"} >= {step["command"] for step in found["advice"]}


# ------------------------------------------------------------------------------------------------------- interrupts


def _until(happened: Any) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _bytes_read(process: int, file: Path) -> int:
    """How far a process is in a file; 0 if it has not opened it."""
    for opened in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has been closed since
            if opened.readlink() == file:
                return int(Path(f"/proc/{process}/fdinfo/{opened.name}").read_text().split()[1])
    return 0


@pytest.fixture
def running(tmp_path: Path, clean_environment: dict[str, str]) -> Iterator[Any]:
    """A report in a process of its own, of a pipe that stays open."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [*PREFOLD, "report", *arguments]
        opened = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=clean_environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(opened)
        return opened

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_ctrl_c_reports_what_was_read(running: Any, tmp_path: Path) -> None:
    (tmp_path / "long.jsonl").write_text(lines(requests=4000), "utf-8")
    process = running("long.jsonl", "--json", "-")
    _until(lambda: _bytes_read(process.pid, tmp_path / "long.jsonl") > 4_000_000)  # hundreds of requests
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=100)
    assert (130, "Stopped: these will be the figures of the log so far.\n") == (process.returncode, errors)
    found = json.loads(output)
    assert found["complete"] is False
    assert 0 < found["log"]["requests"] < 4000
    assert {row["requests"] for row in found["caches"]} <= {found["log"]["requests"], found["log"]["requests"] - 1}


def test_ctrl_c_while_the_figures_are_made_says_so(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Analysis, "as_json", interrupted)
    result = run(log, code=130)
    assert "Stopped while the figures were made" in result.stderr


# ---------------------------------------------------------------------------------------------------------- streams


def test_nobody_reads_any_more(log: Path, clean_environment: dict[str, str]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nowhere:
        finished = subprocess.run(
            [*PREFOLD, "report", str(log)],
            env=clean_environment,
            stdout=nowhere,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
            check=False,
        )
    assert 141 == finished.returncode
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize(("is_terminal", "shows_bar"), [(True, True), (False, False)])
def test_a_bar_is_for_terminals_only(
    log: Path, clean_environment: dict[str, str], is_terminal: bool, shows_bar: bool
) -> None:
    ours, theirs = pty.openpty() if is_terminal else os.pipe()
    with subprocess.Popen(
        [*PREFOLD, "--color", "always", "report", str(log)],
        env={**clean_environment, "TERM": "xterm"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
        os.close(ours)
    assert 0 == process.returncode
    assert shows_bar == (b"\x1b[?25l" in shown)
    assert shows_bar == (b"Finishing" in shown)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # the other side of a terminal is gone
        return b""


@pytest.mark.parametrize("option", [("--capacity", "5000tokens"), ("--policy", "lfu")])
def test_a_provider_chooses_what_it_keeps(log: Path, option: tuple[str, str]) -> None:
    error = run(log, "--cache", "openai", *option, code=1).exception
    assert isinstance(error, UsageError)
    assert "could be chosen" in error.message
    figures(log, "--cache", "vllm", *option)


@pytest.mark.parametrize(("model", "is_told"), [("gpt-4o", True), ("my-model", False)])
def test_a_choice_that_changes_nothing_is_told(tmp_path: Path, model: str, is_told: bool) -> None:
    log = tmp_path / "log.jsonl"
    body = {"model": model, "messages": [{"role": "user", "content": "Hello. " * 50}]}
    log.write_text(json.dumps(body) + "\n")
    told = "All requests went to providers' caches, so --capacity 5000tokens --policy lfu changed nothing."
    assert is_told == (told in run(log, "--capacity", "5000tokens", "--policy", "lfu").stderr)
    assert "changed nothing" not in run(log).stderr


def test_a_provider_judges_each_model_by_its_own_family(tmp_path: Path) -> None:
    """3,000 tokens are long enough for one family of Claude, and too short for another."""
    said = [{"type": "text", "text": "word " * 3_000, "cache_control": {"type": "ephemeral"}}]
    log = tmp_path / "log.jsonl"
    for models in (("claude-haiku-4-5", "claude-sonnet-4-5"), ("claude-haiku-4-5",)):
        made = [
            {
                "timestamp": 1e9 + number,
                "body": {"model": models[number % len(models)], "messages": [{"role": "user", "content": said}]},
            }
            for number in range(12)
        ]
        log.write_text("".join(json.dumps(line) + "\n" for line in made), "utf-8")
        found, judged = figures(log), figures(log, "--cache", "anthropic")
        row = next(row for row in found["caches"] if row["cache"] == "anthropic")
        assert (len(models) > 1) == (found["hit_rate"] > 0)
        assert found["hit_rate"] == pytest.approx(row["hit_rate"], abs=1e-6) == pytest.approx(judged["hit_rate"])
        assert 12 == sum(row["families"].values())
        assert len(models) == len(row["families"])
        assert found["attribution"] == judged["attribution"]
