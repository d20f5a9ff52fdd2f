"""One cache for each replica that a log names."""

import pytest

from prefold.analysis.caches.base import Loss, Reason
from prefold.analysis.caches.build import build
from prefold.analysis.caches.named import named_rules
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.named_replicas import cache_of_log
from prefold.analysis.record import Blocks, Place, Record
from prefold.analysis.request import Request
from prefold.core.tokens import pack
from prefold.errors import UsageError


def request(tokens: int, replica: str = "", time: float = 0.0) -> Request:
    run = pack(range(tokens))
    record = Record(Blocks(run, 1, tokens), Place("log", 1), time=time, replica=replica)
    return Request(run, 1, tokens, time, record)


def spec(name: str = "blocks", **options) -> CacheSpec:
    return CacheSpec(name, named_rules(name), **options)


def test_a_replica_knows_what_it_was_sent():
    cache = cache_of_log(spec())
    assert [0, 100, 0, 100, 50] == [
        cache.serve(request(tokens, replica)).hit
        for tokens, replica in ((100, "a"), (120, "a"), (100, "b"), (110, "b"), (50, "a"))
    ]


def test_what_another_one_holds_is_lost_to_it():
    cache = cache_of_log(spec())
    cache.serve(request(100, "a"))
    cache.serve(request(40, "b"))
    served = cache.serve(request(130, "b"))
    assert (40, (Loss(Reason.OTHER_REPLICA, 100),)) == (served.hit, served.lost)


def test_what_all_of_them_lost_has_its_own_reason():
    cache = cache_of_log(spec("groq"))
    cache.serve(request(2048, "a"))
    served = cache.serve(request(2048, "b", time=1e6))
    assert 0 == served.hit
    assert [Reason.EXPIRED] == [loss.reason for loss in served.lost]


def test_a_log_that_names_none_has_one_cache():
    plain, named = build(spec()), cache_of_log(spec())
    for tokens in (10, 30, 20):
        assert plain.serve(request(tokens)) == named.serve(request(tokens))


def test_simulated_replicas_count_instead_of_those_of_the_log():
    cache = cache_of_log(spec("prefold", replicas=2, routing="round_robin"))
    assert [0, 0, True] == [
        served.hit and served.hit > 0 for served in (cache.serve(request(100, "a")) for _ in range(3))
    ]


def test_replicas_that_come_and_go_are_forgotten():
    cache = cache_of_log(spec())
    for number in range(40):
        cache.serve(request(100, f"pod {number}"))
    assert (0, 100) == (cache.serve(request(100, "pod 1")).hit, cache.serve(request(100, "pod 39")).hit)


def test_what_cannot_be_built_is_told_at_once():
    with pytest.raises(UsageError, match="magic"):
        cache_of_log(spec(policy="magic"))
