"""Answers that give none."""

import pytest

from prefold.responses.semantic.forms.refusals import refuses


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, but I can’t assist with that request.",
        "I am sorry, I cannot provide that information.",
        "Sorry, I can't do that.",
        "I cannot assist with this.",
        "I can't help with that.",
        "I'm unable to access your account.",
        "I am not able to browse the internet.",
        "Unfortunately, I don't have access to your order history.",
        "As an AI language model, I cannot give medical advice.",
        "As an AI, I don't have real-time information.",
        "I don't have access to real-time data.",
        "I apologize, but I am unable to answer that.",
        "I apologize for the inconvenience, but I cannot check your balance.",
        "This request violates our policy.",
        "抱歉，我无法回答这个问题。",
        "很抱歉，我不能提供这方面的信息。",
        "对不起，我没办法帮您查询订单。",
        "作为一个人工智能助手，我无法访问您的账户。",
        "我无法提供实时信息。",
    ],
)
def test_a_refusal(text):
    assert refuses(text)


@pytest.mark.parametrize(
    "text",
    [
        "Go to Settings and choose Change password.",
        "No, you can't use a card that has expired.",
        "You cannot cancel a transfer that was completed. I'm sorry about that.",
        "I recommend it: I cannot praise it enough.",
        "Unfortunately, transfers cannot be cancelled once they are complete.",
        "Sorry to hear that your card was stolen. Freeze it in the app first.",
        "I do not recommend driving in the snow.",
        "If you are unable to log in, reset your password.",
        "I'm sorry to hear about your loss. To close the account, send us the certificate.",
        "抱歉给您带来不便，请在设置中重置密码。",
        "无法登录时，请先重置密码。",
        "不能。转账完成后不能取消。",
    ],
)
def test_an_answer(text):
    assert not refuses(text)


def test_a_long_answer_is_looked_at_only_where_it_begins():
    assert not refuses("Yes. " * 100 + "I'm sorry, but I can't help with that.")
    assert not refuses("sorry " * 200_000)
