from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest

from prefold.gateway.call import Api, Call, Tenant
from prefold.gateway.config import GroupTable
from prefold.gateway.miss_times import START_SECONDS, Work
from prefold.gateway.uniform import PATIENCE, STEP, Uniform, on_scale
from prefold.gateway.upstream import Headers, UpstreamFailed
from prefold.responses.cache import Reply, Source

JSON: Headers = [(b"content-type", b"application/json"), (b"x-prefold-matched-tokens", b"900")]
EVENTS: Headers = [(b"content-type", b"text/event-stream")]
PROMPT = 1_000  # tokens


class Time:
    """Time that passes when everybody waits for it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._serial = itertools.count()

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._serial), future))
        await future

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        async def driven() -> Any:
            task = asyncio.create_task(main)
            while not task.done():
                for _ in range(30):  # whoever can go on without time does
                    await asyncio.sleep(0)
                if not task.done():
                    due, _, future = heapq.heappop(self._sleepers)
                    self.now = max(self.now, due)
                    if not future.done():
                        future.set_result(None)
            return task.result()

        return asyncio.run(driven())


class Bench:
    """A gateway's end: answers come at their times, and are held back."""

    def __init__(self, *, jitter: float = 0.0) -> None:
        self.time = Time()
        self.uniform = Uniform(self.time.clock, self.time.sleep, random.Random(5).random)
        self.group = GroupTable(name="default", ttft="uniform", jitter_seconds=jitter)

    def call(self, *, tenant: str = "a", api: Api = Api.CHAT, size: int = PROMPT * 4) -> Call:
        return Call(api, b"x" * size, {}, "m", False, Tenant(tenant, self.group), {})

    async def stream(
        self, *parts: tuple[float, str], call: Call | None = None, cached: int = 0, source: Source = Source.MISS
    ) -> list[tuple[float, bytes]]:
        """A stream whose parts come at these times from now on; when they left, and what they were."""
        usage = {"prompt_tokens": PROMPT, "prompt_tokens_details": {"cached_tokens": cached}}
        parts = (*parts, (parts[-1][0], f'data: {{"usage": {json.dumps(usage)}}}\n\n'))
        return await self._answered(call or self.call(), EVENTS, parts, source)

    async def whole(
        self, seconds: float, *, call: Call | None = None, cached: int = 0, written: int = 1, **reply: Any
    ) -> list[tuple[float, bytes]]:
        usage = {
            "prompt_tokens": PROMPT,
            "completion_tokens": written,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        parts = [(seconds, json.dumps({"usage": usage}))]
        return await self._answered(call or self.call(), JSON, parts, reply.get("source", Source.MISS))

    async def _answered(self, call: Call, headers: Headers, parts: Any, source: Source) -> list[tuple[float, bytes]]:
        began = self.time.now
        left: list[tuple[float, bytes]] = []
        async with self.uniform.turn(call, began) as turn:
            held = await turn.hold(Reply(source, 200, headers, self._come(began, parts)))
            self.headers = held.headers
            async for chunk in held.chunks:
                left.append((self.time.now - began, chunk))  # noqa: PERF401 - `left` is read when this fails too
        return left

    async def _come(self, began: float, parts: Any) -> AsyncIterator[bytes]:
        for at, text in parts:
            await self.time.sleep(began + at - self.time.now)
            if text is BREAK:
                raise UpstreamFailed("gone")
            yield text.encode()

    async def teach(self, seconds: float = 1.0, written: int = 1) -> None:
        for _ in range(8):
            self.uniform.times.add("m", Work(PROMPT, written), seconds, cached=0, size=PROMPT * 4)


BREAK = "break"
WORD = 'data: {"choices": [{"delta": {"content": "word"}}]}\n\n'
ROLE = 'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n'


def run(bench: Bench, test: Callable[[], Awaitable[Any]]) -> Any:
    return bench.time.run(test())


def test_hit_and_miss_begin_alike():
    bench = Bench()

    async def test() -> tuple[Any, Any]:
        await bench.teach()
        return await bench.stream((0.02, WORD), (0.12, WORD), cached=990), await bench.stream((1.0, WORD), (1.1, WORD))

    hit, miss = run(bench, test)
    assert [chunk for _, chunk in miss] == [chunk for _, chunk in hit]
    assert pytest.approx([at for at, _ in miss]) == [at for at, _ in hit]  # the later ones too
    assert pytest.approx(0.1) == hit[1][0] - hit[0][0]
    assert 1.0 <= hit[0][0] <= 1.0 * STEP * 1.2


def test_whole_answers_are_held_by_what_they_wrote():
    bench = Bench()

    async def test() -> Any:
        await bench.teach(1.0)
        await bench.teach(3.0, written=100)
        short = await bench.whole(0.02, cached=990), await bench.whole(1.0)
        long = await bench.whole(2.0, cached=990, written=100), await bench.whole(3.0, written=100)
        return [answer[0] for answer in (*short, *long)]

    short_hit, short_miss, long_hit, long_miss = run(bench, test)
    assert short_miss[1] == short_hit[1]
    assert pytest.approx(short_miss[0]) == short_hit[0]
    assert pytest.approx(long_miss[0]) == long_hit[0]
    assert 1.0 <= short_hit[0] < 3.0 <= long_hit[0]
    assert [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(long_hit[1]))] == bench.headers


