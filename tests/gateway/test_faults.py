"""Faults, from the outside: each has the outcome that docs/gateway.md states."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")

from tests.gateway.support import (
    HELLO,
    MODEL,
    USAGE,
    Behaviour,
    Peer,
    RunningGateway,
    Upstream,
    chunk_of,
    config_of,
    eventually,
    free_port,
    read_until,
    running,
    serving,
    sse,
    well,
)

STREAM = {**HELLO, "stream": True}
MESSAGE = {**HELLO, "max_tokens": 9}
IMPATIENT = "[upstream]\nfirst_byte_seconds = 0.3\nidle_seconds = 0.3\nconnect_seconds = 0.3\n"
REDIS = shutil.which("redis-server")


@pytest.fixture(scope="module")
def gateway(upstream_server: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with one upstream, that answers well unless a test says otherwise."""
    # The breaker has tests of its own; here it would pass faults on from test to test.
    patience = f"{IMPATIENT}breaker_failures = 1000\n"
    with serving(config_of(upstream_server, more=patience), tmp_path_factory.mktemp("gateway")) as running_gateway:
        yield running_gateway


# Upstreams that fail


async def hang(peer: Peer) -> None:
    await peer.until_left()


async def cut(peer: Peer) -> None:
    peer.writer.close()


async def garbage(peer: Peer) -> None:
    await peer.send(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
    peer.writer.close()


async def endless_head(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\n", *[b"x-%d: %b\r\n" % (number, b"y" * 1_000) for number in range(100)])
    await peer.until_left()


def refusing(status: int, **headers: str) -> Behaviour:
    async def refuse(peer: Peer) -> None:
        await peer.answer(status, {"error": {"message": f"own words {status}", "type": "t"}}, **headers)

    return refuse


@pytest.mark.parametrize("fields", [HELLO, STREAM], ids=["whole", "stream"])
@pytest.mark.parametrize("behaviour", [hang, cut, garbage, endless_head])
def test_without_an_answer_the_client_gets_502_and_no_address(
    gateway: RunningGateway, upstream: Upstream, behaviour: Behaviour, fields: dict
) -> None:
    upstream.behaviour = behaviour
    before = gateway.metric("prefold_requests_total", outcome="failed", status="502")
    reply = gateway.post(fields)
    assert (502, "no_answer") == reply.code
    assert str(upstream.port) not in reply.body.decode()
    assert before + 1 == gateway.metric("prefold_requests_total", outcome="failed", status="502")
    eventually(lambda: upstream.running == 0, "the end of the call upstream")
    assert "api_error" == gateway.post(MESSAGE, "/v1/messages").json["error"]["type"]


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 503, 529])
def test_an_upstreams_own_refusal_passes_untouched(gateway: RunningGateway, upstream: Upstream, status: int) -> None:
    upstream.behaviour = refusing(status, retry_after="0", x_request_id="r")
    reply = gateway.post()
    assert (status, f"own words {status}") == (reply.status, reply.json["error"]["message"])
    assert ("0", "r", "a") == tuple(
        reply.headers[name] for name in ("retry-after", "x-request-id", "x-prefold-replica")
    )
    assert 1 == len(upstream.requests)


def test_what_connection_headers_name_stays_here(gateway: RunningGateway, upstream: Upstream) -> None:
    async def tell(peer: Peer) -> None:
        lines = b"connection: x-one\r\nx-one: 1\r\nconnection: keep-alive, X-Two\r\nx-two: 2\r\nx-three: 3\r\n"
        await peer.send(b"HTTP/1.1 200 OK\r\n%bcontent-length: 2\r\n\r\n{}" % lines)

    upstream.behaviour = tell
    assert {"x-three"} == {"x-one", "x-two", "x-three"} & gateway.post().headers.keys()


@pytest.mark.parametrize("name", ["set-cookie", "location", "content-location", "refresh", "alt-svc"])
def test_what_speaks_of_the_upstreams_address_stays_here(
    gateway: RunningGateway, upstream: Upstream, name: str
) -> None:
    async def tell(peer: Peer) -> None:
        await peer.answer(200, {}, **{name: "a=http://127.0.0.1:1/secret", "x-three": "3"})

    upstream.behaviour = tell
    assert {"x-three"} == {name, "x-three"} & gateway.post().headers.keys()


