"""One server for all tests of this folder that do not stop it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from prefold.engine.checkpoint import Checkpoint
from prefold.engine.loading import load_engine
from prefold.engine.options import EngineOptions
from prefold.engine.tokenizer import Tokenizer
from prefold.server.openai_requests import ServedModel

from .support import MODEL, RunningServer, running_server


@pytest.fixture(scope="session")
def server(default_checkpoint: Checkpoint) -> Iterator[RunningServer]:
    """float32, so that answers repeat exactly; room for some 2,200 tokens of K/V."""
    options = EngineOptions(dtype="float32", kv_memory=96 << 20, threads=2)
    with running_server(load_engine(default_checkpoint, options)) as running:
        yield running


@pytest.fixture(scope="session")
def model(default_checkpoint: Checkpoint) -> ServedModel:
    tokenizer = Tokenizer(default_checkpoint.folder)
    return ServedModel((MODEL, "an-alias"), tokenizer, default_checkpoint.config.vocab_size, 2048)
