"""`prefold diff`."""

import json
from pathlib import Path
from typing import Any

import pytest

RULES = "Check the handbook before you answer. " * 200


def body(system: str = RULES, *more: str) -> dict[str, Any]:
    messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(("Hi.", *more))]
    marked = [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}]
    return {"model": "claude-sonnet-4-5", "max_tokens": 9, "system": marked, "messages": messages}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    first, second = body(f"Now: 10:15\n{RULES}"), body(f"Now: 10:16\n{RULES}", "Yes?", "Where?")
    (tmp_path / "a.json").write_text(json.dumps(first))
    (tmp_path / "b.json").write_text(json.dumps(second, indent=2))
    records = [
        {"timestamp": "2026-03-04T10:15:00Z", "request": first},
        {"timestamp": "2026-03-04T10:16:00Z", "request": second},
    ]
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return tmp_path


def report(prefold, *arguments: str, code: int = 1, **options: Any) -> dict[str, Any]:
    finished = prefold("diff", *arguments, "--json", check=code, **options)
    shown: dict[str, Any] = json.loads(finished.stdout)
    assert 1 == shown["schema_version"]
    return shown


def test_two_files(prefold, files: Path) -> None:
    shown = report(prefold, "a.json", "b.json")
    assert ("clock", "system[0]") == (shown["cause"], shown["path"])
    assert shown["gain_tokens"] > 1024
    assert "10:15" in shown["before"]
    assert "10:16" in shown["after"]


def test_the_table_says_the_same(prefold, files: Path) -> None:
    finished = prefold("diff", "a.json", "b.json", check=1)
    assert finished.stdout.startswith("clock at system[0]\n")
    for row in ("before", "after", "position", "lost", "fix", "gain"):
        assert f"\n{row} " in finished.stdout


@pytest.mark.parametrize("arguments", [["log.jsonl"], ["log.jsonl:1", "log.jsonl:2"], ["a.json", "log.jsonl:2"]])
def test_lines_of_a_log(prefold, files: Path, arguments: list[str]) -> None:
    assert "clock" == report(prefold, *arguments)["cause"]


def test_standard_input(prefold, files: Path) -> None:
    assert "clock" == report(prefold, "a.json", "-", stdin=(files / "b.json").read_text())["cause"]
    assert "clock" == report(prefold, "-", stdin=(files / "log.jsonl").read_text())["cause"]


def test_growth_ends_with_0(prefold, files: Path) -> None:
    (files / "c.json").write_text(json.dumps(body(f"Now: 10:15\n{RULES}", "Yes?", "Where?")))
    shown = report(prefold, "a.json", "c.json", code=0)
    assert ("none", None, 0) == (shown["cause"], shown["path"], shown["lost_tokens"])
    assert prefold("diff", "a.json", "c.json").stdout.startswith("No break: ")


