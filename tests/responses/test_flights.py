"""Single flight: who calls upstream, who listens, and what happens when one of them goes."""

import asyncio

import pytest

from prefold.responses.flights import Flights, FlightStopped

from .support import CHAT_EVENTS, EVENT_STREAM, KEY, FakeAnswer, FakeUpstream, settle


class Kept:
    """What was given to be kept."""

    def __init__(self):
        self.answers = []

    async def keep(self, answer, chunks):
        self.answers.append(None if chunks is None else tuple(chunks))


def run(scenario, limit=1_000_000, count=10):
    async def main():
        flights, kept = Flights(limit, count), Kept()
        await scenario(flights, kept)
        await settle()
        assert 0 == len(flights)
        assert {} == flights._listed

    asyncio.run(asyncio.wait_for(main(), 20))


async def hear(listener):
    chunks = [chunk async for chunk in listener]
    listener.leave()
    return tuple(chunks)


def test_those_who_come_at_once_make_one_call():
    async def scenario(flights, kept):
        gate = asyncio.Event()
        upstream = FakeUpstream(FakeAnswer(), gate=gate)
        boarding = [asyncio.create_task(flights.board(KEY, upstream.fetch, kept.keep)) for _ in range(50)]
        await settle()
        gate.set()
        listeners = await asyncio.gather(*boarding)
        assert [True] + [False] * 49 == [listener.is_first for listener in listeners]
        assert [CHAT_EVENTS] * 50 == await asyncio.gather(*map(hear, listeners))
        assert 1 == upstream.calls
        await settle()
        assert [CHAT_EVENTS] == kept.answers

    run(scenario)


def test_other_keys_make_other_calls():
    async def scenario(flights, kept):
        upstream = FakeUpstream(FakeAnswer())
        keys = [b"a", b"b", b"c"]
        listeners = await asyncio.gather(*(flights.board(key, upstream.fetch, kept.keep) for key in keys))
        await asyncio.gather(*map(hear, listeners))
        assert 3 == upstream.calls

    run(scenario)


def test_who_comes_late_hears_what_was_said_and_then_what_is_said():
    async def scenario(flights, kept):
        tickets = asyncio.Semaphore(0)
        answer = FakeAnswer(tickets=tickets)
        upstream = FakeUpstream(answer)
        first = await flights.board(KEY, upstream.fetch, kept.keep)
        for _ in range(2):
            tickets.release()
        assert CHAT_EVENTS[:2] == (await anext(first), await anext(first))
        late = await flights.board(KEY, upstream.fetch, kept.keep)
        assert CHAT_EVENTS[:2] == (await anext(late), await anext(late))
        waiting = asyncio.create_task(anext(late))
        await settle()
        assert not waiting.done()
        tickets.release()
        assert CHAT_EVENTS[2] == await waiting
        tickets.release()
        assert (CHAT_EVENTS[2:], CHAT_EVENTS[3:]) == (await hear(first), await hear(late))
        assert (1, True) == (upstream.calls, answer.is_closed)

    run(scenario)


@pytest.mark.parametrize("head", [False, True])
def test_the_last_to_leave_stops_the_call_at_once(head):
    async def scenario(flights, kept):
        answer = FakeAnswer(tickets=asyncio.Semaphore(1))
        gate = asyncio.Event()
        upstream = FakeUpstream(answer, gate=gate)
        boarding = [asyncio.create_task(flights.board(KEY, upstream.fetch, kept.keep)) for _ in range(2)]
        await settle()
        if head:
            gate.set()
            for listener in await asyncio.gather(*boarding):
                assert not answer.is_closed
                listener.leave()
        else:
            for board in boarding:
                assert 1 == len(flights)
                board.cancel()
                await settle()
        await settle()
        assert (head, 0) == (answer.is_closed, len(flights))
        assert [] == kept.answers

    run(scenario)


