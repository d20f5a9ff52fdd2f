"""Salts in bodies: what is set, and that nothing else changes."""

import asyncio
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prefold.core.keys import SHARED, Scope, check_salt
from prefold.core.tokens import count
from prefold.engine.tokenizer import Tokenizer
from prefold.errors import InvalidRequest
from prefold.gateway.call import Api, Call, Tenant
from prefold.gateway.config import GroupTable, Isolation, Kind
from prefold.gateway.isolation import (
    check_references,
    effective_salt,
    routing_scope,
    shared_messages,
    takes_salt,
    with_salt,
)
from prefold.gateway.prompt_tokens import PromptTokens
from prefold.server.asgi import HttpError
from prefold.server.fields import read_json
from prefold.server.openai_requests import ServedModel, parse_chat

SALT = "ab" * 32
SALTED = [Kind.PREFOLD, Kind.VLLM, Kind.SGLANG]
UNSALTED = [Kind.LLAMACPP, Kind.OPENAI, Kind.ANTHROPIC, Kind.OTHER]
CHAT = {"model": "m", "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]}


def call(body, isolation=Isolation.ISOLATED, *, api=Api.CHAT, salt=SALT):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    tenant = Tenant("acme", GroupTable(name="g", isolation=isolation), None if isolation is Isolation.SHARED else salt)
    return Call(api, body, json.loads(body), "m", False, tenant, {})


def sent(of, kind=Kind.VLLM):
    return json.loads(with_salt(of, kind))


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("body", [b'{"model":"m"}', b'{"cache_salt": "mine"}'])
def test_who_shares_sends_its_own_bytes(kind, body):
    of = call(body, Isolation.SHARED)
    assert body is with_salt(of, kind)


def test_what_meets_no_cache_has_no_salt():
    assert b"{}" == with_salt(call(b"{}", api=Api.COUNT_TOKENS), Kind.VLLM)


def test_embeddings_have_the_tenants_salt_or_are_refused():
    embedded = call({"input": "x", "cache_salt": "mine"}, api=Api.EMBEDDINGS)
    assert {"input": "x", "cache_salt": effective_salt(embedded)} == sent(embedded, Kind.VLLM)
    assert "mine" != effective_salt(embedded)
    for kind in (Kind.PREFOLD, Kind.SGLANG):
        with pytest.raises(HttpError, match="apart at /v1/embeddings"):
            with_salt(embedded, kind)


@pytest.mark.parametrize("kind", SALTED)
@pytest.mark.parametrize("isolation", [Isolation.ISOLATED, Isolation.SHARED_SYSTEM, Isolation.DEDICATED])
def test_the_tenants_salt_comes_first(kind, isolation):
    written = with_salt(call(b' { "model":"m", "prompt": "p"}', isolation, api=Api.COMPLETIONS), kind)
    assert f' {{"cache_salt":"{SALT}", "model":"m", "prompt": "p"}}'.encode() == written


def test_an_empty_object():
    assert f'{{"cache_salt":"{SALT}" }}'.encode() == with_salt(call(b"{ }"), Kind.VLLM)


@pytest.mark.parametrize("kind", UNSALTED)
def test_replicas_without_salts(kind):
    body = b'{"model":"m"}'
    assert body == with_salt(call(body, Isolation.DEDICATED), kind)
    for isolation in (Isolation.ISOLATED, Isolation.SHARED_SYSTEM):
        with pytest.raises(HttpError, match="apart") as error:
            with_salt(call(body, isolation), kind)
        assert 503 == error.value.status
    assert not takes_salt(kind)


def test_sglang_drops_salts_of_messages():
    with pytest.raises(HttpError, match="/v1/messages"):
        with_salt(call(CHAT, api=Api.MESSAGES), Kind.SGLANG)
    assert SALT == sent(call(CHAT, api=Api.MESSAGES), Kind.VLLM)["cache_salt"]


def test_a_clients_salt_divides_what_its_tenant_has_and_never_passes():
    salts = [
        effective_salt(call({"cache_salt": "mine"})),
        effective_salt(call({"cache_salt": "other"})),
        effective_salt(call({"cache_salt": ""})),
        effective_salt(call({"cache_salt": SALT})),
        effective_salt(call({"cache_salt": "mine"}, salt="cd" * 32)),
        effective_salt(call({"cache_salt": "\ud800"})),
        effective_salt(call({})),
        effective_salt(call({}, salt="cd" * 32)),
    ]
    assert len(salts) == len(set(salts))
    assert all(64 == len(check_salt(salt)) for salt in salts)
    assert SALT == effective_salt(call({"cache_salt": None}))
    assert "mine" == effective_salt(call({"cache_salt": "mine"}, Isolation.SHARED))
    assert salts[0] == sent(call({"cache_salt": "mine"}))["cache_salt"]


@pytest.mark.parametrize("field", ["rid", "request_id"])
def test_a_client_names_requests_of_its_own_tenant_alone(field):
    ann, bob = (sent(call({field: "one"}, salt=salt))[field] for salt in (SALT, "cd" * 32))
    assert ann == sent(call({field: "one"}))[field]
    assert 3 == len({"one", ann, bob})
    assert ann != sent(call({field: ann}))[field]
    assert [ann, sent(call({field: "two"}))[field]] == sent(call({field: ["one", "two"]}))[field]
    assert f'{{"cache_salt":"{SALT}","{field}":"{ann}", "{field}":"{ann}"}}'.encode() == with_salt(
        call(f'{{"{field}":"other", "{field}":"one"}}'.encode()), Kind.SGLANG
    )
    assert [5, None] == [sent(call({field: value}))[field] for value in (5, None)]
    assert "one" == sent(call({field: "one"}, Isolation.SHARED))[field]


ELSEWHERE = [
    (Api.RESPONSES, {"previous_response_id": "resp_1"}),
    (Api.RESPONSES, {"conversation": "conv_1"}),
    (Api.RESPONSES, {"prompt": {"id": "pmpt_1"}}),
    (Api.RESPONSES, {"input": [{"role": "user", "content": "Hello"}, {"type": "item_reference", "id": "msg_1"}]}),
    (Api.RESPONSES, {"input": [{"id": "msg_1"}]}),
    (Api.CHAT, {"kv_transfer_params": {"remote_block_ids": [1]}}),
    (Api.COMPLETIONS, {"session_params": {"id": "s"}}),
    (Api.CHAT, {"bootstrap_room": 1}),
]


@pytest.mark.parametrize(("api", "body"), ELSEWHERE)
def test_what_a_server_holds_is_not_named_where_tenants_are_apart(api, body):
    for isolation in (Isolation.ISOLATED, Isolation.SHARED_SYSTEM):
        with pytest.raises(InvalidRequest, match="not keep that apart") as error:
            check_references(call(body, isolation, api=api))
        assert next(iter(body)) == error.value.param
    for isolation in (Isolation.SHARED, Isolation.DEDICATED):
        check_references(call(body, isolation, api=api))


def test_what_names_nothing_passes_and_is_nothing_for_every_parser():
    for fields in ({"previous_response_id": None, "input": [{"role": "user", "content": "x"}, "odd"]}, {"input": 5}):
        check_references(call(fields, api=Api.RESPONSES))
    check_references(call({"prompt": "text"}, api=Api.COMPLETIONS))
    twice = call(b'{"previous_response_id":"resp_1", "previous_response_id":null}', api=Api.RESPONSES)
    check_references(twice)
    assert f'{{"cache_salt":"{SALT}","previous_response_id":null, "previous_response_id":null}}'.encode() == with_salt(
        twice, Kind.VLLM
    )


@pytest.mark.parametrize("salt", [5, True, ["a"], {"a": 1}])
def test_a_salt_that_is_none(salt):
    with pytest.raises(InvalidRequest, match="cache_salt"):
        with_salt(call({"cache_salt": salt}), Kind.VLLM)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            b'{"a":1, "cache_salt" : "x\\"},{" ,"b":{"cache_salt":"y"}}',
            b'{"a":1, "cache_salt" : @ ,"b":{"cache_salt":"y"}}',
        ),
        (b'{"cache_salt":"x","cache_salt"\n:\t"z"}', b'{"cache_salt":@,"cache_salt"\n:\t@}'),
        (b'{"cache\\u005fsalt":"x"}', b'{"cache\\u005fsalt":@}'),
        (b'{"cache_salt":null}', b'{"cache_salt":@}'),
        ('{"\u00e9":"\u4e2d","cache_salt":"\U0001f600"}\n'.encode(), '{"\u00e9":"\u4e2d","cache_salt":@}\n'.encode()),
        (b'{"b":[{"cache_salt":1}]}', b'{"cache_salt":@,"b":[{"cache_salt":1}]}'),
    ],
)
def test_salts_are_replaced_where_they_stand(body, expected):
    of = call(body)
    assert expected.replace(b"@", b'"%b"' % str(effective_salt(of)).encode()) == with_salt(of, Kind.VLLM)


