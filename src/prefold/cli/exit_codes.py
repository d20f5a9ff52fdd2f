"""What the exit status of every command means."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit statuses."""

    CLEAN = 0
    FINDINGS = 1
    """The command worked, and what it checked is not as it should be."""
    ERROR = 2
    """Wrong usage, something missing, or a fault of prefold."""
    INTERRUPTED = 130
    """128 + SIGINT: Ctrl-C."""
    BROKEN_PIPE = 141
    """128 + SIGPIPE: whoever read the output has gone."""
