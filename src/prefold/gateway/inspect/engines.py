"""The engines that are known: how each is recognised and read, and what it is told to become better.

Metrics, fields and options have the names of vLLM 0.32, SGLang 0.5.23, llama.cpp b11434, and ollama 0.33.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

from prefold.gateway.inspect.facts import Check, Fact, Facts
from prefold.gateway.inspect.pages import Pages

T = TypeVar("T")

_MODELS = "/v1/models"
_SGLANG_INFO = ("/server_info", "/get_server_info")
_VLLM_CONFIG = "vllm:cache_config_info"


class EngineName(StrEnum):
    """Engines that are recognised."""

    PREFOLD = "prefold"
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    OLLAMA = "ollama"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Engine:
    """A kind of engine.

    Attributes:
        name: of it.
        is_it: whether it is what has these pages.
        read: what they say.
        fixes: what to start it with where a check finds it poor.
        metrics_flag: what makes it show metrics where it does not; empty where it always does, or never can.
    """

    name: EngineName
    is_it: Callable[[Pages], bool]
    read: Callable[[Pages], Facts]
    fixes: Mapping[Check, str]
    metrics_flag: str = ""


def engine_of(pages: Pages) -> Engine:
    """The engine that has these pages; one without a name for those that are not known."""
    return next(engine for engine in ENGINES if engine.is_it(pages))


# Reading


def _owner(pages: Pages) -> str:
    """Who the models belong to, which engines fill in with their own name."""
    return next((str(model.get("owned_by", "")) for model in pages.objects(_MODELS, "data")), "")


def _models(pages: Pages) -> tuple[str, ...]:
    return tuple(name for model in pages.objects(_MODELS, "data") if isinstance(name := model.get("id"), str))


def _version(pages: Pages, path: str, name: str = "version") -> str:
    version = pages.object(path).get(name)
    return version if isinstance(version, str) else ""


def _context(pages: Pages) -> Fact[int] | None:
    """The first model's; vLLM, SGLang and prefold say it there."""
    models = pages.objects(_MODELS, "data")
    return _field(models[0], "max_model_len", int, _MODELS) if models else None


def _field(fields: Mapping[str, Any], name: str, kind: type[T], where: str) -> Fact[T] | None:
    """A field of a JSON object, if it has the right type."""
    value = fields.get(name)
    # To Python, True is an int.
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
        return None
    return Fact(value, f"{name} = {str(value).lower() if kind is bool else value} in {where}")


def _count(value: float | None, name: str) -> Fact[int] | None:
    return None if value is None else Fact(int(value), f"{name} = {value:,.0f}")


def _share(value: float | None, name: str) -> Fact[float] | None:
    return None if value is None else Fact(value, f"{name} = {value:.2f}")


def _read_vllm(pages: Pages) -> Facts:
    labels = next((sample.labels for sample in pages.samples.get(_VLLM_CONFIG, ())), {})

    def label(*names: str) -> Fact[str] | None:
        for name in names:
            if (value := labels.get(name, "None")) != "None":
                return Fact(value, f'{name}="{value}" in {_VLLM_CONFIG}')
        return None

    def number(*names: str) -> Fact[int] | None:
        told = label(*names)
        return Fact(int(told.value), told.source) if told and told.value.isdecimal() else None

    enabled = label("enable_prefix_caching")
    block, blocks, room = number("block_size"), number("num_gpu_blocks"), number("kv_cache_size_tokens")
    if room is None and block and blocks:
        room = Fact(block.value * blocks.value, f"{blocks.source}, {block.source}")
    return Facts(
        version=_version(pages, "/version"),
        models=_models(pages),
        context=_context(pages),
        caching=Fact(enabled.value == "True", enabled.source) if enabled else None,
        comparison=label("prefix_caching_hash_algo"),
        kv_type=label("cache_dtype"),
        kv_tokens=room,
        kv_in_use=_share(pages.largest("vllm:kv_cache_usage_perc"), "vllm:kv_cache_usage_perc"),
        block=number("cache_hit_alignment_tokens", "block_size"),
        input_tokens=_count(pages.total("vllm:prefix_cache_queries_total"), "vllm:prefix_cache_queries"),
        hit_tokens=_count(pages.total("vllm:prefix_cache_hits_total"), "vllm:prefix_cache_hits"),
        prompts=_count(pages.total("vllm:request_prompt_tokens_count"), "vllm:request_prompt_tokens_count"),
        remarks={
            Check.SCHEDULING: "vLLM orders by arrival or priority, never by prefix: send requests with the same prefix "
            "to the same replica, close together."
        },
    )


