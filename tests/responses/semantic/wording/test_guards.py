"""Guards: what two questions differ in; and the alignment that they rest on."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.responses.semantic.types import Reason
from prefold.responses.semantic.wording.alignment import align, distance
from prefold.responses.semantic.wording.facts import READ, facts
from prefold.responses.semantic.wording.guards import GUARDS, differences

SCONE = Path(__file__).parents[5] / "shared/data/semantic/scone_nli_test.jsonl"


@pytest.mark.parametrize(
    ("reason", "a", "b"),
    [
        (Reason.LANGUAGE, "How do I pay?", "请问怎么付款"),
        (Reason.NEGATION, "Cancel my order", "Don't cancel my order"),
        (Reason.NEGATION, "Is it refundable?", "Is it non-refundable?"),
        (Reason.NEGATION, "我能退款吗", "我不能退款吗"),
        (Reason.NUMBER, "Can I return it after 14 days?", "Can I return it after 40 days?"),
        (Reason.NUMBER, "Track order 48213", "Track order 48231"),
        (Reason.NUMBER, "10MB upload limit", "10GB upload limit"),
        (Reason.DATE, "Are you open on Saturday?", "Are you open on Sunday?"),
        (Reason.DATE, "周一开门吗", "周二开门吗"),
        (Reason.POLARITY, "How do I enable dark mode?", "How do I disable dark mode?"),
        (Reason.POLARITY, "How do I turn the alarm on?", "How do I turn off the alarm?"),
        (Reason.POLARITY, "How do I mute it?", "How do I unmute it?"),
        (Reason.POLARITY, "如何开启通知", "如何关闭通知"),
        (Reason.ENTITY, "How do I export it to Salesforce?", "How do I export it to HubSpot?"),
        (Reason.ENTITY, "side effects of amoxicillin", "side effects of atorvastatin"),
        (Reason.QUOTE, 'What does "left join" mean?', 'What does "right join" mean?'),
        (Reason.CODE, "What does git reset --hard do?", "What does git reset --soft do?"),
        (Reason.QUESTION_WORD, "When do you deliver?", "Where do you deliver?"),
        (Reason.QUESTION_WORD, "什么时候开门", "在哪里开门"),
        (Reason.OPERAND, "What's the annual fee?", "What's the monthly fee?"),
        (Reason.OPERAND, "Convert Celsius to Fahrenheit", "Convert Fahrenheit to Celsius"),
        (Reason.OPERAND, "Fly from London to Paris", "Fly from Paris to London"),
        (Reason.OPERAND, "vitamin c dose", "zinc dose"),
        (Reason.SCOPE, "What are the symptoms of flu?", "What are the symptoms of flu in babies?"),
        (Reason.SCOPE, "Which plans do you offer?", "Which annual plans do you offer?"),
    ],
)
def test_a_guard_sees_what_it_is_for(reason: Reason, a: str, b: str) -> None:
    assert reason in differences(facts(a), facts(b))
    assert reason in differences(facts(b), facts(a))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("How do I change the email address?", "how do i chnage the email adress"),
        ("What are your delivery options?", "WHAT ARE YOUR DELIVERY OPTIONS?"),
        ("Can I return it after 14 days?", "Can I return it after two weeks?"),
        ("Remind me at 7am", "remind me at seven in the morning"),
        ("How do I merge two cells in a spreadsheet?", "In a spreadsheet, how do I merge two cells?"),
        ("How do I renew my library books?", "What's the best way to renew my library books?"),
        ("Is there a discount for students?", "is there a student discount"),
        ("How do I mute notifications?", "How do I silence notifications?"),
        ("How can I find my web site?", "How can I find my website?"),
        ("Can a 17-year-old drive?", "can a 17 year old drive"),
        ("怎么取消订阅？", "请问如何取消订阅"),
        ("如何修改密码", "怎样更改密码呢"),
        ("", ""),
    ],
)
def test_no_guard_speaks_against_the_same_in_other_words(a: str, b: str) -> None:
    assert () == differences(facts(a), facts(b))


def test_questions_that_differ_beyond_what_is_read_differ_in_an_operand() -> None:
    start = "word " * READ
    assert (Reason.OPERAND,) == differences(facts(f"{start} apples"), facts(f"{start} pears"))


def test_names_are_never_taken_for_slips_of_the_pen() -> None:
    for a, b in (("Austria", "Australia"), ("Mary", "Mark"), ("form", "from"), ("credit", "debit")):
        assert () != differences(facts(f"the capital of {a}"), facts(f"the capital of {b}"))


@pytest.mark.parametrize(
    ("a", "b", "limit", "expected"),
    [
        ("", "", 1, 0),
        ("abc", "acb", 2, 1),
        ("abc", "abd", 2, 1),
        ("abc", "abcd", 2, 1),
        ("abc", "xyz", 1, 2),
        ("a", "abcd", 2, 3),
    ],
)
def test_distance(a: str, b: str, limit: int, expected: int) -> None:
    assert expected == distance(a, b, limit)
    assert expected == distance(b, a, limit)


SOME = "how can i cancel my order orders not 3 three days from to London Paris enable disable 不 开 关"
WORDS = st.lists(st.sampled_from(SOME.split()), max_size=12).map(" ".join)


@given(WORDS, WORDS)
def test_the_order_of_two_questions_does_not_matter(a: str, b: str) -> None:
    one, other = facts(a), facts(b)
    assert differences(one, other) == differences(other, one)
    there, back = align(one, other), align(other, one)
    assert (there.left, there.right) == (back.right, back.left)
    assert sorted(there.pairs) == sorted((second, first) for first, second in back.pairs)


@given(st.text(max_size=80))
def test_a_question_does_not_differ_from_itself(text: str) -> None:
    assert () == differences(facts(text), facts(text))


@given(WORDS, WORDS)
def test_reasons_come_in_their_order(a: str, b: str) -> None:
    found = differences(facts(a), facts(b))
    assert tuple(reason for reason in GUARDS if reason in found) == found


@pytest.mark.skipif(not SCONE.exists(), reason="the shared data are not here")
def test_every_trap_of_scone_has_a_guard() -> None:
    rows = [json.loads(line) for line in SCONE.read_text("utf-8").splitlines()]
    pairs = [(row["sentence1"], row["sentence2"]) for row in rows if "sentence1" in row]
    assert [] == [pair for pair in pairs if not differences(*map(facts, pair))]
