"""The engine with the real model."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from prefold.core.cache import Cache, NoValues  # noqa: E402 - after the check that torch is there
from prefold.core.keys import Scope  # noqa: E402
from prefold.core.tokens import pack, unpack  # noqa: E402
from prefold.engine.pins import PinWish  # noqa: E402
from prefold.errors import CapacityError, InvalidRequest, InvalidTokens, NoRoom, PromptTooLong  # noqa: E402

TEXTS = (
    "The tenant shall pay the rent on the third working day of every month, in advance, without deduction. ",
    "def merge(left, right):\n    out = []\n    while left and right:\n        out.append(left.pop(0))\n",
    "猫は窓のそばで眠っていた。外では雨が静かに降っている。",
    "如果合同没有另外约定，出租人应当在交付房屋之前完成维修，并且承担由此产生的费用。",
    '{"tools": [{"name": "search", "parameters": {"query": "string", "limit": 10}}], "step": 3}\n',
    "Q: What is 17 + 25?\nA: 42\nQ: What is 9 * 8?\nA: 72\nQ: What is 100 - 37?\nA:",
    "Il était une fois, dans une petite maison au bord de la mer, une femme qui réparait des horloges. ",
    "🚀 Launch notes: 1) check fuel; 2) check weather; 3) check the crew's coffee. ☕ Everything else can wait. ",
)


def varied_prompts(encode, number: int) -> list[tuple[list[int], int]]:
    """Prompts of many lengths and kinds, each with a place to split it."""
    chooser = random.Random(20261130)
    prompts = []
    for _ in range(number):
        tokens = encode("".join(chooser.choices(TEXTS, k=chooser.randint(1, 5))), add_special=False)
        tokens = tokens[: chooser.randint(12, 120)]
        prompts.append((tokens, chooser.randint(1, len(tokens) - 1)))
    return prompts


def spy_on(engine) -> list:
    """The logits of every step from now on."""
    forward, seen = engine.engine._decoder.forward, []

    def spy(batch, pool):
        seen.append(forward(batch, pool))
        return seen[-1]

    engine.engine._decoder = type("Spy", (), {"forward": staticmethod(spy)})
    return seen


def test_warm_answers_equal_cold_ones_in_float32(driver):
    prompts = varied_prompts(driver().engine.tokenizer.encode, 52)
    # Cold: every request alone in its scope, so that nothing is shared.
    cold = driver(slots=20000)
    expected = [cold.submit(p, max_tokens=10, scope=Scope(f"cold-{i}"))[1][0] for i, (p, _) in enumerate(prompts)]
    cold.run()
    assert 0 == cold.engine.cache.counters.hit

    # Warm, one after another and all together: first the part before the split, then the whole.
    warm = driver(slots=20000)
    for number, (prompt, split) in enumerate(prompts):
        warm.submit(prompt[:split], max_tokens=1, scope=Scope(f"warm-{number}"))
    warm.run()
    answers = [warm.submit(p, max_tokens=10, scope=Scope(f"warm-{i}"))[1][0] for i, (p, _) in enumerate(prompts)]
    warm.run()
    for number, (prompt, split) in enumerate(prompts):
        assert split <= answers[number].usage.cached < len(prompt)
        assert expected[number].tokens == answers[number].tokens, (number, split)
    for number, (prompt, split) in enumerate(prompts[::4]):
        alone = driver(slots=400)
        alone.ask(prompt[:split], max_tokens=1)
        assert expected[4 * number].tokens == alone.ask(prompt, max_tokens=10).tokens, (number, split)


def test_with_a_fixed_grid_logits_are_equal_to_the_bit(driver):
    grid = 16
    for prompt, _ in varied_prompts(driver().engine.tokenizer.encode, 8):
        prompt = (prompt * 3)[: max(len(prompt), 2 * grid)]  # noqa: PLW2901 - at least two cells
        engine = driver(grid=grid, slots=400)
        logits = spy_on(engine)
        cold = engine.ask(prompt, max_tokens=6)
        cold_logits = [row for row in logits if len(row)]
        logits.clear()
        warm = engine.ask(prompt, max_tokens=6)
        assert (len(prompt) - 1) // grid * grid == warm.usage.cached
        assert cold.tokens == warm.tokens
        assert all(torch.equal(a, b) for a, b in zip(cold_logits, [row for row in logits if len(row)], strict=True))


def test_bfloat16_stays_within_its_tolerance(driver):
    """As vectors, warm logits are within 6 % of float32's, and on average as near to them as cold ones."""
    distances = []
    for prompt, split in varied_prompts(driver().engine.tokenizer.encode, 8):
        exact, cold, warm = driver(slots=400), driver(dtype="bfloat16", slots=400), driver(dtype="bfloat16", slots=400)
        warm.ask(prompt[:split], max_tokens=1)
        rows = []
        for engine in (exact, cold, warm):
            logits = spy_on(engine)
            engine.ask(prompt, max_tokens=1)
            rows.append(logits[-1][0])
        size = torch.linalg.norm(rows[0])
        distances.append([float(torch.linalg.norm(row - rows[0]) / size) for row in rows[1:]])
    cold_distances, warm_distances = zip(*distances, strict=True)
    assert max(warm_distances) < 0.06
    assert sum(warm_distances) < 1.5 * sum(cold_distances)


