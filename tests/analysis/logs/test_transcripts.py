import io
import json
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from prefold.analysis.caches.named import named_rules
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.encode import Encoder
from prefold.analysis.logs.codex import Codex
from prefold.analysis.logs.formats import recognise
from prefold.analysis.logs.log import open_log
from prefold.analysis.logs.reader import BadLine, Head, Reader, Source
from prefold.analysis.logs.transcripts import ClaudeCode, _Session
from prefold.analysis.record import Body, Place, Record
from prefold.analysis.simulate import simulate
from prefold.prompts.prompt import Dialect
from prefold.providers.usage import Usage

MODEL = "claude-sonnet-4-5-20250929"


def lines(entries: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def read(reader: Reader, entries: Iterable[Any]) -> list[Record]:
    records = list(reader.read(Source("session.jsonl", io.BytesIO(lines(entries)))))
    return [record for record in records if isinstance(record, Record)]


def body(record: Record) -> dict[str, Any]:
    assert isinstance(record.content, Body)
    value: dict[str, Any] = json.loads(record.content.content)
    return value


def said(record: Record) -> list[tuple[str, list[str]]]:
    """The prompt as roles with the words of their blocks."""
    return [
        (message["role"], [str(block.get("text") or block.get("content") or block.get("id")) for block in blocks])
        for message in body(record)["messages"]
        for blocks in [message["content"]]
    ]


def entry(uuid: str, parent: str | None, second: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "sessionId": "s1",
        "type": kind,
        "uuid": uuid,
        "timestamp": f"2026-01-02T00:00:{second:02}.000Z",
        **fields,
    }


def user(uuid: str, parent: str | None, second: int, content: Any, **fields: Any) -> dict[str, Any]:
    return entry(uuid, parent, second, "user", message={"role": "user", "content": content}, **fields)


def result(uuid: str, parent: str, second: int, call: str) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": f"result of {call}"}
    return user(uuid, parent, second, [block], toolUseResult={"stdout": "never sent"})


def answer(
    uuid: str, parent: str | None, second: int, number: int, block: dict[str, Any], **fields: Any
) -> dict[str, Any]:
    usage = {
        "input_tokens": 4,
        "cache_read_input_tokens": 100 * number,
        "cache_creation_input_tokens": 20,
        "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 0},
        "output_tokens": second,
    }
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [block],
        "stop_reason": "tool_use" if block["type"] == "tool_use" else None,
        "usage": usage,
    }
    return entry(uuid, parent, second, "assistant", requestId=f"req_{number}", message=message, **fields)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(number: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": number, "name": "Bash", "input": {}}


TITLE = {"type": "summary", "summary": "A title", "leafUuid": "x"}
SNAPSHOT = {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}, "isSnapshotUpdate": False}
SESSION = [
    TITLE,
    SNAPSHOT,
    user("u1", None, 1, "Mend it"),
    answer("a1", "u1", 3, 1, text("I look.")),
    answer("a2", "a1", 4, 1, call("c1")),
    result("r1", "a2", 5, "c1"),
    answer("a3", "r1", 6, 1, call("c2")),  # of the same answer, though a result stands before it
    result("r2", "a3", 7, "c2"),
    entry("x1", "r2", 7, "system", subtype="informational", content="never sent"),
    answer("a4", "x1", 9, 2, text("Done.")),
    user("u2", "a4", 20, [text("Thanks"), text("!")]),
    answer("a5", "u2", 22, 3, text("Bye.")),
]


def test_an_answer_in_several_lines_is_one_request() -> None:
    first, second, third = read(ClaudeCode(), SESSION)
    assert [("user", ["Mend it"])] == said(first)
    assert [
        ("user", ["Mend it"]),
        ("assistant", ["I look.", "c1", "c2"]),
        ("user", ["result of c1", "result of c2"]),
    ] == said(second)
    assert [*said(second), ("assistant", ["Done."]), ("user", ["Thanks", "!"])] == said(third)
    assert [4, 10, 12] == [first.place.line, second.place.line, third.place.line]
    assert ["msg_1 req_1", "msg_2 req_2", "msg_3 req_3"] == [record.request_id for record in (first, second, third)]


