"""The fleet over real applications and servers, by a clock that tests set."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from prefold.errors import UsageError
from prefold.gateway.condition import EJECTION_SECONDS, LONGEST_EJECTION_SECONDS, WINDOW_SECONDS
from prefold.gateway.config import (
    GatewayConfig,
    GroupTable,
    HealthOptions,
    Isolation,
    Kind,
    ReplicaTable,
    Secret,
    UpstreamOptions,
)
from prefold.gateway.embedded import AppUpstream
from prefold.gateway.http_upstream import HttpUpstream
from prefold.gateway.replica import Lease, retry_after
from prefold.gateway.replicas import MODELS_SECONDS, Fleet, http_upstreams
from prefold.gateway.upstream import Outgoing, Upstream
from prefold.server.asgi import HttpError

ALL = GroupTable(name="default")
WALL_TIME = 1_700_000_000.0


@dataclass
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Engine:
    """A replica's server, as an application whose behaviour tests set."""

    health: int = 200
    models: tuple[str, ...] = ("m",)
    is_hanging: bool = False
    asked: list[str] = field(default_factory=list)
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["path"])
        self.was_asked.set()
        if self.is_hanging:
            await asyncio.Event().wait()
        status = self.health if scope["path"] == "/health" else 200
        body = json.dumps({"object": "list", "data": [{"id": name, "more": 1} for name in self.models]}).encode()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})


class Setup:
    """A fleet of engines named a, b, c, ... that all serve the model m."""

    def __init__(self, size: int = 3, **options: Any) -> None:
        self.clock = Clock()
        self.engines: dict[str, Engine] = {}
        self.opened: list[str] = []
        self.options = options
        self.fleet = Fleet(
            self.config(*[table("abcdefgh"[index]) for index in range(size)]),
            self.open_upstream,
            clock=self.clock,
            wall_clock=lambda: WALL_TIME,
        )

    def config(self, *tables: ReplicaTable) -> GatewayConfig:
        return GatewayConfig(
            replica=tables,
            health=HealthOptions(timeout_seconds=self.options.get("timeout_seconds", 5.0)),
            upstream=UpstreamOptions(ejection_share=self.options.get("ejection_share", 0.5)),
        )

    def open_upstream(self, table: ReplicaTable, options: UpstreamOptions) -> Upstream:
        self.opened.append(table.name)
        return AppUpstream(self.engines.setdefault(table.name, Engine()), table.name)

    def check(self, times: int = 1) -> None:
        for _ in range(times):
            asyncio.run(self.fleet.check())

    @property
    def usable(self) -> str:
        """Names of the usable replicas; empty for none."""
        return self.usable_for("m")

    @property
    def states(self) -> list[str]:
        return [replica["state"] for replica in self.fleet.as_json()]

    def usable_for(self, model: str) -> str:
        """The same for another model."""
        with suppress(HttpError):
            return "".join([self.fleet.replicas[index].table.name for index in self.fleet.usable(model, ALL)])
        return ""

    def begin(self, name: str, tokens: int = 0, model: str = "m") -> Lease:
        index = [replica.table.name for replica in self.fleet.replicas].index(name)
        return self.fleet.begin(index, tokens, model)

    def calls(
        self,
        name: str,
        status: int | None,
        times: int = 1,
        *,
        model: str = "m",
        is_unreachable: bool = False,
        **headers: str,
    ) -> None:
        """Calls that end with a status, or without any."""
        for _ in range(times):
            lease = self.begin(name, model=model)
            if status is None:
                lease.failed(is_unreachable=is_unreachable)
            else:
                lease.answered(status, {key.replace("_", "-").encode(): text.encode() for key, text in headers.items()})


def table(name: str, **more: Any) -> ReplicaTable:
    return ReplicaTable(**{"name": name, "url": f"http://{name}", "models": ("m",), "kind": Kind.VLLM, **more})


# Health


