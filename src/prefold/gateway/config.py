"""What a gateway is told: one TOML file, read into frozen objects and checked as a whole.

Keys are written with underscores or dashes. Secrets never stand in the file: each is `{ env = "NAME" }` or
`{ file = "PATH" }`, read when the file is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from prefold.core.routing import HASH_TOKENS, LOAD_BOUND, VIRTUAL_NODES
from prefold.errors import UsageError

Seconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(gt=0, lt=1)]
Dialect = Literal["openai", "anthropic"]
MeaningMode = Literal["off", "shadow", "on"]
Role = Literal["both", "prefill", "decode"]

DEFAULT_GROUP = "default"
"""Group of tenants that name none."""

DEFAULT_TENANT = "default"
"""Who sends where nobody is asked."""

JUDGE = "(judge)"
"""Who sends what the gateway itself asks, to compare answers; no tenant can be called so."""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file."""


class Kind(StrEnum):
    """What a replica is, which decides how a salt is sent and what its metrics are called."""

    PREFOLD = "prefold"
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    OTHER = "other"

    @property
    def dialects(self) -> tuple[Dialect, ...]:
        """The APIs to use where a replica's table does not say.

        SGLang and llama.cpp have Anthropic's too, but SGLang's takes no salt, and older llama.cpp lacks it.
        """
        match self:
            case Kind.ANTHROPIC:
                return ("anthropic",)
            case Kind.VLLM:
                return ("openai", "anthropic")
            case _:
                return ("openai",)


class Isolation(StrEnum):
    """What tenants of a group share with others."""

    SHARED = "shared"
    SHARED_SYSTEM = "shared-system"
    ISOLATED = "isolated"
    DEDICATED = "dedicated"


class Secret(_Table, frozen=True, kw_only=True):
    """Where a secret is. One of the two is set."""

    env: str = ""
    file: str = ""

    def read(self, environ: Mapping[str, str]) -> str:
        """Its text, without white space at the ends.

        Raises:
            UsageError: if it is not there, or empty.
        """
        if bool(self.env) == bool(self.file):
            raise UsageError("A secret has both env and file, or neither.", hint='write { env = "NAME" }')
        if self.env:
            text = environ.get(self.env, "")
        else:
            try:
                text = Path(self.file).read_text()
            except OSError as error:
                raise UsageError(f"{self.file} cannot be read: {error.strerror}.", hint="check its path") from None
        if not text.strip():
            raise UsageError(f"The secret {self.env or self.file} is empty.", hint="set it before the gateway starts")
        return text.strip()


