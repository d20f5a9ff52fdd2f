from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.gateway import canonical
from prefold.gateway.call import Api, Call, Tenant
from prefold.gateway.canonical import Canonicalizer
from prefold.gateway.config import CanonicalOptions, GroupTable
from prefold.prompts.canonical.canonicalize import DEFAULT_STEPS, Step, canonicalize
from prefold.prompts.prompt import Dialect, Prompt

ON = CanonicalOptions(on=True)


def a_call(body: bytes | dict[str, Any], api: Api = Api.CHAT, salt: str | None = None) -> Call:
    if isinstance(body, dict):
        body = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    tenant = Tenant("a", GroupTable(name="default"), salt)
    return Call(api, body, json.loads(body), "m", False, tenant, {})


def applied(call: Call, options: CanonicalOptions = ON) -> Call:
    asyncio.run(Canonicalizer(options).apply(call))
    return call


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {}, "description": "does it", **more}}


def test_tools_are_sorted_and_all_else_stays():
    call = applied(
        a_call({"model": "m", "tools": [tool("b"), tool("a")], "messages": [{"role": "user", "content": "é"}]})
    )
    names = [entry["function"]["name"] for entry in json.loads(call.body)["tools"]]
    assert ["a", "b"] == names
    assert json.loads(call.body) == call.fields
    assert ["model", "tools", "messages"] == list(call.fields)
    assert ["tool_order", "key_order"] == call.fired


def test_bytes_stay_where_nothing_is_to_change():
    body = b'{"messages":[{"role":"system","content":"a"},{"role":"user","content":"b\\n"}],"model":"m","seed":1}'
    call = a_call(body)
    fields = call.fields
    applied(call)
    assert body is call.body
    assert fields is call.fields
    assert [] == call.fired


def test_off_is_off():
    body = b'{ "messages" : [] }'
    call = applied(a_call(body), CanonicalOptions())
    assert body is call.body
    assert [] == call.fired


def test_white_space_between_fields():
    call = applied(a_call(b'{"model":"m", "messages":[{"role":"user","content":"b"}]}'))
    assert b'{"model":"m","messages":[{"role":"user","content":"b"}]}' == call.body
    assert ["json_whitespace"] == call.fired


def test_only_the_steps_that_are_named():
    body = b'{"model":"m", "tools":[{"name":"b"},{"name":"a"}],"messages":[],"temperature":1e-1}'
    call = applied(a_call(body), CanonicalOptions(on=True, steps=("tool_order",)))
    assert b'{"model":"m", "tools":[{"name":"a"},{"name":"b"}],"messages":[],"temperature":1e-1}' == call.body
    assert ["tool_order"] == call.fired


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[1],"tools":[ ]}',
        b'{"messages":[{"role":5}],"tools":[ ]}',
        b'{"messages":[{"role":"user","content":7}],"tools":[ ]}',
        b'{"messages":"none","tools":[ ]}',
        b'{"messages":[],"tools": 5}',
    ],
)
def test_a_body_that_has_not_the_form_goes_on_as_it_is(body: bytes):
    call = applied(a_call(body))
    assert body == call.body
    assert [] == call.fired


def test_embeddings_are_no_prompt():
    body = b'{"input" : "a"}'
    assert body == applied(a_call(body, Api.EMBEDDINGS)).body


def test_a_field_that_is_there_twice_keeps_its_last_value():
    call = applied(a_call(b'{"model":"a","model":"b","messages":[]}'))
    assert b'{"model":"b","messages":[]}' == call.body
    assert {"model": "b", "messages": []} == call.fields


TEXTS = st.sampled_from(["a", "é", "e\u0301", "x\r\ny", '"\\', "日本", ""])
NUMBERS = st.sampled_from(["1", "1.0", "1e2", "0.50", "-0.0", "100000000000000000000"])
ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool"])


def written(value: object, draw: Any) -> str:
    """JSON in some client's spelling."""
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " : ")]))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), separators=separators)
    return text.replace('"NUMBER"', draw(NUMBERS))


