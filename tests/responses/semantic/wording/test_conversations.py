"""Conversations: whether the last turn depends on what was said before."""

import pytest

from prefold.responses.semantic.wording.conversations import histories_agree, history, stands_alone
from prefold.responses.semantic.wording.facts import facts


def conversation(*turns: str) -> list[tuple[str, str]]:
    return [("assistant" if number % 2 else "user", text) for number, text in enumerate(turns)]


@pytest.mark.parametrize(
    "text",
    [
        "Is the Camden branch open on Christmas Day?",
        "ok thanks. What's the cooling-off period for a new broadband contract?",
        "How many screens can stream at the same time on the Family plan?",
    ],
)
def test_a_turn_that_names_what_it_is_about_stands_alone(text: str) -> None:
    assert stands_alone(facts(text))


@pytest.mark.parametrize(
    "text",
    [
        "cancel it",
        "yes please",
        "and with the TV add-on?",
        "what does my plan cost per month?",
        "the second one",
        "how much?",
        "",
    ],
)
def test_a_turn_that_points_at_another_does_not(text: str) -> None:
    assert not stands_alone(facts(text))


A = conversation("I want to cancel my gym membership", "Cancellations need one month's notice.", "how do I do that?")
GREETED = conversation(
    "Hi, hope you're well! I want to cancel my gym membership",
    "Cancellations need one month's notice.",
    "how do I do that?",
)
ELSEWHERE = conversation(
    "I want to cancel my car insurance", "Cancellations need one month's notice.", "how do I do that?"
)
OFFERED = conversation("I want to cancel my gym membership", "I can freeze it for £5 instead.", "how do I do that?")


@pytest.mark.parametrize(("other", "agrees"), [(A, True), (GREETED, True), (ELSEWHERE, False), (OFFERED, False)])
def test_a_turn_that_depends_on_others_needs_them_all(other: list[tuple[str, str]], agrees: bool) -> None:
    assert agrees is histories_agree(history(A), history(other))
    assert agrees is histories_agree(history(other), history(A))


def test_a_negation_in_between_is_a_difference() -> None:
    denied = conversation(
        "I don't want to cancel my gym membership", "Cancellations need one month's notice.", "how do I do that?"
    )
    assert not histories_agree(history(A), history(denied))


def test_histories_do_not_matter_to_turns_that_stand_alone() -> None:
    last = "Is the Camden branch open on Christmas Day?"
    assert histories_agree(history([*A[:2], ("user", last)]), history([*ELSEWHERE[:2], ("user", last)]))
    assert histories_agree(history([("user", last)]), history([*A[:2], ("user", last)]))