def test_what_is_shared_with_prefold():
    assert {"cache_salt": SALT, "cache_salt_from": {"message": 1}, **CHAT} == sent(
        call(CHAT, Isolation.SHARED_SYSTEM), Kind.PREFOLD
    )
    assert {"cache_salt": SALT, **CHAT} == sent(call(CHAT, Isolation.SHARED_SYSTEM), Kind.VLLM)
    assert {"cache_salt": SALT, **CHAT} == sent(call(CHAT, Isolation.ISOLATED), Kind.PREFOLD)


@pytest.mark.parametrize("begin", [100, {"message": 2}, "x"])
def test_a_client_cannot_move_the_salt(begin):
    body = {**CHAT, "cache_salt_from": begin}
    assert None is sent(call(body), Kind.PREFOLD)["cache_salt_from"]
    assert {"message": 1} == sent(call(body, Isolation.SHARED_SYSTEM), Kind.PREFOLD)["cache_salt_from"]
    completion = call({"prompt": "p", "cache_salt_from": begin}, Isolation.SHARED_SYSTEM, api=Api.COMPLETIONS)
    assert None is sent(completion, Kind.PREFOLD)["cache_salt_from"]


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (["system", "user"], 1),
        (["developer", "system", "user", "system"], 2),
        (["user"], 0),
        (["system"], 1),
        ([None, "user"], 0),
    ],
)
def test_messages_of_the_system(roles, expected):
    of = call({"messages": [{"role": role} for role in roles]}, Isolation.SHARED_SYSTEM)
    assert expected == shared_messages(of)
    assert 0 == shared_messages(call({"messages": of.fields["messages"]}))


