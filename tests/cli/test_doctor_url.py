"""`prefold doctor --url`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.gateway.inspect.support import LoopbackEngine, recorded, serving, silent

from prefold.cli.doctor import doctor
from prefold.errors import UsageError
from prefold.gateway.upstream import UpstreamFailed


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(doctor, arguments, env={"COLUMNS": "100", **environment})


def test_a_good_engine() -> None:
    with serving(LoopbackEngine(pages=recorded("sglang"))) as url:
        found = run("--url", url)
    assert 0 == found.exit_code
    assert f"sglang 0.5.23 at {url}, model qwen" == found.stdout.splitlines()[0]
    assert "verification            good" in found.stdout
    assert "It says that it had 1,500 of 1,501 tokens when they came again." in found.stdout
    assert "Fix:" not in found.stdout


def test_a_poor_engine() -> None:
    pages = recorded("vllm")
    pages["/metrics"] = pages["/metrics"].replace(b'algo="sha256"', b'algo="xxhash"')
    with serving(LoopbackEngine(pages=pages)) as url:
        found = run("--url", url)
    assert 1 == found.exit_code
    lines = [line.strip() for line in found.stdout.splitlines()]
    start = lines.index("hash                    poor")
    assert "Fix: --prefix-caching-hash-algo sha256" == lines[start + 2]
    assert 'Read: prefix_caching_hash_algo="xxhash" in vllm:cache_config_info' == lines[start + 3]


def test_json() -> None:
    engine = LoopbackEngine(pages=recorded("vllm"), usage=silent)
    engine.seconds = lambda computed, number: 0.0
    with serving(engine) as url:
        found = run("--url", f"{url}/v1/", "--model", "adapter", "--json")
    report: dict[str, Any] = json.loads(found.stdout)
    assert (1, url, "vllm", "0.32.0", "adapter") == (
        report["schema_version"],
        report["url"],
        report["engine"],
        report["version"],
        report["model"],
    )
    assert (0, False) == (found.exit_code, report["has_findings"])
    assert {
        "check": "prefix_caching",
        "verdict": "good",
        "read": 'enable_prefix_caching="True" in vllm:cache_config_info',
        "because": "Prefixes are kept.",
        "fix": "",
    } == report["checks"][0]
    assert None is report["verification"]["cached_tokens"]
    assert {"adapter"} == {request.body["model"] for request in engine.requests}


def test_nothing_is_asked_where_that_is_not_wanted() -> None:
    engine = LoopbackEngine(pages=recorded("vllm"))
    with serving(engine) as url:
        found = run("--url", url, "--no-verify", "--json")
    assert None is json.loads(found.stdout)["verification"]
    assert [] == engine.requests


def test_a_key_is_sent_and_not_shown() -> None:
    engine = LoopbackEngine(pages=recorded("vllm"))
    with serving(engine) as url:
        found = run("--url", url, "--api-key-env", "ENGINE_KEY", ENGINE_KEY="sk-secret")
    assert {"Bearer sk-secret"} == {request.headers["authorization"] for request in engine.requests}
    assert "sk-secret" not in found.output


def test_what_an_engine_says_cannot_write_to_the_terminal() -> None:
    pages = recorded("vllm")
    pages["/v1/models"] = pages["/v1/models"].replace(b'"smollm2"', rb'"\u001b[2J[bold]x"')
    with serving(LoopbackEngine(pages=pages)) as url:
        found = run("--url", url)
    assert "model <U+001B>[2J[bold]x" in found.stdout
    assert "\x1b" not in found.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("log.jsonl", "--url", "http://127.0.0.1:1"), "A log and an engine are both given."),
        (("--before", "a", "--url", "http://127.0.0.1:1"), "A log and an engine are both given."),
        (("--url", "127.0.0.1:8000"), "is not the URL of a server"),
        (("--url", "http://127.0.0.1:1", "--api-key-env", "NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE is empty"),
        ((), "There are no two sides to compare."),
    ],
)
def test_usage(arguments: tuple[str, ...], message: str) -> None:
    error = run(*arguments).exception
    assert isinstance(error, UsageError)
    assert message in error.message


def test_nobody_answers() -> None:
    with serving(LoopbackEngine()) as url:
        pass
    error = run("--url", url).exception
    assert isinstance(error, UpstreamFailed)
    assert error.message.startswith(f"{url} cannot be reached")
