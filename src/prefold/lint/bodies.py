"""Rules for request bodies and for logs of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

from prefold.errors import InvalidRequest
from prefold.lint.findings import Finding, Replacement, Rule, Scope
from prefold.lint.places import Place, Spans
from prefold.lint.text import estimated_tokens, live_values, tokens_per_character
from prefold.prompts.canonical.canonicalize import Step, canonicalize
from prefold.prompts.canonical.spelling import float_spelling
from prefold.prompts.dialects import MARKERS, PROMPT_FIELDS, recognise, tool_name
from prefold.prompts.json_text import JsonText
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Dialect, Prompt, Section, Segment, Stability
from prefold.prompts.sequences import common_length
from prefold.prompts.tokens import counter_for

TOOL_ORDER = Rule(
    "PF201",
    "tools-not-sorted",
    Scope.BODY,
    "The tools are not in order of name.",
    "Tools come first in a prompt. When they are collected from a set, a dictionary or several servers, their order "
    "changes with the process or with the reply that came first, and with it the whole prompt. Sorted by name they are "
    "the same however they were collected. A list that is written down in one place does no harm unsorted.",
    '{"tools": [{"name": "search_orders"}, {"name": "read_policy"}], "messages": []}',
    '{"tools": [{"name": "read_policy"}, {"name": "search_orders"}], "messages": []}',
    is_fixable=True,
)
NUMBER_FORMAT = Rule(
    "PF202",
    "unstable-number",
    Scope.BODY,
    "A number in a stable part is written in a way that the next writer may not choose.",
    "The same number has many spellings: 1 and 1.0, 100000.0 and 1e5, 0.3 and 0.30000000000000004. Which one comes out "
    "depends on the type, the language and the library. Exponents are rewritten by --fix; the others need a decision.",
    '{"tools": [{"name": "pay", "parameters": {"minimum": 0.30000000000000004, "maximum": 1e5}}], "messages": []}',
    '{"tools": [{"name": "pay", "parameters": {"minimum": 0.3, "maximum": 100000.0}}], "messages": []}',
    is_fixable=True,
)
MARKER = Rule(
    "PF203",
    "marker-on-newest-only",
    Scope.BODY,
    "The only cache marker stands behind the newest message; the part that all conversations share has none.",
    "A marker caches all that stands before it, so one on the newest message serves this conversation only. One more "
    "at the end of the tools or the system lets every other conversation begin with a hit.",
    '{"system": [{"type": "text", "text": "You are ..."}],\n "messages": [{"role": "user", "content": '
    '[{"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}]}]}',
    '{"system": [{"type": "text", "text": "You are ...", "cache_control": {"type": "ephemeral"}}],\n '
    '"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello", '
    '"cache_control": {"type": "ephemeral"}}]}]}',
)
BODY_RULES: tuple[Rule, ...] = (TOOL_ORDER, NUMBER_FORMAT, MARKER)

_RECORD_FIELDS = ("request", "body", "request_body", "kwargs", "input")
_EXAMPLE_FIELDS = frozenset({"example", "examples", "enum", "const", "pattern", "format", "$id", "$schema"})


def lint_body(text: str, file: str, dialect: Dialect | None = None) -> list[Finding]:
    """Findings in a file that holds one request body, or a record with one.

    Raises:
        InvalidRequest: if it is not JSON (naming line and column), or of no known dialect.
    """
    body = _Body.read(text, Place(), dialect)
    found = [candidate.finding(file) for candidate in body.candidates()]
    return sorted(found, key=lambda finding: finding.start)


def lint_log(text: str, file: str, dialect: Dialect | None = None) -> list[Finding]:
    """Findings in JSON Lines, where each line is a body or a record with one.

    What is found at one place of many lines is one finding, that of the first line, and says how many lines have it. A
    log says what was sent: nothing in it is fixed.

    Raises:
        InvalidRequest: naming the line that holds no request.
    """
    groups: dict[tuple[str, str, int], _Group] = {}
    start = 0
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            for place, candidate in _candidates_of_line(line, Place(start), dialect, f"line {number} of {file}"):
                groups.setdefault(place, _Group(candidate)).lines.append(number)
        start += len(line) + 1
    return sorted((group.finding(file) for group in groups.values()), key=lambda finding: finding.start)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """What breaks a rule; its place in the file and its cost are worked out only where it is reported."""

    rule: str
    path: str
    finding: Callable[[str], Finding]


@dataclass(slots=True)
class _Group:
    """The same finding in several lines of a log."""

    first: _Candidate
    lines: list[int] = field(default_factory=list)

    def finding(self, file: str) -> Finding:
        first = replace(self.first.finding(file), fix=())
        if len(self.lines) == 1:
            return first
        others = ", ".join([*map(str, self.lines[1:4]), *(["..."] if len(self.lines) > 4 else [])])
        note = f"The same in {len(self.lines):,} lines of this log, also in {others}"
        return replace(first, notes=(*first.notes, note))


def _candidates_of_line(
    line: str, place: Place, dialect: Dialect | None, where: str
) -> Iterator[tuple[tuple[str, str, int], _Candidate]]:
    """What is found in a line, each with its rule, its path, and how many of these came before it in the line."""
    counts: dict[tuple[str, str], int] = {}
    try:
        for candidate in _Body.read(line, place, dialect).candidates():
            key = (candidate.rule, candidate.path)
            yield (*key, counts.get(key, 0)), candidate
            counts[key] = counts.get(key, 0) + 1
    except InvalidRequest as error:
        message = error.message.replace(" in line 1, column", " in column")
        raise InvalidRequest(f"In {where}: {message}", hint=error.hint) from None


@dataclass(frozen=True)
class _Body:
    """A request, and where its text lies in the file."""

    prompt: Prompt
    document: JsonText
    place: Place
    spans: Spans

    @classmethod
    def read(cls, text: str, place: Place, dialect: Dialect | None) -> _Body:
        document = JsonText.parse(text)
        if not isinstance(document.value, dict):
            raise InvalidRequest("The body is not a JSON object.", hint="A request body looks like {...}.")
        inner = _inner_body(document, place)
        if inner is not None:
            return cls.read(*inner, dialect)
        return cls(Prompt(dialect or recognise(document.value), document), document, place, Spans(text))

    def candidates(self) -> Iterator[_Candidate]:
        """All that is found, in the order of the rules.

        Raises:
            InvalidRequest: naming the field whose form is not that of the dialect.
        """
        segments = self.prompt.segments
        is_plain = self.prompt.dialect is Dialect.COMPLETION  # all of it may be shared
        for index, segment in enumerate(segments):
            if is_plain or segment.stability is Stability.STATIC:
                for path, text in _texts(segment):
                    place = _Text(self, path, text, index)
                    for found in live_values(text, "", str(segment.path)):
                        yield _Candidate(found.rule, found.path, partial(place.finding, found))
        yield from self._tool_order()
        yield from self._numbers()
        yield from self._markers()

    def tokens_behind(self, index: int) -> int:
        """Tokens of the stable segments behind one, estimated where the model's tokenizer is not known."""
        return self._tokens_from[index + 1]

    @cached_property
    def _tokens_from(self) -> tuple[int, ...]:
        """For each segment the tokens of the stable ones from it on."""
        counter = counter_for(self.prompt.model)
        counts = [
            counter.count(segment.text) if segment.stability is Stability.STATIC else 0
            for segment in self.prompt.segments
        ]
        return tuple(accumulate(counts[::-1], initial=0))[::-1]

    def _tool_order(self) -> Iterator[_Candidate]:
        tools = [segment for segment in self.prompt.segments if segment.section is Section.TOOLS]
        names = [tool_name(segment.content) for segment in tools]
        if names == sorted(names):
            return
        canonical = canonicalize(self.prompt, {Step.TOOL_ORDER})
        if canonical.changes:
            sorted_body = canonical.prompt.render().decode(errors="surrogatepass")
            yield _Candidate(TOOL_ORDER.id, str(canonical.changes[0].path), partial(self._unsorted, sorted_body))

    def _unsorted(self, sorted_body: str, file: str) -> Finding:
        segments = self.prompt.segments
        names = [tool_name(segment.content) for segment in segments if segment.section is Section.TOOLS]
        index = next(index for index in range(1, len(names)) if names[index] < names[index - 1])
        tool = [segment for segment in segments if segment.section is Section.TOOLS][index]
        start, end = self._name_span(tool)
        return Finding(
            TOOL_ORDER.id,
            f"The tools are not in order of name: {names[index]!r} follows {names[index - 1]!r}.",
            file,
            self.place.at(start),
            self.place.at(end - 1) + 1,
            "Sort the tools by name before they are sent.",
            str(tool.path),
            lost_tokens=self.tokens_behind(-1),
            fix=self._rewritten(sorted_body),
        )

    def _name_span(self, tool: Segment) -> tuple[int, int]:
        for inner in ((), ("function",), ("toolSpec",), ("custom",)):
            try:
                return self.spans.of(Path((*tool.path.steps, *inner, "name")))
            except LookupError:
                continue
        return self.spans.of(tool.path)

    def _rewritten(self, new: str) -> tuple[Replacement, ...]:
        """The body with another text, as far as it differs; none where it lies escaped in a string."""
        old = self.document.source
        start = common_length(old, new)
        tail = common_length(old[start:][::-1], new[start:][::-1])
        return self._replacement(start, len(old) - tail, new[start : len(new) - tail])

    def _replacement(self, start: int, end: int, text: str) -> tuple[Replacement, ...]:
        if self.place.outer is not None and self.place.shifts != (0,):
            return ()
        return (Replacement(self.place.at(start), self.place.at(end), text),)

    def _numbers(self) -> Iterator[_Candidate]:
        fields = {
            segment.path.steps[0]
            for segment in self.prompt.segments
            if segment.stability is Stability.STATIC
            and segment.text_path is None
            and segment.path.steps[0] != "messages"
        }
        for name in sorted(map(str, fields)):
            start, end = self.spans.of(Path.of(name))
            for number in _unstable_numbers(self.document.source, start, end):
                yield _Candidate(NUMBER_FORMAT.id, name, partial(self._number, name, number))

    def _number(self, name: str, number: _Number, file: str) -> Finding:
        written = self.document.source[number.start : number.end]
        respelled = float_spelling(written)
        is_exponent = "e" in written.lower()
        return Finding(
            NUMBER_FORMAT.id,
            f"The number {written} {number.problem}.",
            file,
            self.place.at(number.start),
            self.place.at(number.end - 1) + 1,
            f"Write it as {respelled}." if is_exponent else "Choose one type for it, and round it where it is made.",
            name,
            fix=self._replacement(number.start, number.end, respelled) if is_exponent else (),
        )

    def _markers(self) -> Iterator[_Candidate]:
        segments = self.prompt.segments
        marked = [segment for segment in segments if segment.marker is not None]
        is_shared_part = any(segment.stability is Stability.STATIC for segment in segments)
        if marked and is_shared_part and all(segment.stability is Stability.REQUEST for segment in marked):
            yield _Candidate(MARKER.id, str(marked[0].path), partial(self._newest_only, marked[0]))

    def _newest_only(self, segment: Segment, file: str) -> Finding:
        start, end = self.spans.of(segment.path)
        for name in MARKERS:
            try:
                start, end = self.spans.of(segment.path / name)
            except LookupError:
                continue
        return Finding(
            MARKER.id,
            "The only cache marker stands behind the newest message, so no other conversation can share the prefix.",
            file,
            self.place.at(start),
            self.place.at(end - 1) + 1,
            "Set one at the end of the system too, or of the tools where there is no system.",
            str(segment.path),
            lost_tokens=self.tokens_behind(-1),
        )


