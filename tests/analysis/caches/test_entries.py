"""Caches that write at markers: minimum, lookback, lifetimes, bills."""

from dataclasses import replace

import pytest

from prefold.analysis.caches.base import Loss, Reason
from prefold.analysis.request import Marker
from prefold.providers.rules import Control

from .support import cache, request, rules, text

SONNET, GPT = rules("claude-sonnet-4-5"), rules("gpt-5.6-sol")


def conversation(turns: int, *, size: int = 500, marked: bool = True, time: float = 0.0, **more):
    """A request after some turns of one block each; a marker on the last block."""
    ends = [size * turn for turn in range(1, turns + 1)]
    return request(text(size * turns), time, ends=ends, markers=ends[-1:] if marked else (), **more)


def test_a_conversation_reads_what_the_turn_before_wrote():
    model = cache(SONNET)
    served = [model.serve(conversation(turns, time=10.0 * turns)) for turns in range(1, 6)]
    assert [0, 0, 0, 1500, 2000] == [each.hit for each in served]
    assert [{}, {}, {300: 1500}, {300: 500}, {300: 500}] == [dict(each.written) for each in served]


def test_below_the_minimum_nothing_is_kept():
    model = cache(SONNET)
    model.serve(conversation(2))
    served = model.serve(conversation(2, time=1.0))
    assert (0, {}, Reason.BELOW_MINIMUM) == (served.hit, dict(served.written), served.otherwise)
    assert (Loss(Reason.BELOW_MINIMUM, 1000),) == served.lost
    assert (Loss(Reason.BELOW_MINIMUM, 1000),) == model.serve(conversation(3, time=2.0)).lost


def test_a_read_checks_twenty_positions_and_the_marked_block_is_the_first():
    for added, hit in ((19, 4000), (20, 0)):
        model = cache(SONNET)
        model.serve(conversation(8))
        served = model.serve(conversation(8 + added, time=1.0))
        assert hit == served.hit
        assert (() if hit else (Loss(Reason.LOOKBACK, 4000),)) == served.lost


def test_the_example_of_the_guide():
    """Ten, fifteen and thirty-five blocks, a marker on the last one each: the third request is one position too far."""
    model = cache(SONNET)
    assert [0, 5000, 0] == [model.serve(conversation(turns, time=float(turns))).hit for turns in (10, 15, 35)]


def test_a_run_of_tool_calls_is_one_position_on_the_claude_api_only():
    turns = 8 + 28
    numbers = [*range(8), *[8] * 14, *[9] * 14]
    for of, hit in ((SONNET, 4000), (replace(SONNET, runs_count_once=False), 0)):
        model = cache(of)
        model.serve(conversation(8))
        assert hit == model.serve(conversation(turns, time=1.0, positions=numbers)).hit
    assert SONNET.runs_count_once
    assert not rules("us.anthropic.claude-sonnet-4-5-20250929-v1:0").runs_count_once


def test_without_a_marker_nothing_is_read_or_written():
    model = cache(SONNET)
    model.serve(conversation(4, model="claude-sonnet-4-5"))
    served = model.serve(conversation(4, marked=False, time=1.0, model="claude-sonnet-4-5"))
    assert (0, {}, (Loss(Reason.BREAKPOINT, 2000),)) == (served.hit, dict(served.written), served.lost)


def test_a_request_for_another_kind_of_cache_gets_markers():
    model = cache(SONNET)
    prompt, other = text(2000) + text(100, 1), text(2000) + text(100, 2)
    for number, tokens in enumerate((prompt, other)):
        served = model.serve(request(tokens, float(number), ends=(2000, 2100), system_end=2000, model="gpt-4o"))
    assert (2000, {300: 100}) == (served.hit, dict(served.written))


