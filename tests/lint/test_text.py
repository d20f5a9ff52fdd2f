"""Rules for text: what is reported, with which words and at which cost."""

import pytest

from prefold.lint.findings import Finding, Rule
from prefold.lint.text import TEXT_RULES, lint_text
from prefold.prompts.tokens import counter_for


def lint(text: str) -> list[Finding]:
    return lint_text(text, "prompt.txt", counter_for())


@pytest.mark.parametrize(
    ("rule", "text", "span"),
    [
        ("PF101", "Now: 2026-11-01T10:00:00Z\nYou are", "2026-11-01T10:00:00Z"),
        ("PF101", "今天是2026年11月1日。你是助手。", "2026年11月1日"),
        ("PF102", "ts: 1793527200\nYou are", "1793527200"),
        ("PF103", "Request 3f2b8f1e-0c1d-4a1b-9d7e-1f0a8f6f2b11", "3f2b8f1e-0c1d-4a1b-9d7e-1f0a8f6f2b11"),
        ("PF104", "[run 4bf92f3577b34da6]", "4bf92f3577b34da6"),
        ("PF105", "Session ID: 8842", "8842"),
        ("PF106", "Client IP: 81.2.69.142", "81.2.69.142"),
        ("PF107", "Working directory: /home/alice/shop", "/home/alice"),
        ("PF108", "Tag: 7ZkQ2mXp9LrT4vWb8NsY", "7ZkQ2mXp9LrT4vWb8NsY"),
        ("PF109", "x-anthropic-billing-header: cch=1a2b3;\nYou", "x-anthropic-billing-header: cch=1a2b3;"),
        ("PF110", "Now: {current_time}. You are an agent.", "{current_time}"),
        ("PF110", "{{ request_id | upper }} You are an agent.", "{{ request_id | upper }}"),
        ("PF110", "Today is ${TODAY}. You are an agent.", "${TODAY}"),
        ("PF110", "Current date: {{date}}. You are an agent.", "{{date}}"),
        ("PF110", "It is {{ now() }}. You are an agent.", "{{ now() }}"),
        ("PF110", "Datum: {date}. Du bist ein Agent.", "{date}"),
        ("PF110", "你好，{用户名}。你是助手。", "{用户名}"),
        ("PF110", "Hello %(user_name)s. You are an agent.", "%(user_name)s"),
        ("PF110", "Session <<session_id>>. You are an agent.", "<<session_id>>"),
        ("PF110", "<date>{date}</date> You are an agent.", "{date}"),
        ("PF110", "Date/Time: {now}. You are an agent.", "{now}"),
    ],
)
def test_each_rule_finds_its_value(rule: str, text: str, span: str) -> None:
    assert [(rule, span)] == [(found.rule, text[found.start : found.end]) for found in lint(text)]


@pytest.mark.parametrize(
    "text",
    [
        "You are an agent. The law of 1 January 2024 applies.",
        "Answer {question} about {date_of_birth} with {tools}.",
        "You are an agent.\nNow: {current_time}",
        '{"type": "object"}',
        "GET /v1/conversations/{conversation_id}/items lists the items of a conversation.",
        "Use `GET /users/{user_id}` and POST https://api.example.com/t?session={session_id} for that.",
        "Reports are in reports/{date}.csv and logs/{date}/{hour}.log of the server.",
        "Fill in the template, for example: Today is {date}, {user_name}. Then answer.",
        "Answer as {persona} in {language}, {timezone}, with 100%discount and $5.",
    ],
)
def test_clean_text(text: str) -> None:
    assert [] == lint(text)


@pytest.mark.parametrize("rule", TEXT_RULES, ids=lambda rule: rule.id)
def test_the_examples_of_each_rule_are_true(rule: Rule) -> None:
    assert rule.id in {found.rule for found in lint(rule.before)}
    assert [] == lint(rule.after)


def test_cost_is_what_stands_behind_the_value() -> None:
    early, late = (
        lint(text)[0].lost_tokens for text in ("Now: 10:00:00 Z. " + "word " * 400, "word " * 400 + "Now: 10:00:00 Z.")
    )
    assert early is not None
    assert late is not None
    assert 300 < early < 700
    assert late < 20


def test_a_long_value_is_cut_in_the_message() -> None:
    (found,) = lint(f"x-anthropic-billing-header: {'y' * 300}\n")
    assert len(found.message) < 150
