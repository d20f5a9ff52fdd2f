"""Chunks in requests to a real server, by the official SDK."""

from __future__ import annotations

import openai
import pytest

from prefold.engine.loading import load_engine
from prefold.engine.options import EngineOptions

from .support import MODEL, running_server

PASSAGES = (
    "The library opens at nine in the morning and closes at six in the evening, except on Sundays.",
    "Members may borrow up to seven books at a time, and keep each of them for three weeks.",
    "A lost book costs its price and a fee of two pounds; a late one costs ten pence for each day.",
)


@pytest.fixture(scope="module")
def blending(default_checkpoint):
    options = EngineOptions(dtype="float32", kv_memory=96 << 20, threads=2, blend=True, blend_recompute=0.2)
    with running_server(load_engine(default_checkpoint, options)) as running:
        yield running


@pytest.fixture
def client(blending):
    with openai.OpenAI(base_url=f"{blending.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def messages(order, question="When does the library open?"):
    parts = [{"type": "text", "text": PASSAGES[number], "cache_chunk": True} for number in order]
    return [
        {"role": "system", "content": "Answer from the passages."},
        {"role": "user", "content": [*parts, {"type": "text", "text": question}]},
    ]


def test_parts_that_are_chunks_are_reused_in_another_order(blending, client):
    blending.post("/cache/reset", {})
    ask = client.chat.completions.with_raw_response.create
    first = ask(model=MODEL, messages=messages([0, 1, 2]), max_tokens=4, temperature=0)
    assert "exact" == first.headers["x-prefold-blend"]
    marks = first.parse().usage.prefold_blend
    assert (False, 3, 0, 0) == (
        marks["approximate"],
        marks["chunks"],
        marks["reused_chunks"],
        marks["reused_tokens"] + marks["recomputed_tokens"],
    )
    second = ask(model=MODEL, messages=messages([2, 0, 1]), max_tokens=4, temperature=0)
    assert "approximate" == second.headers["x-prefold-blend"]
    marks = second.parse().usage.prefold_blend
    assert (True, 3, 3) == (marks["approximate"], marks["chunks"], marks["reused_chunks"])
    # ceil(0.2 * tokens) of them were computed after all
    total = marks["reused_tokens"] + marks["recomputed_tokens"]
    assert -(-total // 5) == marks["recomputed_tokens"]
    details = second.parse().usage.prompt_tokens_details
    assert 0 < details.cached_tokens < second.parse().usage.prompt_tokens - total


def test_an_exact_request_finds_nothing_of_a_blended_one(blending, client):
    blending.post("/cache/reset", {})
    plain = messages([0, 1, 2])
    for part in plain[1]["content"]:
        part.pop("cache_chunk", None)

    def ask(chat):
        return client.chat.completions.create(model=MODEL, messages=chat, max_tokens=8, temperature=0)

    expected = ask(plain)
    blending.post("/cache/reset", {})
    for _ in range(2):
        ask(messages([0, 1, 2]))
    answer = ask(plain)
    assert expected.choices[0].message.content == answer.choices[0].message.content
    opening = blending.post("/tokenize", {"messages": plain[:1]}).json
    assert answer.usage.prompt_tokens_details.cached_tokens <= opening["count"] + 5
    assert not hasattr(answer.usage, "prefold_blend")


def test_a_stream_says_that_it_may_be_approximate_and_then_whether_it_was(client):
    for _ in range(2):
        with client.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=messages([1, 0]),
            max_tokens=3,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        ).parse() as stream:
            assert "possible" == stream.response.headers["x-prefold-blend"]
            *_, last = stream
    assert last.usage.prefold_blend["approximate"]


def test_chunks_of_a_completion_by_characters_and_by_tokens(blending, client):
    blending.post("/cache/reset", {})
    lead = "Passages:\n"
    prompt = lead + "\n".join(PASSAGES[:2]) + "\nQuestion: how many books?"
    starts = [prompt.index(text) for text in PASSAGES[:2]]
    ranges = [[start, start + len(text)] for start, text in zip(starts, PASSAGES, strict=False)]

    def ask(prompt, ranges):
        answer = client.completions.create(
            model=MODEL, prompt=prompt, max_tokens=3, temperature=0, extra_body={"prefold_chunks": ranges}
        )
        return answer.usage.prefold_blend

    assert 0 == ask(prompt, ranges)["reused_chunks"]
    assert 2 == ask(prompt, ranges)["reused_chunks"]
    ids = blending.post("/tokenize", {"prompt": PASSAGES[1]}).json["tokens"]
    assert 1 == ask([5, 6, 7, *ids, 8, 9], [[3, 3 + len(ids)]])["reused_chunks"]
    chat = [{"role": "user", "content": f"{PASSAGES[1]} Well?"}]
    marked = [{"message": 0, "start": 0, "stop": len(PASSAGES[1])}]
    answer = client.chat.completions.create(
        model=MODEL, messages=chat, max_tokens=3, temperature=0, extra_body={"prefold_chunks": marked}
    )
    assert 1 == answer.usage.prefold_blend["reused_chunks"]


def test_salts_share_no_chunks(blending, client):
    blending.post("/cache/reset", {})

    def reused(salt):
        answer = client.chat.completions.create(
            model=MODEL, messages=messages([0, 1]), max_tokens=2, temperature=0, extra_body={"cache_salt": salt}
        )
        return answer.usage.prefold_blend["reused_chunks"]

    assert [0, 2, 0] == [reused("one"), reused("one"), reused("two")]


def test_a_server_that_does_not_blend_says_so(server):
    body = {"model": MODEL, "messages": messages([0, 1]), "max_tokens": 2, "temperature": 0}
    for _ in range(2):
        reply = server.post("/v1/chat/completions", body)
    assert ("exact", 200) == (reply.headers["x-prefold-blend"], reply.status)
    assert "blending is off" == reply.json["usage"]["prefold_blend"]["reason"]
    assert reply.json["usage"]["prompt_tokens"] - 1 == reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_metrics_count_chunks(blending, client):
    before = blending.metric("prefold_blend_chunks_total", result="reused")
    for _ in range(2):
        client.chat.completions.create(model=MODEL, messages=messages([2]), max_tokens=1)
    assert before < blending.metric("prefold_blend_chunks_total", result="reused")
    assert 0 < blending.metric("prefold_blend_bytes")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prompt": "some text", "prefold_chunks": [[0, 4], [3, 9]]}, "3 to 9 begins before 4"),
        ({"prompt": "some text", "prefold_chunks": [[4, 4]]}, "4 to 4 is empty"),
        ({"prompt": "some text", "prefold_chunks": [[4, 5]]}, "white space"),
        ({"prompt": "some text", "prefold_chunks": [[0, 10]]}, "outside"),
        ({"prompt": "some text", "prefold_chunks": [[-1, 3]]}, "outside"),
        ({"prompt": "some text", "prefold_chunks": [[3, 1]]}, "3 to 1 ends before it begins"),
        ({"prompt": "some text", "prefold_chunks": [[True, 3]]}, "prefold_chunks[0]"),
        ({"prompt": "some text", "prefold_chunks": ["some"]}, "prefold_chunks[0]"),
        ({"prompt": "some text", "prefold_chunks": "some"}, "a list of chunks"),
        ({"prompt": ["some", "text"], "prefold_chunks": [[0, 1]]}, "one prompt only"),
        ({"prompt": [1, 2, 3], "prefold_chunks": [[0, 4]]}, "outside"),
        ({"prompt": "x" * 20_000, "prefold_chunks": [[at, at + 1] for at in range(10_000)]}, "10000 chunks"),
        ({"prompt": "a word " * 9_000, "prefold_chunks": [[0, 60_000]]}, "18002 prompt tokens"),
        ({"prompt": "some text", "prefold_chunks": {"a": 1}}, "a list of chunks"),
    ],
)
@pytest.mark.parametrize("name", ["blending", "server"])
def test_bad_chunks_of_a_prompt_are_refused_by_name(request, name, fields, words):
    reply = request.getfixturevalue(name).post("/v1/completions", {"model": MODEL, **fields})
    assert 400 == reply.status
    assert words in reply.error["message"]


