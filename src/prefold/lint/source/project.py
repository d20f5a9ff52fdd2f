"""Lint of Python source: values that vary and flow into the stable part of a prompt.

The data flow is followed through a whole project, so what is found in a file may come into a prompt in another one; it
is reported where the value is made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

from prefold.lint.findings import Finding
from prefold.lint.source import catalog
from prefold.lint.source.dataflow import Analysis, Hit
from prefold.lint.source.mends import is_about_a_schema, mend
from prefold.lint.source.modules import Module, ModuleIndex
from prefold.lint.source.text import SourceText
from prefold.lint.source.values import Source, Step

_LONG_TEXT = 80
"""Characters of fixed text after a placeholder that are worth caching."""
_LONG_TEXT_IN_A_MESSAGE = 160
"""The same for a user message, which mostly is a question."""

_SAYS: Mapping[str, str] = {
    catalog.CLOCK: "reads the clock",
    catalog.IDENTIFIER: "is different in every request or process",
    catalog.SET_ORDER: "has the order of a set, which differs between processes,",
    catalog.FILE_ORDER: "lists files in no fixed order",
    catalog.UNSORTED_JSON: "writes keys in the order in which they were put in",
    catalog.QUERY_ORDER: "returns rows in no fixed order",
    catalog.MACHINE: "differs between machines, users and processes",
    catalog.SCORE_ORDER: "returns documents in the order of their score",
}
_HELP: Mapping[str, str] = {
    catalog.CLOCK: "Move it into the last user message, or behind the cached part of the prompt.",
    catalog.IDENTIFIER: "Send it as metadata or in a header, or move it behind the cached part of the prompt.",
    catalog.SET_ORDER: "Put sorted(...) around the set.",
    catalog.FILE_ORDER: "Put sorted(...) around the listing.",
    catalog.QUERY_ORDER: "Add ORDER BY with a unique column, or sort the rows.",
    catalog.MACHINE: "Leave it out of the prompt, or move it behind the cached part.",
    catalog.TEMPLATE: "Put the fixed text first and the placeholders last, best into the user message.",
    catalog.SCORE_ORDER: "Move the documents behind the fixed text, into the user message, and sort them by id.",
}
_OUTPUT_SAYS = "shows the state of a machine or a checkout at one moment"
_SCHEMA_HELP = "Build it with its keys in one fixed order; sorting them would move the properties of a schema too."
_DAILY_HELP = "It costs one miss a day; move it behind the cached part of the prompt if that is too many."


class Project:
    """The Python files of a run, whose imports find each other."""

    def __init__(self, modules: Mapping[str, Module]) -> None:
        self._modules = modules

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> Project:
        """A project of files.

        Args:
            texts: by file, as the user gave it: its content.
        """
        return cls({file: Module(file, text) for file, text in texts.items()})

    def module(self, file: str) -> Module | None:
        """A file of it."""
        return self._modules.get(file)

    @cached_property
    def _hits(self) -> Mapping[str, list[Hit]]:
        analysis = Analysis(ModuleIndex(self._modules.values()))
        found: dict[str, list[Hit]] = defaultdict(list)
        for hit in analysis.hits():
            source = hit.taint.origin
            if isinstance(source, Source) and _counts(hit, source):
                found[source.module.file].append(hit)
        return found

    def findings(self, file: str) -> list[Finding]:
        """What is found in one file, in order of position."""
        grouped: dict[tuple[str, object], list[Hit]] = defaultdict(list)
        for hit in self._hits.get(file, ()):
            source = hit.taint.origin
            if isinstance(source, Source):
                grouped[source.rule, source.node].append(hit)
        if not grouped:
            return []
        text = SourceText(self._modules[file])
        findings = [_finding(min(hits, key=_rank), text) for hits in grouped.values()]
        return sorted(findings, key=lambda finding: (finding.start, finding.end, finding.rule))


def lint_source(text: str, file: str, project: Project | None = None) -> list[Finding]:
    """Values made in a Python file that vary and flow into the stable part of a prompt.

    Args:
        text: content of the file.
        file: its name, as the user gave it.
        project: the files of the run, this one among them; None to look at this one alone.

    Raises:
        UsageError: if the file is not valid Python.
    """
    if project is None or (known := project.module(file)) is None or known.text != text:
        project = Project.of({file: text})
    module = project.module(file)
    if module is not None:
        module.parse()
    return project.findings(file)


def _counts(hit: Hit, source: Source) -> bool:
    """Whether a hit is one: what matters by its place only must stand before enough fixed text."""
    after = hit.taint.static_after
    if hit.sink.is_first_message:
        return after >= _LONG_TEXT_IN_A_MESSAGE and source.rule != catalog.SCORE_ORDER
    return source.rule != catalog.TEMPLATE or after >= _LONG_TEXT


def _rank(hit: Hit) -> tuple[int, int]:
    """The most direct place first, by the shortest way."""
    return hit.sink.certainty, len(hit.taint.flow)


def _finding(hit: Hit, text: SourceText) -> Finding:
    taint, sink = hit.taint, hit.sink
    source = taint.origin
    assert isinstance(source, Source)  # noqa: S101 - hits have no other
    is_template = source.rule == catalog.TEMPLATE
    is_daily = taint.is_daily and source.rule == catalog.CLOCK
    start, end = text.placeholder(source.node, source.name) if is_template else text.span(source.node)
    excerpt = text.excerpt(start, end)
    if is_template:
        excerpt = excerpt if excerpt.startswith(("{", "%", "$")) else source.name
        says = f"is filled anew for each request and stands before {taint.static_after} characters of fixed text"
        message = f"`{excerpt}` {says} in {sink.words}."
    else:
        says = "changes once a day" if is_daily else _OUTPUT_SAYS if source.is_output else _SAYS[source.rule]
        message = f"`{excerpt}` {says} and flows into {sink.words}."
    steps = (*taint.flow, Step(f"into {sink.words}", sink.module, sink.line))
    return Finding(
        rule=source.rule,
        message=message,
        file=source.module.file,
        start=start,
        end=end,
        help=_DAILY_HELP if is_daily else _help(source, text),
        notes=tuple(_note(step, source.module) for step in steps),
        lost_tokens=text.tokens(taint.static_after) if taint.static_after else None,
        fix=mend(source, text),
    )


def _note(step: Step, module: Module) -> str:
    where = f"line {step.line}" if step.module is module else f"{step.module.file}, line {step.line}"
    return f"{step.words} ({where})"


def _help(source: Source, text: SourceText) -> str:
    if source.rule != catalog.UNSORTED_JSON:
        return _HELP[source.rule]
    return f"Add {source.mend}." if source.mend and not is_about_a_schema(source.node, text) else _SCHEMA_HELP
