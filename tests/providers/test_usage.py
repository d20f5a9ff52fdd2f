"""Usage objects as providers send them, and the sums that must hold whatever they send."""

import pytest
from anthropic.types import Message, RawMessageDeltaEvent, RawMessageStartEvent
from google.genai.types import GenerateContentResponse
from hypothesis import given
from hypothesis import strategies as st
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import ResponseUsage

from prefold.providers.usage import LARGEST_COUNT, StreamUsage, Usage, read_usage

OPENAI = {
    "prompt_tokens": 2006,
    "completion_tokens": 300,
    "total_tokens": 2306,
    "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
}
ANTHROPIC = {
    "input_tokens": 50,
    "cache_read_input_tokens": 100_000,
    "cache_creation_input_tokens": 248,
    "cache_creation": {"ephemeral_5m_input_tokens": 148, "ephemeral_1h_input_tokens": 100},
    "output_tokens": 503,
    "service_tier": "standard",
}
RESPONSES = {
    "input_tokens": 328,
    "input_tokens_details": {"cached_tokens": 128, "cache_write_tokens": 0},
    "output_tokens": 52,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 380,
}
GEMINI = {
    "promptTokenCount": 1500,
    "cachedContentTokenCount": 1024,
    "candidatesTokenCount": 20,
    "thoughtsTokenCount": 100,
    "totalTokenCount": 1620,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 1500}],
}

CASES = {
    "OpenAI chat": (OPENAI, Usage(86, 1920, output=300, is_reported=True)),
    "OpenAI chat, GPT-5.6": (
        {
            "prompt_tokens": 2006,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 1000, "cache_write_tokens": 900},
        },
        Usage(106, 1000, 900, output=3, is_reported=True),
    ),
    "OpenAI responses": (RESPONSES, Usage(200, 128, output=52, is_reported=True)),
    "Anthropic": (ANTHROPIC, Usage(50, 100_000, 248, 148, 100, 503, is_reported=True)),
    "Anthropic, before the split by time to live": (
        {"input_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 900, "output_tokens": 7},
        Usage(5, 0, 900, output=7, is_reported=True),
    ),
    "Anthropic's form without a word on caching": (
        {"input_tokens": 5, "cache_read_input_tokens": None, "output_tokens": 7},
        Usage(5, output=7),
    ),
    "Bedrock Converse": (
        {
            "inputTokens": 12,
            "outputTokens": 5,
            "totalTokens": 1517,
            "cacheReadInputTokens": 1000,
            "cacheWriteInputTokens": 500,
            "cacheDetails": [{"ttl": "1h", "inputTokens": 300}, {"ttl": "5m", "inputTokens": 200}],
        },
        Usage(12, 1000, 500, 200, 300, 5, is_reported=True),
    ),
    "Bedrock Converse without caching": (
        {"inputTokens": 12, "outputTokens": 5, "totalTokens": 17},
        Usage(12, output=5),
    ),
    "DeepSeek": (
        {
            "prompt_tokens": 2000,
            "completion_tokens": 10,
            "total_tokens": 2010,
            "prompt_tokens_details": {"cached_tokens": 1792},
            "prompt_cache_hit_tokens": 1792,
            "prompt_cache_miss_tokens": 208,
        },
        Usage(208, 1792, output=10, is_reported=True),
    ),
    "DeepSeek, hits and misses alone": (
        {"prompt_cache_hit_tokens": 1792, "prompt_cache_miss_tokens": 208, "completion_tokens": 1},
        Usage(208, 1792, output=1, is_reported=True),
    ),
    "Gemini": (GEMINI, Usage(476, 1024, output=120, is_reported=True)),
    "Gemini with nothing read, which it leaves out": (
        {"promptTokenCount": 10, "toolUsePromptTokenCount": 4, "candidatesTokenCount": 2, "totalTokenCount": 16},
        Usage(14, output=2, is_reported=True),
    ),
    "Qwen, explicit cache": (
        {
            "prompt_tokens": 3019,
            "completion_tokens": 104,
            "total_tokens": 3123,
            "prompt_tokens_details": {
                "cached_tokens": 1000,
                "cache_creation_input_tokens": 1500,
                "cache_creation": {"ephemeral_5m_input_tokens": 1500},
                "cache_type": "ephemeral",
            },
        },
        Usage(519, 1000, 1500, 1500, output=104, is_reported=True),
    ),
    "Qwen's own interface": (
        {"input_tokens": 3019, "output_tokens": 104, "prompt_tokens_details": {"cached_tokens": 2048}},
        Usage(971, 2048, output=104, is_reported=True),
    ),
    "Kimi": (
        {"prompt_tokens": 2000, "completion_tokens": 1, "total_tokens": 2001, "cached_tokens": 1792},
        Usage(208, 1792, output=1, is_reported=True),
    ),
    "GLM and Doubao": (
        {"prompt_tokens": 1200, "completion_tokens": 300, "prompt_tokens_details": {"cached_tokens": 800}},
        Usage(400, 800, output=300, is_reported=True),
    ),
    "Mistral": (
        {"prompt_tokens": 5, "completion_tokens": 1, "num_cached_tokens": 3},
        Usage(2, 3, output=1, is_reported=True),
    ),
    "Groq without details": (
        {"prompt_tokens": 18, "completion_tokens": 4, "prompt_time": 0.001, "queue_time": 0.03},
        Usage(18, output=4),
    ),
    "xAI": (
        {
            "prompt_tokens": 125,
            "completion_tokens": 48,
            "prompt_tokens_details": {"text_tokens": 125, "image_tokens": 0, "cached_tokens": 98},
        },
        Usage(27, 98, output=48, is_reported=True),
    ),
    "xAI over gRPC": (
        {"prompt_tokens": 125, "completion_tokens": 48, "cached_prompt_text_tokens": 98},
        Usage(27, 98, output=48, is_reported=True),
    ),
    "vLLM without --enable-prompt-tokens-details": (
        {"prompt_tokens": 40, "completion_tokens": 4, "prompt_tokens_details": None},
        Usage(40, output=4),
    ),
    "more read than there is": (
        {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 10}},
        Usage(0, 40, is_reported=True),
    ),
}


