"""Logistic regression around a prior guess, refitted as samples come, that knows how unsure it is."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

_STEPS = 12
_HIGHEST = 30.0


class Calibration:
    """Turns evidence into a probability; starts from prior weights and is drawn from them by samples.

    The weights are those of the highest posterior density under independent normal priors. The probability is averaged
    over what the weights may still be (MacKay, "The evidence framework applied to classification networks", 1992), so
    that few samples give no extreme ones. The same samples in the same order give the same bits on one machine.

    Args:
        weights: means of the priors, the constant first.
        deviations: their standard deviations, above 0.
        keep: latest samples that are fitted to.
    """

    def __init__(self, weights: Sequence[float], deviations: Sequence[float], keep: int = 4096) -> None:
        self._prior = np.asarray(weights, np.float64)
        self._precision = np.asarray(deviations, np.float64) ** -2
        self._weights: Any = self._prior.copy()
        self._covariance = np.diag(1 / self._precision)
        self._samples: deque[tuple[Any, bool]] = deque(maxlen=keep)
        self._since = 0

    @property
    def samples(self) -> int:
        """How many it is fitted to at most."""
        return len(self._samples)

    @property
    def weights(self) -> tuple[float, ...]:
        """As of the last fit, the constant first."""
        return tuple(self._weights.tolist())

    def probability(self, evidence: Sequence[float]) -> float:
        """That a pair with this evidence, one number for each weight but the constant, has the same answer."""
        row = _row(evidence)
        logit = float(row @ self._weights)
        variance = float(row @ self._covariance @ row)
        return _sigmoid(logit / math.sqrt(1 + math.pi * variance / 8))

    def learn(self, evidence: Sequence[float], same: bool) -> None:
        """Take a sample; fits again once there are a twentieth more, at least 10."""
        self._samples.append((_row(evidence), same))
        self._since += 1
        if self._since >= max(10, len(self._samples) // 20):
            self._since = 0
            self._fit(np.stack([row for row, _ in self._samples]), np.array([same for _, same in self._samples]))

    def fit(self, evidence: Any, same: Any) -> None:
        """Fit to these samples alone; evidence as (samples, numbers), same as (samples,)."""
        self._fit(np.column_stack((np.ones(len(evidence)), evidence)), np.asarray(same))

    def _fit(self, rows: Any, same: Any) -> None:
        """Newton's method from where it was; the loss is convex, and steps that would not lessen it are halved."""
        same = same.astype(np.float64)
        weights: Any = self._weights
        loss = self._loss(rows, same, weights)
        hessian: Any = np.diag(self._precision)
        for _ in range(_STEPS):
            chance = 1 / (1 + np.exp(-np.clip(rows @ weights, -_HIGHEST, _HIGHEST)))
            gradient = rows.T @ (chance - same) + self._precision * (weights - self._prior)
            hessian = (rows * (chance * (1 - chance))[:, None]).T @ rows + np.diag(self._precision)
            step: Any = np.linalg.solve(hessian, gradient)
            scale = 1.0
            while scale > 1e-3:
                tried = weights - scale * step
                new = self._loss(rows, same, tried)
                if new <= loss:
                    break
                scale /= 2
            else:
                break
            gained = loss - new
            weights, loss = tried, new
            if gained < 1e-6:
                break
        self._weights = weights
        self._covariance = np.linalg.inv(hessian)

    def _loss(self, rows: Any, same: Any, weights: Any) -> float:
        logits = rows @ weights
        data = np.logaddexp(0.0, logits) - same * logits
        return float(data.sum() + 0.5 * (self._precision * (weights - self._prior) ** 2).sum())


def _row(evidence: Sequence[float]) -> Any:
    return np.concatenate(([1.0], np.asarray(evidence, np.float64)))


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-_HIGHEST, min(_HIGHEST, logit))))
