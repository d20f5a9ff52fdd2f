"""What the tables of a configuration must say together."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from urllib.parse import urlsplit

import msgspec

from prefold.core.units import parse_bytes
from prefold.errors import UsageError
from prefold.gateway.access import Access
from prefold.gateway.call import Api
from prefold.gateway.config import (
    DEFAULT_GROUP,
    EngineTable,
    GatewayConfig,
    GroupTable,
    Isolation,
    Kind,
    RedisOptions,
    ReplicaTable,
)
from prefold.gateway.isolation import takes_salt
from prefold.gateway.tenants import SHORTEST_SECRET, is_key_hash, is_tenant_name
from prefold.prompts.canonical.canonicalize import Step

_logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HEADER = re.compile(r"[A-Za-z0-9-]+")
_ENDPOINT = re.compile(r"(tcp|ipc)://.+")
_REDIS_SCHEMES = ("redis", "rediss", "unix")


def checked(config: GatewayConfig, environ: Mapping[str, str]) -> GatewayConfig:
    """The configuration in force: as written, but for groups whose replicas cannot share the system's part alone.

    Args:
        config: as read.
        environ: where secrets are.

    Raises:
        UsageError: naming the key at fault, and what is allowed.
    """
    _check_names(config)
    _check_values(config)
    _check_references(config)
    _check_access(config)
    config = msgspec.structs.replace(config, group=tuple(_in_force(group, config) for group in config.group))
    for group in _groups_in_use(config):
        _check_isolation(group, config, environ)
    _check_secrets(config, environ)
    return config


def near(name: str, known: Collection[str], introduction: str) -> str:
    """A hint for a name that is not known."""
    matches = difflib.get_close_matches(name, known, n=2)
    if matches:
        return f"Did you mean {' or '.join(matches)}?"
    return f"{introduction} {', '.join(known)}."


def _check_names(config: GatewayConfig) -> None:
    engine = [(config.engine or EngineTable()).name] if config.has_engine else []
    names = {
        "replica": [*(table.name for table in config.replica), *engine],
        "group": [table.name for table in config.group],
    }
    for table, given in names.items():
        for name in given:
            if not _NAME.fullmatch(name):
                raise UsageError(
                    f"The {table} {name!r} has a name that headers and metrics cannot carry.",
                    hint="Use up to 64 letters, digits and ._- and begin with a letter or digit.",
                )
    names["tenant"] = [table.name for table in config.tenant]
    for name in names["tenant"]:
        if not is_tenant_name(name):
            raise UsageError(
                f"The tenant {name!r} has a name that logs and metrics cannot carry.",
                hint="Use up to 128 letters, digits and ._@:+- and begin with a letter or digit.",
            )
    for table, given in names.items():
        twice = next((name for name in given if given.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"There are two {table}s called {twice}.", hint="Give each a name of its own.")


def _check_values(config: GatewayConfig) -> None:
    sizes = {
        "server.body_limit": config.server.body_limit,
        "engine.kv_memory": (config.engine or EngineTable()).kv_memory,
        "answers.max_bytes": config.answers.max_bytes,
    }
    for place, size in sizes.items():
        try:
            parse_bytes(size)
        except UsageError as error:
            raise UsageError(f"{place}: {error.message}", hint=error.hint) from None
    for index, replica in enumerate(config.replica):
        _check_addresses(f"replica[{index}]", replica)
    if config.metering.otlp_endpoint:
        _check_url("metering.otlp_endpoint", config.metering.otlp_endpoint)
    if not config.health.path.startswith("/"):
        raise UsageError(f"health.path is {config.health.path!r}.", hint="Begin it with a slash, such as /health.")
    known = [step.value for step in Step]
    for step in config.canonical.steps:
        if step not in known:
            raise UsageError(f"canonical.steps has {step!r}.", hint=near(step, known, "The steps are"))


def _check_addresses(place: str, replica: ReplicaTable) -> None:
    _check_url(f"{place}.url", replica.url)
    if urlsplit(replica.url).path.rstrip("/").endswith("/v1"):
        raise UsageError(f"{place}.url ends with /v1.", hint="Leave that out: clients' paths are put behind it.")
    for key, endpoint in (("events", replica.events), ("replay", replica.replay)):
        if endpoint and not _ENDPOINT.fullmatch(endpoint):
            raise UsageError(f"{place}.{key} is no ZMQ endpoint.", hint="Write one such as tcp://127.0.0.1:5557.")
    if replica.replay and not replica.events:
        raise UsageError(f"{place}.replay needs events.", hint="Add the endpoint of its events.")


def _check_url(place: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole:
        raise UsageError(f"{place} is no address of a server.", hint="Write one such as http://127.0.0.1:8001.")
    if parts.username or parts.password:
        raise UsageError(f"{place} has a user or password in it.", hint="Secrets never stand in the file.")
    if parts.query or parts.fragment:
        raise UsageError(f"{place} has more than host, port and path.", hint="Leave out what begins with ? or #.")


def _check_references(config: GatewayConfig) -> None:
    known = [group.name for group in config.groups]
    named = [(f"tenant[{index}].group", table.group) for index, table in enumerate(config.tenant)]
    named += [(f"replica[{index}].groups", name) for index, table in enumerate(config.replica) for name in table.groups]
    for place, name in named:
        if name not in known:
            raise UsageError(f"{place} names the unknown group {name!r}.", hint=near(name, known, "Known are"))
    if config.answers.mode != "off" and config.answers.store == "redis" and config.redis is None:
        raise UsageError("answers.store is redis, but there is no table redis.", hint="Add [redis] with its url.")
    if not config.has_engine and all(replica.role == "prefill" for replica in config.replica):
        raise UsageError(
            "All replicas have the role prefill, so that none is there to answer.",
            hint='Give one or more the role "decode" or "both".',
        )
    if config.routing.policy == "exact" and not config.has_engine and not any(r.events for r in config.replica):
        raise UsageError(
            "routing.policy is exact, but no replica has events.", hint="Add events to replicas, or use prefix_hash."
        )


def _check_access(config: GatewayConfig) -> None:
    access = config.access
    hashes = [
        (f"tenant[{index}].key_hashes[{position}]", hashed)
        for index, table in enumerate(config.tenant)
        for position, hashed in enumerate(table.key_hashes)
    ]
    seen: dict[str, str] = {}
    for place, hashed in hashes:
        if not is_key_hash(hashed):  # which may be a key, so it is not shown
            raise UsageError(
                f"{place} is not sha256: and 64 hexadecimal digits in lower case.",
                hint="`prefold tenant-key NAME` makes a key and its hash.",
            )
        if hashed in seen:
            raise UsageError(f"{place} is the same as {seen[hashed]}.", hint="Give each tenant keys of its own.")
        seen[hashed] = place
    if access.by == "key" and not hashes:
        raise UsageError(
            "access.by is key, but no tenant has one.", hint="`prefold tenant-key NAME` makes a key and its table."
        )
    if access.by == "header" and not _HEADER.fullmatch(access.header):
        raise UsageError(
            f"access.header is {access.header!r}.", hint="Write a name such as x-prefold-tenant: letters, digits, -."
        )
    if access.by == "jwt" and access.jwt is None:
        raise UsageError("access.by is jwt, but there is no table access.jwt.", hint="Say how tokens are signed.")
    private = next((group for group in config.group if group.isolation is not Isolation.SHARED), None)
    if access.by == "open" and private is not None:
        raise UsageError(
            f"The group {private.name} is {private.isolation.value}, but access.by is open: nobody is told apart.",
            hint="Set access.by to key, header or jwt.",
        )


def _in_force(group: GroupTable, config: GatewayConfig) -> GroupTable:
    """A group with the isolation that its replicas can give it."""
    if group.isolation is not Isolation.SHARED_SYSTEM:
        return group
    other = next((replica for replica in config.replicas_of(group) if replica.kind is not Kind.PREFOLD), None)
    if other is None:
        return group
    _logger.warning(
        "Group %s is isolated, not shared-system: replica %s (%s) takes no salt that begins behind the system's part.",
        group.name,
        other.name,
        other.kind.value,
    )
    return msgspec.structs.replace(group, isolation=Isolation.ISOLATED)


def _groups_in_use(config: GatewayConfig) -> Iterator[GroupTable]:
    """Groups that somebody may belong to; every name without a table belongs to `default`."""
    anybody = config.access.by != "key" or any(table.group == DEFAULT_GROUP for table in config.tenant)
    for group in config.groups:
        if group.name != DEFAULT_GROUP or anybody or group in config.group:
            yield group


def _check_isolation(group: GroupTable, config: GatewayConfig, environ: Mapping[str, str]) -> None:
    replicas = config.replicas_of(group)
    named = [replica for replica in config.replica if group.name in replica.groups]
    if group.isolation is Isolation.DEDICATED:
        mixed = next((replica for replica in named if replica not in replicas), None)
        if mixed is not None:
            raise UsageError(
                f"The replica {mixed.name} is for the dedicated group {group.name} and for others.",
                hint="Let its groups name that one alone.",
            )
    if not replicas and not config.engine_serves(group):
        raise UsageError(
            f"The group {group.name} has no replica.", hint=f'Write groups = ["{group.name}"] at one or more of them.'
        )
    if group.isolation is Isolation.SHARED:
        return
    if config.access.salt_secret is None:
        raise UsageError(
            f"The group {group.name} is {group.isolation.value}, but there is no access.salt_secret.",
            hint='Write salt_secret = { env = "NAME" }, and set that to what `openssl rand -hex 32` prints.',
        )
    if len(_read("access.salt_secret", config.access.salt_secret.read, environ)) < SHORTEST_SECRET:
        raise UsageError(
            f"access.salt_secret is shorter than {SHORTEST_SECRET} characters.",
            hint="Use what `openssl rand -hex 32` prints.",
        )
    if group.isolation is not Isolation.DEDICATED:
        for replica in replicas:
            _check_salted(group, replica)


def _check_salted(group: GroupTable, replica: ReplicaTable) -> None:
    """Refuse a replica that would mix what tenants of a group have."""
    if not takes_salt(replica.kind):
        raise UsageError(
            f"The group {group.name} is {group.isolation.value}, but the replica {replica.name}"
            f" ({replica.kind.value}) takes no salt.",
            hint=f"Let the groups of {replica.name} leave it out, or make it dedicated: its tenants then share.",
        )
    if "anthropic" in replica.dialects and not takes_salt(replica.kind, Api.MESSAGES):
        raise UsageError(
            f"The group {group.name} is {group.isolation.value}, but {replica.kind.value} drops salts at /v1/messages.",
            hint=f'Write speaks = ["openai"] at the replica {replica.name}: requests are then translated.',
        )


def _check_secrets(config: GatewayConfig, environ: Mapping[str, str]) -> None:
    for index, replica in enumerate(config.replica):
        if replica.api_key is not None:
            _read(f"replica[{index}].api_key", replica.api_key.read, environ)
    if config.redis is not None:
        _check_redis(config.redis, environ)
    if config.access.salt_secret is not None:
        _read("access.salt_secret", config.access.salt_secret.read, environ)
    if config.access.by == "jwt" and config.access.jwt is not None:
        _read("access.jwt.key", config.access.jwt.key.read, environ)
    Access(config, environ)


def _check_redis(options: RedisOptions, environ: Mapping[str, str]) -> None:
    parts = urlsplit(_read("redis.url", options.address, environ))
    if parts.scheme not in _REDIS_SCHEMES:
        raise UsageError(
            "redis.url is no address of a Redis or Valkey.", hint="Write one such as redis://127.0.0.1:6379/0."
        )
    if isinstance(options.url, str) and parts.password:
        raise UsageError("redis.url has a password in it.", hint='Write url = { env = "NAME" } instead.')


def _read(place: str, read: Callable[[Mapping[str, str]], str], environ: Mapping[str, str]) -> str:
    try:
        return read(environ)
    except UsageError as error:
        raise UsageError(f"{place}: {error.message}", hint=error.hint) from None
