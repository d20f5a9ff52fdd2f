from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("httptools")

from prefold.core.block_index import BlockIndex
from prefold.core.routing import Why
from prefold.core.tokens import pack
from prefold.gateway.call import Api, Call, Tenant
from prefold.gateway.config import GatewayConfig, GroupTable, Isolation, Kind, ReplicaTable, RoutingOptions
from prefold.gateway.replicas import Fleet
from prefold.gateway.router import Decision, Router
from prefold.gateway.tenants import derived_salt
from prefold.server.asgi import HttpError

SECRET = "s" * 64
ISOLATED = GroupTable(name="i", isolation=Isolation.ISOLATED)


def fleet(*names: str, kind: Kind = Kind.PREFOLD) -> Fleet:
    tables = tuple(
        ReplicaTable(name=name, url=f"http://127.0.0.1:{9 + at}", kind=kind, models=("m",))
        for at, name in enumerate(names)
    )
    return Fleet(GatewayConfig(replica=tables), lambda table, options: None, clock=lambda: 0.0)


class Words:
    """Tokenises a chat: a token for each letter of its messages."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, call: Call) -> bytes | None:
        self.calls += 1
        if call.api is not Api.CHAT:
            return None
        await asyncio.sleep(0)
        return pack([ord(letter) for message in call.fields["messages"] for letter in message["content"]])


@dataclass
class Known:
    """What stands in for events: replicas in it send them."""

    sizes: dict[int, int] = field(default_factory=dict)
    words: Words = field(default_factory=Words)
    index: BlockIndex = field(default_factory=lambda: BlockIndex(1_000))
    predicted: list[tuple[int, int]] = field(default_factory=list)

    def block_size(self, index: int) -> int | None:
        return self.sizes.get(index)

    def tokens_of(self, index: int) -> Words:
        return self.words

    def predict(self, index: int, keys: Sequence[int]) -> None:
        self.predicted.append((index, len(keys)))
        self.index.add(index, keys)


def call_of(text: str, api: Api = Api.CHAT, *, tenant: str = "t", group: GroupTable | None = None, **more: Any) -> Call:
    group = group or GroupTable(name="default")
    fields = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    who = Tenant(tenant, group, derived_salt(SECRET, tenant, group))
    return Call(
        api, json.dumps(fields).encode(), fields, fields["model"], False, who, {}, fields.get("prompt_cache_key", "")
    )


def route(router: Router, call: Call, tried: Sequence[int] = ()) -> Decision:
    return asyncio.run(router.route(call, tried=tried))


def test_one_replica_is_no_choice():
    decision = route(Router(fleet("a"), Known(), RoutingOptions()), call_of("Hello"))
    assert ("a", Why.ONLY_ONE, None) == (decision.name, decision.why, decision.matched)
    assert len(call_of("Hello").body) // 4 == decision.tokens


@pytest.mark.parametrize(
    ("more", "ttft", "calls"), [({}, "natural", 0), ({"is_explained": True}, "natural", 1), ({}, "uniform", 1)]
)
def test_where_there_is_no_choice_nobody_tokenises_unasked(more: dict[str, bool], ttft: Any, calls: int):
    known = Known(sizes={0: 4})
    router = Router(fleet("a"), known, RoutingOptions(policy="exact"))
    call = call_of("abcdefghij", group=GroupTable(name="default", ttft=ttft))
    decision = asyncio.run(router.route(call, **more))
    assert (calls, 0 if calls else None) == (known.words.calls, decision.matched)
    assert Why.ONLY_ONE is decision.why


def test_the_beginning_decides_and_the_rest_does_not():
    router = Router(fleet("a", "b", "c", "d"), Known(), RoutingOptions(hash_tokens=64))
    home = {route(router, call_of("x" * 300 + str(turn))).name for turn in range(10)}
    assert 1 == len(home)
    elsewhere = {route(router, call_of(f"{turn} {'x' * 300}")).name for turn in range(20)}
    assert 1 < len(elsewhere)


def test_tools_and_system_come_before_messages():
    router = Router(fleet(*"abcdefgh"), Known(), RoutingOptions(hash_tokens=16))
    tools = [{"name": "t" * 100}]
    assert 1 == len({route(router, call_of(f"{turn}", tools=tools)).name for turn in range(20)})
    assert 1 == len({route(router, call_of(f"{turn}", Api.MESSAGES, system="s" * 100)).name for turn in range(20)})
    assert 1 < len({route(router, call_of(f"{turn}", system="s" * 100)).name for turn in range(20)})  # chat has no such


@pytest.mark.parametrize(
    ("api", "name"),
    [(Api.COMPLETIONS, "prompt"), (Api.RESPONSES, "input"), (Api.EMBEDDINGS, "input"), (Api.COUNT_TOKENS, "system")],
)
def test_every_api_has_a_beginning(api: Api, name: str):
    router = Router(fleet(*"abcdefgh"), Known(), RoutingOptions(hash_tokens=16))
    assert 1 == len({route(router, call_of("", api, **{name: "x" * 100})).name for _ in range(10)})
    assert 1 < len({route(router, call_of("", api, **{name: f"{turn}{'x' * 100}"})).name for turn in range(20)})


def test_salts_keep_beginnings_apart():
    router = Router(fleet(*"abcdefgh"), Known(), RoutingOptions())
    apart = {route(router, call_of("Hello", tenant=f"t{number}", group=ISOLATED)).name for number in range(20)}
    assert 1 < len(apart)
    assert 1 == len({route(router, call_of("Hello", tenant=f"t{number}")).name for number in range(20)})
    assert 1 < len({route(router, call_of("Hello", cache_salt=f"{number}")).name for number in range(20)})


def test_those_that_failed_are_left_out():
    router = Router(fleet("a", "b", "c"), Known(), RoutingOptions(policy="round_robin"))
    assert {0, 2} == {route(router, call_of("Hello"), tried=[1]).replica for _ in range(6)}
    decision = route(router, call_of("Hello"), tried=[0, 1])
    assert (2, Why.ONLY_ONE) == (decision.replica, decision.why)
    assert router.has_others(call_of("Hello"), [0, 1])
    assert not router.has_others(call_of("Hello"), [0, 1, 2])
    with pytest.raises(HttpError) as caught:
        route(router, call_of("Hello"), tried=[0, 1, 2])
    assert 503 == caught.value.status


def test_models_that_are_not_there():
    router = Router(fleet("a"), Known(), RoutingOptions())
    with pytest.raises(HttpError, match="no model 'other'") as caught:
        route(router, call_of("Hello", model="other"))
    assert (404, "model_not_found", "model") == (caught.value.status, caught.value.code, caught.value.param)
    assert not router.has_others(call_of("Hello", model="other"), [])


# Exact


@pytest.fixture
def known() -> Known:
    return Known(sizes={0: 4, 1: 4, 2: 4})


@pytest.fixture
def router(known: Known) -> Router:
    return Router(fleet("a", "b", "c"), known, RoutingOptions(policy="exact"))


def test_where_the_blocks_are(router: Router, known: Known):
    first = route(router, call_of("abcdefghij"))
    assert (Why.FALLBACK, 0, 10, 2) == (first.why, first.matched, first.tokens, len(first.keys))
    router.sent(first)
    assert [(first.replica, 2)] == known.predicted
    again = route(router, call_of("abcdefghXY"))
    assert (first.replica, Why.EXACT, 8) == (again.replica, again.why, again.matched)
    assert 7 == route(router, call_of("abcdefgh")).matched  # the last token has to run
    assert 4 == route(router, call_of("abcdXYZ1")).matched
    assert 0 == route(router, call_of("Xbcdefgh")).matched


def test_anthropics_words_are_the_same_tokens(router: Router):
    router.sent(route(router, call_of("abcdefghij")))
    assert 8 == route(router, call_of("abcdefghij", Api.MESSAGES, max_tokens=1)).matched
    odd = call_of("abcdefghij", Api.MESSAGES, max_tokens="many", tools=7)
    assert None is route(router, odd).matched


def test_responses_are_routed_by_their_prompt(router: Router):
    router.sent(route(router, call_of("abcdefghij")))
    item = {"role": "user", "content": [{"type": "input_text", "text": "abcdefghXY"}]}
    assert 8 == route(router, call_of("", Api.RESPONSES, input=[item])).matched
    assert 8 == route(router, call_of("", Api.RESPONSES, input="abcdefghij")).matched
    assert 8 == route(router, call_of("", Api.RESPONSES, instructions="abcdefgh", input="XY")).matched
    salted = call_of("", Api.RESPONSES, input="abcdefghij", cache_salt="x")
    assert 0 == route(router, salted).matched
    router.sent(route(router, salted))
    assert 8 == route(router, salted).matched
    assert None is route(router, call_of("", Api.RESPONSES, input="abcdefgh", previous_response_id="r")).matched


def test_what_others_hold_is_not_seen(router: Router):
    mine = call_of("abcdefghij", tenant="t1", group=ISOLATED)
    router.sent(route(router, mine))
    assert 8 == route(router, mine).matched
    for other in (call_of("abcdefghij", tenant="t2", group=ISOLATED), call_of("abcdefghij")):
        assert 0 == route(router, other).matched
    salted = call_of("abcdefghij", tenant="t1", group=ISOLATED, cache_salt="x")
    assert 0 == route(router, salted).matched


def test_the_systems_part_may_be_shared_alone(router: Router):
    group = GroupTable(name="s", isolation=Isolation.SHARED_SYSTEM)

    def call(tenant: str, system: str = "abcdefgh") -> Call:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": "ijklmnop"}]
        return call_of("", tenant=tenant, group=group, messages=messages)

    router.sent(route(router, call("t1")))
    assert 15 == route(router, call("t1")).matched
    assert 8 == route(router, call("t2")).matched


def test_nobody_tokenises_where_it_cannot_matter(known: Known):
    for options, sizes in ((RoutingOptions(policy="prefix_hash"), known.sizes), (RoutingOptions(policy="exact"), {})):
        known.sizes = sizes
        assert None is route(Router(fleet("a", "b", "c"), known, options), call_of("abcdefgh")).matched
    assert 0 == known.words.calls
    known.sizes = {0: 4}
    router = Router(fleet("a", "b"), known, RoutingOptions(policy="exact"))
    route(router, call_of("abcdefgh", Api.EMBEDDINGS))
    assert 0 == known.words.calls


@pytest.mark.parametrize("api", [Api.CHAT, Api.COMPLETIONS, Api.MESSAGES, Api.RESPONSES])
def test_bodies_too_large_to_tokenise_go_by_their_beginning(router: Router, known: Known, api: Api):
    text = "a long story " * 100_000
    decisions = [
        route(router, call_of(f"{text}{end}", api, prompt=f"{text}{end}", input=f"{text}{end}")) for end in range(3)
    ]
    assert {(decisions[0].replica, Why.PREFIX_HASH, None)} == {
        (each.replica, each.why, each.matched) for each in decisions
    }
    assert 0 == known.words.calls
    explained = asyncio.run(router.route(call_of(text), is_explained=True))
    assert (None, len(call_of(text).body) // 4) == (explained.matched, explained.tokens)
    uniform = call_of(text, group=GroupTable(name="u", ttft="uniform"))
    assert None is route(Router(fleet("a"), known, RoutingOptions(policy="exact")), uniform).matched
    assert 0 == known.words.calls
    assert Why.FALLBACK is route(router, call_of("abcdefgh", api)).why


def test_replicas_without_trust_or_with_other_blocks_count_by_themselves():
    known = Known(sizes={0: 4, 1: 8})
    router = Router(fleet("a", "b", "c"), known, RoutingOptions(policy="exact"))
    run = pack([ord(letter) for letter in "abcdefghij"])
    for index, size in ((0, 4), (1, 8), (2, 4)):
        known.index.add(index, known.index.keys(run, size)[: 1 if index == 0 else None])
    decision = route(router, call_of("abcdefghij"))
    assert (1, 8) == (decision.replica, decision.matched)
    assert 1 == len(decision.keys)


def test_a_replica_that_goes_while_the_prompt_is_tokenised_is_not_asked(known: Known):
    there = fleet("a", "b", "c")
    router = Router(there, known, RoutingOptions(policy="exact"))
    home = route(router, call_of("abcdefghij"))
    router.sent(home)

    async def main() -> Decision:
        deciding = asyncio.create_task(router.route(call_of("abcdefghij")))
        await asyncio.sleep(0)  # it is tokenising now
        there.replicas[home.replica].condition.is_removed = True
        return await deciding

    assert home.replica != asyncio.run(main()).replica
