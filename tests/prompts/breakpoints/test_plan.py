"""Breakpoint planner: each provider's rules in what it proposes, and properties that hold for any request."""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.errors import UsageError
from prefold.prompts.breakpoints.plan import Change, Plan, Traffic, plan_breakpoints, rules_to_plan
from prefold.prompts.prompt import Dialect, Prompt
from prefold.providers.rules import CacheRules, Control, rules_for

RULES = "You are a careful agent. Check the handbook before you answer. " * 300
TOOLS = [{"name": "search", "description": "Finds things. " * 600, "input_schema": {"type": "object"}}]
CLAUDE = "claude-sonnet-4-5"
ON_BEDROCK = "us.anthropic.claude-sonnet-4-5"


class Words:
    """Counts words, so that expected numbers can be seen in the test."""

    name = "words"
    is_exact = True

    def count(self, text: str) -> int:
        return len(text.split())

    def encode(self, text: str) -> list[int]:
        return list(range(self.count(text)))


def known(model: str, control: Control | None = None) -> CacheRules:
    rules = rules_for(model, control=control)
    assert rules is not None
    return rules


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def planned(body: Mapping[str, Any], rules: CacheRules | None = None, **options: Any) -> tuple[Prompt, Plan]:
    prompt = Prompt.parse(json.dumps(body))
    return prompt, plan_breakpoints(prompt, rules or known(prompt.model), counter=Words(), **options)


def places(plan: Plan) -> list[tuple[str, int]]:
    return [(str(marker.path), marker.ttl) for marker in plan.markers]


# ---------------------------------------------------------------------------------------------------------- Anthropic


def test_marks_the_ends_of_what_repeats() -> None:
    body = {"model": CLAUDE, "tools": TOOLS, "system": RULES, "messages": [user("a"), assistant("b"), user("c")]}
    prompt, plan = planned(body)
    assert [("tools[0]", 300), ("system", 300), ("messages[2]", 300)] == places(plan)
    assert plan.pays
    patched = json.loads(plan.apply(prompt).render())
    mark = {"type": "ephemeral"}
    assert [{**TOOLS[0], "cache_control": mark}] == patched["tools"]
    assert [{"type": "text", "text": RULES, "cache_control": mark}] == patched["system"]
    assert [user("a"), assistant("b"), user([{"type": "text", "text": "c", "cache_control": mark}])] == patched[
        "messages"
    ]


def test_a_question_asked_once_is_not_marked() -> None:
    _, plan = planned({"model": CLAUDE, "system": RULES, "messages": [user("What is new?")]})
    assert [("system", 300)] == places(plan)


def test_the_first_turn_of_a_conversation_is_marked_when_told() -> None:
    _, plan = planned({"model": CLAUDE, "system": RULES, "messages": [user("What is new?")]}, is_conversation=True)
    assert [("system", 300), ("messages[0]", 300)] == places(plan)


@pytest.mark.parametrize(("model", "is_marked"), [("claude-opus-5", True), (CLAUDE, True), ("claude-opus-4-5", False)])
def test_nothing_below_the_minimum(model: str, is_marked: bool) -> None:
    _, plan = planned({"model": model, "system": "word " * 2000, "messages": [user("hi")]})
    assert is_marked is plan.pays is bool(plan.markers)
    assert is_marked is not any("minimum of 4,096" in note for note in plan.notes)


def test_places_below_the_minimum_are_named() -> None:
    body = {"model": CLAUDE, "tools": [{"name": "a", "input_schema": {}}], "system": RULES, "messages": [user("hi")]}
    _, plan = planned(body, is_conversation=False)
    assert [("system", 300)] == places(plan)
    assert any(note.startswith("tools[0] is not marked") for note in plan.notes)


@pytest.mark.parametrize(
    ("traffic", "ttl"),
    [
        (Traffic(1, 300), 300),  # one read pays for five minutes
        (Traffic(200, 3600), 300),  # nearly each renews it
        (Traffic(12, 3600), 3600),  # of reads that come every five minutes at random, a third comes too late
        (Traffic(2, 3600), 3600),  # two reads pay for an hour
        (Traffic(1, 3600), None),
        (Traffic(0, 3600), None),
    ],
)
def test_lifetime_by_expected_reads(traffic: Traffic, ttl: int | None) -> None:
    _, plan = planned({"model": CLAUDE, "system": RULES, "messages": [user("hi")]}, traffic=traffic)
    assert ([] if ttl is None else [("system", ttl)]) == places(plan)
    assert (ttl is not None) is plan.pays


