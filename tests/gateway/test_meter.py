import json
import re
from datetime import UTC, datetime

import pytest

from prefold.gateway.answer_usage import AnswerUsage
from prefold.gateway.call import Api
from prefold.gateway.config import EngineTable, GatewayConfig, Kind, MeteringOptions, ReplicaTable, TenantTable
from prefold.gateway.gauges import Reading, ReplicaReading
from prefold.gateway.meter import OTHER, Metering, Outcome
from prefold.providers.prices import Prices
from prefold.providers.usage import Usage

NOW = datetime(2026, 11, 30, tzinfo=UTC)
OPENAI_USAGE = {"prompt_tokens": 1000, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 800}}
CONFIG = GatewayConfig(
    replica=(
        ReplicaTable(name="a", url="http://a", kind=Kind.VLLM, models=("local",)),
        ReplicaTable(name="hosted", url="http://b", kind=Kind.OPENAI, models=("gpt",)),
        ReplicaTable(name="claude", url="http://c", kind=Kind.ANTHROPIC, models=("sonnet",)),
    )
)


class Ticker:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Records(list):
    """A sink that keeps all."""

    name = "kept"
    lost = 0

    def __call__(self, record):
        self.append(record)


def metering_of(config=CONFIG, *, price=None, **options):
    prices = None if price is None else Prices.load(given=price, now=NOW)
    clock = Ticker()
    return Metering(config, prices, clock, lambda: 1_000.0, **options), clock


def values(metering):
    """All samples by series."""
    lines = [line.rsplit(" ", 1) for line in metering.render().decode().splitlines() if not line.startswith("#")]
    return {series: float(value) for series, value in lines}


def value(metering, name, **labels):
    """The sum of the samples of a name with these labels; None where there is none."""
    found = [
        number
        for series, number in values(metering).items()
        if series.partition("{")[0] == name and all(f'{key}="{label}"' in series for key, label in labels.items())
    ]
    return sum(found) if found else None


def events(*values, name=None):
    head = f"event: {name}\n".encode() if name else b""
    return b"".join(head + b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)


def whole(usage):
    return json.dumps({"id": "x", "choices": [{"message": {"content": "yes"}}], "usage": usage}).encode()


def answer(metering, body, *, api=Api.CHAT, model="local", tenant="t", replica="a", matched=None, **end):
    meter = metering.call(api, model, tenant)
    meter.sent(replica, matched)
    meter.first_byte()
    meter.chunk(body)
    meter.end(end.pop("status", 200), **end)
    return meter


# Tokens


def test_hits_misses_and_predictions_are_counted_by_model_tenant_and_replica():
    metering, _ = metering_of()
    answer(metering, whole(OPENAI_USAGE), matched=768)
    labels = {"model": "local", "tenant": "t", "replica": "a"}
    assert 800 == value(metering, "llm_prefix_cache_hit_tokens_total", **labels)
    assert 200 == value(metering, "llm_prefix_cache_miss_tokens_total", **labels)
    assert 768 == value(metering, "prefold_predicted_hit_tokens_total", **labels)
    assert 50 == value(metering, "prefold_output_tokens_total", **labels)
    assert 0 == value(metering, "prefold_answers_without_usage_total", **labels)


def test_written_tokens_are_misses_too():
    metering, _ = metering_of()
    usage = {"input_tokens": 5, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 85, "output_tokens": 1}
    answer(metering, json.dumps({"type": "message", "usage": usage}).encode(), api=Api.MESSAGES, replica="claude")
    assert 10 == value(metering, "llm_prefix_cache_hit_tokens_total", replica="claude")
    assert 90 == value(metering, "llm_prefix_cache_miss_tokens_total", replica="claude")
    assert 85 == value(metering, "prefold_cache_write_tokens_total", replica="claude")


def test_silence_about_a_cache_is_a_miss_only_after_a_replica_has_spoken():
    metering, _ = metering_of()
    silent = {"prompt_tokens": 10, "completion_tokens": 1}
    answer(metering, whole(silent))
    assert 10 == value(metering, "prefold_unreported_input_tokens_total", replica="a")
    assert 0 == value(metering, "llm_prefix_cache_miss_tokens_total", replica="a")
    answer(metering, whole(OPENAI_USAGE))
    answer(metering, whole(silent))
    assert 10 == value(metering, "prefold_unreported_input_tokens_total", replica="a")
    assert 210 == value(metering, "llm_prefix_cache_miss_tokens_total", replica="a")


