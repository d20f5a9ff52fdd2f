"""`prefold simulate --ray` on a cluster that runs here."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[str]:
    """The address of a cluster with two processors, started for these tests."""
    pytest.importorskip("ray", reason="Ray has no package for this Python")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = Path("/tmp") / f"prefold-ray-{os.getpid()}"  # sockets there must have short names
    start = ["start", "--head", "--block", "--num-cpus=2", "--include-dashboard=false", "--node-ip-address=127.0.0.1"]
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("ray")), *start, f"--port={port}", f"--temp-dir={folder}"],
        env={**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said = []
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if "Ray runtime started" in line:
                break
        else:
            pytest.fail("".join(said))
        yield f"127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def run(*arguments: str, check: int = 0) -> subprocess.CompletedProcess[str]:
    finished = subprocess.run(
        [sys.executable, "-m", "prefold", "simulate", *arguments],
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert check == finished.returncode, finished.stderr
    return finished


def rows(*arguments: str) -> list[dict]:
    return json.loads(run(*arguments, "--json").stdout)["rows"]


def test_gives_what_one_process_gives(cluster):
    caches = ("--cache", "openai,anthropic,vllm,llamacpp", "--price", "miss=2,hit=0.3")
    workload = ("--synthetic", "customer_service:good,requests=300")
    here = rows(*workload, *caches)
    assert 4 == len(here)
    assert here == rows(*workload, *caches, "--ray", cluster)
    limited = ("--cache", "vllm", "--capacity", "20000tokens", "--policy", "lru,gdsf")
    assert rows(*workload, *limited) == rows(*workload, *limited, "--ray", cluster)


def test_what_goes_wrong_there_is_said_here(cluster):
    finished = run(
        "--synthetic", "rag:good,requests=30", "--cache", "vllm", "--policy", "best", "--ray", cluster, check=2
    )
    assert "There is no policy 'best'" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_no_cluster(tmp_path):
    pytest.importorskip("ray", reason="Ray has no package for this Python")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        finished = run("--synthetic", "rag:good,requests=30", "--ray", address, check=2)
    assert f"There is no Ray cluster at {address}" in finished.stderr
