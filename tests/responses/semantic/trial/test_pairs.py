"""How strict the thresholds of trials on pairs are."""

import pytest

pytest.importorskip("numpy", reason="the extra answers is not installed")

from prefold.responses.semantic.decision.shares import Share
from prefold.responses.semantic.trial.labelled import LabelledPair
from prefold.responses.semantic.trial.pairs import try_pairs

from .test_run import Words

TRAPS = 50


class Rising:
    """A verifier that takes each trap for a little likelier than the one before; all the others lie between two."""

    async def same(self, a, b):
        return (int(b) + 1) / (2 * TRAPS + 2)


PAIRS = [LabelledPair(f"a{at}", str(2 * at), same=False) for at in range(TRAPS)] + [
    LabelledPair(f"b{at}", str(2 * at + 1), same=True) for at in range(TRAPS)
]


@pytest.mark.parametrize(("limit", "traps"), [(0.2, 6), (0.1, 2), (0.05, 0), (0.001, 0)])
def test_a_threshold_keeps_to_its_limit_with_nine_in_ten(limit, traps):
    trial = try_pairs(PAIRS, Words(), Rising(), fit=PAIRS, limits=(limit,))
    (point,) = [point for point in trial.operating_points if point.scorer == "verifier"]
    assert Share(traps, TRAPS) == point.traps
    assert Share(traps + 1, TRAPS) == point.should_hit


def test_an_interval_is_as_wide_as_one_wants_to_be_sure():
    share = Share(2, 50)
    assert share.interval == share.within(1.959964)
    assert share.interval[0] < share.within(1.2816)[0] < share.value < share.within(1.2816)[1] < share.interval[1]
    assert pytest.approx(0.0927, abs=5e-4) == share.within(1.2816)[1]
    assert (0.0, 1.0) == Share(0, 0).within(1.0)
