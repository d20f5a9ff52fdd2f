"""What an embedder says instead of a vector."""

from __future__ import annotations

from prefold.errors import PrefoldError
from prefold.responses.semantic.types import Reason


class NoVector(PrefoldError):
    """There is no vector for a text, so the question is a miss.

    Args:
        reason: what the miss is counted as.
    """

    def __init__(self, message: str, *, hint: str = "", reason: Reason = Reason.EMBEDDER_FAILED) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class Late(NoVector):
    """It was not there in time, or too many others were waited for."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, reason=Reason.EMBEDDER_SLOW)


class Failed(NoVector):
    """The embedder is not there, failed, or gave what is no vector; or a vector would not stand for the text."""
