"""The pytest plugin, in real runs of pytest: a process each, in a folder of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

TOOLS: list[dict[str, object]] = [
    {"name": name, "input_schema": {"type": "object"}} for name in ("search", "open", "close")
]

BASE = """
TOOLS = {tools}
SYSTEM = {system!r}

def test_support(prefix_lock):
    prefix_lock("support", system=SYSTEM, tools=TOOLS)

def test_triage(prefix_lock):
    prefix_lock("triage", "按规则分类。")
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


def source(system: str = "You are a support agent.", tools: list[dict[str, object]] = TOOLS) -> str:
    return BASE.format(system=system, tools=tools)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run pytest on a file with some tests; returns its end, which must have a certain exit code."""

    def run_pytest(
        code: str, *arguments: str, expect: int = 0, environment: Mapping[str, str] = {}
    ) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_prompts.py").write_text(code, encoding="utf-8")
        kept = {name: value for name, value in os.environ.items() if name not in {"CI", "PYTEST_ADDOPTS"}}
        finished = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "prefold.testing.plugin", "-p", "no:cacheprovider", *arguments],
            cwd=tmp_path,
            # Not the plugins that happen to be installed, and this one only once.
            env={**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1", **environment},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert expect == finished.returncode, finished.stdout + finished.stderr
        return finished

    return run_pytest


def lock_of(folder: Path) -> dict[str, dict[str, object]]:
    content: dict[str, dict[str, object]] = json.loads((folder / "prefold.lock.json").read_text("utf-8"))["prefixes"]
    return content


def test_a_new_prefix_fails_until_it_is_accepted(run: Run, tmp_path: Path) -> None:
    said = run(source(), expect=1).stdout
    assert f"The prefix 'support' is not in {tmp_path / 'prefold.lock.json'}." in said
    assert "accept it: pytest --prefold-update 'test_prompts.py::test_support'; then commit the file." in said
    assert not (tmp_path / "prefold.lock.json").exists()

    said = run(source(), "--prefold-update", "-W", "error").stdout
    assert "accepted support: new, pf1:" in said
    assert ["support", "triage"] == list(lock_of(tmp_path))
    assert "prefold" not in run(source()).stdout.partition("plugins")[2].partition("2 passed")[0]


def test_a_change_fails_with_the_place_and_the_cause(run: Run, tmp_path: Path) -> None:
    run(source(), "--prefold-update")
    before = lock_of(tmp_path)
    said = run(source(tools=[TOOLS[1], TOOLS[0], TOOLS[2]]), expect=1).stdout
    for expected in (
        "The prefix 'support' changed.",
        f"fingerprint  {str(before['support']['fingerprint'])[:16]} -> pf1:",
        "where        tools[0], character 9",
        'before       {"name":"|search"',
        'after        {"name":"|open"',
        "cause        tool_order: ",
        "tools not sorted: 3 tools are the same, in another order",
        "template version: no",
        "If this is meant, accept it: pytest --prefold-update 'test_prompts.py::test_support'",
        "1 failed, 1 passed",
    ):
        assert expected in said
    assert "plugin.py" not in said  # no lines of our own code
    assert before == lock_of(tmp_path)


def test_a_change_is_accepted_and_others_stay(run: Run, tmp_path: Path) -> None:
    run(source(), "--prefold-update")
    before = lock_of(tmp_path)
    said = run(source(system="你是客服。规则一：简短。"), "--prefold-update", "-k", "support").stdout
    assert f"accepted support: {str(before['support']['fingerprint'])[:16]} -> pf1:" in said
    after = lock_of(tmp_path)
    assert before["triage"] == after["triage"]
    assert before["support"] != after["support"]
    assert "你是客服。规则一：简短。" in (tmp_path / "prefold.lock.json").read_text("utf-8")
    run(source(system="你是客服。规则一：简短。"))


def test_updates_are_refused_under_ci(run: Run, tmp_path: Path) -> None:
    said = run(source(), "--prefold-update", environment={"CI": "true"}, expect=4).stderr
    assert "ERROR: --prefold-update writes nothing under CI, where the variable CI is set." in said
    assert "Traceback" not in said
    assert not (tmp_path / "prefold.lock.json").exists()
    run(source(), "--prefold-update", environment={"CI": "false"})
    run(source(), environment={"CI": "true"})


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("is not valid JSON", "{"),
        ("has the schema version 9, and this prefold knows 1.", '{"schema_version": 9}'),
        ("holds a merge conflict in line 2.", "{\n<<<<<<< HEAD\n=======\n>>>>>>> branch\n}"),
    ],
)
def test_a_damaged_lock_file_is_named_and_stays(message: str, text: str, run: Run, tmp_path: Path) -> None:
    lock = tmp_path / "prefold.lock.json"
    lock.write_text(text)
    for arguments in ((), ("--prefold-update",)):
        said = run(source(), *arguments, expect=1).stdout
        assert f"{lock} {message}" in said
        assert "Traceback" not in said
        assert text == lock.read_text()


def test_a_builder_is_called_twice(run: Run, tmp_path: Path) -> None:
    code = """
