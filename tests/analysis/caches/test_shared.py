"""Caches that share a tree serve what each would serve with a tree of its own."""

import random
from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import given, settings

from prefold.analysis.caches import shared as shared_caches
from prefold.analysis.caches.prefixes import PrefixCache
from prefold.analysis.caches.shared import SharedPrefixes, can_share, sharing_key
from prefold.analysis.caches.spec import CacheSpec, Tier
from prefold.providers.rules import Storage

from .support import ALL_RULES, request, rules, text
from .test_invariants import requests

SHARING = [rules for rules in ALL_RULES if can_share(CacheSpec("any", rules))]


def test_most_caches_of_prefixes_share():
    apart = [rules for rules in ALL_RULES if rules.stores is Storage.PREFIXES and rules not in SHARING]
    assert ["DeepSeek V3 and earlier, blocks of 64 tokens"] == [rules.family for rules in apart]


@pytest.mark.parametrize("isolate_tenants", [False, True])
@settings(max_examples=60)
@given(log=requests())
def test_serves_what_a_cache_of_its_own_would(isolate_tenants, log):
    specs = [
        CacheSpec("any", rules, isolate_tenants=isolate_tenants)
        for rules in sorted(SHARING, key=lambda rules: rules.keeps_output)
    ]
    for _, alike in groupby(specs, key=sharing_key):
        members = list(alike)
        shared = SharedPrefixes(members, 1)
        own = [PrefixCache(spec, spec.rules, 1) for spec in members]
        for sent in log:
            assert [each.serve(sent) for each in own] == shared.serve(sent)


@pytest.mark.parametrize("unlimited", SHARING[:1])
def test_a_limit_keeps_a_cache_apart(unlimited):
    assert not can_share(CacheSpec("any", unlimited, capacity=1000))
    assert not can_share(CacheSpec("any", unlimited, replicas=2))
    assert not can_share(CacheSpec("any", unlimited, tiers=(Tier("host", 1000),)))
    assert not can_share(CacheSpec("any", unlimited, loss_rate=0.1))
    assert not can_share(CacheSpec("any", replace(unlimited, ttls=(300,), keeps_output=True)))
    assert not can_share(CacheSpec("any", None))


def test_what_exceeds_memory_is_forgotten_as_a_pool_of_that_size_evicts_it(monkeypatch):
    monkeypatch.setattr(shared_caches, "MOST_UNITS", 1000)
    # What an engine leaves free for its memory's sake is no matter of the simulator's own.
    of, dice = replace(rules("", "prefold"), eviction_step_tokens=1), random.Random(1)
    shared = SharedPrefixes([CacheSpec("any", of)], 1)
    pool = PrefixCache(CacheSpec("any", of, capacity=1000), of, 1)
    conversations = [text(40) for _ in range(12)]
    for number in range(400):
        chosen = dice.randrange(len(conversations))
        turn = conversations[chosen] + text(30, number)
        conversations[chosen] = turn if len(turn) < 300 else text(40)
        sent = request(turn, float(number))
        assert [pool.serve(sent).hit] == [served.hit for served in shared.serve(sent)]
