"""Each token has one reason, breaks are found and named, and what is remembered is bounded."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.analysis.attribution import OTHER_REASONS, Attribution, Break
from prefold.analysis.caches.base import Loss, Reason, Served
from prefold.analysis.caches.build import build
from prefold.analysis.caches.resolve import PLAIN
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.encode import Encoder
from prefold.analysis.history import History
from prefold.analysis.logs.log import open_log
from prefold.analysis.record import Blocks, Body, Place, Record
from prefold.analysis.request import Request
from prefold.analysis.traced import TracedPrompt
from prefold.core.tokens import pack
from prefold.prompts.divergence import compare as divergence
from prefold.prompts.divergence.compare import Divergence, compare
from prefold.prompts.prompt import Dialect

DATA = Path(__file__).parents[3] / "shared" / "data"
RULES = "You answer questions about orders. Be brief, be exact, and never guess. " * 12
POLICY = "Refunds are paid within thirty days. Parcels may be returned, unless they were opened by force. " * 12


def record(body: dict[str, Any], line: int = 1, **fields: Any) -> Record:
    fields = {"model": body.get("model", ""), **fields}
    return Record(Body(json.dumps(body).encode(), fields.pop("dialect", Dialect.OPENAI)), Place("log", line), **fields)


def chat(system: str, *texts: str, model: str = "claude-3", **fields: Any) -> dict[str, Any]:
    """A conversation: user and assistant in turn."""
    turns = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"model": model, "messages": [{"role": "system", "content": system}, *turns], **fields}


def everything(attribution: Attribution, requests: Iterable[Request]) -> int:
    """Attribute requests under a cache that keeps all; returns their tokens."""
    tokens = 0
    for request in requests:
        attribution.add(request, Served(attribution.history.look(request).own))
        tokens += request.tokens
    return tokens


def attributed(records: Iterable[Record], **options: Any) -> Attribution:
    attribution, encoder = Attribution(rules_of=lambda _: PLAIN), Encoder(**options)
    tokens = everything(attribution, map(encoder.encode, records))
    assert tokens == sum(row.tokens for row in attribution.rows()) == attribution.input_tokens
    return attribution


def tokens_of(attribution: Attribution) -> dict[Reason, int]:
    found: dict[Reason, int] = {}
    for row in attribution.rows():
        found[row.reason] = found.get(row.reason, 0) + row.tokens
    return found


# --- one reason each


def test_what_is_sent_once_is_cold() -> None:
    attribution = attributed([record(chat(RULES, "Where is order 7?"))])
    assert [Reason.COLD, Reason.UNEXPLAINED] == [row.reason for row in attribution.rows()]
    assert [] == attribution.breaks()


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> list[Divergence]:
    """What pairs of requests gave that were compared in full, each of which takes milliseconds."""
    found: list[Divergence] = []

    def noted(*args: Any, **options: Any) -> Divergence:
        found.append(compare(*args, **options))
        return found[-1]

    monkeypatch.setattr(divergence, "compare", noted)
    return found


def test_a_conversation_that_grows_hits_and_breaks_nothing(comparisons: list[Divergence]) -> None:
    turns = ["Where is order 7?", "On its way.", "And order 8?", "Lost at sea.", "Oh dear."]
    attribution = attributed(record(chat(RULES, *turns[: n + 1])) for n in (0, 2, 4))
    assert {Reason.HIT, Reason.COLD, Reason.UNEXPLAINED} == set(tokens_of(attribution))
    assert [] == attribution.breaks()
    assert [] == comparisons


def test_another_model_and_another_tenant() -> None:
    body = chat(RULES, "Where is order 7?")
    other_model = attributed([record(body), record({**body, "model": "claude-2"})])
    total = other_model.input_tokens // 2
    assert total == tokens_of(other_model)[Reason.OTHER_MODEL]
    assert [("model", "model", total)] == [(each.cause, each.path, each.tokens) for each in other_model.breaks()]
    other_tenant = attributed([record(body, tenant="a"), record(body, tenant="b")], isolate_tenants=True)
    assert total == tokens_of(other_tenant)[Reason.OTHER_TENANT]
    assert [("salt", ())] == [(each.cause, each.example) for each in other_tenant.breaks()]


def test_what_the_cache_lost_is_what_it_says() -> None:
    encoder, attribution = Encoder(), Attribution()
    request = encoder.encode(record(chat(RULES, "Where is order 7?"), 3))
    attribution.add(request, Served(0))
    losses = (Loss(Reason.EVICTED, 60), Loss(Reason.EXPIRED, 80), Loss(Reason.OTHER_REPLICA, 10**9))
    attribution.add(request, Served(50, lost=losses[:2], otherwise=Reason.BREAKPOINT))
    attribution.add(request, Served(50, lost=losses, otherwise=Reason.BREAKPOINT))
    attribution.add(request, Served(request.tokens - 1, otherwise=Reason.BLOCK_TAIL))
    rest = request.tokens - 80
    assert {
        Reason.HIT: 2 * 50 + request.tokens - 1,
        Reason.COLD: request.tokens,
        Reason.BLOCK_TAIL: 1,
        Reason.EXPIRED: 40,
        Reason.EVICTED: 20,
        Reason.OTHER_REPLICA: rest,
        Reason.BREAKPOINT: rest,
        Reason.UNEXPLAINED: 0,
    } == tokens_of(attribution)
    causes = {each.cause: each for each in attribution.breaks()}
    assert {"no_breakpoint", "evicted", "expired", "routed_away"} == set(causes)
    assert (Place("log", 3), Place("log", 3)) == causes["expired"].example
    assert causes["expired"].fix


def test_a_marker_out_of_reach_is_another_cause_than_none() -> None:
    request = Encoder().encode(record(chat(RULES)))
    attribution = Attribution()
    attribution.add(request, Served(0))
    attribution.add(request, Served(0, lost=(Loss(Reason.LOOKBACK, 50),), otherwise=Reason.BREAKPOINT))
    assert {"lookback": 50, "no_breakpoint": request.tokens - 50} == {
        each.cause: each.tokens for each in attribution.breaks()
    }


def test_a_cache_that_keeps_answers_hits_more_than_was_sent() -> None:
    encoder, attribution = Encoder(), Attribution()
    first = encoder.encode(record(chat(RULES, "Why?"), answer="Because it rained."))
    second = encoder.encode(record(chat(RULES, "Why?", "Because it rained.", "Oh.")))
    attribution.add(first, Served(0))
    attribution.add(second, Served(first.tokens + 8, lost=(Loss(Reason.EVICTED, first.tokens),)))
    assert first.tokens + 8 == tokens_of(attribution)[Reason.HIT]
    assert Reason.EVICTED not in tokens_of(attribution)


def test_a_hit_is_never_more_than_the_prompt() -> None:
    attribution = Attribution()
    request = Encoder().encode(record(chat(RULES)))
    attribution.add(request, Served(10**9))
    assert request.tokens == tokens_of(attribution)[Reason.HIT] == attribution.input_tokens


# --- changed prefixes


def only_break(attribution: Attribution) -> Break:
    (found,) = attribution.breaks()
    return found


def test_a_clock_in_the_rules_breaks_across_sessions(comparisons: list[Divergence]) -> None:
    bodies = [chat(f"Now: 2026-11-{day:02}T10:00:00Z\n{RULES}", f"Question {day}?") for day in range(1, 25)]
    attribution = attributed(record(body, line, session=str(line)) for line, body in enumerate(bodies, 1))
    found = only_break(attribution)
    assert ("clock", "messages[0]") == (found.cause, found.path)
    assert 23 == found.requests
    assert found.tokens > 0.75 * attribution.input_tokens
    assert 0.8 * found.tokens < found.gain_tokens <= found.tokens
    assert "11-01" in found.before
    assert "11-02" in found.after
    assert (Place("log", 1), Place("log", 2)) == found.example
    assert 0 < len(comparisons) < 12


def test_alike_breaks_are_not_all_compared(comparisons: list[Divergence]) -> None:
    rng = random.Random(1)
    bodies = (chat(f"Request {uuid.UUID(int=rng.getrandbits(128))}\n{RULES}", f"{n} {POLICY}") for n in range(600))
    attribution = attributed(record(body, line) for line, body in enumerate(bodies, 1))
    assert {"identifier"} == {each.cause for each in attribution.breaks()}
    assert 599 == sum(each.requests for each in attribution.breaks())
    assert 0 < len(comparisons) <= 64 + 599 // 64


def test_a_history_that_is_cut_off_is_compared_with_the_same_conversation() -> None:
    def body(topic: int, first: int, last: int) -> dict[str, Any]:
        rng = random.Random(topic)
        texts = [" ".join(rng.choices(POLICY.split() + RULES.split(), k=60)) for _ in range(2 * last + 1)]
        return chat(RULES, *texts[2 * first :])

    bodies = []
    for last in range(1, 5):
        bodies += [body(1, 0, last), body(2, 0, last)]  # two conversations in turn
    bodies += [body(1, 2, 5), body(2, 2, 5)]
    attribution = attributed(record(each, line) for line, each in enumerate(bodies, 1))
    found = only_break(attribution)
    assert ("truncation", "messages[*]") == (found.cause, found.path)
    assert 2 == found.requests
    assert (Place("log", 7), Place("log", 9)) == found.example


def test_content_that_merely_returns_is_no_break() -> None:
    bodies = [chat(f"You are {name}. {name} {name}.", f"{POLICY}\nWhat now, {name}?") for name in ("Ann", "Bob")]
    attribution = attributed(record(body) for body in bodies)
    changed = [row for row in attribution.rows() if row.reason is Reason.CHANGED_PREFIX]
    assert changed
    assert sum(row.tokens for row in changed) > 0.3 * attribution.input_tokens


def test_a_phrase_that_returns_is_new() -> None:
    bodies = [chat(f"Agent {n}", "Thank you.", f"Answer {n}") for n in range(5)]
    assert Reason.CHANGED_PREFIX not in tokens_of(attributed(map(record, bodies)))


def test_reasons_of_the_provider_stand_beside() -> None:
    bodies = [chat(f"Now: 2026-11-{day:02}T10:00:00Z\n{RULES}", f"Question {day}?") for day in range(1, 6)]
    attribution = attributed(record(body, miss_reason="system_changed") for body in bodies)
    assert {"system_changed": 5} == attribution.miss_reasons
    assert {"system_changed": 4} == only_break(attribution).miss_reasons


def test_what_a_request_says_twice_is_no_repeat() -> None:
    assert Reason.CHANGED_PREFIX not in tokens_of(attributed([record(chat(RULES + RULES, RULES, RULES, POLICY))]))


def test_words_of_the_provider_are_bounded() -> None:
    request = record(chat("x"))
    attribution = attributed(replace(request, miss_reason=f"reason {n}") for n in range(150))
    assert 101 == len(attribution.miss_reasons)
    assert 50 == attribution.miss_reasons[OTHER_REASONS]


def test_changed_blocks_of_a_trace() -> None:
    def blocks(*ids: int) -> Record:
        return Record(Blocks(pack(ids), 64, 64 * len(ids) + 10), Place("trace", ids[0]), model="m")

    attribution = attributed([blocks(1, 2, 3, 4), blocks(1, 2, 3, 4), blocks(1, 9, 3, 4)])
    assert {
        Reason.HIT: 5 * 64,
        Reason.COLD: 5 * 64 + 10 + 10,
        Reason.BLOCK_TAIL: 10,
        Reason.CHANGED_PREFIX: 2 * 64,
        Reason.UNEXPLAINED: 0,
    } == tokens_of(attribution)
    found = only_break(attribution)
    assert ("", "", 128, 0) == (found.cause, found.path, found.tokens, found.gain_tokens)
    assert found.explanation
    assert (Place("trace", 1), Place("trace", 1)) == found.example


def words(seed: int, count: int) -> str:
    """Text in which nothing repeats for long."""
    return " ".join(random.Random(seed).choices(POLICY.split() + RULES.split(), k=count))


def served_by_their_own(bodies: Iterable[dict[str, Any]], gap: float = 20.0, **fields: Any) -> Attribution:
    """Requests as the caches serve them that their models have."""
    attribution, encoder, cache = Attribution(), Encoder(), build(CacheSpec("own", None))
    for line, body in enumerate(bodies, 1):
        dialect = Dialect.ANTHROPIC if body["model"].startswith("claude") else Dialect.OPENAI
        request = encoder.encode(record(body, line, time=gap * line, dialect=dialect, **fields))
        attribution.add(request, cache.serve(request))
    return attribution


def marked(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


def claude(system: str, turns: int, *, model: str = "claude-sonnet-4-5", **fields: Any) -> dict[str, Any]:
    """A conversation with markers behind the rules and at its end."""
    texts = [words(100 + turn, 150) for turn in range(2 * turns - 1)]
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    messages[-1]["content"] = [marked(texts[-1])]  # type: ignore[assignment]
    return {"model": model, "system": [marked(system)], "messages": messages, **fields}


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("thinking", [{"type": "enabled", "budget_tokens": 1024 + turn} for turn in range(5)]),
        ("tool_choice", [{"type": name} for name in ("auto", "any", "auto", "any", "auto")]),
    ],
)
def test_a_setting_of_claude_that_changes_costs_the_history(setting: str, values: list[Any]) -> None:
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    bodies = [claude(words(1, 1500), 1 + n, tools=tools) for n in range(5)]
    same = served_by_their_own({**body, setting: values[0]} for body in bodies)
    assert [] == same.breaks()
    changed = served_by_their_own({**body, setting: value} for body, value in zip(bodies, values, strict=True))
    assert same.input_tokens == changed.input_tokens
    found = next(each for each in changed.breaks() if each.cause == "parameter")
    assert (setting, Reason.CHANGED_PREFIX, changed.breaks()[0]) == (found.path, found.reason, found)
    lost = tokens_of(same)[Reason.HIT] - tokens_of(changed)[Reason.HIT]
    assert 0.95 * lost < found.gain_tokens <= found.tokens
    assert json.dumps(values[0]) == found.before


def test_another_schema_costs_rules_and_history_but_not_the_tools() -> None:
    tools = [{"type": "function", "function": {"name": f"look_{n}", "description": words(n, 400)}} for n in range(4)]
    schemas = [{"type": "json_schema", "json_schema": {"name": f"s{n}", "schema": {}}} for n in range(3)]
    bodies = [chat(words(9, 1500), f"Question {n}?", model="gpt-4o", tools=tools) for n in range(3)]
    attribution = served_by_their_own(
        {**body, "response_format": schema} for body, schema in zip(bodies, schemas, strict=True)
    )
    found = attribution.breaks()[0]
    assert ("parameter", "response_format", 2) == (found.cause, found.path, found.requests)
    assert 2 * 1024 <= tokens_of(attribution)[Reason.HIT]
    assert 1000 * found.requests < found.gain_tokens


def test_a_setting_that_the_cache_does_not_look_at_is_not_blamed() -> None:
    bodies = [
        chat(f"Now: 2026-11-{day:02}T10:00:00Z\n{words(1, 1500)}", "Hi", model="gpt-4o", tool_choice=choice)
        for day, choice in ((1, "none"), (2, "required"), (3, "auto"))
    ]
    found = served_by_their_own(bodies).breaks()
    assert "clock" == found[0].cause
    assert "parameter" not in {each.cause for each in found}


@pytest.mark.parametrize(("model", "length"), [("claude-haiku-4-5", 3000), ("gpt-4o", 700)])
def test_what_is_too_short_for_the_cache_cannot_be_avoided(model: str, length: int) -> None:
    def body(n: int) -> dict[str, Any]:
        system = f"Now: 2026-11-{n:02}T10:00:00Z\n{words(1, length)}"
        return claude(system, 1, model=model) if model.startswith("claude") else chat(system, "Hi", model=model)

    attribution = served_by_their_own(body(n) for n in range(1, 6))
    assert 0 == sum(row.avoidable for row in attribution.rows())
    clock, *others = attribution.breaks()
    assert ("clock", 0) == (clock.cause, clock.gain_tokens)
    assert {"too_short"} >= {each.cause for each in others}


def test_what_can_be_avoided_is_what_the_cache_serves_without_the_break() -> None:
    broken = [chat(f"{n} is the number.\n{words(1, 1500)}", "Hi", model="gpt-4o") for n in range(1_000, 1_010)]
    mended = [chat(f"{words(1, 1500)}\n1000 is the number.", "Hi", model="gpt-4o") for _ in range(10)]
    found, best = served_by_their_own(broken), tokens_of(served_by_their_own(mended))[Reason.HIT]
    possible = tokens_of(found).get(Reason.HIT, 0) + sum(row.avoidable for row in found.rows())
    assert best == possible
    assert 0 == possible % 128


def test_a_fix_after_which_another_break_comes_gives_only_what_the_cache_serves() -> None:
    def body(n: int, length: int) -> dict[str, Any]:
        tools = [
            {"type": "function", "function": {"name": f"tool_{tool}", "description": words(tool, length)}}
            for tool in random.Random(n).sample(range(4), 4)
        ]
        return chat(f"Now: 2026-11-{n:02}T10:00:00Z\n{words(1, 1500)}", "Hi", model="gpt-4o", tools=tools)

    short, long = (served_by_their_own(body(n, length) for n in range(1, 6)).breaks() for length in (100, 600))
    gains = [{each.cause: each.gain_tokens for each in breaks}["tool_order"] for breaks in (short, long)]
    assert 0 == gains[0]  # all tools are shorter than the minimum of 1,024
    assert 4 * 1024 <= gains[1]


def test_breaks_come_by_what_mending_them_gives_back() -> None:
    short = [chat(f"Now: 2026-11-{day:02}T10:00:00Z\n{words(1, 900)}", "Hi", model="gpt-4o") for day in range(1, 25)]
    long = [chat(f"Now: 2026-11-{day:02}T10:00:00Z\n{words(2, 2000)}", "Hi", model="gpt-4") for day in (1, 2)]
    attribution = served_by_their_own([*short, *(dict(body, tool_choice="none") for body in long)])
    breaks = attribution.breaks()
    assert [each.gain_tokens for each in breaks] == sorted((each.gain_tokens for each in breaks), reverse=True)


def test_one_space_more_loses_all_behind_it_whatever_counts() -> None:
    for model in ("gpt-4o", "claude-sonnet-4-5", "my-model"):
        rules = words(1, 700)
        attribution = attributed(
            record(chat(text, "Hi", model=model)) for text in (rules, rules[:40] + " " + rules[40:])
        )
        found = only_break(attribution)
        assert ("whitespace", "messages[0]") == (found.cause, found.path)
        assert 0.75 * attribution.input_tokens / 2 < found.tokens


def test_a_reminder_that_moves_is_one_break_in_every_conversation() -> None:
    reminder = "<reminder>Always answer in the house style, and never forget to cite the sources given.</reminder>"

    def body(session: int, turn: int) -> dict[str, Any]:
        texts = [words(1000 * session + n, 60) for n in range(2 * turn + 1)]
        return chat(RULES, *texts[:-1], f"{texts[-1]}\n{reminder}")

    records = [
        record(body(session, turn), 10 * turn + session, session=str(session))
        for turn in range(6)
        for session in range(4)
    ]
    attribution = attributed(records)
    found = only_break(attribution)
    assert ("moved_block", 20) == (found.cause, found.requests)


def test_of_two_changes_each_request_shows_the_first() -> None:
    tools = [{"type": "function", "function": {"name": f"tool_{n}", "description": words(n, 60)}} for n in range(2)]
    bodies = [
        chat(f"Now: 2026-11-{n:02}T10:00:00Z\n{RULES}", f"Question {n}?", tools=tools[:: 1 if n % 2 else -1])
        for n in range(1, 13)
    ]
    attribution = attributed(record(body, line) for line, body in enumerate(bodies, 1))
    causes = {each.cause: (each.path, each.requests) for each in attribution.breaks()}
    assert {"tool_order": ("tools[*]", 1), "clock": ("messages[0]", 10)} == causes


def traced(parts: list[tuple[int, int]], **fields: Any) -> Record:
    """A prompt of parts, each an id and a length."""
    ids = [part for part, length in parts for _ in range(length)]
    ends = tuple(sum(length for _, length in parts[: n + 1]) for n in range(len(parts)))
    return Record(TracedPrompt(pack(ids), 1, len(ids), ends, **fields), Place("trace", 1))


def test_parts_of_a_trace_that_come_behind_another_beginning() -> None:
    prompts = [[(1, 500), (2, 300), (3, 200)], [(1, 500), (3, 200), (2, 300), (4, 50)]]
    attribution = attributed(traced(parts, names_content=True) for parts in prompts)
    assert {
        Reason.HIT: 500,
        Reason.COLD: 1050,
        Reason.CHANGED_PREFIX: 500,
        Reason.UNEXPLAINED: 0,
    } == tokens_of(attribution)
    assert 0 == sum(row.avoidable for row in attribution.rows())


def test_ids_that_only_tell_beginnings_apart_say_nothing_of_content() -> None:
    prompts = [[(1, 500), (2, 300), (3, 200)], [(1, 500), (5, 1), (2, 299), (3, 200)]]
    assert Reason.CHANGED_PREFIX not in tokens_of(attributed(map(traced, prompts)))


CASES = sorted((DATA / "breaks").glob("*.json"))


@pytest.mark.skipif(not CASES, reason="needs ../shared/data/breaks")
@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_cases_of_the_shared_data(file: Path) -> None:
    case = json.loads(file.read_text())
    dialect = Dialect(case["dialect"])
    attribution, encoder = Attribution(), Encoder()
    for line, time in enumerate((0.0, case["gap_seconds"]), 1):
        request = encoder.encode(record(case[("before", "after")[line - 1]], line, time=time, dialect=dialect))
        own = attribution.history.look(request).own
        is_alive = case["expect"]["cause"] != "expired"
        attribution.add(request, Served(own if is_alive else 0, otherwise=Reason.EXPIRED))
    causes = [each.cause for each in attribution.breaks()]
    assert ([] if case["expect"]["cause"] == "none" else [case["expect"]["cause"]]) == causes
    if case["expect"]["path"] and case["expect"]["path"].startswith(("system", "tools", "model")):
        expected = "tools[*]" if case["id"] == "tool_order" else case["expect"]["path"]
        assert expected == attribution.breaks()[0].path


# --- sums, on anything


def noisy(request: Request, own: int, rng: random.Random) -> Served:
    """What some cache or other might say, true or not."""
    hit = rng.randint(0, own + 40)
    stops = sorted(rng.randint(0, request.tokens + 50) for _ in range(rng.randint(0, 3)))
    reasons = [reason for reason in Reason if reason is not Reason.HIT]
    return Served(hit, lost=tuple(Loss(rng.choice(reasons), s) for s in stops), otherwise=rng.choice(reasons))


def sums(requests: Iterable[Request], seed: int) -> None:
    rng, attribution, tokens = random.Random(seed), Attribution(History(capacity=20_000)), 0
    for request in requests:
        attribution.add(request, noisy(request, attribution.history.look(request).own, rng))
        tokens += request.tokens
        assert all(row.tokens >= 0 for row in attribution.rows()[:3])
    rows = attribution.rows()
    assert tokens == sum(row.tokens for row in rows)
    assert all(row.tokens > 0 or row.reason is Reason.UNEXPLAINED for row in rows)
    assert sorted(rows, key=lambda row: list(Reason).index(row.reason)) == rows
    assert all(0 <= each.gain_tokens <= each.tokens for each in attribution.breaks())


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_sums_on_an_adversarial_mix(seed: int) -> None:
    rng = random.Random(seed)
    pieces = [f"{rng.getrandbits(40):x} {POLICY[: rng.randint(0, 400)]}" for _ in range(6)]

    def records() -> Iterator[Record]:
        for line in range(1, 40):
            fields = {"tenant": rng.choice("xyz"), "time": rng.random() * 100, "replica": rng.choice("12")}
            if rng.random() < 0.2:
                ids = pack(rng.choices(range(5), k=rng.randint(0, 9)))
                unit = rng.choice([1, 16])
                yield Record(Blocks(ids, unit, len(ids) // 4 * unit + unit - 1), Place("x", line), **fields)
                continue
            body = chat(*rng.choices(pieces, k=rng.randint(1, 5)), model=rng.choice(["gpt-4o", "claude-3"]))
            yield record(body, line, dialect=rng.choice([Dialect.OPENAI, None]), **fields)

    encoder = Encoder(isolate_tenants=rng.random() < 0.5)
    sums(map(encoder.encode, records()), seed)


TRACES = {
    "mooncake/conversation_trace.jsonl": 0.36,
    "claude_code/sessions_even.jsonl.gz": 0.9,
    "ragpulse": 0.3,
    "tau_bench": 0.9,
    "swe_agent": 0.8,
}
"""With the least share of an unlimited cache's hits."""


@pytest.mark.parametrize("name", TRACES)
def test_sums_on_traces(name: str) -> None:
    source = DATA / "traces" / name
    if not source.exists():
        pytest.skip("needs ../shared/data/traces")
    with closing(open_log([str(source)], lenient=True)) as log:
        requests = list(map(Encoder().encode, islice(log, 12_031 if "mooncake" in name else 2_500)))
    attribution = Attribution()
    tokens = everything(attribution, requests)
    assert tokens == attribution.input_tokens == sum(row.tokens for row in attribution.rows())
    assert tokens_of(attribution)[Reason.HIT] >= TRACES[name] * tokens
    sums(requests[:1_000], 1)