def test_the_pause_is_the_logs_unless_it_is_given(prefold, files: Path) -> None:
    records = [
        {"timestamp": 1772615700, "request": body()},
        {"timestamp": 1772616700, "request": body(RULES, "Yes?", "Where?")},
    ]
    (files / "log.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert "expired" == report(prefold, "log.jsonl")["cause"]
    assert "none" == report(prefold, "log.jsonl", "--gap", "60", code=0)["cause"]


@pytest.mark.parametrize(("cached", "cause", "code"), [(0, "evicted", 1), (1152, "none", 0)])
def test_usage_in_a_log_tells_what_was_evicted(prefold, files: Path, cached: int, cause: str, code: int) -> None:
    def record(*more: str) -> dict[str, Any]:
        messages = [
            {"role": "system", "content": RULES},
            *({"role": "user", "content": text} for text in ("Hi.", *more)),
        ]
        usage = {"prompt_tokens": 1410, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": cached}}
        return {"request": {"model": "gpt-5.2", "messages": messages}, "response": {"usage": usage}}

    (files / "log.jsonl").write_text("\n".join(map(json.dumps, (record(), record("And?")))))
    assert cause == report(prefold, "log.jsonl", code=code)["cause"]


def test_another_cache_loses_other_tokens(prefold, files: Path) -> None:
    exact = report(prefold, "a.json", "b.json", "--provider", "prefold")
    assert exact["hit_tokens"] > 0
    assert 0 == report(prefold, "a.json", "b.json")["hit_tokens"]


def test_patched_prints_the_mended_request(prefold, files: Path) -> None:
    finished = prefold("diff", "a.json", "b.json", "--patched", check=1)
    mended = json.loads(finished.stdout)
    assert RULES.strip() == mended["system"][0]["text"].strip()
    assert "Now: 10:16" in mended["messages"][-1]["content"]
    assert finished.stdout.startswith('{\n  "model"')  # the rest keeps its bytes
    assert json.loads((files / "b.json").read_text()) == body(f"Now: 10:16\n{RULES}", "Yes?", "Where?")


@pytest.mark.parametrize("dialect", [None, "anthropic", "claude"])
def test_a_case_file(prefold, files: Path, dialect: str | None) -> None:
    case = {"before": body(), "after": body(RULES, "Yes?", "Where?"), "gap_seconds": 900}
    (files / "case.json").write_text(json.dumps(case if dialect is None else {**case, "dialect": dialect}))
    assert "expired" == report(prefold, "--case", "case.json")["cause"]


def test_plain_texts(prefold, files: Path) -> None:
    (files / "a.txt").write_text(f"Request 0b6f6a1c-98a1-4c39-b1a4-52d5b7f0c001\n{RULES}")
    (files / "b.txt").write_text(f"Request 77e2d9f4-1be0-4f6b-8f0d-9a7c3e21aa02\n{RULES}")
    shown = report(prefold, "a.txt", "b.txt")
    assert ("identifier", "prompt", 8) == (shown["cause"], shown["path"], shown["char"])


@pytest.mark.parametrize(
    ("arguments", "content", "message"),
    [
        ([], "", "There is nothing to compare."),
        (["a.json", "--case", "a.json"], "", "A case file holds both requests."),
        (["missing.json", "a.json"], "", "There is no file missing.json."),
        (["x", "a.json"], '{"messages": [\n  {"role" "user"}]}', "line 2, column 11"),
        (["x", "a.json"], "", "The body is empty."),
        (["x", "a.json"], "\x00\x01", "binary file"),
        (["x", "a.json"], "[" * 100_000, "nested too deeply"),
        (["x", "a.json"], '{"a":' * 100_000, "nested too deeply"),
        (["x", "a.json"], "[1]", "not a JSON object"),
        (["x", "a.json", "--dialect", "klingon"], "{}", "There is no dialect 'klingon'."),
        (["x", "a.json"], '{"messages": 3}', "messages is not a list of messages"),
        (["x"], "one\ntwo\nthree\n", "x has 3 lines, not two."),
        (["a.json:9", "b.json"], "", "a.json has 1 lines, not 9."),
        (["-", "-"], "", "Standard input can be one of the two only."),
        (["--case", "x"], "{}", "x has no before and after."),
        (["--case", "x"], '{"before": {}, "after": {}, "gap_seconds": "long"}', "gap_seconds is 'long'."),
        (["--case", "x"], '{"before": 1, "after": {}}', "before and after are requests."),
        (["a.json", "b.json", "--provider", "nobody"], "", "The provider 'nobody' is not known."),
        (["a.json", "b.json", "--gap", "-3"], "", "--gap"),
        ([".", "a.json"], "", ". cannot be read"),
    ],
)
def test_faults_end_with_2_and_a_hint(prefold, files: Path, arguments: list[str], content: str, message: str) -> None:
    (files / "x").write_text(content)
    finished = prefold("diff", *arguments, check=2)
    assert message in finished.stderr
    assert "hint: " in finished.stderr
    assert "Traceback" not in finished.stderr
    assert "" == finished.stdout


TEMPLATES = Path(__file__).parents[1] / "prompts" / "templates" / "folders"


def test_what_a_template_takes_out_counts(prefold, files: Path) -> None:
    first = {"messages": [{"role": "user", "content": "Bees?"}]}
    answer = {"role": "assistant", "content": "<think>\nThey want bees.\n</think>\n\nBees fly."}
    second = {"messages": [*first["messages"], answer, {"role": "user", "content": "Why?"}]}
    (files / "1.json").write_text(json.dumps(first))
    (files / "2.json").write_text(json.dumps(second))
    report(prefold, "1.json", "2.json", code=0)
    report(prefold, "1.json", "2.json", "--template", str(TEMPLATES / "plain"), code=0)
    shown = report(prefold, "1.json", "2.json", "--template", str(TEMPLATES / "forgets-thoughts"))
    assert ("text_edit", "messages[1]") == (shown["cause"], shown["path"])
    assert "Use a template" in shown["fix"]
    assert shown["lost_tokens"] > 0


def test_a_default_system_message_counts(prefold, files: Path) -> None:
    question = {"role": "user", "content": "Bees?"}
    (files / "1.json").write_text(json.dumps({"messages": [question]}))
    (files / "2.json").write_text(json.dumps({"messages": [{"role": "system", "content": "Be brief."}, question]}))
    shown = report(prefold, "1.json", "2.json", "--template", str(TEMPLATES / "default-system"))
    assert "template_default" == shown["cause"]


def test_a_folder_without_a_template(prefold, files: Path) -> None:
    assert "no chat template" in prefold("diff", "a.json", "b.json", "--template", ".", check=2).stderr
    assert "no folder nowhere" in prefold("diff", "a.json", "b.json", "--template", "nowhere", check=2).stderr


def test_an_entry_that_expired_has_no_position(prefold, tmp_path: Path) -> None:
    asked = [{"model": "gpt-4o", "messages": [{"role": "user", "content": f"{RULES}Question {n}"}]} for n in (1, 2)]
    (tmp_path / "case.json").write_text(json.dumps({"before": asked[0], "after": asked[1], "gap_seconds": 9e6}))
    finished = prefold("diff", "--case", "case.json", check=1)
    assert finished.stdout.startswith("expired\n")
    for row in ("before", "after", "position"):
        assert f"\n{row} " not in finished.stdout