def test_break_even_comes_from_the_multipliers() -> None:
    body = {"model": CLAUDE, "system": RULES, "messages": [user("hi")]}
    _, plan = planned(body, traffic=Traffic(3, 300))
    assert [(300, 1.25, 1), (3600, 2.0, 2)] == [(row.ttl, row.write_multiplier, row.reads) for row in plan.break_even]
    # Of three reads in five minutes, 1 - exp(-3) come in time; the others write the entry again.
    assert [(2.48, 0.4304), (3.0, 0.575)] == [(row.expected_reads, row.relative_cost) for row in plan.break_even]
    _, cheap = planned(openai("gpt-5.6-sol", user("hi")))
    assert [1] == [row.reads for row in cheap.break_even]
    _, never = planned({"model": "gpt-5.2-pro", "messages": [{"role": "system", "content": RULES}, user("hi")]})
    assert [None] == [row.reads for row in never.break_even]
    assert not never.pays


def test_the_longer_lifetime_comes_first() -> None:
    body = {"model": CLAUDE, "system": RULES, "messages": [user("a"), assistant("b"), user("c")]}
    _, mixed = planned(body, traffic=Traffic(4, 3600))
    assert [("system", 3600), ("messages[2]", 300)] == places(mixed)
    _, lifted = planned(body, traffic=Traffic(200, 3600), turn_seconds=900)
    assert [("system", 3600), ("messages[2]", 3600)] == places(lifted)


@pytest.mark.parametrize(("texts", "is_marked"), [(18, False), (19, True), (40, True)])
def test_a_turn_beyond_the_lookback(texts: int, is_marked: bool) -> None:
    said = [{"type": "text", "text": f"step {number}"} for number in range(texts)]
    body = {"model": CLAUDE, "tools": TOOLS, "system": RULES, "messages": [user("a"), assistant(said), user("b")]}
    _, plan = planned(body)
    assert is_marked is (("messages[0]", 300) in places(plan))
    assert is_marked is any(f"adds {texts + 1} positions and a read checks 20" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("model", "calls", "is_marked"), [(CLAUDE, 40, False), (ON_BEDROCK, 9, False), (ON_BEDROCK, 10, True)]
)
def test_a_run_of_tool_calls_is_one_position_on_the_claude_api(model: str, calls: int, is_marked: bool) -> None:
    uses = [{"type": "tool_use", "id": str(number), "name": "search", "input": {}} for number in range(calls)]
    results = [{"type": "tool_result", "tool_use_id": str(number), "content": "ok"} for number in range(calls)]
    body = {"model": model, "tools": TOOLS, "system": RULES, "messages": [user("a"), assistant(uses), user(results)]}
    _, plan = planned(body)
    assert is_marked is (("messages[0]", 300) in places(plan))


