"""Who sends, by every way of saying so."""

import time

import jwt
import pytest

from prefold.core.keys import check_salt
from prefold.errors import UsageError
from prefold.gateway.access import Access
from prefold.gateway.config import (
    AccessOptions,
    GatewayConfig,
    GroupTable,
    Isolation,
    JwtOptions,
    Secret,
    TenantTable,
)
from prefold.gateway.tenants import derived_salt, hash_key, is_key_hash, is_tenant_name
from prefold.server.asgi import HttpError

SECRET = "0123456789abcdef0123456789abcdef"
ENVIRON = {"SALT": SECRET, "JWT": "a-secret-that-is-long-enough-for-hs256"}
GROUPS = (
    GroupTable(name="private", isolation=Isolation.ISOLATED),
    GroupTable(name="own", isolation=Isolation.DEDICATED),
)
TENANTS = (
    TenantTable(name="acme", group="private", key_hashes=(hash_key(b"acme-key"), hash_key(b"acme-second"))),
    TenantTable(name="bolt", group="private", key_hashes=(hash_key(b"bolt-key"),)),
    TenantTable(name="dora", group="own", key_hashes=(hash_key(b"dora-key"),)),
    TenantTable(name="emil", group="own", key_hashes=(hash_key(b"emil-key"),)),
    TenantTable(name="free", key_hashes=(hash_key(b"free-key"),)),
)


def access(by, environ=ENVIRON, **options):
    settings = AccessOptions(by=by, salt_secret=Secret(env="SALT"), **options)
    return Access(GatewayConfig(access=settings, tenant=TENANTS, group=GROUPS), environ)


def refused(of, headers):
    with pytest.raises(HttpError) as error:
        of.tenant_of(headers)
    assert 401 == error.value.status
    assert "www-authenticate" in error.value.headers
    return str(error.value)


def test_nobody_is_asked():
    tenant = access("open").tenant_of({})
    assert ("default", "default", None) == (tenant.name, tenant.group.name, tenant.salt)
    assert frozenset() == access("open").credentials


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({b"authorization": b"Bearer acme-key"}, "acme"),
        ({b"authorization": b"bearer  acme-second "}, "acme"),
        ({b"x-api-key": b"bolt-key"}, "bolt"),
        ({b"authorization": b"Basic YTpi", b"x-api-key": b"free-key"}, "free"),
    ],
)
def test_keys(headers, name):
    of = access("key")
    assert name == of.tenant_of(headers).name
    assert set(headers) <= of.credentials


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"authorization": b"Bearer "},
        {b"authorization": b"acme-key"},
        {b"x-api-key": b"acme-ke"},
        {b"x-api-key": hash_key(b"acme-key").encode()},
        {b"authorization": b"Bearer \xff\xfe", b"x-api-key": b"acme-key"},
    ],
)
def test_wrong_keys_are_refused_and_never_shown(headers):
    shown = refused(access("key"), headers)
    assert "acme" not in shown


def test_header():
    of = access("header", header="X-Team")
    assert "private" == of.tenant_of({b"x-team": b"acme"}).group.name
    assert "default" == of.tenant_of({b"x-team": b"somebody-else"}).group.name
    assert {b"x-team"} == of.credentials
    for name in (b"", b"a b", b"a\r\nb", b"\xe9", b"a/b", b"x" * 129):
        refused(of, {b"x-team": name})
    refused(of, {})


def token(key=ENVIRON["JWT"], algorithm="HS256", **claims):
    made = {"tenant": "acme", "exp": int(time.time()) + 3_600, **claims}
    return {
        b"authorization": b"Bearer "
        + jwt.encode({name: value for name, value in made.items() if value is not None}, key, algorithm).encode()
    }


def with_tokens(**options):
    return access("jwt", jwt=JwtOptions(key=Secret(env="JWT"), **options))


def test_token():
    tenant = with_tokens().tenant_of(token(aud="whoever"))
    assert ("acme", "private") == (tenant.name, tenant.group.name)
    strict = with_tokens(claim="team", audience="gateway", issuer="us")
    assert "bolt" == strict.tenant_of(token(team="bolt", aud="gateway", iss="us")).name
    refused(strict, token(team="bolt", aud="other", iss="us"))
    refused(strict, token(team="bolt", iss="us"))
    refused(strict, token(team="bolt", aud="gateway", iss="them"))


def test_tokens_that_are_not_taken():
    of = with_tokens()
    assert "expired" in refused(of, token(exp=1))
    refused(of, token(exp=None))
    refused(of, token(key="another-secret-that-is-long-enough-x"))
    refused(of, token(key=None, algorithm="none"))
    refused(of, token(tenant=None))
    refused(of, token(tenant=5))
    refused(of, token(tenant="a b"))
    refused(of, {b"authorization": b"Bearer not.a.token"})
    refused(of, {b"authorization": b"Bearer \xff\xff"})
    refused(of, {})


def test_signed_token_and_no_public_key_as_a_secret():
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    environ = {**ENVIRON, "JWT": public.decode()}
    options = JwtOptions(key=Secret(env="JWT"), algorithms=("RS256",))
    assert "acme" == access("jwt", environ, jwt=options).tenant_of(token(private, "RS256")).name
    for algorithms in (("RS256", "HS256"), ("HS256",)):
        with pytest.raises(UsageError, match=r"access\.jwt"):
            access("jwt", environ, jwt=JwtOptions(key=Secret(env="JWT"), algorithms=algorithms))


@pytest.mark.parametrize("algorithms", [(), ("none",), ("XS256",), ("HS512",)])
def test_algorithms_that_are_not_allowed(algorithms):
    with pytest.raises(UsageError) as error:
        with_tokens(algorithms=algorithms)
    assert ENVIRON["JWT"] not in str(error.value)


def test_salts_keep_apart_what_the_group_says():
    of = access("key")
    salts = {
        name: of.tenant_of({b"x-api-key": f"{name}-key".encode()}).salt for name in ["acme", "bolt", "dora", "emil"]
    }
    assert 3 == len(set(salts.values()))
    assert salts["dora"] == salts["emil"]  # a dedicated group shares what it has
    assert None is of.tenant_of({b"x-api-key": b"free-key"}).salt
    for salt in salts.values():
        assert 64 == len(check_salt(salt))
        assert SECRET not in salt


def test_salts_are_the_same_in_every_gateway():
    """Golden: another value would empty every cache behind every gateway."""
    private, own = GROUPS
    # printf 'prefold/salt/1\\0tenant\\0acme' | openssl dgst -sha256 -hmac SECRET
    assert "ba1a1d0321ee34e412cd17b7f75477f87968b90b10c8be3711d8dc4a9d0b2c41" == derived_salt(SECRET, "acme", private)
    assert "38b5265c92e8d284584992cae39c389bb242d5dd6d87c1ee0a1d3ade84b6f6b9" == derived_salt(SECRET, "dora", own)
    assert derived_salt("x" * 32, "acme", private) != derived_salt(SECRET, "acme", private)
    # A tenant and a group of one name are two owners.
    same = GroupTable(name="acme", isolation=Isolation.DEDICATED)
    assert derived_salt(SECRET, "acme", same) != derived_salt(SECRET, "acme", private)


def test_names_and_hashes():
    assert is_tenant_name("a.b_c@d:e+f-1")
    assert not any(map(is_tenant_name, ["", "-a", "a b", "a\n", "ä", "a/b", "x" * 129]))
    assert is_key_hash(hash_key(b"k"))
    assert not any(map(is_key_hash, ["k", "sha256:", hash_key(b"k").upper(), hash_key(b"k") + "\n"]))
