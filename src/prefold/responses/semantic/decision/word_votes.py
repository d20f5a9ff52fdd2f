"""Which words go with which answers: evidence beside vectors, which blur rare words.

Naive Bayes over the words and pairs of neighbouring words of a wording, each by whether it is there; the share in a
cluster is smoothed towards that among all wordings, and a word never seen says nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import pairwise

_WORD = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]|[^\W_\u3400-\u4dbf\u4e00-\u9fff]+(?:['’]\w+)*")

_READ = 1_000
"""Characters of a text that are read."""

_MOST_WORDS = 1_000_000
"""Different words of clusters that are remembered, of all clusters together; beyond them only old ones are counted."""


def words_of(text: str) -> frozenset[str]:
    """The words of a text, in lower case, and their pairs; of Chinese, the characters and theirs."""
    words = _WORD.findall(text[:_READ].lower())
    return frozenset((*words, *(f"{one} {other}" for one, other in pairwise(words))))


class WordVotes:
    """Counts in how many wordings of each cluster a word is."""

    def __init__(self) -> None:
        self._wordings = 0
        self._total: Counter[str] = Counter()
        self._own: dict[Hashable, Counter[str]] = {}
        self._size: Counter[Hashable] = Counter()
        self._held = 0

    def add(self, cluster: Hashable, text: str) -> None:
        """Count a wording."""
        own = self._own.setdefault(cluster, Counter())
        self._wordings += 1
        self._size[cluster] += 1
        for word in words_of(text):
            if word in own:
                own[word] += 1
            elif self._held < _MOST_WORDS:
                own[word] = 1
                self._held += 1
            else:
                continue
            self._total[word] += 1

    def remove(self, cluster: Hashable) -> None:
        """Forget a cluster."""
        own = self._own.pop(cluster, None)
        if own is None:
            return
        self._held -= len(own)
        self._wordings -= self._size.pop(cluster)
        for word, count in own.items():
            self._total[word] -= count
            if not self._total[word]:
                del self._total[word]

    def votes(self, text: str, clusters: Sequence[Hashable]) -> list[float]:
        """Log of how much likelier the words are in each cluster than among all wordings; clusters are known ones."""
        votes = [0.0] * len(clusters)
        owns = [self._own[cluster] for cluster in clusters]
        for word in sorted(words_of(text)):
            total = self._total.get(word)
            if total is None:
                continue
            share = (total + 0.5) / (self._wordings + 1)
            for at, (own, cluster) in enumerate(zip(owns, clusters, strict=True)):
                votes[at] += math.log((own.get(word, 0) + share) / ((self._size[cluster] + 1) * share))
        return votes
