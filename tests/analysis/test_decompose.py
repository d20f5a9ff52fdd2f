"""A change of hit rate, divided over its causes: the arithmetic."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.analysis.caches.base import Reason
from prefold.analysis.doctor.decompose import Decomposition, DropCause, Group, Lost, Tally, decompose
from prefold.analysis.reported import fit
from prefold.prompts.causes import CAUSES

losses = st.dictionaries(
    st.builds(
        Lost, st.sampled_from([reason for reason in Reason if reason is not Reason.HIT]), st.sampled_from(["", "clock"])
    ),
    st.integers(0, 1_000),
    max_size=4,
)
tallies = st.builds(lambda lost, hit: Tally(sum(lost.values()) + hit, 1, Counter(lost)), losses, st.integers(0, 1_000))
groups = st.builds(Group, *(st.sampled_from("ab") for _ in range(4)), st.sampled_from([1, 2, 5]))
sides = st.dictionaries(groups, tallies, max_size=6)


@given(sides, sides)
def test_the_parts_sum_to_the_drop(before: dict[Group, Tally], after: dict[Group, Tally]) -> None:
    found = decompose(before, after)
    assert sum(found.parts.values()) == found.drop
    assert list(DropCause) == list(found.parts)
    if sum(tally.input_tokens for tally in before.values()) and sum(tally.input_tokens for tally in after.values()):
        for side, rate in ((before, found.before), (after, found.after)):
            sent = sum(tally.input_tokens for tally in side.values())
            lost = sum(tally.lost.total() for tally in side.values())
            assert 1 - Fraction(lost, sent) == rate


@given(sides)
def test_nothing_changed(side: dict[Group, Tally]) -> None:
    found = decompose(side, side)
    assert dict.fromkeys(DropCause, 0) == found.parts


@given(sides, sides)
def test_the_way_back_is_the_opposite(before: dict[Group, Tally], after: dict[Group, Tally]) -> None:
    there, back = decompose(before, after), decompose(after, before)
    assert {cause: -part for cause, part in there.parts.items()} == back.parts


def tally(tokens: int, **lost: int) -> Tally:
    return Tally(tokens, 1, Counter({Lost(Reason[name.upper()]): count for name, count in lost.items()}))


def test_a_shift_between_groups_at_constant_rates() -> None:
    """By hand: weights 0.8 and 0.2 become 0.2 and 0.8, at losses of 0.1 and 0.6."""
    before = {Group("a"): tally(800, cold=80), Group("b"): tally(200, cold=120)}
    after = {Group("a"): tally(200, cold=20), Group("b"): tally(800, cold=480)}
    found = decompose(before, after)
    assert Fraction(3, 10) == found.drop == found.parts[DropCause.TRAFFIC_MIX]
    assert {"a", "b"} == {moved.name for moved in found.moved}
    assert Fraction(3, 10) == sum(moved.drop for moved in found.moved)


def test_a_release_that_replaces_all_replicas_and_loses_their_caches() -> None:
    before = {Group(replica="old"): tally(1_000, cold=100)}
    after = {Group(replica="new"): tally(1_000, cold=100, evicted=300)}
    found = decompose(before, after)
    assert Fraction(3, 10) == found.drop == found.parts[DropCause.DEPLOYMENT]


def test_another_replica_is_no_excuse_for_a_broken_prefix() -> None:
    before = {Group(replica="old", model="m1"): Tally(1_000, 1, Counter())}
    after = {Group(replica="new", model="m2"): Tally(1_000, 1, Counter({CLOCK: 500}))}
    assert Fraction(1, 2) == decompose(before, after).parts[DropCause.PREFIX_CONTENT]


CLOCK = Lost(Reason.CHANGED_PREFIX, "clock")


def test_sessions_that_go_on_through_a_drop_are_not_to_blame() -> None:
    before = {Group(turn=turn): tally(1_000, cold=100 // turn) for turn in (1, 2, 3, 5)}
    after = {Group(turn=turn): Tally(1_000, 1, Counter({CLOCK: 950, Lost(Reason.COLD): 20})) for turn in (5, 9)}
    found = decompose(before, after)
    assert Fraction(95, 100) == found.parts[DropCause.PREFIX_CONTENT]
    assert abs(found.parts[DropCause.SESSIONS]) < Fraction(1, 20)


def test_later_turns_than_there_were_are_not_to_blame_either() -> None:
    before = {Group(turn=turn): tally(1_000, cold=100) for turn in (1, 2)}
    after = {Group(turn=turn): Tally(1_000, 1, Counter({CLOCK: 800, Lost(Reason.COLD): 100})) for turn in (1, 2, 3)}
    assert {DropCause.PREFIX_CONTENT: Fraction(8, 10)} == parts(decompose(before, after))


def test_sessions_that_end_sooner_are_to_blame() -> None:
    """By hand: 0.5 each of losses of 0.9 and 0.1, then all of 0.9."""
    before = {Group(turn=1): tally(1_000, cold=900), Group(turn=2): tally(1_000, cold=100)}
    assert {DropCause.SESSIONS: Fraction(4, 10)} == parts(decompose(before, {Group(turn=1): tally(500, cold=450)}))


@pytest.mark.parametrize(
    ("new", "lost", "cause"),
    [
        (Group(model="m2"), Lost(Reason.NOT_KEPT), DropCause.MODEL_VERSION),
        (Group(model="m2"), CLOCK, DropCause.PREFIX_CONTENT),
        (Group(settings="effort low"), Lost(Reason.CHANGED_PREFIX, "parameter"), DropCause.PARAMETERS),
        (Group(settings="effort low"), CLOCK, DropCause.PREFIX_CONTENT),
        (Group(replica="r2"), Lost(Reason.OTHER_REPLICA), DropCause.DEPLOYMENT),
        (Group(replica="r2"), Lost(Reason.EVICTED), DropCause.DEPLOYMENT),
        (Group(replica="r2"), CLOCK, DropCause.PREFIX_CONTENT),
    ],
)
def test_a_group_that_is_new_beside_the_old_one(new: Group, lost: Lost, cause: DropCause) -> None:
    after = {Group(): tally(500, cold=50), new: Tally(500, 1, Counter({Lost(Reason.COLD): 50, lost: 300}))}
    assert {cause: Fraction(3, 10)} == parts(decompose({Group(): tally(1_000, cold=100)}, after))


def test_what_happened_to_the_others_is_not_taken_to_have_happened_to_a_new_group() -> None:
    after = {
        Group(): Tally(500, 1, Counter({CLOCK: 500})),
        Group(settings="effort low"): Tally(500, 1, Counter({Lost(Reason.CHANGED_PREFIX, "parameter"): 100})),
    }
    found = parts(decompose({Group(): Tally(1_000, 1)}, after))
    assert {DropCause.PREFIX_CONTENT: Fraction(5, 10), DropCause.PARAMETERS: Fraction(1, 10)} == found


def test_a_group_of_which_there_was_next_to_nothing_counts_as_new() -> None:
    before = {Group(model="m1"): tally(9_990, cold=999), Group(model="m2"): tally(10, cold=10)}
    found = parts(decompose(before, {Group(model="m2"): tally(1_000, below_minimum=400, cold=100)}))
    assert abs(found[DropCause.TRAFFIC_MIX]) < Fraction(1, 100)
    assert abs(found[DropCause.MODEL_VERSION] - Fraction(4, 10)) < Fraction(1, 100)


def parts(found: Decomposition) -> dict[DropCause, Fraction]:
    return {cause: part for cause, part in found.parts.items() if part}


@pytest.mark.parametrize("cause", ["", *CAUSES])
def test_every_cause_of_a_changed_prefix_has_its_place(cause: str) -> None:
    lost = Lost(Reason.CHANGED_PREFIX, cause)
    found = decompose({Group(): Tally(10, 1)}, {Group(): Tally(10, 1, Counter({lost: 5}))})
    assert [Fraction(1, 2)] == [part for part in found.parts.values() if part]
    assert 0 == found.parts[DropCause.UNEXPLAINED]


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.HIT])
def test_every_reason_has_its_place(reason: Reason) -> None:
    found = decompose({Group(): Tally(10, 1)}, {Group(): Tally(10, 1, Counter({Lost(reason): 5}))})
    assert [Fraction(1, 2)] == [part for part in found.parts.values() if part]
    assert (found.parts[DropCause.UNEXPLAINED] > 0) == (reason is Reason.UNEXPLAINED)


@given(losses, st.integers(1, 5_000), st.integers(0, 5_000), st.integers(0, 1_000))
def test_losses_are_fitted_to_what_was_reported(lost: dict[Lost, int], counted: int, target: int, hit: int) -> None:
    counted = max(counted, sum(lost.values()))
    fitted = fit(lost, counted, target + hit, target, Lost(Reason.NOT_KEPT))
    assert target == fitted.total()
    assert all(tokens > 0 for tokens in fitted.values())
