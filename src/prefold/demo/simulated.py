"""The demo without a model: the same cache, the same prompts, answers that only have a length."""

from __future__ import annotations

import re
from collections.abc import Sequence

from prefold.core.cache import Cache, NoValues
from prefold.core.tokens import WIDTH, count, pack, unpack
from prefold.demo.play import Message, Reply

# Within a few percent of what the default model's tokenizer makes of the scenes.
_PIECE = re.compile(r"<\|\w+\|>| ?[^\W\d_]{1,8}|\d| ?[^\w\s]+|_|\s+")


class SimulatedPlayer:
    """Drives `core.cache.Cache` as the engine does, and computes nothing.

    Args:
        capacity: tokens that the cache holds.
    """

    def __init__(self, capacity: int) -> None:
        self._cache: Cache[None] = Cache(capacity, NoValues(), None)
        self._ids: dict[str, int] = {}

    def prompt(self, messages: Sequence[Message]) -> bytes:
        """See `Player`; a token is a word or a piece of one."""
        turns = [f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages]
        return self._tokens("".join(turns) + "<|im_start|>assistant\n")

    def answer(self, prompt: bytes, max_tokens: int) -> Reply:
        """See `Player`; the answer is as long as it may be, and says nothing."""
        text = " ".join(["word"] * max_tokens)
        tokens = self._tokens(text)
        lease = self._cache.admit(prompt, reserve=count(tokens), make_value=_no_value)
        # A model never reads the last token of its answer, so it has no K and V of it.
        self._cache.release(lease, tail=tokens[:-WIDTH], make_value=_no_value)
        return Reply(text, tuple(unpack(tokens)), lease.hit, ttft=None, wall=None)

    def forget(self) -> None:
        """See `Player`."""
        self._cache.reset()

    def _tokens(self, text: str) -> bytes:
        return pack(self._ids.setdefault(piece, len(self._ids)) for piece in _PIECE.findall(text))


def _no_value(_start: int, _stop: int) -> None:
    return None
