import pytest

from prefold.core.keys import SHARED, Scope
from prefold.core.tokens import count, unpack
from prefold.errors import InvalidRequest, InvalidSalt, InvalidTokens, PrefoldError, PromptTooLong
from prefold.server.asgi import HttpError
from prefold.server.fields import Fields
from prefold.server.openai_requests import (
    CHAT_TOKENS,
    MAX_PROMPTS,
    parse_chat,
    parse_completion,
    parse_prompt,
    parse_tokens,
)

USER = {"role": "user", "content": "Hi"}
SYSTEM = {"role": "system", "content": "Be brief."}


def chat(model, /, **fields):
    return parse_chat(Fields({"messages": [USER], **fields}), model)


def completion(model, /, **fields):
    return parse_completion(Fields({"prompt": "Once", **fields}), model)


def run_of(model, messages, *, answering=True):
    text = model.tokenizer.apply_chat_template(messages, add_generation_prompt=answering)
    return model.tokenizer.encode(text, add_special=False)


# Prompts


def test_a_chat_is_rendered_with_the_models_template(model):
    assert run_of(model, [SYSTEM, USER]) == unpack(chat(model, messages=[SYSTEM, USER]).prompts[0].run)


def test_text_parts_are_lines_of_one_text(model):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    expected = run_of(model, [{"role": "user", "content": "a\nb"}])
    assert expected == unpack(chat(model, messages=[{"role": "user", "content": parts}]).prompts[0].run)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("One", [["One"]]),
        ([5, 6], [[5, 6]]),
        (["One", "Two"], [["One"], ["Two"]]),
        ([[5], [6, 7]], [[5], [6, 7]]),
    ],
)
def test_the_four_forms_of_prompt(model, prompt, expected):
    wanted = [model.tokenizer.encode(*p, add_special=True) if isinstance(p[0], str) else p for p in expected]
    assert wanted == [unpack(part.run) for part in completion(model, prompt=prompt).prompts]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (None, "no prompt"),
        ("", "prompt is empty"),
        ([], "prompt is empty"),
        ([[]], "prompt is empty"),
        (["a", ""], r"prompt\[1\] is empty"),
        (5, "prompt is 5"),
        ({"text": "a"}, "prompt is {'text': 'a'}"),
        ([-1], r"prompt\[0\] is -1"),
        ([0, 49152], r"prompt\[1\] is 49152"),
        ([1.5], r"prompt\[0\] is 1.5"),
        ([True], r"prompt\[0\] is True"),
        ([10**30], r"prompt\[0\] is 1000"),
        ([1, "a"], r"prompt\[1\] is 'a'"),
        (["a", 1], r"prompt\[1\] is 1"),
        (["a", [1]], r"prompt\[1\] is \[1\]"),
        ([[1], [None]], r"prompt\[1\]\[0\] is None"),
        (["a"] * (MAX_PROMPTS + 1), "1025 prompts"),
        ("a\ud800", "lone surrogate"),
    ],
)
def test_prompts_that_are_none(model, prompt, message):
    with pytest.raises((InvalidRequest, InvalidTokens), match=message):
        completion(model, prompt=prompt)


def test_a_text_that_could_not_fit_is_not_even_tokenised(model):
    longest = "x" * (model.limit * model.longest_token)
    assert completion(model, prompt=longest)
    with pytest.raises(PromptTooLong):
        completion(model, prompt=longest + "x")


def test_null_bytes_are_text(model):
    assert "a\0b" == model.tokenizer.decode(unpack(completion(model, prompt="a\0b").prompts[0].run))


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ("Hi", "messages"),
        (["Hi"], "messages"),
        ([{"content": "Hi"}], "messages[0].role"),
        ([USER, {"role": 1, "content": "Hi"}], "messages[1].role"),
        ([{"role": "user", "content": 1}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": ["Hi"]}], "messages[0].content[0]"),
        ([{"role": "user"}], "messages"),
    ],
)
def test_messages_that_are_none(model, messages, param):
    with pytest.raises(InvalidRequest) as caught:
        chat(model, messages=messages)
    assert param == caught.value.param
    assert caught.value.hint


def test_tools_are_a_list_of_objects(model):
    chat(model, tools=[{"type": "function", "function": {"name": "look_up"}}])
    for tools in ({}, ["look_up"], "look_up"):
        with pytest.raises(InvalidRequest, match="tools"):
            chat(model, tools=tools)


