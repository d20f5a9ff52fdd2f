"""Clients that leave, and clients that wait while others run."""

import json
import socket
import time

import pytest

LONG = {"prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True}


def request(body):
    content = json.dumps(body).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content)


def in_flight(server):
    """Answers waiting and running, and whether the pool's free slots are the cache's free tokens."""

    def look():
        engine = server.worker.engine
        engine.cache.check()
        scheduler = engine.scheduler
        return len(scheduler.waiting), len(scheduler.running), engine.pool.free_slots == engine.cache.free

    return server.call(look)


def wait_for(server, state):
    for _ in range(2000):
        if in_flight(server) == state:
            return
        time.sleep(0.01)
    assert state == in_flight(server)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_ends_when_its_client_leaves(server, stream):
    cancelled = server.metric("prefold_answers_finished_total", reason="cancelled")
    with socket.create_connection((server.host, server.port), timeout=30) as client:
        client.sendall(request({**LONG, "stream": stream}))
        wait_for(server, (0, 1, True))
        if stream:
            assert client.recv(65536).startswith(b"HTTP/1.1 200 OK")
            # While it runs, the server answers others.
            assert 200 == server.get("/health").status
            assert (0, 1, True) == in_flight(server)
    wait_for(server, (0, 0, True))
    assert 0 == server.call(lambda: server.worker.engine.cache.reserved)
    assert cancelled + 1 == server.metric("prefold_answers_finished_total", reason="cancelled")


def test_all_answers_of_a_request_end(server):
    with socket.create_connection((server.host, server.port), timeout=30) as client:
        client.sendall(request({**LONG, "prompt": ["One", "Two"], "n": 2, "max_tokens": 400}))
        wait_for(server, (0, 4, True))
    wait_for(server, (0, 0, True))


def test_a_request_that_still_waits_ends_too(server):
    capacity = server.worker.engine.cache.capacity
    with socket.create_connection((server.host, server.port), timeout=30) as first:
        first.sendall(request({**LONG, "prompt": "First"}))
        wait_for(server, (0, 1, True))
        with socket.create_connection((server.host, server.port), timeout=30) as second:
            # Its prompt does not fit beside what runs.
            second.sendall(request({"prompt": [9] * (capacity - 2), "max_tokens": 1}))
            wait_for(server, (1, 1, True))
        wait_for(server, (0, 1, True))
    wait_for(server, (0, 0, True))


def test_what_a_lost_request_computed_is_kept(server):
    server.post("/cache/reset", {})
    prompt = "The beginning of a story that will be told twice. " * 8
    with socket.create_connection((server.host, server.port), timeout=30) as client:
        client.sendall(request({**LONG, "prompt": prompt, "stream": True}))
        client.recv(65536)
        assert b"data: " in client.recv(65536)
    wait_for(server, (0, 0, True))
    usage = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1}).json["usage"]
    assert usage["prompt_tokens"] - 1 == usage["prompt_tokens_details"]["cached_tokens"]


def test_each_token_of_a_stream_is_sent_at_once(server):
    with socket.create_connection((server.host, server.port), timeout=30) as client:
        client.sendall(request({**LONG, "stream": True}))
        for _ in range(5):
            assert client.recv(65536)
        # Five reads later the answer is far from its end: nothing was held back.
        assert (0, 1, True) == in_flight(server)
    wait_for(server, (0, 0, True))