@pytest.mark.parametrize(
    "text",
    [
        "The current time is 2026-11-30T10:15:00Z.",
        "当前时间：2026年11月30日 10:15:00",
        "x-billing: cch=1a2b3;",
        "Request id: 3f2b8c1e-9d4a-4b7e-8c1d-2a5f6e7b8c9d",
        "请求ID：3f2b8c1e-9d4a-4b7e-8c1d-2a5f6e7b8c9d",
        "リクエストID: 3f2b8c1e-9d4a-4b7e-8c1d-2a5f6e7b8c9d",
    ],
)
def test_a_clock_in_front_spoils_everything(text: str) -> None:
    blocks = [{"type": "text", "text": text}, {"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}]
    prompt, plan = planned({"model": CLAUDE, "system": blocks, "messages": [user("a"), assistant("b"), user("c")]})
    assert [] == places(plan)
    assert not plan.pays
    assert ["system[1]"] == [str(removed.path) for removed in plan.removed]
    assert any("system[0] seems to change with each request" in note for note in plan.notes)
    assert b"cache_control" not in plan.apply(prompt).render()


def test_what_stands_before_a_clock_is_marked() -> None:
    blocks = [{"type": "text", "text": RULES}, {"type": "text", "text": "The current time is 2026-11-30T10:15:00Z."}]
    _, plan = planned({"model": CLAUDE, "system": blocks, "messages": [user("a"), assistant("b"), user("c")]})
    assert [("system[0]", 300)] == places(plan)


def test_a_date_of_today_gets_a_marker_before_it() -> None:
    blocks = [{"type": "text", "text": RULES}, {"type": "text", "text": "Today is 2026-11-30."}]
    _, plan = planned({"model": CLAUDE, "system": blocks, "messages": [user("a")]})
    assert [("system[0]", 300), ("system[1]", 300)] == places(plan)


def test_a_reminder_that_never_comes_again_is_passed_over() -> None:
    last = [{"type": "text", "text": "c"}, {"type": "text", "text": "The current time is 2026-11-30T10:15:00Z."}]
    _, plan = planned({"model": CLAUDE, "system": RULES, "messages": [user("a"), assistant("b"), user(last)]})
    assert [("system", 300), ("messages[2].content[0]", 300)] == places(plan)


@pytest.mark.parametrize("label", ["session id", "会话ID", "user id", "用户ID"])
def test_what_a_conversation_keeps_spoils_nothing(label: str) -> None:
    blocks = [
        {"type": "text", "text": f"{label}: 3f2b8c1e-9d4a-4b7e-8c1d-2a5f6e7b8c9d"},
        {"type": "text", "text": RULES},
    ]
    _, plan = planned({"model": CLAUDE, "system": blocks, "messages": [user("a"), assistant("b"), user("c")]})
    assert [("system[1]", 300), ("messages[2]", 300)] == places(plan)


@pytest.mark.parametrize("name", ["query", "now", "request_id"])
def test_a_name_in_braces_is_a_constant_of_a_request(name: str) -> None:
    _, plan = planned({"model": CLAUDE, "system": f"{RULES} Write {{{name}}}.", "messages": [user("a")]})
    assert [("system", 300)] == places(plan)


@pytest.mark.parametrize(
    "content",
    [
        "Now: 2026-11-30T10:15:00Z. Why is the disk full?",
        [{"type": "tool_result", "tool_use_id": "1", "content": "2026-11-30T10:15:00Z ERROR disk full"}],
        [
            {"type": "tool_result", "tool_use_id": "1", "content": "ok"},
            {"type": "tool_result", "tool_use_id": "2", "content": "2026-11-30T10:15:00Z ERROR disk full"},
        ],
    ],
)
def test_what_stays_in_the_history_is_marked_whatever_it_holds(content: Any) -> None:
    _, plan = planned({"model": CLAUDE, "system": RULES, "messages": [user("a"), assistant("b"), user(content)]})
    newest = "messages[2]" if isinstance(content, str) else f"messages[2].content[{len(content) - 1}]"
    assert [("system", 300), (newest, 300)] == places(plan)


@pytest.mark.parametrize("answer", ["{", [{"type": "text", "text": "{", "cache_control": {"type": "ephemeral"}}]])
def test_the_beginning_of_an_answer_is_not_marked(answer: Any) -> None:
    messages = [user("a"), assistant("b"), user("c"), assistant(answer)]
    prompt, plan = planned({"model": CLAUDE, "system": RULES, "messages": messages})
    assert [("system", 300), ("messages[2]", 300)] == places(plan)
    assert {"the block never comes again"} >= {removed.reason for removed in plan.removed}
    assert b'"{", "cache_control"' not in plan.apply(prompt).render()


def test_the_beginning_of_an_answer_is_no_history() -> None:
    _, plan = planned({"model": CLAUDE, "system": RULES, "messages": [user("a"), assistant("{")]})
    assert [("system", 300)] == places(plan)


def test_an_automatic_marker_on_the_beginning_of_an_answer_is_no_help() -> None:
    messages = [user("a"), assistant("b"), user("c"), assistant("{")]
    body = {"model": CLAUDE, "cache_control": {"type": "ephemeral"}, "system": RULES, "messages": messages}
    _, plan = planned(body)
    assert [("system", 300), ("messages[2]", 300)] == places(plan)


def test_tools_are_the_sign_of_a_conversation() -> None:
    body = {"model": CLAUDE, "tools": [{"name": "a", "input_schema": {}}], "messages": [user("word " * 13_000)]}
    _, plan = planned(body)
    assert [("messages[0]", 300)] == places(plan)
    assert plan.pays
    _, once = planned(body, is_conversation=False)
    assert [] == places(once)


@pytest.mark.parametrize(
    ("turn_seconds", "ttl"), [(40, 300), (100, 300), (300, 3600), (3600, 3600), (3601, None), (10_800, None)]
)
def test_lifetime_by_the_time_between_turns(turn_seconds: float, ttl: int | None) -> None:
    marked = {"type": "text", "text": "c", "cache_control": {"type": "ephemeral"}}
    body = {"model": CLAUDE, "system": RULES, "messages": [user("a"), assistant("b"), user([marked])]}
    _, plan = planned(body, turn_seconds=turn_seconds)
    assert ([] if ttl is None else [("messages[2].content[0]", ttl)]) == places(plan)[1:]
    assert ([] if ttl else ["no lifetime reaches the next turn"]) == [removed.reason for removed in plan.removed]
    assert (ttl is None) is any(note.startswith("No promised lifetime reaches the next turn") for note in plan.notes)


def test_a_conversation_that_is_forgotten_alone_does_not_pay() -> None:
    turns = [user("word " * 2000), assistant("b"), user("c")]
    _, marked = planned({"model": CLAUDE, "messages": turns}, turn_seconds=10_800)
    assert ([], False) == (places(marked), marked.pays)
    _, implicit = planned({"model": "gpt-4o", "messages": turns}, turn_seconds=10_800)
    assert not implicit.pays
    _, breakpoint_ = planned({"model": "gpt-5.6-sol", "messages": turns}, turn_seconds=10_800)
    assert {"prompt_cache_options": {"mode": "explicit"}} == breakpoint_.parameters
    automatic = {"model": CLAUDE, "cache_control": {"type": "ephemeral"}, "messages": turns}
    assert any("only costs" in note for note in planned(automatic, turn_seconds=10_800)[1].notes)


def test_markers_of_the_user_are_kept_or_accounted_for() -> None:
    marked = {"type": "text", "text": "document", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    spoiled = {
        "type": "text",
        "text": "The current time is 2026-11-30T10:15:00Z.",
        "cache_control": {"type": "ephemeral"},
    }
    messages = [user([marked]), assistant("b"), user([{"type": "text", "text": "c"}, spoiled])]
    prompt, plan = planned({"model": CLAUDE, "system": RULES, "messages": messages})
    assert [
        ("system", 3600, Change.ADD),
        ("messages[0].content[0]", 3600, Change.KEEP),
        ("messages[2].content[0]", 300, Change.ADD),
    ] == [(str(marker.path), marker.ttl, marker.change) for marker in plan.markers]
    assert [("messages[2].content[1]", "the block never comes again")] == [
        (str(removed.path), removed.reason) for removed in plan.removed
    ]
    assert marked == json.loads(plan.apply(prompt).render())["messages"][0]["content"][0]


def test_too_many_markers_of_the_user() -> None:
    blocks = [{"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}} for _ in range(7)]
    _, plan = planned({"model": CLAUDE, "system": blocks, "messages": [user("a"), assistant("b"), user("c")]})
    assert 4 == len(plan.markers)
    assert {"system[6]", "messages[2]"} <= {str(marker.path) for marker in plan.markers}
    assert {"no more than 4 breakpoints are allowed"} == {removed.reason for removed in plan.removed}


def test_automatic_caching_takes_one_breakpoint() -> None:
    blocks = [{"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}} for _ in range(7)]
    body = {"model": CLAUDE, "cache_control": {"type": "ephemeral"}, "system": blocks, "messages": [user("a")]}
    _, plan = planned(body)
    assert 3 == len(plan.markers)
    assert all(str(marker.path).startswith("system") for marker in plan.markers)


def test_thinking_and_deferred_tools_carry_no_marker() -> None:
    tools = [*TOOLS, {"name": "late", "input_schema": {}, "defer_loading": True}]
    thought = assistant([{"type": "thinking", "thinking": "so", "signature": "s"}])
    _, plan = planned({"model": CLAUDE, "tools": tools, "system": RULES, "messages": [user("a"), thought]})
    assert [("tools[0]", 300), ("system", 300), ("messages[0]", 300)] == places(plan)


# ------------------------------------------------------------------------------------------------------------ Bedrock


def test_bedrock_points_stand_behind_their_blocks() -> None:
    body = {
        "modelId": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "toolConfig": {"tools": [{"toolSpec": {"name": "a", "description": "Finds things. " * 600}}]},
        "system": [{"text": RULES}, {"cachePoint": {"type": "default"}}],
        "messages": [user([{"text": "a"}]), assistant([{"text": "b"}]), user([{"text": "c"}])],
    }
    prompt, plan = planned(body, traffic=Traffic(3, 3600), turn_seconds=30)
    assert Dialect.BEDROCK is prompt.dialect
    patched = json.loads(plan.apply(prompt).render())
    hour = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert [*body["toolConfig"]["tools"], hour] == patched["toolConfig"]["tools"]  # type: ignore[index]
    assert [{"text": RULES}, hour] == patched["system"]
    assert [{"text": "c"}, {"cachePoint": {"type": "default"}}] == patched["messages"][2]["content"]


def test_nova_takes_no_marker_on_tools() -> None:
    body = {
        "modelId": "amazon.nova-pro-v1:0",
        "toolConfig": {"tools": [{"toolSpec": {"name": "a", "description": "Finds things. " * 600}}]},
        "system": [{"text": RULES}],
        "messages": [user([{"text": "a"}])],
    }
    _, plan = planned(body, is_conversation=False)
    assert [("system[0]", 300)] == places(plan)


# ------------------------------------------------------------------------------------------------------------- OpenAI


def openai(model: str, *messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "system", "content": RULES}, *messages], **fields}


def test_before_5_6_there_is_a_key_and_no_marker() -> None:
    prompt, plan = planned(openai("gpt-5.2", user("a")), traffic=Traffic(3, 3600))
    assert [] == places(plan)
    assert {"prompt_cache_key": "prefold-ec6bed1249904356", "prompt_cache_retention": "24h"} == plan.parameters
    _, other = planned(openai("gpt-5.2", user("b")))
    assert plan.parameters["prompt_cache_key"] == other.parameters["prompt_cache_key"]
    _, changed = planned({**openai("gpt-5.2", user("a")), "tools": [{"type": "function", "function": {"name": "f"}}]})
    assert plan.parameters["prompt_cache_key"] != changed.parameters["prompt_cache_key"]
    assert {**prompt.value, **plan.parameters} == json.loads(plan.apply(prompt).render())


@pytest.mark.parametrize(
    ("options", "is_long"),
    [
        ({"traffic": Traffic(200, 3600)}, False),
        ({"traffic": Traffic(12, 3600)}, True),
        ({"turn_seconds": 40}, False),
        ({"turn_seconds": 3600}, True),
        ({"traffic": Traffic(0, 3600)}, False),
    ],
)
def test_a_day_of_retention_where_five_minutes_are_too_short(options: dict[str, Any], is_long: bool) -> None:
    _, plan = planned(openai("gpt-5.2", user("a"), assistant("b"), user("c")), **options)
    assert is_long is ("prompt_cache_retention" in plan.parameters)


def test_a_key_of_the_user_stays_and_a_busy_one_is_named() -> None:
    _, plan = planned(openai("gpt-5.2", user("a"), prompt_cache_key="mine"), traffic=Traffic(2000, 3600))
    assert {"prompt_cache_key": "mine"} == plan.parameters
    assert any("about 900 requests an hour" in note for note in plan.notes)


def test_from_5_6_a_question_asked_once_switches_the_implicit_breakpoint_off() -> None:
    prompt, plan = planned(openai("gpt-5.6-sol", user("a")))
    assert [("messages[0]", 1800)] == places(plan)
    assert {"mode": "explicit"} == plan.parameters["prompt_cache_options"]
    block = json.loads(plan.apply(prompt).render())["messages"][0]["content"][0]
    assert {"type": "text", "text": RULES, "prompt_cache_breakpoint": {"mode": "explicit"}} == block


def test_from_5_6_a_conversation_keeps_the_implicit_breakpoint() -> None:
    _, plan = planned(openai("gpt-5.6-sol", user("a"), assistant("b"), user("c")))
    assert [("messages[0]", 1800)] == places(plan)
    assert "prompt_cache_options" not in plan.parameters


def test_from_5_6_three_explicit_ones_beside_the_implicit_one() -> None:
    part = {"type": "text", "text": RULES, "prompt_cache_breakpoint": {"mode": "explicit"}}
    _, plan = planned(openai("gpt-5.6-sol", user([part] * 6), assistant("b"), user("c")))
    assert 3 == len(plan.markers)


def test_twelve_hours_only_in_the_responses_api() -> None:
    _, chat = planned(openai("gpt-5.6-sol", user("a")), traffic=Traffic(4, 40000))
    assert [] == places(chat)
    body = {"model": "gpt-5.6-sol", "input": [{"role": "developer", "content": RULES}, user("a")]}
    prompt, plan = planned(body, traffic=Traffic(4, 40000))
    assert [("input[0]", 43200)] == places(plan)
    block = json.loads(plan.apply(prompt).render())["input"][0]["content"][0]
    assert ("input_text", {"mode": "explicit", "ttl": "12h"}) == (block["type"], block["prompt_cache_breakpoint"])


def test_instructions_cannot_be_marked() -> None:
    _, plan = planned({"model": "gpt-5.6-sol", "instructions": RULES, "input": "a"})
    assert [] == places(plan)
    assert any("no block up to instructions can carry a marker" in note for note in plan.notes)


# ------------------------------------------------------------------------------------------------------------- others


def test_qwen_markers_stand_on_content_blocks() -> None:
    prompt, plan = planned(openai("qwen-plus", user("a")), known("qwen-plus", Control.EXPLICIT))
    assert [("messages[0]", 300)] == places(plan)
    block = json.loads(plan.apply(prompt).render())["messages"][0]["content"][0]
    assert {"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}} == block


@pytest.mark.parametrize(("reads", "pays"), [(4, False), (5, True)])
def test_gemini_proposes_a_named_cache(reads: float, pays: bool) -> None:
    body = {
        "model": "gemini-2.5-pro",
        "systemInstruction": {"parts": [{"text": RULES * 3}]},
        "tools": [{"functionDeclarations": [{"name": "a"}]}],
        "contents": [{"role": "user", "parts": [{"text": "q"}]}],
    }
    rules = known("gemini-2.5-pro", Control.RESOURCE)
    prompt, plan = planned(body, rules, traffic=Traffic(reads, 3600), input_usd_per_million=1.25)
    assert plan.resource == {
        "model": "models/gemini-2.5-pro",
        "tools": body["tools"],
        "systemInstruction": body["systemInstruction"],
        "ttl": "3600s",
    }
    # 1 to create, 0.1 to read at once, 4.5 / 1.25 to store for an hour.
    assert [(4.7, 5)] == [(row.write_multiplier, row.reads) for row in plan.break_even]
    assert pays is plan.pays
    assert prompt.render() == plan.apply(prompt).render()


@pytest.mark.parametrize("model", ["gpt-5.2", "deepseek-chat"])
@pytest.mark.parametrize("messages", [[user("a")], [user("a"), assistant("b"), user("c")]])
def test_an_implicit_cache_reads_up_to_the_value_that_changes(model: str, messages: list[Any]) -> None:
    system = {"role": "system", "content": RULES + "The current time is 2026-11-30T10:15:00Z. Be kind."}
    _, plan = planned({"model": model, "messages": [system, *messages]})
    assert plan.pays
    # The header of the message is a word, and "The current time is" four more.
    assert len(RULES.split()) + 5 == plan.stable_tokens
    assert any("messages[0] seems to change with each request" in note for note in plan.notes)
    assert (model == "gpt-5.2") is ("prompt_cache_key" in plan.parameters)


def test_the_key_does_not_change_with_the_value() -> None:
    def key(moment: str) -> str:
        system = {"role": "system", "content": f"{RULES}The current time is {moment}."}
        found: str = planned({"model": "gpt-5.2", "messages": [system, user("a")]})[1].parameters["prompt_cache_key"]
        return found

    assert key("2026-11-30T10:15:00Z") == key("2026-12-01T08:00:00Z")


def test_a_value_in_front_spoils_an_implicit_cache_too() -> None:
    system = {"role": "system", "content": "The current time is 2026-11-30T10:15:00Z. " + RULES}
    _, plan = planned({"model": "gpt-5.2", "messages": [system, user("a"), assistant("b"), user("c")]})
    assert ({}, False) == (plan.parameters, plan.pays)
    assert any("the 5 tokens that can be read again before that" in note for note in plan.notes)


def test_deepseek_needs_nothing_and_says_what_governs_hits() -> None:
    prompt, plan = planned(openai("deepseek-chat", user("a")))
    assert plan.pays
    assert ({}, ()) == (plan.parameters, plan.markers)
    assert any("the third is the first to hit" in note for note in plan.notes)
    assert any(note.startswith("Not certain: minimum_tokens") for note in plan.notes)
    assert prompt.render() == plan.apply(prompt).render()


def test_markers_mean_nothing_to_an_implicit_cache() -> None:
    body = {"model": "x", "system": RULES, "messages": [user([{"type": "text", "text": "a", "cache_control": {}}])]}
    engine = rules_for("", "vllm")
    assert engine is not None
    prompt, plan = planned(body, engine)
    assert any("mean nothing here" in note for note in plan.notes)
    assert prompt.render() == plan.apply(prompt).render()


@pytest.mark.parametrize("model", [CLAUDE, "gpt-5.6-sol", "gpt-5.2", "deepseek-chat"])
def test_a_plain_text_can_be_planned(model: str) -> None:
    prompt = Prompt.parse(RULES)
    plan = plan_breakpoints(prompt, known(model), counter=Words())
    assert RULES.encode() == plan.apply(prompt).render()


def test_a_plan_belongs_to_its_prompt() -> None:
    _, plan = planned({"model": CLAUDE, "system": RULES, "messages": [user("a")]})
    other = Prompt.parse(json.dumps({"model": CLAUDE, "messages": [user("a")]}))
    with pytest.raises(LookupError):
        plan.apply(other)


@pytest.mark.parametrize(
    ("model", "provider", "control"),
    [
        (CLAUDE, None, Control.EXPLICIT),
        ("qwen-plus", None, Control.EXPLICIT),
        ("gpt-5.6-sol", None, Control.BREAKPOINT),
        ("gemini-2.5-pro", None, Control.RESOURCE),
        ("gpt-5.2", "azure", Control.IMPLICIT),
        ("unheard-of", None, None),
    ],
)
def test_rules_with_the_most_control(model: str, provider: str | None, control: Control | None) -> None:
    rules = rules_to_plan(model, provider)
    assert control == (rules and rules.control)


def test_rules_of_nobody() -> None:
    with pytest.raises(UsageError, match="'nobody' is not known"):
        rules_to_plan(CLAUDE, "nobody")


# --------------------------------------------------------------------------------------------------------- properties

TEXTS = st.sampled_from(
    ["hi", "word " * 30, "word " * 600, "The current time is 2026-11-30T10:15:00Z.", "Today is 2026-11-30.", "你好"]
)
MARKS = st.sampled_from([None, None, {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}])


@st.composite
def text_blocks(draw: st.DrawFn) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": draw(TEXTS)}
    if (mark := draw(MARKS)) is not None:
        block["cache_control"] = mark
    return block


@st.composite
def anthropic_bodies(draw: st.DrawFn) -> dict[str, Any]:
    body: dict[str, Any] = {"model": CLAUDE, "max_tokens": 5}
    if draw(st.booleans()):
        body["tools"] = [{"name": f"t{at}", "description": draw(TEXTS), "input_schema": {}} for at in range(2)]
    if draw(st.booleans()):
        body["system"] = draw(st.one_of(TEXTS, st.lists(text_blocks(), max_size=4)))
    if draw(st.booleans()):
        body["cache_control"] = {"type": "ephemeral"}
    contents = st.one_of(TEXTS, st.lists(text_blocks(), min_size=1, max_size=24))
    turns = draw(st.lists(contents, min_size=1, max_size=4))
    body["messages"] = [{"role": ("user", "assistant")[at % 2], "content": turn} for at, turn in enumerate(turns)]
    return body


def without_marks(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: without_marks(item) for key, item in value.items() if key != "cache_control"}
    return (
        [without_marks(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
    )


def converted(body: Mapping[str, Any], form: str) -> dict[str, Any]:
    """The same request in another dialect."""
    plain = without_marks(body)
    system = plain.get("system", "rules")
    texts = [system] if isinstance(system, str) else [block["text"] for block in system]
    if form == "bedrock":
        marked = [[{"text": text}, {"cachePoint": {"type": "default"}}] for text in texts]
        messages = [
            {**turn, "content": [{"text": turn["content"]}] if isinstance(turn["content"], str) else
             [{"text": block["text"]} for block in turn["content"]]}
            for turn in plain["messages"]
        ]  # fmt: skip
        return {
            "modelId": "anthropic.claude-sonnet-4-5-20250929-v1:0",
            "system": [entry for pair in marked for entry in pair],
            "messages": messages,
        }
    return {
        "model": form,
        "messages": [*({"role": "system", "content": text} for text in texts), *plain["messages"]],
    }


TRAFFIC = st.sampled_from([None, Traffic(0, 300), Traffic(1, 300), Traffic(3, 3600), Traffic(40, 3600)])


@settings(max_examples=150, deadline=None)
@given(
    body=anthropic_bodies(),
    form=st.sampled_from(["anthropic", "bedrock", "gpt-5.6-sol", "qwen-plus"]),
    traffic=TRAFFIC,
    turn_seconds=st.sampled_from([None, 30.0, 900.0, 100_000.0]),
    is_conversation=st.sampled_from([None, True, False]),
)
def test_properties(
    body: dict[str, Any], form: str, traffic: Traffic | None, turn_seconds: float | None, is_conversation: bool | None
) -> None:
    prompt = Prompt.parse(json.dumps(body if form == "anthropic" else converted(body, form)))
    rules = known(prompt.model, Control.EXPLICIT if form == "qwen-plus" else None)

    def plan_for(request: Prompt) -> Plan:
        return plan_breakpoints(
            request, rules, counter=Words(), traffic=traffic, turn_seconds=turn_seconds, is_conversation=is_conversation
        )

    plan = plan_for(prompt)
    patched = plan.apply(prompt)
    again = plan_for(patched)

    automatic = int("cache_control" in prompt.parameters)
    assert rules.max_breakpoints >= len(plan.markers) + automatic
    roles = {segment.path: segment.role for segment in prompt.segments}
    trailing = [path for path, _ in itertools.takewhile(lambda item: item[1] == "assistant", reversed(roles.items()))]
    assert not set(trailing) & {marker.path for marker in plan.markers}
    if turn_seconds == 100_000:
        assert not [marker for marker in plan.markers if roles[marker.path] in ("user", "assistant")]
    ttls = [marker.ttl for marker in plan.markers]
    assert sorted(ttls, reverse=True) == ttls
    assert all(marker.tokens >= rules.minimum_tokens for marker in plan.markers)
    assert len(plan.markers) == sum(segment.marker is not None for segment in patched.segments)
    assert [segment.text for segment in prompt.segments] == [segment.text for segment in patched.segments]
    assert patched.render() == again.apply(patched).render()
    assert ttls == [marker.ttl for marker in again.markers]
    assert all(marker.change is Change.KEEP for marker in again.markers)
    assert () == again.removed
    assert plan.parameters == again.parameters
    assert plan.pays is again.pays
    assert prompt.render() == plan.apply(prompt).render() or plan.markers or plan.removed or plan.parameters