@pytest.mark.parametrize(("usage", "expected"), CASES.values(), ids=CASES.keys())
def test_each_provider(usage, expected):
    assert expected == read_usage(usage)
    assert expected == read_usage({"id": "x", "usage": usage})


def test_where_responses_and_events_keep_it():
    expected = CASES["OpenAI responses"][1]
    assert expected == read_usage({"type": "response.completed", "response": {"usage": RESPONSES}})
    assert CASES["Gemini"][1] == read_usage({"candidates": [], "usageMetadata": GEMINI})
    assert CASES["Gemini"][1] == read_usage({"response": {"usageMetadata": GEMINI}})
    assert CASES["Kimi"][1] == read_usage({"choices": [{"delta": {}, "usage": CASES["Kimi"][0]}]})
    bedrock, expected = CASES["Bedrock Converse"]
    assert expected == read_usage({"metadata": {"usage": bedrock, "metrics": {"latencyMs": 9}}})
    own_form = {"text": "...", "meta_info": {"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 8}}
    assert Usage(1, 8, output=2, is_reported=True) == read_usage(own_form)


def test_llama_cpp_says_it_beside_the_usage():
    timings = {"cache_n": 236, "prompt_n": 1, "prompt_ms": 30.9, "predicted_n": 35, "predicted_ms": 661.1}
    expected = Usage(1, 236, output=35, is_reported=True)
    assert expected == read_usage({"usage": {"prompt_tokens": 237, "completion_tokens": 35}, "timings": timings})
    assert expected == read_usage({"content": "...", "tokens_cached": 271, "tokens_evaluated": 237, "timings": timings})


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"usage": None},
        {"choices": []},
        {"choices": [{"delta": {"content": "a"}}], "usage": None},
        {"usage": {"total_tokens": 4}},
        {"usage": {"prompt_tokens": "12"}},
        {"usage": {"prompt_tokens": True}},
        {"usage": {"prompt_tokens": -1}},
        {"type": "content_block_delta", "delta": {"text": "a"}},
        None,
        "usage",
        [1],
        object(),
    ],
)
def test_what_holds_no_usage(payload):
    assert read_usage(payload) is None


def test_objects_of_the_sdks():
    assert CASES["OpenAI chat"][1] == read_usage(CompletionUsage.model_validate(OPENAI))
    chat = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": []}
    deepseek, expected = CASES["DeepSeek, hits and misses alone"]
    deepseek = {**deepseek, "prompt_tokens": 2000, "total_tokens": 2001}  # fields that the SDK does not know stay
    assert expected == read_usage(ChatCompletion.model_validate({**chat, "usage": deepseek}))
    assert CASES["OpenAI responses"][1] == read_usage(ResponseUsage.model_validate(RESPONSES))
    message = {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": [], "usage": ANTHROPIC}
    assert CASES["Anthropic"][1] == read_usage(Message.model_construct(**message))
    assert CASES["Gemini"][1] == read_usage(GenerateContentResponse.model_validate({"usageMetadata": GEMINI}))


@pytest.mark.parametrize("as_object", [False, True])
def test_a_stream_of_anthropic(as_object):
    start = {**ANTHROPIC, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": [], "usage": start}
    message |= {"stop_reason": None, "stop_sequence": None}
    events = [
        {"type": "message_start", "message": message},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 503}},
        {"type": "message_stop"},
    ]
    if as_object:
        types = {"message_start": RawMessageStartEvent, "message_delta": RawMessageDeltaEvent}
        events = [types[event["type"]].model_validate(event) for event in events if event["type"] in types]
    stream = StreamUsage()
    assert stream.usage is None
    for event in events:
        stream.feed(event)
    assert CASES["Anthropic"][1] == stream.usage


