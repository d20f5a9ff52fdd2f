"""The official SDKs read what was rendered, from a real server."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from prefold.responses.semantic.forms import render
from prefold.responses.semantic.types import Answer

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")

TEXT = '“Settings” → 安全\u2028then 👩‍🚀\x85 "done"\\.'
ANSWER = Answer(TEXT, "m-1", "stop", 11, 4, (3, 9, 4))
PIECES = [TEXT[:3], TEXT[3:12], TEXT[12:16], TEXT[16:]]
MARK = {"entry": "e1", "similarity": 0.97, "cache": "semantic"}


class Handler(BaseHTTPRequestHandler):
    """Answers every request with the same answer, in the form that was asked for."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers, chunks = render(
            ANSWER,
            self.path,
            stream=request.get("stream", False),
            include_usage=request.get("stream_options", {}).get("include_usage", False),
            id="0123",
            created=1_764_547_200.0,
            provenance={"entry": "e1", "similarity": 0.97},
            request=request,
        )
        self.send_response(200)
        for name, value in headers:
            self.send_header(name.decode(), value.decode())
        if request.get("stream"):
            self.send_header("connection", "close")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(chunk)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def of_openai(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        yield client


@pytest.fixture
def of_anthropic(url):
    with anthropic.Anthropic(base_url=url, api_key="x", max_retries=0) as client:
        yield client


ASKED = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_chat(of_openai):
    raw = of_openai.chat.completions.with_raw_response.create(**ASKED)
    assert ("semantic", "e1") == (raw.headers["x-prefold-cache"], raw.headers["x-prefold-entry"])
    answer = raw.parse()
    assert (TEXT, "stop") == (answer.choices[0].message.content, answer.choices[0].finish_reason)
    assert ("chatcmpl-0123", "m-1", 1_764_547_200) == (answer.id, answer.model, answer.created)
    assert (11, 4, 15) == (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens)
    assert 11 == answer.usage.prompt_tokens_details.cached_tokens
    assert MARK == answer.prefold


def test_a_stream_of_chat(of_openai):
    with of_openai.chat.completions.create(**ASKED, stream=True, stream_options={"include_usage": True}) as stream:
        first, *chunks = list(stream)
    assert ("assistant", "") == (first.choices[0].delta.role, first.choices[0].delta.content)
    assert MARK == first.prefold
    *pieces, end, usage = chunks
    assert PIECES == [piece.choices[0].delta.content for piece in pieces]
    assert "stop" == end.choices[0].finish_reason
    assert ([], 15) == (usage.choices, usage.usage.total_tokens)


def test_the_helper_of_the_sdk_gathers_a_stream_of_chat(of_openai):
    with of_openai.chat.completions.stream(**ASKED) as stream:
        answer = stream.get_final_completion()
    assert (TEXT, "stop", None) == (
        answer.choices[0].message.content,
        answer.choices[0].finish_reason,
        answer.usage,
    )


def test_completions(of_openai):
    answer = of_openai.completions.create(model="m", prompt="hi")
    assert (TEXT, "stop", 15) == (answer.choices[0].text, answer.choices[0].finish_reason, answer.usage.total_tokens)
    with of_openai.completions.create(model="m", prompt="hi", stream=True) as stream:
        chunks = list(stream)
    assert [*PIECES, ""] == [chunk.choices[0].text for chunk in chunks]
    assert (MARK, "stop") == (chunks[0].prefold, chunks[-1].choices[0].finish_reason)


def test_responses(of_openai):
    answer = of_openai.responses.create(model="m", input="hi", instructions="Be brief.", temperature=0)
    assert (TEXT, "completed", "Be brief.", 0) == (
        answer.output_text,
        answer.status,
        answer.instructions,
        answer.temperature,
    )
    assert (11, 11, 4, 15) == (
        answer.usage.input_tokens,
        answer.usage.input_tokens_details.cached_tokens,
        answer.usage.output_tokens,
        answer.usage.total_tokens,
    )
    assert MARK == answer.prefold


def test_a_stream_of_responses(of_openai):
    with of_openai.responses.stream(model="m", input="hi") as stream:
        events = list(stream)
        answer = stream.get_final_response()
    assert TEXT == answer.output_text
    assert MARK == events[0].prefold
    assert list(range(len(events))) == [event.sequence_number for event in events]
    assert PIECES == [event.delta for event in events if event.type == "response.output_text.delta"]
    assert ("response.created", "response.completed") == (events[0].type, events[-1].type)


def test_messages(of_anthropic):
    answer = of_anthropic.messages.create(**ASKED, max_tokens=99)
    assert (TEXT, "end_turn", "msg_0123") == (answer.content[0].text, answer.stop_reason, answer.id)
    assert (0, 11, 0, 4) == (
        answer.usage.input_tokens,
        answer.usage.cache_read_input_tokens,
        answer.usage.cache_creation_input_tokens,
        answer.usage.output_tokens,
    )
    assert MARK == answer.prefold


def test_a_stream_of_messages(of_anthropic):
    with of_anthropic.messages.create(**ASKED, max_tokens=99, stream=True) as stream:
        events = list(stream)
    assert MARK == events[0].prefold
    assert PIECES == [event.delta.text for event in events if event.type == "content_block_delta"]
    with of_anthropic.messages.stream(**ASKED, max_tokens=99) as stream:
        assert TEXT == "".join(stream.text_stream)
        answer = stream.get_final_message()
    assert ("end_turn", 11, 4) == (
        answer.stop_reason,
        answer.usage.cache_read_input_tokens,
        answer.usage.output_tokens,
    )
