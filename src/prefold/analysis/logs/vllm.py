"""vLLM's own log, as `--enable-log-requests` fills it.

The lines of its versions, as copies of `vllm/entrypoints/logger.py` in public repositories have them (read on
2026-11-30) and, before 0.5, as logs in bug reports show them:

    0.1 - 0.4    Received request ID: prompt: '...', sampling params: ..., prompt token ids: [...]
    0.5 - 0.10   Received request ID: prompt: '...', params: ..., prompt_token_ids: [...], ...
    later        at level DEBUG Request ID details: prompt: '...', prompt_token_ids: [...], ...
                 and then       Received request ID: params: ...

Where ids are given they are the prompt; else its text is. A line begins with level and time, which has no year.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime

from prefold.analysis.logs.bodies import packed_ids, token_blocks
from prefold.analysis.logs.reader import BadLine, Head, Source
from prefold.analysis.logs.values import dumped, loaded
from prefold.analysis.record import Blocks, Body, Record
from prefold.errors import InvalidRequest
from prefold.prompts.prompt import Dialect

_REQUEST = re.compile(rb"(?:Received request (?P<id>\S+): |Request (?P<id2>\S+) details: )prompt: ")
_ANY_REQUEST = re.compile(rb"\b(?:Received request \S+: (?:prompt|params): |Request \S+ details: prompt: )")
_REQUEST_ALONE = re.compile(rb"Received request \S+: params: ")
_DEBUG = "Set VLLM_LOGGING_LEVEL=DEBUG where vLLM runs: at level INFO it logs no prompts."
_IDS = re.compile(rb", prompt[_ ]token[_ ]ids: (?P<ids>None|\[[\d, ]*\])")
_TIME = re.compile(
    rb"\b(?:(?P<year>\d{4})-)?(?P<month>\d\d)-(?P<day>\d\d)[ T](?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d+))?"
)
_PREFIX_BYTES = 200
_LEAP_YEAR = 1972
"""The year of times that have none: the first since 1970 with a 29 February."""


class VLLM:
    """Reads the requests of vLLM's log."""

    name = "vllm"

    def recognises(self, head: Head, /) -> bool:
        """Whether a request is logged in the beginning of the file."""
        return head.start[:1] not in (b"{", b"[") and _ANY_REQUEST.search(head.start) is not None

    def read(self, source: Source, /) -> Iterator[Record | BadLine]:
        """The records of the lines that log a prompt.

        Other lines are passed over, but for requests of a log whose level leaves out prompts.
        """
        has_prompts = False
        unsaid: BadLine | None = None  # the prompt of a log's first request may stand in the log before it
        for number, line in source.lines():
            place = source.place(number)
            request = _REQUEST.search(line)
            if request is None:
                if not has_prompts and _REQUEST_ALONE.search(line):
                    if unsaid:
                        yield unsaid
                    unsaid = BadLine(place, "The request was logged without its prompt.", hint=_DEBUG)
                continue
            has_prompts, unsaid = True, None
            try:
                content = _content(line, request.end())
            except InvalidRequest as error:
                yield BadLine(place, error.message)
                continue
            request_id = request["id"] or request["id2"]
            yield Record(
                content, place, time=_time_of(line[:_PREFIX_BYTES]), request_id=request_id.decode(errors="replace")
            )
        if unsaid:
            yield unsaid


def _content(line: bytes, start: int) -> Body | Blocks:
    """The prompt that a line logs from some byte on.

    Raises:
        InvalidRequest: if the line is cut off, or was logged without content.
    """
    # The prompt is quoted as Python quotes it, so that what follows its end cannot be a part of it.
    end = _end_of_literal(line, start)
    # The last of them: parameters before them hold texts of the user's, such as stop words.
    ids = next(iter(deque(_IDS.finditer(line, end), maxlen=1)), None)
    if ids and ids["ids"] != b"None":
        return token_blocks(packed_ids(loaded(ids["ids"])))
    if line[start:end] == b"None":
        raise InvalidRequest(
            "The line has neither the prompt nor its token ids.", hint="Multimodal embeddings are not logged."
        )
    try:
        prompt = ast.literal_eval(line[start:end].decode())
    except (ValueError, SyntaxError, UnicodeDecodeError, MemoryError, RecursionError):
        prompt = None
    if not isinstance(prompt, str):
        raise InvalidRequest("The prompt is cut off.", hint="Do not shorten lines of the log.")
    return Body(dumped({"prompt": prompt}), Dialect.COMPLETION)


def _end_of_literal(line: bytes, start: int) -> int:
    quote = line[start : start + 1]
    if quote not in (b"'", b'"'):
        return start + len(b"None")
    position = start + 1
    mark = re.compile(rb"[\\%s]" % quote)
    while match := mark.search(line, position):
        position = match.end()
        if match.group() == quote:
            return position
        position += 1
    return len(line)


def _time_of(prefix: bytes) -> float | None:
    match = _TIME.search(prefix)
    if match is None:
        return None
    year = int(match["year"] or _LEAP_YEAR)
    hour, minute, second = map(int, match["clock"].split(b":"))
    try:
        moment = datetime(year, int(match["month"]), int(match["day"]), hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return moment.timestamp() + float(b"0." + (match["part"] or b"0"))
