"""The endpoints, over HTTP, with the real model."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

import prefold
from prefold.core.cache import Cache, NoValues
from prefold.core.tokens import pack
from prefold.server.app import INLINE_BYTES

from .support import MODEL

GREEDY = {"temperature": 0, "max_tokens": 6}


@pytest.fixture(autouse=True)
def _empty_cache(server):
    assert 200 == server.post("/cache/reset", {}).status


def cached(reply):
    return reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]


# Answers


def test_a_chat(server):
    reply = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Say hello."}], **GREEDY})
    assert (200, "application/json") == (reply.status, reply.headers["content-type"])
    body = reply.json
    assert ("chat.completion", MODEL) == (body["object"], body["model"])
    assert body["id"].startswith("chatcmpl-")
    (choice,) = body["choices"]
    assert "Hello" in choice["message"]["content"]
    assert "length" == choice["finish_reason"]
    usage = body["usage"]
    assert (6, usage["prompt_tokens"] + 6) == (usage["completion_tokens"], usage["total_tokens"])


def test_the_second_time_all_but_the_last_token_is_cached(server):
    body = {"messages": [{"role": "user", "content": "Tell me about the sea."}], **GREEDY}
    first, second = (server.post("/v1/chat/completions", body) for _ in range(2))
    assert 0 == cached(first)
    assert second.json["usage"]["prompt_tokens"] - 1 == cached(second)
    assert first.json["choices"] == second.json["choices"]


def test_a_stream_says_what_the_whole_answer_says(server):
    for path, prompt in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Count to ten."}]}),
        ("/v1/completions", {"prompt": "One, two, three,"}),
    ):
        body = {**prompt, "temperature": 0, "max_tokens": 10, "n": 2}
        whole = server.post(path, body).json
        reply = server.post(path, {**body, "stream": True, "stream_options": {"include_usage": True}})
        assert "[DONE]" == reply.events[-1]
        chunks = [json.loads(event) for event in reply.events[:-1]]
        texts, finishes = ["", ""], [None, None]
        for chunk in chunks[:-1]:
            assert chunk["usage"] is None
            (choice,) = chunk["choices"]
            texts[choice["index"]] += choice["text"] if "text" in choice else choice["delta"].get("content", "")
            finishes[choice["index"]] = choice["finish_reason"]
        choices = whole["choices"]
        assert [c["text"] if "text" in c else c["message"]["content"] for c in choices] == texts
        assert [choice["finish_reason"] for choice in choices] == finishes
        assert {**whole["usage"], "prompt_tokens_details": chunks[-1]["usage"]["prompt_tokens_details"]} == chunks[-1][
            "usage"
        ]


def test_several_prompts_are_answered_in_order(server):
    prompts = ["The sky is", "Two plus two is"]
    single = [server.post("/v1/completions", {"prompt": p, **GREEDY}).json for p in prompts]
    both = server.post("/v1/completions", {"prompt": prompts, **GREEDY}).json
    assert [one["choices"][0]["text"] for one in single] == [choice["text"] for choice in both["choices"]]
    assert [0, 1] == [choice["index"] for choice in both["choices"]]
    assert sum(one["usage"]["prompt_tokens"] for one in single) == both["usage"]["prompt_tokens"]
    assert 2 * 6 == both["usage"]["completion_tokens"]


def test_token_ids_are_the_same_as_their_text(server, model):
    ids = model.tokenizer.encode("The sky is", add_special=True)
    replies = [server.post("/v1/completions", {"prompt": p, **GREEDY}).json for p in ("The sky is", ids, [ids])]
    assert 1 == len({reply["choices"][0]["text"] for reply in replies})


def test_a_stop_ends_the_answer_and_is_not_part_of_it(server):
    body = {"prompt": "1, 2, 3, 4,", "temperature": 0, "max_tokens": 16}
    full = server.post("/v1/completions", body).json["choices"][0]["text"]
    assert "7" in full
    choice = server.post("/v1/completions", {**body, "stop": ["7", "never"]}).json["choices"][0]
    assert (full[: full.index("7")], "stop") == (choice["text"], choice["finish_reason"])


def test_a_seed_repeats_an_answer(server):
    body = {"prompt": "Once upon a time", "max_tokens": 12, "seed": 7, "temperature": 1.5}
    first, second = (server.post("/v1/completions", body).json["choices"] for _ in range(2))
    assert first == second


def test_every_generated_token_has_its_log_probability(server):
    reply = server.post("/v1/completions", {"prompt": "The sky is", "logprobs": 2, **GREEDY}).json
    logprobs = reply["choices"][0]["logprobs"]
    assert reply["choices"][0]["text"] == "".join(logprobs["tokens"])
    assert [6] * 4 == [len(logprobs[key]) for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")]
    body = {"messages": [{"role": "user", "content": "Hi"}], "logprobs": True, "top_logprobs": 3, **GREEDY}
    content = server.post("/v1/chat/completions", body).json["choices"][0]["logprobs"]["content"]
    assert [3] * 6 == [len(entry["top_logprobs"]) for entry in content]
    assert [entry["logprob"] for entry in content] == [entry["top_logprobs"][0]["logprob"] for entry in content]


def test_a_chat_without_max_tokens_ends_by_itself(server):
    body = {"messages": [{"role": "user", "content": "What is 2+2? Answer with one word."}], "temperature": 0}
    assert "stop" == server.post("/v1/chat/completions", body).json["choices"][0]["finish_reason"]


def test_large_bodies_are_answered_like_small_ones(server):
    message = {"role": "user", "content": "All work and no play makes Jack a dull boy. " * 50}
    assert len(message["content"]) > INLINE_BYTES
    reply = server.post("/v1/chat/completions", {"messages": [message], **GREEDY})
    assert (200, 6) == (reply.status, reply.json["usage"]["completion_tokens"])


# Sharing


def test_a_salt_keeps_the_cache_apart(server):
    body = {"prompt": "A prompt that two tenants happen to share. " * 4, **GREEDY}
    length = server.post("/v1/completions", body).json["usage"]["prompt_tokens"]
    assert length - 1 == cached(server.post("/v1/completions", body))
    for salt in ("a", "b"):
        assert 0 == cached(server.post("/v1/completions", {**body, "cache_salt": salt}))
        assert length - 1 == cached(server.post("/v1/completions", {**body, "cache_salt": salt}))


def test_a_salt_from_a_message_shares_what_lies_before(server):
    system = {"role": "system", "content": "You answer in one word. " * 10}

    def ask(salt):
        messages = [system, {"role": "user", "content": "A private question about my health."}]
        body = {"messages": messages, "cache_salt": salt, "cache_salt_from": {"message": 1}, **GREEDY}
        return server.post("/v1/chat/completions", body)

    first, other, again = ask("a"), ask("b"), ask("a")
    length = first.json["usage"]["prompt_tokens"]
    assert (0, length - 1) == (cached(first), cached(again))
    assert 50 < cached(other) < length - 5


def test_concurrent_requests_recompute_what_the_core_predicts(server, model):
    shared = model.tokenizer.encode("A long preamble that everybody sends. " * 25, add_special=False)
    prompts = [[*shared, *model.tokenizer.encode(f"Question {i}?", add_special=False)] for i in range(16)]
    core = Cache(100_000, NoValues(), None)
    for prompt in prompts:
        core.admit(pack(prompt), make_value=lambda start, stop: None)
    with ThreadPoolExecutor(16) as pool:
        usages = [
            reply.json["usage"]
            for reply in pool.map(lambda prompt: server.post("/v1/completions", {"prompt": prompt, **GREEDY}), prompts)
        ]
    assert core.counters.recomputed == sum(
        usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] for usage in usages
    )


# The cache


def test_reset_frees_everything(server):
    server.post("/v1/completions", {"prompt": "Something to forget", **GREEDY})
    used = server.call(lambda: server.worker.engine.cache.tree.size)
    assert {"freed_tokens": used} == server.send("POST", "/cache/reset").json
    assert 0 == server.call(lambda: server.worker.engine.cache.tree.size)


# Everything else


def test_tokens_of_a_text_and_back(server, model):
    reply = server.post("/tokenize", {"prompt": "Hello, wörld"}).json
    expected = model.tokenizer.encode("Hello, wörld", add_special=True)
    capacity = server.worker.engine.cache.capacity
    assert {"tokens": expected, "count": len(expected), "max_model_len": min(8192, capacity)} == reply
    assert {"prompt": "Hello, wörld"} == server.post("/detokenize", {"tokens": expected}).json


def test_tokens_of_a_chat_are_those_that_a_chat_is_billed_for(server):
    messages = [{"role": "user", "content": "Hi"}]
    reply = server.post("/tokenize", {"messages": messages}).json
    answer = server.post("/v1/chat/completions", {"messages": messages, **GREEDY}).json
    assert reply["count"] == answer["usage"]["prompt_tokens"]
    assert "<|im_start|>" in server.post("/detokenize", {"tokens": reply["tokens"]}).json["prompt"]


def test_models(server):
    (card,) = server.get("/v1/models").json["data"]
    assert (MODEL, "model") == (card["id"], card["object"])
    assert card == server.get(f"/v1/models/{MODEL}").json == server.get("/v1/models/an-alias").json
    reply = server.get("/v1/models/org/other")
    assert (404, "model_not_found") == (reply.status, reply.error["code"])


def test_health_and_version(server):
    assert {"status": "ok"} == server.get("/health").json
    assert (200, b"") == (server.send("HEAD", "/health").status, server.send("HEAD", "/health").body)
    assert {"version": prefold.__version__} == server.get("/version").json


def test_metrics_count_what_usage_says(server):
    def counted():
        names = ("llm_prefix_cache_hit_tokens_total", "llm_prefix_cache_miss_tokens_total")
        return [server.metric(name, tenant="the-test") for name in names] + [
            server.metric("llm_ttft_seconds_count", cache=kind) for kind in ("hit", "miss")
        ]

    before = counted()
    for _ in range(2):
        reply = server.post("/v1/completions", {"prompt": "Measure me, please", **GREEDY}, x_prefold_tenant="the-test")
    length = reply.json["usage"]["prompt_tokens"]
    assert [length - 1, length + 1, 1, 1] == [now - then for now, then in zip(counted(), before, strict=True)]
    assert "text/plain; version=0.0.4; charset=utf-8" == server.get("/metrics").headers["content-type"]


def test_the_core_and_the_pool_agree_after_all_this(server):
    def check():
        engine = server.worker.engine
        engine.cache.check()
        return engine.pool.free_slots - engine.cache.free

    assert 0 == server.call(check)
