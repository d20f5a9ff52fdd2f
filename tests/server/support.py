"""A real server in this process, open to inspection."""

from __future__ import annotations

import http.client
import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from prefold.engine.engine import Engine
from prefold.engine.worker import EngineWorker
from prefold.server.app import PrefoldApp
from prefold.server.run import Server, bind, url_of

T = TypeVar("T")

MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True)
class Reply:
    """A response, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return self.json["error"]

    @property
    def events(self) -> list[str]:
        """The data of server-sent events."""
        assert "text/event-stream" == self.headers["content-type"]
        parts = self.body.decode().split("\n\n")
        assert "" == parts.pop()
        assert all(part.startswith("data: ") for part in parts)
        return [part.removeprefix("data: ") for part in parts]


@dataclass(frozen=True)
class RunningServer:
    """A server in this process, with its insides open to inspection."""

    url: str
    host: str
    port: int
    worker: EngineWorker
    server: Server
    thread: threading.Thread

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            fields = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, fields, response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Reply:
        return self.send("GET", path)

    def post(self, path: str, value: object, **headers: str) -> Reply:
        return self.send("POST", path, json.dumps(value).encode(), **headers)

    def metric(self, name: str, **labels: str) -> float:
        """The value of one series; 0 where there is none."""
        labels = {"model": MODEL, **labels}
        for line in self.get("/metrics").body.decode().splitlines():
            series, _, value = line.rpartition(" ")
            if series.startswith(f"{name}{{") and all(f'{key}="{text}"' in series for key, text in labels.items()):
                return float(value)
        return 0.0

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the engine's thread."""
        return self.worker.call(function).result(timeout=30)


@contextmanager
def running_server(engine: Engine, *, drain_timeout: float = 10) -> Iterator[RunningServer]:
    worker = EngineWorker(lambda: engine)
    worker.start()
    listener = bind("127.0.0.1", 0)
    listener.listen()
    ready = threading.Event()
    server = Server(
        PrefoldApp(worker, (MODEL, "an-alias")),
        worker,
        drain_timeout=drain_timeout,
        log_level="warning",
        on_ready=ready.set,
    )
    url = url_of(listener)
    host, port = listener.getsockname()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="server")
    thread.start()
    assert ready.wait(timeout=30)
    try:
        yield RunningServer(url, host, port, worker, server, thread)
    finally:
        server.handle_exit(signal.SIGTERM, None)
        thread.join(timeout=30)
        assert not thread.is_alive()
