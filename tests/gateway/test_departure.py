"""Clients that leave."""

from __future__ import annotations

import asyncio

import pytest

from prefold.gateway.departure import Departures, UntilClientLeaves
from prefold.server.asgi import ClientGone, Exchange, Message


class Client:
    """A client whose body has been read, and who may leave."""

    def __init__(self) -> None:
        self.has_left = asyncio.Event()
        self.is_watched = asyncio.Event()
        self.exchange = Exchange({"method": "POST", "path": "/", "headers": []}, self._receive, self._send)

    async def _receive(self) -> Message:
        self.is_watched.set()
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        raise AssertionError(message)


def test_what_runs_stops_when_the_client_leaves() -> None:
    ends: list[type[BaseException]] = []

    async def answer(client: Client) -> None:
        with UntilClientLeaves(client.exchange, Departures()):
            try:
                await asyncio.sleep(60)
            except BaseException as error:
                ends.append(type(error))
                raise

    async def run() -> int:
        client = Client()
        client.has_left.set()
        with pytest.raises(ClientGone):
            await answer(client)
        await asyncio.sleep(0)  # nothing of it is left that would stop this
        return len(asyncio.all_tasks())

    assert asyncio.run(run()) == 1
    assert ends == [asyncio.CancelledError]


def test_quick_answers_are_not_watched() -> None:
    async def run() -> bool:
        client = Client()
        with UntilClientLeaves(client.exchange, Departures()):
            await asyncio.sleep(0)
        client.has_left.set()
        await asyncio.sleep(0.05)
        return client.is_watched.is_set()

    assert not asyncio.run(run())


def test_one_timer_finds_all_that_last() -> None:
    async def wait(client: Client, departures: Departures) -> None:
        with UntilClientLeaves(client.exchange, departures):
            await asyncio.sleep(60)

    async def run() -> list[type[BaseException] | None]:
        departures = Departures()
        clients = [Client(), Client(), Client()]
        tasks: list[asyncio.Task[None]] = []
        for client in clients:  # each comes at another time of the timer, the last one after it has ended
            tasks.append(asyncio.create_task(wait(client, departures)))
            await (asyncio.sleep(0.01) if client is clients[0] else client.is_watched.wait())
        for client in clients:
            client.has_left.set()
        return [type(error) for error in await asyncio.gather(*tasks, return_exceptions=True)]

    assert asyncio.run(run()) == [ClientGone] * 3


def test_the_watch_ends_with_the_block() -> None:
    async def run() -> int:
        client = Client()
        with UntilClientLeaves(client.exchange, Departures()):
            await client.is_watched.wait()
        client.has_left.set()
        await asyncio.sleep(0.01)
        return len(asyncio.all_tasks())

    assert asyncio.run(run()) == 1


def test_errors_pass() -> None:
    async def run() -> None:
        with UntilClientLeaves(Client().exchange, Departures()):
            raise LookupError

    with pytest.raises(LookupError):
        asyncio.run(run())


def test_others_may_cancel_too() -> None:
    async def run() -> None:
        client = Client()

        async def wait() -> None:
            with UntilClientLeaves(client.exchange, Departures()):
                await asyncio.sleep(60)

        task = asyncio.create_task(wait())
        await client.is_watched.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
