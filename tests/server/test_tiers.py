"""Tiers as clients and operators of the server see them."""

import signal
import threading

import pytest

from prefold.engine.loading import load_engine
from prefold.engine.options import EngineOptions

from .support import running_server

TEXT = "The quick brown fox jumps over the lazy dog. " * 20  # some 200 tokens
ASK = {"prompt": TEXT, "max_tokens": 2, "temperature": 0}


def tiered(default_checkpoint, folder):
    """An engine with room for some 500 tokens, over memory and a folder."""
    options = EngineOptions(
        dtype="float32", kv_memory=24 << 20, threads=1, kernel="torch", tiers=("host=64MiB", f"disk={folder},200MiB")
    )
    return load_engine(default_checkpoint, options)


def cached(reply) -> int:
    return reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.timeout(300)
def test_what_comes_from_tiers_counts_as_cached_and_is_seen_and_can_be_forgotten(default_checkpoint, tmp_path):
    with running_server(tiered(default_checkpoint, tmp_path)) as server:
        first = server.post("/v1/completions", ASK)
        length = first.json["usage"]["prompt_tokens"]
        assert 0 == cached(first)
        server.post("/v1/completions", {**ASK, "prompt": TEXT[::-1]})  # evicts it
        again = server.post("/v1/completions", ASK)
        assert length // 64 * 64 <= cached(again) < length
        assert first.json["choices"][0]["text"] == again.json["choices"][0]["text"]

        host, disk = server.get("/cache").json["tiers"]
        assert ("host", "disk") == (host["tier"], disk["tier"])
        assert host["loaded_tokens"] > 0
        metrics = server.get("/metrics").body.decode()
        assert f'tier="host"}} {float(host["loaded_tokens"])}' in metrics
        assert "prefold_tier_late_total" in metrics

        assert {"freed_tokens"} == server.post("/cache/reset", {}).json.keys()
        assert cached(server.post("/v1/completions", ASK)) > 0
        assert server.post("/cache/reset", {"tiers": True}).json["freed_blocks"] > 0
        assert 0 == cached(server.post("/v1/completions", ASK))


@pytest.mark.timeout(300)
def test_a_server_that_is_told_to_stop_saves_what_was_asked_for_twice(default_checkpoint, tmp_path):
    before = set(threading.enumerate())
    with running_server(tiered(default_checkpoint, tmp_path)) as server:
        for _ in range(2):
            answer = server.post("/v1/completions", ASK)
        assert [] == list(tmp_path.rglob("*.kv"))
        server.server.handle_exit(signal.SIGTERM, None)
        server.thread.join(60)
    assert "prefold-tiers" not in {thread.name for thread in set(threading.enumerate()) - before}
    length = answer.json["usage"]["prompt_tokens"]
    assert length // 64 == len(list(tmp_path.rglob("*.kv")))
    with running_server(tiered(default_checkpoint, tmp_path)) as server:
        again = server.post("/v1/completions", ASK)
        assert length // 64 * 64 == cached(again)
        assert answer.json["choices"][0]["text"] == again.json["choices"][0]["text"]
