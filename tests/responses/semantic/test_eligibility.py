"""Which texts are never answered by meaning."""

import json
from collections import Counter
from pathlib import Path

import pytest

from prefold.responses.semantic.eligibility import EligibilityOptions, ineligible
from prefold.responses.semantic.types import Reason

DATA = Path(__file__).parents[4] / "shared" / "data" / "semantic"


@pytest.mark.parametrize(
    "text",
    [
        "What's the weather in Paris tomorrow?",
        "Who won the women's final at Wimbledon last year?",
        "what time is it in adelaide, australia",
        "What is the latest version of Python?",
        "who is the current president of France",
        "I'd like to know who is president now",
        "Tell me today's date",
        "how many weeks ago was the eclipse",
        "Is it raining?",
        "Who's the mayor of London?",
        "who runs the post office",
        "How much is a euro?",
        "Are the trains on strike?",
        "Any delays on the Jubilee line?",
        "How many weeks until summer?",
        "When is Easter?",
        "Are you open this Monday?",
        "next ferry to Dover?",
        "谁是英国首相",
        "下一班去上海的高铁几点",
        "距离高考还有多少天",
        "超市开门了吗",
        "What are the exchange rates?",
        "price of bitcoin",
        "Any news about the election?",
        "今天天气怎么样？",
        "最新的 iPhone 是哪一款？",
        "现在几点",
        "美国现任总统是谁",
        "人民币对美元汇率是多少",
        "Explain `print('right now')`",  # quoting makes no difference: what a quotation is for is not seen
    ],
)
def test_what_is_true_only_for_a_while(text):
    assert Reason.TIME_BOUND is ineligible(text)


@pytest.mark.parametrize(
    "text",
    [
        "How do I transfer money from my savings to my current account?",
        "I need to update my current address",
        "I ordered a card last week and it has not come. What should I do?",
        "I tried to top up today and it failed. Why?",
        "My card is lost! What do I do now?",
        "Can I freeze my card right now?",
        "What is alternating current?",
        "How do I know the difference between weather and whether when nobody is home?".replace("weather", "wether"),
        "When was the Battle of Hastings?",
        "Who was the first president of France?",
        "Who is the author of Hamlet?",
        "How many days until my card arrives?",
        "How much is the annual plan?",
        "Why are flights cancelled in fog?",
        "部长是什么级别",
        "当前密码忘了怎么办",
        "这个角色出现在哪本小说里？",
        "写论文要注意哪几点建议",
        "whats the difference between weather and climate",
        "如何重置密码？",
    ],
)
def test_words_of_time_that_date_nothing(text):
    assert ineligible(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "What is my balance?",
        "Where is my order 48213",
        "Track order 48213",
        "did my payment arrive",
        "Has my refund been processed?",
        "Hi, is my card on its way?",
        "How much do I owe?",
        "Show me my transactions",
        "I would like to know what my credit limit is",
        "What did I spend in March?",
        "My name is Ada Lovelace",
        "I am 45 and smoke, what does life insurance cost?",
        "I'm pregnant, may I fly?",
        "I have asthma, can I dive?",
        "Which tariff are we on?",
        "Are there any holds on my account?",
        "Who changed my password?",
        "What did HR say about my request?",
        "我的签证哪天到期",
        "我对花生过敏，能吃吗",
        "Write to ada@example.org for me",
        "Call +44 20 7946 0958",
        "Is 4111 1111 1111 1111 a valid card?",
        "My IBAN is GB82 WEST 1234 5698 7654 32",
        "我的账户余额是多少？",
        "我的订单到哪了",
        "帮我查一下我的快递",
        "我今年45岁，能买保险吗",
        "手机号13812345678收不到短信",
        "My social security number is 078-05-1120",
    ],
)
def test_what_only_the_data_of_whoever_asks_can_tell(text):
    assert Reason.PERSONAL is ineligible(text)
    assert ineligible(text, EligibilityOptions(personal=True)) is None


