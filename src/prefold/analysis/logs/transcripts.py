"""Reading the transcripts of coding agents: Claude Code, and Codex in a module of its own.

Claude Code writes `~/.claude/projects/**/*.jsonl`. A line is an entry with `uuid` and `parentUuid`, which make a tree:
a conversation goes on at its latest entry, or at an earlier one after a rewind; a compaction and each subagent
(`isSidechain`) begin a tree of their own. An answer comes in several lines, one for each of its blocks, with the same
`message.id` and `requestId`, and results of its tools may stand between them. Read in descriptions of versions 1.0 to
2.1 (jeremedia/claude-code-log-format, DRMacIver/claude-reliability and others, on 2026-11-30).

An answer is one request, which sends all that came before it on its branch. Neither the system prompt nor the tools
are in the transcripts: a text stands for them, see `prefold.analysis.logs.hidden`. Markers are not in them either;
since Claude Code puts one on the system prompt and one on the last block whenever it caches at all, a request has them
there if its usage says that something was cached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prefold.analysis.logs.answers import miss_reason, text_of
from prefold.analysis.logs.codex import Codex
from prefold.analysis.logs.hidden import HiddenParts
from prefold.analysis.logs.reader import LONGEST_LINE, BadLine, Head, Reader, Source
from prefold.analysis.logs.values import dumped, loaded, moment, name, usage_of
from prefold.analysis.record import Body, Place, Record
from prefold.errors import InvalidRequest
from prefold.prompts.prompt import Dialect
from prefold.providers.usage import Usage

_MOST_BRANCHES = 64  # that can still go on, of one file: subagents at work, and those before a compaction
_SYNTHETIC = "<synthetic>"  # the model of messages that Claude Code writes itself, such as errors


class ClaudeCode:
    """Transcripts of Claude Code."""

    name = "claude_code"

    def recognises(self, head: Head, /) -> bool:
        """Whether the lines are entries of a session, or titles of some."""
        if not head.objects:  # the first line is longer than the head
            start = head.start.lstrip()
            return start.startswith(b"{") and all(field in start for field in (b'"parentUuid"', b'"sessionId"'))
        return all(isinstance(entry.get("type"), str) for entry in head.objects) and any(
            ("sessionId" in entry and "uuid" in entry) or "leafUuid" in entry or "isSnapshotUpdate" in entry
            for entry in head.objects
        )

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """One request for each answer, in the order in which the answers began."""
        session = _Session(source)
        for number, line in source.lines():
            try:
                entry = loaded(line)
                if not isinstance(entry, dict):
                    yield BadLine(source.place(number), "There is no entry of a transcript.")
                elif (record := session.read(entry, source.place(number))) is not None:
                    yield record
            except InvalidRequest as error:
                yield BadLine(source.place(number), error.message)
        if (record := session.finish()) is not None:
            yield record


@dataclass(slots=True)
class _Answer:
    """An answer as far as it has come.

    Attributes:
        key: what its lines have in common.
        record: its request, with what its last line says.
        blocks: its content.
        uuids: of its lines.
        later: entries behind its first line that are not part of it: role, rendered blocks, uuid.
    """

    key: str
    record: Record
    blocks: list[dict[str, Any]] = field(default_factory=list)
    uuids: list[str] = field(default_factory=list)
    later: list[tuple[str, list[bytes], str]] = field(default_factory=list)


class _Branch:
    """What the next request of a conversation would send.

    Attributes:
        answer: the latest answer, which may not have come to its end; None before the first.
        time: when the latest of it was said.
        uuids: of all its entries.
    """

    def __init__(self) -> None:
        self.uuids: list[str] = []
        self.answer: _Answer | None = None
        self.time: float | None = None
        self._text = bytearray()  # messages, the last one open for more blocks
        self._role = ""  # of the open message
        self._ends: dict[str, tuple[int, str]] = {}  # by uuid: length of the text with the entry, and role then
        self._answered = 0  # length of the text with the latest answer in it

    def add(self, role: str, blocks: Sequence[bytes], uuid: str) -> None:
        """Append an entry; entries of one role become one message, as the API would make them."""
        if blocks:
            if len(self._text) + sum(map(len, blocks)) > LONGEST_LINE:
                limit = LONGEST_LINE // 1024**2
                raise InvalidRequest(f"The conversation is longer than {limit} MiB.", hint="Leave the file out.")
            if role == self._role:
                self._text += b","
            else:
                self._text += (b"]}," if self._role else b"") + b'{"role":' + dumped(role) + b',"content":['
                self._role = role
            self._text += b",".join(blocks)
        self._ends[uuid] = len(self._text), self._role

    def settle(self) -> None:
        """Have the latest answer, and what followed it, be part of the conversation."""
        if (answer := self.answer) is None:
            return
        self.answer = None
        blocks = [dumped(block) for block in answer.blocks]
        for uuid in answer.uuids:
            self.add("assistant", blocks, uuid)
            blocks = []
        self._answered = len(self._text)
        for role, later, uuid in answer.later:
            self.add(role, later, uuid)

    def rewind(self, parent: str) -> None:
        """Forget answers behind the entry that goes on."""
        length, role = self._ends.get(parent, (self._answered, ""))
        if length < self._answered:
            del self._text[length:]
            self._role, self._answered = role, length
            self._ends = {uuid: end for uuid, end in self._ends.items() if end[0] <= length}

    def alias(self, uuid: str, parent: str) -> None:
        """Note an entry that is not sent, so that what follows it is known to follow its parent."""
        if parent in self._ends:
            self._ends[uuid] = self._ends[parent]
        elif self.answer is not None:
            self.answer.later.append(("", [], uuid))

    def body(self, model: str, usage: Usage | None, hidden: str = "") -> Body | None:
        """The request, which begins with what is hidden; None where nothing was said."""
        if not self._text:
            return None
        text = memoryview(self._text)
        marker = b""
        if usage is not None and (usage.read or usage.write):
            ttl = b',"ttl":"1h"' if usage.write_1h else b""
            marker = b',"cache_control":{"type":"ephemeral"' + ttl + b"}"
        head = b'{"model":' + dumped(model)
        if hidden:
            head += b',"system":[{"type":"text","text":' + dumped(hidden) + marker + b"}]"
        content = b"".join((head, b',"messages":[', text[:-1], marker, b"}]}]}"))
        text.release()
        return Body(content, Dialect.ANTHROPIC)


class _Session:
    """The conversations of one file."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._branches: dict[_Branch, None] = {}  # the latest that was used last
        self._branch_of: dict[str, _Branch] = {}
        self._latest: dict[bool, _Branch] = {}  # by whether it is a subagent's
        self._hidden = HiddenParts()
        self._begun: _Answer | None = None

    def read(self, entry: Mapping[str, Any], place: Place) -> Record | None:
        """Read an entry; returns the request before it where this one begins the next."""
        uuid = name(entry.get("uuid"))
        if not uuid:
            return None
        message = entry.get("message")
        message = message if isinstance(message, dict) else {}
        kind = entry.get("type") if message else ""
        branch = self._find(entry)
        self._branch_of[uuid] = branch
        branch.uuids.append(uuid)
        parent = name(entry.get("parentUuid"))
        time = moment(entry.get("timestamp"))
        if kind == "assistant" and message.get("model") != _SYNTHETIC and not entry.get("isApiErrorMessage"):
            return self._read_answer(branch, entry, place)
        # Of a compaction, the summary is so marked, too, and is what the next request sends.
        if kind == "user" and (entry.get("isCompactSummary") or not entry.get("isVisibleInTranscriptOnly")):
            blocks = _blocks(message.get("content"))
            rendered = [dumped(block) for block in blocks]
            branch.time = time
            if branch.answer is not None and any(block.get("type") == "tool_result" for block in blocks):
                branch.answer.later.append(("user", rendered, uuid))
                return None
            branch.settle()
            branch.rewind(parent)
            branch.add("user", rendered, uuid)
        elif parent:
            branch.alias(uuid, parent)
        else:
            branch.add("", [], uuid)
        return None

    def finish(self) -> Record | None:
        """The last request."""
        begun, self._begun = self._begun, None
        return begun.record if begun else None

    def _find(self, entry: Mapping[str, Any]) -> _Branch:
        """The branch that an entry continues: its parent's, or that of the entries before it if no parent is known."""
        is_side = bool(entry.get("isSidechain"))
        parent = entry.get("parentUuid", "")
        branch = self._branch_of.get(name(parent))
        if branch is None and parent is not None:
            branch = self._latest.get(is_side)
        branch = branch or _Branch()
        self._branches.pop(branch, None)
        self._branches[branch] = None
        self._latest[is_side] = branch
        if len(self._branches) > _MOST_BRANCHES:
            oldest = next(iter(self._branches))
            del self._branches[oldest]
            for uuid in oldest.uuids:
                self._branch_of.pop(uuid, None)
        return branch

    def _read_answer(self, branch: _Branch, entry: Mapping[str, Any], place: Place) -> Record | None:
        message = entry["message"]
        uuid = name(entry.get("uuid"))
        key = " ".join(filter(None, (name(message.get("id")), name(entry.get("requestId"))))) or uuid
        time = moment(entry.get("timestamp"))
        usage = usage_of({"usage": message.get("usage")}, self._source)
        finished = None
        if branch.answer is None or branch.answer.key != key:
            branch.settle()
            branch.rewind(name(entry.get("parentUuid")))
            finished = self.finish()
            model = name(message.get("model"))
            agent = name(entry.get("agentId"), "subagent") if entry.get("isSidechain") else ""
            session = " ".join(filter(None, (name(entry.get("sessionId")), agent)))
            body = branch.body(model, usage)
            if body and (hidden := self._hidden.text(session, body, model, usage)):
                body = branch.body(model, usage, hidden)
            record = Record(
                content=body or Body(b'{"messages":[]}', Dialect.ANTHROPIC),
                place=place,
                time=time if branch.time is None else branch.time,
                model=model,
                session=session,
                request_id=key if message.get("id") else "",
            )
            branch.answer = _Answer(key, record)
            # What was answered before the transcript begins cannot be shown.
            self._begun = branch.answer if body else None
        answer = branch.answer
        answer.uuids.append(uuid)
        answer.blocks += _blocks(message.get("content"))
        record = answer.record
        usage = usage or record.usage
        # What the latest line says: counts in earlier lines are not final.
        answer.record = replace(
            record,
            usage=usage,
            answer=text_of(answer.blocks),
            output_tokens=usage.output if usage else None,
            stop=name(message.get("stop_reason"), record.stop),
            duration=record.duration if time is None or record.time is None else max(0.0, time - record.time),
            miss_reason=miss_reason(message) or record.miss_reason,
        )
        return finished


def _blocks(content: object) -> list[dict[str, Any]]:
    """The blocks of a message; a text is one block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [block for block in content if isinstance(block, dict) and block] if isinstance(content, list) else []


READERS: tuple[Reader, ...] = (ClaudeCode(), Codex())