@st.composite
def bodies(draw: Any) -> tuple[Api, bytes]:
    api = draw(st.sampled_from([Api.CHAT, Api.MESSAGES, Api.RESPONSES, Api.COMPLETIONS]))
    block = st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS})
    content = st.one_of(TEXTS, st.lists(block, max_size=2))
    messages = st.lists(st.fixed_dictionaries({"role": ROLES, "content": content}), max_size=5)
    parameters = {"type": "object", "b": "NUMBER", "a": [{"z": 1, "description": draw(TEXTS)}]}
    tools = st.lists(st.builds(lambda name: tool(name, parameters=parameters), st.sampled_from("abc")), max_size=3)
    fields: dict[str, Any] = {"model": "m", "temperature": "NUMBER", draw(TEXTS): draw(TEXTS), "tools": draw(tools)}
    match api:
        case Api.COMPLETIONS:
            fields["prompt"] = draw(st.one_of(TEXTS, st.lists(TEXTS), st.just([1, 2])))
        case Api.RESPONSES:
            fields |= {"instructions": draw(TEXTS), "input": draw(st.one_of(TEXTS, messages))}
        case Api.MESSAGES:
            fields |= {"system": draw(content), "messages": draw(messages)}
        case _:
            fields["messages"] = draw(messages)
    names = draw(st.permutations(list(fields)))
    return api, written({name: fields[name] for name in names}, draw).encode()


DIALECTS = {
    Api.CHAT: Dialect.OPENAI,
    Api.MESSAGES: Dialect.ANTHROPIC,
    Api.RESPONSES: Dialect.RESPONSES,
    Api.COMPLETIONS: Dialect.COMPLETION,
}


@given(st.data())
def test_pieces_become_what_the_whole_would(data: st.DataObject):
    """Several requests through one canonicaliser, so that remembered pieces are used too."""
    canonicalizer = Canonicalizer(ON)
    for _ in range(2):
        api, body = data.draw(bodies())
        expected = canonicalize(Prompt.parse(body, DIALECTS[api]))
        for _ in range(2):
            call = a_call(body, api)
            asyncio.run(canonicalizer.apply(call))
            assert expected.prompt.render() == call.body
            assert expected.prompt.value == call.fields
            assert ([] == call.fired) is (body == call.body)
            assert set(call.fired) <= {step.value for step in DEFAULT_STEPS}


def test_a_step_across_messages_sees_all_of_them():
    documents = [{"type": "document", "source": {"type": "text", "data": name}, "title": name} for name in ("b", "a")]
    body = {"model": "claude", "messages": [{"role": "user", "content": documents}]}
    steps = [*DEFAULT_STEPS, Step.DOCUMENT_ORDER]
    expected = canonicalize(Prompt.of(body, Dialect.ANTHROPIC), steps).prompt.render()
    call = applied(a_call(body, Api.MESSAGES), CanonicalOptions(on=True, steps=tuple(step.value for step in steps)))
    assert expected == call.body


def count_canonicalised(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    seen: list[bytes] = []
    original = canonical.canonicalize

    def counting(prompt: Prompt, steps: Any) -> Any:
        seen.append(prompt.render())
        return original(prompt, steps)

    monkeypatch.setattr(canonical, "canonicalize", counting)
    return seen


def test_the_next_turn_costs_its_new_messages_only(monkeypatch: pytest.MonkeyPatch):
    seen = count_canonicalised(monkeypatch)
    canonicalizer = Canonicalizer(ON)
    turn = {"tools": [tool("b"), tool("a")], "messages": [{"role": "system", "content": "rules " * 900}], "model": "m"}
    for number in range(4):
        turn["messages"] = [*turn["messages"], {"role": "user", "content": f"{number} " * 100}]
        call = a_call(turn)
        asyncio.run(canonicalizer.apply(call))
        assert ["tool_order", "key_order"] == call.fired
    assert 2 + 4 == len(seen)  # the front, the parameters, and each message once


def test_what_a_tenant_sent_makes_no_other_ones_request_faster(monkeypatch: pytest.MonkeyPatch):
    seen = count_canonicalised(monkeypatch)
    canonicalizer = Canonicalizer(ON)
    body = {"messages": [{"role": "user", "content": "secret"}]}
    for salt in ("one", "another", "one"):
        asyncio.run(canonicalizer.apply(a_call(body, salt=salt)))
    assert 2 * 3 == len(seen)


def test_what_is_remembered_is_bounded():
    canonicalizer = Canonicalizer(ON, capacity=10_000)
    for number in range(1_000):
        asyncio.run(canonicalizer.apply(a_call({"messages": [{"role": "system", "content": f"{number}\r\n" * 50}]})))
    assert canonicalizer._size <= 10_000
    assert 0 < len(canonicalizer._known) <= 10_000 // 300
