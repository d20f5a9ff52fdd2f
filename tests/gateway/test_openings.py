"""What a reload may not do, as a function of two configurations."""

from __future__ import annotations

import pytest

from prefold.errors import UsageError
from prefold.gateway.config import (
    AccessOptions,
    GatewayConfig,
    GroupTable,
    Isolation,
    JwtOptions,
    ReplicaTable,
    Secret,
    TenantTable,
)
from prefold.gateway.openings import check_reload

URL = "http://127.0.0.1:1"
LEVELS = ("shared", "shared-system", "isolated", "dedicated")
TOKENS = AccessOptions(by="jwt", jwt=JwtOptions(key=Secret(env="K"), audience="here", issuer="us"))


def config(*, access: AccessOptions | None = None, **tables: object) -> GatewayConfig:
    replica = (ReplicaTable(name="a", url=URL, groups=("default",)),)
    return GatewayConfig(**{"replica": replica, "access": access or AccessOptions(by="header"), **tables})


def complaint(running: GatewayConfig, wanted: GatewayConfig) -> str:
    try:
        check_reload(running, wanted)
    except UsageError as error:
        return error.message
    return ""


@pytest.mark.parametrize("old", LEVELS)
@pytest.mark.parametrize("new", LEVELS)
def test_levels(old: str, new: str) -> None:
    before, after = (config(group=(GroupTable(name="default", isolation=Isolation(level)),)) for level in (old, new))
    may = old == new or old == "shared" or (old, new) == ("shared-system", "isolated")
    assert may == (complaint(before, after) == "")


def test_a_tenant_without_its_table_is_one_of_the_default_group() -> None:
    groups = (GroupTable(name="apart", isolation=Isolation.ISOLATED),)
    tenants = tuple(TenantTable(name=name, group="apart") for name in ("ann", "bob", "cy"))
    told = complaint(config(group=groups, tenant=tenants), config(group=groups, tenant=tenants[:1]))
    assert "isolation is shared, and was isolated, for tenant bob and 1 more" in told
    assert "" == complaint(config(group=groups, tenant=tenants[:1]), config(group=groups, tenant=tenants))


def test_a_new_table_may_not_open_what_the_default_group_closed() -> None:
    groups = (GroupTable(name="default", isolation=Isolation.ISOLATED), GroupTable(name="loose"))
    told = complaint(config(group=groups), config(group=groups, tenant=(TenantTable(name="ann", group="loose"),)))
    assert "for tenant ann" in told


@pytest.mark.parametrize(
    ("access", "told"),
    [
        (TOKENS, ""),
        (AccessOptions(by="jwt", jwt=JwtOptions(key=Secret(env="L"), audience="there", issuer="us")), ""),
        (AccessOptions(by="jwt", jwt=JwtOptions(key=Secret(env="K"), audience="here")), "access.jwt.issuer is gone"),
        (AccessOptions(by="jwt", jwt=JwtOptions(key=Secret(env="K"), issuer="us")), "access.jwt.audience is gone"),
        (
            AccessOptions(by="jwt", jwt=JwtOptions(key=Secret(env="K"), audience="here", issuer="us", claim="name")),
            "access.jwt.claim is another one",
        ),
        (AccessOptions(by="header"), "access.by is header, and was jwt"),
        (AccessOptions(), "access.by is open, and was jwt"),
    ],
)
def test_tokens(access: AccessOptions, told: str) -> None:
    found = complaint(config(access=TOKENS), config(access=access))
    assert told in found
    assert bool(told) == bool(found)


def test_another_header_is_one_that_clients_may_set() -> None:
    before, same, after = (config(access=AccessOptions(by="header", header=name)) for name in ("x-a", "X-A", "x-b"))
    assert "" == complaint(before, same)
    assert "access.header" in complaint(before, after)


def test_a_replica_for_some_is_not_for_all_later() -> None:
    def of(*groups: str) -> GatewayConfig:
        return config(replica=(ReplicaTable(name="a", url=URL, groups=groups),), group=(GroupTable(name="more"),))

    assert "replica a is for all groups" in complaint(of("default"), of())
    assert "" == complaint(of(), of("default")) + complaint(of("default"), of("default", "more"))
