"""Embeddings from a server that speaks OpenAI's `/v1/embeddings`."""

from __future__ import annotations

import hashlib
import http.client
import io
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import SplitResult

import msgspec

from prefold.responses.semantic.embedders.faults import Failed, Late
from prefold.responses.semantic.embedders.vectors import Vector, unit_rows
from prefold.responses.semantic.types import Reason

_PIPELINE = "endpoint 1"
_ANSWER_BYTES = 1 << 20
_BYTES_PER_TEXT = 256 << 10
_ABSENT = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)


class _Row(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Row]
    model: str = ""


class _Until(io.RawIOBase):
    """What comes over a socket until a moment, however slowly it drips."""

    def __init__(self, connected: socket.socket, moment: float, clock: Callable[[], float]) -> None:
        self._socket = connected
        self._moment = moment
        self._clock = clock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._moment - self._clock()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._socket.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What `HTTPResponse` asks of a socket."""
        return io.BufferedReader(self)


def _response(
    moment: float, clock: Callable[[], float], connected: socket.socket, *rest: Any, **options: Any
) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(cast("socket.socket", _Until(connected, moment, clock)), *rest, **options)


class EndpointEmbedder:
    """One kept-alive connection, for use by one thread at a time.

    The server's vectors cannot be hashed: the fingerprint is over address and model and, from the first answer on, over
    the size of its vectors and the model that it names. When these change, every call fails until the process starts
    anew, so that vectors of two models never meet in one index.

    Args:
        address: without query and fragment; `/embeddings` is added to its path.
        model: sent as `model`.
        key: sent as a bearer token; "" for none.
        budget_seconds: longest that one call takes, connecting included.
        clock: seconds that only grow.

    Attributes:
        fingerprint: see above.
        size: numbers in a vector; 0 before the first answer.
    """

    def __init__(
        self,
        address: SplitResult,
        model: str,
        key: str,
        *,
        budget_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._where = address.netloc
        self._path = f"{address.path.rstrip('/')}/embeddings"
        self._model = model
        self._headers = {"content-type": "application/json"}
        if key:
            self._headers["authorization"] = f"Bearer {key}"
        self._budget = budget_seconds
        self._clock = clock
        self._in_use = threading.Lock()
        self._closed = False
        host, port = address.hostname or "", address.port
        self._connection = (
            http.client.HTTPSConnection(host, port, context=ssl.create_default_context())
            if address.scheme == "https"
            else http.client.HTTPConnection(host, port)
        )
        self._named = (_PIPELINE, address.scheme, address.netloc, self._path, model)
        self._identity = ""
        self.size = 0
        self.fingerprint = self._hash()

    def embed(self, texts: list[str]) -> Vector:
        """See `Embedder.embed`.

        Raises:
            Late: if the server takes longer than it may.
            Failed: if it cannot be reached, refuses, or answers with what are no vectors of the model that it had.
        """
        try:
            body = msgspec.json.encode({"model": self._model, "input": texts})
        except UnicodeEncodeError:
            raise Failed("The text holds half a character.", reason=Reason.UNREADABLE) from None
        try:
            with self._in_use:
                found = self._exchange(body, _ANSWER_BYTES + len(texts) * _BYTES_PER_TEXT)
        finally:
            if self._closed:
                self._connection.close()
        try:
            answer = msgspec.json.decode(found, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Failed(f"{self._where} answered with what are no embeddings.") from None
        rows = sorted(answer.data, key=lambda row: row.index)
        if [row.index for row in rows] != list(range(len(texts))):
            raise Failed(f"{self._where} did not give one vector for each text.")
        vectors = unit_rows([row.embedding for row in rows])
        self._be_the_same(answer.model, vectors.shape[1])
        return vectors

    def close(self) -> None:
        """End the connection, and with it a call that waits in another thread; there will be no further call."""
        self._closed = True
        connected = self._connection.sock
        if connected is not None:
            with suppress(OSError):  # it may have ended already
                connected.shutdown(socket.SHUT_RDWR)
        if self._in_use.acquire(blocking=False):  # else the call that uses the connection closes it, having failed
            self._connection.close()
            self._in_use.release()

    def _exchange(self, body: bytes, most_bytes: int) -> bytes:
        moment = self._clock() + self._budget
        while True:
            is_kept = self._connection.sock is not None
            try:
                return self._once(body, most_bytes, moment)
            except TimeoutError:
                self._connection.close()
                raise Late(f"{self._where} took longer than {self._budget:g} s.") from None
            except (OSError, ValueError, http.client.HTTPException) as error:
                self._connection.close()
                if is_kept and isinstance(error, ConnectionError) and not self._closed:
                    continue  # a server may end a connection that it kept: a new one tells whether it is still there
                raise Failed(f"{self._where} failed: {type(error).__name__}.") from None

    def _once(self, body: bytes, most_bytes: int, moment: float) -> bytes:
        connection = self._connection
        left = moment - self._clock()
        if self._closed or left <= 0:
            raise TimeoutError
        if connection.sock is None:
            connection.timeout = left
            self._connect()
        connection.sock.settimeout(left)
        connection.response_class = partial(_response, moment, self._clock)  # type: ignore[assignment]
        connection.request("POST", self._path, body, self._headers)
        response = connection.getresponse()
        if response.status != HTTPStatus.OK:
            connection.close()
            reason = Reason.EMBEDDER_MISSING if response.status in _ABSENT else Reason.EMBEDDER_FAILED
            raise Failed(
                f"{self._where} refused with status {response.status}.",
                hint="check its address, the model's name and the key",
                reason=reason,
            )
        found = response.read(most_bytes + 1)
        if len(found) > most_bytes:
            connection.close()
            raise Failed(f"{self._where} answered with more than {most_bytes} bytes.")
        response.close()
        return found

    def _connect(self) -> None:
        try:
            self._connection.connect()
        except TimeoutError:
            raise
        except OSError as error:
            self._connection.close()
            raise Failed(
                f"{self._where} cannot be reached: {type(error).__name__}.",
                hint="check its address, and that it runs",
                reason=Reason.EMBEDDER_MISSING,
            ) from None

    def _be_the_same(self, model: str, size: int) -> None:
        identity = f"{size}\0{model}"
        if not self._identity:
            self._identity, self.size = identity, size
            self.fingerprint = self._hash()
        elif identity != self._identity:
            raise Failed(
                f"{self._where} gives vectors of another model or size than before.",
                hint="restart prefold to begin anew with them",
            )

    def _hash(self) -> str:
        return hashlib.sha256("\0".join((*self._named, self._identity)).encode()).hexdigest()