@pytest.mark.parametrize("messages", [None, "x", {}, ["x"], [None]])
def test_messages_that_are_none(messages):
    assert 0 == shared_messages(call({"messages": messages}, Isolation.SHARED_SYSTEM))


# Any JSON text: white space everywhere, keys written with escapes, keys twice.

SPACE = st.text(" \t\n\r", max_size=2)
NAMES = st.sampled_from(["cache_salt", "cache_salt_from", "model", "m\u00e9", 'a"b\\', "{", ","])


def literal(text, escapes):
    """A JSON string, some of it as escapes."""
    if escapes:
        return '"' + "".join(f"\\u{ord(letter):04x}" if ord(letter) < 0x10000 else letter for letter in text) + '"'
    return json.dumps(text, ensure_ascii=False)


STRINGS = st.builds(literal, st.text(st.characters(exclude_categories=["Cs"]), max_size=6), st.booleans())
SCALARS = st.one_of(
    st.sampled_from(["null", "true", "-1.50e+3", "0", '"\\ud800"', '"}"', '",\\"cache_salt\\":"']), STRINGS
)


def joined(opening, items, closing, spaces):
    return opening + ",".join(f"{spaces}{item}{spaces}" for item in items) + spaces + closing


def objects(values):
    member = st.builds(
        lambda name, escapes, space, value: f"{literal(name, escapes)}{space}:{space}{value}",
        NAMES,
        st.booleans(),
        SPACE,
        values,
    )
    return st.builds(joined, st.just("{"), st.lists(member, max_size=5), st.just("}"), SPACE)


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        objects(inner), st.builds(joined, st.just("["), st.lists(inner, max_size=3), st.just("]"), SPACE)
    ),
    max_leaves=8,
)