def test_a_request_for_another_kind_of_cache_gets_a_marker_before_its_last_block():
    model = cache(SONNET)
    for number, end in enumerate((1900, 1950)):
        ends = (1500, end, end + 100)
        tokens = text(end) + text(100, 1 + number)
        served = model.serve(request(tokens, float(number), ends=ends, model="gpt-4o"))
    assert (1500, {300: 550}) == (served.hit, dict(served.written))  # its first block, for want of a system prompt
    again = model.serve(request(text(1950) + text(70, 9), 3.0, ends=(1500, 1950, 2020), model="gpt-4o"))
    assert (1950, {300: 70}) == (again.hit, dict(again.written))


def test_a_trace_of_blocks_has_a_marker_at_the_end_of_each_prompt():
    model = cache(SONNET)
    model.serve(request([1, 2, 3], 0.0, unit=512))
    served = model.serve(request([1, 2, 3, 4, 5], 1.0, unit=512))
    assert (1536, {300: 1024}) == (served.hit, dict(served.written))
    assert 0 == model.serve(request([1, 2, 9], 2.0, unit=512)).hit  # no entry ends there


def test_a_lifetime_counts_from_the_start_of_the_latest_use():
    model = cache(SONNET)
    times = (0.0, 300.0, 600.0, 900.5)
    assert [0, 2000, 2000, 0] == [model.serve(conversation(4, time=time, duration=100.0)).hit for time in times]
    expired = model.serve(conversation(4, time=2000.0))
    assert (Loss(Reason.EXPIRED, 2000),) == expired.lost


def test_an_entry_lives_on_by_its_own_lifetime_however_it_is_used():
    """Written for an hour, then marked for five minutes behind a longer entry that is read, or read itself."""
    hour, five = Marker(1500, 3600), Marker(1500, 300)
    for ends in ((1500,), (1500, 2000)):
        model = cache(SONNET)
        for time, first in ((0.0, hour), (100.0, five)):
            markers = (first, *(Marker(end, 300) for end in ends[1:]))
            model.serve(request(text(ends[-1]), time, ends=ends, markers=markers))
        assert 1500 == model.serve(request(text(1500), 3650.0, ends=(1500,), markers=(five,))).hit


def test_an_entry_can_be_read_once_its_answer_has_begun():
    model = cache(SONNET)
    model.serve(conversation(4, ttft=2.0))
    early = model.serve(conversation(4, time=1.0, ttft=2.0))
    assert (0, {300: 2000}, (Loss(Reason.NOT_KEPT, 2000),)) == (early.hit, dict(early.written), early.lost)
    assert 2000 == model.serve(conversation(4, time=2.0)).hit


def test_qwen_makes_the_entry_after_the_answer():
    model = cache(rules("qwen-plus", control=Control.EXPLICIT))
    model.serve(conversation(4, duration=60.0))
    assert [0, 2000] == [model.serve(conversation(4, time=time, duration=60.0)).hit for time in (59.0, 61.0)]
    assert 2000 == model.serve(conversation(4, time=61.0 + 60.0 + 300.0)).hit  # its lifetime begins there too


def test_invoice_of_two_lifetimes():
    """A prompt for an hour, a conversation for five minutes; Sonnet's input at 3 USD for a million tokens."""
    model = cache(SONNET)
    cost = 0.0
    for number, time in enumerate((0.0, 60.0, 1000.0)):
        tokens = text(10_000) + text(2_000, 1) + text(300, 10 + number)
        markers = (Marker(10_000, 3600), Marker(12_000, 300))
        served = model.serve(request(tokens, time, ends=(10_000, 12_000, 12_300), markers=markers))
        uncached = 12_300 - served.hit - sum(served.written.values())
        written = sum(tokens * SONNET.write_multiplier(ttl) for ttl, tokens in served.written.items())
        cost += 3 * (uncached + served.hit * SONNET.read_multiplier + written) / 1e6
        if number == 0:
            assert {3600: 10_000, 300: 2_000} == dict(served.written)
    # 10,000 at 2.0, 2,000 at 1.25 and 300; then 12,000 at 0.1 and 300; then 10,000 at 0.1, 2,000 at 1.25 and 300.
    assert 3 * (20_000 + 2_500 + 300 + 1_200 + 300 + 1_000 + 2_500 + 300) / 1e6 == pytest.approx(cost)


