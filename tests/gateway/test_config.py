"""Configuration files: what is read, what is refused and how that is said."""

import json
import logging
import re

import pytest

from prefold.errors import UsageError
from prefold.gateway.config import GatewayConfig, Isolation, Kind, Secret
from prefold.gateway.load_config import load_config

SALT = "0123456789abcdef0123456789abcdef"
ENVIRON = {"SALT": SALT, "KEY": "upstream-key", "JWT": "a-secret-that-is-long-enough-for-hs256", "EMPTY": " "}
HASHES = ["sha256:" + digit * 64 for digit in "0123456789abcdef"]

REPLICA = """
[[replica]]
name = "one"
url = "http://127.0.0.1:8001"
"""
PRIVATE = f"""
[access]
by = "key"
salt-secret = {{ env = "SALT" }}
[[group]]
name = "private"
isolation = "isolated"
[[tenant]]
name = "acme"
group = "private"
key-hashes = ["{HASHES[0]}"]
"""


def load(tmp_path, text, environ=ENVIRON):
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    return load_config(path, environ)


def fault(tmp_path, text, environ=ENVIRON):
    with pytest.raises(UsageError) as error:
        load(tmp_path, text, environ)
    path = str(tmp_path / "gateway.toml")
    assert error.value.message.startswith(path)
    assert error.value.hint
    for secret in (SALT, ENVIRON["JWT"], ENVIRON["KEY"]):
        assert secret not in str(error.value)
    return str(error.value).removeprefix(f"{path}: ")


def test_an_empty_file_is_the_default(tmp_path):
    config = load(tmp_path, "")
    assert GatewayConfig() == config
    assert config.has_engine
    assert ["default"] == [group.name for group in config.groups]


def test_a_whole_file(tmp_path):
    (tmp_path / "key").write_text("from-a-file\n")
    config = load(
        tmp_path,
        f"""
        [server]
        port = 9000
        drain-seconds = 5
        body_limit = "1MiB"
        [[replica]]
        name = "big"
        url = "http://10.0.0.1:8000"
        kind = "vllm"
        models = ["m"]
        api-key = {{ file = "{tmp_path / "key"}" }}
        events = "tcp://10.0.0.1:5557"
        replay = "tcp://10.0.0.1:5558"
        [[replica]]
        name = "small"
        url = "https://example.org/base"
        kind = "llamacpp"
        groups = ["default"]
        [routing]
        policy = "exact"
        [redis]
        url = "redis://127.0.0.1:6379/1"
        [answers]
        mode = "on"
        store = "redis"
        [canonical]
        on = true
        steps = ["tool_order"]
        {PRIVATE}
        """,
    )
    assert (9000, 5.0, "1MiB") == (config.server.port, config.server.drain_seconds, config.server.body_limit)
    big, small = config.replica
    assert (Kind.VLLM, ("openai", "anthropic")) == (big.kind, big.dialects)
    assert ("openai",) == small.dialects
    assert "from-a-file" == big.api_key.read({})
    assert (big,) == config.replicas_of(config.group_named("private"))
    assert (big, small) == config.replicas_of(config.group_named("default"))
    assert not config.has_engine
    assert "redis://127.0.0.1:6379/1" == config.redis.address({})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[servr]\n", ["servr is unknown", "Did you mean server"]),
        ("[server]\nprot = 1", ["server.prot is unknown", "port"]),
        ("[server]\nzzz = 1", ["server.zzz is unknown", "Known here are host, port"]),
        ("[redis]\nurl = { envv = 'X' }", ["redis.url.envv is unknown", "env"]),
        ("[server]\nport = 'x'", ["server.port", "a whole number from 0 to 65535"]),
        ("[server]\nport = true", ["server.port"]),
        ("[server]\ndrain-seconds = 0", ["server.drain_seconds", "a number above 0"]),
        ("[server]\ndrain-seconds = nan", ["server.drain_seconds", "a number above 0"]),
        ("[engine]\nthreads = 0", ["engine.threads", "a whole number of 1 or more"]),
        ("[canonical]\non = 1", ["canonical.on", "true or false"]),
        ("[routing]\npolicy = 'exakt'", ["routing.policy is 'exakt'", '"round_robin" or "sticky"']),
        (REPLICA + "kind = 'vlm'", ["replica[0].kind is 'vlm'", '"prefold", "vllm"']),
        (REPLICA + "speaks = ['openai', 'x']", ["replica[0].speaks[1] is 'x'"]),
        (REPLICA + "data-parallel-size = 65", ["replica[0].data_parallel_size", "a whole number from 1 to 64"]),
        (REPLICA + "models = 'm'", ["replica[0].models", "a list of items, each a text in quotes"]),
        ("[[replica]]\nname = 'a'", ["replica[0].url is missing", "a text in quotes"]),
        ("[replica]\nname = 'a'", ["replica has", "[[...]]"]),
        ("server = 5", ["server has", "a table"]),
        ("[access]\nsalt-secret = '" + SALT + "'", ["access.salt_secret", '{ env = "NAME" }']),
        ("[server]\ndrain-seconds = 1\ndrain_seconds = 1", ["server.drain_seconds is there twice"]),
        ("[server\n", ["is not valid TOML"]),
    ],
)
def test_what_a_table_cannot_say(tmp_path, text, expected):
    said = fault(tmp_path, text)
    for part in expected:
        assert part in said


