"""How probable it is that two questions have one answer, before anything is known of this traffic.

A logistic model over `FEATURES`, in two forms: with the vectors of tokens and without. Signs are held while it is
fitted, so that no guard may speak for a pair and no further word left over either. `bench/answers_fit.py` fits it, and
states which parts of which sets it saw; the weights travel with the package in `prior.json`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from prefold.responses.semantic.wording.features import FEATURES

_KNOWN = FEATURES.index("near_known")
_STEEPEST = 40.0


@dataclass(frozen=True, slots=True)
class Weights:
    """A logistic model.

    Attributes:
        constant: log-odds where all features are 0.
        by_feature: log-odds of each, in the order of `FEATURES`.
    """

    constant: float
    by_feature: tuple[float, ...]


@lru_cache(maxsize=2)
def weights(with_tokens: bool) -> Weights:
    """The shipped model, by whether vectors of tokens are known."""
    kept = json.loads(files(__package__).joinpath("prior.json").read_text("utf-8"))
    model = kept["with_tokens" if with_tokens else "without_tokens"]
    return Weights(float(model["constant"]), tuple(float(model["weights"].get(name, 0.0)) for name in FEATURES))


def prior(features: Sequence[float]) -> float:
    """Probability, 0 to 1, that a pair has one answer.

    Args:
        features: as `pair_features` returns them.
    """
    model = weights(features[_KNOWN] > 0)
    logit = model.constant + sum(weight * value for weight, value in zip(model.by_feature, features, strict=True))
    return 1 / (1 + math.exp(-max(-_STEEPEST, min(_STEEPEST, logit))))
