"""llama.cpp and vLLM behind the gateway, where they are installed.

`llama-server` and `vllm` are looked for on the path, or at `PREFOLD_LLAMA_SERVER` and `PREFOLD_VLLM`. Both serve the
default model: llama.cpp its GGUF file, vLLM what the embedded engine makes of that.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")
pytest.importorskip("openai")
pytest.importorskip("anthropic")
pytest.importorskip("zmq")

import anthropic
import openai
from tests.gateway.engines import other_engine
from tests.gateway.support import RunningGateway, Upstream, config_of, eventually, free_port, running, serving

from prefold.engine.checkpoint import Checkpoint
from prefold.engine.default_model import DEFAULT_MODEL, fetch_gguf
from prefold.gateway.events.source import Trust

MODEL = "small"
RULES = "Answer in one word, and never explain what you have been asked not to explain. " * 12
PATIENCE = 300.0  # seconds that an engine may take to load
QUIET = "[health]\nverify_caching = false\n"
BY_HEADER = """
[access]
by = "header"
salt_secret = { env = "SALT" }
[[group]]
name = "apart"
isolation = "isolated"
[[tenant]]
name = "acme"
group = "apart"
[[tenant]]
name = "bolt"
group = "apart"
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE + 120)]


@dataclass(frozen=True)
class Server:
    """An engine that runs.

    Attributes:
        kind: of its replica.
        url: of it.
        events: keys of its replica's table for exact routing; empty where it has no events.
    """

    kind: str
    url: str
    events: str = ""

    def table(self, more: str = "") -> str:
        """Its table in a gateway's file."""
        return f'[[replica]]\nname = "real"\nurl = "{self.url}"\nkind = "{self.kind}"\n{more}\n'


def program(name: str, variable: str) -> str:
    """The path of a program; the test is skipped where it is not there."""
    path = os.environ.get(variable) or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not on the path, and {variable} does not name it")
    return path


@contextmanager
def llama_server(_: Checkpoint, folder: Path) -> Iterator[Server]:
    path = program("llama-server", "PREFOLD_LLAMA_SERVER")
    port = free_port()
    model = fetch_gguf(DEFAULT_MODEL, folder, folder, lambda *_: None)
    command = [path, "--model", str(model), "--alias", MODEL, "--host", "127.0.0.1", "--port", str(port), "--metrics"]
    command += ["--parallel", "2", "--ctx-size", "8192", "--threads", "2"]
    with other_engine(command, port, folder / "log", os.environ, PATIENCE):
        yield Server("llamacpp", f"http://127.0.0.1:{port}")


@contextmanager
def vllm(checkpoint: Checkpoint, folder: Path) -> Iterator[Server]:
    path = program("vllm", "PREFOLD_VLLM")
    port, events, replay = free_port(), free_port(), free_port()
    published = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{events}",
        "replay_endpoint": f"tcp://*:{replay}",
    }
    command = [path, "serve", str(checkpoint.folder), "--served-model-name", MODEL, "--dtype", "bfloat16"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "2048", "--enable-prefix-caching"]
    command += ["--enforce-eager", "--enable-prompt-tokens-details", "--kv-events-config", json.dumps(published)]
    environ = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **os.environ}
    environ["PATH"] = f"{Path(path).parent}{os.pathsep}{environ['PATH']}"
    if (library := Path(path).parents[1] / "lib/libiomp5.so").exists():  # on CPUs vLLM asks for it
        environ.setdefault("LD_PRELOAD", str(library))
    with other_engine(command, port, folder / "log", environ, PATIENCE):
        table = f'events = "tcp://127.0.0.1:{events}"\nreplay = "tcp://127.0.0.1:{replay}"\n'
        yield Server("vllm", f"http://127.0.0.1:{port}", f'{table}tokenizer = "{checkpoint.folder}"')


ENGINES = {"llama-server": llama_server, "vllm": vllm}