def test_a_stream_that_counts_as_it_goes():
    stream = StreamUsage()
    for count in (1, 2, 3):
        stream.feed({"choices": [], "usage": {**OPENAI, "completion_tokens": count}})
    stream.feed({"choices": [], "usage": None})
    assert Usage(86, 1920, output=3, is_reported=True) == stream.usage


def test_a_stream_of_groq():
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    finished = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    stream = StreamUsage()
    stream.feed({**chunk, "choices": [], "x_groq": {"id": "req_1"}})
    assert stream.usage is None
    last = {**chunk, "choices": finished, "usage": None, "x_groq": {"id": "req_1", "usage": OPENAI}}
    stream.feed(ChatCompletionChunk.model_validate(last))
    assert CASES["OpenAI chat"][1] == stream.usage == read_usage(last)


def test_rates():
    assert 0.25 == Usage(2, 1, 1, is_reported=True).hit_rate
    assert 0.0 == Usage(3, is_reported=True).hit_rate
    assert Usage(3).hit_rate is None
    assert Usage(is_reported=True).hit_rate is None


def test_silence_of_a_provider_that_sometimes_speaks_is_a_miss():
    assert 0.5 == (Usage(4) + Usage(1, 5, is_reported=True)).hit_rate
    assert (Usage(4) + Usage(4)).hit_rate is None


counts = st.integers(0, 10**9)
maybe = st.none() | counts


@given(counts, maybe, maybe, st.sampled_from(["prompt_tokens", "input_tokens"]))
def test_parts_of_an_including_provider_add_up_to_its_total(total, read, write, name):
    details = {"cached_tokens": read, "cache_write_tokens": write}
    usage = read_usage({name: total, f"{name}_details": details, "output_tokens": 1})
    assert total == usage.uncached + usage.read + usage.write == usage.input
    assert (read is not None) == usage.is_reported


@given(counts, maybe, maybe)
def test_parts_of_qwen_deepseek_kimi_and_gemini_add_up_to_their_total(total, read, write):
    details = {"cached_tokens": read, "cache_creation_input_tokens": write}
    assert total == read_usage({"prompt_tokens": total, "prompt_tokens_details": details}).input
    assert total == read_usage({"prompt_tokens": total, "cached_tokens": read}).input
    assert total == read_usage({"prompt_tokens": total, "prompt_cache_hit_tokens": read}).input
    assert total == read_usage({"promptTokenCount": total, "cachedContentTokenCount": read}).input


@given(counts, maybe, maybe)
def test_the_numbers_of_an_adding_provider_add_up(uncached, read, write):
    total = uncached + (read or 0) + (write or 0)
    anthropic = {"cache_read_input_tokens": read, "cache_creation_input_tokens": write}
    assert total == read_usage({"input_tokens": uncached, **anthropic}).input
    bedrock = {"cacheReadInputTokens": read, "cacheWriteInputTokens": write}
    assert total == read_usage({"inputTokens": uncached, **bedrock}).input


@given(st.lists(st.builds(Usage, counts, counts, counts, counts, counts, counts, st.booleans())))
def test_a_sum_has_the_sum_of_every_part(usages):
    total = sum(usages, Usage())
    assert sum(usage.input for usage in usages) == total.input
    assert sum(usage.output for usage in usages) == total.output
    assert any(usage.is_reported for usage in usages) == total.is_reported
    assert total.hit_rate is None or 0 <= total.hit_rate <= 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["usage", "choices", "x_groq", "timings", "prompt_tokens", "input_tokens", "prompt_tokens_details", "x"]
            ),
            inner,
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_no_payload_is_an_error(payload):
    usage = read_usage(payload)
    assert usage is None or usage.input >= 0


@pytest.mark.parametrize("absurd", [LARGEST_COUNT + 1, 10**30, -1])
def test_absurd_numbers_count_as_absent(absurd):
    assert read_usage({"usage": {"prompt_tokens": absurd, "completion_tokens": 1}}) is None
    details = {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": absurd}, "completion_tokens": absurd}
    assert Usage(uncached=10) == read_usage({"usage": details})
    assert Usage(uncached=LARGEST_COUNT) == read_usage({"usage": {"prompt_tokens": LARGEST_COUNT}})
