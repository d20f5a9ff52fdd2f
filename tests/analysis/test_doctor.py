"""Why the hit rate fell: logs in which one thing changed, and mixtures of them."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.analysis.caches.base import Reason
from prefold.analysis.caches.build import build
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.doctor.decompose import DropCause, Group, Lost, Tally, decompose
from prefold.analysis.doctor.diagnose import Diagnosis, diagnose, observe, split_at
from prefold.analysis.doctor.observe import Observer, Totals, fit
from prefold.analysis.encode import Encoder
from prefold.analysis.record import Blocks, Body, Place, Record
from prefold.core.tokens import pack
from prefold.prompts.causes import CAUSES
from prefold.providers.usage import Usage

# -- the arithmetic

losses = st.dictionaries(
    st.builds(
        Lost, st.sampled_from([reason for reason in Reason if reason is not Reason.HIT]), st.sampled_from(["", "clock"])
    ),
    st.integers(0, 1_000),
    max_size=4,
)
tallies = st.builds(lambda lost, hit: Tally(sum(lost.values()) + hit, 1, Counter(lost)), losses, st.integers(0, 1_000))
groups = st.builds(Group, *(st.sampled_from("ab") for _ in range(4)), st.sampled_from([1, 2, 5]))
sides = st.dictionaries(groups, tallies, max_size=6)


@given(sides, sides)
def test_the_parts_sum_to_the_drop(before: dict[Group, Tally], after: dict[Group, Tally]) -> None:
    found = decompose(before, after)
    assert sum(found.parts.values()) == found.drop
    assert list(DropCause) == list(found.parts)
    if sum(tally.input_tokens for tally in before.values()) and sum(tally.input_tokens for tally in after.values()):
        for side, rate in ((before, found.before), (after, found.after)):
            sent = sum(tally.input_tokens for tally in side.values())
            lost = sum(tally.lost.total() for tally in side.values())
            assert 1 - Fraction(lost, sent) == rate


@given(sides)
def test_nothing_changed(side: dict[Group, Tally]) -> None:
    found = decompose(side, side)
    assert dict.fromkeys(DropCause, 0) == found.parts


@given(sides, sides)
def test_the_way_back_is_the_opposite(before: dict[Group, Tally], after: dict[Group, Tally]) -> None:
    there, back = decompose(before, after), decompose(after, before)
    assert {cause: -part for cause, part in there.parts.items()} == back.parts


def tally(tokens: int, **lost: int) -> Tally:
    return Tally(tokens, 1, Counter({Lost(Reason[name.upper()]): count for name, count in lost.items()}))


def test_a_shift_between_groups_at_constant_rates() -> None:
    """By hand: weights 0.8 and 0.2 become 0.2 and 0.8, at losses of 0.1 and 0.6."""
    before = {Group("a"): tally(800, cold=80), Group("b"): tally(200, cold=120)}
    after = {Group("a"): tally(200, cold=20), Group("b"): tally(800, cold=480)}
    found = decompose(before, after)
    assert Fraction(3, 10) == found.drop == found.parts[DropCause.TRAFFIC_MIX]
    assert {"a", "b"} == {moved.name for moved in found.moved}
    assert Fraction(3, 10) == sum(moved.drop for moved in found.moved)


def test_a_release_that_replaces_all_replicas_and_loses_their_caches() -> None:
    before = {Group(replica="old"): tally(1_000, cold=100)}
    after = {Group(replica="new"): tally(1_000, cold=100, evicted=300)}
    found = decompose(before, after)
    assert Fraction(3, 10) == found.drop == found.parts[DropCause.DEPLOYMENT]


def test_another_replica_is_no_excuse_for_a_broken_prefix() -> None:
    clock = Lost(Reason.CHANGED_PREFIX, "clock")
    before = {Group(replica="old", model="m1"): Tally(1_000, 1, Counter())}
    after = {Group(replica="new", model="m2"): Tally(1_000, 1, Counter({clock: 500}))}
    assert Fraction(1, 2) == decompose(before, after).parts[DropCause.PREFIX_CONTENT]


@pytest.mark.parametrize("cause", [cause for cause in CAUSES if cause != "none"])
def test_every_cause_of_a_changed_prefix_has_its_place(cause: str) -> None:
    lost = Lost(Reason.CHANGED_PREFIX, cause)
    found = decompose({Group(): Tally(10, 1)}, {Group(): Tally(10, 1, Counter({lost: 5}))})
    assert [Fraction(1, 2)] == [part for part in found.parts.values() if part]
    assert 0 == found.parts[DropCause.UNEXPLAINED]


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.HIT])
def test_every_reason_has_its_place(reason: Reason) -> None:
    found = decompose({Group(): Tally(10, 1)}, {Group(): Tally(10, 1, Counter({Lost(reason): 5}))})
    assert [Fraction(1, 2)] == [part for part in found.parts.values() if part]
    assert (found.parts[DropCause.UNEXPLAINED] > 0) == (reason is Reason.UNEXPLAINED)


@given(losses, st.integers(1, 5_000), st.integers(0, 5_000), st.integers(0, 1_000))
def test_losses_are_fitted_to_what_was_reported(lost: dict[Lost, int], counted: int, target: int, hit: int) -> None:
    counted = max(counted, sum(lost.values()))
    fitted = fit(lost, counted, target + hit, target, Lost(Reason.NOT_KEPT))
    assert target == fitted.total()
    assert all(tokens > 0 for tokens in fitted.values())


# -- logs

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
    encoder, observer = Encoder(), Observer(lambda: build(CacheSpec("test", None, **spec)))
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
    assert found.main.share > Fraction(1, 2), {f.cause: float(f.share) for f in found.findings}
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

    assert DropCause.SERIALISATION is blamed(examined(traffic(START, change=like), traffic(LATER, change=change)))


def test_model_version() -> None:
    def switching(body: dict[str, Any], turn: Turn) -> None:
        turn.fields["model"] = turn.rng.choice(["some-model", "some-model-2", "another-model"])

    found = examined(warm(), traffic(LATER, change=switching))
    assert DropCause.MODEL_VERSION is blamed(found)
    assert any("some-model-2" in sentence for sentence in found.main.evidence)


def wandering(body: dict[str, Any], turn: Turn) -> None:
    turn.fields["replica"] = f"q{(turn.turn + turn.session) % 7}"


def test_deployment_or_routing() -> None:
    found = examined(warm(), traffic(LATER, change=wandering))
    assert DropCause.DEPLOYMENT is blamed(found)
    assert any("replica" in sentence for sentence in found.main.evidence)


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
    encoder, observer = Encoder(), Observer(lambda: build(CacheSpec("test", None)))
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
    observer = Observer(lambda: build(CacheSpec("test", None)))
    encoder = Encoder()
    for number in range(1_200):
        record = Record(
            Blocks(pack([number]), 16, 16), Place("t", number), time=number, tenant=f"t{number}", replica=f"r{number}"
        )
        totals.add(observer.observe(encoder.encode(record)))
    assert 1_001 == len(totals.simulated)
    assert 1_200 == sum(tally.requests for tally in totals.simulated.values())
