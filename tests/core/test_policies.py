from collections.abc import Callable

import pytest

from prefold.core.cache import Cache, NoValues
from prefold.core.naive import NaiveCache
from prefold.core.policies import POLICIES, Policy

from .contract_policy import PolicyContract
from .support import nothing, run

# Three conversations of an agent that share a system prompt, and two requests that come once; a letter is a token.
TRACE = [
    *["syst.ab", "syst.cd", "sys1", "syst.abef", "syst.cdgh", "one-off", "syst.abefij", "syst.kl", "syst.cdghmn"],
    *["syst.abefijop", "one-off2", "syst.klqr", "syst.cdghmnst", "sys1uv", "syst.abefijopwx"],
]

# Tokens hit of 136, by policy and capacity in tokens. Every policy has a row; LRU's was counted with an OrderedDict.
GOLDEN = {"lru": {15: 62, 20: 70, 24: 77, 32: 93, 38: 98, 100: 98}}


class TestPolicies(PolicyContract):
    @pytest.fixture(params=sorted(POLICIES))
    def make(self, request: pytest.FixtureRequest) -> Callable[[], Policy]:
        return POLICIES[request.param]


def test_every_policy_has_a_golden_row() -> None:
    assert sorted(POLICIES) == sorted(GOLDEN)


@pytest.mark.parametrize(
    ("name", "capacity", "expected"),
    [(name, capacity, hits) for name, row in GOLDEN.items() for capacity, hits in row.items()],
)
def test_golden_hits(name: str, capacity: int, expected: int) -> None:
    cache = Cache(capacity, NoValues(), None, policy=POLICIES[name]())
    for prompt in TRACE:
        cache.release(cache.admit(run(prompt), make_value=nothing))
        cache.check()
    assert (136, expected) == (cache.counters.input, cache.counters.hit)


@pytest.mark.parametrize(("capacity", "expected"), GOLDEN["lru"].items())
def test_the_oracle_agrees_on_lru(capacity: int, expected: int) -> None:
    oracle = NaiveCache(capacity)
    for prompt in TRACE:
        oracle.release(oracle.admit(run(prompt)))
    assert expected == oracle.counters.hit
