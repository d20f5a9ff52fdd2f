"""The SDKs' own types as judges, and a server on loopback that translates between a client and a canned upstream."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pydantic
from anthropic.types import MessageCreateParams, RawMessageStreamEvent
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParams

from prefold.gateway.call import Api
from prefold.gateway.config import Kind
from prefold.gateway.translate import translate

CREATED = 1_700_000_000
Upstream = Callable[[dict[str, Any]], tuple[int, list[bytes]]]

_ANTHROPIC_REQUEST = pydantic.TypeAdapter(MessageCreateParams, config={"extra": "allow"})
_OPENAI_REQUEST = pydantic.TypeAdapter(CompletionCreateParams, config={"extra": "allow"})
_ANTHROPIC_EVENT = pydantic.TypeAdapter(RawMessageStreamEvent)


def valid_for_anthropic(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request, if it is one to the types of the `anthropic` package."""
    _exhaust(_ANTHROPIC_REQUEST.validate_python(request))
    return request


def valid_for_openai(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request, if it is one to the types of the `openai` package."""
    _exhaust(_OPENAI_REQUEST.validate_python(request))
    return request


def _exhaust(value: Any) -> None:
    """Lists within are checked only when they are read."""
    if isinstance(value, Mapping):
        for item in value.values():
            _exhaust(item)
    elif isinstance(value, Iterator) or type(value).__name__ == "ValidatorIterator":
        for item in value:
            _exhaust(item)


def anthropic_events(stream: bytes) -> list[dict[str, Any]]:
    """The events of a stream, each checked against the SDK's types."""
    events = []
    for text in stream.decode().split("\n\n")[:-1]:
        name, data = text.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert f"event: {event['type']}" == name
        if event["type"] != "error":
            _ANTHROPIC_EVENT.validate_python(event)
        events.append(event)
    return events


def openai_events(stream: bytes) -> list[Any]:
    """The same of OpenAI's, `[DONE]` and comments as texts."""
    events: list[Any] = []
    for text in stream.decode().split("\n\n")[:-1]:
        data = text.removeprefix("data: ")
        if data == "[DONE]" or text.startswith(":"):
            events.append(data)
            continue
        event = json.loads(data)
        if "error" not in event:
            ChatCompletionChunk.model_validate(event)
        events.append(event)
    return events


def sse(*values: Any, newline: str = "\n") -> bytes:
    """Events as upstreams send them."""
    lines = []
    for value in values:
        if isinstance(value, dict) and "type" in value:
            lines.append(f"event: {value['type']}")
        lines += [f"data: {value if isinstance(value, str) else json.dumps(value)}", ""]
    return "".join(line + newline for line in lines).encode()


@contextmanager
def gateway(kind: Kind, upstream: Upstream) -> Iterator[str]:
    """A server that translates what it is sent, asks `upstream` and translates back. Gives its URL.

    `upstream` takes the translated body and gives a status and the chunks of the answer.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def do_POST(self) -> None:
            fields = json.loads(self.rfile.read(int(self.headers["content-length"])))
            translation = translate(Api(self.path.partition("?")[0]), fields, kind, CREATED)
            assert translation is not None
            check = valid_for_openai if translation.api is Api.CHAT else valid_for_anthropic
            check(translation.body)
            status, chunks = upstream(translation.body)
            streams = bool(fields.get("stream")) and status == 200
            self.send_response(status)
            self.send_header("content-type", "text/event-stream" if streams else "application/json")
            self.end_headers()
            if streams:
                stream = translation.stream()
                for chunk in chunks:
                    self.wfile.write(stream.feed(chunk))
                self.wfile.write(stream.end())
                return
            body = b"".join(chunks)
            value = translation.error(status, body) if status >= 400 else translation.answer(json.loads(body))
            self.wfile.write(json.dumps(value).encode())

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
