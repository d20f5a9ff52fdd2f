"""A small model over tiers, driven by tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import tokenizers
import torch
import transformers
from tests.engine.conftest import Answer, Driver

from prefold.engine.decoder import LeanDecoder
from prefold.engine.engine import Engine
from prefold.engine.loading import make_pool
from prefold.engine.model_config import ModelConfig
from prefold.engine.options import EngineOptions
from prefold.engine.tiers.base import Layout, TierUsage, layout_fingerprint
from prefold.engine.tiers.host import HostTier
from prefold.engine.tiers.ladder import Ladder
from prefold.engine.tokenizer import Tokenizer
from prefold.engine.weights import load_weights

VOCABULARY = 160
BLOCK = 16
ROOMY = 1 << 24


def save_model(folder: Path, seed: int, **changes: int) -> None:
    """A random model of two narrow layers, and a tokenizer that names its ids."""
    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, **changes}
    config = transformers.LlamaConfig(
        **shape, vocab_size=VOCABULARY, num_key_value_heads=1, max_position_embeddings=512, eos_token_id=2
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    vocabulary = {f"w{number}": number for number in range(VOCABULARY)}
    words = tokenizers.models.WordLevel(vocabulary, unk_token="w0")
    tokenizers.Tokenizer(words).save(str(folder / "tokenizer.json"))


class Model:
    """A small model, loaded once."""

    def __init__(self, folder: Path) -> None:
        self.config = ModelConfig.from_folder(folder)
        self.decoder = LeanDecoder(self.config, load_weights(folder, torch.float32, "cpu"))
        self.tokenizer = Tokenizer(folder)


def layout_of(pool, name: str = "tiny") -> Layout:
    width = pool.bytes_per_token
    return Layout(layout_fingerprint(name, "float32", pool.format, width, BLOCK), BLOCK, BLOCK * width)


class Tiered(Driver):
    """An engine with tiers, driven in the test's own thread."""

    def __init__(self, model: Model, slots: int, tiers: Callable[[Layout], Sequence], *, write="evict", **options):
        self.clock = Clock()
        settings = EngineOptions(**{"dtype": "float32", "policy": "lru", **options})
        pool = make_pool(model.config, settings, slots)
        self.layout = layout_of(pool)
        self.ladder = Ladder(tiers(self.layout), self.layout, pool, write=write, clock=self.clock)
        super().__init__(
            Engine(model.decoder, model.config, model.tokenizer, settings, self.clock, pool, ladder=self.ladder)
        )

    def run(self) -> None:
        while self.engine.busy:
            self.step()
        self.check()

    def step(self) -> None:
        if not self.engine.step() and self.engine.loading is not None:
            time.sleep(1e-4)

    def check(self) -> None:
        super().check()
        ladder = self.ladder
        if not self.engine.busy:
            assert not ladder._waits
            assert self.ladder._mover.wait(lambda: False)
            ladder.collect()
            assert ladder._arrivals.is_empty

    @property
    def loaded(self) -> dict[str, int]:
        return dict(self.ladder.loaded)


class Clock:
    """Time that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Memory:
    """The simplest tier: a dictionary. Fails when told to.

    Attributes:
        fail: called with the name of the call before each; may raise, or give a number of blocks to do at most.
    """

    def __init__(self, layout: Layout, *, slow: bool = True, name: str = "memory") -> None:
        self.name, self.slow = name, slow
        self.blocks: dict[bytes, bytes] = {}
        self.fail: Callable[[str], int | None] = lambda _: None
        self.size = layout.record_bytes
        self.calls: list[str] = []
        self.closed = False

    def _most(self, call: str, wanted: int) -> int:
        self.calls.append(call)
        most = self.fail(call)
        return wanted if most is None else min(wanted, most)

    def find(self, keys, *, sure: bool = False) -> int:
        most = self._most("find", len(keys))
        for number, key in enumerate(keys[:most]):
            if key not in self.blocks:
                return number
        return most

    def read(self, keys, into) -> int:
        most = self._most("read", len(keys))
        for number, key in enumerate(keys[:most]):
            if key not in self.blocks:
                return number
            into[number * self.size : (number + 1) * self.size] = self.blocks[key]
        return most

    def write(self, keys, depths, records, parent=None) -> int:
        assert len(records) == len(keys) * self.size
        assert depths[0] == 0 or parent is not None
        most = self._most("write", len(keys))
        if depths[0] and parent not in self.blocks:
            return 0
        for number, key in enumerate(keys[:most]):
            self.blocks[key] = bytes(records[number * self.size : (number + 1) * self.size])
        return most

    def remove(self, keys) -> None:
        for key in keys:
            self.blocks.pop(key, None)

    def clear(self) -> int:
        number = len(self.blocks)
        self.blocks.clear()
        return number

    def usage(self) -> TierUsage:
        return TierUsage(len(self.blocks), len(self.blocks) * self.size)

    def close(self) -> None:
        self.closed = True


def cold(model: Model, prompt: Sequence[int], **options) -> Answer:
    settings = EngineOptions(dtype="float32")
    engine = Engine(
        model.decoder, model.config, model.tokenizer, settings, lambda: 0.0, make_pool(model.config, settings, 512)
    )
    return Driver(engine).ask(prompt, **options)


def prompt(seed: int, length: int) -> list[int]:
    return [3 + (seed * 31 + at * (seed % 5 + 3)) % 150 for at in range(length)]


def host_only(layout):
    return [HostTier(layout, ROOMY)]
