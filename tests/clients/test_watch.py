"""The real SDKs, watched, against a provider on this machine."""

import asyncio
import gc
import json
import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors as genai_errors
from pydantic import BaseModel

from prefold.clients import Counters, watch, watcher_of
from prefold.errors import UsageError
from prefold.prompts.dialects import tool_name
from prefold.prompts.divergence.compare import compare
from prefold.prompts.prompt import Prompt, Section
from prefold.providers.usage import Usage

RULES = "\n".join(f"Rule {number}: check item {number} of the handbook before you answer." for number in range(300))
TOOLS = [
    {"name": name, "description": f"Look up {name}.", "input_schema": {"type": "object", "properties": {}}}
    for name in ("search", "read", "write")
]
INCLUDED = Usage(36, 64, output=5, is_reported=True)
ADDED = Usage(16, 64, 20, 20, output=5, is_reported=True)


def user(text):
    return {"role": "user", "content": text}


def answer(text):
    return {"role": "assistant", "content": text}


def ask_openai(client, *messages, system=RULES, model="gpt-5", **options):
    messages = [{"role": "system", "content": system}, *(messages or [user("Hi")])]
    return client.chat.completions.create(model=model, messages=messages, **options)


def ask_anthropic(client, *messages, system=RULES, **options):
    blocks = [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}]
    options = {"model": "claude-sonnet-5", "max_tokens": 9, "messages": messages or [user("Hi")], **options}
    return client.messages.create(system=blocks, **options)


def counted(client, **expected):
    watcher = watcher_of(client)
    assert watcher.flush()
    assert 0 == watcher.faults
    assert Counters(**expected) == watcher.total
    return True


def causes(client):
    assert watcher_of(client).flush()
    assert 0 == watcher_of(client).faults
    return [(found.divergence.cause, str(found.divergence.path)) for found in watcher_of(client).breaks]


# What is read, SDK by SDK


def test_the_client_stays_what_it_is(openai_client, anthropic_client, genai_client):
    for client, kind in (
        (openai_client, openai.OpenAI),
        (anthropic_client, anthropic.Anthropic),
        (genai_client, genai.Client),
    ):
        assert watch(client) is client
        assert kind is type(client)
        assert watcher_of(client) is client.prefold


def test_openai(openai_client):
    client = watch(openai_client)
    assert "Blue." == ask_openai(client).choices[0].message.content
    assert "Blue." == client.completions.create(model="gpt-5", prompt="Hi").choices[0].text
    assert counted(client, requests=2, answered=2, usage=INCLUDED + INCLUDED)
    assert 0.64 == client.prefold.hit_rate()


def test_openai_responses(openai_client):
    client = watch(openai_client)
    assert "Blue." == client.responses.create(model="gpt-5.6", instructions=RULES, input="Hi").output_text
    with client.responses.stream(model="gpt-5.6", instructions=RULES, input="Hi") as stream:
        assert "Blue." == stream.get_final_response().output_text
    usage = Usage(16, 64, 20, output=5, is_reported=True)
    assert counted(client, requests=2, answered=2, usage=usage + usage)


def test_openai_streams(openai_client):
    client = watch(openai_client)
    chunks = list(ask_openai(client, stream=True, stream_options={"include_usage": True}))
    assert "Blue." == "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    with client.chat.completions.stream(
        model="gpt-5", messages=[user("Hi")], stream_options={"include_usage": True}
    ) as stream:
        assert "Blue." == stream.get_final_completion().choices[0].message.content
    assert counted(client, requests=2, answered=2, usage=INCLUDED + INCLUDED)


class Colour(BaseModel):
    name: str


def test_openai_parse_and_raw_responses(openai_client, provider):
    client = watch(openai_client)
    with pytest.raises(ValueError, match="Invalid JSON"):  # the answer is no colour: that is the caller's affair
        client.chat.completions.parse(model="gpt-5", messages=[user("Hi")], response_format=Colour)
    raw = client.chat.completions.with_raw_response.create(model="gpt-5", messages=[user("Hi")])
    assert "application/json" == raw.headers["content-type"]
    assert 1 == client.prefold.total.unfinished
    assert raw.parse() is raw.parse()
    with client.chat.completions.with_streaming_response.create(model="gpt-5", messages=[user("Hi")]) as streamed:
        assert "Blue." == streamed.parse().choices[0].message.content
    assert counted(client, requests=3, answered=2, failed=1, usage=INCLUDED + INCLUDED)