def test_recomputed_tokens_are_exactly_what_core_predicts_for_sequential_requests(driver):
    engine = driver(slots=300)  # small enough to evict
    oracle = Cache(300, NoValues(), None)
    for prompt, split in varied_prompts(engine.engine.tokenizer.encode, 12):
        for part in (prompt[:split], prompt, prompt):
            answer = engine.ask(part, max_tokens=5, ignore_eos=True)
            lease = oracle.admit(pack(part), reserve=5, make_value=lambda *_: None)
            oracle.release(lease, tail=pack(answer.tokens[:-1]), make_value=lambda *_: None)
            assert lease.hit == answer.usage.cached
    assert oracle.counters.evicted > 0
    assert oracle.counters.recomputed == engine.engine.cache.counters.recomputed
    assert oracle.counters.recomputed == engine.engine.scheduler.computed_tokens


def test_concurrent_requests_with_one_prefix_compute_it_once(driver):
    engine = driver()
    encode = engine.engine.tokenizer.encode
    shared = encode(TEXTS[0] * 6, add_special=False)
    prompts = [shared + encode(text, add_special=False) for text in TEXTS]
    alone = [driver().ask(prompt, max_tokens=6).tokens for prompt in prompts]
    answers = [engine.submit(prompt, max_tokens=6)[1][0] for prompt in prompts]
    engine.run()
    assert alone == [answer.tokens for answer in answers]

    oracle = Cache(100_000, NoValues(), None)
    for prompt in prompts:
        oracle.admit(pack(prompt), make_value=lambda *_: None)
    assert oracle.counters.recomputed == engine.engine.scheduler.computed_tokens
    assert oracle.counters.recomputed == sum(a.usage.prompt - a.usage.cached for a in answers)


def test_the_next_turn_finds_what_was_generated(driver):
    engine = driver()
    first = engine.ask("The capital of France is", max_tokens=8, ignore_eos=True)
    prompt = engine.engine.tokenizer.encode("The capital of France is", add_special=False)
    second = engine.ask([*prompt, *first.tokens, *prompt], max_tokens=1)
    assert len(prompt) + 7 == second.usage.cached


def test_a_pool_too_small_for_all_still_gives_the_same_answers(driver):
    prompts = [p for p, _ in varied_prompts(driver().engine.tokenizer.encode, 4)]
    expected = [driver().ask(prompt, max_tokens=40, ignore_eos=True).tokens for prompt in prompts]
    engine = driver(slots=max(map(len, prompts)) + 90)
    answers = [engine.submit(prompt, max_tokens=40, ignore_eos=True)[1][0] for prompt in prompts]
    engine.run()
    assert expected == [answer.tokens for answer in answers]


def test_preemption_resumes_where_it_left_off(driver):
    prompts = [[100 + n, 200 + n, 300 + n] * 10 for n in range(3)]
    expected = [driver().ask(prompt, max_tokens=70, ignore_eos=True).tokens for prompt in prompts]
    engine = driver(slots=220)
    answers = [engine.submit(prompt, max_tokens=70, ignore_eos=True)[1][0] for prompt in prompts]
    engine.run()
    assert engine.engine.scheduler.preemptions > 0
    assert expected == [answer.tokens for answer in answers]
    assert [70, 70, 70] == [answer.usage.completion for answer in answers]


