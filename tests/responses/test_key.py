"""Which requests share an answer, and which have none to share."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.responses.key import answer_key

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
BASE = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}


def key_of(fields, api=CHAT, tenant="a", headers=None, body=None, **options):
    body = json.dumps(fields).encode() if body is None else body
    return answer_key(api, fields, body, tenant, headers or {}, **options)


def test_the_key_is_the_same_for_ever():
    assert (
        "e07b7ef1f96cea65a6b0ee33a67702d74205ffe00484562f3bcf04d02fbdb604"
        == key_of(BASE, headers={b"authorization": b"Bearer x"}).hex()
    )


names = st.text(st.characters(codec="ascii", exclude_characters='"\\', min_codepoint=32), min_size=1, max_size=12)
values = st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")) | st.lists(st.integers())
IGNORED = {"user", "safety_identifier", "metadata", "prompt_cache_key", "prompt_cache_retention"}
SPECIAL = {"n", "best_of", "seed", "temperature", "prompt", "tools", "messages", "input", "system", "store", "stream"}


@given(names.filter(lambda name: name not in IGNORED | SPECIAL | BASE.keys()), values, values)
def test_a_field_that_nobody_here_knows_keeps_answers_apart(name, one, other):
    without, first = key_of(BASE), key_of({**BASE, name: one})
    second = key_of({**BASE, name: other})
    assert without is not None
    assert without != first
    assert first is None or (first == second) == (json.dumps(one) == json.dumps(other))


@pytest.mark.parametrize(
    "change",
    [
        {"guided_json": {"type": "object"}},
        {"cache_salt": "s"},
        {"stream": True},
        {"stream_options": {"include_usage": True}},
        {"max_tokens": 5},
        {"max_tokens": 5.0},
        {"model": "n"},
        {"temperature": 0.0},
        {"seed": 1},
        {"logprobs": True},
        {"service_tier": "flex"},
        {"messages": [{"content": "hi", "role": "user"}]},
        {"messages": [{"role": "user", "content": "hi "}]},
    ],
    ids=str,
)
def test_what_may_change_the_answer_changes_the_key(change):
    assert key_of(BASE) != key_of({**BASE, **change})
    assert key_of({**BASE, **change}) is not None


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_who_asks_does_not_change_the_key(name):
    assert key_of(BASE) == key_of({**BASE, name: {"user_id": "x"}})


def test_an_answer_that_repeats_who_asked_is_theirs():
    fields = {"model": "m", "input": "hi", "temperature": 0, "store": False}
    assert key_of(fields, RESPONSES) is not None
    assert key_of(fields, RESPONSES) != key_of({**fields, "metadata": {"a": "b"}}, RESPONSES)


def test_order_and_space_between_top_level_fields_change_nothing():
    body = b'{ "temperature" :0,\n "messages": [{"role": "user", "content": "hi"}],"model":"m" }'
    assert key_of(BASE) == key_of(BASE, body=body)


def test_space_and_order_within_a_field_keep_answers_apart():
    assert key_of(BASE) != key_of(BASE, body=json.dumps(BASE, separators=(",", ":")).encode())


@given(st.lists(st.text(max_size=3), min_size=2, max_size=2, unique=True))
def test_tenants_share_nothing(tenants):
    one, other = tenants
    assert key_of(BASE, tenant=one) != key_of(BASE, tenant=other)


def test_neither_do_endpoints():
    fields = {**BASE, "store": False}
    assert 5 == len({key_of(fields, api) for api in (CHAT, "/v1/completions", RESPONSES, MESSAGES, f"{MESSAGES}?beta")})


def test_parts_cannot_be_moved_across_their_borders():
    one = key_of({**BASE, "a": "x", "b": "y"}, body=b'{"a":1,"b":23}')
    other = key_of({**BASE, "a": "x", "b": "y"}, body=b'{"a":12,"b":3}')
    assert one != other


@pytest.mark.parametrize("header", [b"anthropic-version", b"anthropic-beta", b"openai-organization"])
def test_headers_that_choose_a_version_or_an_account_count(header):
    assert key_of(BASE) != key_of(BASE, headers={header: b"x"})


def test_other_headers_do_not():
    assert key_of(BASE) == key_of(BASE, headers={b"user-agent": b"x", b"traceparent": b"y", b"x-stainless-os": b"z"})


@pytest.mark.parametrize(
    "header",
    [b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"cookie", b"x-amz-security-token", b"x-made-up"],
)
def test_credentials_keep_clients_apart_unless_the_gateway_knows_them(header):
    one, other = ({header: value} for value in (b"one", b"other"))
    keys = {key_of(BASE, headers=headers) for headers in (one, other, {header: b""}, {})}
    assert 4 == len(keys)
    assert key_of(BASE, headers=one, by_credentials=False) == key_of(BASE, headers=other, by_credentials=False)


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": None},
        {"temperature": 1},
        {"temperature": False},
        {"temperature": "0"},
        {"temperature": 1, "seed": True},
        {"n": 2},
        {"best_of": 2},
    ],
    ids=str,
)
def test_chance_has_no_key_unless_every_request_has(change):
    assert key_of({**BASE, **change}) is None
    assert key_of({**BASE, **change}, every_request=True) is not None


@pytest.mark.parametrize("change", [{"seed": 3, "temperature": 1}, {"n": 1}, {"temperature": 0.0}], ids=str)
def test_what_is_deterministic_has_one(change):
    assert key_of({**BASE, **change}) is not None


@pytest.mark.parametrize("api", ["/v1/embeddings", "/v1/messages/count_tokens"])
def test_some_endpoints_leave_nothing_to_chance(api):
    assert key_of({"model": "m", "input": ["a", [1, 2]]}, api) is not None


OWN = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    "change",
    [
        {"store": True},
        {"web_search_options": {"a": 1}},
        {"mcp_servers": [{}]},
        {"container": "c"},
        {"previous_response_id": "r"},
        {"prompt": {"id": "p"}},
        {"tools": [OWN, {"type": "web_search_20250305", "name": "w"}]},
        {"tools": [{"type": "code_execution_20250522"}]},
        {"tools": ["a"]},
        {"tools": "a"},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x/y.png"}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
    ],
    ids=str,
)
def test_what_depends_on_the_world_outside_never_has_a_key(change):
    assert key_of({**BASE, **change}, every_request=True) is None


@pytest.mark.parametrize(
    "change",
    [
        {"store": False, "background": False, "previous_response_id": None, "tools": None},
        {"tools": [OWN, {"name": "anthropic's", "input_schema": {}}, {"type": "bash_20250124", "name": "bash"}]},
        {"messages": [{"role": "user", "content": [{"image_url": {"url": "data:image/png;base64,AA=="}}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {"url": "https://x"}}]}]},
        {"messages": [{"role": "user", "content": "see https://example.com"}]},
    ],
    ids=str,
)
def test_what_does_not_has_one(change):
    assert key_of({**BASE, **change}) is not None


def test_responses_are_stored_unless_told_otherwise():
    fields = {"model": "m", "input": "hi", "temperature": 0}
    assert key_of(fields, RESPONSES) is None


@pytest.mark.parametrize("body", [b'{"a":"\\ud800"}', b"{", b"[]", b'{"a":' + b"[" * 9_999 + b"]" * 9_999 + b"}"])
def test_a_body_that_cannot_be_taken_apart_has_none(body):
    assert key_of(BASE, body=body) is None


def test_other_endpoints_have_none():
    assert key_of(BASE, "/v1/models") is None


def test_a_tenant_of_any_text():
    assert key_of(BASE, tenant="\ud800") not in (None, key_of(BASE, tenant="?"))
