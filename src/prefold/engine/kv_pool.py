"""What a K/V pool does, whatever its layout and number format.

Shapes: `T` tokens of a batch, `H` query heads, `N` K/V heads, `D` head size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from prefold.engine.plan import Item
from prefold.engine.slots import Runs

if TYPE_CHECKING:
    import torch


class KVPool(Protocol):
    """K and V of every layer for a number of tokens, one a slot.

    Attributes:
        capacity: number of slots. The slot of that number, behind the last one, is there too: K and V go to it that
            nobody will read.
        bytes_per_token: size of a token's record.
        format: name of the records' form; equal names and shapes mean that one pool loads what another dumped.
    """

    capacity: int
    bytes_per_token: int
    format: str

    def prepare(self, items: tuple[Item, ...]) -> Any:
        """Bring a step's plan, once for all layers, into the form that `attend` wants."""

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        write: torch.Tensor,
        plan: Any,
        scale: float,
    ) -> torch.Tensor:
        """Store the batch's K and V, then attend.

        Args:
            layer: which layer.
            q: (T, H, D), rotated.
            k: (T, N, D), rotated to its positions.
            v: (T, N, D)
            write: (T,) int64, the slot for each token's K and V.
            plan: from `prepare`.
            scale: factor on the products of queries and keys.

        Returns:
            (T, H, D) in the dtype of `q`.
        """

    def dump(self, runs: Runs) -> torch.Tensor:
        """The records of some slots, one after the other: (L, bytes_per_token) uint8 on the CPU, a copy."""

    def load(self, runs: Runs, records: torch.Tensor) -> None:
        """Fill slots with records from `dump`, to the bit."""
