"""Several replicas behind a router."""

import pytest

from prefold.analysis.caches.base import Loss, Reason
from prefold.analysis.caches.build import build
from prefold.analysis.caches.replicas import ROUTERS
from prefold.analysis.caches.resolve import PLAIN
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.encode import Encoder
from prefold.analysis.simulate import simulate
from prefold.analysis.synthetic.workload import workload
from prefold.core.routing import LOAD_BOUND
from prefold.errors import UsageError

from .support import cache, request, rules, text

PREFOLD = rules("", "prefold")


def test_round_robin_finds_what_was_left_elsewhere():
    model = cache(PREFOLD, replicas=3)
    served = [model.serve(request(text(100), float(time))) for time in range(4)]
    assert [0, 1, 2, 0] == [each.replica for each in served]
    assert [0, 0, 0, 99] == [each.hit for each in served]
    assert (Loss(Reason.OTHER_REPLICA, 99), Loss(Reason.BLOCK_TAIL, 100)) == served[1].lost


def test_the_exact_index_goes_where_least_is_left_to_do():
    model = cache(PREFOLD, replicas=3, routing="exact")
    starts = (1, 2, 3, 2, 1, 4, 2)
    served = [model.serve(request(text(50, start) + text(10, 10 + number))) for number, start in enumerate(starts)]
    assert [0, 1, 2, 1, 0, 2, 1] == [each.replica for each in served]
    assert [0, 0, 0, 50, 50, 0, 50] == [each.hit for each in served]


def test_the_exact_index_leaves_a_replica_that_has_done_more_than_its_share():
    model = cache(PREFOLD, replicas=2, routing="exact")
    model.serve(request(text(150, 1)))
    model.serve(request(text(140, 2)))
    served = [model.serve(request(text(100, 1) + text(40, 10 + number))) for number in range(4)]
    # The first one has computed 150, 190, 230 and 270 tokens, the other one 140; 270 is 14 more than 1.25 times the
    # mean, which weighs ten times and so more than the 100 to be computed again.
    assert [0, 0, 0, 1] == [each.replica for each in served]


@pytest.mark.parametrize("shape", ["agent", "code"])
def test_exact_routing_spreads_usual_traffic_and_keeps_its_hits(shape):
    encoder = Encoder()
    log = [encoder.encode(record) for record in workload(f"{shape}:good,requests=300")]
    vllm = rules("vllm/x")
    specs = [
        CacheSpec("one", vllm),
        CacheSpec("exact", vllm, replicas=4, routing="exact"),
        CacheSpec("turns", vllm, replicas=4),
    ]
    one, exact, turns = simulate(log, specs)
    assert exact.load_imbalance < LOAD_BOUND
    assert (exact.hit_rate - turns.hit_rate) > 0.6 * (one.hit_rate - turns.hit_rate)


def test_what_another_replica_rounds_away_is_no_riddle():
    model = cache(rules("vllm/x"), replicas=2)
    model.serve(request(text(100)))
    served = model.serve(request(text(100)))
    assert (Loss(Reason.OTHER_REPLICA, 96), Loss(Reason.BLOCK_TAIL, 100)) == served.lost
    short = cache(rules("gpt-4o"), replicas=2)
    short.serve(request(text(900)))
    assert (Loss(Reason.BELOW_MINIMUM, 900),) == short.serve(request(text(900))).lost


def test_the_exact_index_knows_answers_that_are_complete():
    model = cache(PREFOLD, replicas=2, routing="exact")
    model.serve(request(text(20), 0.0, duration=5.0))  # the first replica knows a part, the second one nothing
    model.serve(request(text(10) + text(30, 1), 1.0, duration=5.0, output=text(41, 2)))
    served = model.serve(request(text(10) + text(30, 1) + text(41, 2) + text(5, 3), 6.0))
    assert 80 == served.hit


def test_consistent_hashing_keeps_a_prefix_together_and_bounds_the_load():
    model = cache(PLAIN, replicas=4, routing="prefix_hash")
    spread = [model.serve(request(text(1100, start) + text(10, 1000 + start))).replica for start in range(200)]
    assert {0, 1, 2, 3} == set(spread)
    again = [model.serve(request(text(1100, start) + text(10, 2000 + start))).hit for start in range(200)]
    assert sum(again) > 0.8 * 1100 * 200
    computed = [0] * 4
    hot = cache(PLAIN, replicas=4, routing="prefix_hash")
    for number in range(200):  # one prefix that all requests share, and much that is new in each
        served = hot.serve(request(text(1100, 1) + text(1000, 10 + number)))
        computed[served.replica] += 2100 - served.hit
    assert max(computed) / (sum(computed) / 4) < LOAD_BOUND + 0.1


def test_sessions_stick_to_a_replica_where_the_log_names_them():
    model = cache(PREFOLD, replicas=4, routing="sticky")
    named, unnamed = set(), set()
    for number in range(12):
        named.add(model.serve(request(text(100, number), float(number), session="one")).replica)
        unnamed |= {
            model.serve(request(text(100, 100 + 4 * number + other), float(number))).replica for other in range(4)
        }
    assert 1 == len(named)
    assert {0, 1, 2, 3} == unnamed


@pytest.mark.parametrize("routing", ROUTERS)
@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gpt-4o", "deepseek-chat", "vllm/x", "llamacpp/x"])
def test_every_cache_can_have_replicas(routing, model):
    fleet = cache(rules(model), replicas=2, routing=routing)
    prompts = [request(text(4000, number % 2), float(number)) for number in range(8)]
    served = [fleet.serve(prompt) for prompt in prompts]
    assert {0, 1} >= {each.replica for each in served}
    assert all(0 <= each.hit <= 4000 for each in served)
    assert served[-1].hit >= 3900 or routing == "round_robin"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "magic"}, "no policy 'magic'"),
        ({"routing": "magic"}, "no routing 'magic'"),
        ({"replicas": 0}, "0 replicas"),
        ({"replicas": 1_000_000}, "1,000,000 replicas"),
        ({"routing": "exact"}, "one replica, so exact has no choice"),
        ({"loss_rate": 2.0}, "loss rate of 2.0"),
    ],
)
def test_what_cannot_be_built_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        build(CacheSpec("test", PLAIN, **options))


def test_without_rules_each_request_has_those_of_its_model():
    model = cache(None)
    claude = {"ends": (3000,), "markers": (3000,), "model": "claude-sonnet-4-5"}
    assert {300: 3000} == dict(model.serve(request(text(3000), **claude)).written)
    assert 3000 == model.serve(request(text(3000), 1.0, **claude)).hit
    for name, hit in (("gpt-4o", 2944), ("gpt-5.6", 3000), ("unheard-of", 3000)):
        assert [0, hit] == [model.serve(request(text(3000), 2.0, ends=(3000,), model=name)).hit for _ in range(2)]


def test_own_caches_of_providers_have_no_capacity_to_be_set():
    model = cache(None, capacity=100)
    assert [0, 2944] == [model.serve(request(text(3000), model="gpt-4o")).hit for _ in range(2)]
    assert [0, 96] == [model.serve(request(text(3000), 1.0, model="vllm/x")).hit for _ in range(2)]
