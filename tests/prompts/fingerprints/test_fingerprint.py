"""Stable prefixes, their fingerprints, the lock file, and what is said about a change."""

import json
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.errors import InvalidRequest, UsageError
from prefold.prompts.fingerprints.changes import change_between, change_since, excerpt
from prefold.prompts.fingerprints.fingerprint import Part, fingerprint_of, prefix_of, read_prefix, shortened
from prefold.prompts.fingerprints.lock import Entry, Lock, LockFile
from prefold.prompts.prompt import Dialect, Prompt

SYSTEM = "You are a support agent.\nBe brief."
TOOLS = [
    {"name": "search_orders", "description": "Find orders.", "input_schema": {"type": "object", "properties": {}}},
    {"name": "create_ticket", "description": "Open a ticket.", "input_schema": {"type": "object", "properties": {}}},
    {"name": "read_policy", "description": "Read a policy.", "input_schema": {"type": "object", "properties": {}}},
]
EXAMPLES = [{"role": "user", "content": "Where is order 7?"}, {"role": "assistant", "content": "On its way."}]
QUESTION = {"role": "user", "content": "And order 8?"}
BODY = {"model": "claude-sonnet-4-5", "tools": TOOLS, "system": SYSTEM, "messages": [*EXAMPLES, QUESTION]}


def prefix(**fields: Any) -> Prompt:
    """A prefix of Anthropic's form."""
    return prefix_of(fields, Part.WHOLE, Dialect.ANTHROPIC)


def suspected(before: Prompt, after: Prompt) -> dict[str, str]:
    """The suspects that are not innocent, with the evidence."""
    change = change_between(before, after)
    assert change is not None
    return {suspect.name: suspect.evidence for suspect in change.suspects if suspect.evidence}


# ---------------------------------------------------------------------------------------------------------- prefixes


@pytest.mark.parametrize(
    ("expected", "part"),
    [
        ({"system": SYSTEM}, Part.SYSTEM),
        ({"tools": TOOLS}, Part.TOOLS),
        ({"tools": TOOLS, "system": SYSTEM, "messages": EXAMPLES}, Part.PREFIX),
        ({"tools": TOOLS, "system": SYSTEM, "messages": [*EXAMPLES, QUESTION]}, Part.WHOLE),
    ],
)
def test_a_part_of_a_body(expected: dict[str, Any], part: Part) -> None:
    assert expected == prefix_of(BODY, part).value


@pytest.mark.parametrize(
    ("expected", "body"),
    [
        (
            {"messages": [{"role": "developer", "content": "Rules"}]},
            {"messages": [{"role": "developer", "content": "Rules"}, QUESTION]},
        ),
        ({"instructions": "Rules"}, {"instructions": "Rules", "input": "Hello"}),
        (
            {"systemInstruction": {"parts": [{"text": "Rules"}]}},
            {"systemInstruction": {"parts": [{"text": "Rules"}]}, "contents": [{"parts": [{"text": "Hello"}]}]},
        ),
        (
            {"system": [{"text": "Rules"}]},
            {"modelId": "x", "system": [{"text": "Rules"}, {"cachePoint": {"type": "default"}}], "messages": []},
        ),
    ],
    ids=["openai", "responses", "gemini", "bedrock"],
)
def test_the_system_prompt_in_every_dialect(expected: dict[str, Any], body: dict[str, Any]) -> None:
    assert expected == prefix_of(body, Part.SYSTEM).value


def test_plain_text_and_bodies_of_prefixes_only() -> None:
    assert {"prompt": "规则：简短。"} == read_prefix("规则：简短。".encode(), Part.PREFIX).value
    assert Dialect.ANTHROPIC is prefix_of({"system": "x"}, Part.PREFIX).dialect


@pytest.mark.parametrize(
    ("message", "body", "part"),
    [
        ("no tools", {"system": "x", "messages": []}, Part.TOOLS),
        ("no system", {"model": "gpt-5.2", "messages": [QUESTION]}, Part.SYSTEM),
        ("nothing that stays", {"messages": [QUESTION]}, Part.PREFIX),
        ("cannot be written as JSON", {"system": object()}, Part.PREFIX),
    ],
)
def test_a_body_without_the_part_is_an_error(message: str, body: dict[str, Any], part: Part) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        prefix_of(body, part)
    assert caught.value.hint


