"""What a request continues, and what only looks like it."""

import json

import pytest

from prefold.clients.conversations import Conversations, Relation, Sent, are_alike, phrases_of, relation_of
from prefold.prompts.prompt import Dialect, Prompt

RULES = "\n".join(f"Rule {number}: check item {number} before you answer." for number in range(50))
CHINESE = "。".join(f"规则{number}：回答之前请先查看手册第{number}条" for number in range(50))
PLAN = "\n".join(f"Step {number}: split task {number} into parts." for number in range(50))


def sent(system, *words, label="", at=0.0):
    """A request whose messages are those of user and assistant in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(words)]
    body = json.dumps({"model": "claude-opus-5", "max_tokens": 1, "system": system, "messages": messages})
    return Sent(label, Prompt.parse(body, Dialect.ANTHROPIC), at, len(body))


def followed(*requests):
    """What the last of some requests follows: the number of the earlier one, and how."""
    conversations = Conversations()
    for request in requests[:-1]:
        conversations.follow(request)
    found = conversations.follow(requests[-1])
    return found and (requests.index(found.before), found.relation)


def test_growth():
    assert (0, Relation.CONTINUES) == followed(sent(RULES, "a"), sent(RULES, "a", "b", "c"))
    assert (0, Relation.CONTINUES) == followed(sent(RULES, "a"), sent(RULES, "a"))


def test_another_question_to_the_same_assistant():
    assert (0, Relation.ASKS_ANEW) == followed(sent(RULES, "a"), sent(RULES, "x"))
    assert (0, Relation.ASKS_ANEW) == followed(sent(RULES, "a", "b", "c"), sent(RULES, "x"))
    assert (0, Relation.ASKS_ANEW) == followed(sent(RULES, "a", "b", "c"), sent(RULES, "x", "y", "z"))


def test_another_question_after_the_same_examples():
    few_shot = ("example", "its answer")
    grown = sent(RULES, *few_shot, "a", "b", "c")
    assert (0, Relation.ASKS_ANEW) == followed(grown, sent(RULES, *few_shot, "x"))
    assert (0, Relation.ASKS_ANEW) == followed(grown, sent(RULES, *few_shot, "x", "y", "z"))


def test_going_back_to_an_earlier_point():
    assert (0, Relation.ASKS_ANEW) == followed(sent(RULES, "a", "b", "c"), sent(RULES, "a"))
    assert (0, Relation.ASKS_ANEW) == followed(sent(RULES, "a", "b", "c"), sent(RULES, "a", "b", "another"))


@pytest.mark.parametrize("rules", [RULES, CHINESE])
def test_changed_rules(rules):
    clock = [f"Now: 2026-11-01 10:0{minute}\n{rules}\nYou speak with user {minute}." for minute in range(2)]
    assert (0, Relation.CONTINUES) == followed(sent(clock[0], "a"), sent(clock[1], "a", "b", "c"))
    assert (0, Relation.ASKS_ANEW) == followed(sent(clock[0], "a"), sent(clock[1], "x"))


def test_the_same_first_words_to_changed_rules_are_another_conversation():
    named = [f"{RULES}\nYou speak with {name}." for name in ("Ann", "Ben")]
    assert (0, Relation.ASKS_ANEW) == followed(sent(named[0], "Hi"), sent(named[1], "Hi"))
    assert (1, Relation.CONTINUES) == followed(
        sent(named[0], "Hi"), sent(named[1], "Hi"), sent(named[1], "Hi", "b", "c")
    )


def test_changed_history():
    assert (0, Relation.CONTINUES) == followed(
        sent(RULES, "a", "b", "c", "d", "e"), sent(RULES, "c", "d", "e", "f", "g")
    )
    assert (0, Relation.CONTINUES) == followed(
        sent(RULES, "a", "b", "c"), sent(RULES, "A summary.", "d", "c", "e", "f")
    )


def test_a_reminder_that_was_taken_out_of_the_question_again():
    question = "Where is my parcel? It was sent on Monday. I am waiting for it."
    before = sent(RULES, f"{question}\nReminder: be kind.")
    assert (0, Relation.CONTINUES) == followed(before, sent(RULES, question, "b", "And now?\nReminder: be kind."))


def test_another_assistant():
    assert followed(sent(RULES, "a"), sent(PLAN, "a")) is None
    assert followed(sent(RULES, "a"), sent("", "a")) is None
    assert followed(sent(RULES, "a", label="one"), sent(RULES, "a", label="two")) is None


def test_an_assistant_is_found_again_behind_another_that_got_the_same_message():
    assert (0, Relation.ASKS_ANEW) == followed(sent(PLAN, "a"), sent(RULES, "x"), sent(PLAN, "x"))


def test_the_own_past_comes_before_the_longest_common_prefix():
    clock = [f"Now: 10:0{minute}\n{RULES}" for minute in range(2)]
    own = sent(clock[0], "a", "b", "c")
    other = sent(clock[1], "x")
    assert (0, Relation.CONTINUES) == followed(own, other, sent(clock[1], "a", "b", "c", "d", "e"))


def test_conversations_side_by_side():
    first, second = sent(RULES, "a"), sent(RULES, "x")
    assert (0, Relation.CONTINUES) == followed(first, second, sent(RULES, "a", "b", "c"))
    assert (1, Relation.CONTINUES) == followed(first, second, sent(RULES, "x", "y", "z"))


def test_a_continued_request_is_replaced():
    conversations = Conversations(capacity=2)
    first, other = sent(RULES, "a"), sent(RULES, "x")
    conversations.follow(first)
    conversations.follow(other)
    grown = sent(RULES, "a", "b", "c")
    assert first is conversations.follow(grown).before
    assert other is conversations.follow(sent(RULES, "x", "y", "z")).before
    assert grown is conversations.follow(sent(RULES, "a", "b", "c", "d", "e")).before


def test_memory_is_bounded():
    size = sent(RULES, "question 0").size
    conversations = Conversations(capacity=100, capacity_size=3 * size)
    first = sent(RULES, "question 0")
    for number in range(4):
        conversations.follow(sent(RULES, f"question {number}"))
    assert "question 3" == conversations.follow(first).before.prompt.segments[-1].text
    conversations = Conversations(capacity_size=size)
    conversations.follow(sent(RULES, "question 0" * 10))
    assert conversations.follow(first) is None


def test_many_assistants_are_forgotten():
    conversations = Conversations(capacity=4)
    for number in range(10):
        text = " ".join(f"{number}{word}" for word in range(20))
        assert conversations.follow(sent(text, "a")) is None
    assert conversations.follow(sent(" ".join(f"0{word}" for word in range(20)), "a")) is None


def test_likeness():
    assert are_alike(phrases_of(""), phrases_of(""))
    assert not are_alike(phrases_of("a"), phrases_of(""))
    assert are_alike(phrases_of("a. b. c"), phrases_of("x. b. c"))
    assert not are_alike(phrases_of("a. b. c"), phrases_of("x. y. c"))


def test_requests_without_messages_and_plain_prompts():
    plain = [Sent("", Prompt.parse(text), 0.0, len(text)) for text in ("Translate: one", "Translate: two")]
    assert Relation.ASKS_ANEW is relation_of(*plain)
    assert (0, Relation.ASKS_ANEW) == followed(*plain)
