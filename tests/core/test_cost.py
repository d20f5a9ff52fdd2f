"""What tokens cost to have again, and that policies which weigh it do so."""

from random import Random

import pytest

from prefold.core.cache import Cache, NoValues
from prefold.core.policies import POLICIES, Cost
from prefold.core.tokens import pack

from .support import nothing


def test_a_token_at_the_span_costs_twice_as_much_as_the_first() -> None:
    cost = Cost(1000)
    assert 1.0 == pytest.approx(cost.compute(0, 1), rel=1e-3)
    assert 2.0 == pytest.approx(cost.compute(1000, 1001), rel=1e-3)
    assert cost.compute(0, 700) == pytest.approx(cost.compute(0, 300) + cost.compute(300, 700))


def saved(policy: str, cost: Cost, *, told: bool) -> float:
    """What hits save on long and short conversations that go on alike, where there is room for a part of them."""
    cache = Cache(2_000, NoValues(), None, policy=POLICIES[policy](), cost=cost if told else None, always_computed=0)
    dice = Random(5)
    turns: dict[int, list[int]] = {}
    total = 0.0
    for number in range(6_000):
        name = dice.randrange(60)
        if name not in turns or dice.random() < 0.2:
            turns[name] = [1_000 + number] * dice.choice((10, 200))
        turns[name] = [*turns[name], *(2_000 + number for _ in range(3))]
        lease = cache.admit(pack(turns[name]), make_value=nothing, now=number)
        cache.release(lease, now=number, output_tokens=3)
        total += cost.compute(0, lease.hit)
    return total


@pytest.mark.parametrize("policy", ["default", "gdsf"])
def test_policies_that_weigh_cost_save_more_of_it(policy: str) -> None:
    cost = Cost(20)
    assert saved(policy, cost, told=False) < saved(policy, cost, told=True)
    assert saved("lru", cost, told=False) == saved("lru", cost, told=True)