def test_anthropic(anthropic_client):
    client = watch(anthropic_client)
    assert "Blue." == ask_anthropic(client).content[0].text
    assert 6 == len(list(ask_anthropic(client, stream=True)))
    with client.messages.stream(model="claude-sonnet-5", max_tokens=9, messages=[user("Hi")]) as stream:
        assert ["Blue."] == list(stream.text_stream)
    options = {"model": "claude-sonnet-5", "max_tokens": 9, "messages": [user("Hi")]}
    assert "Blue." == client.beta.messages.create(**options).content[0].text
    assert "Blue." == client.messages.with_raw_response.create(**options).parse().content[0].text
    assert counted(client, requests=5, answered=5, usage=sum([ADDED] * 5, Usage()))


def test_genai(genai_client):
    client = watch(genai_client)
    config = {"system_instruction": RULES}
    client.models.generate_content(model="gemini-2.5-flash", contents="Hi", config=config)
    assert 2 == len(list(client.models.generate_content_stream(model="gemini-2.5-flash", contents="Hi", config=config)))
    chat = client.chats.create(model="gemini-2.5-flash", config=config)
    chat.send_message("Hi")
    chat.send_message("And now?")
    usage = Usage(36, 64, output=5, is_reported=True)
    assert counted(client, requests=4, answered=4, usage=sum([usage] * 4, Usage()))


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")  # of google-genai
def test_asynchronous_clients(provider):
    async def openai_calls():
        async with openai.AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="x", max_retries=0) as client:
            watch(client)
            await ask_openai(client)
            async for _ in await ask_openai(client, stream=True, stream_options={"include_usage": True}):
                pass
            async with client.responses.stream(model="gpt-5", input="Hi") as stream:
                await stream.get_final_response()
            raw = await client.chat.completions.with_raw_response.create(model="gpt-5", messages=[user("Hi")])
            raw.parse()
            return client.prefold

    async def anthropic_calls():
        async with anthropic.AsyncAnthropic(base_url=provider.url, api_key="x", max_retries=0) as client:
            watch(client)
            await ask_anthropic(client)
            async with client.messages.stream(model="claude-sonnet-5", max_tokens=9, messages=[user("Hi")]) as stream:
                assert "Blue." == await stream.get_final_text()
            options = {"model": "claude-sonnet-5", "max_tokens": 9, "messages": [user("Hi")]}
            async with client.messages.with_streaming_response.create(**options) as raw:
                await raw.parse()
            return client.prefold

    async def genai_calls():
        client = watch(genai.Client(api_key="x", http_options={"base_url": provider.url}))
        async with client.aio as asynchronous:
            await asynchronous.models.generate_content(model="gemini-2.5-flash", contents="Hi")
            async for _ in await asynchronous.models.generate_content_stream(model="gemini-2.5-flash", contents="Hi"):
                pass
            await asynchronous.chats.create(model="gemini-2.5-flash").send_message("Hi")
        client.close()
        return client.prefold

    async def everything():
        return await asyncio.gather(openai_calls(), anthropic_calls(), genai_calls())

    for watcher, count, read in zip(asyncio.run(everything()), (4, 3, 3), (256, 192, 192), strict=True):
        assert (count, count, read, 0) == (
            watcher.total.requests,
            watcher.total.answered,
            watcher.usage.read,
            watcher.faults,
        )


def test_clients_made_of_a_watched_one_share_its_watcher(openai_client):
    client = watch(openai_client)
    other = client.with_options(timeout=5).copy(max_retries=1)
    ask_openai(other)
    assert other.prefold is client.prefold
    assert counted(client, requests=1, answered=1, usage=INCLUDED)