def test_what_a_record_says() -> None:
    first, _, third = read(ClaudeCode(), SESSION)
    assert first.time is not None
    assert third.time is not None
    assert 19 == third.time - first.time  # from prompt to prompt
    assert (MODEL, "s1", "", "tool_use", 5.0) == (
        first.model,
        first.session,
        first.tenant,
        first.stop,
        first.duration,
    )
    # The counts of the last line are final.
    assert Usage(uncached=4, read=100, write=20, write_5m=20, output=6, is_reported=True) == first.usage
    assert (6, "I look.") == (first.output_tokens, first.answer)
    assert isinstance(first.content, Body)
    assert Dialect.ANTHROPIC is first.content.dialect


def test_the_marker_is_where_usage_says_that_something_was_cached() -> None:
    first, second, _ = read(ClaudeCode(), SESSION)
    marker = {"type": "ephemeral"}
    assert marker == body(first)["messages"][-1]["content"][-1]["cache_control"]
    assert ["cache_control" in block for block in body(second)["messages"][-1]["content"]] == [False, True]
    entries = json.loads(json.dumps(SESSION[2:4]))
    for change, expected in (
        ({"cache_creation": {"ephemeral_1h_input_tokens": 20}}, {**marker, "ttl": "1h"}),
        ({"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation": None}, None),
    ):
        entries[1]["message"]["usage"] |= change
        [record] = read(ClaudeCode(), entries)
        assert expected == body(record)["messages"][-1]["content"][-1].get("cache_control")


def test_prompts_go_on_byte_for_byte() -> None:
    *_, before, last = read(ClaudeCode(), SESSION)
    assert isinstance(before.content, Body)
    assert isinstance(last.content, Body)
    unmarked = before.content.content.replace(b',"cache_control":{"type":"ephemeral"}', b"")
    assert last.content.content.startswith(unmarked.removesuffix(b"]}]}"))


def test_parallel_calls() -> None:
    entries = [
        user("u1", None, 1, "Go"),
        answer("a1", "u1", 2, 1, call("c1")),
        answer("a2", "a1", 2, 1, call("c2")),
        result("r2", "a2", 3, "c2"),
        result("r1", "a1", 4, "c1"),
        answer("a3", "r1", 5, 2, text("Done.")),
    ]
    _, second = read(ClaudeCode(), entries)
    assert [("user", ["Go"]), ("assistant", ["c1", "c2"]), ("user", ["result of c2", "result of c1"])] == said(second)


def test_a_rewind_forgets_what_came_after() -> None:
    entries = [
        *SESSION,
        user("u3", "a4", 40, "Rather not"),  # instead of u2
        answer("a6", "u3", 41, 4, text("Fine.")),
    ]
    *_, last = read(ClaudeCode(), entries)
    assert ["Mend it"] == said(last)[0][1]
    assert [("assistant", ["Done."]), ("user", ["Rather not"])] == said(last)[-2:]


def test_a_retry_sends_the_same() -> None:
    entries = [
        user("u1", None, 1, "Go"),
        answer("a1", "u1", 2, 1, text("No.")),
        answer("a2", "u1", 3, 2, text("Yes.")),
    ]
    first, second = read(ClaudeCode(), entries)
    assert [("user", ["Go"])] == said(first) == said(second)


def test_subagents_and_compactions_begin_anew() -> None:
    entries = [
        *SESSION[:5],
        user("s1", None, 5, "Search", isSidechain=True, agentId="b7"),
        answer("s2", "s1", 6, 7, text("Found."), isSidechain=True, agentId="b7"),
        result("r1", "a2", 7, "c1"),
        answer("a3", "r1", 8, 2, text("Done.")),
        entry("c1", None, 9, "system", subtype="compact_boundary", logicalParentUuid="a3"),
        user("c2", "c1", 9, "Summary of all", isCompactSummary=True),
        answer("a4", "c2", 10, 3, text("On.")),
    ]
    first, inner, second, third = read(ClaudeCode(), entries)
    assert [("user", ["Search"])] == said(inner)
    assert ["s1", "s1 b7", "s1", "s1"] == [record.session for record in (first, inner, second, third)]
    assert ("user", ["result of c1"]) == said(second)[-1]
    assert [("user", ["Summary of all"])] == said(third)


