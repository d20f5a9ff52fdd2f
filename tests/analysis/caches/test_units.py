"""Prefix units: only the whole of a stored one is a hit."""

import pytest

from prefold.analysis.caches.base import Loss, Reason

from .support import cache, request, rules, text

DEEPSEEK = rules("deepseek-v4-flash")


def test_the_third_request_hits_what_two_were_seen_to_share():
    model = cache(DEEPSEEK)
    served = [model.serve(request(text(1000) + text(500, number), float(number))) for number in (1, 2, 3)]
    assert [0, 0, 960] == [each.hit for each in served]
    assert [(), (Loss(Reason.BREAKPOINT, 1000),), (Loss(Reason.BLOCK_TAIL, 1000),)] == [each.lost for each in served]


def test_a_conversation_hits_from_its_second_turn():
    model = cache(DEEPSEEK)
    first = request(text(640), output=text(64, 1))
    assert 0 == model.serve(first).hit
    assert 704 == model.serve(request(text(640) + text(64, 1) + text(100, 2), 1.0)).hit
    assert 640 == model.serve(request(text(640) + text(64, 3), 2.0)).hit  # with another answer: the end of the input


def test_units_at_intervals_of_long_prompts():
    model = cache(DEEPSEEK)
    model.serve(request(text(20_000)))
    assert 2 * 8192 == model.serve(request(text(17_000) + text(100, 1), 1.0)).hit


def test_a_unit_can_be_read_when_the_answer_is_complete():
    model = cache(DEEPSEEK)
    model.serve(request(text(640), 0.0, duration=5.0))
    early = model.serve(request(text(640), 1.0, duration=5.0))
    assert (0, (Loss(Reason.NOT_KEPT, 640),)) == (early.hit, early.lost)
    assert 640 == model.serve(request(text(640), 5.0)).hit


def test_the_older_rule_has_blocks_of_64_tokens():
    model = cache(rules("deepseek-r1"))
    assert [0, 960] == [model.serve(request(text(1000) + text(500, number))).hit for number in (1, 2)]


def test_there_is_no_promise():
    model = cache(DEEPSEEK, loss_rate=1.0)
    model.serve(request(text(640)))
    served = model.serve(request(text(640), 1.0))
    assert (0, (Loss(Reason.NOT_KEPT, 640),)) == (served.hit, served.lost)


def test_invoice():
    """Flash at 0.15 USD for a million tokens, hits at 0.003: a system prompt of 6,400 tokens, 100 questions."""
    model = cache(DEEPSEEK)
    served = [model.serve(request(text(6400) + text(50, number), float(number))) for number in range(1, 101)]
    hit = sum(each.hit for each in served)
    assert 98 * 6400 == hit
    cost = 0.15 * (100 * 6450 - hit + hit * DEEPSEEK.read_multiplier) / 1e6
    assert 0.15 * (2 * 6450 + 98 * 50) / 1e6 + 0.003 * 98 * 6400 / 1e6 == pytest.approx(cost)
