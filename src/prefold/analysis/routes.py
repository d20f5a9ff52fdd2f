"""Five ways not to pay for a token, and what a log says each would bring; those that change no answer come first."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from prefold.analysis.bill import Bill
from prefold.analysis.record import Body
from prefold.analysis.request import Request
from prefold.core.tokens import WIDTH
from prefold.errors import InvalidRequest
from prefold.prompts.prompt import Section

_REMEMBERED = 100_000
"""Requests that a later one can repeat."""
_SINGLE_TURN = 8
"""Content blocks of a request that can be a first question; more are not looked into."""
_SINGLE_TURN_ROLES = 3
"""Messages of a request that can be a first question: system, developer, user."""
_KEPT = 20
"""Content blocks at the end of a conversation that compaction leaves alone."""
_SHORT_ANSWER = 64
"""Tokens of an answer that a smaller model may do as well: a label, a number, a sentence."""
_NOT_WORDS = re.compile(r"[\W_]+")


@dataclass(slots=True)
class Saving:
    """Tokens that a route concerns.

    Attributes:
        requests: how many requests.
        input_tokens: their input, as far as the route would spare it.
        hit_tokens: those of them that come from the cache already.
        output_tokens: their output, as far as it would be spared and is known.
    """

    requests: int = 0
    input_tokens: int = 0
    hit_tokens: int = 0
    output_tokens: int = 0

    def add(self, input_tokens: int, hit_tokens: int, output_tokens: int = 0) -> None:
        """Count one more request."""
        self.requests += 1
        self.input_tokens += input_tokens
        self.hit_tokens += hit_tokens
        self.output_tokens += output_tokens


class Routes:
    """Watches a log for what each route would spare.

    Attributes:
        exact_repeat: requests that an earlier one in their scope equals byte for byte.
        semantic: first questions that differ from an earlier one in case, spacing and punctuation only, with all else
            equal: what even the most careful cache of answers by meaning would find.
        compaction: history older than the last blocks of a conversation.
        smaller_model: requests with short answers.
    """

    def __init__(self) -> None:
        self.exact_repeat = Saving()
        self.semantic = Saving()
        self.compaction = Saving()
        self.smaller_model = Saving()
        self._seen: OrderedDict[int, None] = OrderedDict()

    def add(self, request: Request, hit_tokens: int) -> None:
        """Watch a request of which `hit_tokens` came from the cache."""
        output = request.output_tokens
        content = request.record.content
        if self._is_known(_digest(request, content.content if isinstance(content, Body) else content.run)):
            self.exact_repeat.add(request.tokens, hit_tokens, output)
            return
        if (question := _first_question(request)) and self._is_known(_digest(request, *question)):
            self.semantic.add(request.tokens, hit_tokens, output)
        if len(request.ends) > _KEPT:
            old = (request.ends[-_KEPT - 1] - request.system_end) * request.unit
            if old > 0:
                hit = max(0, min(hit_tokens - request.system_end * request.unit, old))
                self.compaction.add(old, hit)
        if 0 < output <= _SHORT_ANSWER:
            self.smaller_model.add(request.tokens, hit_tokens, output)

    def _is_known(self, digest: int) -> bool:
        if digest in self._seen:
            self._seen.move_to_end(digest)
            return True
        self._seen[digest] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return False


def five_routes(routes: Routes, bill: Bill, avoidable: int) -> list[dict[str, Any]]:
    """What the report says of each route.

    Args:
        routes: what the log says.
        bill: what its tokens cost.
        avoidable: tokens that were lost without need.
    """
    return [
        _route(
            "provider_cache",
            avoidable,
            bill.saved,
            "Input that was sent before and is computed again, and need not be: the same answers, for less.",
        ),
        _saving(
            "exact_repeat",
            routes.exact_repeat,
            bill,
            "Requests that an earlier one equals byte for byte: its answer can be kept.",
        ),
        _saving(
            "semantic",
            routes.semantic,
            bill,
            "First questions that differ from an earlier one in case, spacing or punctuation only. A cache that goes "
            "by meaning finds more, and can be wrong.",
        ),
        _saving(
            "compaction",
            routes.compaction,
            bill,
            "History before the last 20 blocks of a conversation. Each time it is summarised, what follows is computed "
            "once more, and something is forgotten.",
        ),
        _saving(
            "smaller_model",
            routes.smaller_model,
            bill,
            "Requests with answers of 64 tokens at most, which a smaller model may do as well; what it would cost "
            "depends on that model.",
            is_priced=False,
        ),
    ]


def _saving(name: str, saving: Saving, bill: Bill, text: str, *, is_priced: bool = True) -> dict[str, Any]:
    """A route that spares input, of which some is read from the cache anyway."""
    computed = bill.of_computed(saving.input_tokens - saving.hit_tokens)
    read = bill.of_read(saving.hit_tokens)
    saved = computed + read if is_priced and computed is not None and read is not None else None
    return _route(name, saving.input_tokens, saved, f"{saving.requests:,} requests. {text}")


def _route(name: str, tokens: int, cost: float | None, text: str) -> dict[str, Any]:
    lossless = name in ("provider_cache", "exact_repeat")
    return {"route": name, "lossless": lossless, "saved_tokens": tokens, "saved_cost": cost, "text": text}


def _digest(request: Request, *content: bytes) -> int:
    """A name of what was asked and by whom; two that differ have the same one once in 2**64."""
    return hash((request.record.model, request.salt, request.record.tenant, *content))


def _first_question(request: Request) -> tuple[bytes, bytes] | None:
    """A prompt whose last block is its only question: what comes before, and the block reduced to its words."""
    content = request.record.content
    if not isinstance(content, Body) or not 0 < len(request.ends) <= _SINGLE_TURN:
        return None
    if content.content.count(b'"role"') > _SINGLE_TURN_ROLES:  # quicker than reading it
        return None
    try:
        segments = content.prompt.segments
    except InvalidRequest:
        return None
    asked = [segment for segment in segments if segment.section is Section.MESSAGES]
    if len(asked) != 1 or asked[0].text_path is None:
        return None
    words = _NOT_WORDS.sub(" ", asked[0].text).strip().casefold()
    before = request.ends[-2] if len(request.ends) > 1 else 0
    return request.run[: before * WIDTH], words.encode(errors="replace")