def test_salts_separate_and_share(driver):
    engine = driver()
    prompt = engine.engine.tokenizer.encode(TEXTS[0] * 2, add_special=False)
    cached = [
        engine.ask(prompt, max_tokens=1, scope=scope).usage.cached
        for scope in (Scope("a"), Scope("b"), Scope("a"), Scope("a", 10), Scope("b", 10), Scope("b", 10))
    ]
    assert [0, 0, len(prompt) - 1, 0, 10, len(prompt) - 1] == cached


def test_cancelling_frees_everything_at_once(driver):
    engine = driver(step_tokens=32)
    free = engine.engine.pool.free_slots
    ticket, (answer,) = engine.submit(TEXTS[3] * 4, max_tokens=50)
    waiting, (other,) = engine.submit(TEXTS[1] * 4, max_tokens=50)
    engine.engine.step()
    engine.engine.cancel(waiting)
    engine.engine.cancel(ticket)
    assert not engine.engine.busy
    engine.check()
    assert "cancelled" == answer.finish == other.finish
    assert free == engine.engine.pool.free_slots + engine.engine.cache.tree.size
    engine.engine.cancel(ticket)  # once more does no harm
    assert free == engine.engine.pool.free_slots + engine.engine.reset()


def test_pinned_prefixes_stay_and_cannot_fill_the_pool(driver):
    engine = driver(slots=120)
    prompt = list(range(1000, 1040))
    engine.ask(prompt, max_tokens=1)
    pin = engine.engine.pin(PinWish(pack(prompt)))
    assert 40 == pin.tokens
    for number in range(4):
        engine.ask(range(2000 + 100 * number, 2070 + 100 * number), max_tokens=1)
    assert 39 == engine.ask(prompt, max_tokens=1).usage.cached
    with pytest.raises(NoRoom, match="may need 110 tokens; pinned prefixes leave 80"):
        engine.submit(range(3000, 3100), max_tokens=10)
    assert "length" == engine.ask([*prompt, *range(3000, 3060)], max_tokens=20, ignore_eos=True).finish
    assert pin.id == engine.engine.pins.remove(pin.id).id

    engine.engine.reset()
    engine.ask(prompt, max_tokens=1)
    ticket, _ = engine.submit(range(3000, 3045), max_tokens=60)
    engine.engine.step()
    with pytest.raises(CapacityError, match="too little room for a request that was accepted"):
        engine.engine.pin(PinWish(pack(prompt)))
    assert [] == engine.engine.pins.all()
    engine.run()
    assert ticket.answers == {}


def test_several_answers_share_the_prompt_and_are_repeatable(driver):
    engine = driver()
    _, answers = engine.submit("Once upon a time", max_tokens=12, temperature=1.0, seed=7, choices=3)
    engine.run()
    texts = [answer.text for answer in answers]
    assert 3 == len(set(texts))
    assert [None, None] == sorted((a.usage for a in answers), key=bool)[:2]
    usage = next(answer.usage for answer in answers if answer.usage)
    assert (4, 0, 36) == (usage.prompt, usage.cached, usage.completion)
    assert 1 == engine.engine.cache.counters.requests

    # Choice 1 of seed 7 is choice 0 of seed 8, in whatever company.
    _, again = engine.submit("Once upon a time", max_tokens=12, temperature=1.0, seed=8)
    engine.submit(TEXTS[2], max_tokens=12)
    engine.run()
    assert texts[1] == again[0].text


def test_stops_end_the_answer_and_are_not_part_of_it(driver):
    whole = driver().ask("Count: one, two, three,", max_tokens=16, ignore_eos=True)
    word = whole.text.split()[2]
    stopped = driver().ask("Count: one, two, three,", max_tokens=16, ignore_eos=True, stop=(word, "never seen"))
    assert whole.text[: whole.text.index(word)] == stopped.text
    assert "stop" == stopped.finish
    assert "length" == whole.finish
    assert stopped.usage.completion < whole.usage.completion


