"""What a server says of itself: its metrics, settings and versions, by whatever path its kind has for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from prefold.gateway.inspect.verification import read_body
from prefold.gateway.upstream import Outgoing, Upstream, UpstreamFailed

METRICS = "/metrics"

PATHS = (
    METRICS,
    "/v1/models",  # all
    "/version",  # vLLM, prefold
    "/server_info",  # SGLang
    "/get_server_info",  # the same, as older ones call it
    "/props",  # llama.cpp
    "/api/version",  # ollama
    "/api/ps",  # ollama
)

PAGE_SECONDS = 10.0
"""Longest time for one page; a busy engine may take a while for its metrics."""

_PAGE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric."""

    labels: Mapping[str, str]
    value: float


class Pages:
    """The pages that a server has.

    Args:
        bodies: by path; pages that it lacks are absent.

    Attributes:
        samples: its metrics by the name of the series, such as `vllm:prefix_cache_hits_total`; empty where it has none.
    """

    def __init__(self, bodies: Mapping[str, bytes]) -> None:
        self.samples = _samples(bodies.get(METRICS, b"").decode(errors="replace"))
        self._values = {path: _json(body) for path, body in bodies.items() if path != METRICS}

    def object(self, *paths: str) -> Mapping[str, Any]:
        """The first of some pages that is a JSON object; an empty one where none is."""
        return next((value for path in paths if isinstance(value := self._values.get(path), dict)), {})

    def objects(self, path: str, name: str) -> list[Mapping[str, Any]]:
        """The objects in a list that a page has under a name."""
        values = self.object(path).get(name)
        return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []

    def total(self, *names: str) -> float | None:
        """The sum over all series of a metric; None where there are none. The first name that is there counts."""
        for name in names:
            if name in self.samples:
                return sum(sample.value for sample in self.samples[name])
        return None

    def largest(self, name: str) -> float | None:
        """The largest value among the series of a metric."""
        return max((sample.value for sample in self.samples.get(name, ())), default=None)

    def has_metrics_of(self, prefix: str) -> bool:
        """Whether the name of any metric begins so."""
        return any(name.startswith(prefix) for name in self.samples)


async def read_pages(upstream: Upstream, paths: Iterable[str] = PATHS) -> Pages:
    """Ask a server for its pages, all at once.

    Raises:
        UpstreamFailed: if it cannot be reached, or answers none of them.
    """
    paths = tuple(paths)
    replies = await asyncio.gather(*(_page(upstream, path) for path in paths), return_exceptions=True)
    bodies: dict[str, bytes] = {}
    failures: list[UpstreamFailed] = []
    for path, reply in zip(paths, replies, strict=True):
        match reply:
            case UpstreamFailed():
                failures.append(reply)
            case BaseException():
                raise reply
            case bytes():
                bodies[path] = reply
    if len(failures) == len(paths):
        raise failures[0]
    return Pages(bodies)


async def _page(upstream: Upstream, path: str) -> bytes | None:
    try:
        async with asyncio.timeout(PAGE_SECONDS):
            answer = await upstream.send(Outgoing("GET", path, [(b"accept", b"*/*")], b""))
            body = await read_body(answer, _PAGE_BYTES)
    except TimeoutError:
        raise UpstreamFailed(
            f"{path} did not come within {PAGE_SECONDS:g} s.", hint="see whether the server is overloaded"
        ) from None
    return body if answer.status == 200 else None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _samples(text: str) -> Mapping[str, tuple[Sample, ...]]:
    samples: dict[str, list[Sample]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for name, labels, value, *_ in family.samples:
                samples.setdefault(name, []).append(Sample(labels, value))
    except ValueError:  # no metrics: servers answer unknown paths with pages of all kinds
        return {}
    return {name: tuple(values) for name, values in samples.items()}