def test_no_file(tmp_path):
    with pytest.raises(UsageError, match=r"nothing\.toml cannot be read"):
        load_config(tmp_path / "nothing.toml", {})


def replica(name="one", url="http://127.0.0.1:8001", **keys):
    lines = [f"{key} = {json.dumps(value)}" for key, value in {"name": name, "url": url, **keys}.items()]
    return "\n".join(["[[replica]]", *lines, ""])


def tenant(name, *hashes, group="default"):
    return f'[[tenant]]\nname = "{name}"\ngroup = "{group}"\nkey_hashes = {json.dumps(hashes)}\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (replica() + replica(), "two replicas called one"),
        (replica("a b"), "'a b'"),
        (replica("engine") + "[engine]", "two replicas called engine"),
        ("[engine]\nname = ''", "replica ''"),
        ("[[group]]\nname = 'a'\n[[group]]\nname = 'a'", "two groups called a"),
        (tenant("a") + tenant("a"), "two tenants called a"),
        (tenant("a b"), "'a b'"),
        ("[[group]]\nname = 'gold'\n" + tenant("a", group="golt"), "tenant[0].group.*'golt'.*gold"),
        (replica(groups=["x"]), "replica[0].groups.*'x'.*default"),
        (replica(url="127.0.0.1:80"), "replica[0].url"),
        (replica(url="http://"), "replica[0].url"),
        (replica(url="ftp://a"), "replica[0].url"),
        (replica(url="http://a:99999"), "replica[0].url"),
        (replica(url="http://[::1"), "replica[0].url"),
        (replica(url="http://u:p4ss@a"), "user or password"),
        (replica(url="http://a/v1/"), "/v1"),
        (replica(url="http://a?x=1"), "replica[0].url"),
        (replica(events="127.0.0.1:5557"), "replica[0].events"),
        (replica(events="tcp://a:1", replay="udp://a"), "replica[0].replay"),
        (replica(replay="tcp://a:1"), "replica[0].replay needs events"),
        ("[server]\nbody_limit = '5 apples'", "server.body_limit"),
        ("[answers]\nmax_bytes = 'x'", "answers.max_bytes"),
        ("[engine]\nkv_memory = 'x'", "engine.kv_memory"),
        ("[health]\npath = 'health'", "health.path"),
        ("[metering]\notlp_endpoint = 'collector'", "metering.otlp_endpoint"),
        ("[canonical]\nsteps = ['tool-order']", "canonical.steps has 'tool-order'.*tool_order"),
        ("[answers]\nmode = 'on'\nstore = 'redis'", "answers.store.*redis"),
        ("[redis]\nurl = 'http://a'", "redis.url"),
        ("[redis]\nurl = 'redis://:p4ss@a'", "redis.url has a password"),
        ("[redis]\nurl = { env = 'KEY' }", "redis.url"),
        (replica() + "[routing]\npolicy = 'exact'", "routing.policy"),
        ("[access]\nby = 'key'", "access.by is key"),
        ("[access]\nby = 'header'\nheader = 'a b'", "access.header"),
        ("[access]\nby = 'jwt'", "access.jwt"),
        ("[access]\nby = 'jwt'\n[access.jwt]\nkey = { env = 'JWT' }\nalgorithms = ['none']", "access.jwt.algorithms"),
        ("[access]\nby = 'jwt'\n[access.jwt]\nkey = { env = 'SALT' }\nalgorithms = ['HS512']", "access.jwt.key is too"),
        ("[access]\nby = 'jwt'\n[access.jwt]\nkey = { env = 'EMPTY' }", "access.jwt.key: .*EMPTY is empty"),
        ("[access]\nsalt-secret = { env = 'NO' }", "access.salt_secret: .*NO is empty"),
        ("[access]\nsalt-secret = { env = 'SALT', file = 'x' }", "access.salt_secret: .*both"),
        ("[access]\nsalt-secret = {}", "access.salt_secret: .*neither"),
        ("[access]\nsalt-secret = { file = '/no/such/file' }", "access.salt_secret: .*/no/such/file"),
        (replica() + "[replica.api_key]\nenv = 'NO'", "replica[0].api_key"),
        (tenant("a", "sha256:short"), "tenant[0].key_hashes[0]"),
        (tenant("a", SALT), "tenant[0].key_hashes[0]"),
        (tenant("a", HASHES[1]) + tenant("b", HASHES[2], HASHES[1]), "tenant[1].key_hashes[1].*tenant[0]"),
    ],
)  # fmt: skip
def test_what_tables_cannot_say_together(tmp_path, text, expected):
    said = fault(tmp_path, text)
    assert "p4ss" not in said
    assert re.search(expected.replace("[", r"\["), said, re.DOTALL), said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PRIVATE.replace('salt-secret = { env = "SALT" }', "") + replica(kind="vllm"), "no access.salt_secret"),
        (PRIVATE.replace('"SALT"', '"KEY"') + replica(kind="vllm"), "access.salt_secret is shorter than 32"),
        (PRIVATE.replace('by = "key"', 'by = "open"') + replica(kind="vllm"), "access.by is open"),
        (PRIVATE + replica(kind="vllm") + replica("two", kind="llamacpp"), "two (llamacpp) takes no salt"),
        (PRIVATE + replica(kind="llamacpp", groups=["private"]), "one (llamacpp) takes no salt"),
        (PRIVATE + replica(kind="sglang", speaks=["openai", "anthropic"]), "sglang drops salts at /v1/messages"),
        (PRIVATE + replica(kind="vllm", groups=["default"]), "group private has no replica"),
        (PRIVATE.replace("isolated", "dedicated"), "group private has no replica"),
        (PRIVATE.replace("isolated", "dedicated") + replica(), "group private has no replica"),
        (
            PRIVATE.replace("isolated", "dedicated")
            + replica(groups=["private"])
            + replica("two", groups=["private", "default"]),
            "replica two is for the dedicated group private and for others",
        ),
        (PRIVATE + tenant("bob", HASHES[1]) + replica(kind="vllm", groups=["private"]), "group default has no replica"),
    ],
)
def test_isolation_that_would_not_hold(tmp_path, text, expected):
    assert expected in fault(tmp_path, text)