def test_what_took_longer_than_expected_leaves_at_a_step_of_the_scale():
    left = []
    for seconds in (6.0, 6.7, 7.4):
        bench = Bench()

        async def test(bench: Bench = bench, seconds: float = seconds) -> float:
            await bench.teach()
            return (await bench.stream((seconds, WORD)))[0][0]

        left.append(run(bench, test))
    assert pytest.approx([on_scale(7.0)] * 3) == left


def test_the_scale():
    for seconds in (0.001, 0.3, 1.0, 1.25, STEP**7, 59.9):
        at = on_scale(seconds)
        assert seconds <= at < seconds * STEP * 1.000001
        assert at == on_scale(at)
    assert 0.0 == on_scale(0.0)


def test_jitter_is_added_to_the_first_byte_and_shifts_the_rest():
    bench = Bench(jitter=0.5)

    async def test() -> Any:
        return [await bench.stream((0.02, WORD), (0.12, WORD)) for _ in range(20)]

    answers = run(bench, test)
    expected = on_scale(START_SECONDS * Work(PROMPT * 4 // 2).weight)
    firsts = [answer[0][0] for answer in answers]
    assert 20 == len(set(firsts))
    assert all(pytest.approx(0.1) == answer[1][0] - answer[0][0] for answer in answers)
    assert expected <= firsts[0] < expected + 0.5


def test_before_anything_is_known_a_stated_time_a_token():
    bench = Bench()
    [(at, _), *_] = run(bench, lambda: bench.stream((0.02, WORD)))
    # Half as many tokens as bytes: rather too many.
    assert pytest.approx(on_scale(START_SECONDS * Work(PROMPT * 4 // 2).weight)) == at


def test_a_count_of_the_tokens_takes_the_place_of_the_guess():
    bench = Bench()

    async def test() -> float:
        call = bench.call()
        async with bench.uniform.turn(call, 0.0) as turn:
            turn.tokens = PROMPT
            held = await turn.hold(Reply(Source.MISS, 200, EVENTS, bench._come(0.0, [(0.02, WORD)])))
            assert WORD.encode() == await anext(held.chunks)
            return bench.time.now

    assert pytest.approx(on_scale(START_SECONDS * Work(PROMPT).weight)) == run(bench, test)


def test_what_only_opens_a_stream_does_not_count_as_its_beginning():
    """Or else the first word would come so much earlier after a hit."""
    bench = Bench()

    async def test() -> Any:
        await bench.teach()
        return (
            await bench.stream((0.01, ROLE), (0.02, WORD), (0.12, WORD), cached=990),
            await bench.stream((0.01, ROLE), (1.0, WORD), (1.1, WORD)),
        )

    hit, miss = run(bench, test)
    assert pytest.approx([at for at, _ in miss]) == [at for at, _ in hit]
    assert hit[0][0] == hit[1][0]


def in_order(bench: Bench, times: list[float], **options: Any) -> list[int]:
    """The order in which answers leave whose requests came together, in the order of these times."""
    order: list[int] = []

    async def one(number: int, seconds: float) -> None:
        tenant = options.get("tenants", ["a"] * len(times))[number]
        call = bench.call(tenant=tenant)
        async with bench.uniform.turn(call, bench.time.now) as turn:
            parts = [(seconds, BREAK if number in options.get("broken", ()) else WORD)]
            held = await turn.hold(Reply(Source.MISS, 200, EVENTS, bench._come(bench.time.now, parts)))
            await anext(held.chunks)
            order.append(number)

    async def test() -> None:
        await bench.teach(0.1)
        await asyncio.gather(*(one(number, at) for number, at in enumerate(times)), return_exceptions=True)

    run(bench, test)
    return order


def test_a_tenants_answers_leave_in_the_order_of_its_requests():
    assert [0, 1, 2, 3, 4] == in_order(Bench(jitter=0.3), [0.4, 0.39, 0.01, 0.3, 0.1])


def test_tenants_do_not_wait_for_each_other():
    assert [1, 0] == in_order(Bench(), [0.4, 0.01], tenants=["a", "b"])


def test_a_call_that_hangs_is_waited_for_so_long():
    bench = Bench()
    assert [1, 2, 0] == in_order(bench, [500.0, 0.01, 0.01])
    assert 500.0 > PATIENCE * 0.1


def test_a_call_that_fails_is_not_waited_for():
    assert [1, 2] == in_order(Bench(), [0.3, 0.01, 0.01], broken=(0,))


def test_what_was_kept_leaves_at_once_and_tells_nothing():
    bench = Bench()
    [(at, body)] = run(bench, lambda: bench.whole(0.001, cached=900, source=Source.HIT))
    assert 0.001 == at
    assert b"900" not in body


@pytest.mark.parametrize("source", [Source.HIT, Source.SHARED])
def test_only_calls_of_their_own_teach(source: Source):
    bench = Bench()

    async def test() -> None:
        for _ in range(10):
            await bench.whole(0.001, source=source)

    before = bench.uniform.times.expected("m", Work(PROMPT))
    run(bench, test)
    assert before == bench.uniform.times.expected("m", Work(PROMPT))


def test_what_came_teaches():
    bench = Bench()

    async def test() -> None:
        for _ in range(4):
            await bench.whole(0.5)
            await bench.stream((0.5, WORD), (9.0, WORD))

    run(bench, test)
    assert 0.5 <= bench.uniform.times.expected("m", Work(PROMPT)) < 0.6


def test_other_groups_pass_as_they_are():
    bench = Bench()
    bench.group = GroupTable(name="default")
    [(at, body)] = run(bench, lambda: bench.whole(0.001, cached=900))
    assert 0.001 == at
    assert b"900" in body
    assert JSON == bench.headers


@pytest.mark.parametrize(("api", "is_held"), [(Api.EMBEDDINGS, True), (Api.COUNT_TOKENS, False)])
def test_what_meets_the_cache_is_held(api: Api, is_held: bool):
    bench = Bench()
    [(at, _)] = run(bench, lambda: bench.whole(0.001, call=bench.call(api=api)))
    assert is_held is (at > 0.001)


@pytest.mark.parametrize("parts", [[(0.1, BREAK)], [(0.1, ROLE), (0.2, BREAK)]])
def test_a_failure_before_the_beginning_is_raised_by_hold(parts: Any):
    bench = Bench()
    with pytest.raises(UpstreamFailed, match="gone"):
        run(bench, lambda: bench._answered(bench.call(), EVENTS, parts, Source.MISS))


def test_a_failure_in_the_middle_comes_after_what_came_before_it():
    bench = Bench()
    left: list[bytes] = []

    async def test() -> None:
        async with bench.uniform.turn(bench.call(), 0.0) as turn:
            parts = bench._come(0.0, [(0.1, WORD), (0.2, BREAK)])
            held = await turn.hold(Reply(Source.MISS, 200, EVENTS, parts))
            async for chunk in held.chunks:
                left.append(chunk)  # noqa: PERF401 - it is read after a failure

    with pytest.raises(UpstreamFailed, match="gone"):
        run(bench, test)
    assert [WORD.encode()] == left


def test_a_compressed_answer_is_refused():
    bench = Bench()
    headers = [*JSON, (b"content-encoding", b"gzip")]
    with pytest.raises(UpstreamFailed, match="compressed"):
        run(bench, lambda: bench._answered(bench.call(), headers, [(0.1, "x")], Source.MISS))


def test_reading_stops_when_the_client_leaves():
    bench = Bench()
    closed: list[bool] = []

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                await bench.time.sleep(0.1)
                yield WORD.encode()
        finally:
            closed.append(True)

    async def test() -> None:
        async with bench.uniform.turn(bench.call(), 0.0) as turn:
            held = await turn.hold(Reply(Source.MISS, 200, EVENTS, endless()))
            await anext(held.chunks)
        assert [True] == closed
        assert {} == bench.uniform.last

    run(bench, test)


def test_a_slow_client_makes_the_upstream_wait():
    bench = Bench()
    given = 0

    async def fast() -> AsyncIterator[bytes]:
        nonlocal given
        for _ in range(100):
            given += 1
            yield b'data: {"choices": [{"delta": {"content": "%b"}}]}\n\n' % (b"x" * 100_000)

    async def test() -> None:
        async with bench.uniform.turn(bench.call(), 0.0) as turn:
            held = await turn.hold(Reply(Source.MISS, 200, EVENTS, fast()))
            await anext(held.chunks)
            await bench.time.sleep(10.0)
            assert given < 20
            assert 99 == len([chunk async for chunk in held.chunks])

    run(bench, test)
