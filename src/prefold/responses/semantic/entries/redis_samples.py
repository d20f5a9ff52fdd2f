"""Samples as entries of a stream in Redis."""

from __future__ import annotations

from collections.abc import Mapping

from prefold.responses.semantic.entries.records import pack_features, text_bytes, text_of, unpack_features
from prefold.responses.semantic.types import Sample


def fields_of(sample: Sample) -> tuple[str | bytes | float, ...]:
    """Names and values, in turn; all but pool and number."""
    return (
        *("features", pack_features(sample.features)),
        *("same", int(sample.same)),
        *("entry", text_bytes(sample.entry)),
        *("cluster", text_bytes(sample.cluster)),
        *("route", text_bytes(sample.route)),
        *("probability", sample.probability),
        *("would_serve", int(sample.would_serve)),
        *("at", sample.at),
    )


def sample_of(pool: str, number: int, fields: Mapping[bytes, bytes]) -> Sample:
    """The inverse of `fields_of`."""
    return Sample(
        features=unpack_features(fields[b"features"]),
        same=fields[b"same"] == b"1",
        entry=text_of(fields[b"entry"]),
        cluster=text_of(fields[b"cluster"]),
        route=text_of(fields[b"route"]),
        probability=float(fields[b"probability"]),
        would_serve=fields[b"would_serve"] == b"1",
        at=float(fields[b"at"]),
        pool=pool,
        number=number,
    )