# Fields


def test_defaults(model):
    call = completion(model)
    assert (16, 1.0, 1.0, 0, None, (), None, False, 1) == (
        call.sampling.max_tokens,
        call.sampling.temperature,
        call.sampling.top_p,
        call.sampling.top_k,
        call.sampling.seed,
        call.sampling.stop,
        call.sampling.logprobs,
        call.sampling.ignore_eos,
        call.sampling.choices,
    )
    assert not call.stream
    assert not call.include_usage
    assert SHARED == call.prompts[0].scope


def test_a_chat_answers_within_what_the_context_leaves(model):
    short, long = chat(model), chat(model, messages=[{"role": "user", "content": "word " * 1500}])
    assert CHAT_TOKENS == short.sampling.max_tokens
    assert model.limit == count(long.prompts[0].run) + long.sampling.max_tokens


def test_max_completion_tokens_goes_before_max_tokens(model):
    assert 3 == chat(model, max_completion_tokens=3, max_tokens=4).sampling.max_tokens
    assert 4 == chat(model, max_tokens=4).sampling.max_tokens


def test_every_sampling_field(model):
    sampling = completion(
        model,
        max_tokens=5,
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        seed=-3,
        stop=["a", "b"],
        logprobs=5,
        ignore_eos=True,
        n=2,
    ).sampling
    assert (5, 0.5, 0.9, 7, -3, ("a", "b"), 5, True, 2) == (
        sampling.max_tokens,
        sampling.temperature,
        sampling.top_p,
        sampling.top_k,
        sampling.seed,
        sampling.stop,
        sampling.logprobs,
        sampling.ignore_eos,
        sampling.choices,
    )
    assert ("a",) == completion(model, stop="a").sampling.stop


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, None), ({"logprobs": False}, None), ({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 4}, 4)],
)
def test_log_probabilities_of_a_chat(model, fields, expected):
    assert expected == chat(model, **fields).sampling.logprobs


def test_usage_at_the_end_of_a_stream(model):
    assert chat(model, stream=True, stream_options={"include_usage": True}).include_usage
    assert not chat(model, stream=True, stream_options={}).include_usage


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"temperature": False}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"seed": 2**63}, "seed"),
        ({"seed": 1.0}, "seed"),
        ({"stop": 1}, "stop"),
        ({"stop": [1]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": 1}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"model": 1}, "model"),
    ],
)
@pytest.mark.parametrize("parse", [chat, completion])
def test_bad_values_are_refused_by_name(model, parse, fields, param):
    with pytest.raises(InvalidRequest) as caught:
        parse(model, **fields)
    assert param == caught.value.param
    assert caught.value.hint


def test_bad_log_probabilities(model):
    for fields in ({"logprobs": 1}, {"logprobs": True, "top_logprobs": 21}, {"top_logprobs": 2}):
        with pytest.raises(InvalidRequest, match="logprobs"):
            chat(model, **fields)
    for value in (True, -1, 21, 1.0):
        with pytest.raises(InvalidRequest, match="logprobs"):
            completion(model, logprobs=value)


@pytest.mark.parametrize(
    ("parse", "name", "value"),
    [
        (chat, "tool_choice", "required"),
        (chat, "tool_choice", {"type": "function", "function": {"name": "f"}}),
        (chat, "functions", [{"name": "f"}]),
        (chat, "audio", {"voice": "alloy"}),
        (chat, "modalities", ["text", "audio"]),
        (chat, "response_format", {"type": "json_object"}),
        (completion, "response_format", {"type": "json_schema", "json_schema": {}}),
        (chat, "logit_bias", {"5": 1}),
        (completion, "frequency_penalty", 0.1),
        (chat, "presence_penalty", -1),
        (chat, "reasoning_effort", "low"),
        (completion, "guided_json", {}),
        (completion, "echo", True),
        (completion, "suffix", "end"),
        (completion, "best_of", 2),
    ],
)
def test_what_would_change_the_answer_is_refused(model, parse, name, value):
    with pytest.raises(HttpError) as caught:
        parse(model, **{name: value})
    assert (400, "unsupported_parameter", name) == (caught.value.status, caught.value.code, caught.value.param)