def test_what_a_count_of_tokens_says_was_not_used():
    metering, _ = metering_of()
    answer(metering, b'{"input_tokens": 123}', api=Api.COUNT_TOKENS, replica="claude")
    assert 0 == value(metering, "prefold_unreported_input_tokens_total")
    assert 0 == value(metering, "prefold_answers_without_usage_total")
    assert 1 == value(metering, "prefold_requests_total", api="/v1/messages/count_tokens")


@pytest.mark.parametrize(("status", "outcome"), [(429, Outcome.DONE), (500, Outcome.FAILED), (200, Outcome.REFUSED)])
def test_failed_calls_use_no_tokens(status, outcome):
    metering, _ = metering_of()
    meter = answer(metering, whole(OPENAI_USAGE), status=status, outcome=outcome)
    assert meter.usage is None
    assert 0 == value(metering, "llm_prefix_cache_hit_tokens_total")
    assert 1 == value(metering, "prefold_requests_total", status=status, outcome=outcome.value)


@pytest.mark.parametrize("cache", ["hit", "shared"])
def test_an_answer_given_again_counts_its_own_way_and_once(cache):
    metering, _ = metering_of(price="miss=2,hit=0.5,output=10")
    answer(metering, whole(OPENAI_USAGE), model="gpt", replica="hosted")
    before = {name: number for name, number in values(metering).items() if 'replica="hosted"' in name}
    again = metering.call(Api.CHAT, "gpt", "t")
    again.chunk(whole(OPENAI_USAGE))
    again.end(200, cache=cache)
    after = {name: number for name, number in values(metering).items() if 'replica="hosted"' in name}
    assert before == after
    assert 1000 == value(metering, "prefold_replayed_tokens_total", direction="input")
    assert 50 == value(metering, "prefold_replayed_tokens_total", direction="output")
    assert pytest.approx((1000 * 2 + 50 * 10) / 1e6) == value(metering, "prefold_saved_cost_total", by="answer")
    assert Usage(200, 800, output=50, is_reported=True) == again.usage


def test_a_call_ends_once():
    metering, _ = metering_of()
    meter = answer(metering, whole(OPENAI_USAGE))
    meter.end(500, Outcome.FAILED)
    assert 1 == value(metering, "prefold_requests_total")


# Streams


OPENAI_STREAM = (
    events(*[{"choices": [{"delta": {"content": f"word {n} "}}], "usage": None} for n in range(400)])
    + events({"choices": [], "usage": OPENAI_USAGE})
    + b"data: [DONE]\n\n"
)
ANTHROPIC_STREAM = (
    events(
        {
            "type": "message_start",
            "message": {
                "id": "m",
                "content": [],
                "usage": {
                    "input_tokens": 7,
                    "cache_read_input_tokens": 900,
                    "cache_creation_input_tokens": 93,
                    "cache_creation": {"ephemeral_5m_input_tokens": 90, "ephemeral_1h_input_tokens": 3},
                    "output_tokens": 1,
                },
            },
        },
        name="message_start",
    )
    + events(
        *[
            {"type": "content_block_delta", "delta": {"text": f'the "usage": {{"input_tokens": {n}}}'}}
            for n in range(300)
        ],
        name="content_block_delta",
    )
    + events({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 77}}, name="message_delta")
    + events({"type": "message_stop"}, name="message_stop")
)
RESPONSES_STREAM = (
    events({"type": "response.created", "response": {"id": "r", "instructions": "x" * 20_000, "usage": None}})
    + events(*[{"type": "response.output_text.delta", "delta": f"word {n}"} for n in range(300)])
    + events(
        {
            "type": "response.completed",
            "response": {
                "instructions": "x" * 20_000,
                "tools": [{"parameters": {"properties": {"usage": {"type": "object", "description": "d"}}}}],
                "usage": {"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 800}, "output_tokens": 50},
                "metadata": {},
            },
        }
    )
)
LLAMACPP_STREAM = (
    events(*[{"choices": [{"delta": {"content": "word "}}]} for _ in range(300)])
    + events(
        {
            "choices": [],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 50},
            "timings": {"prompt_n": 200, "cache_n": 800, "predicted_n": 50},
        }
    )
    + b"data: [DONE]\n\n"
)
GROQ_STREAM = events({"choices": [{"delta": {"content": "a"}}]}, {"choices": [], "x_groq": {"usage": OPENAI_USAGE}})
KIMI_STREAM = events(
    {"choices": [{"delta": {}, "usage": {"prompt_tokens": 1000, "completion_tokens": 50, "cached_tokens": 800}}]}
)
READ = Usage(200, 800, output=50, is_reported=True)
STREAMS = {
    "openai": (OPENAI_STREAM, READ),
    "anthropic": (ANTHROPIC_STREAM, Usage(7, 900, 93, 90, 3, 77, is_reported=True)),
    "responses": (RESPONSES_STREAM, READ),
    "llamacpp": (LLAMACPP_STREAM, READ),
    "groq": (GROQ_STREAM, READ),
    "kimi": (KIMI_STREAM, READ),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("size", [1, 7, 100, 4096, 5000, 8192, 10**6])
def test_usage_is_found_wherever_chunks_are_cut(name, size):
    stream, expected = STREAMS[name]
    usage = AnswerUsage()
    for start in range(0, len(stream), size):
        usage.feed(stream[start : start + size])
    assert expected == usage.read()
    assert usage.is_stream


def test_a_stream_of_which_only_the_first_event_came_tells_of_its_input():
    usage = AnswerUsage()
    usage.feed(ANTHROPIC_STREAM[:1000])
    assert Usage(7, 900, 93, 90, 3, 1, is_reported=True) == usage.read()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n",
        b"{",
        b"[1]",
        b'{"usage": 5}',
        b'{"usage": null}',
        b"\x1f\x8b\x08 packed",
        b'data: {"usage"',
        b'data: "usage":' + b"{" * 5000,
        b'{"a":' * 5000,
    ],
)
def test_no_usage_is_made_up_of_garbage(body):
    usage = AnswerUsage()
    usage.feed(body)
    assert usage.read() is None


