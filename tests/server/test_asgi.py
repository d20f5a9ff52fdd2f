"""`Exchange` over messages in memory."""

import asyncio

import pytest

from prefold.server.asgi import WHOLE_BODY, ClientGone, Exchange, HttpError


def exchange(messages=(), headers=(), method="POST", extensions=()):
    """An exchange that receives these messages, then nothing, and the list of what it sends."""
    waiting = list(messages)
    sent = []

    async def receive():
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"method": method, "path": "/x", "headers": list(headers), "extensions": {key: {} for key in extensions}}
    return Exchange(scope, receive, send), sent


def part(body, *, more):
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_in_parts():
    made, _ = exchange([part(b"ab", more=True), part(b"", more=True), part(b"c", more=False)])
    assert b"abc" == asyncio.run(made.body())


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"11")], [(b"content-length", b"9" * 5000)]])
@pytest.mark.parametrize("extensions", [[], [WHOLE_BODY]])
def test_a_body_that_is_too_large(headers, extensions):
    made, _ = exchange([part(b"123456", more=True), part(b"12345", more=False)], headers, extensions=extensions)
    with pytest.raises(HttpError) as caught:
        asyncio.run(made.body(limit=10))
    assert 413 == caught.value.status


def test_a_body_of_just_the_limit():
    made, _ = exchange([part(b"1234567890", more=False)], [(b"content-length", b"10")])
    assert b"1234567890" == asyncio.run(made.body(limit=10))


def test_a_body_that_has_come_needs_no_time():
    made, _ = exchange([part(b"ab", more=False)], extensions=[WHOLE_BODY])
    assert b"ab" == asyncio.run(made.body(seconds=0))


def test_a_client_that_leaves_amid_its_body():
    made, _ = exchange([part(b"1", more=True), {"type": "http.disconnect"}])
    with pytest.raises(ClientGone):
        asyncio.run(made.body())


def test_a_client_that_stops_amid_its_body():
    made, _ = exchange([part(b"1", more=True)])
    with pytest.raises(HttpError) as caught:
        asyncio.run(made.body(seconds=0.01))
    assert 408 == caught.value.status


def test_gone_waits_for_the_end_of_the_connection():
    made, _ = exchange([part(b"", more=False), {"type": "http.disconnect"}, part(b"", more=False)])
    asyncio.run(made.gone())


def test_headers():
    made, _ = exchange(headers=[(b"x-a", b"1"), (b"x-a", b"2"), (b"x-b", b"\xe9")])
    assert ("1", "é", None) == (made.header("x-a"), made.header("x-b"), made.header("x-c"))


def test_head_counts_as_get():
    assert "GET" == exchange(method="HEAD")[0].method


def test_a_stream_of_events():
    made, sent = exchange()

    async def stream():
        await made.start_events()
        await made.send_events([{"a": 1}, {"b": "\n"}])
        await made.send_events([])
        await made.end_events()

    assert not made.started
    asyncio.run(stream())
    assert made.started
    start, *rest = sent
    assert 200 == start["status"]
    assert (b"content-type", b"text/event-stream") in start["headers"]
    assert [
        {"type": "http.response.body", "body": b'data: {"a":1}\n\ndata: {"b":"\\n"}\n\n', "more_body": True},
        {"type": "http.response.body", "body": b"data: [DONE]\n\n"},
    ] == rest
