"""`prefold doctor`."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefold.cli.doctor import doctor
from prefold.errors import InvalidRequest, UsageError

RULES = "Answer briefly and politely. Follow the examples. Never guess: ask another desk, and say that you did."
EXAMPLES = [
    {"role": ("user", "assistant")[number % 2], "content": f"Example {number}: " + f"desk {number}, please. " * 30}
    for number in range(8)
]
START = 1_780_000_000
EIGHT = [
    "traffic_mix",
    "prefix_content",
    "serialisation",
    "model_version",
    "deployment_or_routing",
    "sessions",
    "capacity_and_eviction",
    "request_parameters",
]


def write(
    file: Path,
    start: int,
    rules: Callable[[random.Random], str] = lambda _: RULES,
    *,
    requests: int = 60,
    usage: int | None = None,
) -> str:
    """A log of one question each to the same assistant."""
    rng = random.Random(start)
    lines = []
    for number in range(requests):
        messages = [
            {"role": "system", "content": rules(rng)},
            *EXAMPLES,
            {"role": "user", "content": f"What about {rng.random()}?"},
        ]
        record: dict[str, Any] = {"timestamp": start + number, "request": {"model": "some-model", "messages": messages}}
        if usage is not None:
            record["usage"] = {"prompt_tokens": 1_000, "prompt_tokens_details": {"cached_tokens": usage}}
        lines.append(json.dumps(record))
    with file.open("a") as stream:
        stream.write("\n".join(lines) + "\n")
    return str(file)


def spaced(rng: random.Random) -> str:
    return RULES.replace(" ", " " * rng.randrange(2, 500), 1)


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(doctor, arguments, input=stdin, env={"COLUMNS": "120"})


@pytest.fixture
def logs(tmp_path: Path) -> tuple[str, str]:
    before = write(tmp_path / "before.jsonl", START)
    return before, write(tmp_path / "after.jsonl", START + 1_000, spaced)


def test_two_logs(logs: tuple[str, str]) -> None:
    found = run("--before", logs[0], "--after", logs[1])
    assert 1 == found.exit_code
    assert "The hit rate fell by" in found.stdout
    assert "whitespace" in found.stdout
    rows = [line.strip() for line in found.stdout.splitlines()]
    assert [*(cause.replace("_", " ") for cause in EIGHT), "unexplained"] == [
        cause
        for row in rows
        for cause in [*(cause.replace("_", " ") for cause in EIGHT), "unexplained"]
        if row.startswith(cause) and row.endswith(tuple("0123456789"))
    ]


@pytest.mark.parametrize(
    "moment", [str(START + 1_000), f"{START + 1_000}000", "2026-05-28T20:43:20Z", "2026-05-28 20:43:20"]
)
def test_one_log_and_a_time(tmp_path: Path, moment: str) -> None:
    file = tmp_path / "log.jsonl"
    write(file, START)
    write(file, START + 1_000, spaced)
    found = run(str(file), "--at", moment, "--json")
    assert 1 == found.exit_code
    report = json.loads(found.stdout)
    assert (60, 60) == (report["before"]["requests"], report["after"]["requests"])
    assert "serialisation" == report["cause"]


def test_json(logs: tuple[str, str]) -> None:
    report = json.loads(run("--before", logs[0], "--after", logs[1], "--json").stdout)
    assert (1, True, "simulated") == (report["schema_version"], report["fell"], report["hits"])
    causes = report["causes"]
    assert [*EIGHT, "unexplained"] == [cause["cause"] for cause in causes]
    assert report["drop_tokens"] == sum(cause["tokens"] for cause in causes)
    assert report["drop_tokens"] == round(report["drop"] * report["after"]["input_tokens"])
    assert 1 == pytest.approx(sum(cause["share"] for cause in causes))
    assert report["drop"] == pytest.approx(report["before"]["hit_rate"] - report["after"]["hit_rate"])
    (main,) = [cause for cause in causes if cause["cause"] == report["cause"]]
    assert main["share"] == max(cause["share"] for cause in causes)
    assert main["evidence"]


def test_no_drop(logs: tuple[str, str]) -> None:
    found = run("--before", logs[1], "--after", logs[0])
    assert 0 == found.exit_code
    assert "The hit rate did not fall: it rose by" in found.stdout
    report = json.loads(run("--before", logs[1], "--after", logs[0], "--json").stdout)
    assert (False, None) == (report["fell"], report["cause"])


def test_a_small_fall_is_none(tmp_path: Path) -> None:
    before = write(tmp_path / "a.jsonl", START, usage=900)
    after = write(tmp_path / "b.jsonl", START + 1_000, usage=890)
    assert 1 == run("--before", before, "--after", after).exit_code
    found = run("--before", before, "--after", after, "--tolerance", "1.5")
    assert 0 == found.exit_code
    assert "fell by 1.0 points, which --tolerance allows (hits as providers reported them)" in found.stdout


def test_a_fall_or_rise_that_rounds_to_nothing(tmp_path: Path) -> None:
    before = write(tmp_path / "a.jsonl", START, usage=900)
    same = write(tmp_path / "b.jsonl", START + 1_000, usage=900)
    assert "The hit rate is what it was (" in run("--before", before, "--after", same).stdout
    less = write(tmp_path / "c.jsonl", START + 1_000, usage=900)
    write(tmp_path / "c.jsonl", START + 2_000, usage=899, requests=1)
    fell = run("--before", before, "--after", less)
    assert (0, True) == (fell.exit_code, "fell by less than 0.1 points, which --tolerance allows" in fell.stdout)
    assert "did not fall: it rose by less than 0.1 points" in run("--before", less, "--after", before).stdout


def test_standard_input(logs: tuple[str, str]) -> None:
    text = Path(logs[0]).read_text() + Path(logs[1]).read_text()
    assert 1 == run("-", "--at", str(START + 1_000), stdin=text).exit_code
    assert 1 == run("--before", "-", "--after", logs[1], stdin=Path(logs[0]).read_text()).exit_code


def test_lines_that_cannot_be_read(logs: tuple[str, str]) -> None:
    with Path(logs[1]).open("a") as stream:
        stream.write("{half\n")
    assert isinstance(run("--before", logs[0], "--after", logs[1]).exception, InvalidRequest)
    found = run("--before", logs[0], "--after", logs[1], "--lenient")
    assert 1 == found.exit_code
    assert "after.jsonl:61" in found.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["LOG"],
        ["LOG", "--at", "yesterday"],
        ["LOG", "--at", "nan"],
        ["LOG", "--at", "9e99"],
        ["LOG", "--at", str(START)],
        ["LOG", "--before", "LOG", "--after", "LOG"],
        ["--before", "LOG"],
        ["--before", "-", "--after", "-"],
        ["--before", "LOG", "--after", "EMPTY"],
        ["--before", "LOG", "--after", "nothing.jsonl"],
        ["LOG", "--at", str(START + 1), "--cache", "nobody"],
        ["LOG", "--at", str(START + 1), "--capacity", "x"],
    ],
)
def test_wrong_usage(arguments: list[str], logs: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    names = {"LOG": logs[0], "EMPTY": str(tmp_path / "empty.jsonl")}
    error = run(*(names.get(argument, argument) for argument in arguments)).exception
    assert isinstance(error, UsageError)
    assert error.hint


def test_both_ways_to_name_the_sides(logs: tuple[str, str]) -> None:
    error = run(logs[0], "--before", logs[0], "--after", logs[1]).exception
    assert isinstance(error, UsageError)
    assert "Both ways to name the two sides are mixed." == error.message
    assert "Give either LOG with --at, or --before and --after." == error.hint
