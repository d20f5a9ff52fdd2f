"""Caches that keep every prefix: granularity, lifetime, capacity, answers, isolation, tiers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prefold.analysis.caches.base import Loss, Reason
from prefold.analysis.caches.resolve import PLAIN
from prefold.analysis.caches.spec import Tier
from prefold.errors import UsageError

from .support import cache, request, rules, text

VLLM, OPENAI, PREFOLD = rules("", "vllm"), rules("gpt-4o"), rules("", "prefold")
MOONCAKE = Path(__file__).parents[3] / "../shared/data/traces/mooncake/conversation_trace.jsonl"


@pytest.mark.parametrize(
    ("of", "known", "hit"),
    [
        (VLLM, 15, 0),
        (VLLM, 100, 96),
        (OPENAI, 1023, 0),
        (OPENAI, 1151, 1024),
        (OPENAI, 1152, 1152),
        (PREFOLD, 99, 99),
        (rules("kimi-k3"), 700, 512),
        (rules("deepseek-v3.1"), 200, 192),
        (rules("", "lmcache"), 700, 512),
        (rules("", "tensorrt-llm"), 100, 96),
    ],
)
def test_hits_are_whole_steps_above_the_minimum(of, known, hit):
    model = cache(of)
    assert 0 == model.serve(request(text(known) + text(2000, 1))).hit
    assert hit == model.serve(request(text(known) + text(2000, 2), 100.0)).hit


@pytest.mark.parametrize(("of", "hit"), [(PREFOLD, 31), (VLLM, 16), (PLAIN, 32)])
def test_the_last_token_is_computed_by_engines(of, hit):
    model = cache(of)
    model.serve(request(text(32)))
    served = model.serve(request(text(32), 1.0))
    assert hit == served.hit
    assert ((Loss(Reason.BLOCK_TAIL, 32),) if hit < 32 else ()) == served.lost


@pytest.mark.parametrize("of", [VLLM, PLAIN, rules("", "lmcache"), OPENAI], ids=lambda of: of.provider)
def test_in_traces_of_blocks_all_blocks_can_be_known(of):
    """The last one is a part of a block in truth, and the token that must be computed is in it."""
    model = cache(of, capacity=1024 if of.self_hosted else None)
    assert [0, 1024] == [model.serve(request([1, 2], float(time), unit=512)).hit for time in range(2)]


def test_what_is_too_short_says_so():
    model = cache(OPENAI)
    model.serve(request(text(500)))
    assert (Loss(Reason.BELOW_MINIMUM, 500),) == model.serve(request(text(500), 1.0)).lost


def test_an_implicit_lifetime_counts_from_the_latest_use():
    model = cache(OPENAI)
    hits = [model.serve(request(text(1200), time)).hit for time in (0.0, 300.0, 600.0, 900.1, 901.0)]
    assert [0, 1152, 1152, 0, 1152] == hits


def test_what_was_not_used_expires_and_the_rest_lives():
    model = cache(OPENAI)
    model.serve(request(text(1024) + text(512, 1), 0.0))
    model.serve(request(text(1024) + text(512, 2), 200.0))
    served = model.serve(request(text(1024) + text(512, 1), 400.0))
    assert (1024, (Loss(Reason.EXPIRED, 1536),)) == (served.hit, served.lost)


def test_a_lifetime_that_is_not_renewed():
    model = cache(replace(OPENAI, ttl_renewed=False))
    hits = [model.serve(request(text(1200), time)).hit for time in (0.0, 200.0, 301.0, 500.0)]
    assert [0, 1152, 0, 1152] == hits


def test_what_cannot_be_read_yet():
    model = cache(rules("deepseek-v3.1"))  # stored when the answer is complete
    model.serve(request(text(640), 0.0, duration=10.0))
    early = model.serve(request(text(640), 5.0, duration=10.0))
    assert (0, (Loss(Reason.NOT_KEPT, 640),)) == (early.hit, early.lost)
    assert 640 == model.serve(request(text(640), 10.0, duration=10.0)).hit


def test_what_has_expired_below_the_minimum_was_never_kept():
    model = cache(OPENAI)
    model.serve(request(text(900)))
    assert (Loss(Reason.BELOW_MINIMUM, 900),) == model.serve(request(text(900), 400.0)).lost
    model.serve(request(text(1300, 1), 400.0))
    expired = model.serve(request(text(1300, 1), 900.0)).lost
    assert (Loss(Reason.EXPIRED, 1280), Loss(Reason.BLOCK_TAIL, 1300)) == expired


def test_a_tier_holds_what_never_fitted_above():
    for tiers, hit in (((), 96), ((Tier("host", 96, 16),), 192), ((Tier("host", 4096, 16),), 320)):
        model = cache(VLLM, capacity=96, tiers=tiers)
        prompts = [request(text(330)) for _ in range(3)]
        assert [0, hit, hit] == [model.serve(prompt).hit for prompt in prompts]


def test_an_answer_is_found_by_the_next_turn():
    turn = request(text(32), output=text(17, 1))
    for of, hit in ((PREFOLD, 32 + 16), (VLLM, 32 + 16), (rules("", "lmcache"), 0), (PLAIN, 32)):
        model = cache(of)
        model.serve(turn)
        assert hit == model.serve(request(text(32) + text(17, 1) + text(20, 2), 1.0)).hit, of.provider


def test_the_least_recently_used_is_evicted():
    model = cache(PREFOLD, capacity=100)
    model.serve(request(text(40, 1), 0.0))
    model.serve(request(text(40, 2), 1.0))
    model.serve(request(text(40, 3), 2.0))
    served = model.serve(request(text(40, 1), 3.0))
    # The tail gave way; of the 20 that need not have gone, whole steps of 3 stay.
    assert (18, Reason.EVICTED) == (served.hit, served.otherwise)


def test_a_prompt_that_does_not_fit_is_kept_as_far_as_it_does():
    model = cache(PREFOLD, capacity=100)
    assert 0 == model.serve(request(text(150))).hit
    served = model.serve(request(text(150), 1.0))
    assert (100, Reason.EVICTED) == (served.hit, served.otherwise)


def test_running_requests_hold_their_prompts():
    model = cache(PREFOLD, capacity=100)
    model.serve(request(text(60, 1), 0.0, duration=10.0))
    model.serve(request(text(40, 2), 1.0, duration=1.0))
    model.serve(request(text(40, 3), 5.0, duration=1.0))  # takes the place of the second
    assert [59, 0] == [model.serve(request(text(n, start), 6.0)).hit for n, start in ((60, 1), (40, 2))]


def test_a_request_without_room_waits_for_the_running_ones():
    model = cache(PREFOLD, capacity=100)
    model.serve(request(text(80, 1), 0.0, duration=10.0, output=text(10, 9)))
    assert 0 == model.serve(request(text(90, 2), 1.0)).hit
    assert 89 == model.serve(request(text(90, 2), 2.0)).hit


def test_models_salts_and_isolated_tenants_share_nothing():
    model = cache(PREFOLD)
    for salt, name in ((None, "a"), ("s", "a"), ("t", "a"), (None, "b")):
        assert 0 == model.serve(request(text(10), salt=salt, model=name)).hit
        assert 9 == model.serve(request(text(10), salt=salt, model=name, tenant="x")).hit
    apart = cache(PREFOLD, isolate_tenants=True)
    assert [0, 0, 9] == [apart.serve(request(text(10), tenant=tenant)).hit for tenant in ("x", "y", "x")]


def test_names_cannot_be_chosen_so_that_two_scopes_are_one():
    model = cache(PREFOLD, isolate_tenants=True)
    model.serve(request(text(10), model="m", salt="s", tenant="t"))
    assert 0 == model.serve(request(text(10), model="m", salt=None, tenant="s\0t")).hit
    assert 0 == model.serve(request(text(10), model="m", salt="", tenant="t")).hit


def test_evicted_blocks_go_down_and_hits_come_up():
    model = cache(VLLM, capacity=64, tiers=(Tier("host", 64, 16), Tier("disk", 64, 16)))
    for start in (1, 2, 3):  # 1 is on disk then, 2 in the host's memory
        model.serve(request(text(64, start), float(start)))
    assert [48, 48, 48] == [model.serve(request(text(64, start), 9.0)).hit for start in (1, 2, 3)]
    model.serve(request(text(64, 4), 10.0))
    assert 0 == model.serve(request(text(64, 1), 11.0)).hit  # the oldest fell out of the last tier


def test_pool_and_tier_hold_one_prompt_together():
    model = cache(VLLM, capacity=96, tiers=(Tier("host", None, 16),))
    model.serve(request(text(64, 1), 1.0))
    model.serve(request(text(64, 2), 2.0))  # pushes half of the first one down
    assert 48 == model.serve(request(text(64, 1), 3.0)).hit
    assert 64 == model.serve(request(text(64, 1) + text(16, 3), 4.0)).hit


def test_a_block_is_in_one_place_only_so_that_capacities_add_up():
    model = cache(replace(VLLM, computes_last=False), capacity=96, tiers=(Tier("host", 48, 16),))
    prompts = ((48, 1), (80, 2), (16, 3))  # three, five and one block, in six and three places
    for size, start in prompts:
        model.serve(request(text(size, start)))
    for _ in range(3):
        assert [48, 80, 16] == [model.serve(request(text(size, start))).hit for size, start in prompts]


def test_losses_by_chance_are_their_share_and_the_same_each_time():
    def failures(seed: int, of=OPENAI, rate: float = 0.3) -> list[bool]:
        model = cache(of, loss_rate=rate, seed=seed)
        served = [model.serve(request(text(1024), float(number))) for number in range(1001)]
        return [any(loss.reason is Reason.NOT_KEPT for loss in each.lost) and not each.hit for each in served[1:]]

    assert failures(1) == failures(1)
    assert failures(1) != failures(2)
    assert 250 < sum(failures(1)) < 350
    assert not any(failures(1, VLLM))  # an engine promises what it holds
    assert all(failures(1, rate=1.0))


def test_logs_of_different_units_do_not_mix():
    model = cache(PLAIN)
    model.serve(request([1], unit=512))
    with pytest.raises(UsageError, match="log:1: ids stand for 64 tokens, those before for 512"):
        model.serve(request([1], unit=64))


def test_an_empty_prompt_is_served_nothing():
    assert 0 == cache(PREFOLD).serve(request([])).hit


@pytest.mark.skipif(not MOONCAKE.exists(), reason="the Mooncake trace is not there (../shared/data)")
@pytest.mark.parametrize(
    ("blocks", "rate"), [(1_000, 0.0445), (5_000, 0.1118), (10_000, 0.2116), (30_000, 0.3257), (None, 0.3664)]
)
def test_mooncake_conversation_trace(blocks, rate):
    model = cache(PLAIN, capacity=None if blocks is None else blocks * 512)
    hit = total = 0
    with MOONCAKE.open() as lines:
        for line in lines:
            logged = json.loads(line)
            hit += model.serve(request(logged["hash_ids"], logged["timestamp"] / 1000, unit=512)).hit
            total += len(logged["hash_ids"]) * 512
    assert rate == round(hit / total, 4)
