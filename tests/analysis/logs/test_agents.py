import io
import json
from pathlib import Path
from typing import Any

import pytest

from prefold.analysis.logs.agents import SweAgent, TauBench
from prefold.analysis.logs.formats import recognise
from prefold.analysis.logs.reader import BadLine, Head, Reader, Source
from prefold.analysis.record import Body, Record

SHARED = Path(__file__).parents[4] / "shared" / "data" / "traces"

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"id": 1}'}}
RUN: dict[str, Any] = {
    "task_id": 3,
    "reward": 1.0,
    "info": {},
    "traj": [
        {"role": "system", "content": "Help travellers."},
        {"role": "user", "content": "Where is my bag?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "Oslo"},
        {"role": "assistant", "content": "In Oslo."},
    ],
    "trial": 0,
}
EXAMPLE = {"messages_display": "user: Hi\nthere\nassistant: Hello.\nuser: Bye\nassistant: Bye."}


def turn(role: str, content: str, agent: str = "main", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "agent": agent, "message_type": "x", **more}


OLD = {
    "environment": "swe_main",
    "trajectory": [{"action": "ls", "observation": "a", "response": "r", "state": "", "thought": "t"}],
    "history": [
        turn("system", "S"),
        turn("user", "Mend it", is_demo=False),
        turn("assistant", "ls", thought="t", action="ls"),
        turn("system", "S2", agent="helper"),
        turn("user", "Part", agent="helper"),
        turn("assistant", "done", agent="helper", thought="", action=""),
        turn("user", "a"),
        turn("assistant", "submit", thought="", action="submit"),
    ],
    "info": {},
}
CALLING = {
    "history": [
        turn("system", "S"),
        turn("user", "Mend it"),
        turn("assistant", "look", thought="t", action="ls", tool_calls=[CALL]),
        turn("tool", "a", tool_call_ids=["c1"]),
        turn("assistant", "submit", thought="", action="submit", tool_calls=[CALL]),
    ],
    "replay_config": json.dumps({"agent": {"model": {"name": "gpt-4o"}}}),
}


def read(reader: Reader, content: bytes, name: str = "run.traj") -> list[Record | BadLine]:
    return list(reader.read(Source(name, io.BytesIO(content))))


def messages(record: Record | BadLine) -> list[dict[str, Any]]:
    assert isinstance(record, Record)
    assert isinstance(record.content, Body)
    value: list[dict[str, Any]] = json.loads(record.content.content)["messages"]
    return value


def test_tau_bench() -> None:
    first, second = read(TauBench(), json.dumps([RUN], indent=2).encode())
    assert RUN["traj"][:2] == messages(first)
    assert RUN["traj"][:4] == messages(second)
    assert isinstance(first, Record)
    assert isinstance(second, Record)
    assert ("3 trial 0", "tool_calls", None) == (first.session, first.stop, first.answer)
    assert ("3 trial 0", "", "In Oslo.") == (second.session, second.stop, second.answer)


def test_examples_of_tau_bench() -> None:
    first, second = read(TauBench(), json.dumps(EXAMPLE).encode())
    assert [{"role": "user", "content": "Hi\nthere"}] == messages(first)
    assert ["user", "assistant", "user"] == [message["role"] for message in messages(second)]


def test_old_histories_belong_to_agents() -> None:
    records = read(SweAgent(), json.dumps(OLD).encode(), "folder/run.traj")
    assert [["S", "Mend it"], ["S", "Mend it", "ls", "a"], ["S2", "Part"]] == [
        [message["content"] for message in messages(record)] for record in records
    ]
    assert ["run main", "run main", "run helper"] == [
        record.session for record in records if isinstance(record, Record)
    ]
    assert {"role", "content"} == {key for record in records for message in messages(record) for key in message}


def test_new_histories_have_calls() -> None:
    first, second = read(SweAgent(), json.dumps(CALLING).encode())
    assert {"role": "tool", "content": "a", "tool_call_id": "c1"} == messages(second)[3]
    assert [CALL] == messages(second)[2]["tool_calls"]
    assert isinstance(first, Record)
    assert ("gpt-4o", "run", "tool_calls", 1) == (first.model, first.session, first.stop, first.place.line)


@pytest.mark.parametrize("field", ["query", "messages"])
def test_what_was_sent_is_what_counts(field: str) -> None:
    run = {**OLD, "trajectory": [{"action": "ls", "response": "r", field: [turn("user", "shortened")]}]}
    [record] = read(SweAgent(), json.dumps(run).encode())
    assert [{"role": "user", "content": "shortened"}] == messages(record)
    assert isinstance(record, Record)
    assert "r" == record.answer


@pytest.mark.parametrize(
    ("reader", "content"), [(TauBench(), b'[{"task_id": 1}, {"traj": 5}]'), (SweAgent(), b"{}"), (SweAgent(), b"[]")]
)
def test_bad_lines(reader: Reader, content: bytes) -> None:
    found = read(reader, content)
    assert found
    assert all(isinstance(bad, BadLine) for bad in found)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tau_bench", json.dumps([RUN], indent=2)),
        ("tau_bench", json.dumps([RUN, RUN])),
        ("tau_bench", json.dumps(RUN)),
        ("tau_bench", json.dumps([{**RUN, "more": "x" * 300_000}])),
        ("tau_bench", json.dumps(EXAMPLE)),
        ("swe_agent", json.dumps(OLD)),
        ("swe_agent", json.dumps(OLD, indent=2)),
        ("swe_agent", json.dumps({**OLD, "info": "x" * 300_000}, indent=2)),
        ("swe_agent", json.dumps(CALLING)),
    ],
)
def test_recognised(name: str, content: str) -> None:
    reader = recognise(Head.of("log", content.encode()))
    assert reader is not None
    assert name == reader.name


@pytest.mark.parametrize(
    ("folder", "name", "files", "requests"), [("tau_bench", "tau_bench", 2, 2_000), ("swe_agent", "swe_agent", 15, 100)]
)
def test_real_runs(folder: str, name: str, files: int, requests: int) -> None:
    if not (SHARED / folder).exists():
        pytest.skip("the shared data is not here")
    found = [file for file in sorted((SHARED / folder).iterdir()) if file.suffix in (".json", ".jsonl", ".traj")]
    assert files == len(found)
    total = 0
    for file in found:
        reader = recognise(Head.of(file.name, file.read_bytes()))
        assert reader is not None
        assert name == reader.name
        records = read(reader, file.read_bytes(), file.name)
        assert not [record for record in records if isinstance(record, BadLine)]
        assert all(messages(record) for record in records[:5])
        total += len(records)
    assert total > requests
