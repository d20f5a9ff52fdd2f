"""Tiers as people write them, and keys for encryption."""

import base64
from pathlib import Path

import pytest

from prefold.engine.tiers.seal import Seal, seal_from
from prefold.engine.tiers.spec import DiskSpec, HostSpec, RemoteSpec, open_tiers, parse_duration, parse_tier
from prefold.errors import UsageError

from .support import LAYOUT, chain, read, write


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("host=8GiB", HostSpec(8 << 30)),
        ("disk=./kv,50GiB", DiskSpec(Path("kv"), 50 << 30, None)),
        ("disk=/var/kv, 1 GB, ttl=3d", DiskSpec(Path("/var/kv"), 10**9, 259200)),
        ("disk=/var/kv,ttl=12h,1GB", DiskSpec(Path("/var/kv"), 10**9, 43200)),
        ("redis://h:6379/0", RemoteSpec("redis", "redis://h:6379/0", None)),
        ("redis://h:6379/0?ttl=1h", RemoteSpec("redis", "redis://h:6379/0", 3600)),
        ("rediss://u:p@h/1?ttl=1h&db=1", RemoteSpec("rediss", "rediss://u:p@h/1?db=1", 3600)),
        ("valkey://h", RemoteSpec("valkey", "redis://h", None)),
        ("valkeys://h", RemoteSpec("valkeys", "rediss://h", None)),
        ("s3://bucket/prefix", RemoteSpec("s3", "s3://bucket/prefix", None)),
        ("memory://kv", RemoteSpec("memory", "memory://kv", None)),
    ],
)
def test_what_is_understood(text: str, spec: object) -> None:
    assert spec == parse_tier(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host=",
        "host=0",
        "host=many",
        "disk=./kv",
        "disk=,5GiB",
        "disk=./kv,5GiB,6GiB",
        "disk=./kv,5GiB,ttl=soon",
        "disk=./kv,5GiB,ttl=0s",
        "disk=./kv,5GiB,",
        "tape=5GiB",
        "redis://h?ttl=soon",
        "redis://h?x",
        "redis://[h",
        "s3://bucket?ttl=1h",
        "https://h/kv",
        "://",
        "s3://",
    ],
)
def test_what_is_not(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_tier(text)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1.5h", 5400), ("30m", 1800), ("2 min", 120), ("1w", 604800)]
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds == parse_duration(text)


def test_fast_ones_come_first(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    pytest.importorskip("redis")
    texts = ["memory://spec", "redis://127.0.0.1:1/0", f"disk={tmp_path},1MiB", "host=1MiB"]
    tiers = open_tiers(texts, LAYOUT, {})
    assert ["host", "disk", "redis", "memory"] == [tier.name for tier in tiers]
    assert [False, True, True, True] == [tier.slow for tier in tiers]
    for tier in tiers:
        tier.close()


def test_a_place_is_given_once(tmp_path: Path) -> None:
    for texts in (
        ["host=1MiB", "host=2MiB"],
        [f"disk={tmp_path},1MiB", f"disk={tmp_path}/../{tmp_path.name},2MiB"],
        ["redis://:secret@h/0", "redis://:other@h/0"],
    ):
        with pytest.raises(UsageError, match="Two tiers are the same") as raised:
            open_tiers(texts, LAYOUT, {})
        assert "secret" not in str(raised.value)


def test_what_was_opened_is_closed_again_when_one_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        open_tiers(["host=1MiB", f"disk={tmp_path}/file,1MiB"], LAYOUT, {})


def test_a_key_in_the_environment_encrypts(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    key = {"PREFOLD_TIER_KEY": base64.b64encode(bytes(32)).decode()}
    text = f"disk={tmp_path},1MiB"
    (tier,) = open_tiers([text], LAYOUT, key)
    keys = chain("a", 2)
    write(tier, keys)
    tier.close()
    for environment, blocks in ((key, 2), ({}, 0), ({"PREFOLD_TIER_KEY": "passphrase:correct horse battery"}, 0)):
        (tier,) = open_tiers([text], LAYOUT, environment)
        assert blocks == read(tier, keys)
        tier.close()


def test_a_passphrase_gives_the_same_key_everywhere() -> None:
    pytest.importorskip("cryptography")
    one, two = (seal_from({"PREFOLD_TIER_KEY": "passphrase:correct horse battery"}) for _ in range(2))
    assert one is not None
    assert two is not None
    assert one.blind("ab" * 32) == two.blind("ab" * 32)
    into = memoryview(bytearray(5))
    assert two.open(bytes(12), memoryview(one.close(bytes(12), memoryview(b"hello"), b"x")), b"x", into)
    assert b"hello" == into


@pytest.mark.parametrize("value", ["secret", "passphrase:short", base64.b64encode(bytes(31)).decode(), "ä" * 44])
def test_keys_that_cannot_be(value: str) -> None:
    with pytest.raises(UsageError) as raised:
        seal_from({"PREFOLD_TIER_KEY": value})
    assert value not in str(raised.value)


def test_no_key_no_seal() -> None:
    assert seal_from({}) is None
    assert seal_from({"PREFOLD_TIER_KEY": ""}) is None


def test_what_was_bound_to_something_else_does_not_open() -> None:
    pytest.importorskip("cryptography")
    seal = Seal(bytes(32))
    closed = memoryview(seal.close(bytes(12), memoryview(b"hello"), b"x"))
    into = memoryview(bytearray(5))
    assert not seal.open(bytes(12), closed, b"y", into)
    assert not Seal(b"\1" * 32).open(bytes(12), closed, b"x", into)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("redis://:secret@h/0?tll=12h", "ttl"),
        ("redis://h/0?ssl_ca_certs=x", "db"),
        ("redis://h/0?decode_responses=true", "ttl"),
        ("rediss://h/0?ssl_ca_cert=x", "ssl_ca_certs"),
    ],
)
def test_options_of_redis_that_it_does_not_have(url: str, hint: str) -> None:
    with pytest.raises(UsageError, match="unknown option") as raised:
        parse_tier(url)
    assert hint in raised.value.hint
    assert "secret" not in str(raised.value)