@dataclass(frozen=True)
class _Text:
    """A text in a body; what many findings in it need is worked out once.

    Attributes:
        body: the body.
        path: where the text lies in it.
        text: the text.
        segment: number of the segment that it belongs to.
    """

    body: _Body
    path: Path
    text: str
    segment: int

    def finding(self, found: Finding, file: str) -> Finding:
        """What was found in the text, with its place in the file and what it costs."""
        lost = estimated_tokens(self.text, found.start, self._tokens_per_character) + self._tokens_behind
        start, end = self._place.at(found.start), self._place.at(found.end - 1) + 1
        return replace(found, file=file, start=start, end=end, lost_tokens=lost)

    @cached_property
    def _place(self) -> Place:
        start, end = self.body.spans.of(self.path)
        return self.body.place.within_string(start, self.body.document.source[start:end])

    @cached_property
    def _tokens_per_character(self) -> float:
        return tokens_per_character(self.text, counter_for(self.body.prompt.model))

    @cached_property
    def _tokens_behind(self) -> int:
        return self.body.tokens_behind(self.segment)


def _inner_body(document: JsonText, place: Place) -> tuple[str, Place] | None:
    """The body in a record of a log, as a text of its own; None if this is no record."""
    record = document.value
    if any(name in record for name in ("messages", "contents", "prompt")):
        return None
    for name in _RECORD_FIELDS:
        value = record.get(name)
        start, end = document.span(Path.of(name)) if isinstance(value, dict | str) else (0, 0)
        literal = document.source[start:end]
        if isinstance(value, dict) and _holds_prompt(value):
            return literal, place.within(start)
        if isinstance(value, str) and value.lstrip().startswith("{") and _holds_prompt(_parsed(value)):
            return value, place.within_string(start, literal)
    return None