def test_what_cannot_be_watched(openai_client):
    with pytest.raises(UsageError, match="dict cannot be watched"):
        watch({})
    with pytest.raises(UsageError, match="not watched"):
        watcher_of(openai_client)
    watch(openai_client)
    with pytest.raises(UsageError, match="watched already"):
        watch(openai_client)


def test_other_requests_pass(openai_client):
    client = watch(openai_client)
    with pytest.raises(openai.InternalServerError):  # the provider of this test answers nothing but POST
        client.models.list()
    assert counted(client)


# What is sent


def test_nothing_is_changed_unless_asked(openai_client, anthropic_client, provider):
    ask_openai(openai_client, stream=True, extra_body={"seed": 1}).close()
    ask_anthropic(anthropic_client, tools=TOOLS)
    ask_openai(watch(openai_client), stream=True, extra_body={"seed": 1}).close()
    ask_anthropic(watch(anthropic_client), tools=TOOLS)
    assert provider.bodies[:2] == provider.bodies[2:]
    assert list(map(list, provider.bodies[:2])) == list(map(list, provider.bodies[2:]))
    first, second = provider.headers[:2], provider.headers[2:]
    assert [sorted(headers) for headers in first] == [sorted(headers) for headers in second]


def test_usage_at_the_end_of_streams_when_asked(openai_client, provider):
    client = watch(openai_client, include_usage=True)
    assert [] == list(ask_openai(client, stream=True))[-1].choices
    ask_openai(client)
    assert [{"include_usage": True}, None] == [body.get("stream_options") for body in provider.bodies]
    assert counted(client, requests=2, answered=2, usage=INCLUDED + INCLUDED)


def test_streams_without_usage_are_silent(openai_client):
    client = watch(openai_client)
    list(ask_openai(client, stream=True))
    assert counted(client, requests=1, answered=1, silent=1)
    assert client.prefold.hit_rate() is None
    assert "1 answers came without usage" in client.prefold.report()


def test_canonical_requests(anthropic_client, openai_client, genai_client, provider):
    tools = [*TOOLS]
    ask_anthropic(watch(anthropic_client, canonicalize=True), tools=tools)
    assert ["read", "search", "write"] == [tool["name"] for tool in provider.bodies[-1]["tools"]]
    assert ["search", "read", "write"] == [tool["name"] for tool in tools]
    functions = [{"type": "function", "function": {"name": tool["name"], "parameters": {}}} for tool in TOOLS]
    ask_openai(watch(openai_client, canonicalize=True), tools=functions, extra_body={"seed": 1})
    assert ["read", "search", "write"] == [tool["function"]["name"] for tool in provider.bodies[-1]["tools"]]
    assert 1 == provider.bodies[-1]["seed"]
    declarations = [{"name": tool["name"], "description": "Look."} for tool in TOOLS]
    config = {"tools": [{"function_declarations": declarations}]}
    watch(genai_client, canonicalize=True).models.generate_content(model="gemini-3", contents="Hi", config=config)
    sent = provider.bodies[-1]
    assert ["read", "search", "write"] == [tool["name"] for tool in sent["tools"][0]["functionDeclarations"]]
    assert "model" not in sent
    assert 0 == genai_client.prefold.faults + openai_client.prefold.faults + anthropic_client.prefold.faults


def test_planned_breakpoints(anthropic_client, provider):
    client = watch(anthropic_client, breakpoints=True)
    client.messages.create(model="claude-sonnet-5", max_tokens=9, system=RULES * 2, messages=[user("Hi")])
    sent = provider.bodies[-1]
    assert {"type": "ephemeral"} == sent["system"][0]["cache_control"]
    assert RULES * 2 == sent["system"][0]["text"]
    assert 0 == client.prefold.faults


def test_a_body_that_cannot_be_edited_is_sent_as_it_is(openai_client, provider, caplog):
    client = watch(openai_client, canonicalize=True)
    for _ in range(2):
        ask_openai(client, {"role": 7})
        assert {"role": 7} == provider.bodies[-1]["messages"][1]
    (record,) = caplog.records
    assert logging.WARNING == record.levelno
    assert "sent as it is: messages[1].role is not a text" in record.getMessage()


