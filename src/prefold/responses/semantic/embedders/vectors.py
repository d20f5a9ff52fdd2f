"""What every embedder's vectors go through."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefold.responses.semantic.embedders.faults import Failed

Vector = NDArray[np.float32]
"""Shape [size], or [texts, size]."""


def unit_rows(rows: Any) -> Vector:
    """The rows of a matrix at unit length, as float32.

    Raises:
        Failed: if it is no matrix of numbers, or a row has no direction: zero, infinite, not a number.
    """
    try:
        matrix = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise Failed("The embedder gave what is not numbers, or vectors of different sizes.") from None
    if matrix.ndim != 2 or matrix.size == 0:
        raise Failed(f"The embedder gave an array of shape {list(matrix.shape)} where vectors belong.")
    with np.errstate(all="ignore"):
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise Failed("The embedder gave a vector without a direction: zero, infinite, or not a number.")
    return np.ascontiguousarray(matrix / lengths, dtype=np.float32)
