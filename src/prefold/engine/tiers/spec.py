"""Tiers as people write them: `host=8GiB`, `disk=./kv,50GiB,ttl=3d`, `redis://host:6379/0`, `s3://bucket/prefix`."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from prefold.core.units import parse_bytes
from prefold.engine.tiers.seal import VARIABLE, Seal, seal_from
from prefold.errors import UsageError

if TYPE_CHECKING:
    from prefold.engine.tiers.base import Layout, Tier
    from prefold.engine.tiers.objects import Objects

_FORMS = (
    "write host=8GiB, disk=FOLDER,50GiB, redis://HOST:6379/0, or a URL that fsspec knows, such as s3://BUCKET/PREFIX"
)
_REDIS = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
_URL = re.compile(r"[a-z][a-z0-9+.-]*://.+", re.ASCII | re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)", re.ASCII)
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_REDIS_OPTIONS = ("db", "health_check_interval", "max_connections", "protocol", "socket_keepalive", "ttl")
_TLS_OPTIONS = ("ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile")
_REDIS_TIMEOUT = 2.0
"""Seconds to wait for a connection or the next bytes; the tier itself waits less for what is asked."""


@dataclass(frozen=True, slots=True)
class HostSpec:
    """Memory of this machine.

    Attributes:
        capacity: bytes.
    """

    capacity: int

    @property
    def place(self) -> str:
        """What to call it."""
        return "host"


@dataclass(frozen=True, slots=True)
class DiskSpec:
    """A folder.

    Attributes:
        path: the folder.
        capacity: bytes.
        ttl: seconds, None for ever.
    """

    path: Path
    capacity: int
    ttl: float | None

    @property
    def place(self) -> str:
        """What to call it."""
        return f"disk={self.path.resolve()}"


@dataclass(frozen=True, slots=True)
class RemoteSpec:
    """A place that other machines find too.

    Attributes:
        name: kind of place, such as `redis` or `s3`.
        url: as the library for it takes it. It may hold a password.
        ttl: seconds, None for ever.
    """

    name: str
    url: str
    ttl: float | None

    @property
    def place(self) -> str:
        """What to call it: the URL without user, password and options."""
        return f"{self.name}://{self.url.partition('://')[2].rpartition('@')[2].partition('?')[0]}"

    @property
    def is_redis(self) -> bool:
        """Whether it speaks Redis's protocol; else it is fsspec's."""
        return self.name in _REDIS

    def objects(self) -> Objects:
        """What is there.

        Raises:
            UsageError: if the URL cannot be used.
            MissingExtra: if a package for it is not installed.
        """
        from prefold.engine.tiers.objects import FsspecObjects, RedisObjects  # noqa: PLC0415 - only where it is used

        return RedisObjects(self.url, self.ttl, _REDIS_TIMEOUT) if self.is_redis else FsspecObjects(self.url)


TierSpec = HostSpec | DiskSpec | RemoteSpec


def parse_tier(text: str) -> TierSpec:
    """Read one tier.

    Raises:
        UsageError: if it is not of one of the forms above.
    """
    text = text.strip()
    kind, equals, rest = text.partition("=")
    if _URL.fullmatch(text):
        return _remote(text)
    if equals and kind == "host":
        return HostSpec(_capacity(rest, text))
    if equals and kind == "disk":
        return _disk(rest, text)
    raise UsageError(f"{text!r} is no tier for K/V.", hint=_FORMS)


def parse_folder(text: str) -> Path:
    """The folder in a disk tier's text, or in a path alone: `./kv`, `disk=./kv`, `disk=./kv,50GiB`.

    Raises:
        UsageError: if there is none.
    """
    path = text.removeprefix("disk=").partition(",")[0] if text.startswith("disk=") else text
    if not path.strip():
        raise UsageError(f"{text!r} names no folder.", hint="write the path of the folder that --tier disk= was given")
    return Path(path.strip()).expanduser()


def parse_duration(text: str) -> float:
    """Seconds in `90s`, `30m`, `12h`, `3d` or `2w`.

    Raises:
        UsageError: if it is nothing like that, or zero.
    """
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not seconds:
        raise UsageError(f"{text!r} is not a duration.", hint="write a number with s, m, h, d or w, such as 12h or 3d")
    return seconds


def check_tiers(texts: Sequence[str], environment: Mapping[str, str] = os.environ) -> None:
    """Find what is wrong with tiers as far as that can be said without opening them; takes what `open_tiers` takes.

    Raises:
        UsageError: if one cannot be read, two are of the same kind and place, or the key is none.
        MissingExtra: if a package for one is not installed.
    """
    specs = _specs(texts)
    _seal_for(specs, environment)
    for spec in specs:
        if isinstance(spec, RemoteSpec):
            spec.objects().close()


def open_tiers(texts: Sequence[str], layout: Layout, environment: Mapping[str, str] = os.environ) -> list[Tier]:
    """Open tiers, fast ones first: host memory, disk, Redis, object stores.

    Args:
        texts: as `parse_tier` takes them, in any order.
        layout: of the records.
        environment: where `PREFOLD_TIER_KEY` may ask for encryption on disk and remote.

    Raises:
        UsageError: if one cannot be used, or two are of the same kind and place.
        MissingExtra: if a package for one is not installed.
    """
    specs = _specs(texts)
    seal = _seal_for(specs, environment)
    opened: list[Tier] = []
    try:
        for spec in specs:
            if isinstance(spec, HostSpec):
                from prefold.engine.tiers.host import HostTier  # noqa: PLC0415 - the command line needs no numpy

                opened.append(HostTier(layout, spec.capacity))
            elif isinstance(spec, DiskSpec):
                from prefold.engine.tiers.disk import DiskTier  # noqa: PLC0415 - only where it is used

                opened.append(DiskTier(layout, spec.path, spec.capacity, ttl=spec.ttl, seal=seal))
            else:
                from prefold.engine.tiers.remote import RemoteTier  # noqa: PLC0415 - the same

                opened.append(RemoteTier(spec.name, layout, spec.objects(), seal=seal))
    except BaseException:  # whatever ends the opening, what is open is let go of
        for tier in opened:
            tier.close()
        raise
    return opened


def _specs(texts: Sequence[str]) -> list[TierSpec]:
    """Fast ones first."""
    specs = sorted((parse_tier(text) for text in texts), key=_slowness)
    places = [spec.place for spec in specs]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise UsageError(f"Two tiers are the same: {place}.", hint="give each place once")
    return specs


def _seal_for(specs: Sequence[TierSpec], environment: Mapping[str, str]) -> Seal | None:
    return seal_from(environment) if any(not isinstance(spec, HostSpec) for spec in specs) else None


def _disk(rest: str, text: str) -> DiskSpec:
    path, *options = rest.split(",")
    size = ""
    ttl = None
    for option in map(str.strip, options):
        if option.startswith("ttl="):
            ttl = parse_duration(option.removeprefix("ttl="))
        elif size or not option:
            raise UsageError(f"{text!r} is no disk tier.", hint="write disk=FOLDER,50GiB or disk=FOLDER,50GiB,ttl=3d")
        else:
            size = option
    if not path.strip() or not size:
        raise UsageError(f"{text!r} is no disk tier.", hint="write disk=FOLDER,50GiB or disk=FOLDER,50GiB,ttl=3d")
    return DiskSpec(Path(path.strip()).expanduser(), _capacity(size, text), ttl)


def _remote(text: str) -> RemoteSpec:
    kind = text.partition("://")[0].lower()
    if kind in {"http", "https"}:
        raise UsageError(f"{kind}:// is no tier for K/V: nothing can be written there.", hint=_FORMS)
    if kind not in _REDIS:
        if "?" in text:
            raise UsageError(
                f"The {kind} tier takes no options after a question mark.",
                hint=f"for how long objects live is a rule of the bucket; what encrypts them is {VARIABLE}",
            )
        return RemoteSpec(kind, text, None)
    try:
        parts = urlsplit(text)
        query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        # Not the text itself, which may hold a password.
        raise UsageError("The URL of the Redis tier cannot be read.", hint="write redis://HOST:6379/0") from None
    known = (*_REDIS_OPTIONS, *(_TLS_OPTIONS if _REDIS[kind] == "rediss" else ()))
    for name in query:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise UsageError(
                f"The URL of the Redis tier has an unknown option {name!r}.",
                hint=f"did you mean {near[0]}?" if near else f"the options are {', '.join(known)}",
            )
    ttl = parse_duration(query.pop("ttl")) if "ttl" in query else None
    return RemoteSpec(kind, urlunsplit(parts._replace(scheme=_REDIS[kind], query=urlencode(query))), ttl)


def _capacity(size: str, text: str) -> int:
    capacity = parse_bytes(size)
    if not capacity:
        raise UsageError(f"{text!r} holds nothing.", hint="give a size such as 8GiB")
    return capacity


def _slowness(spec: TierSpec) -> int:
    if isinstance(spec, RemoteSpec):
        return 2 if spec.is_redis else 3
    return int(isinstance(spec, DiskSpec))
