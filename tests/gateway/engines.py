"""Engines in processes of their own."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gateway.support import PATIENCE, free_port


@dataclass
class Engine:
    """A process that serves a model."""

    name: str
    process: subprocess.Popen[str]
    port: int
    events: int
    replay: int

    @property
    def table(self) -> str:
        return (
            f'[[replica]]\nname = "{self.name}"\nurl = "http://127.0.0.1:{self.port}"\nkind = "prefold"\n'
            f'events = "tcp://127.0.0.1:{self.events}"\nreplay = "tcp://127.0.0.1:{self.replay}"\n'
        )

    def post(self, value: object, path: str = "/v1/chat/completions") -> Any:
        """The engine's own answer, without a gateway."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("POST", path, json.dumps(value).encode(), {"content-type": "application/json"})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        assert response.status < 300, body
        return json.loads(body) if body else None

    def reset(self) -> None:
        """Empty the cache."""
        self.post({}, "/cache/reset")


@contextmanager
def engine(
    name: str, kv_memory: str = "96MiB", model: Sequence[str] = (), more: Sequence[str] = ()
) -> Iterator[Engine]:
    """An engine in a process.

    Args:
        name: of its replica.
        kv_memory: for its K/V.
        model: where it is; the default model without it.
        more: options.
    """
    events, replay = free_port(), free_port()
    command = [sys.executable, "-m", "prefold", "serve", *model, *more]
    command += ["--port", "0", "--threads", "1", "--kv-memory", kv_memory]
    command += ["--dtype", "float32"]  # in which answers repeat exactly, however much of a prompt was cached
    command += ["--kv-events", f"tcp://127.0.0.1:{events}", "--kv-replay", f"tcp://127.0.0.1:{replay}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    reader = threading.Thread(target=process.stderr.read)
    try:
        said = ""
        while (found := re.search(r"http://127.0.0.1:(\d+)", said)) is None:
            line = process.stderr.readline()
            assert line, said
            said += line
        reader.start()
        yield Engine(name, process, int(found[1]), events, replay)
    finally:
        process.kill()
        process.wait()
        if reader.ident is not None:
            reader.join(PATIENCE)
        process.stderr.close()


@contextmanager
def other_engine(
    command: Sequence[str], port: int, log: Path, environ: Mapping[str, str], seconds: float
) -> Iterator[None]:
    """Somebody else's server, from when its `/health` is good until the end of the block.

    Args:
        command: that starts it in the foreground.
        port: at which it will listen.
        log: a file for what it says.
        environ: of the process.
        seconds: that it may take to load.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environ, start_new_session=True
        )
    try:
        end = time.monotonic() + seconds
        while not _is_well(port):
            is_coming = process.poll() is None and time.monotonic() < end
            assert is_coming, log.read_text(errors="replace")[-4_000:]
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_well(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
