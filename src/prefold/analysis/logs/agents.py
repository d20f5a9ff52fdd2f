"""Reading the work of agents: tau-bench and SWE-agent.

tau-bench writes a list of runs, each with its messages in OpenAI's form as `traj`, the system prompt among them
(sierra-research/tau-bench, `run.py`), and examples of conversations as lines with the text `messages_display`.

SWE-agent writes one object a run, in a file of its own, `*.traj`: `history` has every message with the name of its
agent, since parts of a task may be given to agents with histories of their own; from version 1 on, each step of
`trajectory` may have what was sent as `query` or `messages` (SWE-agent/SWE-agent, `sweagent/types.py`).

Each answer is one request. Tools are in neither file, and what SWE-agent leaves out of long histories shows in `query`
only. Neither times nor counts are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from prefold.analysis.logs.reader import BadLine, Head, Reader, Source
from prefold.analysis.logs.turns import Turns, answered
from prefold.analysis.logs.values import dumped, loaded, name
from prefold.analysis.record import Record
from prefold.errors import InvalidRequest
from prefold.prompts.prompt import Dialect

_SPEAKER = re.compile(r"^(system|user|assistant|tool): ", re.MULTILINE)
_SENT_FIELDS = ("role", "content", "tool_calls", "cache_control")


class TauBench:
    """Runs of tau-bench."""

    name = "tau_bench"

    def recognises(self, head: Head, /) -> bool:
        """Whether the objects are runs, or the first of a list that is longer than the head is one."""
        if head.objects:
            return all(isinstance(value.get("traj"), list) or _displayed(value) for value in head.objects)
        start = head.start.lstrip()
        return start.startswith(b"[") and all(field in start for field in (b'"task_id"', b'"reward"', b'"traj"'))

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """One request for each answer."""
        for number, content in source.values():
            place = source.place(number)
            try:
                value = loaded(content)
                run = value if isinstance(value, dict) else {}
                messages = run.get("traj") if isinstance(run.get("traj"), list) else _displayed(run)
                if not messages:
                    yield BadLine(place, "There is no trajectory.")
                    continue
                names = (name(run.get("task_id")), name(run.get("trial")))
                session = " trial ".join(filter(None, names)) or f"example {number}"
                yield from answered([turn for turn in messages if isinstance(turn, dict)], place, session=session)
            except InvalidRequest as error:
                yield BadLine(place, error.message)


def _displayed(value: Mapping[str, Any]) -> list[dict[str, str]]:
    """The messages in the text of an example; none where there is no such text."""
    text = value.get("messages_display")
    if not isinstance(text, str):
        return []
    _, *parts = _SPEAKER.split(text)
    return [
        {"role": role, "content": said.removesuffix("\n")} for role, said in zip(parts[::2], parts[1::2], strict=True)
    ]


class SweAgent:
    """Trajectories of SWE-agent."""

    name = "swe_agent"

    def recognises(self, head: Head, /) -> bool:
        """Whether it is one object with a history, the beginning of which may be all that can be seen."""
        if isinstance(head.first, dict):
            history = head.first.get("history")
            return isinstance(history, list) and all(isinstance(turn, dict) and "role" in turn for turn in history)
        is_object = head.start.lstrip().startswith(b"{")
        return is_object and b'"trajectory"' in head.start and all(f in head.start for f in (b'"action"', b'"thought"'))

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """One request for each answer, agent by agent."""
        value = loaded(source.whole())
        session = PurePath(source.name).stem
        run = value if isinstance(value, dict) else {}
        found = _queries(run, source, session) or _histories(run, source, session)
        if found is None:
            yield BadLine(source.place(1), "There is no history.")
        else:
            for number, record in enumerate(found, start=1):
                yield replace(record, place=source.place(number))


def _queries(run: Mapping[str, Any], source: Source, session: str) -> Iterator[Record] | None:
    """What was sent in each step; None where the file does not say."""
    steps = run.get("trajectory")
    steps = [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    sent = [next((step[field] for field in ("query", "messages") if step.get(field)), None) for step in steps]
    if not sent or not all(isinstance(query, list) for query in sent):
        return None
    model = _model(run)
    return (
        Record(
            _body(query, model),
            source.place(1),
            model=model,
            session=session,
            answer=step["response"] if isinstance(step.get("response"), str) else None,
        )
        for step, query in zip(steps, sent, strict=True)
        if query
    )


def _body(query: list[Any], model: str) -> Any:
    turns = Turns(Dialect.OPENAI, {"model": model} if model else {})
    for turn in query:
        if isinstance(turn, dict):
            turns.add(dumped(_sent(turn)))
    return turns.body()


def _histories(run: Mapping[str, Any], source: Source, session: str) -> Iterator[Record] | None:
    history = run.get("history")
    if not isinstance(history, list):
        return None
    by_agent: dict[str, list[dict[str, Any]]] = {}
    for turn in history:
        if isinstance(turn, dict):
            by_agent.setdefault(name(turn.get("agent")), []).append(_sent(turn))
    model = _model(run)
    return (
        record
        for agent, messages in by_agent.items()
        for record in answered(
            messages,
            source.place(1),
            model=model,
            session=session if len(by_agent) == 1 else f"{session} {agent}",
        )
    )


def _sent(turn: Mapping[str, Any]) -> dict[str, Any]:
    """A message as it is sent: without what the agent notes beside it."""
    message = {field: turn[field] for field in _SENT_FIELDS if turn.get(field) is not None}
    answers = turn.get("tool_call_ids")
    if turn.get("role") == "tool" and isinstance(answers, list) and answers:
        message["tool_call_id"] = answers[0]
    return message


def _model(run: Mapping[str, Any]) -> str:
    """The model in the configuration with which a run can be replayed; empty where there is none."""
    config = run.get("replay_config")
    try:
        value = loaded(config) if isinstance(config, str) else config
    except InvalidRequest:
        return ""
    for field in ("agent", "model", "name"):
        value = value.get(field) if isinstance(value, dict) else None
    return name(value)


READERS: tuple[Reader, ...] = (TauBench(), SweAgent())