def test_requests_are_compared_even_if_they_cannot_be_edited(openai_client, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("a fault with words of the prompt")

    monkeypatch.setattr("prefold.clients.editing.canonicalize", broken)
    client = watch(openai_client, canonicalize=True)
    for minute in range(2):
        ask_openai(client, system=f"Now: 2026-11-01T10:0{minute}:00Z\n{RULES}")
    assert client.prefold.flush()
    assert ["clock"] == [found.divergence.cause for found in client.prefold.breaks]
    unedited, _ = caplog.records
    assert "a request could not be changed and was sent as it is: RuntimeError" == unedited.getMessage()


EDITS = {"canonicalize": True, "breakpoints": True}
FUNCTIONS = [{"type": "function", "function": {"name": tool["name"], "parameters": {}}} for tool in TOOLS]


def assert_extended(bodies, dialect):
    """Each body begins with all of the one before it, and is edited as that one was."""
    prompts = [Prompt.of(body, dialect) for body in bodies]
    assert ["none"] * (len(bodies) - 1) == [str(compare(*pair).cause) for pair in pairwise(prompts)]
    assert [["read", "search", "write"]] * len(bodies) == [list(map(tool_name, body["tools"])) for body in bodies]


@pytest.mark.parametrize("api", ["messages", "beta"])
def test_turns_with_answers_of_anthropic_stay_edited(api, anthropic_client, provider, caplog):
    client = watch(anthropic_client, conversation=True, **EDITS)
    create = client.messages.create if api == "messages" else client.beta.messages.create
    messages = []
    for turn in range(4):
        messages.append(user(f"Question {turn}?"))
        given = iter([*messages]) if api == "messages" else messages  # the SDK's beta uses up an iterator unsent
        answered = create(model="claude-sonnet-5", max_tokens=9, system=RULES * 2, tools=TOOLS, messages=given)
        messages.append({"role": "assistant", "content": answered.content})
    assert_extended(provider.bodies, "anthropic")
    for body in provider.bodies:
        assert {"type": "ephemeral"} == body["messages"][-1]["content"][0]["cache_control"]
        assert {"type": "ephemeral"} == body["system"][0]["cache_control"]
    last = Prompt.of(provider.bodies[-1], "anthropic")
    said = [segment.text for segment in last.segments if segment.section is Section.MESSAGES]
    assert ["Question 0?", "Blue.", "Question 1?", "Blue.", "Question 2?", "Blue.", "Question 3?"] == said
    assert [] == causes(client)
    assert [] == caplog.records


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5.6"])
def test_turns_with_answers_of_openai_stay_edited(model, openai_client, provider, caplog):
    client = watch(openai_client, conversation=True, **EDITS)
    messages = []
    for turn in range(3):
        messages.append(user(f"Question {turn}?"))
        answered = ask_openai(client, *messages, tools=FUNCTIONS, model=model)
        messages.append(answered.choices[0].message)
    assert_extended(provider.bodies, "openai")
    assert "Blue." == provider.bodies[-1]["messages"][2]["content"]
    assert 1 == len({body.get("prompt_cache_key") for body in provider.bodies} - {None})
    assert [] == causes(client)
    assert [] == caplog.records


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5.6"])
def test_turns_with_items_of_openai_stay_edited(model, openai_client, provider, caplog):
    client = watch(openai_client, conversation=True, **EDITS)
    tools = [{"type": "function", "name": tool["name"], "parameters": {}} for tool in TOOLS]
    items = []
    for turn in range(3):
        items.append(user(f"Question {turn}?"))
        answered = client.responses.create(model=model, instructions=RULES, tools=tools, input=items)
        items += answered.output
    assert_extended(provider.bodies, "responses")
    assert "Blue." == provider.bodies[-1]["input"][1]["content"][0]["text"]
    assert [] == causes(client)
    assert [] == caplog.records


def test_turns_with_contents_of_google_stay_edited(genai_client, provider, caplog):
    client = watch(genai_client, **EDITS)
    declarations = [{"name": tool["name"], "description": "Look."} for tool in TOOLS]
    config = {"system_instruction": RULES, "tools": [{"function_declarations": declarations}]}
    contents = []
    for turn in range(3):
        contents.append(genai.types.Content(role="user", parts=[genai.types.Part(text=f"Question {turn}?")]))
        answered = client.models.generate_content(model="gemini-2.5-flash", contents=contents, config=config)
        contents.append(answered.candidates[0].content)
    bodies = [{**body, "tools": body["tools"][0]["functionDeclarations"]} for body in provider.bodies]
    assert_extended(bodies, "gemini")
    assert "Question 2?" == provider.bodies[-1]["contents"][4]["parts"][0]["text"]
    assert [] == causes(client)
    assert [] == caplog.records


def test_iterators_and_files_reach_the_provider(anthropic_client, provider, tmp_path):
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"abc")

    def request(edges):
        source = {"type": "base64", "media_type": "image/png", "data": picture}
        content = ({"type": "image", "source": source} for _ in range(2))
        return {
            "model": "claude-sonnet-5",
            "max_tokens": 9,
            "tools": iter(TOOLS),
            "messages": (message for message in [{"role": "user", "content": content, "cache_control": edges}]),
        }

    anthropic_client.messages.create(**request(anthropic.omit))
    client = watch(anthropic_client, canonicalize=True)
    client.messages.create(**request(anthropic.omit))
    plain, edited = provider.bodies
    assert "YWJj" == edited["messages"][0]["content"][1]["source"]["data"]
    assert plain["messages"] == edited["messages"]
    assert ["read", "search", "write"] == [tool["name"] for tool in edited["tools"]]
    assert counted(client, requests=1, answered=1, usage=ADDED)


