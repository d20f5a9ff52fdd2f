import gzip
import http.server
import subprocess
import sys
import threading

import pytest

from prefold.gateway.call import Api
from prefold.gateway.config import Kind
from prefold.gateway.meter import CallRecord, Outcome
from prefold.providers.usage import Usage

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult

from prefold.gateway.otel import Telemetry, connect

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "vllm", "gen_ai.request.model": "m"}


class Kept(MetricExporter):
    """Keeps what it is given."""

    def __init__(self, result=MetricExportResult.SUCCESS):
        super().__init__()
        self.result = result
        self.exports = []
        self.is_shut_down = False

    def export(self, metrics_data, timeout_millis=0, **kwargs):
        self.exports.append(metrics_data)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def force_flush(self, timeout_millis=0):
        return True

    def shutdown(self, timeout_millis=0, **kwargs):
        self.is_shut_down = True


def record(**changes):
    fields = {
        "time": 0.0,
        "api": Api.CHAT,
        "model": "m",
        "model_label": "m",
        "tenant": "acme",
        "session": "",
        "request_id": "",
        "replica": "a",
        "kind": Kind.VLLM,
        "why": "",
        "status": 200,
        "outcome": Outcome.DONE,
        "cache": "off",
        "duration": 1.5,
        "ttft": 0.25,
        "usage": Usage(200, 800, 10, output=50, is_reported=True),
        "matched": None,
        "body": b"",
    }
    return CallRecord(**{**fields, **changes})


def collected(*records):
    """Points by name of the metric."""
    telemetry = Telemetry(Kept(), lambda: 5, "i")
    for each in records:
        telemetry(each)
    (resource,) = telemetry.collect().resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: list(metric.data.data_points) for metric in scope.metrics}


def test_metrics_are_those_of_the_conventions():
    points = collected(record())
    assert {
        "gen_ai.client.operation.duration",
        "gen_ai.server.time_to_first_token",
        "gen_ai.client.token.usage",
        "gen_ai.client.inference.usage.input_tokens",
        "gen_ai.client.inference.usage.output_tokens",
        "gen_ai.client.inference.usage.cache_read.input_tokens",
        "gen_ai.client.inference.usage.cache_write.input_tokens",
    } == points.keys()
    (duration,) = points["gen_ai.client.operation.duration"]
    assert (CHAT, 1, 1.5, 1.5, 1.5) == (
        duration.attributes,
        duration.count,
        duration.sum,
        duration.min,
        duration.max,
    )
    usage = {point.attributes["gen_ai.token.type"]: point.sum for point in points["gen_ai.client.token.usage"]}
    assert {"input": 1010, "output": 50} == usage
    (read,) = points["gen_ai.client.inference.usage.cache_read.input_tokens"]
    assert ({**CHAT, "gen_ai.token.modality": "unknown"}, 800) == (read.attributes, read.value)


def test_bounds_are_those_of_the_conventions():
    points = collected(record())
    (duration,) = points["gen_ai.client.operation.duration"]
    assert pytest.approx([0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]) == (
        list(duration.explicit_bounds)
    )
    assert [1, 4, 16, 64, 256] == list(points["gen_ai.client.token.usage"][0].explicit_bounds)[:5]
    assert 67_108_864 == points["gen_ai.client.token.usage"][0].explicit_bounds[-1]
    (first,) = points["gen_ai.server.time_to_first_token"]
    assert 1 == first.bucket_counts[list(first.explicit_bounds).index(0.25)]


def test_failures_are_told_apart_and_have_no_tokens():
    points = collected(record(), record(status=429, usage=None, ttft=None), record(outcome=Outcome.FAILED, usage=None))
    errors = [point.attributes.get("error.type") for point in points["gen_ai.client.operation.duration"]]
    assert [None, "429", "failed"] == errors
    assert 2 == len(points["gen_ai.client.token.usage"])


def test_calls_that_no_replica_answered_are_left_out():
    points = collected(record(cache="hit"), record(cache="shared"), record(replica=""), record(api=Api.COUNT_TOKENS))
    assert [] == points["gen_ai.client.operation.duration"]


def test_tenants_are_not_told():
    points = collected(record())
    assert "acme" not in str(points)


@pytest.mark.parametrize("result", [MetricExportResult.FAILURE, RuntimeError("broken")])
def test_what_cannot_be_sent_is_counted_and_goes_with_the_next(result):
    exporter = Kept(result)
    telemetry = Telemetry(exporter, lambda: 5, "i")
    telemetry(record())
    telemetry._send()
    exporter.result = MetricExportResult.SUCCESS
    telemetry._send()
    assert 1 == telemetry.lost
    assert 2 == len(exporter.exports)


def test_all_is_sent_at_the_end():
    exporter = Kept()
    telemetry = Telemetry(exporter, lambda: 5, "i")
    telemetry.start()
    telemetry(record())
    telemetry.close()
    (data,) = exporter.exports
    assert 1 == data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points[0].count
    assert exporter.is_shut_down


def test_it_arrives_over_http():
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    received = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append((self.path, gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        telemetry = connect(f"http://127.0.0.1:{server.server_port}", lambda: 5, "i")
        telemetry(record())
        telemetry.start()
        telemetry.close()
        server.shutdown()
        thread.join()
    ((path, body),) = received
    assert "/v1/metrics" == path
    assert 0 == telemetry.lost
    metrics = service.ExportMetricsServiceRequest.FromString(body).resource_metrics[0].scope_metrics[0].metrics
    assert 7 == len(metrics)
    assert (
        800
        == next(metric for metric in metrics if metric.name.endswith("cache_read.input_tokens"))
        .sum.data_points[0]
        .as_int
    )


def test_nothing_of_opentelemetry_is_imported_before_it_is_wanted():
    code = "import sys, prefold.gateway.otel; print(any(name.startswith('opentelemetry') for name in sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "False" == result.stdout.strip()
