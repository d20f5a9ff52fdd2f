"""What is learned about closeness from wordings that are known to share an answer.

A plain cosine knows nothing of this traffic. Once there are clusters of wordings with equal answers, three things tell
which cluster a question belongs to: the wordings nearest to it vote for theirs; the spread within and between clusters
tells which directions of the vectors matter (probabilistic linear discriminant analysis, Ioffe, ECCV 2006, with the
covariance within clusters shrunk towards a sphere); and its words vote for the clusters in which they are common.

For the covariances only sums are kept, so memory grows with clusters and a bounded number of wordings of each, not with
traffic. One of these belongs to one context: answers of another context, or tenant, say nothing here.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prefold.responses.semantic.decision.word_votes import WordVotes

CLOSENESS = ("cosine", "margin", "vote", "metric", "words", "together", "wordings", "agreement", "experience")
"""Names of `Closeness.features`."""

_SHARPNESS = 20.0
"""A wording's vote counts e times as much as that of one whose cosine is lower by one over this."""
_FAR = 0.5
"""Cosine of a wording that belongs to no cluster: it votes too."""
_METRIC_TRUST, _WORDS_TRUST = 0.2, 0.3
"""What logarithms by metric and words count beside votes: both suppose independence, and overstate."""
_DIRECTIONS = 192
"""In which clusters differ most: the rest is noise."""
_FIRST = 30
"""Wordings from which a metric is first learned."""


@dataclass(frozen=True, slots=True)
class Closeness:
    """The cluster that a question most likely belongs to, and what speaks for it.

    Attributes:
        cluster: that was picked.
        features: by the names in `CLOSENESS`. cosine: of its nearest wording; margin: cosine less that of the nearest
            wording of any other cluster; vote, metric, words, together: log-odds by each, and by all, against all
            others, squeezed by `log1p`; wordings: log of 1 + how many it has; agreement: share of cosine, metric and
            words that would pick it; experience: log of 1 + wordings of all clusters.
    """

    cluster: str
    features: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Metric:
    """Directions in which wordings within a cluster spread by 1, and clusters by `between`.

    Attributes:
        mean: of all wordings; (size,).
        projection: (size, directions).
        between: variance of clusters' means in each direction; (directions,).
    """

    mean: Any
    projection: Any
    between: Any


