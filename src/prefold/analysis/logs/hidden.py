"""What transcripts leave out of their requests: a text that stands for it.

Coding agents log what was said, and neither their system prompt nor their tools, which are most of what they send
first. How long that is follows from the usage: it is what the provider counted above the tokens of the text.
"""

from __future__ import annotations

import functools
from random import Random

from prefold.analysis.record import Body
from prefold.errors import InvalidRequest
from prefold.prompts.tokens import TokenCounter, counter_for
from prefold.providers.usage import Usage

_STEP = 250  # tokens: texts are counted with an estimate, so that a finer size would say more than is known
_MOST_TOKENS = 1_000_000  # more than any context holds
_MOST_OWNERS = 1_000  # the oldest is forgotten
_WORDS = range(100_000, 1_000_000)  # all equally long


class HiddenParts:
    """The hidden beginning of each conversation's requests.

    Its size is settled by the first request that has a usage, whose text is the shortest, and stays, so that the
    requests of a conversation begin alike. Sizes are rounded, so that what is equally long is taken for the same.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}

    def text(
        self, owner: str, body: Body, model: str, usage: Usage | None, what: str = "system prompt and tools"
    ) -> str:
        """The text that stands for what a request hides; empty where nothing is known to be hidden.

        Args:
            owner: whose requests have this beginning: a session, or an agent in it.
            body: the request, as far as it is known.
            model: that it asks.
            usage: its usage.
            what: what is hidden.
        """
        tokens = self._tokens.get(owner)
        if tokens is None:
            if usage is None or not usage.input:
                return ""
            counter = _counter_of(model)
            try:
                visible = sum(counter.count(segment.text) for segment in body.prompt.segments)
            except InvalidRequest:
                return ""  # who encodes the body will say so
            tokens = round((usage.input - visible) / _STEP) * _STEP
            self._tokens[owner] = tokens
            if len(self._tokens) > _MOST_OWNERS:
                del self._tokens[next(iter(self._tokens))]
        return placeholder(what, tokens, model) if 0 < tokens <= _MOST_TOKENS else ""


@functools.lru_cache(maxsize=8)
def placeholder(what: str, tokens: int, model: str) -> str:
    """A text of about so many tokens of a model; two of different sizes have little in common but the first words."""
    counter = _counter_of(model)
    title = f"[hidden: {what}, about {tokens:,} tokens]"
    tokens_per_word = counter.count(_words(1_000, tokens)) / 1_000
    return title + _words(round((tokens - counter.count(title)) / tokens_per_word), tokens)


def _words(length: int, seed: int) -> str:
    # Were they in any order, what one agent hides would look like an edit of what another hides.
    return "".join(f" {number}" for number in Random(seed).choices(_WORDS, k=length))  # noqa: S311 - no secret


@functools.lru_cache(maxsize=8)
def _counter_of(model: str) -> TokenCounter:
    """What counts for a model: reading some vocabularies takes seconds."""
    return counter_for(model)