class ServerOptions(_Table, frozen=True, kw_only=True):
    """Where clients come in. Times in seconds.

    Attributes:
        operator_host: where `/metrics` and `/prefold/...` are, which tell of all tenants.
        operator_port: likewise; without one they are beside the API where clients are not asked who they are, and
            nowhere else.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8000
    operator_host: str = "127.0.0.1"
    operator_port: Annotated[int, Meta(ge=0, le=65_535)] | None = None
    drain_seconds: Seconds = 30.0
    body_limit: str = "32MiB"
    body_seconds: Seconds = 60.0


class EngineTable(_Table, frozen=True, kw_only=True):
    """An embedded engine, in this process; there is one where no replica is named.

    Attributes:
        kv_dtype: how K and V are kept, as `prefold serve --kv-dtype`; as `dtype` says where empty.
        kernel: what the model runs on, as `prefold serve --kernel`.
        policy: who is evicted, as `prefold serve --policy`.
        pin_limit: share of the K/V memory that pins may hold.
        pin_file: what to compute and pin before clients are let in; empty for nothing.
        blend: whether marked chunks of prompts are reused wherever they stand, as `prefold serve --blend`.
        blend_recompute: share of their tokens that is computed all the same.
        blend_memory: for the K/V of chunks.
        tiers: where K/V that leaves its memory is kept, as `prefold serve --tier`.
        tier_write: when it goes there, as `prefold serve --tier-write`.
    """

    model: str = ""
    name: str = "engine"
    kv_memory: str = "2GiB"
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    kv_dtype: Literal["", "bfloat16", "float32", "int8", "int4", "fp8"] = ""
    threads: Count | None = None
    kernel: Literal["auto", "native", "torch"] = "auto"
    policy: str = "default"
    pin_limit: Annotated[float, Meta(ge=0, le=0.9)] = 0.5
    pin_file: str = ""
    blend: bool = False
    blend_recompute: Annotated[float, Meta(ge=0, le=1)] = 0.15
    blend_memory: str = "512MiB"
    tiers: tuple[str, ...] = ()
    tier_write: Literal["evict", "through"] = "evict"


class ReplicaTable(_Table, frozen=True, kw_only=True):
    """A server that answers.

    Attributes:
        name: unique; what headers and metrics call it.
        url: without /v1.
        kind: what it is.
        speaks: the APIs that it has: "openai", "anthropic", or both; what kind says where empty.
        models: names that it serves; what its /v1/models says where empty.
        api_key: sent upstream in place of the client's own.
        events: ZMQ endpoint of its KV events; empty for none.
        replay: the same of its replay socket.
        tokenizer: folder of its tokenizer and chat template, for exact routing.
        block_size: tokens of a block in its events.
        data_parallel_size: ranks of the engine, whose events come at ports that follow each other.
        groups: groups of tenants that alone may use it; all where empty.
        role: "prefill" computes long prompts for others, and answers only where nobody else can; "decode" and "both"
            answer. All share a tier, in which they find each other's K/V.
    """

    name: str
    url: str
    kind: Kind = Kind.OTHER
    speaks: tuple[Dialect, ...] = ()
    models: tuple[str, ...] = ()
    api_key: Secret | None = None
    events: str = ""
    replay: str = ""
    tokenizer: str = ""
    block_size: Count = 16
    data_parallel_size: Annotated[int, Meta(ge=1, le=64)] = 1
    groups: tuple[str, ...] = ()
    role: Role = "both"

    @property
    def dialects(self) -> tuple[Dialect, ...]:
        """The APIs that it has."""
        return self.speaks or self.kind.dialects


class RoutingOptions(_Table, frozen=True, kw_only=True):
    """How a replica is chosen.

    Attributes:
        prefill_tokens: how much of a prompt has to be new for a prefill replica to compute it first.
        prefill_seconds: longest that a call waits for that.
    """

    policy: Literal["round_robin", "least_pending", "sticky", "prefix_hash", "exact"] = "prefix_hash"
    hash_tokens: Count = HASH_TOKENS
    virtual_nodes: Count = VIRTUAL_NODES
    load_bound: Annotated[float, Meta(gt=1)] = LOAD_BOUND
    index_blocks: Count = 1_000_000
    predicted_seconds: Seconds = 2.0
    prefill_tokens: Count = 512
    prefill_seconds: Seconds = 60.0


class HealthOptions(_Table, frozen=True, kw_only=True):
    """When a replica counts as down, and as up again; and whether an engine that is seen is asked if it caches."""

    path: str = "/health"
    verify_caching: bool = True
    seconds: Seconds = 2.0
    timeout_seconds: Seconds = 2.0
    fall: Count = 3
    rise: Count = 2


class UpstreamOptions(_Table, frozen=True, kw_only=True):
    """Patience with replicas. Times in seconds."""

    connect_seconds: Seconds = 5.0
    first_byte_seconds: Seconds = 600.0
    idle_seconds: Seconds = 120.0
    retries: Annotated[int, Meta(ge=0)] = 2
    breaker_failures: Count = 5
    breaker_seconds: Seconds = 10.0
    ejection_share: Annotated[float, Meta(gt=0, le=1)] = 0.5


class JwtOptions(_Table, frozen=True, kw_only=True):
    """A token whose claim names the tenant."""

    key: Secret
    algorithms: tuple[str, ...] = ("HS256",)
    claim: str = "tenant"
    audience: str = ""
    issuer: str = ""


class TenantTable(_Table, frozen=True, kw_only=True):
    """A tenant with keys of its own, each as `sha256:` and 64 hexadecimal digits."""

    name: str
    group: str = DEFAULT_GROUP
    key_hashes: tuple[str, ...] = ()


class GroupTable(_Table, frozen=True, kw_only=True):
    """Tenants that are treated alike. Budgets are those of each tenant; None for none."""

    name: str
    isolation: Isolation = Isolation.SHARED
    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    ttft: Literal["as_it_is", "uniform"] = "as_it_is"
    jitter_seconds: Annotated[float, Meta(ge=0)] = 0.05


class AccessOptions(_Table, frozen=True, kw_only=True):
    """Who a client is: by `key` (Authorization or x-api-key), by a `header`, by a `jwt`, or not asked (`open`)."""

    by: Literal["open", "key", "header", "jwt"] = "open"
    header: str = "x-prefold-tenant"
    jwt: JwtOptions | None = None
    salt_secret: Secret | None = None


class AnswerOptions(_Table, frozen=True, kw_only=True):
    """The response cache for identical requests."""

    mode: Literal["off", "observe", "on"] = "off"
    store: Literal["sqlite", "redis"] = "sqlite"
    path: str = ""
    ttl_seconds: Seconds = 3_600.0
    every_request: bool = False
    max_bytes: str = "256MiB"


class MeaningRoute(_Table, frozen=True, kw_only=True):
    """Models for which something else holds than for all; what is left out is as for all."""

    models: tuple[str, ...]
    mode: MeaningMode | None = None
    earlier_turns: bool | None = None
    sampled: bool | None = None
    ttl_seconds: Seconds | None = None
    tags: tuple[str, ...] | None = None
    epoch: str | None = None


class MeaningOptions(_Table, frozen=True, kw_only=True):
    """Answers by meaning. Times in seconds.

    Attributes:
        mode: "off", "shadow" (learn, and serve nothing), or "on".
        force: go "on" before it is proven that few enough answers are wrong; nothing is served unproven even then.
        store: where entries are; "redis" needs the table `redis`, "postgres" an address in `postgres`.
        path: of the SQLite file.
        postgres: address of a PostgreSQL with pgvector.
        max_bytes: most that entries take.
        store_seconds: longest that a request waits for the store, at each step.
        embedder: see `make_embedder`.
        embed_seconds: longest that a request waits for a vector.
        verifier: what looks at two questions before one is answered for the other: "onnx:FOLDER", "model:NAME" (a
            model behind this gateway), or nothing.
        verify_seconds: longest that a request waits for it.
        judge: a model behind this gateway that compares answers afterwards; empty for equal words only.
        judgements_per_minute: how often it is asked at most.
        max_wrong: share of served answers that may be wrong.
        audit_share: share of would-be hits that goes to the model for ever.
        ttl_seconds: from an answer on; hits do not prolong it.
        principals: independent ones that must have got an answer before others are served it.
        inserts_per_minute: entries that one principal may add.
        principal: who counts as one: the tenant, the end user that a request names, or what a header says.
        principal_header: its name.
        earlier_turns: also answer requests with turns before the last one.
        sampled: also those whose answer is left to chance.
        personal: also questions about the asker.
        time_bound: also questions whose answer changes with the day.
        shared: also from what an administrator shared with all tenants.
        epoch: of what else answers depend on; what was kept in another one is not seen.
        tags: by which entries can be invalidated.
        route: models for which something else holds.
    """

    mode: MeaningMode = "shadow"
    force: bool = False
    store: Literal["sqlite", "redis", "postgres"] = "sqlite"
    path: str = ""
    postgres: Secret | None = None
    max_bytes: str = "1GiB"
    store_seconds: Seconds = 0.1
    embedder: str = "minilm"
    embed_seconds: Seconds = 0.05
    verifier: str = ""
    verify_seconds: Seconds = 0.2
    judge: str = ""
    judgements_per_minute: Annotated[float, Meta(gt=0)] = 30.0
    max_wrong: Share = 0.005
    audit_share: Share = 0.03
    ttl_seconds: Seconds = 86_400.0
    principals: Count = 2
    inserts_per_minute: Annotated[float, Meta(gt=0)] = 60.0
    principal: Literal["tenant", "user", "header"] = "tenant"
    principal_header: str = ""
    earlier_turns: bool = False
    sampled: bool = False
    personal: bool = False
    time_bound: bool = False
    shared: bool = False
    epoch: str = ""
    tags: tuple[str, ...] = ()
    route: tuple[MeaningRoute, ...] = ()

    def for_route(self, route: MeaningRoute) -> MeaningOptions:
        """What holds for some models."""
        given = {name: value for name in route.__struct_fields__ if (value := getattr(route, name)) is not None}
        del given["models"]
        return msgspec.structs.replace(self, **given)

    @property
    def modes(self) -> frozenset[MeaningMode]:
        """All that some model has."""
        return frozenset((self.mode, *(route.mode for route in self.route if route.mode is not None)))


class RedisOptions(_Table, frozen=True, kw_only=True):
    """A store that several gateways share."""

    url: Secret | str = "redis://127.0.0.1:6379/0"
    budget_seconds: Seconds = 0.1

    def address(self, environ: Mapping[str, str]) -> str:
        """Its URL.

        Raises:
            UsageError: if that is a secret which cannot be read.
        """
        return self.url if isinstance(self.url, str) else self.url.read(environ)


class CanonicalOptions(_Table, frozen=True, kw_only=True):
    """Whether requests are canonicalised on their way, and by which steps of `prefold canonicalize`."""

    on: bool = False
    steps: tuple[str, ...] = ()


class MeteringOptions(_Table, frozen=True, kw_only=True):
    """What is counted and written down."""

    request_log: str = ""
    bodies: Literal["no", "redacted", "whole"] = "no"
    tenants: Count = 100
    otlp_endpoint: str = ""


class GatewayConfig(_Table, frozen=True, kw_only=True):
    """All of it."""

    server: ServerOptions = ServerOptions()
    engine: EngineTable | None = None
    replica: tuple[ReplicaTable, ...] = ()
    routing: RoutingOptions = RoutingOptions()
    health: HealthOptions = HealthOptions()
    upstream: UpstreamOptions = UpstreamOptions()
    access: AccessOptions = AccessOptions()
    tenant: tuple[TenantTable, ...] = ()
    group: tuple[GroupTable, ...] = ()
    answers: AnswerOptions = AnswerOptions()
    meaning: MeaningOptions = MeaningOptions(mode="off")
    redis: RedisOptions | None = None
    canonical: CanonicalOptions = CanonicalOptions()
    metering: MeteringOptions = MeteringOptions()

    def group_named(self, name: str) -> GroupTable:
        """A group; `default` needs no table."""
        return next((group for group in self.group if group.name == name), GroupTable(name=name))

    @property
    def groups(self) -> tuple[GroupTable, ...]:
        """All groups; `default` is there always, since tenants without a table belong to it."""
        default = self.group_named(DEFAULT_GROUP)
        return self.group if default in self.group else (default, *self.group)

    @property
    def has_engine(self) -> bool:
        """Whether there is an embedded engine: where one is described, and where no replica is."""
        return self.engine is not None or not self.replica

    def replicas_of(self, group: GroupTable) -> tuple[ReplicaTable, ...]:
        """The replicas that a group's requests may go to, the embedded engine aside.

        A dedicated group has those that are for it alone. Other groups have those that name them or nobody.
        """
        if group.isolation is Isolation.DEDICATED:
            return tuple(replica for replica in self.replica if replica.groups == (group.name,))
        return tuple(replica for replica in self.replica if not replica.groups or group.name in replica.groups)

    def engine_serves(self, group: GroupTable) -> bool:
        """Whether a group's requests may go to the embedded engine, which is nobody's own."""
        return self.has_engine and group.isolation is not Isolation.DEDICATED

    def redacted(self) -> dict[str, Any]:
        """The configuration in force, as JSON that may be shown; of keys only how many there are.

        Where secrets are is no secret, and what they are is not in here.
        """
        shown: dict[str, Any] = msgspec.to_builtins(self)
        for tenant in shown["tenant"]:
            tenant["key_hashes"] = len(tenant["key_hashes"])
        return shown
