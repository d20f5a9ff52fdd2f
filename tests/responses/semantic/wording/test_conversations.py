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


TOLD = conversation(
    "I'm 6 months into an 18 month Nimbus broadband contract at £30 a month",
    "Thanks. What would you like to know about it?",
    "how much would it cost to leave now?",
)
REWORDED = conversation(
    "My Nimbus broadband is £30/month on an 18 month contract, and I'm six months in",
    "Got it, how can I help?",
    "What would it cost me to leave now?",
)


def agree(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> bool:
    both = histories_agree(history(one), history(other))
    assert both is histories_agree(history(other), history(one))
    return both


def test_a_history_may_be_told_in_other_words() -> None:
    assert agree(TOLD, REWORDED)


@pytest.mark.parametrize(
    ("said", "instead"), [("£30", "£45"), ("six months", "two months"), ("Nimbus", "Orbit"), ("18 month", "30 month")]
)
def test_a_history_with_facts_of_its_own_is_another_one(said: str, instead: str) -> None:
    other = [(role, text.replace(said, instead)) for role, text in REWORDED]
    assert REWORDED != other
    assert not agree(TOLD, other)
    assert not agree(REWORDED, other)


def asked_and_told(question: str, reply: str, last: str = "so how long will it take?") -> list[tuple[str, str]]:
    return conversation("I want to paint my kitchen door this weekend", question, reply, "Noted.", last)


@pytest.mark.parametrize(
    ("reply", "other", "agrees"),
    [
        ("gloss please", "gloss please", True),
        ("gloss please", "gloss please, the neighbours say it looks lovely", True),
        ("gloss please", "matt please", False),
        ("yes please", "no thanks", False),
        ("I would", "I wouldn't", False),
    ],
)
def test_replies_to_one_question_have_to_be_one(reply: str, other: str, agrees: bool) -> None:
    question = "Would you like me to order the gloss or the matt paint for the door?"
    assert agrees is agree(asked_and_told(question, reply), asked_and_told(question, other))


@pytest.mark.parametrize("last", ["yes please", "the second one", "how much is the first one?", "which option is it?"])
def test_what_agrees_or_picks_is_never_answered_from_elsewhere(last: str) -> None:
    assert not agree(asked_and_told("Gloss or matt?", "gloss", last), asked_and_told("Gloss or matt?", "gloss", last))


def test_what_was_said_last_counts() -> None:
    frozen = ("Can I freeze my gym membership?", "Yes, freezing the membership starts next Monday.")
    guest = ("Can I bring a guest to the swimming pool?", "Yes, guests need a printed swimming pass.")
    last = "how do I do that?"
    assert agree(conversation(*frozen, *guest, last), conversation("Hello!", "Hi!", *frozen, *guest, last))
    filler = ("Is there parking nearby?", "Yes, cars park behind the library building.")
    one = conversation(*frozen, *filler, *filler, *guest, last)
    other = conversation(*guest, *filler, *filler, *frozen, last)
    assert not agree(one, other)


def test_a_negation_in_between_is_a_difference() -> None:
    denied = conversation(
        "I don't want to cancel my gym membership", "Cancellations need one month's notice.", "how do I do that?"
    )
    assert not histories_agree(history(A), history(denied))


def test_histories_do_not_matter_to_turns_that_stand_alone() -> None:
    last = "Is the Camden branch open on Christmas Day?"
    assert histories_agree(history([*A[:2], ("user", last)]), history([*ELSEWHERE[:2], ("user", last)]))
    assert histories_agree(history([("user", last)]), history([*A[:2], ("user", last)]))
