"""Who sends a request: by a key, a header or a signed token."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import jwt
from jwt.algorithms import get_default_algorithms

from prefold.errors import UsageError
from prefold.gateway.call import Tenant
from prefold.gateway.config import DEFAULT_GROUP, DEFAULT_TENANT, GatewayConfig, JwtOptions
from prefold.gateway.tenants import derived_salt, hash_key, is_tenant_name
from prefold.server.asgi import HttpError

_Headers = Mapping[bytes, bytes]

_AUTHORIZATION = b"authorization"
_API_KEY = b"x-api-key"


class Access:
    """Names the tenant of a request by its headers.

    Args:
        config: checked.
        environ: where secrets are.

    Attributes:
        credentials: names of the headers that are meant for the gateway alone, and must not go upstream.

    Raises:
        UsageError: if a secret cannot be read, or a token's key does not fit its algorithms.
    """

    def __init__(self, config: GatewayConfig, environ: Mapping[str, str]) -> None:
        options = config.access
        self._config = config
        self._secret = options.salt_secret.read(environ) if options.salt_secret is not None else ""
        self._groups = {tenant.name: config.group_named(tenant.group) for tenant in config.tenant}
        self._tenant_of: Callable[[_Headers], Tenant]
        self.credentials = frozenset({_AUTHORIZATION, _API_KEY})
        match options.by:
            case "key":
                hashes = {hashed: table.name for table in config.tenant for hashed in table.key_hashes}
                self._tenant_of = _Keys({hashed: self._tenant(name) for hashed, name in hashes.items()})
            case "jwt":
                claim_of = _Tokens(options.jwt, environ)
                self._tenant_of = lambda headers: self._tenant(claim_of(headers))
            case "header":
                header = options.header.lower().encode()
                self._tenant_of = lambda headers: self._tenant(_name_in(headers, header))
                self.credentials = frozenset({header})
            case "open":
                everybody = self._tenant(DEFAULT_TENANT)
                self._tenant_of = lambda _headers: everybody
                self.credentials = frozenset()

    def tenant_of(self, headers: Mapping[bytes, bytes]) -> Tenant:
        """Who sends a request.

        Args:
            headers: of the request, names in lower case.

        Raises:
            HttpError: 401 if they do not say, or not truthfully.
        """
        return self._tenant_of(headers)

    def _tenant(self, name: str) -> Tenant:
        """A tenant by name; one without a table belongs to the group `default`."""
        group = self._groups.get(name) or self._config.group_named(DEFAULT_GROUP)
        return Tenant(name, group, derived_salt(self._secret, name, group))


class _Keys:
    """Tenants by the hashes of their keys.

    Hashes are looked up under a random key that only this process has: how long a comparison takes says nothing about
    how much of a hash was right.
    """

    def __init__(self, tenants: Mapping[str, Tenant]) -> None:
        self._blind = secrets.token_bytes(32)
        self._tenants = {self._blinded(hashed): tenant for hashed, tenant in tenants.items()}

    def __call__(self, headers: _Headers) -> Tenant:
        tenant = self._tenants.get(self._blinded(hash_key(_credential(headers))))
        if tenant is None:
            raise _refused("The API key is not known here", hint="check it, or ask the gateway's operator for one")
        return tenant

    def _blinded(self, hashed: str) -> bytes:
        return hmac.digest(self._blind, hashed.encode(), sha256)


class _Tokens:
    """Names of tenants in signed tokens (RFC 7519)."""

    def __init__(self, options: JwtOptions | None, environ: Mapping[str, str]) -> None:
        if options is None:
            raise UsageError("access.by is jwt, but there is no table access.jwt.", hint="say how tokens are signed")
        self._key = _token_key(options, environ)
        self._algorithms = list(options.algorithms)
        self._claim = options.claim
        self._audience = options.audience or None
        self._issuer = options.issuer or None

    def __call__(self, headers: _Headers) -> str:
        try:
            claims = jwt.decode(
                _credential(headers),
                self._key,
                algorithms=self._algorithms,
                audience=self._audience,
                issuer=self._issuer,
                options={"require": ["exp", self._claim], "verify_aud": self._audience is not None},
            )
        except jwt.ExpiredSignatureError:
            raise _refused("The token has expired", hint="get a new one") from None
        except jwt.InvalidTokenError:
            raise _refused("The token is not valid here", hint="check who signed it, and for whom") from None
        name = claims[self._claim]
        if not isinstance(name, str) or not is_tenant_name(name):
            raise _refused("The token names no tenant", hint=f"its claim {self._claim} must be a name")
        return name


def _token_key(options: JwtOptions, environ: Mapping[str, str]) -> Any:
    """The key of tokens, as their algorithms take it."""
    text = options.key.read(environ)
    known = get_default_algorithms()
    allowed = ", ".join(sorted(known.keys() - {"none"}))
    shared = {name.startswith("HS") for name in options.algorithms}
    if len(shared) != 1:
        # Were both there, a public key, which everybody may know, could be taken for a shared secret.
        raise UsageError(
            "access.jwt.algorithms has none, or mixes signatures with shared secrets.", hint=f"name some of {allowed}"
        )
    key: Any = None
    for name in options.algorithms:
        if name == "none" or name not in known:
            raise UsageError(f"access.jwt.algorithms has {name!r}.", hint=f"known here are {allowed}")
        try:
            key = known[name].prepare_key(text)
        except (jwt.InvalidKeyError, ValueError, TypeError):
            raise UsageError(f"access.jwt.key is no key for {name}.", hint="give a secret, or a key in PEM") from None
        if known[name].check_key_length(key):
            raise UsageError(f"access.jwt.key is too short for {name}.", hint="RFC 7518 says how long it must be")
    return key


def _credential(headers: _Headers) -> bytes:
    """What a client shows: the key or token of `Authorization: Bearer`, or of `x-api-key`."""
    scheme, _, shown = headers.get(_AUTHORIZATION, b"").strip().partition(b" ")
    if scheme.lower() == b"bearer" and shown.strip():
        return shown.strip()
    if shown := headers.get(_API_KEY, b"").strip():
        return shown
    raise _refused("There is no API key", hint="send it as `Authorization: Bearer ...` or `x-api-key: ...`")


def _name_in(headers: _Headers, header: bytes) -> str:
    name = headers.get(header, b"").decode("latin-1").strip()
    if not is_tenant_name(name):
        raise _refused("The request names no tenant", hint=f"send its name in the header {header.decode()}")
    return name


def _refused(message: str, *, hint: str) -> HttpError:
    return HttpError(
        401, message, hint=hint, code="invalid_api_key", headers={"www-authenticate": 'Bearer realm="prefold"'}
    )