def test_the_summary_of_a_compaction_is_sent() -> None:
    seen_only = {"isVisibleInTranscriptOnly": True}
    entries = [
        user("c1", None, 1, "Summary of all", isCompactSummary=True, **seen_only),
        user("c2", "c1", 2, "Only shown", **seen_only),
        user("c3", "c2", 3, "Go on"),
        answer("a1", "c3", 4, 1, text("On.")),
    ]
    [record] = read(ClaudeCode(), entries)
    assert [("user", ["Summary of all", "Go on"])] == said(record)


def used_by(entry: dict[str, Any], input_tokens: int, read: int, written: int) -> dict[str, Any]:
    entry["message"]["usage"] = {
        "input_tokens": input_tokens,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": 5,
    }
    return entry


HIDING = [
    user("u1", None, 1, "Mend it"),
    used_by(answer("a1", "u1", 2, 1, call("c1")), 4, 0, 15_000),
    user("s1", None, 3, "Search", isSidechain=True, agentId="b7"),
    used_by(answer("s2", "s1", 4, 7, text("Found."), isSidechain=True, agentId="b7"), 3, 0, 5_000),
    result("r1", "a1", 5, "c1"),
    used_by(answer("a2", "r1", 6, 2, text("Done.")), 5, 15_000, 100),
    user("c1", None, 9, "Summary of all", isCompactSummary=True, isVisibleInTranscriptOnly=True),
    used_by(answer("a3", "c1", 10, 3, text("On.")), 6, 15_000, 300),
]


def tokens_of(record: Record) -> int:
    return Encoder().encode(record).tokens


def test_a_text_stands_for_what_is_hidden() -> None:
    first, inner, second, third = read(ClaudeCode(), HIDING)
    [system] = body(first)["system"]
    assert system["text"].startswith("[hidden: system prompt and tools, about 15,000 tokens]")
    assert [system] == body(second)["system"] == body(third)["system"]
    assert body(inner)["system"][0]["text"].startswith("[hidden: system prompt and tools, about 5,000 tokens]")
    assert {"type": "ephemeral"} == system["cache_control"]
    shared = set(system["text"].split()) & set(body(inner)["system"][0]["text"].split())
    assert len(shared) < 100  # of 3,000 and more: one is no edit of the other
    for record, usage in ((first, 15_004), (inner, 5_003), (second, 15_105), (third, 15_306)):
        assert usage == pytest.approx(tokens_of(record), abs=300)


def test_a_transcript_is_simulated_as_it_was_sent() -> None:
    encoder = Encoder()
    requests = [encoder.encode(record) for record in read(ClaudeCode(), HIDING)]
    [row] = simulate(requests, [CacheSpec("own", named_rules("anthropic"))])
    assert 30_000 == pytest.approx(row.hit_tokens, rel=0.01)  # reported: 15,000 by the second and by the third
    assert 50_418 == pytest.approx(row.input_tokens, rel=0.01)


def test_nothing_is_hidden_where_nothing_says_so() -> None:
    unsaid = [used_by(json.loads(json.dumps(one)), 0, 0, 0) if one["type"] == "assistant" else one for one in HIDING]
    assert not any("system" in body(record) for record in read(ClaudeCode(), unsaid))
    absurd = [user("u1", None, 1, "Go"), used_by(answer("a1", "u1", 2, 1, text("Yes.")), 10**9, 0, 0)]
    assert ["system" in body(record) for record in read(ClaudeCode(), absurd)] == [False]


def test_usage_above_the_text_is_kept(tmp_path: Path) -> None:
    (tmp_path / "session.jsonl").write_bytes(lines(HIDING))
    log = open_log([str(tmp_path)])
    assert [15_004, 5_003, 15_105, 15_306] == [record.usage.input for record in log if record.usage]
    assert {} == dict(log.notes.problems)