def test_the_call_goes_on_while_somebody_listens():
    async def scenario(flights, kept):
        tickets = asyncio.Semaphore(0)
        upstream = FakeUpstream(FakeAnswer(tickets=tickets))
        first = await flights.board(KEY, upstream.fetch, kept.keep)
        second = await flights.board(KEY, upstream.fetch, kept.keep)
        first.leave()
        first.leave()
        for _ in CHAT_EVENTS:
            tickets.release()
        assert CHAT_EVENTS == await hear(second)
        await settle()
        assert [CHAT_EVENTS] == kept.answers

    run(scenario)


def test_an_answer_heard_to_its_last_event_is_kept_though_its_client_left():
    async def scenario(flights, kept):
        tickets = asyncio.Semaphore(4)
        # The connection ends some time after the last event.
        upstream = FakeUpstream(FakeAnswer((*CHAT_EVENTS, b""), tickets=tickets))
        listener = await flights.board(KEY, upstream.fetch, kept.keep)
        assert CHAT_EVENTS == tuple([await anext(listener) for _ in CHAT_EVENTS])
        listener.leave()
        tickets.release()
        await settle()
        assert [(*CHAT_EVENTS, b"")] == kept.answers

    run(scenario)


def test_after_one_that_nobody_hears_comes_a_new_call():
    async def scenario(flights, kept):
        upstream = FakeUpstream(FakeAnswer(tickets=asyncio.Semaphore(0)), FakeAnswer())
        (await flights.board(KEY, upstream.fetch, kept.keep)).leave()
        # It has been told to stop, but had no turn to do so.
        listener = await flights.board(KEY, upstream.fetch, kept.keep)
        assert listener.is_first
        assert CHAT_EVENTS == await hear(listener)

    run(scenario)


@pytest.mark.parametrize(
    "failure",
    [
        OSError("refused"),
        FakeAnswer((b"busy",), status=429),
        FakeAnswer(headers=[EVENT_STREAM, (b"content-encoding", b"gzip")]),
    ],
    ids=["error", "status", "encoding"],
)
def test_a_failure_concerns_its_first_listener_and_one_other_calls_again(failure):
    async def scenario(flights, kept):
        gate = asyncio.Event()
        upstream = FakeUpstream(failure, FakeAnswer(), gate=gate)
        boarding = [asyncio.create_task(flights.board(KEY, upstream.fetch, kept.keep)) for _ in range(5)]
        await settle()
        assert 1 == upstream.calls
        gate.set()
        first, *others = await asyncio.gather(*boarding, return_exceptions=True)
        if isinstance(failure, OSError):
            assert failure is first
        else:
            assert (failure, True) == (first.answer, first.is_first)
            await hear(first)
        assert [True, False, False, False] == [other.is_first for other in others]
        assert [CHAT_EVENTS] * 4 == await asyncio.gather(*map(hear, others))
        assert 2 == upstream.calls

    run(scenario)


def test_after_two_failures_everybody_goes_alone():
    async def scenario(flights, kept):
        upstream = FakeUpstream(OSError("1"), OSError("2"), FakeAnswer())
        found = await asyncio.gather(
            *(flights.board(KEY, upstream.fetch, kept.keep) for _ in range(5)), return_exceptions=True
        )
        assert ["1", "2"] == [str(failure) for failure in found if failure is not None]
        assert (2, 3) == (upstream.calls, found.count(None))

    run(scenario)


def test_an_answer_that_breaks_off_does_so_for_all_and_is_not_kept():
    async def scenario(flights, kept):
        upstream = FakeUpstream(FakeAnswer(CHAT_EVENTS[:2], fails=OSError("reset")))
        listeners = await asyncio.gather(*(flights.board(KEY, upstream.fetch, kept.keep) for _ in range(3)))
        for listener in listeners:
            assert CHAT_EVENTS[:2] == (await anext(listener), await anext(listener))
            with pytest.raises(OSError, match="reset"):
                await anext(listener)
            listener.leave()
        assert [] == kept.answers

    run(scenario)


