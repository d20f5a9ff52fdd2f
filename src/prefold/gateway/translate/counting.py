"""Answers to `/v1/messages/count_tokens` for upstreams without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefold.gateway.config import Kind
from prefold.gateway.translate.anthropic_client.request import to_openai
from prefold.gateway.translate.shapes import Json, integer
from prefold.gateway.upstream import UpstreamFailed
from prefold.prompts.prompt import Dialect, Prompt
from prefold.prompts.tokens import TokenCounter

TOKENIZE_PATH = "/tokenize"

# vLLM and prefold apply the chat template there; SGLang and llama.cpp take only text.
_TOKENIZERS = (Kind.PREFOLD, Kind.VLLM)
_READ = ("model", "messages", "tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message")


def tokenize_request(body: Mapping[str, Any], kind: Kind) -> Json | None:
    """The body for the upstream's `/tokenize`; None where the upstream cannot tokenise a chat.

    Raises:
        InvalidRequest: as `to_openai`.
    """
    if kind not in _TOKENIZERS:
        return None
    request = to_openai(body, kind)
    return {name: request[name] for name in _READ if name in request}


def read_count(answer: Json) -> Json:
    """Anthropic's answer, from that of `/tokenize`.

    Raises:
        UpstreamFailed: if there is no count in it.
    """
    count = integer(answer, "count")
    if count is None:
        raise UpstreamFailed("The upstream's /tokenize gave no count.", hint="check what is served there")
    return {"input_tokens": count}


def estimate(body: Mapping[str, Any], counter: TokenCounter) -> Json:
    """Anthropic's answer, from the texts of the request alone.

    Args:
        body: the request; images and files count by the length of their description, which says little.
        counter: of the model.

    Raises:
        InvalidRequest: naming the field that has the wrong form.
    """
    segments = Prompt.of(body, Dialect.ANTHROPIC).segments
    return {"input_tokens": sum(counter.count(segment.text) for segment in segments)}