def test_only_the_latest_branches_are_remembered() -> None:
    subagents = [
        one
        for number in range(100)
        for one in (
            user(f"s{number}", None, 1, f"Search {number}", isSidechain=True),
            answer(f"t{number}", f"s{number}", 2, number, text("Found."), isSidechain=True),
        )
    ]
    session = _Session(Source("session.jsonl", io.BytesIO()))
    records = [session.read(one, Place("session.jsonl", 1)) for one in subagents]
    assert 99 == sum(record is not None for record in records)
    assert 64 == len(session._branches) == len({*session._branch_of.values()})


def test_what_claude_code_writes_itself_is_no_answer() -> None:
    failure = answer("e1", "u1", 2, 9, text("API Error"))
    failure["message"]["model"] = "<synthetic>"
    entries = [user("u1", None, 1, "Go"), failure, user("u2", "e1", 5, "Again"), answer("a1", "u2", 6, 1, text("Yes."))]
    [record] = read(ClaudeCode(), entries)
    assert [("user", ["Go", "Again"])] == said(record)


def test_a_transcript_that_begins_in_the_middle() -> None:
    [record] = read(ClaudeCode(), SESSION[-3:])
    assert [("assistant", ["Done."]), ("user", ["Thanks", "!"])] == said(record)


def test_bad_entries() -> None:
    content = b"[]\n{\n" + lines([*SESSION, {"type": "user", "uuid": 5, "message": {"content": [None, {}, 3]}}])
    found = list(ClaudeCode().read(Source("session.jsonl", io.BytesIO(content))))
    assert 2 == sum(isinstance(one, BadLine) for one in found)
    assert 3 == sum(isinstance(one, Record) for one in found)


META = {
    "id": "t1",
    "cwd": "/x",
    "originator": "codex_cli",
    "cli_version": "0.128.0",
    "base_instructions": {"text": "Be good."},
}