def test_what_a_whole_answer_says_elsewhere_is_not_its_usage():
    call = {"type": "tool_use", "input": {"usage": {"input_tokens": 5, "output_tokens": 5}}}
    usage = AnswerUsage()
    usage.feed(json.dumps({"usage": {"input_tokens": 1, "output_tokens": 2}, "content": [call]}).encode())
    assert Usage(uncached=1, output=2) == usage.read()


def test_of_a_very_long_answer_the_end_is_looked_at_and_little_is_kept():
    body = json.dumps({"data": ["x" * 1000] * 5000, "usage": {"prompt_tokens": 9}}).encode()
    usage = AnswerUsage()
    for start in range(0, len(body), 1000):
        usage.feed(body[start : start + 1000])
    assert Usage(uncached=9) == usage.read()
    assert sum(map(len, [*usage._head, *usage._tail])) < 1_100_000


# Time


def stream_after(metering, clock, seconds, body, **options):
    meter = metering.call(Api.CHAT, "local", "t", **options)
    meter.sent("a")
    clock.now += seconds
    meter.first_byte()
    meter.chunk(body)
    clock.now += 5
    meter.first_byte()
    meter.end(200)


def test_time_to_first_token_is_that_of_streams_by_hit_and_miss():
    metering, clock = metering_of()
    stream_after(metering, clock, 0.05, OPENAI_STREAM)
    miss = {**OPENAI_USAGE, "prompt_tokens_details": {"cached_tokens": 499}}
    stream_after(metering, clock, 2, events({"usage": miss}))
    stream_after(metering, clock, 3, events({"choices": []}))
    stream_after(metering, clock, 4, whole(OPENAI_USAGE))  # no stream
    assert pytest.approx(0.05) == value(metering, "llm_ttft_seconds_sum", cache="hit")
    assert 1 == value(metering, "llm_ttft_seconds_bucket", cache="hit", le="0.075")
    assert 0 == value(metering, "llm_ttft_seconds_bucket", cache="hit", le="0.025")
    assert pytest.approx(2) == value(metering, "llm_ttft_seconds_sum", cache="miss")
    assert pytest.approx(3) == value(metering, "llm_ttft_seconds_sum", cache="unknown")
    assert 3 == value(metering, "llm_ttft_seconds_count")
    assert 4 == value(metering, "prefold_request_seconds_count", replica="a")


def test_the_gateways_own_time_ends_when_it_first_sends():
    metering, clock = metering_of()
    meter = metering.call(Api.CHAT, "local", "t")
    clock.now += 0.125
    meter.sent("a")
    clock.now += 10
    meter.sent("hosted")
    meter.end(502, Outcome.FAILED)
    assert pytest.approx(0.125) == value(metering, "prefold_before_upstream_seconds_sum", replica="hosted")
    assert value(metering, "prefold_before_upstream_seconds_sum", replica="a") is None


# Cost