def test_an_iterator_that_fails_is_the_callers_affair(anthropic_client, provider):
    def failing():
        yield user("Hi")
        raise LookupError("a fault of the application's")

    client = watch(anthropic_client)
    with pytest.raises(LookupError, match="of the application's"):
        client.messages.create(model="claude-sonnet-5", max_tokens=9, messages=failing())
    assert [] == provider.bodies
    assert counted(client, requests=1, failed=1)


def test_planned_breakpoints_of_a_first_turn(provider):
    for conversation in (None, True):
        with openai.OpenAI(base_url=f"{provider.url}/v1", api_key="x", max_retries=0) as client:
            ask_openai(watch(client, breakpoints=True, conversation=conversation), model="gpt-5.6")
    assert ["explicit", None] == [body.get("prompt_cache_options", {}).get("mode") for body in provider.bodies]


# Breaks


def test_growth_of_a_conversation_is_no_break(openai_client, anthropic_client, genai_client, caplog):
    clients = watch(openai_client), watch(anthropic_client), watch(genai_client)
    for name in ("one", "two"):  # a second conversation with the same assistant is none either
        messages = []
        chat = genai_client.chats.create(model="gemini-2.5-flash", config={"system_instruction": RULES})
        for turn in range(4):
            messages.append(user(f"Question {turn} of {name}: what now?"))
            ask_openai(openai_client, *messages)
            ask_anthropic(anthropic_client, *messages, tools=TOOLS)
            chat.send_message(messages[-1]["content"])
            messages.append(answer("Blue."))
    assert [[], [], []] == [causes(client) for client in clients]
    assert [] == caplog.records


def test_a_clock_in_the_system_prompt(openai_client, caplog):
    client = watch(openai_client)
    talk = [user("One?"), answer("Blue."), user("Two?")]
    ask_openai(client, talk[0], system=f"Now: 2026-11-01T10:00:00Z\n{RULES}")
    ask_openai(client, *talk, system=f"Now: 2026-11-01T10:01:00Z\n{RULES}")
    assert [("clock", "messages[0]")] == causes(client)
    (record,) = caplog.records
    assert logging.WARNING == record.levelno
    assert "clock at messages[0]" in record.getMessage()
    assert "10:01" not in record.getMessage()  # no words of the prompt in the log
    assert client.prefold.last_break.divergence.lost_tokens > 1_000


