"""From the name of a model to an engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import platformdirs
import torch

from prefold.core.units import format_bytes
from prefold.engine.attention import TorchPool
from prefold.engine.checkpoint import Checkpoint, fingerprint
from prefold.engine.content import content_digest
from prefold.engine.decoder import Decoder, LeanDecoder, is_lean
from prefold.engine.engine import Engine
from prefold.engine.kv_events import BlockBook, Publisher
from prefold.engine.kv_pool import KVPool
from prefold.engine.model_config import ModelConfig
from prefold.engine.native.choice import choose_kernel
from prefold.engine.native.decoder import NativeDecoder, covers
from prefold.engine.native.library import Kernel
from prefold.engine.native.pool import NativePool
from prefold.engine.options import EngineOptions, TierWrite
from prefold.engine.progress import Progress
from prefold.engine.quantised.numbers import FORMS, form_for
from prefold.engine.quantised.pool import QuantisedPool
from prefold.engine.size import KVShape
from prefold.engine.tiers.base import Layout, layout_fingerprint
from prefold.engine.tiers.ladder import BLOCK_TOKENS, Ladder
from prefold.engine.tiers.spec import check_tiers, open_tiers
from prefold.engine.tokenizer import Tokenizer
from prefold.engine.weights import load_weights
from prefold.errors import ModelError, UnsupportedModel, UsageError

_DECODE_BURDEN = 10.0  # a prompt that is computed in the role decode holds up the tokens of all its answers


def load_engine(
    checkpoint: Checkpoint,
    options: EngineOptions,
    *,
    clock: Callable[[], float] = time.monotonic,
    cache_folder: Path | None = None,
    progress: Progress = lambda *_: None,
) -> Engine:
    """Load a checkpoint's weights and give them a K/V pool.

    Args:
        checkpoint: from `checkpoint.resolve`.
        options: see `EngineOptions`.
        clock: monotonic seconds.
        cache_folder: where prefold keeps what it made, the compiled kernel among it; the user's own where None.
        progress: told when the kernel is compiled.

    Raises:
        ModelError: if the files cannot be used, or K/V would outlive the process and they changed meanwhile.
        UnsupportedModel: if an exact prefix cache cannot serve this architecture, or K/V of its head size cannot be
            kept in the form asked for.
        UsageError: if the device is absent or lacks that form, the kernel asked for cannot be had, the K/V memory holds
            no token, or an address for events or a tier cannot be had.
        MissingExtra: if events are asked for without pyzmq, or a tier without what it needs.
    """
    config = checkpoint.config
    config.require_full_attention()
    if config.mla is not None:
        raise UnsupportedModel(
            f"{checkpoint.name} uses multi-head latent attention, which this engine does not run yet",
            hint="choose a model with ordinary or grouped-query attention",
        )
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    device = _device(options.device)
    if options.kv_dtype in FORMS:
        form_for(options.kv_dtype, config.head_dim, device)  # refused before minutes of loading
    check_tiers(options.tiers)  # the same
    slots = options.kv_memory // KVShape.of_model(config).bytes_per_token(options.stored_dtype)
    if slots < 2:  # one token of prompt and one of answer
        raise UsageError(
            f"{format_bytes(options.kv_memory)} of K/V memory hold {slots} tokens of {checkpoint.name}",
            hint="give more with --kv-memory",
        )
    cache_folder = cache_folder or platformdirs.user_cache_path("prefold")
    kernel = choose_kernel(config, options, device, cache_folder / "native", progress)
    content = content_digest(checkpoint.folder, cache_folder / "weights.json", progress) if options.tiers else ""
    decoder = load_decoder(checkpoint, getattr(torch, options.dtype), device, kernel)
    if options.tiers and (
        fingerprint(checkpoint.folder) != checkpoint.fingerprint
        or content_digest(checkpoint.folder, cache_folder / "weights.json", progress) != content
    ):  # its K/V would be kept as those of another model
        raise ModelError(
            f"The files of {checkpoint.name} changed while they were loaded.",
            hint="Start again once they are complete.",
        )
    tokenizer = Tokenizer(checkpoint.folder)
    events = None
    if options.kv_events:
        events = BlockBook(checkpoint.name, Publisher(options.kv_events, options.kv_replay))
    pool = make_pool(config, options, slots, kernel)
    ladder = None
    if options.tiers:
        ladder = make_ladder(checkpoint, content, options, pool, clock)
    return Engine(decoder, config, tokenizer, options, clock, pool, events, ladder)


def make_ladder(
    checkpoint: Checkpoint, content: str, options: EngineOptions, pool: KVPool, clock: Callable[[], float]
) -> Ladder:
    """The tiers that the options name, below a pool; `content` is from `content_digest`.

    Raises:
        UsageError: if one of them cannot be used.
        MissingExtra: if a package for one of them is not installed.
    """
    width = pool.bytes_per_token
    name = layout_fingerprint(checkpoint.fingerprint + content, options.dtype, pool.format, width, BLOCK_TOKENS)
    about = f"{checkpoint.name}, {pool.format}, {width} bytes a token"
    layout = Layout(name, BLOCK_TOKENS, BLOCK_TOKENS * width, about)
    write: TierWrite = "through" if options.writes_through else "evict"
    burden = _DECODE_BURDEN if options.role == "decode" else 1.0
    return Ladder(open_tiers(options.tiers, layout), layout, pool, write=write, burden=burden, clock=clock)


def make_pool(config: ModelConfig, options: EngineOptions, slots: int, kernel: Kernel | None = None) -> KVPool:
    """K and V for `slots` tokens, in the form that the options ask for, and in the kernel's layout where it has one."""
    shape, device = (config.layers, slots, config.kv_heads, config.head_dim), torch.device(options.device)
    if options.kv_dtype in FORMS:
        form = form_for(options.kv_dtype, config.head_dim, device)
        if kernel is not None:
            return NativePool(kernel, *shape, dtype=getattr(torch, options.dtype), form=form)
        return QuantisedPool(*shape, form=form, device=device)
    dtype = getattr(torch, options.stored_dtype)
    if kernel is not None:
        return NativePool(kernel, *shape, dtype=dtype)
    return TorchPool(*shape, dtype=dtype, device=device)


def load_decoder(
    checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device, kernel: Kernel | None = None
) -> Decoder:
    """The model: our own forward pass for the Llama family, transformers' for any other full-attention decoder."""
    if kernel is not None and covers(checkpoint.config):
        return NativeDecoder(kernel, checkpoint.config, load_weights(checkpoint.folder, dtype, device))
    if is_lean(checkpoint.config):
        return LeanDecoder(checkpoint.config, load_weights(checkpoint.folder, dtype, device))
    from prefold.engine.adapter import TransformersDecoder  # noqa: PLC0415 - transformers takes seconds to import

    return TransformersDecoder(checkpoint.folder, checkpoint.config, dtype, device)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # torch raises AssertionError where it was built without CUDA
        reason = str(error).splitlines()[0]
        raise UsageError(f"The device {name!r} cannot be used: {reason}", hint="use --device cpu") from None
    return device