def _read_sglang(pages: Pages) -> Facts:
    info = pages.object(*_SGLANG_INFO)
    where = _SGLANG_INFO[0]
    disabled = _field(info, "disable_radix_cache", bool, where)
    has_metrics = pages.has_metrics_of("sglang:")
    return Facts(
        version=_version(pages, _SGLANG_INFO[0]) or _version(pages, _SGLANG_INFO[1]),
        models=_models(pages),
        context=_context(pages),
        caching=Fact(not disabled.value, disabled.source) if disabled else None,
        comparison=Fact("tokens", "SGLang's radix tree compares tokens"),
        kv_type=_field(info, "kv_cache_dtype", str, where),
        kv_tokens=_field(info, "max_total_num_tokens", int, where),
        kv_in_use=_share(pages.largest("sglang:token_usage"), "sglang:token_usage"),
        block=_field(info, "page_size", int, where),
        policy=_field(info, "schedule_policy", str, where),
        reports=_field(info, "enable_cache_report", bool, where),
        input_tokens=_count(pages.total("sglang:prompt_tokens_total"), "sglang:prompt_tokens_total"),
        # The series comes with the first hit.
        hit_tokens=_count(
            (pages.total("sglang:cached_tokens_total") or 0) if has_metrics else None, "sglang:cached_tokens_total"
        ),
        prompts=_count(pages.total("sglang:num_requests_total"), "sglang:num_requests_total"),
    )


def _read_llamacpp(pages: Pages) -> Facts:
    props = pages.object("/props")
    settings = props.get("default_generation_settings")
    context = _field(settings if isinstance(settings, dict) else {}, "n_ctx", int, "/props")
    slots = _field(props, "total_slots", int, "/props")
    computed = pages.total("llamacpp:prompt_tokens_total")
    hits = _count(pages.total("llamacpp:prompt_tokens_cached_total"), "llamacpp:prompt_tokens_cached_total")
    remarks = {
        Check.KV_TYPE: "It does not say; --cache-type-k and --cache-type-v set it.",
        Check.SCHEDULING: "Requests run in the order in which they come; a free slot is chosen by the prefix it holds.",
    }
    if context and slots:
        remarks[Check.KV_MEMORY] = (
            f"{slots.value} slots of up to {context.value:,} tokens, each with prefixes of its own; what leaves a slot "
            "is kept in host memory up to --cache-ram MiB."
        )
    return Facts(
        version=_version(pages, "/props", "build_info"),
        models=_models(pages),
        context=context,
        # It does not say whether --no-cache-prompt was given, but what came from cache proves that it was not.
        caching=Fact(True, hits.source) if hits and hits.value else None,
        comparison=Fact("tokens", "llama.cpp compares tokens"),
        block=Fact(1, "llama.cpp keeps token by token"),
        # What it counts as prompt tokens are those that it computed.
        input_tokens=_count(computed + hits.value, "llamacpp:prompt_tokens_total + prompt_tokens_cached_total")
        if computed is not None and hits
        else None,
        hit_tokens=hits,
        remarks=remarks,
    )


def _read_ollama(pages: Pages) -> Facts:
    loaded = pages.objects("/api/ps", "models")
    context = _field(loaded[0], "context_length", int, "/api/ps") if loaded else None
    remarks = dict.fromkeys(
        (Check.CACHING, Check.COMPARISON, Check.BLOCK_SIZE, Check.SCHEDULING, Check.HIT_RATE), "ollama does not say."
    )
    remarks[Check.KV_TYPE] = "ollama does not say; OLLAMA_KV_CACHE_TYPE sets it."
    remarks[Check.KV_MEMORY] = (
        "; ".join(_loaded(model) for model in loaded)
        + ". Each of OLLAMA_NUM_PARALLEL slots has prefixes of its own; all are lost when the model is unloaded: see "
        "OLLAMA_KEEP_ALIVE."
        if loaded
        else "No model is loaded, so nothing is kept: see OLLAMA_KEEP_ALIVE."
    )
    return Facts(version=_version(pages, "/api/version"), models=_models(pages), context=context, remarks=remarks)


def _loaded(model: Mapping[str, Any]) -> str:
    name = str(model.get("name", "a model"))
    size, on_device = _field(model, "size", int, "/api/ps"), _field(model, "size_vram", int, "/api/ps")
    if not size or not on_device or not size.value:
        return f"{name} is loaded"
    return f"{name} is loaded, {on_device.value / size.value:.0%} of its memory on the GPU"