def _holds_prompt(value: Any) -> bool:
    fields = {name for names in PROMPT_FIELDS.values() for name in names} | {*_RECORD_FIELDS}
    return isinstance(value, dict) and not fields.isdisjoint(value)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _texts(segment: Segment) -> Iterator[tuple[Path, str]]:
    """The texts in a segment, in order, without those that show what a value may look like."""
    if segment.text_path is not None:
        yield segment.text_path, segment.text
        return
    waiting: list[tuple[Path, Any]] = [(segment.path, segment.content)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, list):
            waiting += [(path / index, item) for index, item in enumerate(value)][::-1]
        elif isinstance(value, Mapping):
            names_properties = path.steps[-1:] == ("properties",)
            waiting += [
                (path / key, item) for key, item in value.items() if names_properties or key not in _EXAMPLE_FIELDS
            ][::-1]


@dataclass(frozen=True, slots=True)
class _Number:
    """A number in a JSON text, and what is wrong with it."""

    start: int
    end: int
    problem: str


_STRINGS_AND_NUMBERS = re.compile(
    r'"(?P<text>(?:[^"\\]|\\.)*+)"(?P<colon>\s*:)?|(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)'
)
_DIGITS_OF_A_TAIL = 16
"""Significant digits from which on a fraction is what binary arithmetic left over."""


def _unstable_numbers(source: str, start: int, end: int) -> Iterator[_Number]:
    """Numbers with an exponent or a long tail, and whole ones written as `1.0` where the same key has `1` elsewhere."""
    key = ""
    whole: dict[str, list[tuple[int, int]]] = {}
    integers: set[str] = set()
    for found in _STRINGS_AND_NUMBERS.finditer(source, start, end):
        written = found["number"]
        if written is None:
            key = found["text"] if found["colon"] else key
        elif "e" in written.lower():
            if float_spelling(written) != written:
                yield _Number(*found.span(), "is written with an exponent")
        elif "." not in written:
            integers.add(key)
        elif len(re.sub(r"^0+|\.", "", written.lstrip("-"))) >= _DIGITS_OF_A_TAIL:
            yield _Number(*found.span(), "has the tail that binary arithmetic leaves")
        elif written.endswith(".0"):
            whole.setdefault(key, []).append(found.span())
    for key in sorted(whole.keys() & integers):
        for span in whole[key]:
            yield _Number(*span, f"is a float, though {key!r} is an integer elsewhere")