def test_cost_and_what_was_saved():
    metering, _ = metering_of(price="miss=2,hit=0.5,output=10")
    answer(metering, whole(OPENAI_USAGE), model="gpt", replica="hosted")
    labels = {"replica": "hosted", "currency": "USD"}
    assert pytest.approx((200 * 2 + 800 * 0.5 + 50 * 10) / 1e6) == value(metering, "prefold_cost_total", **labels)
    assert pytest.approx(800 * 1.5 / 1e6) == value(metering, "prefold_saved_cost_total", **labels, by="prefix")
    assert 0 == value(metering, "prefold_write_premium_cost_total", **labels)


def test_what_writing_costs_more_is_told_apart():
    metering, _ = metering_of(price="miss=4,hit=0.4,write=5,write_1h=8,output=0")
    usage = {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 1000, "output_tokens": 0}
    answer(metering, json.dumps({"usage": usage}).encode(), api=Api.MESSAGES, model="sonnet", replica="claude")
    assert pytest.approx(5e-3) == value(metering, "prefold_cost_total")
    assert pytest.approx(1e-3) == value(metering, "prefold_write_premium_cost_total")
    assert 0 == value(metering, "prefold_saved_cost_total")


def test_own_replicas_send_no_bill_and_unknown_prices_are_counted():
    metering, _ = metering_of(price="miss=2,hit=0.5,output=10")
    answer(metering, whole(OPENAI_USAGE))
    assert 0 == value(metering, "prefold_cost_total")
    assert 1 == value(metering, "prefold_unpriced_answers_total", replica="a")
    without, _ = metering_of()
    answer(without, whole(OPENAI_USAGE), model="gpt", replica="hosted")
    assert 1 == value(without, "prefold_unpriced_answers_total", replica="hosted")
    assert value(without, "prefold_cost_total") is None


# Labels


def test_tenants_beyond_the_limit_count_as_other():
    config = GatewayConfig(
        replica=CONFIG.replica, metering=MeteringOptions(tenants=3), tenant=(TenantTable(name="known"),)
    )
    metering, _ = metering_of(config)
    for name in ("first", "second", "known", "x" * 129, "first"):
        answer(metering, whole(OPENAI_USAGE), tenant=name)
    assert 1600 == value(metering, "llm_prefix_cache_hit_tokens_total", tenant="first")
    assert 800 == value(metering, "llm_prefix_cache_hit_tokens_total", tenant="known")
    assert 1600 == value(metering, "llm_prefix_cache_hit_tokens_total", tenant=OTHER)


def test_names_that_were_refused_take_no_room():
    metering, _ = metering_of()
    for number in range(300):
        metering.call(Api.CHAT, f"no such model {number}", f"nobody {number}").end(404, Outcome.REFUSED)
    answer(metering, whole(OPENAI_USAGE), model="real", tenant="real")
    assert 300 == value(metering, "prefold_requests_total", model=OTHER, tenant=OTHER, outcome="refused")
    assert 800 == value(metering, "llm_prefix_cache_hit_tokens_total", model="real", tenant="real")


def test_names_are_escaped():
    metering, _ = metering_of()
    answer(metering, whole(OPENAI_USAGE), model='a"\n\\b')
    assert r'model="a\"\n\\b"' in metering.render().decode()


def test_counts_go_on_after_a_reload():
    metering, _ = metering_of()
    answer(metering, whole(OPENAI_USAGE))
    metering.reload(GatewayConfig(engine=EngineTable(name="own"), replica=()))
    answer(metering, whole(OPENAI_USAGE))
    assert 1600 == value(metering, "llm_prefix_cache_hit_tokens_total", replica="a")
    assert Kind.PREFOLD is metering.kind_of("own", "x")
    assert Kind.PREFOLD is metering.kind_of("", "x")


# What others know


def test_the_fleet_is_read_at_each_scrape():
    readings = [
        Reading([ReplicaReading("a", "up", "exact", 3, 500, 64)], 700, 1000, 12),
        Reading([ReplicaReading("a", "down")], 0, 1000),
    ]
    metering, _ = metering_of(gauges=lambda: readings.pop(0))
    first, second = values(metering), values(metering)
    assert 1 == first['prefold_replica_state{replica="a",state="up"}']
    assert 0 == first['prefold_replica_state{replica="a",state="down"}']
    assert 1 == first['prefold_replica_trust{replica="a",trust="exact"}']
    assert 3 == first['prefold_replica_pending{replica="a"}']
    assert 500 == first['prefold_replica_index_blocks{replica="a"}']
    assert 64 == first['prefold_evicted_tokens_total{replica="a"}']
    assert 700 == first["prefold_index_blocks"]
    assert 1000 == first["prefold_index_capacity_blocks"]
    assert 12 == first["prefold_distinct_prefixes"]
    assert 1 == second['prefold_replica_state{replica="a",state="down"}']
    assert "prefold_distinct_prefixes" not in second


