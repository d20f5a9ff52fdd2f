"""llama.cpp's slots and host store."""

from prefold.analysis.caches.base import Loss, Reason
from prefold.analysis.caches.spec import Tier

from .support import cache, request, rules, text

LLAMA = rules("", "llama.cpp")


def test_the_slot_that_shares_most_is_taken():
    model = cache(LLAMA)
    for start in (1, 2):
        model.serve(request(text(100, start)))
    assert 100 == model.serve(request(text(100, 1) + text(50, 3))).hit
    assert 99 == model.serve(request(text(100, 2))).hit


def test_little_in_common_is_not_enough():
    model = cache(LLAMA)
    model.serve(request(text(5) + text(95, 1)))
    assert 0 == model.serve(request(text(5) + text(95, 2))).hit  # 5 % of the prompt: another slot
    assert 99 == model.serve(request(text(5) + text(95, 1))).hit  # so that this one is still there


def test_the_answer_is_in_the_slot():
    model = cache(LLAMA)
    model.serve(request(text(100), output=text(10, 1)))
    assert 109 == model.serve(request(text(100) + text(10, 1) + text(20, 2))).hit


def test_the_least_recently_used_slot_gives_way():
    model = cache(LLAMA)
    for start in range(1, 6):  # five prompts, four slots
        model.serve(request(text(100, start)))
    served = model.serve(request(text(100, 1)))
    assert (0, Reason.EVICTED) == (served.hit, served.otherwise)


def test_the_host_store_brings_prompts_back():
    model = cache(LLAMA, tiers=(Tier("host", 1000),))
    for start in range(1, 6):
        model.serve(request(text(100, start)))
    assert 99 == model.serve(request(text(100, 1))).hit
    small = cache(LLAMA, tiers=(Tier("host", 50),))
    for start in range(1, 6):
        small.serve(request(text(100, start)))
    assert 0 == small.serve(request(text(100, 1))).hit


def test_slots_share_the_capacity():
    model = cache(LLAMA, capacity=250)
    for start in (1, 2, 3):
        model.serve(request(text(100, start)))
    assert [0, 99] == [model.serve(request(text(100, start))).hit for start in (1, 3)]


def test_a_busy_slot_is_not_taken():
    model = cache(LLAMA)
    model.serve(request(text(100), 0.0, duration=10.0))
    busy = model.serve(request(text(100), 5.0))
    assert (0, (Loss(Reason.NOT_KEPT, 99), Loss(Reason.BLOCK_TAIL, 100))) == (busy.hit, busy.lost)
    assert 99 == model.serve(request(text(100), 10.0)).hit


def test_where_all_are_busy_the_first_one_to_be_idle_serves():
    model = cache(LLAMA)
    for start in range(1, 5):
        model.serve(request(text(100, start), 0.0, duration=10.0 * start))
    assert 99 == model.serve(request(text(100, 1), 1.0)).hit
