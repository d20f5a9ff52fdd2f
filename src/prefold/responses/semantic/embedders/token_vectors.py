"""The vectors of a text's tokens, in context, and a small form of them to remember."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

_STEPS = 127.0
_LEAST = 1e-12


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """A text as an encoder sees it.

    Attributes:
        text: that was read.
        spans: where each token stands in the text: first character and the one behind its last.
        vectors: float32, shape [tokens, size], rows of unit length; without those of special tokens.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    vectors: Any


@runtime_checkable
class TokenEmbedder(Protocol):
    """An embedder that can give the vectors of tokens as well, from the same run of the model.

    The shipped prior was fitted on those of MiniLM; an encoder whose tokens lie otherwise should not offer them.
    """

    def embed_tokens(self, text: str) -> tuple[Any, TokenVectors]:
        """The vector of the text, as `Embedder.embed` gives it, and those of its tokens.

        Raises:
            PrefoldError: if it cannot.
        """


@dataclass(frozen=True, slots=True)
class PackedTokens:
    """`TokenVectors` in a quarter of the memory: each row in whole steps of its largest number.

    Cosines change by less than 0.001. Rows of unit length need no scale: unpacking makes them that long again.

    Attributes:
        spans: int16, shape [tokens, 2].
        rows: int8, shape [tokens, size].
    """

    spans: Any
    rows: Any

    @classmethod
    def of(cls, tokens: TokenVectors) -> PackedTokens:
        """Pack; some 20 microseconds for a question."""
        largest = np.maximum(np.abs(tokens.vectors).max(axis=1, keepdims=True, initial=0.0), _LEAST)
        spans = np.array(tokens.spans, np.int16).reshape(-1, 2)
        return cls(spans, np.rint(tokens.vectors * (_STEPS / largest)).astype(np.int8))

    def unpack(self, text: str) -> TokenVectors:
        """What was packed, nearly, of the text that it was of."""
        return TokenVectors(text, tuple(map(tuple, self.spans.tolist())), unit_or_zero(self.rows))


def unit_or_zero(rows: Any) -> Any:
    """Rows at unit length, as float32; those without a direction stay zero."""
    found = np.asarray(rows, np.float32)
    return found / np.maximum(np.linalg.norm(found, axis=-1, keepdims=True), _LEAST)
