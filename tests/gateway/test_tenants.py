"""Nothing that one tenant sent ever reaches another, whatever they send, at every level, with answers kept."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")

from tests.gateway.support import (
    MODEL,
    USAGE,
    Peer,
    RunningGateway,
    Upstream,
    chunk_of,
    completion_of,
    config_of,
    running,
    serving,
    sse,
)

from prefold.gateway.config import GroupTable, Isolation
from prefold.gateway.tenants import derived_salt

SECRET = "0123456789abcdef" * 4
LEVELS = {"open": "shared", "front": "shared-system", "apart": "isolated", "own": "dedicated"}
TENANTS = {f"{group}{number}": group for group in LEVELS for number in (1, 2)}
SALTS = {
    tenant: derived_salt(SECRET, tenant, GroupTable(name=group, isolation=Isolation(LEVELS[group])))
    for tenant, group in TENANTS.items()
}
SYSTEM = "Rules that all tenants send. " * 20


@dataclass(frozen=True)
class Sent:
    """A request of a tenant."""

    tenant: str
    prompt: int
    salt: str | None
    stream: bool
    greedy: bool

    @property
    def body(self) -> dict:
        fields = {
            "model": MODEL,
            "messages": [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": f"Question {self.prompt}"},
            ],
        }
        if self.salt is not None:
            fields["cache_salt"] = self.salt
        if self.stream:
            fields["stream"] = True
        if self.greedy:
            fields["temperature"] = 0
        return fields


requests = st.builds(
    Sent,
    st.sampled_from(sorted(TENANTS)),
    st.integers(0, 1),
    # Nothing, one that several choose, and those that the gateway gives to others.
    st.sampled_from([None, "mine", *[salt for salt in SALTS.values() if salt]]),
    st.booleans(),
    st.booleans(),
)


@dataclass
class Place:
    """The gateway, and what its upstreams saw."""

    gateway: RunningGateway
    shared: Upstream
    own: Upstream

    def ask(self, sent: Sent) -> tuple[Sent, str, str]:
        """Who was told what, and where that came from."""
        reply = self.gateway.post(sent.body, x_prefold_tenant=sent.tenant, x_client=sent.tenant)
        assert 200 == reply.status
        return sent, reply.body.decode(), reply.headers["x-prefold-cache"]

    @property
    def seen(self) -> list[tuple[Upstream, str, dict]]:
        """Replica, sender and body of all that was sent on."""
        return [
            (upstream, request.headers["x-client"], request.json)
            for upstream in (self.shared, self.own)
            for request in upstream.requests
        ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    numbers = itertools.count()

    async def tell_whose(peer: Peer) -> None:
        """An answer that says who asked for it, and is like no other."""
        await asyncio.sleep(0.002)  # so that others come meanwhile
        text = f"<{peer.request.headers['x-client']}> {next(numbers)}"
        if peer.request.json.get("stream"):
            await peer.begin_events()
            await peer.events(sse(chunk_of({"content": text}), {**chunk_of({}, "stop"), "usage": USAGE}, "[DONE]"))
            await peer.end_events()
        else:
            await peer.answer(200, completion_of(text))

    shared, own = Upstream("shared", tell_whose), Upstream("own", tell_whose)
    more = """
[access]
by = "header"
salt_secret = { env = "SECRET" }
[answers]
mode = "on"
[health]
verify_caching = false
"""
    for group, level in LEVELS.items():
        more += f'[[group]]\nname = "{group}"\nisolation = "{level}"\n'
    for tenant, group in TENANTS.items():
        more += f'[[tenant]]\nname = "{tenant}"\ngroup = "{group}"\n'
    with running(shared, own):
        config = config_of(shared, kind="prefold") + config_of(own, kind="prefold", replica='groups = ["own"]') + more
        folder = tmp_path_factory.mktemp("gateway")
        with serving(config, folder, environ={"SECRET": SECRET}) as gateway:
            yield Place(gateway, shared, own)


@settings(max_examples=40)
@given(st.lists(st.lists(requests, min_size=1, max_size=6), min_size=1, max_size=4))
def test_mixes_of_tenants(place: Place, batches: list[list[Sent]]) -> None:
    place.shared.requests.clear()
    place.own.requests.clear()
    with ThreadPoolExecutor(6) as pool:
        told = [answer for batch in batches for answer in pool.map(place.ask, batch)]
    for sent, text, _ in told:
        assert f"<{sent.tenant}>" in text
        assert 1 == text.count("<")
    owners: dict[str, str] = {}
    for upstream, tenant, body in place.seen:
        group = TENANTS[tenant]
        assert (upstream is place.own) is (group == "own")
        salt = body.get("cache_salt")
        if group == "open":
            assert salt is None or salt in ("mine", *SALTS.values())  # as the client wrote it
            continue
        assert 64 == len(salt)
        assert salt == SALTS[tenant] or salt not in SALTS.values()
        owner = group if group == "own" else tenant
        assert owner == owners.setdefault(salt, owner)
        assert ({"message": 1} if group == "front" else None) == body.get("cache_salt_from")


def test_the_same_question_of_all_is_asked_once_for_each(place: Place) -> None:
    place.shared.requests.clear()
    place.own.requests.clear()
    asks = [Sent(tenant, 7, None, stream=False, greedy=True) for tenant in TENANTS for _ in range(3)]
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(place.ask, asks))
    assert sorted(TENANTS) == sorted(tenant for _, tenant, _ in place.seen)
    assert {"miss", "hit", "shared"} >= {source for _, _, source in told} > {"miss"}


def test_who_is_nobody_is_told_nothing(place: Place) -> None:
    body = Sent("open1", 7, None, stream=False, greedy=True).body
    for name in ("", "no body", "x" * 200, "a\u00e9"):
        assert 401 == place.gateway.post(body, x_prefold_tenant=name).status
    assert 401 == place.gateway.post(body).status


def test_what_another_tenant_may_have_stored_is_not_asked_for(place: Place) -> None:
    sent = {"model": MODEL, "input": "And?", "previous_response_id": "resp_1"}
    for tenant, status in (("open1", 200), ("front1", 400), ("apart1", 400), ("own1", 200)):
        before = [upstream.requests.copy() for upstream in (place.shared, place.own)]
        reply = place.gateway.post(sent, "/v1/responses", x_prefold_tenant=tenant, x_client=tenant)
        assert status == reply.status
        asked = before != [upstream.requests for upstream in (place.shared, place.own)]
        assert (status == 200) == asked
        if not asked:
            assert "previous_response_id" == reply.json["error"]["param"]


def test_tenants_see_no_salts_and_no_one_elses_names(place: Place) -> None:
    for path in ("/metrics", "/prefold/replicas", "/prefold/config", "/v1/models"):
        reply = place.gateway.get(path, x_prefold_tenant="apart1")
        assert (200 if path == "/v1/models" else 404) == reply.status
        assert b"apart2" not in reply.body
    told = place.gateway.post(
        Sent("apart1", 1, None, False, False).body, x_prefold_tenant="apart1", x_prefold_explain="1"
    )
    assert ("shared", "isolated") == (told.json["replica"], told.json["isolation"])
    everything = place.gateway.metrics + json.dumps(told.json) + json.dumps(told.headers)
    assert not [salt for salt in SALTS.values() if salt and salt in everything]