# ------------------------------------------------------------------------------------------------------ fingerprints


def test_golden_fingerprints() -> None:
    """These never change: lock files out there hold such values. A change needs a new version in the encoding."""
    assert {
        "text": "pf1:d1a01379452b0e5a15063a4d248d86d318b9c7d4f92dbc6b5bdb6c809bb7eec6",
        "body": "pf1:80eaadb77c736932b1473ea4cc1a5ac2b04fc68e10b09a9a3dc3d4cc8a7573d3",
    } == {
        "text": fingerprint_of(prefix_of("You are a support agent. 规则\n", Part.WHOLE)),
        "body": fingerprint_of(prefix_of(BODY, Part.WHOLE)),
    }
    assert "pf1:0123456789ab" == shortened("pf1:0123456789abcdef")


def test_what_the_model_does_not_read_makes_no_difference() -> None:
    spaced = json.dumps({**BODY, "model": "another", "temperature": 0.5}, indent=4).encode()
    marked = {**BODY, "tools": [*TOOLS[:-1], {**TOOLS[-1], "cache_control": {"type": "ephemeral"}}]}
    tuples = {**BODY, "tools": tuple(TOOLS)}
    expected = fingerprint_of(prefix_of(BODY, Part.PREFIX))
    assert expected == fingerprint_of(read_prefix(spaced, Part.PREFIX))
    assert expected == fingerprint_of(prefix_of(marked, Part.PREFIX))
    assert expected == fingerprint_of(prefix_of(tuples, Part.PREFIX))


@pytest.mark.parametrize(
    "body",
    [
        {**BODY, "system": SYSTEM + " "},
        {**BODY, "system": SYSTEM.replace("\n", "\r\n")},
        {**BODY, "tools": TOOLS[::-1]},
        {**BODY, "tools": [dict(reversed(TOOLS[0].items())), *TOOLS[1:]]},
        {**BODY, "messages": [{"role": "user", "content": "Where is order 7?On its way."}, EXAMPLES[1]]},
    ],
    ids=["space", "line end", "tool order", "key order", "where a message ends"],
)
def test_what_the_model_reads_makes_a_difference(body: dict[str, Any]) -> None:
    assert fingerprint_of(prefix_of(BODY, Part.PREFIX)) != fingerprint_of(prefix_of(body, Part.PREFIX))


# ----------------------------------------------------------------------------------------------------- the lock file

TEXTS = st.text(st.characters(codec=None), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.just("lines") | TEXTS, inner, max_size=3)
        | st.fixed_dictionaries({"lines": inner})
    ),
    max_leaves=8,
)


@given(TEXTS, st.lists(st.dictionaries(st.just("lines") | TEXTS, VALUES, max_size=3), max_size=3))
def test_what_is_written_is_what_is_read(text: str, tools: list[dict[str, Any]]) -> None:
    entry = Entry.of("any", prefix(system=text, tools=tools), Part.WHOLE)
    written = Lock({"any": entry}).format()
    read = Lock.parse(written.encode(errors="backslashreplace").decode(), "lock").entries["any"]
    assert entry.fingerprint == read.fingerprint == fingerprint_of(read.prefix)
    assert written == Lock({"any": read}).format()


def test_the_file_is_text_with_a_line_for_each_line(tmp_path: Path) -> None:
    file = LockFile(tmp_path / "prefold.lock.json")
    file.accept([Entry.of("support", prefix(system="规则一\n规则二"), Part.PREFIX, "prompts/support.json")])
    file.accept([Entry.of("answer", prefix(system="Yes."), Part.PREFIX)])
    lines = file.path.read_text(encoding="utf-8").splitlines()
    assert ['      "规则一\\n",', '      "规则二"'] == [line for line in lines if "规则" in line]
    assert ["answer", "support"] == list(file.read().entries)
    assert ["prefold.lock.json"] == [path.name for path in tmp_path.iterdir()]  # neither draft nor lock is left