@pytest.mark.parametrize(
    "text",
    [
        "How do I change my password?",
        "Why was my card declined?",
        "How long will it take for my transfer to arrive?",
        "I lost my card",
        "Can I use my card abroad?",
        "Is there a fee on my card?",
        "Who has to pay my taxes?",
        "If I have asthma, can I dive?",
        "What did the Romans say about women?",
        "How many cards can I have?",
        "What documents do I need to verify my identity?",
        "What happens if I pay my credit card bill late?",
        "What are my options?",
        "Can you call me a taxi?",
        "Someone has my card number, freeze my account.",
        "Would a lender give me a loan if I'm 55?",
        "How do I get a refund on an order I placed?",
        "What is 1500 times 10000000?",
        "What happened between 1914 and 1918?",
        "如何注销我的账户？",
        "我的卡丢了怎么办",
        "我的快递丢了怎么投诉？",
    ],
)
def test_general_questions_in_the_first_person(text):
    assert ineligible(text) is None


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (Reason.TOO_LONG, "a" * 601),
        (Reason.UNREADABLE, "half a pair: \ud83d"),
        (Reason.UNREADABLE, "bell \x07"),
        (Reason.UNREADABLE, "is it \u202etfel ot thgir\u202c?"),
        (Reason.UNREADABLE, "do n\u200bot cancel"),
        (Reason.UNREADABLE, "caf\ufffd"),
        (Reason.UNREADABLE, "hi\U000e0041"),
        (Reason.NOT_A_QUESTION, ""),
        (Reason.NOT_A_QUESTION, "?!"),
        (Reason.NOT_A_QUESTION, "👍"),
        (Reason.NOT_A_QUESTION, "What does it do?\n```py\nprint(1)\n```"),
        (Reason.NOT_A_QUESTION, "The king is dead.\n\nWho is dead?"),
        (Reason.NOT_A_QUESTION, "Context: the king is dead.\nWho is dead?"),
        (Reason.NOT_A_QUESTION, "材料：国王死了。\n谁死了？"),
        (None, "What is this?\n\tA tab, and\r\na line end"),
        (None, "What does 👩‍🚀 mean?"),
        (None, "می‌خواهم بدانم"),
    ],
)
def test_what_is_too_long_or_unreadable_or_no_question(reason, text):
    assert reason is ineligible(text)


def test_each_limit_can_be_moved():
    assert ineligible("a" * 601, EligibilityOptions(max_characters=601)) is None
    assert ineligible("What's the latest Python?", EligibilityOptions(time_bound=True)) is None
    assert Reason.PERSONAL is ineligible("What is my current balance?", EligibilityOptions(time_bound=True))


@pytest.mark.parametrize("text", ["my " * 30_000, "how much " * 10_000, "1 " * 50_000, "a@" * 50_000, "-" * 99_999])
def test_a_text_that_rules_might_choke_on_ends(text):
    options = EligibilityOptions(max_characters=100_000)
    assert ineligible(text, options) in {None, Reason.PERSONAL, Reason.NOT_A_QUESTION}


@pytest.mark.skipif(not DATA.exists(), reason="needs the shared data beside the project")
@pytest.mark.parametrize(
    ("name", "most"),
    # CLINC150 asks an assistant in a phone and a car: the weather, the balance, what is on the list.
    [("banking77_test", 0.04), ("clinc150_test", 0.2)],
)
def test_few_general_questions_are_refused(name, most):
    texts = [json.loads(line)["text"] for line in (DATA / f"{name}.jsonl").read_text("utf-8").splitlines()]
    reasons = Counter(map(ineligible, texts))
    assert {None, Reason.TIME_BOUND, Reason.PERSONAL, Reason.NOT_A_QUESTION} >= reasons.keys()
    assert len(texts) * most > len(texts) - reasons[None]