def _read_prefold(pages: Pages) -> Facts:
    states = {sample.labels.get("state"): sample.value for sample in pages.samples.get("prefold_kv_tokens", ())}
    capacity, pinned = states.get("capacity"), states.get("pinned")
    # The series come with the first answer.
    none = 0 if pages.has_metrics_of("prefold_") else None
    hits = pages.total("llm_prefix_cache_hit_tokens_total") or none
    misses = pages.total("llm_prefix_cache_miss_tokens_total") or none
    name = "llm_prefix_cache_{}_tokens_total"
    return Facts(
        version=_version(pages, "/version"),
        models=_models(pages),
        context=_context(pages),
        caching=Fact(True, "prefold's engine always does"),
        comparison=Fact("tokens", "prefold's radix tree compares tokens"),
        kv_tokens=_count(capacity, 'prefold_kv_tokens{state="capacity"}'),
        kv_in_use=_share(pinned / capacity, "prefold_kv_tokens, pinned of capacity")
        if pinned is not None and capacity
        else None,
        reports=Fact(True, "prefold's engine always does"),
        input_tokens=None if hits is None or misses is None else _count(hits + misses, name.format("{hit,miss}")),
        hit_tokens=_count(hits, name.format("hit")),
        prompts=_count(pages.total("prefold_answers_finished_total"), "prefold_answers_finished_total"),
        remarks={
            Check.KV_TYPE: "It does not say; --dtype sets it.",
            Check.BLOCK_SIZE: "It does not say; hits end at any token, or at multiples of --grid.",
            Check.SCHEDULING: "It does not say; --order sets it, to lpm (the longest cached prefix first) by default.",
        },
    )


def _read_other(pages: Pages) -> Facts:
    return Facts(models=_models(pages), context=_context(pages))


# Their table


def _fixes(items: Iterable[tuple[Check, str]]) -> Mapping[Check, str]:
    return MappingProxyType(dict(items))


ENGINES: tuple[Engine, ...] = (
    Engine(
        EngineName.PREFOLD,
        lambda pages: _owner(pages) == "prefold" or pages.has_metrics_of("prefold_"),
        _read_prefold,
        _fixes([(Check.KV_MEMORY, "--kv-memory, with a larger SIZE")]),
    ),
    Engine(
        EngineName.VLLM,
        lambda pages: _owner(pages) == "vllm" or pages.has_metrics_of("vllm:"),
        _read_vllm,
        _fixes(
            [
                (Check.CACHING, "--enable-prefix-caching"),
                (Check.COMPARISON, "--prefix-caching-hash-algo sha256"),
                (Check.KV_TYPE, "--kv-cache-dtype fp8"),
                (
                    Check.KV_MEMORY,
                    "a larger --gpu-memory-utilization, --kv-cache-dtype fp8, or a smaller --max-model-len",
                ),
                (Check.BLOCK_SIZE, "--block-size 16"),
                (Check.REPORTING, "--enable-prompt-tokens-details"),
                (Check.VERIFICATION, "--enable-prefix-caching"),
            ]
        ),
    ),
    Engine(
        EngineName.SGLANG,
        lambda pages: (
            _owner(pages) == "sglang"
            or pages.has_metrics_of("sglang:")
            or "disable_radix_cache" in pages.object(*_SGLANG_INFO)
        ),
        _read_sglang,
        _fixes(
            [
                (Check.CACHING, "start it without --disable-radix-cache"),
                (Check.KV_TYPE, "--kv-cache-dtype fp8_e4m3"),
                (
                    Check.KV_MEMORY,
                    "a larger --mem-fraction-static, --kv-cache-dtype fp8_e4m3, or a smaller --context-length",
                ),
                (Check.BLOCK_SIZE, "--page-size 1"),
                (Check.SCHEDULING, "--schedule-policy lpm"),
                (Check.REPORTING, "--enable-cache-report"),
                (Check.VERIFICATION, "start it without --disable-radix-cache"),
            ]
        ),
        "--enable-metrics",
    ),
    Engine(
        EngineName.LLAMACPP,
        lambda pages: _owner(pages) == "llamacpp" or "default_generation_settings" in pages.object("/props"),
        _read_llamacpp,
        _fixes(
            [
                (Check.CACHING, "start it without --no-cache-prompt"),
                (Check.VERIFICATION, "start it without --no-cache-prompt"),
            ]
        ),
        "--metrics",
    ),
    Engine(
        EngineName.OLLAMA,
        lambda pages: bool(pages.object("/api/version")),
        _read_ollama,
        _fixes([(Check.REPORTING, "a release of September 2026 or later")]),
    ),
    Engine(EngineName.OTHER, lambda _pages: True, _read_other, _fixes([])),
)
"""Each before those whose pages it may have too."""
