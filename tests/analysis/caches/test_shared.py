"""Caches that share a tree serve what each would serve with a tree of its own."""

from itertools import groupby

import pytest
from hypothesis import given, settings

from prefold.analysis.caches.prefixes import PrefixCache
from prefold.analysis.caches.shared import SharedPrefixes, can_share, sharing_key
from prefold.analysis.caches.spec import CacheSpec, Tier
from prefold.providers.rules import Storage

from .support import ALL_RULES
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
        for request in log:
            assert [each.serve(request) for each in own] == shared.serve(request)


@pytest.mark.parametrize("unlimited", SHARING[:1])
def test_a_limit_keeps_a_cache_apart(unlimited):
    assert not can_share(CacheSpec("any", unlimited, capacity=1000))
    assert not can_share(CacheSpec("any", unlimited, replicas=2))
    assert not can_share(CacheSpec("any", unlimited, tiers=(Tier("host", 1000),)))
    assert not can_share(CacheSpec("any", unlimited, loss_rate=0.1))
    assert not can_share(CacheSpec("any", None))
