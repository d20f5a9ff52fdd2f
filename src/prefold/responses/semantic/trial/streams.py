"""The decision on a stream of questions with known intents, as it would have learned and served.

Each request looks for the nearest wordings. If the decision allows it, it is served; that is wrong where the intent of
the answer is another. If not, or if it is audited, it goes to the model, whose answer, the intent, then is known: it is
a sample for the decision, unless both questions are of the same words, and the text becomes a wording of that answer.
What is served teaches nothing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prefold.errors import UsageError
from prefold.responses.semantic.decision.clusters import Clusters
from prefold.responses.semantic.decision.decision import Decision, DecisionOptions, Pair, evidence
from prefold.responses.semantic.decision.shares import Share
from prefold.responses.semantic.entries.index import VectorIndex
from prefold.responses.semantic.judge import same_words
from prefold.responses.semantic.types import Embedder, Sample
from prefold.responses.semantic.wording.facts import Facts, facts
from prefold.responses.semantic.wording.features import pair_features

_NEAREST = 32
"""Wordings that are looked for."""
_CANDIDATES = 12
"""Answers among them that are weighed."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of some requests.

    Attributes:
        served: of the requests.
        wrong: of the requests: those that got another intent's answer.
        began: place of the first that was served, from 0; None where none was.
    """

    served: Share
    wrong: Share
    began: int | None

    @property
    def wrong_served(self) -> Share:
        """Wrong ones of those served."""
        return Share(self.wrong.count, self.served.count)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "requests": self.served.of,
            "hits": self.served.count,
            "wrong": self.wrong.count,
            "hit_rate": self.served.value,
            "hit_interval": self.served.interval,
            "wrong_rate": self.wrong.value,
            "wrong_interval": self.wrong.interval,
            "wrong_of_served": self.wrong_served.value,
            "wrong_of_served_interval": self.wrong_served.interval,
            "began": self.began,
        }


@dataclass(frozen=True, slots=True)
class StreamRun:
    """One order of the requests.

    Attributes:
        seed: of the order and of the audits.
        held_out: requests after the part in which nothing was served; the decision was fitted on that part.
        whole: another run, over all requests from a cold start, that serves as soon as it may.
    """

    seed: int
    held_out: Figures
    whole: Figures


@dataclass(frozen=True, slots=True)
class StreamTrial:
    """Several orders of one file, at one limit.

    Attributes:
        max_wrong: share of served answers that may be wrong.
        fit_share: part of the requests that nothing is served of, for `held_out`.
        runs: by seed.
    """

    max_wrong: float
    fit_share: float
    runs: tuple[StreamRun, ...]

    @property
    def held_out(self) -> Figures:
        """Of all orders together."""
        return _together([run.held_out for run in self.runs])

    @property
    def whole(self) -> Figures:
        """Of all orders together."""
        return _together([run.whole for run in self.runs])

    def as_json(self) -> dict[str, Any]:
        """For `--json`: figures of the held-out part on top; counts are sums over the orders."""
        return {
            **self.held_out.as_json(),
            "max_wrong": self.max_wrong,
            "fit_share": self.fit_share,
            "whole": self.whole.as_json(),
            "runs": [
                {"seed": run.seed, "held_out": run.held_out.as_json(), "whole": run.whole.as_json()}
                for run in self.runs
            ],
        }


@dataclass(frozen=True, slots=True)
class Stream:
    """Questions with their intents, and their vectors.

    Attributes:
        texts: of the questions.
        intents: likewise.
        vectors: float32, unit length, (questions, size).
    """

    texts: tuple[str, ...]
    intents: tuple[str, ...]
    vectors: Any


def read_stream(path: Path, embedder: Embedder) -> Stream:
    """A JSONL file with `text` and `intent` in each line.

    Raises:
        UsageError: if it is not one.
        PrefoldError: if the embedder fails.
    """
    texts, intents = [], []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            text, intent = row["text"], row["intent"]
        except (ValueError, KeyError, TypeError):
            text = intent = None
        if not isinstance(text, str) or not isinstance(intent, str):
            raise UsageError(
                f"Line {number} of {path.name} has no text and intent.",
                hint='A stream is a file of lines such as {"text": "where is my card", "intent": "card_arrival"}.',
            )
        texts.append(text)
        intents.append(intent)
    if len(texts) < 2:
        raise UsageError(f"{path.name} has too few questions.", hint="A stream needs at least 2 lines.")
    vectors = np.concatenate([embedder.embed([text]) for text in texts])
    return Stream(tuple(texts), tuple(intents), vectors)


def try_stream(
    stream: Stream,
    *,
    options: DecisionOptions | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    fit_share: float = 0.5,
) -> StreamTrial:
    """Run a stream in several orders.

    Args:
        stream: see `read_stream`.
        options: of the decision.
        seeds: one order each.
        fit_share: 0 to 1, see `StreamTrial`.
    """
    options = options or DecisionOptions()
    first = round(fit_share * len(stream.texts))
    runs = []
    read: dict[str, Facts] = {}
    for seed in seeds:
        order = list(range(len(stream.texts)))
        random.Random(seed).shuffle(order)  # noqa: S311 - an experiment, not a secret
        held_out = _run(stream, order, options, seed, first, read)
        whole = _run(stream, order, options, seed, 0, read)
        runs.append(StreamRun(seed, _figures(held_out[first:]), _figures(whole)))
    return StreamTrial(options.max_wrong, fit_share, tuple(runs))


@dataclass(frozen=True, slots=True)
class _Outcome:
    is_served: bool
    is_wrong: bool


def _run(
    stream: Stream, order: Sequence[int], options: DecisionOptions, seed: int, shadow: int, read: dict[str, Facts]
) -> list[_Outcome]:
    size = stream.vectors.shape[1]
    decision, clusters, index = Decision(options), Clusters(size), VectorIndex(size)
    draw = random.Random(seed + 1).random  # noqa: S311 - the same
    facts_of = _remembering(read)
    outcomes = []
    for place, at in enumerate(order):
        text, intent, vector = stream.texts[at], stream.intents[at], stream.vectors[at]
        nearest = _nearest_of_each(stream, index.search(vector, _NEAREST))
        is_served = is_wrong = False
        if (closeness := clusters.closest(vector, list(nearest), text)) is not None:
            cluster = closeness.cluster
            wording, similarity = nearest[cluster]
            features = pair_features(facts_of(text), facts_of(stream.texts[wording]), similarity)
            seen = evidence(features, closeness)
            judgement = decision.judge(Pair(seen, cluster, cluster, "stream"))
            is_same = cluster == intent
            may = judgement.reason is None
            if may and place >= shadow and not decision.should_audit(draw()):
                is_served, is_wrong = True, not is_same
            elif not same_words(text, stream.texts[wording]):
                probability = judgement.probability
                sample = Sample(seen, is_same, cluster, cluster, "stream", probability, may, float(place))
                decision.learn(sample)
        outcomes.append(_Outcome(is_served, is_wrong))
        if not is_served:
            index.add(at, vector)
            clusters.add(intent, vector, text)
            if clusters.due:
                clusters.refresh()
    return outcomes


def _nearest_of_each(stream: Stream, found: Sequence[tuple[int, float]]) -> dict[str, tuple[int, float]]:
    """The intents of the nearest wordings, each with its nearest wording and the cosine of that."""
    nearest: dict[str, tuple[int, float]] = {}
    for at, similarity in found:
        if len(nearest) < _CANDIDATES:
            nearest.setdefault(stream.intents[at], (at, float(similarity)))
    return nearest


def _remembering(read: dict[str, Facts]) -> Callable[[str], Facts]:
    def of(text: str) -> Facts:
        if text not in read:
            read[text] = facts(text)
        return read[text]

    return of


def _figures(outcomes: Sequence[_Outcome]) -> Figures:
    return Figures(
        Share(sum(outcome.is_served for outcome in outcomes), len(outcomes)),
        Share(sum(outcome.is_wrong for outcome in outcomes), len(outcomes)),
        next((place for place, outcome in enumerate(outcomes) if outcome.is_served), None),
    )


def _together(several: Sequence[Figures]) -> Figures:
    began = [figures.began for figures in several if figures.began is not None]
    return Figures(
        sum((figures.served for figures in several), Share(0, 0)),
        sum((figures.wrong for figures in several), Share(0, 0)),
        min(began, default=None),
    )
