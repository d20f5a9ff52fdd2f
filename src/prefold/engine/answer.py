"""From tokens to text, up to a stop."""

from __future__ import annotations

from collections.abc import Sequence

from prefold.engine.tokenizer import TextStream


class AnswerText:
    """The text of one answer as it grows.

    Text that might be the beginning of a stop is held back until that is decided, so nothing has to be taken back.

    Args:
        stream: turns tokens into text.
        stops: texts at which the answer ends; they are not part of it.
    """

    def __init__(self, stream: TextStream, stops: Sequence[str]) -> None:
        self._stream = stream
        self._stops = stops
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """Add a token; returns the text that is now certain. `stopped` says whether a stop was met."""
        return self._add(self._stream.push(token))

    def finish(self) -> str:
        """The rest of the text, when no more tokens come."""
        text = self._add(self._stream.flush())
        if not self.stopped:
            text, self._held = text + self._held, ""
        return text

    def _add(self, text: str) -> str:
        if self.stopped:
            return ""
        if not self._stops:
            return text
        self._held += text
        found = [at for at in (self._held.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped = True
            certain, self._held = self._held[: min(found)], ""
            return certain
        keep = max(_overlap(self._held, stop) for stop in self._stops)
        split = len(self._held) - keep
        certain, self._held = self._held[:split], self._held[split:]
        return certain


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` with which `stop` begins."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
