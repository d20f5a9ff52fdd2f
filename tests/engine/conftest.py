from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest

torch = pytest.importorskip("torch")

from prefold.core.keys import SHARED, Scope  # noqa: E402 - after the check that torch is there
from prefold.core.tokens import pack  # noqa: E402
from prefold.engine.engine import Engine  # noqa: E402
from prefold.engine.kv_events import BlockBook  # noqa: E402
from prefold.engine.loading import load_decoder, make_pool  # noqa: E402
from prefold.engine.options import EngineOptions  # noqa: E402
from prefold.engine.request import Output, Request, SamplingOptions, Usage  # noqa: E402
from prefold.engine.tokenizer import Tokenizer  # noqa: E402


@dataclass
class Answer:
    """Everything that one choice put out."""

    outputs: list[Output] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return [token for output in self.outputs for token in output.tokens]

    @property
    def text(self) -> str:
        return "".join(output.text for output in self.outputs)

    @property
    def finish(self) -> str | None:
        return self.outputs[-1].finish

    @property
    def usage(self) -> Usage | None:
        return self.outputs[-1].usage


class Driver:
    """An engine driven in the test's own thread."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def submit(self, prompt: Iterable[int] | str, *, scope: Scope = SHARED, **sampling) -> tuple[object, list[Answer]]:
        if isinstance(prompt, str):
            prompt = self.engine.tokenizer.encode(prompt, add_special=False)
        options = SamplingOptions(**{"temperature": 0.0, **sampling})
        answers = [Answer() for _ in range(options.choices)]
        ticket = self.engine.submit(
            Request(pack(prompt), options, lambda output: answers[output.choice].outputs.append(output), scope)
        )
        return ticket, answers

    def run(self) -> None:
        while self.engine.busy:
            self.engine.step()
        self.check()

    def check(self) -> None:
        self.engine.cache.check()
        assert self.engine.cache.free == self.engine.pool.free_slots

    def ask(self, prompt: Iterable[int] | str, **options) -> Answer:
        _, (answer, *_) = self.submit(prompt, **options)
        self.run()
        return answer


@pytest.fixture(scope="session")
def default_decoders(default_checkpoint):
    """The default model by dtype, loaded once."""
    loaded: dict[str, object] = {}

    def get(dtype: str):
        if dtype not in loaded:
            loaded[dtype] = load_decoder(default_checkpoint, getattr(torch, dtype), torch.device("cpu"))
        return loaded[dtype]

    return get


@pytest.fixture
def driver(default_checkpoint, default_decoders) -> Callable[..., Driver]:
    """Makes engines on the default model, each with a cache of its own."""

    def make(slots: int = 8000, *, events: BlockBook | None = None, **options) -> Driver:
        settings = EngineOptions(**{"dtype": "float32", **options})
        return Driver(
            Engine(
                default_decoders(settings.dtype),
                default_checkpoint.config,
                Tokenizer(default_checkpoint.folder),
                settings,
                lambda: 0.0,
                make_pool(default_checkpoint.config, settings, slots),
                events,
            )
        )

    return make