@pytest.mark.parametrize(
    ("chat", "chunks", "words"),
    [
        ([{"role": "user", "content": "some"}], [{"message": 1, "start": 0, "stop": 2}], "prefold_chunks[0]"),
        ([{"role": "user", "content": "some"}], [{"message": 0, "start": 0}], "prefold_chunks[0]"),
        ([{"role": "user", "content": "some"}], [[0, 2]], "prefold_chunks[0]"),
        ([{"role": "user", "content": "some"}], [{"message": 0, "start": 0, "stop": 2, "end": 3}], "prefold_chunks[0]"),
        ([{"role": "user", "content": [{"type": "text", "text": "a", "cache_chunks": True}]}], None, "cache_chunks"),
        ([{"role": "user", "content": [{"type": "text", "text": "a", "cacheChunk": True}]}], None, "cacheChunk"),
        ([{"role": "user", "content": "some"}], [{"message": 0, "start": 0, "stop": 5}], "outside"),
        ([{"role": "user", "content": [{"type": "text", "text": "", "cache_chunk": True}]}], None, "empty"),
        ([{"role": "user", "content": [{"type": "text", "text": " \n", "cache_chunk": True}]}], None, "white space"),
        ([{"role": "user", "content": [{"type": "text", "text": "a", "cache_chunk": 1}]}], None, "cache_chunk"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "some", "cache_chunk": True}]}],
            [{"message": 0, "start": 1, "stop": 3}],
            "begins before 4",
        ),
    ],
)
def test_bad_chunks_of_a_chat_are_refused_by_name(blending, chat, chunks, words):
    reply = blending.post("/v1/chat/completions", {"model": MODEL, "messages": chat, "prefold_chunks": chunks})
    assert 400 == reply.status
    assert words in reply.error["message"]