def test_checks_decide_at_first_and_then_by_thresholds():
    setup = Setup(2)
    setup.engines["a"].health = 503
    assert "ab" == setup.usable
    setup.check()
    assert "b" == setup.usable
    setup.engines["a"].health = 200
    setup.engines["b"].health = 500
    setup.check()
    assert ["down", "up"] == setup.states
    setup.check()
    assert "ab" == setup.usable  # it rose after two, the other falls after three
    setup.check()
    assert "a" == setup.usable
    setup.engines["b"].health = 200
    setup.check()
    setup.engines["b"].health = 500
    setup.check()
    setup.engines["b"].health = 200
    setup.check()
    assert "a" == setup.usable  # two in a row make it rise
    setup.check()
    assert "ab" == setup.usable


@pytest.mark.parametrize("status", [204, 401, 404])
def test_who_answers_at_all_is_there(status):
    setup = Setup(1)
    setup.engines["a"].health = status
    setup.check(3)
    assert "a" == setup.usable


def test_who_hangs_is_not():
    setup = Setup(1, timeout_seconds=0.05)
    setup.engines["a"].is_hanging = True
    setup.check()
    assert ["down"] == setup.states


def test_hosted_replicas_are_not_asked_how_they_are():
    setup = Setup(0)
    setup.fleet.reload(setup.config(table("a", kind=Kind.OPENAI), table("b", kind=Kind.ANTHROPIC, models=())))
    setup.check()
    assert {"a": [], "b": ["/v1/models"]} == {name: engine.asked for name, engine in setup.engines.items()}


def test_nobody_up_is_an_error_that_says_when_to_try_again():
    setup = Setup(1)
    setup.engines["a"].health = 503
    setup.check()
    with pytest.raises(HttpError, match="No replica of 'm'") as refused:
        setup.fleet.usable("m", ALL)
    assert (503, "4") == (refused.value.status, refused.value.headers["retry-after"])


def test_the_loop_runs_until_cancelled():
    setup = Setup(1)

    async def main() -> None:
        running = asyncio.ensure_future(setup.fleet.run())
        await setup.engines["a"].was_asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())


# Models


def test_models_are_asked_for_and_asked_again():
    setup = Setup(0)
    setup.fleet.reload(setup.config(table("a", models=()), table("b", models=("m", "n"))))
    assert [1] == setup.fleet.replicas_for("m", ALL)
    setup.check()
    assert [0, 1] == setup.fleet.replicas_for("m", ALL)
    assert ["m", "n"] == setup.fleet.models(ALL)
    assert ["/health"] == setup.engines["b"].asked
    setup.engines["a"].models = ("o",)
    setup.check()
    assert ["m", "n"] == setup.fleet.models(ALL)
    setup.clock.now += MODELS_SECONDS
    setup.check()
    assert ["m", "n", "o"] == setup.fleet.models(ALL)


def test_a_model_is_not_denied_before_those_that_may_have_it_were_asked():
    setup = Setup(1)
    setup.fleet.reload(setup.config(table("b", models=())))
    for status, code in ((503, "no_replica"), (404, "model_not_found")):
        with pytest.raises(HttpError) as refused:
            setup.fleet.usable("other", ALL)
        assert (status, code) == (refused.value.status, refused.value.code)
        setup.check()
    assert "b" == setup.usable


def test_a_replica_that_comes_back_is_asked_at_once():
    setup = Setup(0)
    setup.fleet.reload(setup.config(table("a", models=())))
    setup.check()
    setup.engines["a"].health = 503
    setup.check(3)
    setup.engines["a"].health, setup.engines["a"].models = 200, ("o",)
    setup.check(2)
    assert ["o"] == setup.fleet.models(ALL)


@pytest.mark.parametrize("answer", [b"", b"[]", b"{", b'{"data": [1]}', b'{"data": [{"id": 1}]}', b"x" * (2 << 20)])
def test_what_is_no_list_of_models_changes_nothing(answer):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": answer})

    fleet = Fleet(GatewayConfig(replica=(table("a", models=()),)), lambda *_: AppUpstream(app, "a"))
    asyncio.run(fleet.check())
    assert [] == fleet.models(ALL)
    assert ["up"] == [replica["state"] for replica in fleet.as_json()]


