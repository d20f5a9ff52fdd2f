"""What GPTCache serves, with its own settings; run by `answers.py` under an interpreter that has it.

Reads a job as JSON from the file that it is given, works in the folder that it is given, which must outlive it, and
prints what was served as JSON. The cache is made as its documentation does ("similar search": SQLite and Faiss,
SearchDistanceEvaluation, threshold 0.8); the embedding, which it would fetch from a hub, is the vectors of the job.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gptcache import Cache, Config  # type: ignore[import-not-found]
from gptcache.adapter.api import get, init_similar_cache, put  # type: ignore[import-not-found]


class Embedding:
    """Looks vectors up."""

    def __init__(self, vectors: dict[str, Any]) -> None:
        self._vectors = vectors
        self.dimension = len(next(iter(vectors.values())))

    def to_embeddings(self, data: str, **_: Any) -> Any:
        """The vector of a text."""
        return self._vectors[data]


def opened(embedding: Embedding, folder: str) -> Cache:
    """A fresh cache."""
    cache = Cache()
    config = Config(similarity_threshold=0.8, disable_report=True)
    init_similar_cache(folder, cache, embedding=embedding, config=config)
    return cache


def pairs(job: dict[str, Any], new: Callable[[], Cache]) -> list[bool]:
    """For each pair, whether its second text gets the answer of the first, in a cache that holds nothing else."""
    served = []
    for first, second in job["pairs"]:
        cache = new()
        put(first, "kept", cache_obj=cache)
        served.append(get(second, cache_obj=cache) is not None)
    return served


def stream(job: dict[str, Any], new: Callable[[], Cache]) -> list[str | None]:
    """For each question in order, the answer that it gets; those that get none are kept with their own."""
    cache = new()
    served = []
    for text, answer in job["stream"]:
        found = get(text, cache_obj=cache)
        served.append(found)
        if found is None:
            put(text, answer, cache_obj=cache)
    return served


def main() -> None:
    """Do the job."""
    job = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    embedding = Embedding(dict(zip(job["texts"], np.load(job["vectors"]), strict=True)))

    def new() -> Cache:
        return opened(embedding, tempfile.mkdtemp(dir=sys.argv[2]))

    print(json.dumps(pairs(job, new) if "pairs" in job else stream(job, new)))


if __name__ == "__main__":
    main()
