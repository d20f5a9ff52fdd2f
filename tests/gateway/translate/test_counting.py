"""Counts of tokens, by the upstream or by estimate."""

import pytest

from prefold.gateway.config import Kind
from prefold.gateway.translate.counting import estimate, read_count, tokenize_request
from prefold.gateway.upstream import UpstreamFailed
from prefold.prompts.tokens import counter_for

BODY = {
    "model": "m",
    "system": "Be kind.",
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": [{"name": "f", "input_schema": {}}],
    "thinking": {"type": "disabled"},
}


def test_where_the_upstream_counts():
    made = tokenize_request(BODY, Kind.VLLM)
    function = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    assert {
        "model": "m",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": function}],
        "chat_template_kwargs": {"enable_thinking": False},
    } == made
    assert {"model", "messages", "tools"} == tokenize_request(BODY, Kind.PREFOLD).keys()
    assert tokenize_request(BODY, Kind.SGLANG) is None
    assert {"input_tokens": 12} == read_count({"count": 12, "tokens": [1]})
    with pytest.raises(UpstreamFailed):
        read_count({"error": "x"})


def test_an_estimate_counts_every_part():
    counter = counter_for("m")
    whole = estimate(BODY, counter)["input_tokens"]
    for name in ("system", "tools"):
        assert whole > estimate({key: value for key, value in BODY.items() if key != name}, counter)["input_tokens"] > 0