def test_groups_see_what_is_theirs():
    setup = Setup(0)
    setup.fleet.reload(setup.config(table("a"), table("b", groups=("gold",)), table("c", groups=("gold", "own"))))
    assert [0] == setup.fleet.usable("m", ALL)
    assert [0, 1, 2] == setup.fleet.usable("m", GroupTable(name="gold"))
    own = GroupTable(name="own", isolation=Isolation.DEDICATED)
    assert [2] == setup.fleet.usable("m", own)
    with pytest.raises(HttpError, match="There is no model 'm'") as refused:
        setup.fleet.usable("m", GroupTable(name="other", isolation=Isolation.DEDICATED))
    assert (404, "model_not_found") == (refused.value.status, refused.value.code)


# The circuit breaker


@pytest.mark.parametrize("status", [None, 502, 503, 504])
def test_failures_in_a_row_open_the_breaker(status):
    setup = Setup(2)
    setup.calls("a", status, 4)
    setup.calls("a", 200)
    setup.calls("a", status, 4)
    assert "ab" == setup.usable
    setup.calls("a", status)
    assert "b" == setup.usable
    assert ["open", "up"] == setup.states


@pytest.mark.parametrize("status", [400, 404, 429, 500, 529])
def test_what_a_server_says_itself_does_not(status):
    setup = Setup(2)
    setup.calls("a", status, 9)
    assert ["up", "up"] == setup.states


def test_one_trial_decides_an_open_breaker():
    setup = Setup(2)
    setup.calls("a", None, 5)
    setup.clock.now += 9.9
    assert "b" == setup.usable
    setup.clock.now += 0.1
    assert "ab" == setup.usable
    trial = setup.begin("a")
    assert "b" == setup.usable
    trial.failed()
    setup.clock.now += 9.9
    assert "b" == setup.usable
    setup.clock.now += 0.1
    setup.calls("a", 200)
    assert ["up", "up"] == setup.states


def test_a_trial_whose_client_leaves_is_followed_by_another():
    setup = Setup(2)
    setup.calls("a", None, 5)
    setup.clock.now += 10
    trial = setup.begin("a")
    trial.left()
    assert "ab" == setup.usable
    trial = setup.begin("a")
    assert "b" == setup.usable
    trial.first_byte()  # the stream has begun, which is enough
    assert "ab" == setup.usable


def test_calls_from_before_do_not_close_the_breaker_nor_hold_it_open():
    setup = Setup(2)
    early, late = setup.begin("a"), setup.begin("a")
    setup.calls("a", None, 5)
    early.answered(200, {})
    assert "b" == setup.usable
    setup.clock.now += 9
    late.failed()
    setup.clock.now += 1
    assert "ab" == setup.usable


def test_a_replica_that_was_down_and_rose_starts_anew():
    setup = Setup(1)
    setup.calls("a", None, 5)
    setup.check()
    setup.engines["a"].health = 503
    setup.check(3)
    setup.engines["a"].health = 200
    setup.check(2)
    assert ["up"] == setup.states


def two_models(size: int) -> Setup:
    """A fleet whose replicas all serve the models m and n."""
    setup = Setup(0)
    setup.fleet.reload(setup.config(*[table("abcd"[index], models=("m", "n")) for index in range(size)]))
    return setup


@pytest.mark.parametrize("status", [None, 502, 503, 504])
def test_a_model_that_fails_closes_nothing_for_others(status):
    setup = two_models(2)
    for name in "ab":
        setup.calls(name, status, 9, model="n")
    assert "ab" == setup.usable
    assert [{"n": "open"}] * 2 == [replica["states"] for replica in setup.fleet.as_json()]
    assert ["up", "up"] == setup.states
    setup.calls("a", 200, model="m")
    assert {"n": "open"} == setup.fleet.as_json()[0]["states"]  # which is not to say that n works again


