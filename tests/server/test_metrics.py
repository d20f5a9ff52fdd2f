from prefold.engine.request import Output, Usage
from prefold.server.metrics import MAX_TENANTS, Metrics


class Ticker:
    """A clock that goes on by one second at each look."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def value(metrics, series):
    """The value of a series as it is rendered, None where it is not."""
    lines = [line for line in metrics.render().decode().splitlines() if line.startswith(series + " ")]
    return float(lines[0].split()[-1]) if lines else None


def finished(prompt, cached, completion, reason="stop"):
    return Output(0, finish=reason, usage=Usage(prompt, cached, completion))


def test_a_request_is_measured(server):
    metrics = Metrics(server.worker.engine, "m", Ticker())
    meter = metrics.meter(None, arrived=0.5)
    for output in (Output(0, tokens=(5,)), Output(0, tokens=(6,)), finished(10, 7, 2, "length")):
        meter.observe(output)
    by_tenant = '{model="m",tenant="default"}'
    assert 7 == value(metrics, "llm_prefix_cache_hit_tokens_total" + by_tenant)
    assert 3 == value(metrics, "llm_prefix_cache_miss_tokens_total" + by_tenant)
    assert 2 == value(metrics, "prefold_generated_tokens_total" + by_tenant)
    assert 1 == value(metrics, 'prefold_answers_finished_total{model="m",reason="length"}')
    # The clock stood at 1 when the first token came.
    assert 0.5 == value(metrics, 'llm_ttft_seconds_sum{cache="hit",model="m"}')
    assert 1 == value(metrics, 'llm_ttft_seconds_bucket{cache="hit",le="0.5",model="m"}')
    assert 0 == value(metrics, 'llm_ttft_seconds_bucket{cache="hit",le="0.2",model="m"}')


def test_a_request_that_ended_before_its_prompt_was_read_counts_no_prompt_tokens(server):
    metrics = Metrics(server.worker.engine, "m", Ticker())
    metrics.meter("t", arrived=0.0).observe(finished(10, 0, 0, "cancelled"))
    assert 1 == value(metrics, 'prefold_answers_finished_total{model="m",reason="cancelled"}')
    assert value(metrics, 'llm_prefix_cache_miss_tokens_total{model="m",tenant="t"}') is None


def test_tenants_beyond_the_limit_and_long_names_count_as_other(server):
    metrics = Metrics(server.worker.engine, "m", Ticker())
    for name in [*(f"tenant {number}" for number in range(MAX_TENANTS + 3)), "x" * 65, "tenant 0", ""]:
        metrics.meter(name, arrived=0.0).observe(finished(1, 0, 1))
    assert 2 == value(metrics, 'prefold_generated_tokens_total{model="m",tenant="tenant 0"}')
    assert 1 == value(metrics, f'prefold_generated_tokens_total{{model="m",tenant="tenant {MAX_TENANTS - 1}"}}')
    assert 4 == value(metrics, 'prefold_generated_tokens_total{model="m",tenant="other"}')
    assert 1 == value(metrics, 'prefold_generated_tokens_total{model="m",tenant="default"}')


def test_names_of_tenants_are_escaped(server):
    metrics = Metrics(server.worker.engine, "m", Ticker())
    metrics.meter('a"\\b', arrived=0.0).observe(finished(1, 0, 1))
    assert 1 == value(metrics, 'prefold_generated_tokens_total{model="m",tenant="a\\"\\\\b"}')


def test_the_engine_is_read_at_each_scrape(server):
    metrics = Metrics(server.worker.engine, "m", Ticker())
    assert server.worker.engine.cache.capacity == value(metrics, 'prefold_kv_tokens{model="m",state="capacity"}')
    for series in (
        'prefold_kv_tokens{model="m",state="used"}',
        'prefold_kv_tokens{model="m",state="pinned"}',
        'prefold_requests_waiting{model="m"}',
        'prefold_requests_running{model="m"}',
        'prefold_pins{model="m"}',
        'prefold_evicted_tokens_total{model="m",policy="default"}',
        'prefold_preemptions_total{model="m"}',
        'prefold_steps_total{model="m"}',
        *(f'prefold_step_seconds_total{{model="m",part="{part}"}}' for part in ("planning", "model", "answering")),
    ):
        assert value(metrics, series) is not None, series