def test_parts_that_were_left_out_and_losses_are_counted():
    sink = Records()
    metering, _ = metering_of(sinks=[sink], gauges=lambda: Reading(skipped={"budgets": 1}))
    sink.lost = 4
    assert 1 == value(metering, "prefold_skipped_total", part="budgets")
    assert 4 == value(metering, "prefold_lost_records_total", sink="kept")


def test_sinks_are_told_of_each_call():
    sink = Records()
    metering, clock = metering_of(sinks=[sink])
    meter = metering.call(Api.CHAT, "local", "t", session="s", request_id="r", body=b"{}")
    clock.now += 1
    meter.sent("a", 512, "exact")
    clock.now += 1
    meter.first_byte()
    meter.chunk(OPENAI_STREAM)
    clock.now += 2
    meter.end(200)
    (record,) = sink
    assert (996.0, 4.0, 2.0) == (record.time, record.duration, record.ttft)
    assert ("local", "t", "s", "r", "a", Kind.VLLM, "exact", 512) == (
        record.model,
        record.tenant,
        record.session,
        record.request_id,
        record.replica,
        record.kind,
        record.why,
        record.matched,
    )
    assert (READ, b"{}") == (record.usage, record.body)


def test_each_series_has_one_description():
    metering, _ = metering_of(price="miss=2,hit=0.5,output=10")
    answer(metering, whole(OPENAI_USAGE))
    described = re.findall(r"^# TYPE (\S+)", metering.render().decode(), re.MULTILINE)
    assert len(set(described)) == len(described)


def test_a_call_that_goes_on_without_its_client_counts_what_it_used_at_its_end():
    records = Records()
    metering, clock = metering_of(sinks=[records])
    meter = metering.call(Api.CHAT, "local", "t")
    meter.ask()
    meter.sent("a", 700)
    clock.now += 1
    meter.end(200, Outcome.CLIENT_GONE, "miss")
    assert 1 == value(metering, "prefold_requests_total", outcome="client_gone", status="200", replica="a")
    assert 0 == value(metering, "llm_prefix_cache_hit_tokens_total")
    clock.now += 10
    meter.chunk(whole(OPENAI_USAGE))
    meter.answered(200, Outcome.DONE, "miss")
    assert meter.asked(200)
    assert (800, 200) == tuple(value(metering, f"llm_prefix_cache_{what}_tokens_total") for what in ("hit", "miss"))
    assert 1050 == meter.tokens(7)
    assert 1 == value(metering, "prefold_requests_total")
    [record] = records
    assert (Outcome.CLIENT_GONE, 1.0, 800) == (record.outcome, record.duration, record.usage.read)


def test_a_call_that_is_stopped_since_its_client_left_counts_what_came():
    metering, _ = metering_of()
    meter = metering.call(Api.CHAT, "local", "t")
    meter.ask()
    meter.sent("a")
    meter.chunk(events({"choices": [{"delta": {"content": "yes"}}]}))
    meter.end(200, Outcome.CLIENT_GONE, "miss")
    assert meter.asked(200)
    assert 1 == value(metering, "prefold_answers_without_usage_total", tenant="t", replica="a")
    assert 7 + 1 == meter.tokens(7)


def test_a_client_that_leaves_before_anybody_is_asked_pays_for_what_is_asked_then():
    records = Records()
    metering, _ = metering_of(sinks=[records])
    meter = metering.call(Api.CHAT, "local", "t")
    meter.end(0, Outcome.CLIENT_GONE, "miss")
    meter.ask()
    meter.sent("a")
    meter.chunk(whole(OPENAI_USAGE))
    meter.answered(200, Outcome.DONE, "miss")
    assert meter.asked(200)
    assert (800, 1) == tuple(value(metering, name) for name in HIT_AND_REQUESTS)
    assert (1, 1050) == (len(records), meter.tokens(7))


HIT_AND_REQUESTS = ("llm_prefix_cache_hit_tokens_total", "prefold_requests_total")


def test_nothing_is_late_where_the_client_stays():
    metering, _ = metering_of()
    meter = metering.call(Api.CHAT, "local", "t")
    meter.ask()
    meter.sent("a")
    meter.chunk(whole(OPENAI_USAGE))
    meter.answered(200, Outcome.DONE, "off")
    assert not meter.asked(200)
    meter.end(200, Outcome.DONE, "off")
    assert (800, 1) == tuple(value(metering, name) for name in HIT_AND_REQUESTS)