def test_a_replica_that_cannot_be_reached_is_so_for_all_models():
    setup = two_models(2)
    setup.calls("a", None, 5, model="n", is_unreachable=True)
    assert ("b", "b") == (setup.usable, setup.usable_for("n"))
    setup.calls("b", None, 5, model="n", is_unreachable=True)
    assert ("", "") == (setup.usable, setup.usable_for("n"))
    setup.clock.now += 10
    assert "ab" == setup.usable
    setup.calls("a", None, model="m")  # it can be reached, though this did not work
    assert "ab" == setup.usable_for("n")


def test_where_all_fail_at_a_model_those_who_send_something_else_are_served():
    setup = Setup(2)
    setup.calls("a", None, 5)
    assert "b" == setup.usable
    setup.calls("b", None, 5)
    assert "ab" == setup.usable
    setup.calls("b", 200)
    assert "b" == setup.usable
    setup.engines["b"].health = 503
    setup.check(3)
    assert (["open", "down"], "a") == (setup.states, setup.usable)


def test_models_that_are_served_no_longer_are_forgotten():
    setup = two_models(1)
    setup.calls("a", None, 5, model="n")
    setup.fleet.reload(setup.config(table("a", models=("m",))))
    setup.check()
    setup.fleet.reload(setup.config(table("a", models=("m", "n"))))
    assert {} == setup.fleet.as_json()[0]["states"]


# Rest


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_wait_that_is_asked_for_is_kept_unless_nobody_else_is_there(status):
    setup = Setup(2)
    setup.calls("a", status, retry_after="7")
    assert "b" == setup.usable
    setup.calls("b", status, retry_after="9")
    assert "ab" == setup.usable
    setup.clock.now += 7
    assert "a" == setup.usable
    setup.clock.now += 2
    assert ["up", "up"] == setup.states


@pytest.mark.parametrize(
    ("more", "usable"),
    [({"kind": Kind.OPENAI}, "ab"), ({"kind": Kind.OPENAI, "api_key": Secret(env="KEY")}, "b"), ({}, "b")],
    ids=["the client's key", "our key", "an engine"],
)
def test_a_limit_of_a_clients_own_key_concerns_nobody_else(more, usable):
    setup = Setup(0)
    setup.fleet.reload(setup.config(table("a", **more), table("b")))
    setup.calls("a", 429, retry_after="60")
    assert usable == setup.usable


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({b"retry-after": b"7"}, 7.0),
        ({b"retry-after": b"0.5"}, 0.5),
        ({b"retry-after": b"Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({b"retry-after": b"Tue, 14 Nov 2022 22:13:50 GMT"}, 0.0),
        ({b"retry-after": b"7", b"retry-after-ms": b"250"}, 0.25),
        ({b"retry-after": b"soon"}, None),
        ({b"retry-after": b"1e999"}, None),
        ({b"retry-after-ms": b"nan"}, None),
        ({b"retry-after": b"\xff"}, None),
        ({b"retry-after": b""}, None),
    ],
)
def test_retry_after_is_read(headers, seconds):
    assert seconds == retry_after(headers, WALL_TIME)


def test_nobody_rests_for_ever():
    setup = Setup(2)
    setup.calls("a", 503, retry_after="999999999")
    setup.clock.now += 3_600
    assert "ab" == setup.usable


# Outliers


def test_each_change_is_told_once_and_by_name(caplog):
    setup = Setup(4, ejection_share=1.0)

    def told() -> list[str]:
        setup.check(times=2)
        messages = [record.getMessage().split(":")[0] for record in caplog.records if record.levelname == "WARNING"]
        caplog.clear()
        return messages

    with caplog.at_level("WARNING", "prefold.gateway.replica"):
        setup.engines["d"].health = 503
        assert ["The replica d is down"] == told()  # from the start
        assert [] == told()
        setup.engines["d"].health = 200
        assert ["The replica d is up again"] == told()
        setup.calls("a", None, times=20)
        assert ["The replica a is left alone for a time"] == [
            record.getMessage().split(":")[0] for record in caplog.records
        ]  # at once
        assert 1 == len(told())  # and not again by the checks
        setup.clock.now += 60.0
        setup.calls("a", 200)
        assert ["The replica a is up again"] == told()
        for name, status in (("a", 200), ("b", 500)):
            setup.calls(name, status, times=20)
        assert ["The replica b is ejected for a time"] == told()
        setup.clock.now += EJECTION_SECONDS
        assert ["The replica b is up again"] == told()
        setup.calls("a", 429, retry_after="9")
        assert ["resting"] == setup.states[:1]
        assert [] == told()
        setup.fleet.reload(setup.config(table("b")))
        assert [] == told()


