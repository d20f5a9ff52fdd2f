"""The demo with a real model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from prefold.core.tokens import count, pack
from prefold.demo.play import Message, Reply
from prefold.engine.checkpoint import resolve
from prefold.engine.engine import Engine
from prefold.engine.loading import load_engine
from prefold.engine.options import DType, EngineOptions
from prefold.engine.progress import Progress
from prefold.engine.request import Output, Request, SamplingOptions
from prefold.errors import EngineFailed

_KV_MEMORY = 512 << 20
"""Bytes; the longest scene needs half of it in fp32."""

_WARM_UP = "The first pass of a model through a new process takes longer, whatever is cached. " * 8


class EnginePlayer:
    """Answers with an engine, one request at a time.

    Args:
        name: of the model.
        engine: with nothing else running on it.
        clock: seconds.
    """

    def __init__(self, name: str, engine: Engine, clock: Callable[[], float]) -> None:
        self.name = name
        self.threads = engine.threads
        self._engine = engine
        self._clock = clock

    @classmethod
    def load(
        cls, dtype: DType, cache_folder: Path, progress: Progress, clock: Callable[[], float] = time.perf_counter
    ) -> EnginePlayer:
        """Load the default model and run it once, so that no measurement pays for first-time costs.

        Raises:
            ModelError: if the model cannot be fetched or read.
        """
        checkpoint = resolve(None, cache_dir=cache_folder, progress=progress)
        progress(f"Loading {checkpoint.name}", 0, 0)
        player = cls(checkpoint.name, load_engine(checkpoint, EngineOptions(dtype=dtype, kv_memory=_KV_MEMORY)), clock)
        player.answer(player.prompt([{"role": "user", "content": _WARM_UP}]), max_tokens=2)
        return player

    def prompt(self, messages: Sequence[Message]) -> bytes:
        """See `Player`."""
        tokenizer = self._engine.tokenizer
        return pack(tokenizer.encode(tokenizer.apply_chat_template(messages), add_special=False))

    def answer(self, prompt: bytes, max_tokens: int) -> Reply:
        """See `Player`.

        Raises:
            PrefoldError: if the engine could not answer.
        """
        outputs: list[Output] = []
        times: list[float] = []

        def note(output: Output) -> None:
            times.append(self._clock())
            outputs.append(output)

        begin = self._clock()
        self._engine.submit(Request(prompt, SamplingOptions(max_tokens, temperature=0), note))
        while self._engine.busy:
            self._engine.step()
        last = outputs[-1]
        if last.usage is None or last.error is not None:
            raise last.error or EngineFailed(f"The answer to {count(prompt)} tokens ended without a count of them")
        return Reply(
            text="".join(output.text for output in outputs),
            tokens=tuple(token for output in outputs for token in output.tokens),
            cached=last.usage.cached,
            ttft=times[0] - begin,
            wall=times[-1] - begin,
        )

    def forget(self) -> None:
        """See `Player`."""
        self._engine.reset()
