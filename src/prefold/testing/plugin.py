"""The pytest plugin: the fixture `prefix_lock`, and `--prefold-update` to accept what changed.

It is loaded in every run of pytest wherever prefold is installed, so it imports nothing until a test uses it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

_PROPERTY = "prefold_accepted"
"""Name under which a test's report carries what was accepted, from the workers of pytest-xdist too."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch and the setting."""
    group = parser.getgroup("prefold", "prompt prefixes")
    group.addoption(
        "--prefold-update",
        action="store_true",
        help="Accept new and changed prefixes: write them to the lock file. Refused under CI.",
    )
    parser.addini(
        "prefold_lock", "The lock file of prompt prefixes, relative to the root folder.", default="prefold.lock.json"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to accept anything where nobody looks at it."""
    if config.getoption("prefold_update"):
        from prefold.errors import PrefoldError  # noqa: PLC0415 - most runs do not need it
        from prefold.testing.checking import refuse_update_under_ci  # noqa: PLC0415 - the same

        try:
            refuse_update_under_ci("--prefold-update", os.environ)
        except PrefoldError as error:
            raise pytest.UsageError(f"{error.message} {error.hint}") from None


@pytest.fixture
def prefix_lock(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Check that a stable prompt prefix is what the lock file says.

    Use it as `prefix_lock("support-agent", system=SYSTEM, tools=TOOLS)`, `prefix_lock("triage", body, part="system")`
    or `prefix_lock("triage", build)`, where `build` takes no arguments and must give the same twice. It takes the
    arguments of `prefold.testing.assert_prefix`, except for `lock`.
    """
    from prefold.errors import PrefoldError  # noqa: PLC0415 - runs without such a test do not need it
    from prefold.testing.checking import Check  # noqa: PLC0415 - the same

    check = Check(
        request.config.rootpath / request.config.getini("prefold_lock"),
        accepts=request.config.getoption("prefold_update"),
        how_to_accept=f"pytest --prefold-update {request.node.nodeid!r}",
    )

    def check_prefix(
        name: str,
        prefix: Any = None,
        *,
        system: Any = None,
        tools: Any = None,
        messages: Any = None,
        part: str = "prefix",
        dialect: str | None = None,
    ) -> None:
        fields = {"system": system, "tools": tools, "messages": messages}
        try:
            verdict = check(name, prefix, fields, part=part, dialect=dialect)
        except PrefoldError as error:
            pytest.fail(f"{error.message}\n{error.hint}", pytrace=False)
        if verdict.problem:
            pytest.fail(verdict.problem, pytrace=False)
        if verdict.accepted:
            request.node.user_properties.append((_PROPERTY, verdict.accepted))

    return check_prefix


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what was accepted."""
    accepted = dict.fromkeys(
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == _PROPERTY
    )
    if accepted:
        terminalreporter.section("prefold")
        for line in accepted:
            terminalreporter.line(line)
