"""`prefold tenant-key`: a key for a tenant of the gateway."""

from __future__ import annotations

import json

import click


@click.command("tenant-key")
@click.argument("name")
@click.option("--group", default="default", show_default=True, help="Group of the gateway's file that NAME belongs to.")
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")
def tenant_key(name: str, group: str, as_json: bool) -> None:
    """Make an API key for tenant NAME of the gateway.

    The table that the gateway's file needs goes to standard output, so that `>> gateway.toml` adds it; it has only the
    key's hash. The key is printed once, to standard error, and kept nowhere. With --json both are on standard output.
    """
    import secrets

    from prefold.errors import UsageError
    from prefold.gateway.tenants import hash_key, is_tenant_name

    for what in (name, group):
        if not is_tenant_name(what):
            raise UsageError(
                f"{what!r} cannot be a name.",
                hint="Use up to 128 letters, digits and ._@:+- and begin with a letter or digit.",
            )
    key = f"prefold-{secrets.token_urlsafe(32)}"
    hashed = hash_key(key.encode())
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "tenant": name, "group": group, "key": key, "key_hash": hashed}))
        return
    click.echo(f'\n[[tenant]]\nname = "{name}"\ngroup = "{group}"\nkey_hashes = ["{hashed}"]')
    click.echo(f"The key, for the tenant alone: {key}", err=True)