@pytest.mark.parametrize("status", [300, 302, 304, 307])
def test_a_redirect_is_no_answer(gateway: RunningGateway, upstream: Upstream, status: int) -> None:
    async def redirect(peer: Peer) -> None:
        head = b"HTTP/1.1 %d X\r\nlocation: http://127.0.0.1:1/secret\r\ncontent-length: 5\r\n\r\n" % status
        await peer.send(head + b"hello")

    upstream.behaviour = redirect
    reply = gateway.post()
    assert (502, "no_answer") == reply.code
    assert f"redirect ({status})" in reply.json["error"]["message"]
    assert "secret" not in f"{reply.headers} {reply.body!r}"


def test_an_answer_without_content_has_no_length(
    gateway: RunningGateway, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 204 X\r\nx-three: 3\r\ncontent-length: 5\r\n\r\nhello")

    upstream.behaviour = tell
    reply = gateway.post()
    assert (204, b"", "3") == (reply.status, reply.body, reply.headers["x-three"])
    assert "content-length" not in reply.headers
    assert not [record for record in caplog.records if record.exc_info]
    upstream.behaviour = well
    assert 200 == gateway.post().status


def test_garbage_in_a_good_envelope_passes_untouched(gateway: RunningGateway, upstream: Upstream) -> None:
    async def nonsense(peer: Peer) -> None:
        await peer.answer(200, b'{"choices": \xff\x00')

    upstream.behaviour = nonsense
    before = gateway.metric("prefold_answers_without_usage_total")
    reply = gateway.post()
    assert (200, b'{"choices": \xff\x00') == (reply.status, reply.body)
    assert before + 1 == gateway.metric("prefold_answers_without_usage_total")


def test_garbage_that_has_to_be_translated_is_no_answer(gateway: RunningGateway, upstream: Upstream) -> None:
    async def nonsense(peer: Peer) -> None:
        await peer.answer(200, b'{"choices": \xff\x00')

    upstream.behaviour = nonsense
    reply = gateway.post(MESSAGE, "/v1/messages")  # the upstream has OpenAI's API alone
    assert (502, "api_error") == (reply.status, reply.json["error"]["type"])


def dying(*events: bytes, how: str = "cut") -> Behaviour:
    async def die(peer: Peer) -> None:
        await peer.begin_events()
        for event in events:
            await peer.events(event)
        if how == "cut":
            peer.writer.transport.abort()
        elif how == "hang":
            await peer.until_left()
        else:
            await peer.send(b"zzz\r\nno chunk\r\n")
            await peer.until_left()

    return die


@pytest.mark.parametrize("how", ["cut", "hang", "garbage"])
def test_a_stream_that_breaks_off_ends_with_an_error_event(
    gateway: RunningGateway, upstream: Upstream, how: str
) -> None:
    first = sse(chunk_of({"content": "Once"}))
    upstream.behaviour = dying(first, how=how)
    failed = gateway.metric("prefold_requests_total", outcome="failed", status="200")
    reply = gateway.post(STREAM)
    assert 200 == reply.status
    assert reply.body.startswith(first)
    last = json.loads(reply.body.removeprefix(first).removeprefix(b"data: "))
    assert "no_answer" == last["error"]["code"]
    assert b"[DONE]" not in reply.body
    assert 1 == len(upstream.requests), "the client had seen something"
    assert failed + 1 == gateway.metric("prefold_requests_total", outcome="failed", status="200")


ONCE = sse(chunk_of({"content": "Once"}))


def telling(data: bytes, head: bytes = b"transfer-encoding: chunked") -> Behaviour:
    """Send something as a stream of events, and end it well."""

    async def tell(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n%b\r\n\r\n" % head)
        if head.startswith(b"content-length"):
            await peer.send(data)
        else:
            await peer.events(data)
            await peer.end_events()

    return tell


@pytest.mark.parametrize("head", [b"transfer-encoding: chunked", b"content-length: %d" % len(ONCE)])
def test_a_stream_that_ends_without_its_last_event_is_no_whole_one(
    gateway: RunningGateway, upstream: Upstream, head: bytes
) -> None:
    upstream.behaviour = telling(ONCE, head)
    failed = gateway.metric("prefold_requests_total", outcome="failed", status="200")
    reply = gateway.post(STREAM)
    assert reply.body.startswith(ONCE)
    last = json.loads(reply.body.removeprefix(ONCE).removeprefix(b"data: "))
    assert "no_answer" == last["error"]["code"]
    assert failed + 1 == gateway.metric("prefold_requests_total", outcome="failed", status="200")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize(
    "garbage", [b"<html>proxy</html>", b'data: {"choices": [{"delta": \n\n', b'{"choices": []}\n\n', b"\n"]
)
def test_garbage_that_calls_itself_a_stream_does_not_pass_as_whole(
    gateway: RunningGateway, upstream: Upstream, garbage: bytes, path: str
) -> None:
    upstream.behaviour = telling(garbage)
    failed = gateway.metric("prefold_requests_total", outcome="failed", status="200")
    with gateway.asking({**MESSAGE, "stream": True}, path) as connection:
        answer = b""
        while not answer.endswith(b"0\r\n\r\n") and (part := connection.recv(1 << 16)):
            answer += part
    # Told by an event, or by a connection that ends before the answer does.
    assert b'"error"' in answer or not answer.endswith(b"0\r\n\r\n")
    assert failed + 1 == gateway.metric("prefold_requests_total", outcome="failed", status="200")


def test_an_error_that_the_upstream_tells_in_its_stream_passes_and_counts(
    gateway: RunningGateway, upstream: Upstream
) -> None:
    told = ONCE + sse({"error": {"message": "own words", "code": 500}})
    upstream.behaviour = telling(told)
    failed = gateway.metric("prefold_requests_total", outcome="failed", status="200")
    assert told == gateway.post(STREAM).body
    assert failed + 1 == gateway.metric("prefold_requests_total", outcome="failed", status="200")


def test_a_stream_without_done_is_whole_where_its_text_is(gateway: RunningGateway, upstream: Upstream) -> None:
    told = sse(chunk_of({"content": "Once"}), chunk_of({}, "stop"), {**chunk_of({}), "choices": [], "usage": USAGE})
    upstream.behaviour = telling(told)
    done = gateway.metric("prefold_requests_total", outcome="done", status="200")
    assert told == gateway.post(STREAM).body
    assert done + 1 == gateway.metric("prefold_requests_total", outcome="done", status="200")


def test_a_translated_stream_that_breaks_off_ends_with_anthropics_error_event(
    gateway: RunningGateway, upstream: Upstream
) -> None:
    upstream.behaviour = dying(sse(chunk_of({"content": "Once"})))
    reply = gateway.post({**MESSAGE, "stream": True}, "/v1/messages")
    assert b"event: message_start" in reply.body
    event, data = reply.body.decode().rstrip().split("\n\n")[-1].split("\n")
    assert "event: error" == event
    assert "api_error" == json.loads(data.removeprefix("data: "))["error"]["type"]


@pytest.mark.parametrize("fields", [HELLO, STREAM], ids=["whole", "stream"])
def test_half_an_answer_ends_the_connection_before_its_end(
    gateway: RunningGateway, upstream: Upstream, fields: dict
) -> None:
    async def half(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{")
        peer.writer.transport.abort()

    upstream.behaviour = dying(b'data: {"choices": [{"del') if fields is STREAM else half
    failed = gateway.metric("prefold_requests_total", outcome="failed", status="200")
    with gateway.asking(fields) as connection:
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"{" if fields is HELLO else b'{"del\r\n')  # no last chunk, and no error in half an event
    assert failed + 1 == gateway.metric("prefold_requests_total", outcome="failed", status="200")
    assert 1 == len(upstream.requests)


def test_what_is_held_back_can_still_be_refused(upstream: Upstream, tmp_path: Path) -> None:
    async def half(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{")
        peer.writer.transport.abort()

    upstream.behaviour = half
    group = '[[group]]\nname = "default"\nttft = "uniform"\n'
    with serving(config_of(upstream, more=group), tmp_path) as gateway:
        assert (502, "no_answer") == gateway.post().code
        assert 1 == gateway.metric("prefold_requests_total", outcome="failed", status="502")
        assert (403, "forbidden") == gateway.post(x_prefold_explain="1").code


# Retries


@contextmanager
def two(first: Behaviour, folder: Path, more: str = "") -> Iterator[tuple[Upstream, Upstream, RunningGateway]]:
    """Two upstreams, of which the first is asked first and does what it is told."""
    bad, good = Upstream("bad", first), Upstream("good")
    routing = '[routing]\npolicy = "round_robin"\n'
    with running(bad, good), serving(config_of(bad, good, more=routing + (more or IMPATIENT)), folder) as gateway:
        yield bad, good, gateway


@pytest.mark.parametrize("fields", [HELLO, STREAM], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "behaviour", [hang, cut, garbage, *map(refusing, (429, 500, 502, 503, 504, 529))], ids=lambda each: each.__name__
)
def test_what_one_replica_does_not_answer_another_one_does(behaviour: Behaviour, fields: dict, tmp_path: Path) -> None:
    with two(behaviour, tmp_path) as (bad, good, gateway):
        reply = gateway.post(fields)
        assert (200, "good") == (reply.status, reply.headers["x-prefold-replica"])
        assert bad.requests[0].body == good.requests[0].body
        assert 1 == gateway.metric("prefold_requests_total", outcome="done", status="200")
        assert 0 == gateway.metric("prefold_replica_pending", replica="bad")


def test_what_the_request_is_at_fault_for_is_not_repeated(tmp_path: Path) -> None:
    with two(refusing(400), tmp_path) as (bad, good, gateway):
        assert 400 == gateway.post().status
        assert (1, 0) == (len(bad.requests), len(good.requests))


def test_a_stream_that_has_begun_is_not_repeated(tmp_path: Path) -> None:
    with two(dying(sse(chunk_of({"content": "Once"}))), tmp_path) as (bad, good, gateway):
        assert b'"no_answer"' in gateway.post(STREAM).body
        assert (1, 0) == (len(bad.requests), len(good.requests))


def test_retries_have_a_limit(tmp_path: Path) -> None:
    upstreams = [Upstream(name, refusing(500)) for name in "abcd"]
    with running(*upstreams), serving(config_of(*upstreams, more="[upstream]\nretries = 2"), tmp_path) as gateway:
        assert 500 == gateway.post().status
        assert [0, 1, 1, 1] == sorted(len(upstream.requests) for upstream in upstreams)


def test_a_replica_that_lacks_the_endpoint_is_not_the_last_word(tmp_path: Path) -> None:
    one, other = Upstream("one"), Upstream("other")
    with running(one, other):
        config = config_of(one, replica='speaks = ["anthropic"]') + config_of(other)
        with serving(config, tmp_path) as gateway:
            asks = [{"model": MODEL, "prompt": f"Prompt {number}"} for number in range(8)]
            replies = [gateway.post(ask, "/v1/completions") for ask in asks]
        assert {(200, "other")} == {(reply.status, reply.headers["x-prefold-replica"]) for reply in replies}


UNTRANSLATABLE = {**MESSAGE, "messages": [{"role": "user", "content": [{"type": "odd", "text": "Hello"}]}]}


@pytest.mark.parametrize("others", [1, 4], ids=["one", "more than may be tried again"])
def test_a_replica_that_has_no_words_for_a_call_is_not_the_last_word(tmp_path: Path, others: int) -> None:
    upstreams = [Upstream(f"other{number}") for number in range(others)]
    native = Upstream("native")
    with running(*upstreams, native):
        config = config_of(*upstreams) + config_of(native, replica='speaks = ["anthropic"]')
        with serving(config + '[routing]\npolicy = "round_robin"', tmp_path) as gateway:
            replies = [gateway.post(UNTRANSLATABLE, "/v1/messages") for _ in range(2 * others)]
            assert {(200, "native")} == {(reply.status, reply.headers["x-prefold-replica"]) for reply in replies}
            native.behaviour = refusing(500)
            assert {500, 502} >= {gateway.post(UNTRANSLATABLE, "/v1/messages").status for _ in range(2)}
        with serving(config_of(*upstreams), tmp_path) as gateway:
            assert 400 == gateway.post(UNTRANSLATABLE, "/v1/messages").status
    assert [] == [request for upstream in upstreams for request in upstream.requests]


def test_a_wait_that_a_replica_asks_for_is_kept(tmp_path: Path) -> None:
    with two(refusing(503, retry_after="60"), tmp_path) as (bad, _good, gateway):
        assert ["good"] * 6 == [gateway.post().headers["x-prefold-replica"] for _ in range(6)]
        assert 1 == len(bad.requests)
        assert "resting" == gateway.states["bad"]


def test_a_clients_own_limit_elsewhere_does_not_stop_others(tmp_path: Path) -> None:
    with two(refusing(429, retry_after="60"), tmp_path) as (bad, _good, gateway):
        assert ["good"] * 6 == [gateway.post().headers["x-prefold-replica"] for _ in range(6)]
        assert 1 < len(bad.requests)  # the 429 is about the key that came with the request
        assert "up" == gateway.states["bad"]


def test_the_breaker_opens_and_closes(tmp_path: Path) -> None:
    more = f"{IMPATIENT}breaker_failures = 3\nbreaker_seconds = 0.2\n"
    with two(cut, tmp_path, more) as (bad, _good, gateway):
        for _ in range(12):
            assert 200 == gateway.post().status
        assert 3 <= len(bad.requests) < 12
        assert "open" == gateway.states["bad"]
        bad.behaviour = well

        def is_asked_again() -> bool:
            return "bad" == gateway.post().headers["x-prefold-replica"]

        eventually(is_asked_again, "the trial")
        assert "up" == gateway.states["bad"]


# Nobody there


def test_with_all_replicas_down_clients_are_told_to_wait(tmp_path: Path) -> None:
    upstream = Upstream("a", is_well=False)
    health = "[health]\nseconds = 0.05\nrise = 1\nfall = 1\n"
    with running(upstream):
        config = config_of(upstream, replica='models = ["m"]', more=health)
        with serving(config, tmp_path) as gateway:
            reply = gateway.post()
            assert (503, "no_replica") == reply.code
            assert "1" == reply.headers["retry-after"]
            assert "overloaded_error" == gateway.post(MESSAGE, "/v1/messages").json["error"]["type"]
            assert 404 == gateway.post({**HELLO, "model": "other"}).status
            assert 200 == gateway.get("/health").status  # the gateway itself is well
            assert [] == upstream.requests
            assert 1 == gateway.metric("prefold_replica_state", replica="a", state="down")
            upstream.is_well = True
            eventually(lambda: 200 == gateway.post().status, "recovery")
            upstream.is_well = False
            eventually(lambda: 503 == gateway.post().status, "going down")


def test_a_gateway_starts_before_its_replicas(tmp_path: Path) -> None:
    late = Upstream("late", port=free_port())
    with serving(config_of(late, more="[health]\nseconds = 0.05\nrise = 1\n"), tmp_path) as gateway:
        assert 404 == gateway.post().status  # nobody has said yet which models there are
        with running(late):
            eventually(lambda: 200 == gateway.post().status, "the replica")


# Clients that leave


async def until_left(peer: Peer) -> None:
    await peer.until_left()


@pytest.mark.parametrize("answers", ["off", "on"])
@pytest.mark.parametrize("fields", [HELLO, STREAM, {**STREAM, "begun": True}], ids=["whole", "stream", "begun"])
def test_when_the_client_leaves_the_upstream_is_left_at_once(answers: str, fields: dict, tmp_path: Path) -> None:
    async def slowly(peer: Peer) -> None:
        if peer.request.json.get("begun"):
            await peer.begin_events()
            await peer.events(sse(chunk_of({"content": "Once"})))
        await peer.until_left()

    upstream = Upstream("a", slowly)
    with running(upstream), serving(config_of(upstream, more=f'[answers]\nmode = "{answers}"'), tmp_path) as gateway:
        with gateway.asking({**fields, "temperature": 0}) as connection:
            eventually(lambda: upstream.running == 1, "the call")
            if "begun" in fields:
                read_until(connection, b"Once")
        eventually(lambda: upstream.running == 0, "the end of the call upstream")
        eventually(lambda: 0 == gateway.metric("prefold_replica_pending"), "the end here")
        assert 1 == gateway.metric("prefold_requests_total", outcome="client_gone")
        assert 1 == len(upstream.requests)


def test_a_client_that_does_not_read_makes_the_upstream_wait(gateway: RunningGateway, upstream: Upstream) -> None:
    sent = 0

    async def flood(peer: Peer) -> None:
        nonlocal sent
        await peer.begin_events()
        for _ in range(1_000):
            await peer.events(b"data: " + b"x" * 65_000 + b"\n\n")
            sent += 1
        await peer.end_events()

    upstream.behaviour = flood
    with gateway.asking(STREAM) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        read_until(connection, b"xxx")
        before = -1
        while before != sent:  # until it stands still
            before = sent
            time.sleep(0.1)
        assert sent < 500  # of some 65 MB; what sockets hold is the system's
    eventually(lambda: upstream.running == 0, "the end of the call upstream")


# Stores that fail


@contextmanager
def redis() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    if REDIS is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    command = [REDIS, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:

        def is_there() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        eventually(is_there, "Redis")
        yield process, port
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def test_a_frozen_redis_stops_nobody(upstream: Upstream, tmp_path: Path) -> None:
    with redis() as (process, port):
        more = f"""
[redis]
url = "redis://127.0.0.1:{port}/0"
[answers]
mode = "on"
store = "redis"
[[group]]
name = "default"
requests_per_minute = 8
"""
        ask = {**HELLO, "temperature": 0}
        with serving(config_of(upstream, more=more), tmp_path) as gateway:
            assert "miss" == gateway.post(ask).headers["x-prefold-cache"]
            eventually(lambda: "hit" == gateway.post(ask).headers["x-prefold-cache"], "the hit")
            process.send_signal(signal.SIGSTOP)
            replies = [gateway.post(ask) for _ in range(10)]  # more than the budget, that nobody can count
            assert {200} == {reply.status for reply in replies}
            assert "hit" not in {reply.headers["x-prefold-cache"] for reply in replies}
            assert 1 <= gateway.metric("prefold_skipped_total", part="budgets")
            assert 1 <= gateway.metric("prefold_skipped_total", part="answers")
            process.send_signal(signal.SIGCONT)
            eventually(lambda: 429 == gateway.post(ask).status, "counting again")
            process.send_signal(signal.SIGSTOP)  # which does not keep the gateway from ending, either


def test_budgets_are_kept_and_say_when_to_come_again(upstream: Upstream, tmp_path: Path) -> None:
    with serving(config_of(upstream, more='[[group]]\nname = "default"\nrequests_per_minute = 2'), tmp_path) as gateway:
        assert [200, 200] == [gateway.post().status for _ in range(2)]
        reply = gateway.post()
        assert (429, "rate_limit_exceeded") == reply.code
        assert 1 <= int(reply.headers["retry-after"]) <= 120
        assert "rate_limit_error" == gateway.post(MESSAGE, "/v1/messages").json["error"]["type"]
        assert 2 == len(upstream.requests)


def test_a_store_that_is_damaged_stops_nobody(upstream: Upstream, tmp_path: Path) -> None:
    more = f'[answers]\nmode = "on"\npath = "{tmp_path}/answers.sqlite"'
    ask = {**HELLO, "temperature": 0}
    with serving(config_of(upstream, more=more), tmp_path) as gateway:
        assert 200 == gateway.post(ask).status
        for name in ("answers.sqlite", "answers.sqlite-wal"):  # in place: whoever cuts mapped files ends the process
            with (tmp_path / name).open("r+b") as file:
                file.write(b"no database" * 1_000)
        assert [200] * 3 == [gateway.post({**ask, "seed": seed}).status for seed in range(3)]


# Clocks


def test_a_clock_that_jumps_makes_answers_old_and_nothing_else(upstream: Upstream, tmp_path: Path) -> None:
    now = [1_800_000_000.0]
    ask = {**HELLO, "temperature": 0}
    with serving(config_of(upstream, more='[answers]\nmode = "on"'), tmp_path, now=lambda: now[0]) as gateway:
        gateway.post(ask)
        eventually(lambda: "hit" == gateway.post(ask).headers["x-prefold-cache"], "the hit")
        for jump in (86_400.0, -400 * 86_400.0):
            now[0] += jump
            # The call before may still be on its way out, and is then shared.
            eventually(lambda: "miss" == gateway.post(ask).headers["x-prefold-cache"], "the miss")
            assert 200 == gateway.post().status
        assert "up" == gateway.states["a"]