def test_entries_are_replaced_and_removed(tmp_path: Path) -> None:
    file = LockFile(tmp_path / "lock")
    old, new = (Entry.of("a", prefix(system=text), Part.WHOLE) for text in ("old", "new"))
    file.accept([old, Entry.of("b", prefix(system="b"), Part.WHOLE)])
    file.accept([new])
    assert new.fingerprint == file.read().entries["a"].fingerprint
    file.remove(["a", "unknown"])
    assert ["b"] == list(file.read().entries)


WRITER = """
import sys
from pathlib import Path

from prefold.prompts.fingerprints.fingerprint import Part, prefix_of
from prefold.prompts.fingerprints.lock import Entry, LockFile

for index in range(10):
    name = f"{sys.argv[2]}-{index}"
    LockFile(Path(sys.argv[1])).accept([Entry.of(name, prefix_of(name, Part.WHOLE), Part.WHOLE)])
"""


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(writer)]) for writer in range(3)]
    assert [0, 0, 0] == [writer.wait(timeout=60) for writer in writers]
    assert {f"{writer}-{index}" for writer in range(3) for index in range(10)} == set(LockFile(path).read().entries)


WRITTEN = Lock({"a": Entry.of("a", prefix(system="a"), Part.WHOLE)}).format()


@pytest.mark.parametrize(
    ("message", "hint", "text"),
    [
        ("is not valid JSON: .* in line 1, column 1", "version control", "pf1"),
        ("is not valid JSON", "version control", WRITTEN[:40]),
        ("merge conflict in line 3", "--prefold-update", WRITTEN.replace(' "pre', '<<<<<<< HEAD\n "pre', 1)),
        ("schema version 2, and this prefold knows 1", "Update prefold", '{"schema_version": 2, "prefixes": {}}'),
        ("is not a lock file of prefold", "version control", '{"schema_version": "1"}'),
        ("is not a lock file of prefold", "version control", "[]"),
        ("'a' is there twice", "version control", '{"schema_version": 1, "prefixes": {"a": 1, "a": 2}}'),
        ("an entry 'a' that is incomplete", "version control", '{"schema_version": 1, "prefixes": {"a": {}}}'),
        ("an entry 'a' that is incomplete", "version control", WRITTEN.replace("anthropic", "klingon")),
        ("an entry 'a' that is incomplete", "version control", WRITTEN.replace('"whole"', '"half"')),
        ("cannot be read", "version control", "[" * 100_000),
    ],
)
def test_a_damaged_lock_file_is_an_error_and_stays(message: str, hint: str, text: str, tmp_path: Path) -> None:
    file = LockFile(tmp_path / "lock")
    file.path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message) as caught:
        file.accept([Entry.of("b", prefix(system="b"), Part.WHOLE)])
    assert hint in caught.value.hint
    assert text == file.path.read_text(encoding="utf-8")


