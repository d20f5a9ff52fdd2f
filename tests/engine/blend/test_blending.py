"""The engine on prompts with marked chunks, on a tiny random model in float32."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefold.core.keys import Scope
from prefold.core.tokens import count, pack
from prefold.errors import InvalidRequest

HEAD = [3, 9, 11, 4]
QUESTION = [120, 121, 122]


def chunk(number: int, size: int = 24) -> list[int]:
    dice = Random(number)
    return [dice.randrange(5, 110) for _ in range(size)]


def prompt_of(numbers, *, head=HEAD, question=QUESTION, size=24):
    """A prompt with these chunks, a separator behind each, and where they stand."""
    run, ranges = list(head), []
    for number in numbers:
        text = chunk(number, size)
        ranges.append((len(run), len(run) + len(text)))
        run += [*text, 7]
    return [*run, *question], ranges


def found(engine, prompt, scope=Scope()):  # noqa: B008 - immutable
    return engine.cache.tree.peek(pack(prompt), scope).length


def same(expected, answer):
    assert expected.tokens == answer.tokens
    assert expected.chances == pytest.approx(answer.chances, abs=2e-4)


def test_chunks_that_nobody_knows_yet_are_answered_exactly(bench):
    prompt, ranges = prompt_of([1, 2, 3])
    expected = bench(blend=False).ask(prompt)
    answer = bench().ask(prompt, ranges)
    same(expected, answer)
    assert (3, 0, 0, 0) == (
        answer.blend.chunks,
        answer.blend.reused,
        answer.blend.reused_tokens,
        answer.blend.recomputed_tokens,
    )
    assert answer.blend.is_exact


@pytest.mark.parametrize("order", [[1, 2, 3, 4], [4, 2, 3, 1], [3, 9, 1]])
def test_all_recomputed_is_full_prefill(bench, order):
    blending = bench(blend_recompute=1.0)
    blending.ask(*prompt_of([1, 2, 3, 4]))
    prompt, ranges = prompt_of(order)
    answer = blending.ask(prompt, ranges)
    same(bench(blend=False).ask(prompt), answer)
    assert len(set(order) & {1, 2, 3, 4}) == answer.blend.reused
    assert answer.blend.is_exact


def test_known_chunks_are_reused_but_for_the_share_that_is_recomputed(bench):
    blending = bench(blend_recompute=0.25)
    blending.ask(*prompt_of([1, 2, 3, 4]))
    answer = blending.ask(*prompt_of([4, 2, 9, 1]))
    assert (4, 3, 54, 18) == (
        answer.blend.chunks,
        answer.blend.reused,
        answer.blend.reused_tokens,
        answer.blend.recomputed_tokens,
    )
    assert not answer.blend.is_exact
    assert 8 == len(answer.tokens)


def test_a_single_chunk_behind_the_opening_it_was_computed_with_is_nearly_exact(bench):
    """The record of a chunk stands behind an opening; a prompt that begins like it blends without any error."""
    blending = bench(blend_recompute=0.0)
    opening = blending.engine.blender._opening.tolist()
    prompt, ranges = prompt_of([1], head=opening)
    blending.ask(prompt, ranges)
    answer = blending.ask(prompt, ranges)
    assert (24, 0) == (answer.blend.reused_tokens, answer.blend.recomputed_tokens)
    same(bench(blend=False).ask(prompt), answer)


def test_nothing_behind_the_first_chunk_is_in_the_tree(bench):
    blending = bench()
    prompt, ranges = prompt_of([1, 2])
    for _ in range(3):
        answer = blending.ask(prompt, ranges)
    assert len(HEAD) == found(blending.engine, [*prompt, *answer.tokens])
    assert len(HEAD) == blending.engine.cache.tree.size
    assert blending.engine.pool.free_slots == blending.engine.pool.capacity - len(HEAD)
    assert len(HEAD) - 1 == answer.usage.cached


def test_a_prompt_that_begins_with_a_chunk_shares_its_first_token_alone(bench):
    blending = bench()
    prompt, ranges = prompt_of([1, 2], head=[])
    blending.ask(prompt, ranges)
    answer = blending.ask(*prompt_of([2, 1], head=[]))
    assert 2 == answer.blend.reused
    assert {1} == {node.length for node in blending.engine.cache.tree.nodes()}
    same(bench(blend=False).ask(prompt), bench(blend_recompute=1.0).ask(prompt, ranges))


def test_what_stands_before_the_first_chunk_is_cached_exactly(bench):
    blending = bench()
    head = chunk(77, 40)
    blending.ask([*head, 5])
    assert 40 - 1 == blending.ask(*prompt_of([1, 2], head=head)).usage.cached
    prompt = [*head, 6, 8]
    answer = blending.ask(prompt)
    assert 40 == answer.usage.cached
    same(bench(blend=False).ask(prompt), answer)


def test_a_chunk_that_ends_the_prompt_still_gives_logits(bench):
    blending = bench()
    prompt, ranges = prompt_of([1, 2], question=[])
    prompt = prompt[:-1]
    blending.ask(prompt, ranges)
    answer = blending.ask(prompt, ranges)
    assert 47 == answer.blend.reused_tokens + answer.blend.recomputed_tokens


def test_salts_share_no_chunk(bench):
    blending = bench()
    prompt, ranges = prompt_of([1, 2])
    for scope in (Scope("a"), Scope("b"), Scope(), Scope("a", 2), Scope("a", namespace="n")):
        expected = 2 if scope == Scope("a", 2) else 0  # the salt counts, not where it begins
        assert expected == blending.ask(prompt, ranges, scope).blend.reused
    assert 2 == blending.ask(prompt, ranges, Scope("b")).blend.reused


def test_a_salted_opening_is_cached_for_its_salt(bench):
    blending = bench()
    blending.ask(*prompt_of([1]), Scope("a"))
    assert len(HEAD) - 1 == blending.ask(*prompt_of([2]), Scope("a")).usage.cached
    assert 0 == blending.ask(*prompt_of([2]), Scope("b")).usage.cached


def test_without_the_option_marks_change_nothing_but_the_usage(bench):
    plain = bench(blend=False)
    prompt, ranges = prompt_of([1, 2])
    answer = plain.ask(prompt, ranges)
    same(plain.ask(prompt), answer)
    assert ("blending is off", True) == (answer.blend.reason, answer.blend.is_exact)
    assert len(prompt) == found(plain.engine, prompt)
    assert plain.ask(prompt).blend is None


def test_several_choices_blend_each(bench):
    blending = bench()
    prompt, ranges = prompt_of([1, 2])
    blending.ask(prompt, ranges)
    answer = blending.ask(prompt, ranges, choices=3)
    assert {0, 1, 2} == {output.choice for output in answer.outputs}
    assert 2 == answer.blend.reused


def test_cancelled_at_every_step(bench):
    prompt, ranges = prompt_of([1, 2, 3])
    for steps in range(6):
        blending = bench(step_tokens=4)
        blending.ask(*prompt_of([2, 1]))
        asked = blending.submit(prompt, ranges)
        for _ in range(steps):
            blending.engine.step()
        blending.engine.cancel(asked.ticket)
        blending.check()
        assert "cancelled" == asked.finish
        assert len(HEAD) >= found(blending.engine, prompt)
        same(bench(blend=False).ask(prompt), blending.ask(prompt))


def test_preempted_it_blends_again_with_what_it_said(bench):
    """Two prompts and their answers do not fit together; the later one gives way and still ends as if alone."""
    prompt, ranges = prompt_of([1, 2, 3])
    tight = bench(slots=2 * len(prompt) + 70, blend_recompute=1.0)
    first, second = tight.submit(prompt, ranges, max_tokens=60), tight.submit(prompt, ranges, max_tokens=60)
    tight.run()
    assert 0 < tight.engine.scheduler.preemptions
    expected = bench(blend=False).ask(prompt, max_tokens=60)
    same(expected, first)
    same(expected, second)


def test_many_at_once_with_ordinary_ones_between(bench):
    blending = bench(step_tokens=16, blend_recompute=1.0)
    jobs = [prompt_of(order) for order in ([1, 2], [2, 1], [3, 1], [1])]
    asked = [blending.submit(prompt, ranges if at % 2 else ()) for at, (prompt, ranges) in enumerate(jobs * 2)]
    blending.run()
    for (prompt, _), answer in zip(jobs * 2, asked, strict=True):
        same(bench(blend=False).ask(prompt), answer)


def test_a_failing_blend_ends_that_request_alone(bench, monkeypatch):
    blending = bench()
    prompt, ranges = prompt_of([1, 2])
    other = blending.submit(QUESTION, max_tokens=20)
    blending.engine.step()
    failing = blending.submit(prompt, ranges)

    def fail(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(blending.engine.blender, "run", fail)
    blending.run()
    assert ("error", "length") == (failing.finish, other.finish)


def test_a_chunk_that_cannot_be_learnt_costs_nobody_an_answer(bench, monkeypatch):
    blending = bench()

    def fail(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr("prefold.engine.blend.records.Draft.go_on", fail)
    assert "length" == blending.ask(*prompt_of([1, 2])).finish


def test_a_long_chunk_is_learnt_in_pieces_between_which_others_go_on(bench, monkeypatch):
    blending = bench(step_tokens=8)
    pieces = []
    learn = blending.engine.blender.learn

    def noted(limit):
        pieces.append((limit, len(other.tokens)))
        learn(limit)

    monkeypatch.setattr(blending.engine.blender, "learn", noted)
    other = blending.submit(QUESTION, max_tokens=40)
    answer = blending.submit(*prompt_of([1], size=100), max_tokens=3)
    blending.run()
    assert [8] * 13 == [limit for limit, _ in pieces]  # 100 tokens and the opening
    assert all(before < after for (_, before), (_, after) in pairwise(pieces))
    same(bench(blend=False).ask(prompt_of([1], size=100)[0], max_tokens=3), answer)
    assert 1 == blending.ask(*prompt_of([2, 1], size=100)).blend.reused


def test_more_than_one_step_blends_is_answered_in_full_and_says_so(bench, monkeypatch):
    monkeypatch.setattr("prefold.engine.engine.BLEND_MAX", 100)
    blending = bench()
    prompt, ranges = prompt_of([1, 2, 3, 4])  # 103 tokens from the first chunk on
    for _ in range(2):
        answer = blending.ask(prompt, ranges)
        same(bench(blend=False).ask(prompt), answer)
        assert answer.blend.is_exact
        assert "103 tokens" in answer.blend.reason
    assert len(prompt) - 1 == answer.usage.cached
    assert "" == blending.ask(*prompt_of([1, 2, 3])).blend.reason


def test_reset_forgets_chunks(bench):
    blending = bench()
    prompt, ranges = prompt_of([1, 2])
    blending.ask(prompt, ranges)
    blending.engine.reset()
    assert 0 == blending.engine.blender.store.size
    blending.submit(prompt, ranges, max_tokens=1)
    while not blending.engine.blender.learning:
        blending.engine.step()
    blending.engine.reset()
    assert not blending.engine.busy
    assert 0 == blending.ask(prompt, ranges).blend.reused


def test_a_budget_too_small_for_any_chunk_means_full_prefill(bench):
    blending = bench(blend_memory=1000)
    prompt, ranges = prompt_of([1, 2])
    blending.ask(prompt, ranges)
    answer = blending.ask(prompt, ranges)
    same(bench(blend=False).ask(prompt), answer)
    assert 0 == answer.blend.reused


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([(2, 9), (8, 12)], "begins before 9"),
        ([(9, 12), (2, 5)], "begins before 12"),
        ([(5, 5)], "empty"),
        ([(-1, 5)], "lies outside of 0 to 60"),
        ([(5, 10_000)], "lies outside of 0 to 60"),
        ([(at, at + 1) for at in range(10_000)], "10000 chunks"),
    ],
)
def test_bad_chunks_are_refused_with_or_without_the_option(bench, chunks, words):
    for blend in (True, False):
        with pytest.raises(InvalidRequest, match=words) as caught:
            bench(blend=blend).ask(chunk(1, 60), chunks)
        assert "prefold_chunks" == caught.value.param


def test_a_thousand_chunks_of_one_token_do(bench):
    blending = bench(slots=3000)
    prompt = [3, *chunk(5, 400)]
    ranges = list(pairwise(range(1, 401)))
    blending.ask(prompt, ranges)
    assert 399 == blending.ask(prompt, ranges).blend.reused


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    jobs=st.lists(
        st.tuples(
            st.lists(st.integers(1, 4), min_size=0, max_size=4),
            st.booleans(),  # marked
            st.sampled_from([None, "a", "b"]),
            st.integers(1, 12),  # new tokens
            st.integers(0, 3),  # steps before the next one comes
            st.booleans(),  # cancelled then
        ),
        min_size=1,
        max_size=10,
    ),
    slots=st.integers(90, 400),
)
def test_exact_requests_never_see_what_blended_ones_made(bench_factory, jobs, slots):
    blending, cold = bench_factory
    mixed = blending(slots)
    asked = []
    for numbers, marked, salt, new, steps, cancelled in jobs:
        prompt, ranges = prompt_of(numbers, size=15)
        scope = Scope(salt)
        one = mixed.submit(prompt, ranges if marked else (), scope, max_tokens=new)
        for _ in range(steps):
            mixed.engine.step()
            mixed.check()
        if cancelled:
            mixed.engine.cancel(one.ticket)
        asked.append((prompt, bool(marked and ranges), new, one))
    mixed.run()
    for prompt, is_blended, new, one in asked:
        if not is_blended and one.finish == "length":
            same(cold(prompt, new), one)
    exact = {count(pack(prompt)) for prompt, is_blended, *_ in asked if not is_blended}
    if not exact:  # then only openings were cached
        assert all(node.stop <= len(HEAD) for node in mixed.engine.cache.tree.nodes())


@pytest.fixture
def bench_factory(bench):
    answers = {}
    plain = bench(blend=False, slots=4000)

    def cold(prompt, new):
        key = tuple(prompt), new
        if key not in answers:
            plain.engine.reset()
            answers[key] = plain.ask(prompt, max_tokens=new)
        return answers[key]

    return (lambda slots: bench(slots=slots, step_tokens=16)), cold
