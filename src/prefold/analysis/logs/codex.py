"""Reading the rollouts of Codex.

Codex writes `~/.codex/sessions/**/rollout-*.jsonl`. A line has `timestamp`, `type` and `payload`: `session_meta` with
the instructions, `turn_context` with the model, a `response_item` for each item of the conversation, `compacted` with
what takes its place, and events, of which `token_count` has the usage of an answer: behind its items, or in front of
them in early versions (openai/codex, `codex-rs/protocol/src/protocol.rs`).

An answer is one request, which sends all that came before it. What the rollout hides, which is the tools and in early
versions the instructions, has a text that stands for it, see `prefold.analysis.logs.hidden`.

A rollout that was forked, or whose subagent was given the conversation, begins with a copy of the lines of the other
one, under the time of the fork. So that their requests count once, a request is named after the first of these
rollouts and after what was counted up to its answer, or else after all that was said up to there.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prefold.analysis.logs.answers import text_of
from prefold.analysis.logs.hidden import HiddenParts
from prefold.analysis.logs.reader import BadLine, Head, Source
from prefold.analysis.logs.turns import Turns
from prefold.analysis.logs.values import dumped, loaded, moment, name, usage_of
from prefold.analysis.record import Body, Place, Record
from prefold.errors import InvalidRequest
from prefold.prompts.prompt import Dialect
from prefold.providers.usage import Usage

_LINE_TYPES = ("session_meta", "response_item", "compacted", "turn_context", "event_msg")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
_ANSWERS = (*_CALLS, "reasoning", "web_search_call", "image_generation_call")
_UNSENT = ("ghost_snapshot", "compaction_trigger", "other")
_WRAPPED = ("<", "# AGENTS.md")  # what Codex itself says in the user's name begins so


class Codex:
    """Rollouts of Codex."""

    name = "codex"

    def recognises(self, head: Head, /) -> bool:
        """Whether the lines are those of a rollout."""
        if not head.objects:  # the instructions make the first line longer than the head
            start = head.start.lstrip()
            return start.startswith(b"{") and all(field in start for field in (b'"session_meta"', b'"payload"'))
        kinds = [line.get("type") for line in head.objects if "payload" in line]
        return len(kinds) == len(head.objects) and any(kind in _LINE_TYPES for kind in kinds)

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """One request for each answer."""
        rollout = _Rollout(source)
        for number, line in source.lines():
            try:
                entry = loaded(line)
                if not isinstance(entry, dict) or not isinstance(entry.get("payload"), dict):
                    yield BadLine(source.place(number), "There is no entry of a rollout.")
                elif (record := rollout.read(entry, source.place(number))) is not None:
                    yield record
            except InvalidRequest as error:
                yield BadLine(source.place(number), error.message)
        if (record := rollout.finish()) is not None:
            yield record


@dataclass(slots=True)
class _Response:
    """An answer of Codex's model as far as it has come.

    Attributes:
        body: the request.
        place: where the answer begins.
        time: when the request was sent.
        model: that answers.
        usage: of the request; None where it has not come.
        is_over: whether the next item of the model belongs to the next answer.
        end: when its last item came.
        text: its words.
        calls: whether it calls a tool.
        total: what the rollout counted up to its end; None where that has not come.
        checksum: of all items of the rollout up to its last one.
    """

    body: Body
    place: Place
    time: float | None
    model: str
    usage: Usage | None
    is_over: bool = False
    end: float | None = None
    text: str = ""
    calls: bool = False
    total: Any = None
    checksum: int = 0

    @property
    def key(self) -> str:
        """What it has in common with its copies in other rollouts, and with no other answer."""
        return f"{self.checksum:08x}" if self.total is None else dumped(self.total).decode()


class _Rollout:
    """The conversation of one rollout."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._turns = Turns(Dialect.RESPONSES, {}, "input")
        self._hidden = HiddenParts()
        self._instructions = ""
        self._session = ""
        self._root = ""  # the session that this one, or the one that it was forked from, and so on, was forked from
        self._model = ""
        self._time: float | None = None  # of the latest item that is not the model's
        self._checksum = 0  # of all items so far, those that were rolled back or compacted as well
        self._users: list[int] = []  # items before each message of the user
        self._response: _Response | None = None
        self._usage: Usage | None = None  # came before the answer that it counts
        self._total: Any = None  # of the latest count: a count that is told again has the same

    def read(self, entry: Mapping[str, Any], place: Place) -> Record | None:
        """Read a line; returns the request before it where it is known to be complete."""
        payload = entry["payload"]
        time = moment(entry.get("timestamp"))
        match entry.get("type"):
            case "session_meta":
                self._begin(payload)
            case "turn_context":
                self._model = name(payload.get("model"), self._model)
            case "response_item" if payload.get("type") not in _UNSENT:
                return self._read_item(payload, place, time)
            case "compacted":
                return self._compact(payload)
            case "event_msg" if payload.get("type") == "token_count":
                return self._count(payload)
            case "event_msg" if payload.get("type") == "thread_rolled_back":
                return self._roll_back(payload.get("num_turns"))
        return None

    def finish(self) -> Record | None:
        """The latest request, if it has not been returned."""
        response, self._response = self._response, None
        if response is None:
            return None
        ran = response.end is not None and response.time is not None
        return Record(
            content=self._completed(response),
            place=response.place,
            time=response.time,
            model=response.model,
            session=self._session,
            usage=response.usage,
            answer=response.text or None,
            output_tokens=response.usage.output if response.usage else None,
            stop="tool_call" if response.calls else "completed",
            duration=max(0.0, response.end - response.time) if ran else None,  # type: ignore[operator]
            request_id=f"{self._root} {response.key}" if self._root else "",
        )

    def _completed(self, response: _Response) -> Body:
        """The request with what is said, or hidden, before the conversation."""
        body = _instructed(response.body, self._instructions)
        what = "tools" if self._instructions else "system prompt and tools"
        hidden = self._hidden.text("", body, response.model, response.usage, what)
        return _instructed(response.body, "\n\n".join(filter(None, (hidden, self._instructions)))) if hidden else body

    def _begin(self, meta: Mapping[str, Any]) -> None:
        self._root = name(meta.get("forked_from_id"), meta.get("id"), self._root)
        if self._session:  # the one that was forked from
            return
        self._session = name(meta.get("id"))
        said = meta.get("base_instructions")
        self._instructions = _text(said.get("text") if isinstance(said, dict) else said)

    def _read_item(self, item: Mapping[str, Any], place: Place, time: float | None) -> Record | None:
        is_message = item.get("type") == "message"
        rendered = dumped(item)
        self._checksum = zlib.crc32(rendered, self._checksum)
        finished = None
        if item.get("type") in _ANSWERS or (is_message and item.get("role") == "assistant"):
            if self._response is not None and self._response.is_over:
                finished = self.finish()
            if self._response is None:
                sent = time if self._time is None else self._time
                self._response = _Response(self._turns.body(), place, sent, self._model, self._usage)
                self._response.total = self._total if self._usage else None
                self._usage = None
            self._response.end = time
            self._response.checksum = self._checksum
            self._response.calls |= item.get("type") in _CALLS
            self._response.text += (text_of(item.get("content")) or "") if is_message else ""
        else:
            if self._response is not None:
                self._response.is_over = True
            self._time = time
            if is_message and item.get("role") == "user":
                words = (text_of(item.get("content")) or "").lstrip()
                if not words.startswith(_WRAPPED):
                    self._users.append(len(self._turns))
        self._turns.add(rendered)
        return finished

    def _count(self, event: Mapping[str, Any]) -> Record | None:
        info = event.get("info")
        last = info.get("last_token_usage") if isinstance(info, dict) else None
        total = info.get("total_token_usage") if isinstance(info, dict) else None
        if not isinstance(last, dict) or (total is not None and total == self._total):
            return None
        self._total = total
        usage = usage_of(
            {
                "input_tokens": last.get("input_tokens"),
                "input_tokens_details": {"cached_tokens": last.get("cached_input_tokens")},
                "output_tokens": last.get("output_tokens"),
            },
            self._source,
        )
        if self._response is not None and self._response.usage is None:
            self._response.usage, self._response.total, self._response.is_over = usage, total, True
            return None
        self._usage = usage
        return self.finish()

    def _compact(self, payload: Mapping[str, Any]) -> Record | None:
        finished = self.finish()
        history = payload.get("replacement_history")
        if not isinstance(history, list):
            said = [{"type": "output_text", "text": _text(payload.get("message"))}]
            history = [{"type": "message", "role": "assistant", "content": said}]
        self._turns.cut(0)
        self._users.clear()
        for item in history:
            if isinstance(item, dict):
                self._turns.add(dumped(item))
        return finished

    def _roll_back(self, turns: object) -> Record | None:
        finished = self.finish()
        if isinstance(turns, int) and 0 < turns <= len(self._users):
            self._turns.cut(self._users[-turns])
            del self._users[-turns:]
        return finished


def _text(value: object) -> str:
    """A text, however long; empty if it is none."""
    return value if isinstance(value, str) else ""


def _instructed(body: Body, instructions: str) -> Body:
    """A request with instructions before its items."""
    if not instructions:
        return body
    return Body(b"".join((b'{"instructions":', dumped(instructions), b",", body.content[1:])), body.dialect)
