"""How a server starts and ends."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from prefold.engine.loading import load_engine
from prefold.engine.options import EngineOptions
from prefold.errors import UsageError
from prefold.server import run
from prefold.server.run import bind, url_of

from .support import running_server

COMMAND = [sys.executable, "-c", "from prefold.cli.main import main; main()", "serve", "--port", "0"]
STORY = {"prompt": "Once upon a time", "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def engine(default_checkpoint):
    return load_engine(default_checkpoint, EngineOptions(dtype="float32", kv_memory=96 << 20, threads=2))


class Stream:
    """A streamed completion on a connection of its own, whose first token has arrived."""

    def __init__(self, host, port, max_tokens):
        self._connection = http.client.HTTPConnection(host, port, timeout=60)
        body = json.dumps({**STORY, "max_tokens": max_tokens, "stream": True})
        self._connection.request("POST", "/v1/completions", body)
        self._response = self._connection.getresponse()
        self._first = self._response.readline()

    def rest(self):
        """The data of all events to the end."""
        text = (self._first + self._response.read()).decode()
        self.close()
        return [line.removeprefix("data: ") for line in text.split("\n\n") if line]

    def close(self):
        self._response.close()
        self._connection.close()


def test_requests_that_run_may_finish(engine):
    with running_server(engine) as server:
        stream = Stream(server.host, server.port, 40)
        server.server.handle_exit(signal.SIGTERM, None)
        events = stream.rest()
        server.thread.join(timeout=30)
        with pytest.raises(ConnectionRefusedError):
            server.get("/health")
    assert (41, "[DONE]") == (len(events), events[-1])
    assert "length" == json.loads(events[-2])["choices"][0]["finish_reason"]


def assert_interrupted(events, code="engine_stopped"):
    """A stream ended with an error."""
    assert "[DONE]" == events[-1]
    assert code == json.loads(events[-2])["error"]["code"]


def test_requests_that_take_too_long_are_cancelled(engine):
    with running_server(engine, drain_timeout=0.2) as server, ThreadPoolExecutor(1) as pool:
        whole = pool.submit(server.post, "/v1/completions", {**STORY, "max_tokens": 1500})
        stream = Stream(server.host, server.port, 1500)
        server.server.handle_exit(signal.SIGTERM, None)
        assert_interrupted(stream.rest())
        reply = whole.result(timeout=30)
    assert (503, "engine_stopped", "server_error") == (reply.status, reply.error["code"], reply.error["type"])
    assert not engine.busy


def test_a_client_that_leaves_ends_the_wait_for_its_request(engine):
    with running_server(engine, drain_timeout=120) as server:
        stream = Stream(server.host, server.port, 1500)
        server.server.handle_exit(signal.SIGTERM, None)
        stream.close()
        server.thread.join(timeout=20)
        assert not server.thread.is_alive()
    assert not engine.busy


def test_a_second_signal_cancels_what_runs(engine):
    with running_server(engine, drain_timeout=60) as server:
        stream = Stream(server.host, server.port, 1500)
        for _ in range(2):
            server.server.handle_exit(signal.SIGINT, None)
        assert_interrupted(stream.rest())
    assert not engine.busy


def test_clients_that_are_stuck_do_not_keep_the_server(engine, monkeypatch):
    monkeypatch.setattr(run, "_LAST_WORDS_SECONDS", 0.1)
    with (
        running_server(engine) as server,
        socket.create_connection((server.host, server.port), timeout=30) as client,
    ):
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert 200 == server.get("/health").status
        server.server.handle_exit(signal.SIGTERM, None)
        server.thread.join(timeout=30)
        assert not server.thread.is_alive()
        assert b"" == client.recv(100)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failed_engine_is_reported_and_refuses_requests(default_checkpoint):
    options = EngineOptions(dtype="float32", kv_memory=16 << 20, threads=2)
    with running_server(load_engine(default_checkpoint, options)) as server:
        stream = Stream(server.host, server.port, 300)

        def fail():
            raise RuntimeError("on purpose")

        server.worker.engine.step = fail
        assert_interrupted(stream.rest(), "engine_error")
        health, answer = server.get("/health"), server.post("/v1/completions", STORY)
        assert (503, "engine_failed") == (health.status, health.error["code"])
        assert (503, "engine_stopped") == (answer.status, answer.error["code"])
        assert 503 == server.post("/cache/reset", {}).status
        assert 200 == server.get("/metrics").status


def test_a_port_that_is_in_use():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"Port {port} of 127.0.0.1 is in use") as caught:
            bind("127.0.0.1", port)
    assert "--port" in caught.value.hint


@pytest.mark.parametrize("host", ["no-such-host.invalid", "203.0.113.1", "a" * 300])
def test_a_host_that_is_not_here(host):
    with pytest.raises(UsageError, match=host[:10]) as caught:
        bind(host, 0)
    assert "--host" in caught.value.hint


def test_urls():
    for host, start in (("127.0.0.1", "http://127.0.0.1:"), ("::1", "http://[::1]:")):
        try:
            listener = bind(host, 0)
        except UsageError:
            assert "::1" == host, "a machine may lack IPv6 only"
            continue
        with listener:
            assert url_of(listener).startswith(start)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_command(default_checkpoint, number, code):
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    with subprocess.Popen(
        [*COMMAND, "--kv-memory", "64MiB", "--served-model-name", "tiny"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            lines = []
            while not lines or not lines[-1].startswith("Serving"):
                line = process.stderr.readline()
                assert line, lines
                lines.append(line.strip())
            address = lines[-1].split("http://")[1].split("/v1")[0]
            assert f"Serving tiny at http://{address}/v1 (K/V room for 2,912 tokens)" == lines[-1]
            host, port = address.split(":")
            stream = Stream(host, int(port), 20)
            process.send_signal(number)
            assert "[DONE]" == stream.rest()[-1]
            assert code == process.wait(timeout=30)
            assert "Traceback" not in process.stderr.read()
            assert "" == process.stdout.read()
        finally:
            process.kill()


def test_the_command_with_a_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as other:
        command = [*COMMAND[:-1], str(other.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert 2 == done.returncode
    assert "is in use already" in done.stderr
    assert "Loading" not in done.stderr
