"""`prefold watch-log`: a real process, a real file that grows."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefold.cli.watch_log import watch_log
from prefold.errors import UsageError

RULES = " ".join(
    f"Rule {number}: ask desk {number**5 % 9_973} about {number**7 % 99_991} politely." for number in range(60)
)
PATIENCE = 60  # seconds after which a test gives up


def line(system: str, question: str, **fields: Any) -> str:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return json.dumps({"request": {"model": "some-model", "messages": messages}, **fields}) + "\n"


def append(file: Path, *lines: str) -> None:
    with file.open("a") as stream:
        stream.write("".join(lines))


def run(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(watch_log, [str(file), "--once", "--from-start", *arguments], env={"COLUMNS": "160"})


def events(result: Result) -> list[dict[str, Any]]:
    return [json.loads(text) for text in result.stdout.splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "requests.jsonl"


def clock(minute: int) -> str:
    return f"It is 2026-11-30T10:{minute:02}:00Z. {RULES}"


class Running:
    """The command as a process of its own."""

    def __init__(self, *arguments: str) -> None:
        code = (
            "import sys\nfrom prefold.cli.watch_log import watch_log\n"
            "sys.exit(watch_log.main(sys.argv[1:], standalone_mode=False))"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._lines: Queue[str] = Queue()
        self._said: Queue[str] = Queue()
        for stream, queue in ((self.process.stdout, self._lines), (self.process.stderr, self._said)):
            threading.Thread(target=self._read, args=(stream, queue), daemon=True).start()

    @staticmethod
    def _read(stream: Any, queue: "Queue[str]") -> None:
        for text in stream:
            queue.put(text)

    def started(self) -> None:
        self.said("Ctrl-C ends")

    def said(self, text: str) -> None:
        """Wait until it has said something on standard error."""
        while text not in self._said.get(timeout=PATIENCE):
            pass

    def next(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._lines.get(timeout=PATIENCE))
        return found

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=PATIENCE)


@pytest.fixture
def following(log: Path) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def start(*arguments: str) -> Running:
        running.append(Running(str(log), "--json", *arguments))
        running[-1].started()
        return running[-1]

    yield start
    for each in running:
        each.process.kill()
        each.process.wait()
        for stream in (each.process.stdout, each.process.stderr):
            assert stream is not None
            stream.close()


def test_a_break_is_told_when_it_happens(log: Path, following: Callable[..., Running]) -> None:
    append(log, line(clock(0), "What was before?"))
    watching = following()
    append(log, line(clock(1), "First?"))
    text = line(clock(2), "Second?", tenant="a")
    append(log, text[:40])
    append(log, text[40:])
    seen = watching.next()
    assert ("break", "clock", "messages[0]") == (seen["event"], seen["cause"], seen["path"])
    assert f"{log}:3" == seen["place"]
    assert seen["lost_tokens"] > 500
    assert "10:01" in seen["before"]
    assert "10:02" in seen["after"]
    assert seen["fix"]

    log.rename(log.with_suffix(".1"))
    append(log, line(clock(3), "Third?"))
    seen = watching.next()
    assert ("clock", f"{log}:1", 2) == (seen["cause"], seen["place"], seen["count"])
    log.write_text("")
    append(log, line(clock(4), "Fourth?"))
    assert 3 == watching.next()["count"]
    watching.said("was replaced or cut")

    assert 1 == watching.interrupt()
    summary = watching.next()
    assert ("summary", 4) == (summary["event"], summary["requests"])
    assert [{"cause": "clock", "path": "messages[0]", "requests": 3}] == summary["breaks"]
    assert 1 == summary["problems"]["rotated"]


def test_nothing_happens(log: Path, following: Callable[..., Running]) -> None:
    append(log, line(RULES, "Before?"))
    watching = following("--from-start")
    append(log, *(line(RULES, f"Question {number}?") for number in range(3)))
    # Wait until it has read them: what is told on standard error comes after them.
    append(log, "{half\n")
    watching.said(":5: ")
    assert 0 == watching.interrupt()
    summary = watching.next()
    assert ("summary", 4, 1) == (summary["event"], summary["requests"], summary["skipped"])


def test_once(log: Path) -> None:
    append(log, *(line(clock(minute), f"Question {minute}?") for minute in range(3)))
    found = run(log)
    assert 1 == found.exit_code
    assert f"{log}:2: clock at messages[0]" in found.stdout
    assert "before: " in found.stdout
    assert "fix: " in found.stdout
    assert "(request 2 that breaks so)" in found.stdout
    assert "3 requests" in found.stderr
    assert "2 breaks" in found.stderr


def test_breaks_that_are_alike_are_thinned_out(log: Path) -> None:
    append(
        log,
        *(
            line(f"It is 2026-11-30T{10 + number // 60}:{number % 60:02}:00Z. {RULES}", "?", timestamp=number)
            for number in range(102)
        ),
    )
    found = run(log)
    told = [text.split(":")[1] for text in found.stdout.splitlines() if "messages[0], " in text]
    assert ["2", "3", "4", "11", "101"] == told
    assert "101 breaks" in found.stderr
    assert 101 == sum(event["event"] == "break" for event in events(run(log, "--json")))


def test_standard_input() -> None:
    text = "".join(line(clock(minute), f"Question {minute}?") for minute in range(3)) + "{half"
    found = CliRunner().invoke(watch_log, ["-", "--json"], input=text)
    assert 1 == found.exit_code
    assert [("break", "standard input:2"), ("break", "standard input:3"), ("summary", None)] == [
        (event["event"], event.get("place")) for event in events(found)
    ]
    assert (3, 1) == (events(found)[-1]["requests"], events(found)[-1]["skipped"])


def test_a_pipe_is_told_at_once(tmp_path: Path) -> None:
    """Also while more may come."""
    code = "from prefold.cli.watch_log import watch_log\nwatch_log.main(['-', '--json'], standalone_mode=False)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line(clock(0), "First?") + line(clock(1), "Second?"))
        process.stdin.flush()
        assert "clock" == json.loads(process.stdout.readline())["cause"]
        process.stdin.close()
        assert "summary" == json.loads(process.stdout.readline())["event"]


@pytest.mark.parametrize(
    ("model", "cache", "fix"),
    [
        ("some-model", [], "Give the cache more memory"),
        ("gpt-4o", [], "with one prompt_cache_key: how long it is kept is the provider's choice"),
        ("gpt-4o", ["--cache", "vllm"], "Give the cache more memory"),
    ],
)
def test_a_fix_fits_who_runs_the_cache(log: Path, model: str, cache: list[str], fix: str) -> None:
    usage = {"prompt_tokens": 3_000, "prompt_tokens_details": {"cached_tokens": 0}}
    rules = " ".join([RULES] * 3)
    for number in range(2):
        asked = json.loads(line(rules, f"{number}?", timestamp=number, usage=usage))
        asked["request"]["model"] = model
        append(log, json.dumps(asked) + "\n")
    (seen, _) = events(run(log, "--json", *cache))
    assert "evicted" == seen["cause"]
    assert fix in seen["fix"]


def test_a_cache_with_a_limit(log: Path) -> None:
    others = [" ".join(f"{word}{number}" for word in RULES.split()) for number in range(4)]
    append(log, *(line(rules, "?", timestamp=number) for number, rules in enumerate([RULES, *others, RULES])))
    assert 0 == run(log).exit_code
    limited = run(log, "--json", "--capacity", "3ktokens", "--policy", "lru")
    assert "evicted" in [event["cause"] for event in events(limited) if event["event"] == "break"]


def test_what_ends_an_alarm_is_at_least_what_begins_it(log: Path) -> None:
    append(log, line(RULES, "?"))
    assert 0 == run(log, "--hits-below", "90", "--tenant-below", "95").exit_code
    for of in ("tenant", "hits"):
        error = run(log, f"--{of}-below", "90", f"--{of}-healthy", "20").exception
        assert isinstance(error, UsageError)
        assert f"--{of}-healthy 20 is less than --{of}-below 90." == error.message


def test_names_that_cannot_be_shown(log: Path) -> None:
    append(log, *(line(clock(minute), f"{minute}?", user="\ud800\x1b[31m") for minute in range(2)))
    found = run(log)
    assert 1 == found.exit_code
    assert "[<U+D800><U+001B>[31m]: clock" in found.stdout
    assert 1 == run(log, "--json").exit_code


def test_a_table_is_read_from_its_start(log: Path) -> None:
    table = log.with_suffix(".csv")
    table.write_text("time,model,prompt\n1,some-model,hello\n2,some-model,hello again\n")
    found = run(table, "--json")
    assert 2 == events(found)[-1]["requests"]
    error = CliRunner().invoke(watch_log, [str(table), "--once"]).exception
    assert isinstance(error, UsageError)
    assert "--from-start" in error.hint


def test_a_log_that_is_one_list(log: Path) -> None:
    body = json.loads(line(RULES, "First?"))
    log.write_text(json.dumps([body, body]) + "\n")
    error = run(log).exception
    assert isinstance(error, UsageError)
    assert "line by line" in error.message


def test_bodies_that_are_none(log: Path) -> None:
    append(log, line(RULES, "First?"), '{"request": {"model": "m", "messages": 3}}\n', "[1]\n", line(RULES, "Second?"))
    found = run(log, "--json")
    assert (2, 2) == (events(found)[-1]["requests"], events(found)[-1]["skipped"])
    assert f"{log}:2" in found.stderr.replace("\n", "")


def test_an_empty_log(log: Path) -> None:
    log.touch()
    found = run(log)
    assert (0, "") == (found.exit_code, found.stdout)
    assert "0 requests, 0 input tokens." in found.stderr


def test_alerts(log: Path) -> None:
    def usage(read: int) -> dict[str, Any]:
        return {"prompt_tokens": 1_000, "prompt_tokens_details": {"cached_tokens": read}}

    good = (line(RULES, f"{second}?", timestamp=second, user="a", usage=usage(950)) for second in range(0, 1_200, 30))
    bad = (
        line(RULES, f"{second}?", timestamp=second, user="a", usage=usage(100)) for second in range(1_200, 4_800, 30)
    )
    append(log, *good, *bad)
    found = events(run(log, "--json"))
    alerts = [event for event in found if event["event"] == "alert"]
    assert "hit_share" in [alert["name"] for alert in alerts]
    assert not any(alert["is_new_traffic"] for alert in alerts)
    assert all({"prefixes", "cache_tokens"} == alert["now"].keys() for alert in alerts)
    assert {"evicted"} == {event["cause"] for event in found if event["event"] == "break"}
    assert "ALERT: " in run(log).stdout
    assert not [event for event in events(run(log, "--json", "--hits-below", "5")) if event.get("name") == "hit_share"]


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (None, [], "is not there"),
        ("no log at all\n", [], "no known log format"),
        ('[{"model": "m", "messages": []}]', [], "line by line"),
        ("", ["--log-format", "nothing"], "no log format"),
        ("", ["--cache", "nobody"], "no cache"),
        ("", ["--capacity", "some"], "no capacity"),
        ("", ["--policy", "some"], "no policy"),
    ],
)
def test_wrong_usage(log: Path, content: str | None, arguments: list[str], message: str) -> None:
    if content is not None:
        log.write_text(content)
    error = run(log, *arguments).exception
    assert isinstance(error, UsageError)
    assert message in error.message
    assert error.hint