def test_the_same_cause_is_logged_once_and_counted_each_time(anthropic_client, caplog):
    heard = []
    client = watch(anthropic_client, on_break=heard.append)
    for minute in range(4):
        ask_anthropic(client, system=f"Now: 2026-11-01T10:0{minute}:00Z\n{RULES}")
    assert [("clock", "system[0]")] * 3 == causes(client)
    assert 1 == len(caplog.records)
    assert 3 == client.prefold.total.breaks == len(heard)


def test_breaks_in_every_dialect(openai_client, anthropic_client, genai_client):
    watch(openai_client), watch(anthropic_client), watch(genai_client)
    with_clock = [f"今天是2026年11月{day}日。\n{RULES}" for day in (1, 2)]
    for rules in with_clock:
        openai_client.responses.create(model="gpt-5", instructions=rules, input="Hi")
        ask_anthropic(anthropic_client, system=rules)
        config = {"system_instruction": rules}
        genai_client.models.generate_content(model="gemini-2.5-flash", contents="Hi", config=config)
    assert [("clock", "instructions")] == causes(openai_client)
    assert [("clock", "system[0]")] == causes(anthropic_client)
    assert [("clock", "systemInstruction.parts[0]")] == causes(genai_client)
    genai_client.models.generate_content(model="gemini-2.5-pro", contents="Hi", config=config)
    assert "model" == causes(genai_client)[-1][0]  # which google-genai says in the address alone
    for prompt in with_clock:
        openai_client.completions.create(model="gpt-5", prompt=prompt)
    assert ("clock", "prompt") == causes(openai_client)[-1]


def test_canonical_requests_break_less(anthropic_client):
    client = watch(anthropic_client, canonicalize=True)
    ask_anthropic(client, tools=TOOLS)
    ask_anthropic(client, tools=TOOLS[::-1])
    assert [] == causes(client)


def test_a_reminder_that_moves(openai_client):
    client = watch(openai_client)
    reminder = "\n".join(f"Remember point {number} of the policy." for number in range(100))
    ask_openai(client, user("One?"), user(reminder))
    ask_openai(client, user("One?"), answer("Blue."), user("Two?"), user(reminder))
    assert ["moved_block"] == [cause for cause, _ in causes(client)]


def test_a_history_that_is_cut_off(openai_client):
    client = watch(openai_client)
    talk = [user("One?"), answer("Blue."), user("Two?"), answer("Blue, still."), user("Three?")]
    ask_openai(client, *talk)
    ask_openai(client, *talk[2:], answer("Blue again."), user("Four?"))
    assert ["truncation"] == [cause for cause, _ in causes(client)]


def test_tools_in_another_order(anthropic_client):
    client = watch(anthropic_client)
    ask_anthropic(client, tools=TOOLS)
    ask_anthropic(client, user("Something else?"), tools=TOOLS[::-1])
    ((cause, path),) = causes(client)
    assert ("tool_order", "tools") == (cause, path.partition("[")[0])


def test_another_model(openai_client):
    client = watch(openai_client)
    ask_openai(client, user("One?"))
    ask_openai(client, user("One?"), answer("Blue."), user("Two?"), model="gpt-5-mini")
    assert ["model"] == [cause for cause, _ in causes(client)]


def test_a_name_in_the_rules_is_no_break_for_the_next_user(anthropic_client, caplog):
    client = watch(anthropic_client)
    for name in ("Ann", "Ben", "Cem"):
        talk = [user("Hi"), answer("Blue."), user(f"What do you know of {name}?")]
        ask_anthropic(client, talk[0], system=f"You speak with {name}.\n{RULES}")
        ask_anthropic(client, *talk, system=f"You speak with {name}.\n{RULES}")
    assert [] == causes(client)
    ask_anthropic(client, *talk, answer("Little."), user("And now?"), system=f"You speak with Cem B.\n{RULES}")
    assert [("text_edit", "system[0]")] == causes(client)
    assert 1 == len(caplog.records)