def test_binary_files_missing_folders_and_bad_names(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8 text: byte 0"):
        LockFile(tmp_path / "binary").read()
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        LockFile(tmp_path).read()
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        LockFile(tmp_path / "no" / "lock").accept([Entry.of("a", prefix(system="a"), Part.WHOLE)])
    for name in ("", " ", "two\nlines"):
        with pytest.raises(UsageError, match="is not a name"):
            Entry.of(name, prefix(system="a"), Part.WHOLE)


# ------------------------------------------------------------------------------------------------------------ changes


def test_no_change() -> None:
    assert change_between(prefix(system="a"), prefix(system="a")) is None
    assert change_since(Entry.of("a", prefix(system="a"), Part.WHOLE), prefix(system="a")) is None


def test_a_change_names_place_text_and_cause() -> None:
    before, after = prefix(system=f"Today is 2026-11-01. {SYSTEM}"), prefix(system=f"Today is 2026-11-02. {SYSTEM}")
    change = change_between(before, after)
    assert change is not None
    assert (fingerprint_of(before), fingerprint_of(after)) == (change.old, change.new)
    assert ("system", 18, "clock") == (str(change.path), change.char, change.cause)
    assert ("Today is 2026-11-0|1. You are a support age…", "Today is 2026-11-0|2. You are a support age…") == (
        change.before,
        change.after,
    )
    assert change.lost_tokens > 0
    assert json.loads(json.dumps(change.as_json()))["suspects"][0]["name"] == "clock or id"
    assert change.lines()[1] == "where        system, character 18"


@pytest.mark.parametrize(
    ("path", "cause", "before", "after"),
    [
        ("tools[3]", "tool_set", {"tools": TOOLS, "system": SYSTEM}, {"tools": [*TOOLS, {"name": "x"}], "system": "x"}),
        ("tools[2]", "tool_set", {"tools": TOOLS, "system": SYSTEM}, {"tools": TOOLS[:2], "system": SYSTEM}),
        ("tools[2]", "tool_set", {"tools": TOOLS}, {"tools": TOOLS[:2]}),
        ("messages[2]", "none", {"messages": EXAMPLES}, {"messages": [*EXAMPLES, *EXAMPLES]}),
        ("messages[1]", "text_edit", {"messages": EXAMPLES}, {"messages": EXAMPLES[:1]}),
        ("messages[0]", "text_edit", {"messages": [QUESTION]}, {"messages": EXAMPLES[:1]}),
        ("messages[0]", "text_edit", {"messages": [QUESTION]}, {"messages": [{**QUESTION, "role": "assistant"}]}),
        (
            "system[0]",
            "text_edit",
            {"system": [{"type": "text", "text": "规则甲"}]},
            {"system": [{"type": "text", "text": "规则乙"}]},
        ),
    ],
    ids=[
        "tool added",
        "tool removed",
        "last tool removed",
        "example added",
        "example removed",
        "other last words",
        "another speaker",
        "Chinese",
    ],
)
def test_place_and_cause_of_a_change(path: str, cause: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    change = change_between(prefix(**before), prefix(**after))
    assert change is not None
    assert (path, cause) == (str(change.path), change.cause)
    assert cause != "none" or 0 == change.lost_tokens


BREAKS = Path(__file__).parents[4] / "shared" / "data" / "breaks"


@pytest.mark.skipif(not BREAKS.is_dir(), reason="the shared cases are not here")
@pytest.mark.parametrize(
    "case",
    [
        "clock_first",
        "openai_date_at_end_of_system",
        "request_id",
        "schema_key_order",
        "tool_added",
        "tool_order",
        "whitespace",
        "number_format",
    ],
)
def test_the_shared_cases(case: str) -> None:
    content = json.loads((BREAKS / f"{case}.json").read_text(encoding="utf-8"))
    before, after = (prefix_of(content[side], Part.WHOLE) for side in ("before", "after"))
    change = change_between(before, after)
    assert change is not None
    assert (content["expect"]["path"], content["expect"]["cause"]) == (str(change.path), change.cause)


@pytest.mark.parametrize("case", ["model_switch", "expired"])
@pytest.mark.skipif(not BREAKS.is_dir(), reason="the shared cases are not here")
def test_shared_cases_in_which_the_prefix_stays(case: str) -> None:
    content = json.loads((BREAKS / f"{case}.json").read_text(encoding="utf-8"))
    before, after = (prefix_of(content[side], Part.SYSTEM) for side in ("before", "after"))
    assert fingerprint_of(before) == fingerprint_of(after)


def test_another_speaker_is_shown() -> None:
    change = change_between(prefix(messages=[QUESTION]), prefix(messages=[{**QUESTION, "role": "assistant"}]))
    assert change is not None
    assert ("(user) |And order 8?", "(assistant) |And order 8?") == (change.before, change.after)


ROLES = st.sampled_from(["user", "assistant"])
MESSAGES = st.lists(st.fixed_dictionaries({"role": ROLES, "content": TEXTS}), min_size=1, max_size=4)


@given(MESSAGES, MESSAGES)
def test_every_change_has_a_place(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    before, after = prefix(messages=one), prefix(messages=other)
    change = change_between(before, after)
    assert (fingerprint_of(before) == fingerprint_of(after)) is (change is None)
    assert change is None or change.lines()[1].startswith("where        messages[")


def test_a_text_that_is_not_that_of_its_fingerprint_is_not_compared() -> None:
    entry = Entry("a", "pf1:" + "0" * 64, Part.WHOLE, 1, None, prefix(system="merged"))
    change = change_since(entry, prefix(system="now"))
    assert change is not None
    assert change.path is None
    assert "not that of its fingerprint" in change.lines()[-1]


@pytest.mark.parametrize(
    ("expected", "text", "char"),
    [
        ("a|·b", "a b", 1),
        ("a|⏎b", "a\nb", 1),
        ("a|␍⏎b", "a\r\nb", 1),
        ("one two·|<U+200B>three", "one two \u200bthree", 8),
        ("a|⍽b", "a\u00a0b", 1),
        ("Cafe|<U+0301>", unicodedata.normalize("NFD", "Café"), 4),
        ("客服|规则", "客服规则", 2),
        ("end|", "end", 3),
        ("…" + "x" * 24 + "|" + "y" * 24 + "…", "x" * 30 + "y" * 30, 30),
    ],
)
def test_an_excerpt_shows_what_cannot_be_seen(expected: str, text: str, char: int) -> None:
    assert expected == excerpt(text, char)


@pytest.mark.parametrize(
    ("suspect", "evidence", "before", "after"),
    [
        (
            "clock or id",
            "2026-11-02 (date) in system, character 9",
            {"system": "Today is 2026-11-01."},
            {"system": "Today is 2026-11-02."},
        ),
        (
            "clock or id",
            "(uuid) in system",
            {"system": "Session 3f2b8f1e-6c1d-4e4b-9d55-0c9f6f7f0a11. 规则"},
            {"system": "Session 7a2b8f1e-6c1d-4e4b-9d55-0c9f6f7f0a22. 规则"},
        ),
        ("tools not sorted", "3 tools are the same", {"tools": TOOLS}, {"tools": [TOOLS[2], *TOOLS[:2]]}),
        ("tools not sorted", "2 tools are the same", {"tools": TOOLS}, {"tools": [TOOLS[1], TOOLS[0]]}),
        (
            "JSON parameters",
            "tools[0] holds the same JSON value with another order of keys",
            {"tools": TOOLS},
            {"tools": [dict(reversed(TOOLS[0].items())), *TOOLS[1:]]},
        ),
        (
            "JSON parameters",
            "numbers written otherwise",
            {"tools": [{"name": "x", "maximum": 10}]},
            {"tools": [{"name": "x", "maximum": 10.0}]},
        ),
        (
            "JSON parameters",
            "system holds the same JSON value with other spacing or escapes",
            {"system": 'Rules: {"语言": "中文", "n": [1, 2]} End'},
            {"system": "Rules: " + json.dumps({"语言": "中文", "n": [1, 2]}, separators=(",", ":")) + " End"},
        ),
        (
            "JSON parameters",
            "another order of keys",
            {"system": 'In {braces} {"a": 1, "b": 2} and {"c": 3}'},
            {"system": 'In {braces} {"b": 2, "a": 1} and {"c": 3}'},
        ),
        (
            "template version",
            "'version 3' was replaced by 'version 4'",
            {"system": "Support agent, version 3. Be brief."},
            {"system": "Support agent, version 4. Be brief."},
        ),
        (
            "template version",
            "'版本：3' was replaced by '版本：4'",
            {"system": "版本：3 规则"},
            {"system": "版本：4 规则"},
        ),
    ],
)
def test_a_suspect_is_found_alone(suspect: str, evidence: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    found = suspected(prefix(**before), prefix(**after))
    assert [suspect] == list(found)
    assert evidence in found[suspect]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"system": "Be brief. Knowledge until 2024-06-01."}, {"system": "Be short. Knowledge until 2024-06-01."}),
        ({"tools": TOOLS}, {"tools": [*TOOLS, {"name": "zoom"}]}),
        ({"tools": TOOLS}, {"tools": TOOLS[:1]}),
        ({"system": 'Use {"a": 1}'}, {"system": 'Use {"a": 2}'}),
        ({"system": "Version 3 of the rules: be brief"}, {"system": "Version 3 of the rules: be kind"}),
    ],
    ids=["old date", "tool added", "tools removed", "other JSON", "same version"],
)
def test_suspects_are_innocent(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert {} == suspected(prefix(**before), prefix(**after))


@given(TEXTS, TEXTS)
def test_the_place_is_the_first_difference(one: str, other: str) -> None:
    before, after = prefix(system=one), prefix(system=other)
    one, other = before.segments[0].text, after.segments[0].text
    change = change_between(before, after)
    assert (one == other) is (change is None)
    if change is not None:
        assert one[: change.char] == other[: change.char]
        assert one[change.char : change.char + 1] != other[change.char : change.char + 1]
