"""Names, keys and salts of tenants. Pure.

Keys are kept as SHA-256 digests. That is enough for keys of 256 random bits, as `prefold tenant-key` makes them: nobody
finds those by trying.
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256

from prefold.gateway.config import GroupTable, Isolation

SHORTEST_SECRET = 32
"""Characters that the secret for salts has at least: 128 bits, where they are hexadecimal digits."""

_HASH_PREFIX = "sha256:"
_KEY_HASH = re.compile(rf"{_HASH_PREFIX}[0-9a-f]{{64}}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:+-]{0,127}")
_SALT_LABEL = "prefold/salt/1"


def hash_key(key: bytes) -> str:
    """A tenant's key as configuration files name it: `sha256:` and 64 hexadecimal digits."""
    return _HASH_PREFIX + sha256(key).hexdigest()


def is_key_hash(text: str) -> bool:
    """Whether a text is what `hash_key` makes."""
    return _KEY_HASH.fullmatch(text) is not None


def is_tenant_name(name: str) -> bool:
    """Whether tenants can be called so: up to 128 letters, digits and `._@:+-`, a letter or digit first.

    Names go into logs, metrics and keys of stores.
    """
    return _NAME.fullmatch(name) is not None


def derived_salt(secret: str, tenant: str, group: GroupTable) -> str | None:
    """What keeps the prefixes of a tenant apart, 64 hexadecimal digits; None where its group shares.

    A dedicated group has one salt for all its tenants: they share its replicas with nobody but each other.

    Args:
        secret: the gateway's.
        tenant: name of the tenant.
        group: its group.
    """
    match group.isolation:
        case Isolation.SHARED:
            return None
        case Isolation.DEDICATED:
            owner = f"group\0{group.name}"
        case _:
            owner = f"tenant\0{tenant}"
    return hmac.digest(secret.encode(), f"{_SALT_LABEL}\0{owner}".encode(), sha256).hex()
