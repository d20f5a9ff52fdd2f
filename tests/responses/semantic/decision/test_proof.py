"""What samples prove, and of which guards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefold.responses.semantic.decision.decision import EVIDENCE, Decision, DecisionOptions, Pair
from prefold.responses.semantic.decision.proof import Proof, fired_guards
from prefold.responses.semantic.types import Reason, Sample

LIMIT = 0.05


def features(*guards: Reason) -> tuple[float, ...]:
    names = {f"guard_{guard.value}" for guard in guards}
    return tuple(float(name in names or name == "vote") for name in EVIDENCE)


def sample(*guards: Reason, same: bool = True, probability: float = 0.91, cluster: str = "c") -> Sample:
    return Sample(features(*guards), same, "e", cluster, "m", probability, would_serve=False, at=0.0)


def decision(*samples: Sample) -> Decision:
    made = Decision(DecisionOptions(max_wrong=LIMIT), lambda _: 0.999)
    made.load(samples)
    return made


def reason(made: Decision, *guards: Reason) -> Reason | None:
    return made.judge(Pair(features(*guards), "e", "c", "m")).reason


PLAIN = (sample(),) * 400
OPERAND = (sample(Reason.OPERAND),) * 400


def test_what_other_pairs_prove_says_nothing_of_a_guard() -> None:
    made = decision(*PLAIN)
    assert reason(made) is None
    assert [Reason.OPERAND, Reason.SCOPE] == [reason(made, guard) for guard in (Reason.OPERAND, Reason.SCOPE)]
    assert 1.0 == made.judge(Pair(features(Reason.OPERAND), "e", "c", "m")).bound


def test_pairs_with_that_very_guard_overrule_it_and_no_other() -> None:
    made = decision(*PLAIN, *OPERAND)
    assert reason(made, Reason.OPERAND) is None
    assert Reason.SCOPE == reason(made, Reason.SCOPE)
    assert Reason.SCOPE == reason(made, Reason.OPERAND, Reason.SCOPE)
    assert 0 < made.judge(Pair(features(Reason.OPERAND), "e", "c", "m")).bound < LIMIT


def test_a_guard_that_was_right_keeps_holding() -> None:
    wrong = (sample(Reason.OPERAND, same=False),) * 20
    assert Reason.OPERAND == reason(decision(*PLAIN, *OPERAND, *wrong), Reason.OPERAND)


def test_a_guard_is_overruled_from_that_probability_on_at_which_its_pairs_are_right() -> None:
    often = (sample(Reason.OPERAND, probability=0.92), sample(Reason.OPERAND, same=False, probability=0.92)) * 60
    proof = Proof(LIMIT)
    for each in (*often, *(sample(Reason.OPERAND, probability=0.98),) * 60):
        proof.add(each)
    assert Reason.OPERAND == proof.held_by((Reason.OPERAND,), 0.92, "c")
    assert proof.held_by((Reason.OPERAND,), 0.98, "c") is None


def test_a_guard_that_was_overruled_holds_again_where_its_own_pairs_miss_the_limit() -> None:
    proof = Proof(LIMIT)
    held = []
    for number in range(400):
        proof.add(sample(Reason.OPERAND, same=number < 50 or number % 8 > 0))
        held.append(proof.held_by((Reason.OPERAND,), 0.91, "c"))
    assert [Reason.OPERAND, None, Reason.OPERAND] == [held[0], held[49], held[-1]]
    assert proof.guard_bound(Reason.OPERAND, 0.91) < 4 * LIMIT
    assert 0 == proof.overall.drifts


def test_a_new_answer_is_never_given_against_a_guard() -> None:
    made = decision(*PLAIN, *OPERAND)
    pair = Pair(features(Reason.OPERAND), "new", "new", "m")
    assert Reason.OPERAND == made.judge(pair).reason
    made.learn(sample(cluster="new"))
    assert Reason.OPERAND == made.judge(pair).reason
    made.learn(sample(Reason.OPERAND, cluster="new"))
    assert made.judge(pair).reason is None
    made.learn(sample(Reason.OPERAND, same=False, cluster="new"))
    assert Reason.OPERAND == made.judge(pair).reason
    assert reason(made, Reason.OPERAND) is None


def test_pairs_of_a_guard_that_was_overruled_are_held_to_the_limit_with_all_others() -> None:
    proof = Proof(LIMIT)
    for each in OPERAND[:50]:
        proof.add(each)
    before = proof.overall.bounds[0]
    proof.add(OPERAND[0])
    after = proof.overall.bounds[0]
    proof.add(sample(Reason.OPERAND, same=False))
    assert proof.overall.bounds[0] > before > after


def test_pairs_that_would_not_be_served_anyhow_overrule_nothing() -> None:
    unlikely = (replace(OPERAND[0], probability=0.89),) * 1_000
    assert Reason.OPERAND == reason(decision(*PLAIN, *unlikely), Reason.OPERAND)


@pytest.mark.parametrize("same", [True, False])
def test_what_a_guard_holds_back_neither_lends_nor_spoils_proof(same: bool) -> None:
    alone, beside = Proof(LIMIT), Proof(LIMIT)
    for each in PLAIN[:20]:
        alone.add(each)
        beside.add(each)
        beside.add(sample(Reason.NEGATION, same=same))
    assert alone.overall.bounds == beside.overall.bounds
    few = Proof(LIMIT)
    for _ in range(20):
        few.add(sample(Reason.NEGATION, same=same))
    assert (1.0,) * 4 == few.overall.bounds


def test_all_guards_hold_again_once_answers_went_bad() -> None:
    proof = Proof(LIMIT)
    for each in (*PLAIN, *OPERAND):
        proof.add(each)
    assert proof.held_by((Reason.OPERAND,), 0.91, "c") is None
    for _ in range(60):
        proof.add(sample(same=False))
    assert proof.overall.drifts > 0
    assert Reason.OPERAND == proof.held_by((Reason.OPERAND,), 0.91, "c")


def test_guards_are_read_off_the_features() -> None:
    assert () == fired_guards(features())
    assert (Reason.NEGATION, Reason.SCOPE) == fired_guards(features(Reason.SCOPE, Reason.NEGATION))