def test_who_fails_more_than_the_others_is_left_out_for_a_while_and_longer_each_time():
    setup = Setup(3)
    waits = []
    for _ in range(7):
        for name in "abc":
            setup.calls(name, 500 if name == "a" else 200, 10)
        setup.check()
        assert (["ejected", "up", "up"], "bc") == (setup.states, setup.usable)
        began = setup.clock.now
        while setup.usable == "bc":
            setup.clock.now += EJECTION_SECONDS
        waits.append(setup.clock.now - began)
    assert [30, 60, 120, 240, 480, LONGEST_EJECTION_SECONDS, LONGEST_EJECTION_SECONDS] == waits
    setup.clock.now += LONGEST_EJECTION_SECONDS + 1
    for name in "abc":
        setup.calls(name, 500 if name == "a" else 200, 10)
    setup.check()
    assert EJECTION_SECONDS == setup.fleet.as_json()[0]["seconds_left"]


def test_who_fails_at_one_model_is_left_out_for_that_alone(caplog):
    setup = two_models(3)
    for name in "abc":
        setup.calls(name, 500 if name == "a" else 200, 10, model="n")
        setup.calls(name, 200, 10)
    with caplog.at_level("WARNING", "prefold.gateway.replica"):
        setup.check(2)
        assert ("abc", "bc") == (setup.usable, setup.usable_for("n"))
        assert {"n": "ejected"} == setup.fleet.as_json()[0]["states"]
        setup.clock.now += EJECTION_SECONDS
        setup.check(2)
    assert ["The replica a is, for 'n', ejected for a time", "The replica a is, for 'n', up again"] == [
        record.getMessage().split(":")[0] for record in caplog.records
    ]


def test_a_model_that_one_replica_alone_has_is_no_reason_to_leave_it_out():
    setup = Setup(0)
    setup.fleet.reload(setup.config(table("a", models=("m", "n")), table("b"), table("c")))
    setup.calls("a", 500, 30, model="n")
    for name in "abc":
        setup.calls(name, 200, 10)
    setup.check()
    assert ["up"] * 3 == setup.states
    assert "abc" == setup.usable


@pytest.mark.parametrize(
    "calls",
    [
        {"a": (9, 0), "b": (0, 10), "c": (0, 10)},  # too few to tell
        {"a": (4, 6), "b": (0, 10), "c": (0, 10)},  # not half of them
        {"a": (10, 0), "b": (8, 2), "c": (8, 2)},  # all fail
        {"a": (10, 0), "b": (0, 4), "c": (0, 4)},  # the others did too little to compare
    ],
)
def test_nobody_is_left_out_without_cause(calls):
    setup = Setup(3)
    for name, (bad, good) in calls.items():
        setup.calls(name, 500, bad)
        setup.calls(name, 200, good)
    setup.check()
    assert ["up"] * 3 == setup.states


def test_what_is_long_ago_is_forgotten():
    setup = Setup(3)
    setup.calls("a", 500, 10)
    setup.clock.now += WINDOW_SECONDS + 1
    for name in "abc":
        setup.calls(name, 200, 10)
    setup.check()
    assert ["up"] * 3 == setup.states