@given(st.builds(lambda before, text, after: before + text + after, SPACE, objects(VALUES), SPACE))
@example("{}")
@example('{"cache_salt":{"cache_salt":"x"},"cache_salt":null}')
def test_every_other_byte_stays(text):
    of = call(text.encode())
    if not isinstance(of.fields.get("cache_salt"), str | None):
        with pytest.raises(InvalidRequest):
            with_salt(of, Kind.PREFOLD)
        return
    written = with_salt(of, Kind.PREFOLD)
    pairs = json.loads(text, object_pairs_hook=list)
    now = json.loads(written, object_pairs_hook=list)
    salt = effective_salt(of)
    new = [] if "cache_salt" in of.fields else [("cache_salt", salt)]
    values = {"cache_salt": salt, "cache_salt_from": None}
    assert [*new, *((key, values.get(key, value)) for key, value in pairs)] == now
    # With the new values taken out again, the bytes are those of the client around its own values.
    if new:
        comma = "," if pairs else ""
        text = text.replace("{", f'{{"cache_salt":"{salt}"{comma}', 1)
    assert without_values(text) == without_values(written.decode())


def without_values(text):
    """A JSON object with nothing where the values of the two fields stand."""
    decoder = json.JSONDecoder()
    left, position = [], text.index("{") + 1
    rest = 0

    def skipped(at):
        while text[at] in " \t\n\r":
            at += 1
        return at

    position = skipped(position)
    while text[position] != "}":
        key, position = decoder.raw_decode(text, position)
        start = skipped(skipped(position) + 1)
        _, end = decoder.raw_decode(text, start)
        if key in ("cache_salt", "cache_salt_from"):
            left.append(text[rest:start])
            rest = end
        position = skipped(end)
        if text[position] == ",":
            position = skipped(position + 1)
    return "".join([*left, text[rest:]])


# Scopes of routing keys


@pytest.fixture(scope="module")
def tokens(default_checkpoint):
    return PromptTokens(Tokenizer(default_checkpoint.folder))


def scope(of, tokens):
    return asyncio.run(routing_scope(of, tokens))


def test_scopes(tokens):
    assert Scope(SALT) == scope(call(CHAT), tokens)
    assert SHARED == scope(call(CHAT, Isolation.SHARED), tokens)
    own = {**CHAT, "cache_salt": "mine"}
    assert Scope("mine") == scope(call(own, Isolation.SHARED), tokens)
    assert Scope("mine", 5) == scope(call({**own, "cache_salt_from": 5}, Isolation.SHARED), tokens)
    assert SHARED == scope(call({**own, "cache_salt": "a/b"}, Isolation.SHARED), tokens)
    assert SHARED == scope(call({**own, "cache_salt_from": -5}, Isolation.SHARED), tokens)
    assert Scope(str(effective_salt(call(own)))) == scope(call({**own, "cache_salt_from": 5}), tokens)


def test_what_the_system_says_lies_before_the_salt(tokens):
    long = {"role": "system", "content": "Rules. " * 50}
    users = [
        call({"messages": [long, {"role": "user", "content": text}]}, Isolation.SHARED_SYSTEM) for text in ("A", "Bb")
    ]
    scopes = [scope(of, tokens) for of in users]
    assert scopes[0] == scopes[1]
    run = asyncio.run(tokens.run(users[0]))
    assert 100 < scopes[0].salt_from < count(run)
    clients = {"messages": users[0].fields["messages"], "cache_salt": "s", "cache_salt_from": {"message": 1}}
    assert scopes[0].salt_from == scope(call(clients, Isolation.SHARED), tokens).salt_from
    no_system = call({"messages": [{"role": "user", "content": "A"}]}, Isolation.SHARED_SYSTEM)
    assert Scope(SALT) == scope(no_system, tokens)


@pytest.mark.parametrize("isolation", list(Isolation))
@pytest.mark.parametrize("own", [{}, {"cache_salt": "mine"}, {"cache_salt": "mine", "cache_salt_from": {"message": 1}}])
@pytest.mark.parametrize("messages", [CHAT["messages"], CHAT["messages"][:1], CHAT["messages"][1:]])
def test_the_engine_keeps_apart_what_the_router_does(tokens, default_checkpoint, isolation, own, messages):
    of = call({"messages": messages, **own}, isolation)
    tokenizer = Tokenizer(default_checkpoint.folder)
    model = ServedModel(("m",), tokenizer, tokenizer.vocab_size, 8_192)
    prompt = parse_chat(read_json(with_salt(of, Kind.PREFOLD)), model).prompts[0]
    assert prompt.scope == scope(of, tokens)