import itertools

numbers = itertools.count(1)

def test_stable(prefix_lock):
    prefix_lock("stable", lambda: {"system": "Rules.", "messages": []})

def test_counting(prefix_lock):
    prefix_lock("counting", lambda: f"Request 00000000-0000-4000-8000-{next(numbers):012}. Rules.")
"""
    for arguments in (("--prefold-update",), ()):
        said = run(code, *arguments, expect=1).stdout
        assert "The prefix 'counting' is not the same when it is built twice." in said
        assert "cause        identifier: " in said
        assert "clock or id: 00000000-0000-4000-8000-000000000002 (uuid) in prompt, character 8" in said
        assert ["stable"] == list(lock_of(tmp_path))


def test_what_may_not_stay_is_said_when_it_is_accepted(run: Run) -> None:
    said = run(source(system="Today is 2026-11-30."), "--prefold-update").stdout
    assert "; 2026-11-30 (date) in system, character 9 may not stay" in said


def test_bodies_prompts_parts_and_dialects(run: Run, tmp_path: Path) -> None:
    code = """
from prefold.prompts.prompt import Prompt

BODY = {"model": "gpt-5.2", "messages": [{"role": "system", "content": "Rules"}, {"role": "user", "content": "Hi"}]}

def test_all(prefix_lock):
    prefix_lock("body", BODY)
    prefix_lock("prompt", Prompt.of(BODY), part="system")
    prefix_lock("whole", BODY, part="whole")
    prefix_lock("gemini", {"systemInstruction": "Rules"}, dialect="gemini")
"""
    run(code, "--prefold-update")
    run(code)
    found = lock_of(tmp_path)
    assert found["body"]["fingerprint"] == found["prompt"]["fingerprint"] != found["whole"]["fingerprint"]
    assert ["openai", "openai", "openai", "gemini"] == [
        found[name]["dialect"] for name in ("body", "prompt", "whole", "gemini")
    ]


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("is given as nothing", 'prefix_lock("x")'),
        ("is given twice", 'prefix_lock("x", "text", system="text")'),
        ("There is no part 'half'.", 'prefix_lock("x", "text", part="half")'),
        ("There is no dialect 'klingon'.", 'prefix_lock("x", {}, dialect="klingon")'),
        ("cannot be of the type int", 'prefix_lock("x", 3)'),
        ("The body cannot be written as JSON", 'prefix_lock("x", system=[object()])'),
        ("unexpected keyword argument", 'prefix_lock("x", sytem="text")'),
    ],
)
def test_wrong_use_fails_with_a_reason(message: str, call: str, run: Run) -> None:
    assert message in run(f"def test_it(prefix_lock):\n    {call}\n", expect=1).stdout


def test_the_lock_file_can_be_elsewhere(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nprefold_lock = prompts.json\n")
    run(source(), "--prefold-update")
    assert ["support", "triage"] == list(json.loads((tmp_path / "prompts.json").read_text("utf-8"))["prefixes"])


def test_workers_of_xdist_lose_nothing_and_report(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    code = """
import pytest

@pytest.mark.parametrize("number", range(12))
def test_many(prefix_lock, number):
    prefix_lock(f"prefix-{number:02}", f"Rules {number}")
"""
    said = run(code, "--prefold-update", "-p", "xdist", "-n", "2").stdout
    assert [f"prefix-{number:02}" for number in range(12)] == list(lock_of(tmp_path))
    assert 12 == said.count("accepted prefix-")
    run(code, "-p", "xdist", "-n", "2")


def test_loading_the_plugin_imports_nothing_else() -> None:
    program = """
import sys, pytest
before = set(sys.modules)
import prefold.testing.plugin
print(*sorted(name for name in set(sys.modules) - before if name.partition(".")[0] not in sys.stdlib_module_names))
"""
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert ["prefold", "prefold.testing", "prefold.testing.plugin"] == loaded.split()