def test_values_that_ask_for_nothing_and_unknown_fields_are_let_through(model):
    chat(
        model,
        tool_choice="auto",
        response_format={"type": "text"},
        logit_bias={},
        frequency_penalty=0,
        presence_penalty=0.0,
        user="someone",
        metadata={"a": "b"},
        store=False,
    )
    completion(model, echo=False, suffix=None, best_of=1, anything_else=[1])


def test_any_of_the_names_or_none(model):
    for name in (None, *model.names):
        completion(model, model=name)
    with pytest.raises(HttpError) as caught:
        completion(model, model="gpt-5")
    assert (404, "model_not_found", "model") == (caught.value.status, caught.value.code, caught.value.param)


# Salts


def test_a_salt_holds_from_the_start_or_from_a_token(model):
    assert Scope("s") == completion(model, cache_salt="s").prompts[0].scope
    assert Scope("s", 2) == completion(model, prompt=[5, 6], cache_salt="s", cache_salt_from=2).prompts[0].scope


def test_a_salt_from_a_message_begins_where_that_message_is_first_written(model):
    messages = [SYSTEM, USER, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "More"}]
    full = run_of(model, messages)
    for index in range(len(messages) + 1):
        scope = chat(model, messages=messages, cache_salt="s", cache_salt_from={"message": index}).prompts[0].scope
        before = run_of(model, messages[:index], answering=False) if index else []
        assert Scope("s", len(before)) == scope
        assert before == full[: scope.salt_from]


def test_the_prefix_before_the_message_is_the_same_for_all_who_share_it(model):
    ends = [{"role": "user", "content": text} for text in ("Mine", "Yours")]
    runs, places = [], []
    for end in ends:
        prompt = chat(model, messages=[SYSTEM, end], cache_salt="s", cache_salt_from={"message": 1}).prompts[0]
        runs.append(unpack(prompt.run))
        places.append(prompt.scope.salt_from)
    assert places[0] == places[1]
    assert runs[0][: places[0]] == runs[1][: places[1]]
    assert "Be brief." in model.tokenizer.decode(runs[0][: places[0]])


@pytest.mark.parametrize("salt", ["", "a@b", "a/b", "a\\b", "a\0b", "x" * 129, 5, True, [], "\ud800"])
def test_bad_salts(model, salt):
    with pytest.raises(InvalidSalt):
        completion(model, cache_salt=salt)


@pytest.mark.parametrize("begin", [-1, 3, 1.0, True, "1", {"message": 0}, [1]])
def test_bad_positions_of_a_salt(model, begin):
    with pytest.raises(InvalidSalt):
        completion(model, prompt=[5, 6], cache_salt="s", cache_salt_from=begin)


@pytest.mark.parametrize("begin", [{"message": 2}, {"message": -1}, {"message": True}, {"message": "0"}, {}])
def test_bad_messages_of_a_salt(model, begin):
    with pytest.raises(InvalidRequest) as caught:
        chat(model, cache_salt="s", cache_salt_from=begin)
    assert str(caught.value.param).startswith("cache_salt_from")


def test_a_position_without_a_salt(model):
    for parse, begin in ((completion, 0), (chat, {"message": 0})):
        with pytest.raises(InvalidSalt, match="needs cache_salt"):
            parse(model, cache_salt_from=begin)


# Other bodies


def test_a_prompt_or_messages(model):
    assert [5] == unpack(parse_prompt(Fields({"prompt": [5]}), model, answering=True).run)
    answered, lasting = (
        unpack(parse_prompt(Fields({"messages": [USER]}), model, answering=answering).run)
        for answering in (True, False)
    )
    assert run_of(model, [USER]) == answered
    assert answered[:-1] == lasting  # an answer that begins with a line break would change the token before it


@pytest.mark.parametrize("body", [{}, {"prompt": "a", "messages": [USER]}, {"prompt": ["a", "b"]}])
def test_exactly_one_prompt(model, body):
    with pytest.raises(PrefoldError):
        parse_prompt(Fields(body), model, answering=True)


def test_token_ids(model):
    assert [1, 2] == parse_tokens(Fields({"tokens": [1, 2]}), model)
    assert [] == parse_tokens(Fields({"tokens": []}), model)
    for tokens in (None, "a", 1, [-1], [1.0], [49152], [True], ["a"]):
        with pytest.raises(InvalidRequest):
            parse_tokens(Fields({"tokens": tokens}), model)
