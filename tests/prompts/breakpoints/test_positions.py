"""Positions: segments, but for runs of tool calls and of their results."""

import json
from typing import Any

import pytest

from prefold.prompts.breakpoints.positions import positions_of
from prefold.prompts.prompt import Prompt
from prefold.providers.rules import rules_for

CLAUDE, BEDROCK = rules_for("claude-sonnet-4-5"), rules_for("us.anthropic.claude-sonnet-4-5")


def positions(body: dict[str, Any], rules=CLAUDE) -> tuple[int, ...]:
    assert rules is not None
    return positions_of(Prompt.parse(json.dumps({"model": "m", **body})).segments, rules)


def use(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "f", "input": {}}


def result(name: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": "ok"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_each_run_is_one_and_each_other_block_too() -> None:
    body = {
        "system": "s",
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [text("a"), use("1"), use("2"), text("b"), use("3")]},
            {"role": "user", "content": [result("1"), result("2"), result("3"), text("c"), text("d")]},
        ],
    }
    assert (1, 2, 3, 4, 4, 5, 6, 7, 7, 7, 8, 9) == positions(body)
    assert tuple(range(1, 13)) == positions(body, BEDROCK)


@pytest.mark.parametrize(
    ("items", "numbers"),
    [
        (
            [
                {"role": "user", "content": "q"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": str(number), "type": "function", "function": {"name": "f", "arguments": "{}"}}
                        for number in range(3)
                    ],
                },
                *({"role": "tool", "content": str(number)} for number in range(3)),
            ],
            (1, 2, 2, 2, 3, 3, 3),
        ),
        ([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], (1, 2)),
    ],
)
def test_the_same_for_a_log_of_another_dialect(items: list[dict[str, Any]], numbers: tuple[int, ...]) -> None:
    assert numbers == positions({"messages": items})


def test_a_tool_definition_is_no_call() -> None:
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in "ab"]
    assert (1, 2, 3) == positions({"tools": tools, "messages": [{"role": "user", "content": "q"}]})