def test_labels_keep_assistants_apart(openai_client):
    client = watch(openai_client, label="chat")
    ask_openai(client, system=f"Now: 2026-11-01T10:00:00Z\n{RULES}")
    with client.prefold.label("planner"):
        ask_openai(client, system=f"Now: 2026-11-01T10:01:00Z\n{RULES}")
    assert [] == causes(client)
    one = Counters(requests=1, answered=1, usage=INCLUDED)
    assert {"chat": one, "planner": one} == client.prefold.counters
    assert 0.64 == client.prefold.hit_rate("planner")
    assert client.prefold.hit_rate("nobody") is None


def test_history_kept_by_the_server_is_not_compared(openai_client):
    client = watch(openai_client)
    client.responses.create(model="gpt-5", instructions=RULES, input="One?")
    client.responses.create(model="gpt-5", instructions="Now: 10:00", input="Two?", previous_response_id="r-1")
    client.responses.create(model="gpt-5", instructions=RULES, input="Three?")
    assert [] == causes(client)


def test_the_caller_may_change_his_messages_while_they_are_compared(openai_client):
    client = watch(openai_client)
    messages = [user("One?")]
    ask_openai(client, *messages)
    messages[0]["content"] = "Changed."
    messages += [answer("Blue."), user("Two?")]
    ask_openai(client, user("One?"), *messages[1:])
    assert [] == causes(client)


# Failures


def test_errors_of_the_sdks_pass_unchanged(openai_client, anthropic_client, genai_client, provider):
    provider.status = 429
    for client, kind, ask in (
        (openai_client, openai.RateLimitError, ask_openai),
        (anthropic_client, anthropic.RateLimitError, ask_anthropic),
        (
            genai_client,
            genai_errors.ClientError,
            lambda client: client.models.generate_content(model="gemini-3", contents="Hi"),
        ),
    ):
        with pytest.raises(kind) as unwatched:
            ask(client)
        with pytest.raises(kind) as watched:
            ask(watch(client))
        assert type(unwatched.value) is type(watched.value)
        assert str(unwatched.value) == str(watched.value)
        assert counted(client, requests=1, failed=1)
    with pytest.raises(genai_errors.ClientError):
        list(genai_client.models.generate_content_stream(model="gemini-3", contents="Hi"))
    assert counted(genai_client, requests=2, failed=2)


def test_retries_are_one_request(openai_client, provider):
    client = watch(openai_client).with_options(max_retries=1)
    provider.status = 500
    with pytest.raises(openai.InternalServerError):
        ask_openai(client)
    assert 2 == len(provider.bodies)
    assert counted(client, requests=1, failed=1)


def test_a_timeout(openai_client, provider):
    provider.delay = 0.5
    client = watch(openai_client)
    with pytest.raises(openai.APITimeoutError):
        ask_openai(client, timeout=0.05)
    assert counted(client, requests=1, failed=1)


def test_a_stream_that_is_left(openai_client, anthropic_client):
    stream = ask_openai(watch(openai_client), stream=True, stream_options={"include_usage": True})
    next(iter(stream))
    stream.close()
    with ask_anthropic(watch(anthropic_client), stream=True) as events:
        next(events)
    for client in (openai_client, anthropic_client):
        assert counted(client, requests=1)
        assert 1 == client.prefold.total.unfinished


def test_a_stream_that_breaks_off(anthropic_client, provider):
    provider.cut = 2
    client = watch(anthropic_client)
    assert 2 == len(list(ask_anthropic(client, stream=True)))
    usage = Usage(16, 64, 20, 20, output=1, is_reported=True)
    assert counted(client, requests=1, answered=1, usage=usage)


def test_a_cancelled_task(provider):
    async def cancelled():
        provider.delay = 1
        async with openai.AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="x", max_retries=0) as client:
            task = asyncio.ensure_future(ask_openai(watch(client)))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return client

    assert counted(asyncio.run(cancelled()), requests=1, failed=1)


