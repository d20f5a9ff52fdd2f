"""Why the hit rate fell: logs in which one thing changed, and mixtures of them."""

import json
import random
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

import pytest

from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.doctor.decompose import DropCause
from prefold.analysis.doctor.diagnose import Diagnosis, diagnose, observe, split_at
from prefold.analysis.doctor.observe import Observer, Totals
from prefold.analysis.encode import Encoder
from prefold.analysis.record import Blocks, Body, Place, Record
from prefold.core.tokens import pack
from prefold.providers.usage import Usage

RULES = " ".join(
    f"Rule {number}: ask desk {number**5 % 9_973} about {number**7 % 99_991} politely." for number in range(60)
)
OTHER = " ".join(f"Clause {number}: translate sentence {number * 7} faithfully, word by word." for number in range(60))
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": f"Looks up the record of customer {number} in the archive of region {number * 3}.",
            "parameters": {"type": "object", "properties": {"key": {"type": "string"}, "limit": {"type": "integer"}}},
        },
    }
    for number in range(8)
]
START = 1_700_000_000.0
Change = Callable[[dict[str, Any], "Turn"], None]


class Turn:
    """A request to be: which conversation, which turn, and what a change may set."""

    def __init__(self, session: int, turn: int, rng: random.Random) -> None:
        self.session = session
        self.turn = turn
        self.rng = rng
        self.fields: dict[str, Any] = {"session": f"s{session}", "model": "some-model", "replica": f"r{session % 3}"}


def nothing(body: dict[str, Any], turn: Turn) -> None:
    """Change nothing."""


def traffic(
    start: float,
    *,
    sessions: int = 12,
    turns: int = 6,
    gap: float = 20.0,
    change: Change = nothing,
    seed: int = 0,
    make: Callable[[], dict[str, Any]] = lambda: {"tools": TOOLS, "messages": [{"role": "system", "content": RULES}]},
) -> Iterator[Record]:
    """Conversations side by side, all with the same rules and tools."""
    rng = random.Random(f"{seed} {start}")
    histories: list[list[dict[str, Any]]] = [[] for _ in range(sessions)]
    time = start
    for turn in range(turns):
        for session in range(sessions):
            histories[session].append({"role": "user", "content": f"Question {rng.random()} about {rng.random()}?"})
            body = json.loads(json.dumps(make()))
            body["messages"] = [*body["messages"], *histories[session]]
            about = Turn(int(start) + session, turn, rng)
            change(body, about)
            record = {"place": Place("log", 1), "time": time, **about.fields}
            body["model"] = record["model"]
            content = Body(json.dumps(body).encode())
            usage = record.pop("usage", None)
            yield Record(content=content, usage=usage, **record)
            histories[session].append({"role": "assistant", "content": f"Answer {rng.random()} for {rng.random()}."})
            time += gap / sessions


def examined(before: Iterable[Record], after: Iterable[Record], **spec: Any) -> Diagnosis:
    encoder, observer = Encoder(), Observer(CacheSpec("test", None, **spec))
    old = observe(map(encoder.encode, before), observer)
    found = diagnose(old, observe(map(encoder.encode, after), observer))
    assert sum(finding.drop for finding in found.findings) == found.drop
    assert round(found.drop * found.after.input_tokens) == sum(finding.tokens for finding in found.findings)
    if found.drop > 0:
        assert 1 == sum(finding.share for finding in found.findings)
    return found


LATER = START + 10_000


def warm() -> list[Record]:
    """As it was before: a first round that fills the cache, and one that is compared."""
    return [*traffic(START - 5_000), *traffic(START)]


def blamed(found: Diagnosis) -> DropCause:
    assert found.drop > Fraction(1, 50)
    assert found.main is not None
    assert found.main.share >= Fraction(4, 5), {f.cause: float(f.share) for f in found.findings}
    assert found.main.evidence
    return found.main.cause


def test_no_drop() -> None:
    found = examined(warm(), traffic(LATER))
    assert found.drop <= 0
    assert all(finding.share is None for finding in found.findings)
    assert not found.is_reported


