import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.analysis import anonymise
from prefold.analysis.anonymise import LONGEST_KEY, Anonymiser, expanded, read_line
from prefold.analysis.caches.named import named_rules
from prefold.analysis.caches.spec import CacheSpec, Tier
from prefold.analysis.encode import Encoder
from prefold.analysis.logs.log import open_log
from prefold.analysis.logs.reader import Source
from prefold.analysis.logs.traces import Prefold
from prefold.analysis.record import Blocks, Body, Place, Record
from prefold.analysis.request import Marker, Request
from prefold.analysis.simulate import simulate
from prefold.analysis.traced import TracedPrompt
from prefold.core.policies import POLICIES
from prefold.core.tokens import common_prefix, pack, unpack
from prefold.errors import InvalidRequest
from prefold.providers.rules import providers, rules_for
from prefold.providers.usage import Usage

SHARED = Path(__file__).parents[3] / "shared" / "data" / "traces"
KEY = b"k" * LONGEST_KEY
PLACE = Place("log.jsonl", 1)


def request(tokens: Iterable[int], output: Iterable[int] = (), *, time: float = 0.0, **fields: Any) -> Request:
    run = pack(tokens)
    record = Record(Blocks(run, 1, len(run) // 4), PLACE, time=time, model="claude-sonnet-4-5", **fields)
    answer = pack(output)
    return Request(run, 1, len(run) // 4, time, record, output=answer, output_tokens=len(answer) // 4)


def written(requests: Iterable[Request], anonymiser: Anonymiser | None = None) -> bytes:
    anonymiser = anonymiser or Anonymiser(KEY)
    return anonymiser.header() + b"".join(anonymiser.line(one) for one in requests)


def read(trace: bytes) -> list[Request]:
    encoder = Encoder()
    requests = []
    for record in Prefold().read(Source("trace.jsonl", io.BytesIO(trace))):
        assert isinstance(record, Record)
        assert isinstance(record.content, TracedPrompt)
        requests.append(encoder.encode(record))
    return requests


def sequences(requests: Iterable[Request]) -> list[bytes]:
    return [one.run + one.output for one in requests]


def alike(runs: Sequence[bytes]) -> list[list[int]]:
    """How far each two begin alike."""
    return [[common_prefix(one, other) for other in runs] for one in runs]


RUNS = st.lists(
    st.tuples(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(0, 2), max_size=3)), max_size=12
)


@given(RUNS)
def test_prompts_begin_alike_as_far_as_before(drawn: list[tuple[list[int], list[int]]]) -> None:
    log = [request(tokens, output) for tokens, output in drawn]
    trace = read(written(log))
    assert alike(sequences(log)) == alike(sequences(trace))
    assert [(one.units, one.output_tokens) for one in log] == [(one.units, one.output_tokens) for one in trace]


def test_a_conversation_stays_on_its_branch() -> None:
    turns = [request(range(10, 20), range(20, 25)), request(range(10, 30), [40]), request([*range(10, 30), 41])]
    paths = [json.loads(line)["path"] for line in written(turns).splitlines()[1:]]
    assert [[[0, 1]], [[0, 1]], [[0, 1], [20, 2]]] == paths
    first = 2**31
    assert [1, first + 1, first + 2, 2, first + 4] == unpack(expanded([(0, 1), (3, 2)], 5))
    assert b"" == expanded([], 0)


def test_what_caches_look_at_is_kept() -> None:
    usage = Usage(uncached=1, read=2, write=3, write_5m=3, output=4, is_reported=True)
    before = replace(
        request(range(8), [5, 6], time=1_700_000_000.25, usage=usage, stop="tool_use", duration=2.5, ttft=0.5),
        ends=(3, 8),
        markers=(Marker(3, 3600), Marker(8)),
        system_end=3,
        salt="pepper",
    )
    [after] = read(written([before]))
    assert (before.ends, before.markers, before.system_end) == (after.ends, after.markers, after.system_end)
    assert (before.tokens, before.unit, before.output_tokens) == (after.tokens, after.unit, after.output_tokens)
    assert 0.25 == after.time
    assert (usage, "tool_use", 2.5, 0.5) == (
        after.record.usage,
        after.record.stop,
        after.record.duration,
        after.record.ttft,
    )
    assert after.salt is not None
    assert after.salt.startswith("salt-")


def test_blocks_of_a_trace_stay_blocks() -> None:
    record = Record(Blocks(pack([7, 8]), 512, 1_100), PLACE)
    [after] = read(written([Encoder().encode(record)]))
    assert (512, 1_100, 2) == (after.unit, after.tokens, after.units)


@given(st.lists(st.floats(1.6e9, 1.9e9), min_size=2, max_size=5))
def test_differences_of_times_stay_the_same(drawn: list[float]) -> None:
    times = sorted(drawn)
    after = [one.time for one in read(written([request([1], time=time) for time in times]))]
    assert [later - earlier for earlier, later in pairwise(times)] == [
        later - earlier for earlier, later in pairwise(after)
    ]


def test_times_that_are_not_in_order_or_not_known_stay_so() -> None:
    records = [replace(request([number]).record, time=time) for number, time in enumerate([None, 90.5, 60.0, None])]
    encoder = Encoder()
    trace = Prefold().read(Source("trace.jsonl", io.BytesIO(written(map(encoder.encode, records)))))
    assert [None, 0.5, -30.0, None] == [record.time for record in trace if isinstance(record, Record)]


def test_names() -> None:
    def names(one: Request) -> tuple[str, ...]:
        record = one.record
        return record.tenant, record.session, record.replica, record.provider, record.model

    base = request([1], tenant="acme", session="acme", replica="r1", provider="anthropic")
    tuned = replace(base, record=replace(base.record, model="ft:gpt-4o:acme:x:7", provider="acme-gateway", stop="odd"))
    first, second, third = read(written([base, tuned, request([1])]))
    tenant, session, replica, provider, model = names(first)
    assert ("anthropic", "claude-sonnet-4-5") == (provider, model)
    assert 3 == len({tenant.split("-")[1], session.split("-")[1], replica.split("-")[1]})
    assert names(second)[:3] == names(first)[:3]
    assert names(second)[3].startswith("provider-")
    assert names(second)[4].startswith("ft:gpt-4o:model-")
    assert "other" == second.record.stop
    assert ("", "", "", "", "claude-sonnet-4-5") == names(third)
    [renamed] = read(written([base], Anonymiser(KEY, rename_models=True)))
    assert names(renamed)[3:] == (f"provider-{names(renamed)[3][9:]}", f"model-{names(renamed)[4][6:]}")


def test_names_of_models_that_tell_something() -> None:
    def named(model: str, number: int) -> Request:
        one = request([number])
        return replace(one, record=replace(one.record, model=model, provider=""))

    names = [
        *("openai/ft:gpt-4o:acmesecret:x:7", "gpt-4o:ft-acmesecret-2023", "azure/acmesecret", "/home/acmesecret/llama"),
        *("gpt-4o?key=acmesecret", "https://acmesecret:acmesecret@host/v1/gpt-4o", "acmesecret\nmodel"),
    ]
    trace = written(named(model, number) for number, model in enumerate(names))
    assert b"acmesecret" not in trace
    after = [one.record.model for one in read(trace)]
    assert len(names) == len(set(after))
    assert [rules_for(model) for model in names] == [rules_for(model) for model in after]


def test_names_that_no_text_can_hold() -> None:
    odd = request([1], tenant="\ud83d", session="\ud83e", provider="\ud83f")
    [after] = read(written([replace(odd, record=replace(odd.record, model="\ud840"))]))
    assert after.record.model.startswith("model-")
    assert 2 == len({after.record.tenant[-16:], after.record.session[-16:]})


def test_exports_under_one_key_can_be_compared() -> None:
    before = replace(request(range(6), tenant="acme"), ends=(2, 6))
    other = replace(request([0, 1, 9], tenant="acme"), ends=(2, 3))

    def line(one: Request, key: bytes = KEY, *, is_shared: bool = True) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(Anonymiser(key, is_shared=is_shared).line(one))
        return value

    assert line(before)["tenant"] == line(other)["tenant"] != line(other, b"another")["tenant"]
    assert line(before)["hashes"][0] == line(other)["hashes"][0] != line(other, b"another")["hashes"][0]
    assert line(before)["hashes"][1] != line(other)["hashes"][1]
    assert "hashes" not in line(before, is_shared=False)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = anonymise._Paths(most_units=50, most_nodes=8)
    monkeypatch.setattr(anonymise, "_Paths", lambda: paths)
    anonymiser = Anonymiser(KEY)
    log = [request(Random(number % 5).choices(range(3), k=number % 20 + 1)) for number in range(200)]
    trace = read(written(log, anonymiser))
    assert anonymiser.forgot
    assert paths._tree.size <= 50
    assert len(list(paths._tree.nodes())) == paths._nodes <= 8
    # What was forgotten is taken for new: nothing becomes more alike than it was.
    pairs = zip(alike(sequences(log)), alike(sequences(trace)), strict=True)
    assert all(after <= before for one, other in pairs for before, after in zip(one, other, strict=True))


@pytest.mark.parametrize(
    "change",
    [
        {"path": [[5, 1], [0, 2]]},
        {"path": [[0, -1]]},
        {"path": 3},
        {"units": 10**8},
        {"units": -1},
        {"ends": [9]},
        {"ends": [2, 1]},
        {"system_end": 9},
        {"unit": 0},
        {"time": "noon"},
        {"usage": 3},
        {"time": "\ud83d"},
    ],
)
def test_lines_that_are_none(change: dict[str, Any]) -> None:
    line = {"time": 0.0, "tokens": 4, "units": 4, "path": [[0, 1]]}
    assert read_line(line, PLACE) is not None
    with pytest.raises(InvalidRequest):
        read_line({**line, **change}, PLACE)


def test_a_prompt_that_could_not_be_read_back_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anonymise, "_LONGEST_PROMPT", 3)
    with pytest.raises(InvalidRequest, match="prompt and answer have 4 units"):
        Anonymiser(KEY).line(request([1, 2], [3, 4]))


LETTERS = "GHJKLMNPQRSTVWXYZ"  # none of a hexadecimal number, nor of the format's own words


def words(random: Random, length: int) -> str:
    return "".join(random.choices(LETTERS, k=length))


def conversations(seed: int, *, length: int = 12) -> list[Record]:
    """Conversations of some tenants that begin alike, go on, are answered, and are sometimes begun anew."""
    random = Random(seed)
    system = [{"type": "text", "text": words(random, 900), "cache_control": {"type": "ephemeral"}}]
    tools = [{"name": words(random, 8), "description": words(random, 80), "input_schema": {"type": "object"}}]
    talks: list[list[dict[str, Any]]] = [[] for _ in range(3)]
    names = [words(random, 9) for _ in talks]
    records, time = [], 1_700_000_000.0
    for number in range(length):
        talk = random.randrange(3)
        turns = talks[talk]
        turns.append({"role": "user", "content": [{"type": "text", "text": words(random, random.randint(5, 400))}]})
        last = [{**turns[-1], "content": [{**turns[-1]["content"][0], "cache_control": {"type": "ephemeral"}}]}]
        body = {"model": "claude-sonnet-4-5", "tools": tools, "system": system, "messages": [*turns[:-1], *last]}
        answer = words(random, random.randint(4, 200))
        time += random.choice([0.5, 7.25, 290.125, 400.0])
        records.append(
            Record(
                Body(json.dumps(body).encode()),
                Place(words(random, 6), number + 1),
                time=time,
                model="claude-sonnet-4-5",
                tenant=names[talk],
                session=words(random, 12) if random.random() < 0.3 else names[talk],
                replica=words(random, 5),
                answer=answer,
                stop=random.choice(["tool_use", "end_turn", "max_tokens"]),
                duration=random.uniform(0, 9),
                request_id=words(random, 16),
                miss_reason=words(random, 8),
            )
        )
        turns.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
        if random.random() < 0.2:
            del turns[random.randrange(len(turns)) // 2 * 2 :]
    return records


def texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(part)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_nothing_of_what_was_said_is_in_a_trace(seed: int, is_shared: bool) -> None:
    log = conversations(seed)
    encoder = Encoder()
    trace = written((encoder.encode(record) for record in log), Anonymiser(KEY, is_shared=is_shared)).decode()
    secrets = {words for record in log for words in (record.tenant, record.session, record.replica)}
    for record in log:
        assert isinstance(record.content, Body)
        assert isinstance(record.answer, str)
        secrets |= {record.answer, record.request_id, record.miss_reason, record.place.file}
        secrets |= {text for text in texts(json.loads(record.content.content)) if set(text) <= set(LETTERS)}
    pieces = {secret[at : at + 4] for secret in secrets for at in range(len(secret) - 3)}
    assert len(pieces) > 1_000
    assert not [piece for piece in pieces if piece in trace]


NAMED_BY_TOKENS = {"arc", "s3-fifo"}  # they remember what they evicted by its first token


def all_caches() -> list[CacheSpec]:
    """Every cache of the package, and the ways of an own one, in which no hash of the content decides."""
    specs = [
        CacheSpec(f"{provider.name} {number}", rules, capacity=4_096 if rules.self_hosted else None)
        for provider in providers()
        for number, rules in enumerate(provider.families)
    ]
    vllm, lmcache = named_rules("vllm"), named_rules("lmcache")
    specs += [CacheSpec(policy, vllm, capacity=1_024, policy=policy) for policy in POLICIES]
    return [
        *specs,
        CacheSpec("own", None),
        CacheSpec("isolated", vllm, isolate_tenants=True),
        CacheSpec("tiers", lmcache, capacity=512, tiers=(Tier("host", 1_024, 256), Tier("disk", None, 256))),
        CacheSpec("turns", vllm, capacity=2_048, replicas=3),
        CacheSpec("exact", vllm, capacity=2_048, replicas=3, routing="exact"),
        CacheSpec("lossy", named_rules("openai"), loss_rate=0.5, seed=3),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_every_cache_does_with_a_trace_what_it_does_with_the_log(seed: int) -> None:
    encoder = Encoder()
    log = [encoder.encode(record) for record in conversations(seed, length=60)]
    specs = all_caches()
    of_log = simulate(log, specs)
    assert len({row.hit_tokens for row in of_log}) > 5  # the caches do differ
    for before, after in zip(of_log, simulate(read(written(log)), specs), strict=True):
        if before.cache in NAMED_BY_TOKENS:
            assert before.hit_tokens == pytest.approx(after.hit_tokens, rel=0.01)
        else:
            assert before == after


def test_a_real_trace_simulates_the_same() -> None:
    source = SHARED / "mooncake" / "conversation_trace.jsonl"
    if not source.exists():
        pytest.skip("the shared data is not here")
    encoder = Encoder()
    log = [encoder.encode(record) for record, _ in zip(open_log([str(source)]), range(1_000), strict=False)]
    specs = [CacheSpec(str(capacity), named_rules("blocks"), capacity) for capacity in (512_000, 5_120_000, None)]
    assert simulate(log, specs) == simulate(read(written(log)), specs)
