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


def sample(*guards: Reason, same: bool = True, probability: float = 0.91) -> Sample:
    return Sample(features(*guards), same, "e", "c", "m", probability, would_serve=False, at=0.0)


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


def test_pairs_that_would_not_be_served_anyhow_overrule_nothing() -> None:
    unlikely = (replace(OPERAND[0], probability=0.89),) * 1_000
    assert Reason.OPERAND == reason(decision(*PLAIN, *unlikely), Reason.OPERAND)


@pytest.mark.parametrize("same", [True, False])
def test_what_a_guard_holds_back_neither_lends_nor_spoils_proof(same: bool) -> None:
    alone, beside = Proof(LIMIT), Proof(LIMIT)
    for each in PLAIN[:100]:
        alone.add(each)
        beside.add(each)
        beside.add(sample(Reason.NEGATION, same=same))
    assert alone.overall.bounds == beside.overall.bounds
    few = Proof(LIMIT)
    for _ in range(50):
        few.add(sample(Reason.NEGATION, same=same))
    assert (1.0,) * 4 == few.overall.bounds


def test_all_guards_hold_again_once_answers_went_bad() -> None:
    proof = Proof(LIMIT)
    for each in (*PLAIN, *OPERAND):
        proof.add(each)
    assert proof.held_by((Reason.OPERAND,)) is None
    for _ in range(60):
        proof.add(sample(same=False))
    assert proof.overall.drifts > 0
    assert Reason.OPERAND == proof.held_by((Reason.OPERAND,))


def test_guards_are_read_off_the_features() -> None:
    assert () == fired_guards(features())
    assert (Reason.NEGATION, Reason.SCOPE) == fired_guards(features(Reason.SCOPE, Reason.NEGATION))