def test_traffic_mix() -> None:
    def other() -> dict[str, Any]:
        return {"messages": [{"role": "system", "content": OTHER}]}

    def alone(body: dict[str, Any], turn: Turn) -> None:
        body["messages"] = [
            body["messages"][0],
            {"role": "user", "content": " ".join(str(turn.rng.random()) for _ in range(80))},
        ]

    few = traffic(START + 1, sessions=2, turns=3, make=other, change=alone)
    many = traffic(LATER + 1, sessions=12, turns=6, make=other, change=alone)
    found = examined([*warm(), *few], [*traffic(LATER, sessions=2, turns=6), *many])
    assert DropCause.TRAFFIC_MIX is blamed(found)
    assert any("Clause 0" in sentence for sentence in found.main.evidence)


def clock(body: dict[str, Any], turn: Turn) -> None:
    body["messages"][0]["content"] = (
        f"It is 2026-11-30T{turn.rng.randrange(10, 24)}:{turn.rng.randrange(10, 60)}:07Z. {RULES}"
    )
    body["tools"] = []


def test_prefix_content() -> None:
    def no_tools(body: dict[str, Any], turn: Turn) -> None:
        body["tools"] = []

    found = examined(traffic(START, change=no_tools), traffic(LATER, change=clock))
    assert DropCause.PREFIX_CONTENT is blamed(found)
    assert any("clock at" in sentence for sentence in found.main.evidence)


@pytest.mark.parametrize("sends", ["once", "again"])
def test_prefix_content_in_conversations_that_go_on(sends: str) -> None:
    """From the sixth of twelve turns on; with the later sessions in a log of their own, or in one."""

    def from_the_sixth(body: dict[str, Any], turn: Turn) -> None:
        body["tools"] = []
        if turn.turn >= 5:
            clock(body, turn)

    records = list(traffic(START, turns=12, sessions=8, change=from_the_sixth))
    found = examined(records[:40], [*records[40:], *(traffic(LATER, change=clock) if sends == "again" else [])])
    assert DropCause.PREFIX_CONTENT is blamed(found)


def shuffled(body: dict[str, Any], turn: Turn) -> None:
    body["tools"] = turn.rng.sample(body["tools"], len(body["tools"]))


def spaced(body: dict[str, Any], turn: Turn) -> None:
    body["messages"][0]["content"] = RULES.replace(". ", "." + " " * turn.rng.randrange(1, 4))
    body["tools"] = []


@pytest.mark.parametrize("change", [shuffled, spaced])
def test_serialisation(change: Change) -> None:
    def like(body: dict[str, Any], turn: Turn) -> None:
        if change is spaced:
            body["tools"] = []
        turn.fields["replica"] = ""  # where each variant would be new

    def other(body: dict[str, Any], turn: Turn) -> None:
        like(body, turn)
        change(body, turn)

    assert DropCause.SERIALISATION is blamed(examined(traffic(START, change=like), traffic(LATER, change=other)))


def test_model_version() -> None:
    def switching(body: dict[str, Any], turn: Turn) -> None:
        turn.fields["model"] = turn.rng.choice(["some-model", "some-model-2", "another-model"])

    found = examined(warm(), traffic(LATER, change=switching, sessions=36))
    assert DropCause.MODEL_VERSION is blamed(found)
    assert any("some-model-2" in sentence for sentence in found.main.evidence)


def wandering(body: dict[str, Any], turn: Turn) -> None:
    turn.fields["replica"] = f"q{(turn.turn + turn.session) % 7}"


def test_deployment_or_routing() -> None:
    found = examined(warm(), traffic(LATER, change=wandering))
    assert DropCause.DEPLOYMENT is blamed(found)
    assert any("replica" in sentence for sentence in found.main.evidence)


def test_replicas_that_came_beside_the_old_one() -> None:
    def first(body: dict[str, Any], turn: Turn) -> None:
        turn.fields["replica"] = "q0"

    before = [*traffic(START - 5_000, change=first), *traffic(START, change=first)]
    assert DropCause.DEPLOYMENT is blamed(examined(before, traffic(LATER, change=wandering)))