class Clusters:
    """Wordings of one context by cluster, and the metric learned from them.

    `add` and `closest` take well below a millisecond. `refresh` solves two eigenvalue problems, some 50 ms for 384
    numbers, and may run in a thread of its own.

    Args:
        size: numbers in a vector.
        max_clusters: beyond this, those that got no wording for longest are forgotten.
        wordings_per_cluster: latest ones that vote.
    """

    def __init__(self, size: int, max_clusters: int = 10_000, wordings_per_cluster: int = 32) -> None:
        self._size = size
        self._max_clusters = max_clusters
        self._per_cluster = wordings_per_cluster
        self._slots: OrderedDict[str, int] = OrderedDict()
        self._free: list[int] = []
        self._sums = np.zeros((64, size), np.float32)
        self._counts = np.zeros(64, np.int64)
        self._latest: dict[int, list[Any]] = {}
        self._scatter = np.zeros((size, size), np.float64)
        self._pending: list[Any] = []
        self._words = WordVotes()
        self._metric: _Metric | None = None
        self._wordings = 0
        self._fitted = 0
        self._lock = threading.Lock()

    @property
    def wordings(self) -> int:
        """How many there are."""
        return self._wordings

    @property
    def due(self) -> bool:
        """Whether `refresh` would learn something: a tenth more wordings than last time, and enough to begin with."""
        return self._wordings >= max(_FIRST, 1.1 * self._fitted)

    def add(self, cluster: str, vector: Any, text: str = "") -> None:
        """Learn that a wording belongs to a cluster.

        Args:
            cluster: may be new.
            vector: of the wording, unit length, (size,).
            text: of the wording; without it, words have no vote.
        """
        vector = np.array(vector, np.float32)
        with self._lock:
            slot = self._slots.get(cluster)
            if slot is None:
                slot = self._slots[cluster] = self._new_slot()
            self._slots.move_to_end(cluster)
            self._sums[slot] += vector
            self._counts[slot] += 1
            self._pending.append(vector)
            self._wordings += 1
            latest = self._latest.setdefault(slot, [])
            latest.append(vector)
            del latest[: -self._per_cluster]
        self._words.add(cluster, text)

    def remove(self, cluster: str) -> None:
        """Forget a cluster. The metric keeps what older wordings than those that vote told about spread."""
        with self._lock:
            self._remove(cluster)

    def closest(self, vector: Any, clusters: Sequence[str], text: str = "") -> Closeness | None:
        """The most likely one of some clusters, those of the nearest wordings.

        Args:
            vector: of the question, (size,).
            clusters: without repetition; unknown ones are passed over.
            text: of the question.

        Returns:
            None where no cluster is known.
        """
        known = [cluster for cluster in clusters if cluster in self._slots]
        if not known:
            return None
        vector = np.asarray(vector, np.float32)
        slots = [self._slots[cluster] for cluster in known]
        cosines = np.stack([row for slot in slots for row in self._latest[slot]]) @ vector
        starts = np.cumsum([0, *(len(self._latest[slot]) for slot in slots[:-1])])
        nearest = np.maximum.reduceat(cosines, starts)
        votes = np.log(np.add.reduceat(np.exp(_SHARPNESS * cosines), starts)) - _SHARPNESS * _FAR
        by_metric = self._by_metric(vector, slots)
        by_words = np.array(self._words.votes(text, known))
        together = votes + _METRIC_TRUST * by_metric + _WORDS_TRUST * by_words
        picked = int(np.argmax(together))
        others = np.delete(nearest, picked)
        agreeing = sum(int(np.argmax(ballot)) == picked for ballot in (nearest, by_metric, by_words))
        return Closeness(
            known[picked],
            (
                float(nearest[picked]),
                float(nearest[picked] - (others.max() if len(others) else _FAR)),
                *(_squeezed_log_odds(ballot, picked) for ballot in (votes, by_metric, by_words, together)),
                math.log1p(self._counts[slots[picked]]),
                agreeing / 3,
                math.log1p(self._wordings),
            ),
        )

    def refresh(self) -> None:
        """Learn the metric from the wordings there are."""
        with self._lock:
            used = np.fromiter(self._slots.values(), np.int64, len(self._slots))
            counts = self._counts[used].astype(np.float64)
            sums = self._sums[used].astype(np.float64)
            if self._pending:
                pending = np.stack(self._pending).astype(np.float64)
                self._scatter += pending.T @ pending
                self._pending.clear()
            scatter = self._scatter.copy()
            self._fitted = self._wordings
        freedom = float(counts.sum()) - len(counts)
        if freedom < 10 or len(counts) < 3:
            return
        within = (scatter - sums.T @ (sums / counts[:, None])) / freedom
        sphere = float(np.trace(within)) / self._size
        if sphere < 1e-6:
            return
        trust = freedom / (freedom + self._size)
        within = trust * within + (1 - trust) * sphere * np.eye(self._size)
        mean = sums.sum(0) / counts.sum()
        means = sums / counts[:, None] - mean
        between = means.T @ means / len(counts) - within * float(np.mean(1 / counts))
        spread, directions = np.linalg.eigh(within)
        whitened = directions / np.sqrt(np.maximum(spread, 1e-6 * sphere))
        variances, turned = np.linalg.eigh(whitened.T @ between @ whitened)
        kept = slice(-min(_DIRECTIONS, self._size), None)
        self._metric = _Metric(
            mean.astype(np.float32),
            (whitened @ turned[:, kept]).astype(np.float32),
            np.maximum(variances[kept], 0.0).astype(np.float32),
        )

    def _by_metric(self, vector: Any, slots: list[int]) -> Any:
        """Log of how much likelier each cluster is than one not seen yet; zeros before a metric is known."""
        metric = self._metric
        if metric is None:
            return np.zeros(len(slots))
        counts = self._counts[slots][:, None].astype(np.float32)
        sums = (self._sums[slots] - counts * metric.mean) @ metric.projection
        place = (vector - metric.mean) @ metric.projection
        weight = metric.between / (counts * metric.between + 1.0)
        known = (place - weight * sums) ** 2 / (1.0 + weight) + np.log1p(weight)
        new = place**2 / (1.0 + metric.between) + np.log1p(metric.between)
        return np.log(counts[:, 0]) - 0.5 * (known - new).sum(1)

    def _new_slot(self) -> int:
        if len(self._slots) >= self._max_clusters:
            self._remove(next(iter(self._slots)))
        if self._free:
            return self._free.pop()
        slot = len(self._slots)
        if slot == len(self._counts):
            self._sums = np.concatenate((self._sums, np.zeros_like(self._sums)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        return slot

    def _remove(self, cluster: str) -> None:
        slot = self._slots.pop(cluster, None)
        if slot is None:
            return
        for vector in self._latest.pop(slot):
            self._scatter -= np.outer(vector, vector)
        self._wordings -= int(self._counts[slot])
        self._sums[slot] = 0.0
        self._counts[slot] = 0
        self._free.append(slot)
        self._words.remove(cluster)


def _squeezed_log_odds(logs: Any, picked: int) -> float:
    """Of one against all others and against none of them, whose log is 0."""
    rest = np.append(np.delete(logs, picked), 0.0)
    top = float(rest.max())
    odds = float(logs[picked]) - top - math.log(float(np.exp(rest - top).sum()))
    return math.copysign(math.log1p(abs(odds) / 3), odds)
