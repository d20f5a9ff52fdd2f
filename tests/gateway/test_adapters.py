"""LoRA adapters: what one of them, or the base model, has cached means nothing to another."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

pytest.importorskip("httptools")
pytest.importorskip("zmq")

from tests.gateway.support import Peer, Request, Upstream, running
from tests.gateway.test_router import Known, call_of, fleet, route

from prefold.gateway.config import GatewayConfig, ReplicaTable, RoutingOptions
from prefold.gateway.events.decode import decode_batch
from prefold.gateway.events.places import Places
from prefold.gateway.model_cards import read_cards
from prefold.gateway.replicas import Fleet, http_upstreams
from prefold.gateway.router import Router

PROMPT = "abcdefgh"


def stored(**adapter: object) -> bytes:
    """A batch as vLLM 0.32 sends it (time, events, rank), with an event of two blocks of 4 tokens."""
    event = {
        "type": "BlockStored",
        "block_hashes": [b"\x01" * 32, b"\x02" * 32],
        "parent_block_hash": None,
        "token_ids": [*map(ord, PROMPT)],
        "block_size": 4,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        **adapter,
    }
    return msgspec.msgpack.encode([1764500000.0, [event], 0])


def matched_by_model(**adapter: object) -> dict[str, int | None]:
    """Tokens that each model finds at replica 0, once it has sent an event."""
    known = Known({0: 4, 1: 4})
    replicas = fleet("a", "b")
    for replica in replicas.replicas:
        replica.models, replica.adapters = frozenset({"m", "sql", "law"}), frozenset({"sql", "law"})
    [event] = decode_batch(stored(**adapter)).events
    known.index.add(0, Places(known.index, 4, 100).stored(event).keys)
    router = Router(replicas, known, RoutingOptions(policy="exact"))
    return {name: route(router, call_of(f"{PROMPT}xy", model=name)).matched for name in ("m", "sql", "law")}


SQL = {"lora_id": 1, "lora_name": "sql", "extra_keys": [["sql"], ["sql"]]}


def test_an_adapters_blocks_are_its_own():
    assert {"m": 0, "sql": 8, "law": 0} == matched_by_model(**SQL)


def test_the_base_models_blocks_are_no_adapters():
    assert {"m": 8, "sql": 0, "law": 0} == matched_by_model()


def test_an_adapter_without_a_name_matches_nobody():
    assert {"m": 0, "sql": 0, "law": 0} == matched_by_model(lora_id=1)


CARDS = [
    {"id": "m", "object": "model", "root": "/models/m", "parent": None},
    {"id": "sql", "object": "model", "root": "/adapters/sql", "parent": "m"},
]


@pytest.mark.parametrize("models", [(), ("m", "sql")])
def test_servers_say_which_names_are_adapters(models: tuple[str, ...]):
    class Server(Upstream):
        async def _page(self, peer: Peer) -> None:
            assert isinstance(peer.request, Request)
            await peer.answer(200, {"object": "list", "data": CARDS})

    server = Server("a")

    async def main() -> None:
        table = ReplicaTable(name="a", url=server.url, models=models, events="tcp://127.0.0.1:1")
        replicas = Fleet(GatewayConfig(replica=(table,)), http_upstreams({}), clock=lambda: 0.0)
        await replicas.check()
        [replica] = replicas.replicas
        assert ({"m", "sql"}, {"sql"}) == (replica.models, replica.adapters)
        await replicas.close()

    with running(server):
        asyncio.run(main())


def test_what_is_no_list_of_models():
    assert [()] * 2 == [read_cards(b"{}"), read_cards(b"[")]
    assert ["m", "sql"] == [card.id for card in read_cards(json.dumps({"data": CARDS}).encode())]
