"""Probabilities from evidence."""

from __future__ import annotations

import numpy as np

from prefold.responses.semantic.decision.calibration import Calibration


def drawn(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    evidence = random.normal(size=(count, 3))
    truth = 1 / (1 + np.exp(-(1.0 + 2.0 * evidence[:, 0] - evidence[:, 1])))
    return evidence, random.random(count) < truth, truth


def test_without_samples_it_is_the_prior_but_less_sure() -> None:
    model = Calibration((0.0, 1.0, 0.0, 0.0), (1.0, 0.5, 1.0, 1.0))
    assert 0.5 == model.probability((0.0, 0.0, 0.0))
    assert 0.5 < model.probability((3.0, 0.0, 0.0)) < 1 / (1 + np.exp(-3.0))


def test_probabilities_come_true() -> None:
    model = Calibration((0.0,) * 4, (3.0,) * 4)
    evidence, same, _ = drawn(3000)
    for row, label in zip(evidence, same, strict=True):
        model.learn(row, bool(label))
    evidence, same, truth = drawn(4000, seed=1)
    given = np.array([model.probability(row) for row in evidence])
    assert 0.03 > np.abs(given - truth).mean()
    for low, high in ((0.0, 0.2), (0.4, 0.6), (0.8, 0.95), (0.95, 1.0)):
        within = (given >= low) & (given < high)
        assert 0.05 > abs(given[within].mean() - same[within].mean())


def test_a_few_samples_of_one_kind_make_it_sure_of_nothing() -> None:
    model = Calibration((0.0,) * 4, (2.0,) * 4)
    for _ in range(10):
        model.learn((1.0, 1.0, 1.0), True)
    assert 0.8 < model.probability((1.0, 1.0, 1.0)) < 0.999


def test_the_oldest_samples_are_forgotten() -> None:
    model = Calibration((0.0,) * 4, (2.0,) * 4, keep=50)
    for label in (False, True):
        for _ in range(200):
            model.learn((1.0, 0.0, 0.0), label)
    assert 50 == model.samples
    assert 0.8 < model.probability((1.0, 0.0, 0.0))


def test_extreme_evidence_breaks_nothing() -> None:
    model = Calibration((0.0,) * 4, (2.0,) * 4)
    for number in range(60):
        model.learn((1e6 * (-1) ** number, 0.0, 0.0), number % 2 == 0)
    assert np.isfinite(model.weights).all()
    assert 0 <= model.probability((-1e6, 0.0, 0.0)) <= 0.5 <= model.probability((1e6, 0.0, 0.0)) <= 1