def test_the_end_token_ends_the_answer_unless_ignored(driver):
    tokenizer = driver().engine.tokenizer
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "Say hi."}])
    answer = driver().ask(prompt, max_tokens=40)
    assert "stop" == answer.finish
    assert answer.tokens[-1] in driver().engine.config.eos_token_ids
    assert "<|im_end|>" not in answer.text
    assert 40 == len(driver().ask(prompt, max_tokens=40, ignore_eos=True).tokens)


def test_logprobs_are_those_of_the_model(driver):
    answer = driver().ask("The capital of France is", max_tokens=3, logprobs=4)
    for output in answer.outputs:
        (info,) = output.infos
        assert 4 == len(info.likeliest)
        assert info.chosen == info.likeliest[0]  # greedy
        assert sorted(info.likeliest, key=lambda t: -t.logprob) == list(info.likeliest)
        assert sum(torch.tensor([t.logprob for t in info.likeliest]).exp()) <= 1


def test_top_k_and_top_p_of_nearly_nothing_are_greedy(driver):
    greedy = driver().ask(TEXTS[6], max_tokens=8).tokens
    assert greedy == driver().ask(TEXTS[6], max_tokens=8, temperature=1.5, top_k=1, seed=1).tokens
    assert greedy == driver().ask(TEXTS[6], max_tokens=8, temperature=1.5, top_p=1e-6, seed=1).tokens


def test_temperatures_next_to_nothing_are_greedy(driver):
    greedy = driver().ask(TEXTS[6], max_tokens=4).tokens
    for temperature in (1e-9, 1e-39, 5e-324):
        assert greedy == driver().ask(TEXTS[6], max_tokens=4, temperature=temperature).tokens


def test_logits_that_are_no_numbers_fail_their_own_request_only(driver):
    engine = driver()
    forward = engine.engine._decoder.forward

    def poison(batch, pool):
        logits = forward(batch, pool).clone()
        logits[0] = torch.nan
        return logits

    engine.engine._decoder = type("Poisoned", (), {"forward": staticmethod(poison)})
    _, (bad,) = engine.submit("Once upon", max_tokens=3)
    _, (good,) = engine.submit("The capital of France is", max_tokens=1)
    engine.run()
    assert ("error", "length") == (bad.finish, good.finish)
    assert "finite" in bad.outputs[-1].error.message


def test_requests_that_can_never_run_are_refused_at_once(driver):
    engine = driver(slots=100)
    with pytest.raises(InvalidTokens, match="empty"):
        engine.submit([])
    with pytest.raises(InvalidTokens, match="49152 is outside"):
        engine.submit([5, 49152])
    with pytest.raises(InvalidTokens):
        pack([-1])
    with pytest.raises(PromptTooLong, match="K/V memory of 100"):
        engine.submit(range(90), max_tokens=11)
    with pytest.raises(PromptTooLong, match="context length of 8192"):
        driver(slots=20000).submit([1] * 8192, max_tokens=1)
    assert not engine.engine.busy
    assert [1, 2] == unpack(pack([1, 2]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", 2.1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("seed", 2**63),
        ("stop", ("",)),
        ("stop", ("x",) * 17),
        ("logprobs", 21),
        ("choices", 0),
    ],
)
def test_bad_sampling_values_name_their_field(driver, field, value):
    with pytest.raises(InvalidRequest) as caught:
        driver().submit([1], **{field: value})
    assert {"choices": "n"}.get(field, field) == caught.value.param


def test_a_failing_step_fails_its_requests_and_nothing_else(driver):
    engine = driver()
    forward = engine.engine._decoder.forward
    calls = []

    def fail_once(batch, pool):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("out of memory, say")
        return forward(batch, pool)

    engine.engine._decoder = type("Failing", (), {"forward": staticmethod(fail_once)})
    answer = engine.ask("The capital of France is", max_tokens=5)
    assert "error" == answer.finish
    assert "out of memory" in answer.outputs[-1].error.message
    assert "length" == engine.ask("The capital of France is", max_tokens=5, ignore_eos=True).finish
