"""When an answer may be served."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from prefold.responses.semantic.decision.clusters import CLOSENESS, Closeness
from prefold.responses.semantic.decision.decision import EVIDENCE, Decision, DecisionOptions, Pair, evidence, logit
from prefold.responses.semantic.types import Reason, Sample
from prefold.responses.semantic.wording.features import FEATURES

NO_FEATURES = (0.0,) * len(FEATURES)


def told(vote: float, *, guard: bool = False) -> tuple[float, ...]:
    """Evidence that only votes, and perhaps one guard, say something."""
    features = [0.0] * len(FEATURES)
    features[FEATURES.index("guard_operand")] = float(guard)
    close = [0.0] * len(CLOSENESS)
    close[CLOSENESS.index("vote")] = vote
    return evidence(tuple(features), Closeness("c", tuple(close)))


def even(_: object) -> float:
    return 0.5


class Traffic:
    """Pairs whose votes tell all there is to know; wrong with probability 1 / (1 + exp(2 * vote))."""

    def __init__(self, decision: Decision, seed: int = 0) -> None:
        self.decision = decision
        self.random = random.Random(seed)
        self.served = self.wrong = self.number = 0

    def ask(self, count: int, *, is_wrong_always: bool = False) -> None:
        for _ in range(count):
            self.number += 1
            vote = self.random.uniform(-1, 4)
            same = not is_wrong_always and self.random.random() < 1 / (1 + math.exp(-2 * vote))
            pair = Pair(told(vote), f"e{self.number % 50}", f"c{self.number % 50}", "model")
            judgement = self.decision.judge(pair)
            if judgement.reason is None and not self.decision.should_audit(self.random.random()):
                self.served += 1
                self.wrong += not same
                continue
            self.decision.learn(
                Sample(pair.evidence, same, pair.entry, pair.cluster, pair.route, judgement.probability, False, 0.0)
            )


def test_nothing_is_served_before_anything_is_proven() -> None:
    decision = Decision(DecisionOptions(max_wrong=0.02), even)
    judgement = decision.judge(Pair(told(4.0), "e", "c", "model"))
    assert (1.0, Reason.UNSURE) == (judgement.bound, judgement.reason)
    traffic = Traffic(decision)
    traffic.ask(100)
    assert 0 == traffic.served
    assert decision.missing > 100
    assert Reason.UNPROVEN == decision.judge(Pair(told(4.0), "e", "c", "model")).reason
    assert Reason.UNSURE == decision.judge(Pair(told(-1.0), "e", "c", "model")).reason


@pytest.mark.parametrize("limit", [0.02, 0.05])
def test_much_is_served_in_the_end_and_little_of_it_is_wrong(limit: float) -> None:
    traffic = Traffic(Decision(DecisionOptions(max_wrong=limit), even))
    traffic.ask(5000)
    assert traffic.served > 1000
    assert traffic.wrong <= limit * traffic.served


def test_once_audits_find_too_many_wrong_ones_it_ends() -> None:
    traffic = Traffic(Decision(DecisionOptions(max_wrong=0.02, audit_share=0.05), even))
    traffic.ask(2500)
    assert traffic.decision.threshold < 1
    traffic.ask(8000, is_wrong_always=True)
    before = traffic.served
    traffic.ask(1000, is_wrong_always=True)
    assert before == traffic.served


def test_a_guard_that_means_nothing_on_this_traffic_loses_its_weight() -> None:
    def against(features: object) -> float:
        assert isinstance(features, tuple)
        return 0.02 if features[FEATURES.index("guard_operand")] else 0.6

    decision = Decision(DecisionOptions(), against)
    before = decision.judge(Pair(told(3.0, guard=True), "e", "c", "model")).probability
    draw = random.Random(1)
    for number in range(600):
        vote = draw.uniform(-1, 4)
        same = draw.random() < 1 / (1 + math.exp(-2 * vote))
        decision.learn(Sample(told(vote, guard=number % 2 == 0), same, "e", "c", "model", 0.5, False, 0.0))
    after = decision.judge(Pair(told(3.0, guard=True), "e", "c", "model")).probability
    assert before < 0.3
    assert after > 0.9


def test_a_guard_that_holds_on_this_traffic_keeps_it() -> None:
    decision = Decision(DecisionOptions(), even)
    for number in range(400):
        is_guarded = number % 2 == 0
        decision.learn(Sample(told(2.0, guard=is_guarded), not is_guarded, "e", "c", "model", 0.5, False, 0.0))
    with_guard, without = (decision.judge(Pair(told(2.0, guard=guard), "e", "c", "m")) for guard in (True, False))
    assert with_guard.probability < 0.3 < 0.7 < without.probability


def test_the_same_samples_give_the_same_judgements() -> None:
    samples = [
        Sample(told(number % 5 - 1.0), number % 5 > 1, f"e{number % 7}", f"c{number % 7}", "m", 0.9, True, 0.0)
        for number in range(500)
    ]
    one, other = Decision(), Decision()
    for sample in samples:
        one.learn(sample)
    other.load(samples)
    pair = Pair(told(2.5), "e1", "c1", "m")
    assert one.judge(pair) == other.judge(pair)
    assert (one.threshold, one.missing) == (other.threshold, other.missing)


def test_samples_of_another_make_are_passed_over() -> None:
    decision = Decision(prior=even)
    before = decision.judge(Pair(told(1.0), "e", "c", "m"))
    sample = Sample(told(1.0), False, "e", "c", "m", 0.99, True, 0.0)
    decision.load([replace(sample, features=(1.0, 2.0)), replace(sample, features=(*told(1.0)[:-1], math.nan))])
    assert before == decision.judge(Pair(told(1.0), "e", "c", "m"))


def test_about_the_share_asked_for_is_audited() -> None:
    decision = Decision(DecisionOptions(audit_share=0.04))
    draw = random.Random(3)
    assert 0.03 < sum(decision.should_audit(draw.random()) for _ in range(20_000)) / 20_000 < 0.05


def test_evidence_has_its_names_and_a_verifier_counts() -> None:
    assert len(EVIDENCE) == len(evidence(NO_FEATURES, None)) == len(evidence(NO_FEATURES, None, 0.3))
    decision = Decision(prior=even)
    unsaid, no, yes = (
        decision.judge(Pair(evidence(NO_FEATURES, None, verified), "e", "c", "m")).probability
        for verified in (None, 0.01, 0.99)
    )
    assert no < unsaid < yes


def test_log_odds_are_bounded() -> None:
    assert (-8.0, -8.0, 0.0, 8.0, 8.0) == tuple(map(logit, (0.0, 1e-9, 0.5, 1 - 1e-9, 1.0)))