def test_isolation_that_holds(tmp_path):
    mixed = PRIVATE + replica(kind="sglang") + replica("two", kind="openai", groups=["default"])
    config = load(tmp_path, mixed)
    assert ["one"] == [each.name for each in config.replicas_of(config.group_named("private"))]
    own = load(tmp_path, PRIVATE.replace("isolated", "dedicated") + replica(kind="llamacpp", groups=["private"]))
    private = own.group_named("private")
    assert ["one"] == [each.name for each in own.replicas_of(private)]
    assert not own.engine_serves(private)
    embedded = load(tmp_path, PRIVATE)
    assert not embedded.engine_serves(private)
    assert embedded.engine_serves(embedded.group_named("private"))


def test_a_shared_system_needs_engines_that_can_share_it(tmp_path, caplog):
    text = PRIVATE.replace("isolated", "shared-system")
    with caplog.at_level(logging.WARNING):
        config = load(tmp_path, text + replica(kind="prefold"))
    assert Isolation.SHARED_SYSTEM is config.group_named("private").isolation
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        config = load(tmp_path, text + replica(kind="prefold") + replica("two", kind="vllm"))
    assert Isolation.ISOLATED is config.group_named("private").isolation
    assert "private is isolated, not shared-system: replica two (vllm)" in caplog.text


def test_what_is_shown_holds_no_secret(tmp_path):
    text = PRIVATE + replica(kind="vllm") + '[replica.api_key]\nenv = "KEY"\n[redis]\nurl = { env = "REDIS" }'
    shown = load(tmp_path, text, {**ENVIRON, "REDIS": "redis://:p4ss@127.0.0.1"}).redacted()
    written = json.dumps(shown)
    for secret in (SALT, "upstream-key", "p4ss", HASHES[0]):
        assert secret not in written
    assert 1 == shown["tenant"][0]["key_hashes"]
    assert {"env": "KEY", "file": ""} == shown["replica"][0]["api_key"]
    assert "isolated" == shown["group"][0]["isolation"]


def test_secrets_lose_the_space_around_them(tmp_path):
    assert "upstream-key" == Secret(env="A").read({"A": " upstream-key\n"})
