"""Kinds of traffic: which application sent a request, whatever a release changes in its prompts.

An application is recognised by most of the words of its tools and rules, so that another clock, another spacing or
another order of keys in them is no other application.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict

from prefold.analysis.record import Body
from prefold.analysis.request import Request
from prefold.core.tokens import WIDTH
from prefold.prompts.prompt import Section

OTHERS = "(others)"
_WORDS = re.compile(r"\w+")
_READ = 16_384  # characters of tools and rules that are looked at
_SHOWN = 40  # characters of them in a name
_MOST_KINDS = 64
_MOST_FRONTS = 4_096


class Kinds:
    """Names for kinds of traffic. Remembers a bounded number of them; later ones are one kind together."""

    def __init__(self) -> None:
        self._kinds: list[tuple[str, frozenset[str], str]] = []  # tenant, words, name
        self._by_front: OrderedDict[tuple[str, bytes], str] = OrderedDict()

    def of(self, request: Request) -> str:
        """The kind that a request is of; just its tenant where it has no tools or rules, or the trace has no text."""
        record = request.record
        if not isinstance(record.content, Body) or not request.system_end:
            return record.tenant
        key = record.tenant, hashlib.blake2b(request.run[: request.system_end * WIDTH], digest_size=16).digest()
        kind = self._by_front.pop(key, None)
        if kind is None:
            kind = self._recognised(record.tenant, _front(record.content))
        self._by_front[key] = kind
        if len(self._by_front) > _MOST_FRONTS:
            self._by_front.popitem(last=False)
        return kind

    def _recognised(self, tenant: str, front: str) -> str:
        words = frozenset(_WORDS.findall(front))
        for of, others, name in reversed(self._kinds):
            if of == tenant and _are_alike(words, others):
                return name
        if len(self._kinds) >= _MOST_KINDS:
            return OTHERS
        shown = " ".join(front.split())[:_SHOWN]
        name = f"{tenant}: {shown}" if tenant else shown
        if any(name == known for _, _, known in self._kinds):
            name = f"{name} ({len(self._kinds) + 1})"
        self._kinds.append((tenant, words, name))
        return name


def _front(body: Body) -> str:
    texts = (segment.text for segment in body.prompt.segments if segment.section is not Section.MESSAGES)
    return "\n".join(texts)[:_READ]


def _are_alike(first: frozenset[str], second: frozenset[str]) -> bool:
    """Whether what two have in common makes up half of the shorter one."""
    shorter = min(sum(map(len, first)), sum(map(len, second)))
    return 2 * sum(map(len, first & second)) >= shorter