@pytest.mark.parametrize(("model", "says"), [("some-model", "more memory"), ("gpt-4o", "provider's choice")])
def test_what_to_check_fits_who_runs_the_cache(model: str, says: str) -> None:
    def asks(body: dict[str, Any], turn: Turn) -> None:
        turn.fields["model"] = model

    found = examined(traffic(START, change=asks), traffic(LATER, change=asks))
    checks = {finding.cause: finding.check for finding in found.findings}
    assert says in checks[DropCause.CAPACITY]


def claude(ttl: str = "") -> Change:
    def change(body: dict[str, Any], turn: Turn) -> None:
        marker = {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}
        system = body["messages"].pop(0)["content"]
        body["system"] = [{"type": "text", "text": system * 6, "cache_control": marker}]
        body["tools"] = []
        body["max_tokens"] = 10
        newest = body["messages"][-1]
        newest["content"] = [{"type": "text", "text": newest["content"], "cache_control": marker}]
        turn.fields["model"] = "claude-sonnet-4-5"

    return change


def test_sessions_with_longer_pauses() -> None:
    found = examined(traffic(START, change=claude()), traffic(LATER, change=claude(), gap=900, sessions=2, turns=8))
    assert DropCause.SESSIONS is blamed(found)
    assert any("expired" in sentence for sentence in found.main.evidence)


def test_sessions_that_are_shorter() -> None:
    def unshared(body: dict[str, Any], turn: Turn) -> None:
        body["tools"] = []
        body["messages"][0]["content"] = f"Be kind to customer {turn.session}."

    found = examined(traffic(START, turns=12, change=unshared), traffic(LATER, turns=2, sessions=40, change=unshared))
    assert DropCause.SESSIONS is blamed(found)
    assert any(sentence.startswith("turn 9 to 16: ") for sentence in found.main.evidence)


def test_capacity_and_eviction() -> None:
    few = traffic(START, sessions=4, turns=10)
    many = traffic(LATER, sessions=60, turns=10)
    found = examined(few, many, capacity=9_000)
    assert DropCause.CAPACITY is blamed(found)
    assert any("evicted" in sentence for sentence in found.main.evidence)


def reporting(rate: Callable[[Turn], float]) -> Change:
    def change(body: dict[str, Any], turn: Turn) -> None:
        tokens = 2_000 + 100 * turn.turn
        read = int(tokens * rate(turn))
        turn.fields["usage"] = Usage(uncached=tokens - read, read=read, is_reported=True)

    return change


def test_a_provider_that_keeps_less() -> None:
    found = examined(
        [*traffic(START - 5_000, change=reporting(lambda _: 0.9)), *traffic(START, change=reporting(lambda _: 0.9))],
        traffic(LATER, change=reporting(lambda _: 0.4)),
    )
    assert found.is_reported
    assert (0.9, 0.4) == (
        pytest.approx(float(found.before.hit_rate), abs=1e-3),
        pytest.approx(float(found.after.hit_rate), abs=1e-3),
    )
    assert DropCause.CAPACITY is blamed(found)


def test_reported_and_simulated_rates_are_not_compared() -> None:
    found = examined(traffic(START, change=reporting(lambda _: 1.0)), traffic(LATER))
    assert not found.is_reported


def test_request_parameters_a_salt() -> None:
    def salted(body: dict[str, Any], turn: Turn) -> None:
        body["cache_salt"] = f"salt {turn.rng.random()}"

    assert DropCause.PARAMETERS is blamed(examined(warm(), traffic(LATER, change=salted)))


@pytest.mark.parametrize("is_reported", [False, True])
def test_request_parameters_a_setting_that_the_rules_name(is_reported: bool) -> None:
    def toggled(body: dict[str, Any], turn: Turn) -> None:
        thinking(body, turn, turn.rng.choice(["low", "high"]))

    def thinking(body: dict[str, Any], turn: Turn, effort: str = "high") -> None:
        turn.fields["model"] = "gpt-5.6"
        body["reasoning_effort"] = effort
        body["tools"] = TOOLS * 4
        if is_reported:
            known = efforts.setdefault(turn.session, set())
            reporting(lambda _: 0.95 if effort in known or not known else 0.3)(body, turn)
            efforts[turn.session] = {effort}

    efforts: dict[int, set[str]] = {}
    found = examined(
        [*traffic(START - 5_000, change=thinking), *traffic(START, change=thinking)], traffic(LATER, change=toggled)
    )
    assert is_reported == found.is_reported
    assert DropCause.PARAMETERS is blamed(found)
    assert any("reasoning_effort low" in sentence for sentence in found.main.evidence)