def test_invoice_of_openai_from_5_6():
    """Exact match at a breakpoint, which is the newest message; writes at 1.25, reads at 0.1, 30 minutes."""
    model = cache(GPT)
    first = model.serve(request(text(3000), 0.0, ends=(3000,)))
    assert (0, {1800: 3000}) == (first.hit, dict(first.written))
    second = model.serve(request(text(3400), 1000.0, ends=(3000, 3400)))
    assert (3000, {1800: 400}) == (second.hit, dict(second.written))
    branch = model.serve(request(text(2900) + text(500, 1), 1001.0, ends=(2900, 3400)))
    assert (0, {1800: 3400}, Reason.BREAKPOINT) == (branch.hit, dict(branch.written), branch.otherwise)
    late = model.serve(request(text(3400), 1000.0 + 1801.0, ends=(3000, 3400)))
    assert (0, (Loss(Reason.EXPIRED, 3400),)) == (late.hit, late.lost)


def test_openai_takes_three_explicit_markers_beside_its_own():
    model = cache(GPT)
    ends = (1100, 1200, 1300, 1400, 1500)
    model.serve(request(text(1500), 0.0, ends=ends, markers=ends[:4]))
    for common, hit in ((1150, 0), (1250, 1200), (1350, 1300), (1450, 1400)):
        assert hit == model.serve(request(text(common) + text(2000, common), 1.0, ends=(common, common + 2000))).hit


def test_openai_searches_the_newest_eighty_entries_however_far_back():
    model = cache(GPT)
    ends = [1100 + 10 * turn for turn in range(200)]
    for turn in range(79):  # 79 entries behind the first one have expired
        model.serve(request(text(ends[turn + 1]), 0.0, ends=ends[: turn + 2]))
    model.serve(request(text(1100), 1000.0, ends=(1100,)))
    assert 1100 == model.serve(request(text(ends[150]), 2000.0, ends=ends[:151])).hit
    model = cache(GPT)
    for turn in range(80):
        model.serve(request(text(ends[turn + 1]), 0.0, ends=ends[: turn + 2]))
    model.serve(request(text(1100), 1000.0, ends=(1100,)))
    assert 0 == model.serve(request(text(ends[150]), 2000.0, ends=ends[:151])).hit


def test_nova_keeps_at_most_twenty_thousand_tokens():
    model = cache(rules("amazon.nova-pro-v1:0"))
    prompt = request(text(25_000), ends=(15_000, 25_000), markers=(15_000, 25_000))
    assert [0, 15_000] == [model.serve(prompt).hit for _ in range(2)]


def test_a_resource_holds_what_comes_first_and_dies_on_time():
    model = cache(rules("gemini-2.5-pro", control=Control.RESOURCE))
    served = []
    for number, time in enumerate((0.0, 3000.0, 3601.0)):
        tokens = text(5000) + text(300, 1 + number)
        served.append(model.serve(request(tokens, time, ends=(5000, 5300), system_end=5000)))
    assert [0, 5000, 0] == [each.hit for each in served]
    assert [{3600: 5000}, {}, {3600: 5000}] == [dict(each.written) for each in served]


def test_what_does_not_fit_is_forgotten():
    model = cache(SONNET, capacity=3000)
    model.serve(request(text(2000, 1), markers=(2000,), ends=(2000,)))
    model.serve(request(text(2000, 2), markers=(2000,), ends=(2000,)))
    served = model.serve(request(text(2000, 1), markers=(2000,), ends=(2000,)))
    assert (0, Reason.EVICTED) == (served.hit, served.otherwise)
