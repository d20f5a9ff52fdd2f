"""Prefill and decode in processes of their own, behind the gateway, with a tier between them."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")
pytest.importorskip("zmq")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import tokenizers  # noqa: E402 - after the checks that the engine's packages are there
from tests.gateway.engines import Engine, engine  # noqa: E402
from tests.gateway.support import PATIENCE, Reply, RunningGateway, eventually, read_until, serving  # noqa: E402

from prefold.engine.options import EngineOptions  # noqa: E402
from prefold.errors import UsageError  # noqa: E402

VOCABULARY = 200
BLOCK = 64
MODEL = "tiny"
TEMPLATE = "{% for m in messages %}w1 {{ m.content }} w2 {% endfor %}{% if add_generation_prompt %}w3 {% endif %}"
REDIS = shutil.which("redis-server")


def make_model(folder: Path, seed: int) -> Path:
    """A random model of two narrow layers, whose words are `w0` to `w199`."""
    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlamaConfig(
        **shape, vocab_size=VOCABULARY, num_key_value_heads=1, max_position_embeddings=4096, eos_token_id=0
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{n}": n for n in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("right") / MODEL, 7)


@pytest.fixture(scope="module")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("wrong") / MODEL, 8)


@contextmanager
def in_role(role: str, tier: str, model: Path) -> Iterator[Engine]:
    with engine(role, "16MiB", [str(model)], ["--role", role, "--tier", tier]) as one:
        yield one


@pytest.fixture(scope="module")
def alone(model: Path) -> Iterator[Engine]:
    """The engine that the others are compared with: it is emptied before each question."""
    with engine("alone", "16MiB", [str(model)]) as one:
        yield one


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tier")


@pytest.fixture(scope="module")
def tier(folder: Path) -> str:
    return f"disk={folder},64MiB"


@pytest.fixture(scope="module")
def decode(model: Path, tier: str) -> Iterator[Engine]:
    with in_role("decode", tier, model) as one:
        yield one


@pytest.fixture(scope="module")
def prefill(model: Path, tier: str) -> Iterator[Engine]:
    with in_role("prefill", tier, model) as one:
        yield one


@pytest.fixture
def own_prefill(model: Path, tier: str) -> Iterator[Engine]:
    """One that a test may end."""
    with in_role("prefill", tier, model) as one:
        yield one


def config_of(prefill: Engine, decode: Engine, more: str = "", at: str = "") -> str:
    tables = [
        one.table + f'role = "{role}"\nmodels = ["{MODEL}"]\n'
        for one, role in ((prefill, "prefill"), (decode, "decode"))
    ]
    routing = f'[routing]\npolicy = "prefix_hash"\nprefill_tokens = 200\n{at}\n'
    health = "[health]\nverify_caching = false\nseconds = 0.3\ntimeout_seconds = 0.3\n"
    return "\n".join([*tables, routing, health, more])


@pytest.fixture(scope="module")
def gateway(prefill: Engine, decode: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with serving(config_of(prefill, decode), tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


def words(seed: object, count: int = 700) -> str:
    dice = Random(str(seed))
    return " ".join(f"w{dice.randrange(4, VOCABULARY)}" for _ in range(count))


def ask(text: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": MODEL, "messages": messages, "max_tokens": 12, "temperature": 0, "ignore_eos": True, **more}


def right(alone: Engine, value: dict[str, Any]) -> str:
    """What an engine says that has nothing cached."""
    alone.reset()
    text: str = alone.post({**value, "stream": False})["choices"][0]["message"]["content"]
    return text


def cached(reply: Reply) -> int:
    """Tokens that the engine found, in its pool or in a tier."""
    count: int = reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]
    return count


def test_the_answer_is_that_of_one_engine(gateway: RunningGateway, alone: Engine) -> None:
    for length in (300, 700, 1_281):
        value = ask(words(f"one {length}", length))
        reply = gateway.post(value)
        assert (200, "prefill", "decode") == (
            reply.status,
            reply.headers["x-prefold-prefill"],
            reply.headers["x-prefold-replica"],
        )
        assert right(alone, value) == reply.text
        prompt = reply.json["usage"]["prompt_tokens"]
        assert prompt - BLOCK <= cached(reply) < prompt
    # The rest was computed for these calls; the template's first token was there for the second and the third.
    assert 2 == gateway.metric("llm_prefix_cache_hit_tokens_total")


def test_engines_tell_their_roles(alone: Engine, prefill: Engine, decode: Engine) -> None:
    def health(engine: Engine) -> Any:
        with urlopen(f"http://127.0.0.1:{engine.port}/health", timeout=PATIENCE) as response:
            return json.load(response)

    assert {"status": "ok"} == health(alone)
    for one in (prefill, decode):
        assert {"status": "ok", "role": one.name} == health(one)


def test_the_next_turn_needs_no_prefill(gateway: RunningGateway, alone: Engine) -> None:
    first = ask(words("turns"))
    said = gateway.post(first).text
    messages = [*first["messages"], {"role": "assistant", "content": said}, {"role": "user", "content": "w9 w8"}]
    second = {**first, "messages": messages}
    reply = gateway.post(second)
    assert "x-prefold-prefill" not in reply.headers
    assert right(alone, second) == reply.text
    assert 700 < cached(reply)


def test_streams_to_real_clients(gateway: RunningGateway, alone: Engine) -> None:
    openai, anthropic = pytest.importorskip("openai"), pytest.importorskip("anthropic")
    value = ask(words("sdk"))
    del value["ignore_eos"]
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:
        chunks = list(client.chat.completions.create(**value, stream=True))
    assert right(alone, value) == "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    message = {"model": MODEL, "messages": ask(words("message"))["messages"], "max_tokens": 12}
    with (
        anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0) as client,
        client.messages.stream(**message, extra_body={"temperature": 0}) as stream,
    ):
        assert right(alone, {**message, "temperature": 0}) == "".join(stream.text_stream)
        assert "prefill" == stream.response.headers["x-prefold-prefill"]
        usage = stream.get_final_message().usage
    assert 640 <= usage.cache_read_input_tokens


def test_a_client_that_leaves_stops_the_answer(gateway: RunningGateway) -> None:
    with gateway.asking(ask(words("leaves"), max_tokens=2_000, stream=True)) as connection:
        read_until(connection, b'"content"')
    eventually(lambda: 0 == gateway.metric("prefold_replica_pending"), "the end here")
    assert 200 == gateway.post(ask("w5")).status  # the engine is free for others


def test_tenants_share_nothing(prefill: Engine, decode: Engine, alone: Engine, tmp_path: Path) -> None:
    more = (
        '[access]\nby = "header"\nheader = "x-who"\nsalt_secret = { env = "SALT" }\n'
        '[[group]]\nname = "default"\nisolation = "isolated"\n'
        '[[tenant]]\nname = "ann"\n[[tenant]]\nname = "ben"\n'
    )
    value = ask(words("secret"))
    with serving(config_of(prefill, decode, more), tmp_path, environ={"SALT": "s" * 64}) as gateway:
        for tenant in ("ann", "ben", "ann"):
            assert right(alone, value) == gateway.post(value, x_who=tenant).text
        # Ben's prompt, equal to Ann's, was computed anew; what Ann's second one found is her own.
        assert 0 == gateway.metric("llm_prefix_cache_hit_tokens_total", tenant="ben")
        assert 640 <= gateway.metric("llm_prefix_cache_hit_tokens_total", tenant="ann")
        assert 2 == gateway.metric("prefold_prefill_seconds_count", outcome="done")


def test_an_emptied_tier_costs_time_only(gateway: RunningGateway, alone: Engine, folder: Path, decode: Engine) -> None:
    first = ask(words("emptied"))
    gateway.post(first)
    for path in folder.rglob("*.kv"):
        path.unlink()
    decode.reset()
    longer = {**first, "messages": [*first["messages"], {"role": "user", "content": words("more")}]}
    assert right(alone, longer) == gateway.post(longer).text
    fresh = ask(words("after the fire"))
    reply = gateway.post(fresh)
    assert right(alone, fresh) == reply.text
    assert 640 <= cached(reply)


def test_another_model_of_that_name_is_another_model(
    decode: Engine, alone: Engine, other_model: Path, tier: str, tmp_path: Path
) -> None:
    value = ask(words("wrong"))
    with (
        in_role("prefill", tier, other_model) as wrong,
        serving(config_of(wrong, decode), tmp_path) as gateway,
    ):
        reply = gateway.post(value)
    assert "prefill" == reply.headers["x-prefold-prefill"]
    assert 1 >= cached(reply)  # the template's first token, of its own
    assert right(alone, value) == reply.text


def test_frozen_thawed_killed(own_prefill: Engine, decode: Engine, alone: Engine, tmp_path: Path) -> None:
    def answered(seed: str) -> Reply:
        value = ask(words(seed))
        reply = gateway.post(value)
        assert right(alone, value) == reply.text
        return reply

    with serving(config_of(own_prefill, decode, at="prefill_seconds = 0.5"), tmp_path) as gateway:
        own_prefill.process.send_signal(signal.SIGSTOP)
        for number in range(3):  # late; then its checks fail, and it is not asked
            answered(f"frozen {number}")
        eventually(lambda: "down" == gateway.states["prefill"], "that it is down")
        own_prefill.process.send_signal(signal.SIGCONT)
        eventually(lambda: "up" == gateway.states["prefill"], "that it is up again")
        assert "prefill" == answered("thawed").headers["x-prefold-prefill"]
        own_prefill.process.kill()
        for number in range(3):
            answered(f"killed {number}")
        outcomes = ("late", "done", "failed", "nobody")
        late, done, *others = (gateway.metric("prefold_prefill_seconds_count", outcome=outcome) for outcome in outcomes)
        assert late >= 1
        assert done == 1
        assert sum(others) >= 3


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.1])
def test_killed_while_it_computes(
    delay: float, own_prefill: Engine, decode: Engine, alone: Engine, tmp_path: Path
) -> None:
    value = ask(words(f"killed at {delay}", 3_500))
    with (
        serving(config_of(own_prefill, decode), tmp_path) as gateway,
        gateway.asking(value) as connection,
    ):
        eventually(lambda: gateway.metric("prefold_replica_pending"), "its start")
        time.sleep(delay)
        own_prefill.process.kill()
        body = read_until(connection, b"total_tokens")
    assert right(alone, value).encode() in body


@pytest.mark.skipif(REDIS is None, reason="redis-server is not installed")
def test_through_redis(alone: Engine, model: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [str(REDIS), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    with ExitStack() as stack:
        redis = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        stack.callback(redis.wait)
        stack.callback(redis.kill)
        engines = [
            stack.enter_context(in_role(role, f"redis://127.0.0.1:{port}/0", model)) for role in ("prefill", "decode")
        ]
        gateway = stack.enter_context(serving(config_of(*engines), tmp_path))
        value = ask(words("redis"))
        reply = gateway.post(value)
        assert (right(alone, value), "prefill") == (reply.text, reply.headers["x-prefold-prefill"])
        assert 640 <= cached(reply)
        redis.send_signal(signal.SIGSTOP)
        value = ask(words("frozen"))
        assert right(alone, value) == gateway.post(value).text
        redis.kill()
        value = ask(words("gone"))
        assert right(alone, value) == gateway.post(value).text


@pytest.mark.parametrize("tiers", [(), ("host=1GiB",)])
def test_a_role_needs_a_tier_that_is_shared(tiers: tuple[str, ...]) -> None:
    for role in ("prefill", "decode"):
        with pytest.raises(UsageError, match="needs a tier that it shares"):
            EngineOptions(role=role, tiers=tiers)
    EngineOptions(tiers=tiers)
