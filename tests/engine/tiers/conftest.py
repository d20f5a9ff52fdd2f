"""Each kind of tier, empty."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prefold.engine.tiers.base import Layout, Tier
from prefold.engine.tiers.disk import DiskTier
from prefold.engine.tiers.host import HostTier
from prefold.engine.tiers.objects import FsspecObjects, RedisObjects
from prefold.engine.tiers.remote import RemoteTier
from prefold.engine.tiers.seal import Seal

from .support import LAYOUT, running_redis

MakeTier = Callable[..., Tier]
KEY = bytes(range(32))


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_redis(tmp_path_factory.mktemp("redis")) as (url, _):
        yield url


@pytest.fixture(params=["host", "disk", "disk sealed", "redis", "redis sealed", "memory", "file"])
def make_tier(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeTier]:
    """Opens the tier of this kind, the same place each time; `layout` is another model's."""
    kind, _, sealed = request.param.partition(" ")
    if kind == "redis":
        pytest.importorskip("redis", reason="redis comes with the extra `tiers`")
    if kind in ("memory", "file"):
        pytest.importorskip("fsspec", reason="fsspec comes with the extra `tiers`")
    if sealed:
        pytest.importorskip("cryptography", reason="cryptography comes with the extra `tiers`")
    place = uuid.uuid4().hex
    opened: list[Tier] = []

    def make(layout: Layout = LAYOUT) -> Tier:
        seal = Seal(KEY) if sealed else None
        tier: Tier
        if kind == "host":
            tier = HostTier(layout, 1 << 20)
        elif kind == "disk":
            tier = DiskTier(layout, tmp_path / "kv", 1 << 20, seal=seal)
        elif kind == "redis":
            url: str = request.getfixturevalue("redis_url")
            tier = RemoteTier(kind, layout, RedisObjects(url, 3600, 10), seal=seal, find_seconds=10, move_seconds=10)
        else:
            url = f"memory://{place}/kv" if kind == "memory" else f"file://{tmp_path}/objects"
            tier = RemoteTier(kind, layout, FsspecObjects(url), find_seconds=10, move_seconds=10)
        opened.append(tier)
        return tier

    yield make
    for tier in opened:
        tier.clear()
        tier.close()
