"""`prefold demo` as users run it: simulated where the engine is not installed, and for real."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FIELDS = {
    "name",
    "requests",
    "tokens_sent",
    "tokens_recomputed",
    "hit_rate",
    "ttft_off_s",
    "ttft_on_s",
    "wall_off_s",
    "wall_on_s",
    "cost_off",
    "cost_on",
    "answers_equal",
}


def check_scene(scene: dict[str, object], price: dict[str, float]) -> None:
    """What holds for every scene, whoever played it."""
    assert FIELDS == scene.keys()
    sent, recomputed = scene["tokens_sent"], scene["tokens_recomputed"]
    assert 0 < recomputed < sent
    assert pytest.approx(1 - recomputed / sent, abs=1e-6) == scene["hit_rate"]
    assert pytest.approx(sent * price["miss"] / 1e6) == scene["cost_off"]
    assert pytest.approx((recomputed * price["miss"] + (sent - recomputed) * price["hit"]) / 1e6) == scene["cost_on"]


def test_without_torch_the_scenes_are_simulated_and_it_says_so(prefold) -> None:
    finished = prefold("demo", without=["torch"])
    for title in ("An agent that takes steps", "One contract, many questions", "A long persona, many short chats"):
        assert title in finished.stdout
    assert "Simulated: " in finished.stdout
    assert "TTFT" not in finished.stdout
    assert "The package torch is not installed" in finished.stderr
    assert "pip install 'prefold[engine]'" in finished.stderr


def test_simulated_as_json(prefold) -> None:
    finished = prefold("demo", "--json", "--price", "hit=1, miss=10", "--currency", "EUR", without=["numpy", "torch"])
    report = json.loads(finished.stdout)
    assert (1, True, True, None, "EUR") == tuple(
        report[key] for key in ("schema_version", "simulated", "complete", "model", "currency")
    )
    assert ["agent", "contract", "persona"] == [scene["name"] for scene in report["scenes"]]
    for scene in report["scenes"]:
        check_scene(scene, {"miss": 10, "hit": 1})
        assert {None} == {scene[key] for key in FIELDS if key.endswith("_s") or key == "answers_equal"}


@pytest.mark.parametrize(
    "price",
    ["", "2", "miss=2", "miss=2,hit=x", "miss=2,hit=-1", "miss=inf,hit=0", "miss=nan,hit=0", "miss=1,hit=1,write=1"],
)
def test_a_price_that_is_none(prefold, price: str) -> None:
    finished = prefold("demo", f"--price={price}", without=["torch"], check=2)
    assert "" == finished.stdout
    assert finished.stderr.startswith(f"error: --price is {price!r}.\nhint: ")


@pytest.fixture
def real_engine(default_checkpoint) -> None:
    """The default model is there, so that a test does not wait for a download."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_prints_the_scenes_that_were_finished(
    real_engine: None, tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    code = "from prefold.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "demo", "--quick", "--json"],
        cwd=tmp_path,
        env=clean_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("contract: "):  # so the first scene is finished and the second one begins
                process.send_signal(signal.SIGINT)
                break
        output, errors = process.communicate(timeout=300)
    assert 130 == process.returncode
    assert errors.endswith("Stopped. Finished scenes: agent. Others: contract, persona.\n")
    report = json.loads(output)
    assert (False, False) == (report["complete"], report["simulated"])
    (scene,) = report["scenes"]
    check_scene(scene, {"miss": 2, "hit": 0.04})
    assert "agent" == scene["name"]
    assert scene["answers_equal"] is True
    assert 0 < scene["ttft_on_s"] < scene["wall_on_s"]
    assert 0 < scene["ttft_off_s"] < scene["wall_off_s"]