def test_a_long_answer_is_passed_on_in_bounded_memory_and_not_kept():
    chunks = tuple(b"%03d" % number for number in range(100))

    async def scenario(flights, kept):
        answer = FakeAnswer(chunks)
        upstream = FakeUpstream(answer, FakeAnswer())
        fast, slow = await asyncio.gather(*(flights.board(KEY, upstream.fetch, kept.keep) for _ in range(2)))
        await settle()
        assert 11 == answer.sent  # 30 bytes, and the chunk that was too much
        assert chunks[:11] == tuple([await anext(fast) for _ in range(11)])
        await settle()
        assert 11 == answer.sent
        assert chunks[0] == await anext(slow)
        await settle()
        assert 12 == answer.sent
        newcomer = await flights.board(KEY, upstream.fetch, kept.keep)
        assert newcomer.is_first
        newcomer.leave()
        assert (chunks[11:], chunks[1:]) == tuple(await asyncio.gather(hear(fast), hear(slow)))
        await settle()
        assert [None] == kept.answers

    run(scenario, limit=30)


def test_who_is_slow_and_leaves_holds_up_nobody():
    chunks = tuple(b"%03d" % number for number in range(100))

    async def scenario(flights, kept):
        upstream = FakeUpstream(FakeAnswer(chunks))
        fast, slow = await asyncio.gather(*(flights.board(KEY, upstream.fetch, kept.keep) for _ in range(2)))
        hearing = asyncio.create_task(hear(fast))
        await settle()
        assert not hearing.done()
        slow.leave()
        assert chunks == await hearing

    run(scenario, limit=30)


def test_their_number_is_bounded():
    async def scenario(flights, kept):
        upstream = FakeUpstream(FakeAnswer(tickets=asyncio.Semaphore(0)))
        listeners = [await flights.board(b"%d" % number, upstream.fetch, kept.keep) for number in range(3)]
        assert listeners.pop() is None
        joined = await flights.board(b"0", upstream.fetch, kept.keep)
        assert not joined.is_first
        for listener in (*listeners, joined):
            listener.leave()

    run(scenario, count=2)


def test_one_can_be_joined_until_its_answer_is_kept():
    async def scenario(flights, kept):
        upstream = FakeUpstream(FakeAnswer())
        stored = asyncio.Event()

        async def keep(answer, chunks):
            await stored.wait()

        assert CHAT_EVENTS == await hear(await flights.board(KEY, upstream.fetch, keep))
        late = await flights.board(KEY, upstream.fetch, keep)
        assert CHAT_EVENTS == await hear(late)
        assert not late.is_first
        stored.set()

    run(scenario)


def test_listeners_hear_the_end_before_the_answer_is_kept():
    async def scenario(flights, kept):
        order = []

        async def keep(answer, chunks):
            order.append("kept")

        async def heard(listener):
            await hear(listener)
            order.append("heard")

        tickets = asyncio.Semaphore(0)
        upstream = FakeUpstream(FakeAnswer(tickets=tickets))
        listeners = await asyncio.gather(*(flights.board(KEY, upstream.fetch, keep) for _ in range(3)))
        hearing = [asyncio.create_task(heard(listener)) for listener in listeners]
        await settle()
        for _ in CHAT_EVENTS:
            tickets.release()
        await asyncio.gather(*hearing)
        await settle()
        assert ["heard", "heard", "heard", "kept"] == order

    run(scenario)


def test_closing_lets_answers_be_kept_and_stops_the_rest():
    async def scenario(flights, kept):
        stuck = FakeAnswer(tickets=asyncio.Semaphore(1))
        listener = await flights.board(b"stuck", FakeUpstream(stuck).fetch, kept.keep)
        whole = await flights.board(b"whole", FakeUpstream(FakeAnswer()).fetch, kept.keep)
        await hear(whole)
        await flights.close(0.01)
        assert [CHAT_EVENTS] == kept.answers
        assert stuck.is_closed
        assert CHAT_EVENTS[0] == await anext(listener)
        with pytest.raises(FlightStopped):
            await anext(listener)
        listener.leave()

    run(scenario)