@pytest.mark.parametrize(("size", "share", "out"), [(4, 0.5, 2), (2, 0.4, 0), (1, 1.0, 0), (2, 0.5, 1), (3, 0.34, 1)])
def test_no_more_than_a_share_is_left_out(size, share, out):
    setup = Setup(size, ejection_share=share)
    for index, name in enumerate("abcdefgh"[:size]):
        setup.calls(name, 500 if index < size / 2 else 200, 10)
    setup.check()
    assert out == setup.states.count("ejected")


def test_a_second_one_is_left_out_while_there_is_room():
    setup = Setup(6)
    for name in "abcdef":
        setup.calls(name, 500 if name in "ab" else 200, 20)
    setup.check()
    assert ["ejected", "ejected", "up", "up", "up", "up"] == setup.states


def test_who_is_left_out_is_better_than_nobody():
    setup = Setup(2)
    for name in "ab":
        setup.calls(name, 500 if name == "a" else 200, 10)
    setup.check()
    assert "b" == setup.usable
    setup.calls("b", None, 5)
    assert "a" == setup.usable


def waiting(setup: Setup, name: str, seconds: float, tokens: int) -> None:
    for _ in range(10):
        lease = setup.begin(name, tokens)
        setup.clock.now += seconds
        lease.first_byte()
        setup.clock.now -= seconds
        lease.answered(200, {})


@pytest.mark.parametrize(
    ("seconds", "tokens", "state"),
    [
        (6.0, 500, "ejected"),
        (4.0, 500, "up"),  # less than five times as slow
        (6.0, 20_000, "up"),  # its prompts are long
    ],
)
def test_who_is_far_slower_is_left_out(seconds, tokens, state):
    setup = Setup(3)
    waiting(setup, "a", seconds, tokens)
    waiting(setup, "b", 1.0, 500)
    waiting(setup, "c", 1.0, 500)
    setup.check()
    assert [state, "up", "up"] == setup.states


def test_a_short_wait_is_never_too_long():
    setup = Setup(2)
    waiting(setup, "a", 0.9, 500)
    waiting(setup, "b", 0.01, 500)
    setup.check()
    assert ["up", "up"] == setup.states


# Loads


def test_a_call_counts_while_it_runs_and_its_tokens_for_longer():
    setup = Setup(2)
    lease = setup.begin("a", 700)
    load = setup.fleet.loads[0]
    assert ("a", 1, 700) == (load.name, load.pending, load.tokens)
    lease.answered(200, {})
    lease.failed()
    lease.left()
    assert (0, 700) == (load.pending, load.tokens)
    setup.calls("b", 200, 200)
    assert 0 == load.tokens


@pytest.mark.parametrize("end", [lambda lease: lease.failed(), lambda lease: lease.left()])
def test_a_call_ends_once(end: Callable[[Lease], None]):
    setup = Setup(1)
    lease = setup.begin("a")
    end(lease)
    lease.answered(200, {})
    assert 0 == setup.fleet.loads[0].pending


def test_streams_that_break_off_open_the_breaker_and_clients_that_leave_do_not():
    setup = Setup(2)
    for _ in range(5):
        lease = setup.begin("a")
        lease.first_byte()
        lease.failed()
        setup.begin("b").left()
    assert ["open", "up"] == setup.states
    assert [5, 0] == [replica["recent_failures"] for replica in setup.fleet.as_json()]


def test_what_is_under_way_is_to_be_computed_until_a_stream_begins():
    setup = Setup(1)
    load = setup.fleet.loads[0]
    whole, stream = setup.begin("a", 700), setup.begin("a", 300)
    assert 1000 == load.waiting
    stream.first_byte()
    assert 700 == load.waiting
    stream.answered(200, {})
    whole.failed()
    assert (0, 0) == (load.pending, load.waiting)


# Reload