@pytest.mark.parametrize(
    "place",
    [
        "prefold.clients.bodies.json.dumps",
        "prefold.clients.watcher.compare",
        "prefold.clients.watcher.Prompt.parse",
        "prefold.clients.editing.Prompt.of",
        "prefold.clients.watcher.StreamUsage.feed",
        "prefold.clients.watcher.Worker.submit",
        "prefold.clients.attach._observe_answer",
        "prefold.clients.attach._Begun",
    ],
)
def test_no_fault_of_the_watcher_reaches_a_request(place, openai_client, monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("a fault")

    dumps = json.dumps
    if place.endswith("dumps"):  # the SDK and the provider use it too

        def broken(value, **options):
            if "default" in options:
                raise RuntimeError("a fault")
            return dumps(value, **options)

    caplog.set_level(logging.DEBUG, "prefold.watch")
    monkeypatch.setattr(place, broken)
    client = watch(openai_client, canonicalize=True)
    for _ in range(2):
        assert "Blue." == ask_openai(client).choices[0].message.content
        with ask_openai(client, stream=True) as stream:
            assert 3 == len(list(stream))
    client.prefold.flush()
    assert client.prefold.faults >= 3
    assert 1 == len([record for record in caplog.records if record.levelno == logging.DEBUG])
    assert f"{client.prefold.faults} errors inside the watcher" in client.prefold.report()


def test_a_callback_that_fails(openai_client):
    def broken(_):
        raise RuntimeError("a fault of the application's")

    client = watch(openai_client, on_break=broken)
    for minute in range(3):
        ask_openai(client, system=f"Now: 2026-11-01T10:0{minute}:00Z\n{RULES}")
    client.prefold.flush()
    assert (2, 2) == (client.prefold.total.breaks, client.prefold.faults)


def test_requests_that_come_too_fast_are_counted_but_not_compared(openai_client, monkeypatch):
    released = threading.Event()
    monkeypatch.setattr("prefold.clients.watcher.compare", lambda *_, **__: released.wait(5))
    client = watch(openai_client)
    for _ in range(70):
        ask_openai(client)
    watcher = client.prefold
    assert 0 < watcher.dropped < 10
    released.set()
    assert 70 == watcher.total.answered
    assert f"{watcher.dropped} requests were not compared" in watcher.report()


def test_keys_are_not_kept(openai_client):
    client = watch(openai_client)
    ask_openai(client, extra_headers={"X-Secret": "hunter2"})
    client.prefold.flush()
    seen, waiting = set(), [vars(client.prefold)["_conversations"], vars(client.prefold)["_breaks"]]
    while waiting:
        thing = waiting.pop()
        if id(thing) not in seen and not isinstance(thing, type) and not callable(thing):
            seen.add(id(thing))
            assert not (isinstance(thing, str) and ("hunter2" in thing or "sk-secret" in thing))
            waiting += gc.get_referents(thing)
    assert len(seen) > 10


# At the same time


def test_threads(openai_client):
    client = watch(openai_client)

    def talk(number):
        with client.prefold.label(f"thread {number}"):
            messages = [user(f"I am {number}.")]
            for turn in range(5):
                ask_openai(client, *messages)
                messages += [answer("Blue."), user(f"{number}: and {turn}?")]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(talk, range(8)))
    assert counted(client, requests=40, answered=40, usage=sum([INCLUDED] * 40, Usage()))
    assert {5} == {counters.requests for counters in client.prefold.counters.values()}


def test_tasks(provider):
    async def everything():
        async with anthropic.AsyncAnthropic(base_url=provider.url, api_key="x", max_retries=0) as client:
            watch(client)

            async def talk(number):
                with client.prefold.label(f"task {number}"):
                    messages = [user(f"I am {number}.")]
                    for turn in range(3):
                        await ask_anthropic(client, *messages)
                        messages += [answer("Blue."), user(f"{number}: and {turn}?")]

            await asyncio.gather(*(talk(number) for number in range(8)))
            return client

    client = asyncio.run(everything())
    assert counted(client, requests=24, answered=24, usage=sum([ADDED] * 24, Usage()))
    assert {3} == {counters.requests for counters in client.prefold.counters.values()}


def test_importing_it_imports_no_sdk():
    script = (
        "import sys, prefold.clients; print({'openai', 'anthropic', 'google.genai', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert "set()" == done.stdout.strip()