def line(second: int, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": f"2026-01-02T00:00:{second:02}.000Z", "type": kind, "payload": payload}


def words(role: str, said: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": said}]}


def used(input_tokens: int, cached: int, output: int, total: int) -> dict[str, Any]:
    counts = {"input_tokens": input_tokens, "cached_input_tokens": cached, "output_tokens": output}
    info = {"last_token_usage": counts, "total_token_usage": {"total_tokens": total}, "model_context_window": 1}
    return {"type": "token_count", "info": info, "rate_limits": None}


ENVIRONMENT = words("user", "<environment_context>x</environment_context>")
ASKED = words("user", "Mend it")
THOUGHT = {"type": "reasoning", "summary": [], "encrypted_content": "abc"}
SHELL = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "fine"}
DONE = words("assistant", "Done.")
ROLLOUT = [
    line(0, "session_meta", META),
    line(0, "response_item", ENVIRONMENT),
    line(1, "response_item", ASKED),
    line(1, "event_msg", {"type": "user_message", "message": "Mend it"}),
    line(1, "turn_context", {"model": "gpt-5-codex", "cwd": "/x"}),
    line(1, "event_msg", {"type": "token_count", "info": None, "rate_limits": {}}),
    line(2, "response_item", THOUGHT),
    line(3, "response_item", SHELL),
    line(4, "event_msg", used(1000, 800, 50, 1050)),
    line(5, "response_item", OUTPUT),
    line(5, "event_msg", used(1000, 800, 50, 1050)),  # told again
    line(7, "response_item", DONE),
    line(8, "event_msg", used(1100, 1000, 5, 2155)),
]


def inputs(record: Record) -> list[Any]:
    found: list[Any] = body(record)["input"]
    return found


def test_codex() -> None:
    first, second = read(Codex(), ROLLOUT)
    assert [ENVIRONMENT, ASKED] == inputs(first)
    assert [ENVIRONMENT, ASKED, THOUGHT, SHELL, OUTPUT] == inputs(second)
    assert Usage(uncached=200, read=800, output=50, is_reported=True) == first.usage
    assert Usage(uncached=100, read=1000, output=5, is_reported=True) == second.usage
    assert ("gpt-5-codex", "t1", "tool_call", 2.0, None, 7) == (
        first.model,
        first.session,
        first.stop,
        first.duration,
        first.answer,
        first.place.line,
    )
    assert ("completed", 2.0, "Done.") == (second.stop, second.duration, second.answer)
    assert first.time is not None
    assert second.time is not None
    assert 4 == second.time - first.time


def test_instructions_of_codex_stand_behind_what_is_hidden() -> None:
    for instructions, title in (("Be good.", "tools"), (None, "system prompt and tools")):
        meta = line(0, "session_meta", {**META, "base_instructions": instructions})
        first, second = read(Codex(), [meta, *ROLLOUT[1:]])
        hidden = body(first)["instructions"]
        assert hidden.startswith(f"[hidden: {title}, about 1,000 tokens]")
        assert hidden.endswith(f"\n\n{instructions}") == bool(instructions)
        assert hidden == body(second)["instructions"]
        assert 1000 == pytest.approx(tokens_of(first), rel=0.3)  # the size is rounded
    unused = [entry for entry in ROLLOUT if entry["payload"].get("type") != "token_count"]
    assert ["Be good.", "Be good."] == [body(record)["instructions"] for record in read(Codex(), unused)]


def test_what_a_fork_repeats_counts_once(tmp_path: Path) -> None:
    fork_meta = line(30, "session_meta", {**META, "id": "t2", "forked_from_id": "t1"})
    grand_meta = line(40, "session_meta", {**META, "id": "t3", "forked_from_id": "t2"})
    own = [
        line(31, "response_item", words("user", "More")),
        line(32, "response_item", words("assistant", "Right.")),
        line(33, "event_msg", used(1200, 1100, 5, 3360)),
    ]
    last = [line(43, "response_item", words("user", "Less")), line(44, "response_item", words("assistant", "Well."))]
    copied = [{**entry, "timestamp": "2026-01-02T00:00:30.000Z"} for entry in ROLLOUT]
    for number, entries in enumerate(
        (ROLLOUT, [fork_meta, *copied, *own], [grand_meta, fork_meta, *copied, *own, *last]), start=1
    ):
        (tmp_path / f"{number}.jsonl").write_bytes(lines(entries))
    log = open_log([str(tmp_path)])
    assert [("t1", 2), ("t1", 5), ("t2", 7), ("t3", 9)] == [(record.session, len(inputs(record))) for record in log]
    assert 5 == log.notes.problems["duplicate"]


@pytest.mark.parametrize("usage", [None, {"input_tokens": 900, "cached_input_tokens": 0, "output_tokens": 1}])
def test_turns_with_the_same_answer_are_several_requests(tmp_path: Path, usage: dict[str, int] | None) -> None:
    counted = {"type": "token_count", "info": usage and {"last_token_usage": usage}}
    turns = [
        line(second, kind, payload)
        for second in range(2, 7)
        for kind, payload in (
            ("response_item", ASKED),
            ("response_item", words("assistant", "ok")),
            ("event_msg", counted),
        )
    ]
    rolled_back = [line(8, "event_msg", {"type": "thread_rolled_back", "num_turns": 1}), *turns[:3]]
    meta = line(9, "session_meta", {**META, "id": "t2", "forked_from_id": "t1"})
    rollout = [*ROLLOUT[:2], *turns, *rolled_back]
    (tmp_path / "1.jsonl").write_bytes(lines(rollout))
    (tmp_path / "2.jsonl").write_bytes(lines([meta, *rollout]))
    log = open_log([str(tmp_path)])
    assert [2, 4, 6, 8, 10, 10] == [len(inputs(record)) for record in log]
    assert 6 == log.notes.problems["duplicate"]


def test_early_rollouts_count_before_the_items() -> None:
    start, counts = ROLLOUT[:6], [ROLLOUT[8], ROLLOUT[12]]
    first, second = read(Codex(), [*start, counts[0], *ROLLOUT[6:8], ROLLOUT[9], counts[1], ROLLOUT[11]])
    assert [50, 5] == [record.output_tokens for record in (first, second)]
    assert [2, 5] == [len(inputs(record)) for record in (first, second)]


def test_a_rollout_without_counts() -> None:
    kept = [entry for entry in ROLLOUT if entry["payload"].get("type") != "token_count"]
    records = read(Codex(), kept)
    assert [None, None] == [record.usage for record in records]
    assert [2, 5] == [len(inputs(record)) for record in records]


def test_another_model_answers_only_what_is_sent_to_it() -> None:
    records = read(
        Codex(),
        [
            *ROLLOUT,
            line(20, "response_item", words("user", "More")),
            line(20, "turn_context", {"model": "gpt-5-mini"}),
            line(21, "response_item", words("assistant", "Right.")),
        ],
    )
    assert ["gpt-5-codex", "gpt-5-codex", "gpt-5-mini"] == [record.model for record in records]


def test_compaction_and_rollback() -> None:
    more = [
        line(20, "response_item", words("user", "More")),
        line(21, "response_item", words("assistant", "Right.")),
        line(22, "event_msg", {"type": "thread_rolled_back", "num_turns": 1}),
        line(23, "response_item", words("user", "Less")),
        line(24, "response_item", words("assistant", "Well.")),
        line(25, "compacted", {"message": "", "replacement_history": [words("user", "All in short")]}),
        line(26, "response_item", words("user", "On")),
        line(27, "response_item", words("assistant", "Yes.")),
        line(28, "compacted", {"message": "Short"}),
        line(29, "response_item", words("user", "And")),
        line(30, "response_item", words("assistant", "End.")),
    ]
    records = read(Codex(), [*ROLLOUT, *more])
    rolled, compacted, summed = records[3:]
    assert [*inputs(records[1]), DONE, words("user", "Less")] == inputs(rolled)
    assert [words("user", "All in short"), words("user", "On")] == inputs(compacted)
    assert [words("assistant", "Short"), words("user", "And")] == inputs(summed)


def test_bad_lines_of_codex() -> None:
    content = b'{"type": "response_item"}\n{"payload": 3}\n' + lines([*ROLLOUT, line(9, "strange", {})])
    found = list(Codex().read(Source("rollout.jsonl", io.BytesIO(content))))
    assert [BadLine, BadLine, Record, Record] == [type(one) for one in found]


JUNK: list[Any] = [None, True, 0, -1, 1.5, 10**400, "", "x", "\ud83d", [], {}, [[]], [{}], {"a": 1}, [1, "a", None]]


def damaged(value: Any, random: Random) -> Any:
    """A value in which some parts are missing or are something else."""
    if random.random() < 0.05:
        return random.choice(JUNK)
    if isinstance(value, dict):
        return {key: damaged(part, random) for key, part in value.items() if random.random() > 0.03}
    if isinstance(value, list):
        return [damaged(part, random) for part in value if random.random() > 0.03]
    return value


@pytest.mark.parametrize(("reader", "entries"), [(ClaudeCode(), SESSION), (Codex(), ROLLOUT)])
def test_whatever_is_damaged_can_be_read_or_is_reported(reader: Reader, entries: list[Any]) -> None:
    random = Random(7)
    kinds = set()
    for _ in range(300):
        content = lines(damaged(entry, random) for entry in entries)
        for found in reader.read(Source("damaged.jsonl", io.BytesIO(content))):
            kinds.add(type(found))
            if isinstance(found, Record):
                assert isinstance(found.content, Body)
                assert isinstance(json.loads(found.content.content), dict)
    assert {Record, BadLine} == kinds


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("claude_code", SESSION),
        ("claude_code", [TITLE]),
        ("claude_code", [SNAPSHOT, *SESSION[2:]]),
        ("claude_code", [user("u1", None, 1, "x" * 300_000)]),
        ("codex", ROLLOUT),
        ("codex", [line(0, "session_meta", {**META, "base_instructions": {"text": "x" * 300_000}}), *ROLLOUT[1:]]),
    ],
)
def test_recognised(name: str, entries: list[Any]) -> None:
    reader = recognise(Head.of("log.jsonl", lines(entries)))
    assert reader is not None
    assert name == reader.name