def test_a_setting_that_the_rules_do_not_name_makes_no_group() -> None:
    def hot(body: dict[str, Any], turn: Turn) -> None:
        body["temperature"] = turn.rng.random()
        body["prompt_cache_key"] = f"conversation {turn.session}"

    encoder, observer = Encoder(), Observer(CacheSpec("test", None))
    totals = observe(map(encoder.encode, traffic(START, change=hot)), observer)
    assert {"prompt_cache_key"} == {group.settings for group in totals.simulated}


def test_request_parameters_a_shorter_lifetime() -> None:
    before = traffic(START, change=claude("1h"), gap=900, sessions=2, turns=8)
    after = traffic(LATER, change=claude(), gap=900, sessions=2, turns=8)
    found = examined(before, after)
    assert DropCause.PARAMETERS is blamed(found)
    assert any("markers, 1 h" in sentence for sentence in found.main.evidence)


def test_request_parameters_no_marker() -> None:
    marked = claude()

    def bare(body: dict[str, Any], turn: Turn) -> None:
        marked(body, turn)
        body["system"] = body["system"][0]["text"]
        body["messages"][-1]["content"] = body["messages"][-1]["content"][0]["text"]

    assert DropCause.PARAMETERS is blamed(examined(traffic(START, change=marked), traffic(LATER, change=bare)))


def test_a_mixture() -> None:
    def both(body: dict[str, Any], turn: Turn) -> None:
        if turn.session % 3:
            shuffled(body, turn)
        wandering(body, turn)

    found = examined(warm(), traffic(LATER, change=both))
    drops = {finding.cause: finding.drop for finding in found.findings}
    two = drops.pop(DropCause.SERIALISATION), drops.pop(DropCause.DEPLOYMENT)
    assert all(part > Fraction(1, 10) * found.drop for part in two)
    assert sum(two) > Fraction(7, 10) * found.drop
    assert all(part < Fraction(1, 5) * found.drop for part in drops.values())


def test_one_log_and_a_moment() -> None:
    encoder, observer = Encoder(), Observer(CacheSpec("test", None))
    records = [*warm(), *traffic(LATER, change=shuffled)]
    before, after = split_at(map(encoder.encode, records), LATER, observer)
    assert (144, 72) == (before.requests, after.requests)
    assert DropCause.SERIALISATION is blamed(diagnose(before, after))


def test_a_trace_of_blocks() -> None:
    def blocks(start: float, count: int, tenant: str, reuse: bool) -> Iterator[Record]:
        for number in range(count):
            ids = [1, 2, 3, 4] if reuse else [int(start) + 9 * number + each for each in range(4)]
            yield Record(Blocks(pack(ids), 512, 2_100), Place("trace", number + 1), time=start + number, tenant=tenant)

    before = [*blocks(1_000, 90, "agents", True), *blocks(2_000, 10, "search", False)]
    after = [*blocks(100_000, 10, "agents", True), *blocks(200_000, 90, "search", False)]
    assert DropCause.TRAFFIC_MIX is blamed(examined(before, after))


@pytest.mark.parametrize(("before", "after"), [([], []), ([], "some"), ("some", [])])
def test_an_empty_side(before: Any, after: Any) -> None:
    found = examined(*(list(traffic(START, sessions=1, turns=1)) if side else [] for side in (before, after)))
    assert 0 == sum(finding.drop for finding in found.findings)
    assert found.main is None


def test_memory_is_bounded() -> None:
    totals = Totals()
    observer = Observer(CacheSpec("test", None))
    encoder = Encoder()
    for number in range(1_200):
        record = Record(
            Blocks(pack([number]), 16, 16), Place("t", number), time=number, tenant=f"t{number}", replica=f"r{number}"
        )
        totals.add(observer.observe(encoder.encode(record)))
    assert 1_001 == len(totals.simulated)
    assert 1_200 == sum(tally.requests for tally in totals.simulated.values())
