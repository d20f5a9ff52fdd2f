"""The request log: a JSON object a line, written by a thread of its own.

    {"prefold_log": 1, "time": ..., "api": "/v1/chat/completions", "model": ..., "tenant": ..., "session": ...,
     "request_id": ..., "replica": ..., "kind": "vllm", "why": "exact", "status": 200, "outcome": "done",
     "cache": "off", "duration": ..., "ttft": ..., "usage": {...}, "predicted_hit_tokens": ..., "request": {...}}

Times are in seconds, `time` since 1970. `usage` counts as Anthropic does: `input_tokens` that were neither read from a
cache nor written to it, `cache_read_input_tokens` and `cache_creation_input_tokens` where they were reported, and
`output_tokens`. What is not known is left out. `request` is the body, where bodies are asked for; `prefold report`
reads such a log.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from prefold.errors import UsageError
from prefold.gateway.meter import CallRecord
from prefold.gateway.redact import Redactor
from prefold.providers.usage import Usage

VERSION = 1
"""Of the format, in each line."""

MARK = "prefold_log"
"""The field that holds it."""

_MOST_WAITING = 10_000  # calls
_MOST_BYTES = 64 << 20  # of bodies that wait
_BATCH = 500  # lines in one write
_LAST_SECONDS = 5.0
_REOPEN, _STOP = "reopen", "stop"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class RequestLog:
    """Writes calls down. It never makes a call wait: what cannot be written is counted as lost.

    Args:
        path: of the file; lines are appended, and several processes may append to one file.
        bodies: whether requests are written, without their texts or whole.
        key: up to 64 secret bytes, under which texts, names and salts are hashed.

    Attributes:
        name: what metrics call it.
        lost: calls that were not written: the disk was full, or it was too slow.

    Raises:
        UsageError: if the file cannot be opened.
    """

    name = "request_log"

    def __init__(self, path: Path, *, bodies: Literal["no", "redacted", "whole"] = "no", key: bytes) -> None:
        self._path = path
        self._bodies = bodies
        self._redactor = Redactor(key)
        self._queue: queue.SimpleQueue[CallRecord | str] = queue.SimpleQueue()
        self._written_bytes = self._given_bytes = 0
        self._lost_waiting = self._lost_writing = 0
        self._is_cut = False  # whether the last line in the file may be incomplete
        try:
            self._file = self._opened()
        except OSError as error:
            raise UsageError(
                f"The request log {path} cannot be opened: {error.strerror}.", hint="check metering.request_log"
            ) from None
        self._thread = threading.Thread(target=self._run, name="request-log", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Calls that were not written."""
        return self._lost_waiting + self._lost_writing

    def __call__(self, record: CallRecord, /) -> None:
        """Have a call written."""
        size = len(record.body) if self._bodies != "no" else 0
        waiting = self._given_bytes - self._written_bytes
        if self._queue.qsize() >= _MOST_WAITING or (size and waiting + size > _MOST_BYTES):
            self._lost_waiting += 1
            return
        self._given_bytes += size
        self._queue.put(record)

    def reopen(self) -> None:
        """Open the file anew, after it was renamed; where that fails, the old one is written to."""
        self._queue.put(_REOPEN)

    def close(self) -> None:
        """Write what waits, and end; a disk that hangs is left alone after `_LAST_SECONDS`."""
        self._queue.put(_STOP)
        self._thread.join(_LAST_SECONDS)
        if not self._thread.is_alive():
            os.close(self._file)

    # What follows runs in the thread.

    def _run(self) -> None:
        while True:
            batch, command = self._next_batch()
            if batch:
                self._write(batch)
            if command == _REOPEN:
                with contextlib.suppress(OSError):
                    new = self._opened()
                    os.close(self._file)
                    self._file, self._is_cut = new, False
            elif command == _STOP:
                return

    def _next_batch(self) -> tuple[list[CallRecord], str]:
        """Calls that wait, at least one unless there is a command; and the command behind them."""
        batch: list[CallRecord] = []
        item = self._queue.get()
        while not isinstance(item, str):
            batch.append(item)
            if len(batch) == _BATCH:
                return batch, ""
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, ""
        return batch, item

    def _write(self, batch: Iterable[CallRecord]) -> None:
        lines = [line for record in batch if (line := self._line(record)) is not None]
        content = memoryview((b"\n" if self._is_cut else b"") + b"".join(lines))
        written = 0
        try:
            while written < len(content):
                written += os.write(self._file, content[written:])
            self._is_cut = False
        except OSError:
            done = bytes(content[:written])
            self._lost_writing += len(lines) - (done.count(b"\n") - self._is_cut if done else 0)
            self._is_cut = not done.endswith(b"\n") if done else self._is_cut

    def _line(self, record: CallRecord) -> bytes | None:
        """A call as its line."""
        body = record.body if self._bodies != "no" else b""
        self._written_bytes += len(body)
        usage = record.usage
        fields: dict[str, Any] = {
            MARK: VERSION,
            "time": round(record.time, 6),
            "api": record.api.value,
            "model": record.model,
            "tenant": record.tenant,
            "session": record.session,
            "request_id": record.request_id,
            "replica": record.replica,
            "kind": record.kind.value if record.replica else "",
            "why": record.why,
            "status": record.status,
            "outcome": record.outcome.value,
            "cache": record.cache,
            "duration": round(record.duration, 6),
            "ttft": None if record.ttft is None else round(record.ttft, 6),
            "usage": None if usage is None else _usage_fields(usage),
            "predicted_hit_tokens": record.matched,
        }
        try:
            if body:
                fields["request"] = self._body(body)
            return _encode({name: value for name, value in fields.items() if value not in (None, "")}) + b"\n"
        except (msgspec.DecodeError, ValueError, RecursionError, TypeError):  # a body that cannot be read
            self._lost_writing += 1
            return None

    def _body(self, body: bytes) -> Any:
        if self._bodies == "redacted":
            return self._redactor.body(_decode(body))
        # Only an escape such as \u005f could hide the key.
        if b"cache_salt" in body or b"\\u" in body:
            fields = _decode(body)
            if isinstance(fields, dict) and "cache_salt" in fields:
                return self._redactor.without_salt(fields)
        # As it was sent, to the byte. An end of line can only stand between its tokens.
        return msgspec.Raw(body.replace(b"\r", b" ").replace(b"\n", b" "))

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)


def _usage_fields(usage: Usage) -> dict[str, Any]:
    fields: dict[str, Any] = {"input_tokens": usage.uncached, "output_tokens": usage.output}
    if usage.is_reported:
        fields["cache_read_input_tokens"] = usage.read
        fields["cache_creation_input_tokens"] = usage.write
    if usage.write_5m or usage.write_1h:
        fields["cache_creation"] = {
            "ephemeral_5m_input_tokens": usage.write_5m,
            "ephemeral_1h_input_tokens": usage.write_1h,
        }
    return fields