@pytest.fixture(scope="module", params=list(ENGINES))
def server(
    request: pytest.FixtureRequest, default_checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """One engine at a time."""
    with ENGINES[request.param](default_checkpoint, tmp_path_factory.mktemp("engine")) as running_server:
        yield running_server


@pytest.fixture
def only_vllm(server: Server) -> Server:
    if server.kind != "vllm":
        pytest.skip("only vLLM has events and salts")
    return server


def turns(name: str, *said: str) -> dict[str, Any]:
    messages = [{"role": "system", "content": f"You are {name}. {RULES}"}]
    messages += [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(said)]
    return {"model": MODEL, "messages": messages, "max_tokens": 4, "temperature": 0}


def cached(usage: Any) -> int:
    return usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0


def test_chat_and_streams(server: Server, tmp_path: Path) -> None:
    with (
        serving(server.table() + QUIET, tmp_path) as gateway,
        openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client,
    ):
        whole = client.chat.completions.create(**turns("Ann", "Hello"))
        again = turns("Ann", "Hello", "Hi", "What is up, then?")
        chunks = list(client.chat.completions.create(**again, stream=True, stream_options={"include_usage": True}))
        assert whole.choices[0].message.content
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        first, second = whole.usage, chunks[-1].usage
        assert cached(first) < 100 < cached(second) < second.prompt_tokens
        assert cached(first) + cached(second) == gateway.metric("llm_prefix_cache_hit_tokens_total", replica="real")
        prompts = first.prompt_tokens + second.prompt_tokens
        misses = gateway.metric("llm_prefix_cache_miss_tokens_total", replica="real")
        unreported = gateway.metric("prefold_unreported_input_tokens_total", replica="real")
        assert prompts == cached(first) + cached(second) + misses + unreported


def test_anthropics_client_by_translation(server: Server, tmp_path: Path) -> None:
    with (
        serving(server.table('speaks = ["openai"]') + QUIET, tmp_path) as gateway,
        anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0) as client,
    ):
        system, *messages = turns("Ben", "Hello")["messages"]
        marked = [{"type": "text", "text": system["content"], "cache_control": {"type": "ephemeral"}}]
        ask = {"model": MODEL, "max_tokens": 4, "system": marked, "extra_body": {"temperature": 0}}
        whole = client.messages.create(**ask, messages=messages)
        assert whole.content[0].text
        more = [*messages, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "What is up, then?"}]
        with client.messages.stream(**ask, messages=more) as stream:
            assert "".join(stream.text_stream)
            usage = stream.get_final_message().usage
        assert 100 < usage.cache_read_input_tokens
        counted = client.messages.count_tokens(model=MODEL, system=marked, messages=more).input_tokens
        assert counted == pytest.approx(usage.input_tokens + usage.cache_read_input_tokens, rel=0.3)


def test_doctor_recognises_it_and_sees_that_it_caches(server: Server) -> None:
    command = [sys.executable, "-m", "prefold", "doctor", "--url", server.url, "--json"]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    verdicts = {check["check"]: check["verdict"] for check in report["checks"]}
    assert (server.kind, MODEL, "good") == (report["engine"], report["model"], verdicts["verification"])
    assert "good" == verdicts["cached_tokens_reported"]


def trusted(gateway: RunningGateway, replica: int = 0) -> None:
    knowledge = gateway.gateway.app.parts.knowledge
    eventually(lambda: Trust.EXACT is knowledge.trust(replica), "trust")


EXACT = f'[routing]\npolicy = "exact"\n{QUIET}'


def test_events_of_vllm_say_where_a_conversation_is(only_vllm: Server, tmp_path: Path) -> None:
    other = Upstream("other")
    first, second = turns("Cid", "Hello"), turns("Cid", "Hello", "Hi", "What is up, then?")
    with running(other):
        config = only_vllm.table(only_vllm.events) + config_of(other, replica=f'models = ["{MODEL}"]', more=EXACT)
        with (
            serving(config, tmp_path) as gateway,
            openai.OpenAI(base_url=f"{only_vllm.url}/v1", api_key="none") as past_the_gateway,
        ):
            trusted(gateway)
            index = gateway.gateway.app.parts.knowledge.index
            before = index.blocks_of(0)
            assert 0 == gateway.post(first, x_prefold_explain="1").json["matched_tokens"]
            past_the_gateway.chat.completions.create(**first)  # so that nothing but events can tell of it
            eventually(lambda: before < index.blocks_of(0), "the events")
            reply = gateway.post(second, content_type="application/json")
            assert ("real", "exact") == tuple(reply.headers[f"x-prefold-{it}"] for it in ("replica", "reason"))
            matched = int(reply.headers["x-prefold-matched-tokens"])
            usage = reply.json["usage"]
            assert 100 < matched < usage["prompt_tokens"]
            assert matched == pytest.approx(usage["prompt_tokens_details"]["cached_tokens"], abs=128)
            explained = gateway.post(second, x_prefold_explain="1").json
            assert usage["prompt_tokens"] == explained["tokens"]
    assert [] == other.requests


def test_tenants_share_nothing_at_vllm(only_vllm: Server, tmp_path: Path) -> None:
    config = only_vllm.table(only_vllm.events) + EXACT + BY_HEADER
    ask = turns("Dan", "Hello")
    with serving(config, tmp_path, environ={"SALT": "0123456789abcdef" * 4}) as gateway:
        trusted(gateway)

        def hits(tenant: str) -> int:
            usage = gateway.post(ask, x_prefold_tenant=tenant, content_type="application/json").json["usage"]
            return (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0

        def matched(tenant: str) -> int:
            return gateway.post(ask, x_prefold_tenant=tenant, x_prefold_explain="1").json["matched_tokens"]

        assert 0 == hits("acme")
        assert 100 < hits("acme")
        eventually(lambda: 100 < matched("acme"), "the events")
        assert 0 == matched("bolt")
        assert 0 == hits("bolt")
        assert 100 < hits("bolt")
