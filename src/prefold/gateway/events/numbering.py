"""What the number of a batch says: whether batches were lost, and whether the engine began anew."""

from __future__ import annotations

from enum import Enum, auto


class Arrival(Enum):
    """How a batch fits what came before."""

    NEXT = auto()
    """The one that was due."""
    KNOWN = auto()
    """One that was applied already, as part of a replay."""
    AFTER_GAP = auto()
    """Others before it have not come."""
    RESTARTED = auto()
    """The engine counts from the beginning again."""


class Numbering:
    """Numbers of one publisher's batches, which rise by one.

    Batches come in two ways, as they are made and replayed. Those of a replay may come again in the other way; only
    within one way does a number that falls mean a restart.

    Attributes:
        applied: number of the latest batch that was applied; -1 for none.
    """

    def __init__(self) -> None:
        self.applied = -1
        self._live = -1

    def live(self, number: int) -> Arrival:
        """Judge a batch that came as it was made."""
        if number <= self._live:
            return Arrival.RESTARTED
        self._live = number
        if number <= self.applied:
            return Arrival.KNOWN
        return Arrival.NEXT if number == self.applied + 1 else Arrival.AFTER_GAP

    def restart(self, live: int = -1) -> None:
        """Begin anew.

        Args:
            live: the batch that told of the restart; -1 where something else did.
        """
        self.applied = -1
        self._live = live