def test_a_reload_keeps_drains_and_adds():
    setup = Setup(2)
    running = setup.begin("a", 5)
    setup.calls("b", None, 5)
    change = setup.fleet.reload(setup.config(table("b"), table("c")))
    assert ((2,), (0,)) == (change.added, change.removed)
    assert (["a", "b", "c"], ["draining", "open", "up"]) == (setup.opened, setup.states)
    assert "c" == setup.usable
    setup.check()
    assert "draining" == setup.states[0]
    running.answered(200, {})
    setup.check()
    assert ["open", "up"] == setup.states  # it is gone
    change = setup.fleet.reload(setup.config(table("b"), table("c"), table("a")))
    assert ((0,), ()) == (change.added, change.removed)
    assert (0, 0) == (setup.fleet.loads[0].pending, setup.fleet.loads[0].tokens)
    assert setup.fleet.loads[0] is setup.fleet.replicas[0].load
    assert "ac" == setup.usable


def test_other_models_and_groups_do_not_make_another_replica():
    setup = Setup(1)
    setup.calls("a", None, 5, is_unreachable=True)
    change = setup.fleet.reload(setup.config(table("a", models=("n",), groups=("gold",))))
    assert ((), ()) == (change.added, change.removed)
    assert (["a"], ["open"]) == (setup.opened, setup.states)
    assert ["n"] == setup.fleet.models(GroupTable(name="gold"))
    assert [] == setup.fleet.models(ALL)
    setup.fleet.reload(setup.config(table("a", models=())))
    setup.check()
    assert ["m"] == setup.fleet.models(ALL)


def test_another_url_makes_another_replica():
    setup = Setup(1)
    change = setup.fleet.reload(setup.config(table("a", url="http://elsewhere")))
    assert ((1,), (0,)) == (change.added, change.removed)


def test_a_reload_that_cannot_be_changes_nothing():
    config = GatewayConfig(replica=(table("a"),))
    fleet = Fleet(config, http_upstreams({}))
    with pytest.raises(UsageError, match="KEY is empty"):
        fleet.reload(GatewayConfig(replica=(table("b"), table("c", api_key=Secret(env="KEY")))))
    assert [("a", "up")] == [(replica["name"], replica["state"]) for replica in fleet.as_json()]


def test_new_patience_reaches_what_stays():
    fleet = Fleet(GatewayConfig(replica=(table("a"),)), http_upstreams({}))
    patient = UpstreamOptions(idle_seconds=7.0)
    fleet.reload(GatewayConfig(replica=(table("a"),), upstream=patient))
    upstream = fleet.replicas[0].upstream
    assert isinstance(upstream, HttpUpstream)
    assert patient == upstream.options


# Over HTTP


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (Kind.VLLM, b"authorization: Bearer sk-1"),
        (Kind.OPENAI, b"authorization: Bearer sk-1"),
        (Kind.ANTHROPIC, b"x-api-key: sk-1"),
    ],
)
def test_keys_go_in_the_header_that_the_kind_reads(kind, line):
    heads = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 24\r\n\r\n" + b'{"data": [{"id": "m"}]}\n'
        )
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        one = table("a", url=f"http://127.0.0.1:{port}", kind=kind, models=(), api_key=Secret(env="KEY"))
        fleet = Fleet(GatewayConfig(replica=(one,)), http_upstreams({"KEY": "sk-1"}))
        await fleet.check()
        assert ["m"] == fleet.models(ALL)
        assert "sk-1" not in json.dumps(fleet.as_json())
        await fleet.close()
        server.close()

    asyncio.run(main())
    assert heads
    assert all(line in head.split(b"\r\n") for head in heads)
    assert (kind is Kind.ANTHROPIC) == (b"anthropic-version: " in heads[-1])


def test_a_server_that_dies_goes_down_and_its_calls_are_safe_to_repeat():
    async def main() -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        fleet = Fleet(GatewayConfig(replica=(table("a", url=f"http://127.0.0.1:{port}"),)), http_upstreams({}))
        await fleet.check()
        with pytest.raises(HttpError, match="No replica"):
            fleet.usable("m", ALL)
        lease = fleet.begin(0, 1, "m")
        with pytest.raises(Exception, match="cannot be reached") as failed:
            await lease.upstream.send(Outgoing("POST", "/v1/completions", [], b"{}"))
        assert failed.value.is_safe

    asyncio.run(main())
