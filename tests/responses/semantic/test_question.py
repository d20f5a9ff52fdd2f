"""What counts exactly in a request, what may be worded freely, and which requests are left to the model."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.responses.semantic.eligibility import EligibilityOptions
from prefold.responses.semantic.question import QuestionOptions, read_question
from prefold.responses.semantic.types import Question, Reason

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
TEXT = "How do I change my password?"
USER = {"role": "user", "content": TEXT}
SYSTEM = {"role": "system", "content": "Be brief."}
BODIES = {
    CHAT: {"model": "m", "temperature": 0, "messages": [SYSTEM, USER]},
    MESSAGES: {"model": "m", "temperature": 0, "max_tokens": 99, "system": "Be brief.", "messages": [USER]},
    RESPONSES: {"model": "m", "temperature": 0.0, "store": False, "instructions": "Be brief.", "input": TEXT},
    COMPLETIONS: {"model": "m", "temperature": 0, "prompt": TEXT},
}
ALL = sorted(BODIES)


def read(fields, api=CHAT, partition="acme", principal="p", headers=None, **options):
    return read_question(
        api,
        fields,
        partition=partition,
        principal=principal,
        options=QuestionOptions(**options),
        headers=headers or {},
    )


def chat(*messages, **fields):
    return {**BODIES[CHAT], "messages": list(messages), **fields}


def context(*args, **named):
    question = read(*args, **named)
    assert isinstance(question, Question)
    return question.context


def reworded(api, text):
    body = copy.deepcopy(BODIES[api])
    if api in (CHAT, MESSAGES):
        body["messages"][-1]["content"] = text
    else:
        body["input" if api == RESPONSES else "prompt"] = text
    return body


@pytest.mark.parametrize("api", ALL)
def test_the_last_user_turn_is_worded_freely(api):
    one, other = read(BODIES[api], api), read(reworded(api, "how can I set a new password"), api)
    assert one.context == other.context
    assert (TEXT, "how can I set a new password") == (one.text, other.text)
    assert ("acme", "p", "m", "en") == (one.partition, one.principal, one.route, one.language)
    assert len(one.context) == 32


@pytest.mark.parametrize("api", ALL)
@given(name=st.text(st.characters(codec="ascii", min_codepoint=97, max_codepoint=122), min_size=9, max_size=12))
def test_a_field_that_nobody_knows_counts(api, name):
    first, second = ({**BODIES[api], f"x_{name}": value} for value in (1, 2))
    assert 3 == len({context(BODIES[api], api), context(first, api), context(second, api)})


@pytest.mark.parametrize("api", ALL)
def test_the_form_of_the_answer_does_not_count(api):
    streamed = {**BODIES[api], "stream": True, "stream_options": {"include_usage": True}}
    assert context(BODIES[api], api) == context(streamed, api)


@pytest.mark.parametrize(
    "other",
    [
        chat({"role": "system", "content": "Be long."}, USER),
        chat(USER),
        chat(SYSTEM, {**USER, "name": "ada"}),
        chat(SYSTEM, USER, model="n"),
        chat(SYSTEM, USER, top_p=0.5),
        chat(SYSTEM, USER, temperature=0.0),  # another number to some servers
        chat(SYSTEM, USER, response_format={"type": "json_object"}),
        chat(SYSTEM, USER, tool_choice="none"),
        chat(SYSTEM, USER, documents=[{"text": "Passwords are changed on Mondays."}]),
        chat(SYSTEM, {"role": "user", "content": [{"type": "text", "text": "doc"}, {"type": "text", "text": TEXT}]}),
    ],
)
def test_everything_else_counts(other):
    assert context(BODIES[CHAT]) != context(other)


def test_whose_question_it_is_counts():
    base = context(BODIES[CHAT])
    assert base != context(BODIES[CHAT], partition="other")
    assert base != context(BODIES[CHAT], epoch="2")
    assert base != context(BODIES[CHAT], headers={b"authorization": b"Bearer x"})
    assert base != context(reworded(CHAT, "Wie kann ich mein Passwort ändern und wo finde ich es?"))
    assert base == context(BODIES[CHAT], principal="q", tags=frozenset(("faq",)))
    assert base == context({**BODIES[CHAT], "user": "ada"})
    assert frozenset(("faq",)) == read(BODIES[CHAT], tags=frozenset(("faq",))).tags


def test_the_context_is_the_same_for_ever():
    assert "9861adfe8ccb4b14668210054f4f31352d687aa5047254696cecc988becd7f78" == context(BODIES[CHAT]).hex()


def test_one_text_part_is_the_same_as_its_text():
    for part in (
        {"type": "text", "text": TEXT},
        {"type": "text", "text": TEXT, "cache_control": {"type": "ephemeral"}},
    ):
        assert read(BODIES[CHAT]) == read(chat(SYSTEM, {"role": "user", "content": [part]}))
    item = {"role": "user", "content": [{"type": "input_text", "text": TEXT}]}
    assert TEXT == read({**BODIES[RESPONSES], "input": [item]}, RESPONSES).text


def test_of_several_parts_the_last_is_worded_freely():
    def asked(document, question):
        parts = [{"type": "text", "text": document}, {"type": "text", "text": question}]
        return read(chat({"role": "user", "content": parts}))

    assert asked("A passage.", "Who is it?").context == asked("A passage.", "Who is that?").context
    assert asked("A passage.", "Who is it?").context != asked("Another passage.", "Who is it?").context
    assert "Who is it?" == asked("A passage.", "Who is it?").text


def test_earlier_turns_count_exactly_where_they_may_be_there_at_all():
    def body(first):
        return chat(SYSTEM, {"role": "user", "content": first}, {"role": "assistant", "content": "Hello"}, USER)

    assert Reason.EARLIER_TURNS is read(body("Hi"))
    assert context(body("Hi"), earlier_turns=True) != context(body("Hello"), earlier_turns=True)
    assert Reason.EARLIER_TURNS is read(chat(USER, USER))
    assert Reason.EARLIER_TURNS is read({**BODIES[RESPONSES], "previous_response_id": "resp_1"}, RESPONSES)
    assert isinstance(read(chat(SYSTEM, {"role": "developer", "content": "Be kind."}, USER)), Question)


def test_white_space_at_the_ends_of_a_prompt_counts_though_not_of_a_turn():
    assert read(BODIES[CHAT]) == read(reworded(CHAT, f" {TEXT}\n"))
    assert context(BODIES[COMPLETIONS], COMPLETIONS) != context(reworded(COMPLETIONS, f"{TEXT}\n"), COMPLETIONS)


FUNCTION = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("reason", "api", "fields"),
    [
        (Reason.SAMPLED, CHAT, {"temperature": 0.7}),
        (Reason.SAMPLED, CHAT, {"temperature": None}),
        (Reason.SAMPLED, CHAT, {"temperature": 1, "seed": 7}),
        (Reason.SAMPLED, CHAT, {"temperature": "0"}),
        (Reason.SAMPLED, CHAT, {"temperature": False}),
        (Reason.MANY_ANSWERS, CHAT, {"n": 2}),
        (Reason.MANY_ANSWERS, COMPLETIONS, {"best_of": 2}),
        (Reason.MANY_ANSWERS, COMPLETIONS, {"prompt": ["a", "b"]}),
        (Reason.NOT_TEXT, COMPLETIONS, {"prompt": [1, 2, 3]}),
        (Reason.NOT_TEXT, COMPLETIONS, {"prompt": [[1, 2, 3]]}),
        (Reason.NOT_TEXT, COMPLETIONS, {"echo": True}),
        (Reason.NOT_TEXT, CHAT, {"logprobs": True}),
        (Reason.NOT_TEXT, COMPLETIONS, {"logprobs": 5}),
        (Reason.NOT_TEXT, CHAT, {"modalities": ["text", "audio"]}),
        (Reason.TOOLS, CHAT, {"tools": [FUNCTION]}),
        (Reason.TOOLS, CHAT, {"functions": [{"name": "f"}]}),
        (Reason.TOOLS, CHAT, {"web_search_options": {"search_context_size": "low"}}),
        (Reason.TOOLS, MESSAGES, {"tools": [{"type": "web_search_20260101", "name": "web_search"}]}),
        (Reason.NOT_A_QUESTION, RESPONSES, {"store": True}),
        (Reason.NOT_A_QUESTION, RESPONSES, {"store": None}),
        (Reason.NOT_A_QUESTION, CHAT, {"messages": []}),
        (Reason.NOT_A_QUESTION, CHAT, {"messages": "hi"}),
        (Reason.NOT_A_QUESTION, CHAT, {"messages": ["hi"]}),
        (Reason.NOT_A_QUESTION, CHAT, {"messages": [SYSTEM]}),
        (Reason.NOT_A_QUESTION, MESSAGES, {"messages": [USER, {"role": "assistant", "content": "It is"}]}),
        (Reason.NOT_TEXT, CHAT, {"messages": [{"role": "tool", "content": "7", "tool_call_id": "c"}]}),
        (Reason.NOT_TEXT, RESPONSES, {"input": [{"type": "function_call_output", "call_id": "c", "output": "7"}]}),
        (Reason.NOT_TEXT, CHAT, {"messages": [{"role": "user", "content": None}]}),
        (Reason.NOT_TEXT, CHAT, {"messages": [{"role": "user", "content": []}]}),
        (Reason.NOT_TEXT, CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}),
        (Reason.NOT_TEXT, MESSAGES, {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}),
        (Reason.UNREADABLE, CHAT, {"messages": [{"role": "user", "content": "\ud83d"}]}),
        (Reason.UNREADABLE, CHAT, {"stop": "\ud83d"}),
        (Reason.UNREADABLE, CHAT, {"extra": object()}),
        (Reason.TIME_BOUND, CHAT, {"messages": [{"role": "user", "content": "What is the latest Python?"}]}),
        (Reason.PERSONAL, CHAT, {"messages": [{"role": "user", "content": "What is my balance?"}]}),
        (Reason.NOT_A_QUESTION, "/v1/embeddings", {"input": "hi"}),
    ],
)
def test_what_is_left_to_the_model(reason, api, fields):
    assert reason is read({**BODIES.get(api, {}), **fields}, api)


def test_a_missing_temperature_is_the_servers_own():
    fields = {name: value for name, value in BODIES[CHAT].items() if name != "temperature"}
    assert Reason.SAMPLED is read(fields)
    assert isinstance(read(fields, sampled=True), Question)


def test_options_let_more_in():
    assert isinstance(read({**BODIES[CHAT], "tools": [FUNCTION]}, tools=True), Question)
    assert Reason.TOOLS is read({**BODIES[CHAT], "tools": [{"type": "web_search"}]}, tools=True)
    personal = reworded(CHAT, "What is my balance?")
    assert isinstance(read(personal, eligibility=EligibilityOptions(personal=True)), Question)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("messages", "input", "prompt", "model", "temperature", "tools", "n", "logprobs", "modalities", "x")


@given(st.sampled_from(ALL), st.dictionaries(st.sampled_from(FIELDS), json_values))
def test_whatever_comes_is_a_question_or_has_a_reason(api, fields):
    assert isinstance(read({**BODIES[api], **fields}, api, sampled=True), Question | Reason)
