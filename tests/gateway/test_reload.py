"""New configurations and endings: what runs goes on."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")

from tests.gateway.support import (
    HELLO,
    PATIENCE,
    Behaviour,
    Peer,
    RunningGateway,
    Upstream,
    chunk_of,
    config_of,
    eventually,
    read_until,
    running,
    serving,
    sse,
    well,
)

from prefold.gateway.tenants import hash_key

STREAM = {**HELLO, "stream": True}


def slowly(release: threading.Event) -> Behaviour:
    """Begins streams at once, and ends them when told."""

    async def behave(peer: Peer) -> None:
        if not peer.request.json.get("stream"):
            await well(peer)
            return
        await peer.begin_events()
        await peer.events(sse(chunk_of({"content": "Once"})))
        while not release.is_set():
            if peer.reader.at_eof():
                return
            await asyncio.sleep(0.005)
        await peer.events(sse(chunk_of({"content": " more"}, "stop"), "[DONE]"))
        await peer.end_events()

    return behave


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def pair(release: threading.Event) -> Iterator[tuple[Upstream, Upstream]]:
    old, new = Upstream("old", slowly(release)), Upstream("new", slowly(release))
    with running(old, new):
        yield old, new


def where(gateway: RunningGateway) -> str:
    return gateway.post().headers["x-prefold-replica"]


def test_a_replica_is_exchanged_under_a_running_stream(
    pair: tuple[Upstream, Upstream], release: threading.Event, tmp_path: Path
) -> None:
    old, new = pair
    with serving(config_of(old), tmp_path) as gateway, gateway.asking(STREAM) as stream:
        read_until(stream, b"Once")
        gateway.reload(config_of(new))
        gateway.check()
        assert "new" == where(gateway)
        assert {"old": "draining", "new": "up"} == gateway.states
        release.set()
        assert read_until(stream, b"[DONE]")
        eventually(lambda: old.running == 0, "the end of the stream")

        def is_gone() -> bool:
            gateway.check()
            return gateway.states == {"new": "up"}

        eventually(is_gone, "the removal")
        gateway.reload(config_of(old))  # which takes the place of the one that is gone
        gateway.check()
        assert "old" == where(gateway)


def test_a_removed_replica_gets_nothing_more_and_a_kept_one_keeps_what_is_known(
    pair: tuple[Upstream, Upstream], tmp_path: Path
) -> None:
    old, new = pair
    with serving(config_of(old, new, more='[routing]\npolicy = "round_robin"'), tmp_path) as gateway:
        assert {"old", "new"} == {where(gateway) for _ in range(2)}
        connections = new.connections
        gateway.reload(config_of(new))
        assert ["new"] * 4 == [where(gateway) for _ in range(4)]
        assert connections == new.connections  # its connections, too
        assert 1 <= gateway.metric("prefold_requests_total", replica="old")  # counts go on


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("[routing]\npolicy = 'nearest'", "routing.policy"),
        ("[[replica]]\nname = 'newer'\nurl = 'nowhere'", "url"),
        ("[access]\nby = 'key'", "no tenant has one"),
        ("[[replica]]\nname='x'\nurl='http://127.0.0.1:1'\napi_key={env='PREFOLD_NOT_THERE'}", "PREFOLD_NOT_THERE"),
        ("= 7", "TOML"),
    ],
)
def test_a_configuration_that_is_wrong_changes_nothing(
    pair: tuple[Upstream, Upstream], tmp_path: Path, caplog: pytest.LogCaptureFixture, more: str, complaint: str
) -> None:
    old, new = pair
    with serving(config_of(old), tmp_path) as gateway:
        with caplog.at_level(logging.ERROR, "prefold.gateway"):
            gateway.reload(config_of(new, more=more))
        assert complaint in caplog.text
        assert "old" == where(gateway)


def test_budgets_models_and_tenants_follow(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    old, _ = pair
    with serving(config_of(old), tmp_path) as gateway:
        assert 200 == gateway.post().status
        gateway.reload(config_of(old, replica='models = ["n"]'))
        assert (404, 200) == (gateway.post().status, gateway.post({**HELLO, "model": "n"}).status)
        gateway.reload(config_of(old, more='[[group]]\nname = "default"\nrequests_per_minute = 1'))
        gateway.check()
        assert (200, 429) == (gateway.post().status, gateway.post().status)
        gateway.reload(
            config_of(old, more='[access]\nby = "header"\n[[group]]\nname = "default"\nrequests_per_minute = 9')
        )
        assert (401, 200) == (gateway.post().status, gateway.post(x_prefold_tenant="ann").status)


def test_what_cannot_change_stays_is_shown_as_it_is_and_is_named(
    pair: tuple[Upstream, Upstream], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, _ = pair
    with serving(config_of(old), tmp_path) as gateway:
        before = gateway.get("/prefold/config").json
        changed = """
        [server]
        port = 1
        body_limit = "1MiB"
        [engine]
        name = "late"
        [routing]
        index_blocks = 7
        predicted_seconds = 9.0
        [answers]
        mode = "on"
        ttl_seconds = 5.0
        [redis]
        url = "redis://127.0.0.1:1/0"
        [metering]
        bodies = "whole"
        tenants = 100
        """
        gateway.reload(config_of(old, more=changed))
        after = gateway.get("/prefold/config").json
        assert {**before["server"], "body_limit": "1MiB"} == after.pop("server")
        assert {**before["routing"], "predicted_seconds": 9.0} == after.pop("routing")
        assert {name: before[name] for name in after} == after
        assert [
            "server.port, engine, routing.index_blocks, answers.mode, answers.ttl_seconds, redis, metering.bodies"
        ] == re.findall("stay as they were: (.*)", caplog.text)
        assert ["off"] * 2 == [gateway.post({**HELLO, "seed": 1}).headers["x-prefold-cache"] for _ in range(2)]


def test_answers_stay_apart_where_nobody_was_asked_who_he_is(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    old, _ = pair
    on = '[answers]\nmode = "on"\nevery_request = true\n'

    def source(gateway: RunningGateway, key: str, **headers: str) -> str:
        return gateway.post(authorization=f"Bearer {key}", **headers).headers["x-prefold-cache"]

    with serving(config_of(old, more=on), tmp_path) as gateway:
        assert ["miss", "miss"] == [source(gateway, key) for key in ("one", "two")]
        eventually(lambda: source(gateway, "one") == "hit", "an answer that is kept")
        gateway.reload(config_of(old, more=on + '[access]\nby = "header"\n'))
        assert "miss" == source(gateway, "three", x_prefold_tenant="default")


KEYS = [f"key-{name}" for name in ("ann", "bob")]
CLOSED = f"""
[access]
by = "key"
salt_secret = {{ env = "SECRET" }}
[[group]]
name = "apart"
isolation = "isolated"
ttft = "uniform"
jitter_seconds = 0.0
requests_per_minute = 100
tokens_per_minute = 100_000
[[tenant]]
name = "ann"
group = "apart"
key_hashes = ["{hash_key(KEYS[0].encode())}"]
[[tenant]]
name = "bob"
key_hashes = ["{hash_key(KEYS[1].encode())}"]
"""


def without(line: str, text: str = CLOSED) -> str:
    assert line in text
    return text.replace(line, "", 1)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("", "access.by is open, and was key"),
        (CLOSED[: CLOSED.index("[[group]]")].replace('"key"', '"open"'), "access.by is open, and was key"),
        (CLOSED.replace('"key"', '"header"'), "access.by is header, and was key"),
        (CLOSED.replace('group = "apart"\n', ""), "isolation is shared, and was isolated, for tenant ann"),
        (CLOSED.replace('"isolated"', '"shared"'), "isolation is shared, and was isolated, for tenant ann"),
        (without('isolation = "isolated"\n'), "isolation is shared, and was isolated, for tenant ann"),
        (without('ttft = "uniform"\n'), "ttft is no longer uniform, for tenant ann"),
        (without("requests_per_minute = 100\n"), "requests_per_minute is gone, for tenant ann"),
        (without("tokens_per_minute = 100_000\n"), "tokens_per_minute is gone, for tenant ann"),
        (CLOSED.replace('"ann"', '"eve"').replace('"bob"', '"dan"'), "no tenant that had a key has one"),
    ],
)
def test_a_reload_opens_nothing(
    pair: tuple[Upstream, Upstream], tmp_path: Path, caplog: pytest.LogCaptureFixture, more: str, complaint: str
) -> None:
    old, new = pair
    config = config_of(old, kind="vllm", more="[health]\nverify_caching = false" + CLOSED)
    with serving(config, tmp_path, environ={"SECRET": "s" * 32}) as gateway:
        gateway.reload(config_of(new, kind="vllm", more=more))
        assert complaint in caplog.text
        assert "start the gateway anew" in caplog.text
        assert "was reloaded" not in caplog.text
        assert (401, 404) == (gateway.post().status, gateway.get("/metrics").status)
        assert 200 == gateway.post(authorization=f"Bearer {KEYS[0]}").status
        assert "cache_salt" in old.requests[-1].json


@pytest.mark.parametrize("text", ["", "[server]\nbody_limit = '1MiB'", "# a file that somebody is writ"])
def test_a_reload_leaves_some_replica(
    pair: tuple[Upstream, Upstream], tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    old, _ = pair
    with serving(config_of(old), tmp_path) as gateway:
        gateway.reload(text)
        assert "no replica is left" in caplog.text
        assert "old" == where(gateway)


def test_a_reload_that_closes_or_moves_is_taken(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    old, _ = pair
    quiet = "[health]\nverify_caching = false"
    with serving(config_of(old, kind="vllm", more=quiet), tmp_path, environ={"SECRET": "s" * 32}) as gateway:
        assert 200 == gateway.post().status
        gateway.reload(config_of(old, kind="vllm", more=quiet + CLOSED))
        assert [401, 200, 200] == [
            gateway.post(**headers).status for headers in ({}, *({"authorization": f"Bearer {key}"} for key in KEYS))
        ]
        renewed = CLOSED.replace(hash_key(KEYS[0].encode()), hash_key(b"key-new")).replace("= 100\n", "= 101\n")
        gateway.reload(config_of(old, kind="vllm", more=quiet + renewed[: renewed.rindex("[[tenant]]")]))
        assert [401, 401, 200] == [gateway.post(authorization=f"Bearer {key}").status for key in (*KEYS, "key-new")]


def test_events_without_a_tokenizer_are_enough_until_routing_is_exact(
    pair: tuple[Upstream, Upstream], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, _ = pair
    events = 'events = "tcp://127.0.0.1:1"'
    with serving(config_of(old, replica=events), tmp_path) as gateway:
        gateway.reload(config_of(old, replica=events, more='[routing]\npolicy = "exact"'))
        assert "has events for exact routing, but it has no tokenizer" in caplog.text
        assert "smollm2-135m-instruct" in caplog.text
        assert "prefix_hash" == gateway.get("/prefold/config").json["routing"]["policy"]
        assert 200 == gateway.post().status


def test_a_tokenizer_is_read_when_routing_becomes_exact(
    pair: tuple[Upstream, Upstream], tmp_path: Path, default_checkpoint: Any
) -> None:
    old, _ = pair
    replica = f'events = "tcp://127.0.0.1:1"\ntokenizer = "{default_checkpoint.folder}"'
    with serving(config_of(old, replica=replica), tmp_path) as gateway:
        knowledge = gateway.gateway.app.parts.knowledge
        assert knowledge.tokens_of(0) is None
        gateway.reload(config_of(old, replica=replica, more='[routing]\npolicy = "exact"'))
        assert knowledge.tokens_of(0) is not None


def test_engines_are_verified_whenever_they_come(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    old, new = pair
    old.is_well = False
    often = "[health]\nseconds = 0.02\nrise = 1\n"
    with serving(config_of(old, kind="vllm", more=often), tmp_path) as gateway:

        def verified() -> set[str]:
            return {view["name"] for view in gateway.get("/prefold/replicas").json["replicas"] if view["caches"]}

        gateway.reload(config_of(old, new, kind="vllm", more=often))
        eventually(lambda: verified() == {"new"}, "the new one's verification")
        old.is_well = True
        eventually(lambda: verified() == {"old", "new"}, "the verification of the one that came up")
        gateway.reload(config_of(old, kind="vllm", more=often))
        asked = len(new.requests)
        gateway.reload(config_of(old, new, kind="vllm", more=often))
        eventually(lambda: len(new.requests) > asked, "the verification of one that came back")


def test_reloads_at_once_end_with_the_last_file(pair: tuple[Upstream, Upstream], tmp_path: Path) -> None:
    old, new = pair
    with serving(config_of(old), tmp_path) as gateway:
        for _ in range(5):
            for upstream in (new, old):
                gateway.config.write_text(config_of(upstream))
                asyncio.run_coroutine_threadsafe(gateway.gateway.reload(), gateway.loop)
        gateway.reload(config_of(new))
        gateway.check()
        assert "new" == where(gateway)


# Endings


def test_a_drain_lets_streams_end_and_nobody_in(
    pair: tuple[Upstream, Upstream], release: threading.Event, tmp_path: Path
) -> None:
    with serving(config_of(pair[0]), tmp_path, drain_seconds=PATIENCE) as gateway, gateway.asking(STREAM) as stream:
        read_until(stream, b"Once")
        kept = gateway.connect()
        kept.request("GET", "/health")
        assert b"ok" in kept.getresponse().read()
        gateway.stop()
        eventually(lambda: gateway.gateway.app.stopping, "the drain")
        kept.request("GET", "/health")  # a balancer's connection, open since before
        assert 503 == kept.getresponse().status
        kept.close()
        for reply in (gateway.get("/health"), gateway.post()):  # and new ones
            assert ((503, "stopping"), "close") == (reply.code, reply.headers["connection"])
        assert 1 == len(pair[0].requests)
        release.set()
        assert read_until(stream, b"[DONE]")
        gateway.thread.join(PATIENCE)
        assert not gateway.thread.is_alive()


@pytest.mark.parametrize("signals", [1, 2])
def test_a_drain_ends(pair: tuple[Upstream, Upstream], tmp_path: Path, signals: int) -> None:
    drain = {1: 0.1, 2: 600.0}[signals]
    with (
        serving(config_of(pair[0]), tmp_path, drain_seconds=drain) as gateway,
        gateway.asking(STREAM) as stream,
    ):
        read_until(stream, b"Once")
        for _ in range(signals):
            gateway.stop()
        rest = b""
        try:
            while part := stream.recv(1 << 16):
                rest += part
        except ConnectionError:
            pass
        assert b"[DONE]" not in rest
        gateway.thread.join(PATIENCE)
        assert not gateway.thread.is_alive()
        eventually(lambda: pair[0].running == 0, "the end of the call upstream")


# The command


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no SIGHUP here")
def test_the_command_hears_signals(pair: tuple[Upstream, Upstream], release: threading.Event, tmp_path: Path) -> None:
    old, new = pair
    config = tmp_path / "gateway.toml"
    operator = "[server]\noperator_port = 0\n"
    config.write_text(config_of(old, more=operator))
    command = [sys.executable, "-m", "prefold", "serve", "--config", str(config), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    assert process.stderr is not None
    reader = threading.Thread(target=said.extend, args=(process.stderr,))
    try:
        found = re.search(r"http://127.0.0.1:(\d+)/v1", process.stderr.readline())
        pages = re.search(r"http://127.0.0.1:(\d+)/metrics", process.stderr.readline())
        assert found
        assert pages
        reader.start()
        port = int(found[1])
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as stream:
            body = json.dumps(STREAM).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-length: {len(body)}\r\n\r\n"
            stream.sendall(head.encode() + body)
            read_until(stream, b"Once")
            config.write_text(config_of(new, more=operator))
            process.send_signal(signal.SIGHUP)

            def is_new() -> bool:
                reply = ask(port, json.dumps(HELLO).encode())
                return reply.getheader("x-prefold-replica") == "new"

            eventually(is_new, "the reload")
            assert b"prefold_requests_total" in get(int(pages[1]), "/metrics")
            with socket.create_connection(("127.0.0.1", int(pages[1])), timeout=PATIENCE) as page:
                page.sendall(b"GET /metrics HTTP/1.1\r\nhost: g\r\n\r\n")
                assert b"\r\ndate: " in read_until(page, b"\r\n\r\n")
            process.send_signal(signal.SIGTERM)
            release.set()
            assert read_until(stream, b"[DONE]")
        assert 0 == process.wait(PATIENCE)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join(PATIENCE)
        process.stderr.close()
    assert "Traceback" not in "".join(said)
    assert [line for line in said if "was reloaded" in line]


def ask(port: int, body: bytes) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST", "/v1/chat/completions", body)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response


def get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


def test_redacted_requests_compare_with_those_from_before_a_restart(upstream: Upstream, tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    more = f'[access]\nsalt-secret = {{ env = "SECRET" }}\n[metering]\nrequest-log = "{log}"\nbodies = "redacted"'
    ask = {**HELLO, "messages": [{"role": "user", "content": "What was said before, and is said again."}]}
    for secret in ("s" * 32, "s" * 32, "t" * 32):
        with serving(config_of(upstream, more=more), tmp_path, environ={"SECRET": secret}) as gateway:
            assert 200 == gateway.post(ask).status
    first, again, other = (json.dumps(json.loads(line)["request"]) for line in log.read_text().splitlines())
    assert first == again
    assert first != other
    assert "said before" not in first + other
