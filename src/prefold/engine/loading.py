"""From the name of a model to an engine."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from prefold.core.units import format_bytes
from prefold.engine.attention import TorchPool
from prefold.engine.checkpoint import Checkpoint
from prefold.engine.decoder import Decoder, LeanDecoder, is_lean
from prefold.engine.engine import Engine
from prefold.engine.kv_events import BlockBook, Publisher
from prefold.engine.kv_pool import KVPool
from prefold.engine.model_config import ModelConfig
from prefold.engine.options import EngineOptions
from prefold.engine.size import KVShape
from prefold.engine.tokenizer import Tokenizer
from prefold.engine.weights import load_weights
from prefold.errors import UnsupportedModel, UsageError


def load_engine(
    checkpoint: Checkpoint, options: EngineOptions, *, clock: Callable[[], float] = time.monotonic
) -> Engine:
    """Load a checkpoint's weights and give them a K/V pool.

    Args:
        checkpoint: from `checkpoint.resolve`.
        options: see `EngineOptions`.
        clock: monotonic seconds.

    Raises:
        ModelError: if the files cannot be used.
        UnsupportedModel: if an exact prefix cache cannot serve this architecture.
        UsageError: if the device is absent, the K/V memory holds no token, or an address for events cannot be had.
        MissingExtra: if events are asked for without pyzmq.
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
    slots = options.kv_memory // KVShape.of_model(config).bytes_per_token(options.dtype)
    if slots < 2:  # one token of prompt and one of answer
        raise UsageError(
            f"{format_bytes(options.kv_memory)} of K/V memory hold {slots} tokens of {checkpoint.name}",
            hint="give more with --kv-memory",
        )
    decoder = load_decoder(checkpoint, getattr(torch, options.dtype), device)
    tokenizer = Tokenizer(checkpoint.folder)
    events = None
    if options.kv_events:
        events = BlockBook(checkpoint.name, Publisher(options.kv_events, options.kv_replay))
    return Engine(decoder, config, tokenizer, options, clock, make_pool(config, options, slots), events)


def make_pool(config: ModelConfig, options: EngineOptions, slots: int) -> KVPool:
    """K and V for `slots` tokens, in the form that the options ask for."""
    return TorchPool(
        config.layers,
        slots,
        config.kv_heads,
        config.head_dim,
        dtype=getattr(torch, options.dtype),
        device=torch.device(options.device),
    )


def load_decoder(checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> Decoder:
    """The model: our own forward pass for the Llama family, transformers' for any other full-attention decoder."""
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
