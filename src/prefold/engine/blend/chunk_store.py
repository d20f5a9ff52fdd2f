"""K and V of chunks by their text, least recently used ones dropped first."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from prefold.core.keys import Scope

if TYPE_CHECKING:
    import torch

_VERSION = b"prefold/chunk/1"


@dataclass(slots=True)
class StoreCounters:
    """Totals since the start: chunks looked for and found, kept and dropped."""

    hits: int = 0
    misses: int = 0
    added: int = 0
    evicted: int = 0


class ChunkStore:
    """Records of chunks, of one model.

    Args:
        budget: most bytes that the records take up together.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.size = 0
        """Bytes taken up."""
        self.counters = StoreCounters()
        self._records: OrderedDict[bytes, torch.Tensor] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def get(self, tokens: bytes, scope: Scope) -> torch.Tensor | None:
        """The record of a chunk; None if it is not there, or another salt's or namespace's."""
        key = _key(tokens, scope)
        record = self._records.get(key)
        if record is None:
            self.counters.misses += 1
            return None
        self._records.move_to_end(key)
        self.counters.hits += 1
        return record

    def has(self, tokens: bytes, scope: Scope) -> bool:
        """Whether a chunk is there. Counts and changes nothing."""
        return _key(tokens, scope) in self._records

    def put(self, tokens: bytes, scope: Scope, record: torch.Tensor) -> None:
        """Keep a record, unless it is larger than the budget."""
        key = _key(tokens, scope)
        if key in self._records or record.nbytes > self.budget:
            return
        self._records[key] = record
        self.size += record.nbytes
        self.counters.added += 1
        while self.size > self.budget:
            _, oldest = self._records.popitem(last=False)
            self.size -= oldest.nbytes
            self.counters.evicted += 1

    def clear(self) -> None:
        """Forget all records."""
        self._records.clear()
        self.size = 0


def _key(tokens: bytes, scope: Scope) -> bytes:
    """A name for these tokens under this salt and namespace.

    A salt counts wherever in the prompt it begins: chunks before it could be shared with everybody, but one that stands
    before the salt in one request may stand behind it in the next.
    """
    salt = b"\0" if scope.salt is None else b"\1" + scope.salt.encode()
    namespace = scope.namespace.encode()
    lengths = len(namespace).to_bytes(4, "little") + len(salt).to_bytes(4, "little")
    return sha256(_VERSION + lengths + namespace + salt + tokens).digest()
