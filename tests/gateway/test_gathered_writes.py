"""Writes of one turn of the event loop go out as one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from prefold.gateway.gathered_writes import GatheringTransport


class Recorded(asyncio.Transport):
    """Notes what is done with it."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.done.append(bytes(data))

    def close(self) -> None:
        self.done.append("close")

    def abort(self) -> None:
        self.done.append("abort")

    def is_closing(self) -> bool:
        return "close" in self.done

    def pause_reading(self) -> None:
        self.done.append("pause")

    def resume_reading(self) -> None:
        self.done.append("resume")

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 1) if name == "peername" else default


def done_by(*steps: Callable[[GatheringTransport], None]) -> list[bytes | str]:
    """What happens to the transport, where each step has a turn of its own."""

    async def run() -> list[bytes | str]:
        recorded = Recorded()
        transport = GatheringTransport(recorded, asyncio.get_running_loop())
        for step in steps:
            step(transport)
            await asyncio.sleep(0)
        return recorded.done

    return asyncio.run(run())


def writing(*parts: bytes) -> Callable[[GatheringTransport], None]:
    def write(transport: GatheringTransport) -> None:
        for part in parts:
            transport.write(part)

    return write


def test_one_turn_is_one_write() -> None:
    assert [b"headbodyend"] == done_by(writing(b"head", b"body", b"end"))


def test_each_turn_has_its_own() -> None:
    assert [b"head", b"body"] == done_by(writing(b"head"), writing(b"body"))


def test_much_does_not_wait() -> None:
    piece = bytes(40 << 10)

    def write(transport: GatheringTransport) -> None:
        writing(piece, piece)(transport)
        transport.pause_reading()
        transport.write(b"rest")

    assert [piece + piece, "pause", b"rest"] == done_by(write)


def test_closing_writes_what_is_left() -> None:
    def close(transport: GatheringTransport) -> None:
        writing(b"last ", b"words")(transport)
        transport.close()

    assert [b"last words", "close"] == done_by(close)


def test_aborting_drops_it() -> None:
    def abort(transport: GatheringTransport) -> None:
        transport.write(b"unsaid")
        transport.abort()

    assert ["abort"] == done_by(abort)


def test_all_else_is_passed_on() -> None:
    seen: list[object] = []

    def use(transport: GatheringTransport) -> None:
        transport.pause_reading()
        transport.resume_reading()
        seen.extend((transport.is_closing(), transport.get_extra_info("peername"), transport.get_extra_info("none", 7)))

    assert ["pause", "resume"] == done_by(use)
    assert [False, ("127.0.0.1", 1), 7] == seen


@pytest.mark.parametrize("data", [bytearray(b"changes"), memoryview(bytearray(b"changes"))])
def test_what_is_written_is_what_it_was_then(data: bytearray | memoryview) -> None:
    def write(transport: GatheringTransport) -> None:
        transport.write(data)
        data[:] = b"CHANGED"

    assert [b"changes"] == done_by(write)
