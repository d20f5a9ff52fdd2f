"""What is said about the scenes that were played."""

import io

import pytest
from rich.console import Console

from prefold.demo.machine import Machine, this_machine
from prefold.demo.play import Exchange, Reply, SceneResult
from prefold.demo.report import Price, Report, Setup, as_table
from prefold.demo.scenes import Scene

SCENE = Scene("name", "A scene", "about.", 1, "system", (("a", "b"),))
MACHINE = Machine("A processor", 2, "An OS")
PRICE = Price(miss=2.0, hit=0.04, currency="CNY")


def result(*, answer: int = 7) -> SceneResult:
    """Two prompts of 1,000 tokens; the second one hits 900 of them."""
    prompt = bytes(4 * 1000)
    first = Reply("x", (5,), 0, 2.0, 3.0)
    return SceneResult(
        SCENE,
        (
            Exchange(prompt, first, first),
            Exchange(prompt, Reply("y", (7,), 0, 2.0, 4.0), Reply("y", (answer,), 900, 0.5, 1.0)),
        ),
    )


def real(scene: SceneResult, dtype: str = "fp32") -> Report:
    return Report((scene,), PRICE, Setup(MACHINE, "a-model", dtype, 2), complete=True)


def test_a_bill_counts_hits_and_misses_at_their_prices() -> None:
    assert 2.0 == PRICE.bill(0, 1_000_000)
    assert 0.04 == PRICE.bill(1_000_000, 0)
    assert pytest.approx((900 * 0.04 + 1100 * 2) / 1e6) == PRICE.bill(900, 1100)


def test_the_object_of_a_scene() -> None:
    report = real(result()).as_object()
    assert {
        "schema_version": 1,
        "simulated": False,
        "complete": True,
        "model": "a-model",
        "dtype": "fp32",
        "threads": 2,
        "machine": {"processor": "A processor", "cores": 2, "system": "An OS"},
        "price_per_million": {"miss": 2.0, "hit": 0.04},
        "currency": "CNY",
        "scenes": [
            {
                "name": "name",
                "requests": 2,
                "tokens_sent": 2000,
                "tokens_recomputed": 1100,
                "hit_rate": 0.45,
                "ttft_off_s": 2.0,
                "ttft_on_s": 1.25,
                "wall_off_s": 7.0,
                "wall_on_s": 4.0,
                "cost_off": 0.004,
                "cost_on": 0.002236,
                "answers_equal": True,
            }
        ],
    } == report


def test_the_table_of_a_scene() -> None:
    output = io.StringIO()
    Console(file=output, width=80, color_system=None).print(as_table(result(), PRICE))
    rows = [line.split() for line in output.getvalue().splitlines() if line.strip()]
    assert ["A", "scene:", "2", "requests"] == rows[0]
    assert ["tokens", "recomputed", "2,000", "1,100", "55", "%"] in rows
    assert ["hit", "rate", "0.0", "%", "45.0", "%"] in rows
    assert ["TTFT,", "median", "2.00", "s", "1.25", "s", "62", "%"] in rows
    assert ["input", "bill", "0.0040", "CNY", "0.0022", "CNY", "56", "%"] in rows


def test_equal_answers_are_said_to_be() -> None:
    report = real(result())
    assert not report.has_fault
    assert "Answers: all 2 are the same with the cache on as with the cache off." in report.conclusions()


def test_an_answer_that_changed_is_a_fault_in_fp32_and_is_not_in_bf16() -> None:
    exact, rounded = real(result(answer=8)), real(result(answer=8), "bf16")
    assert exact.has_fault
    assert not rounded.has_fault
    assert any("1 of 2 differ" in line and "report" in line for line in exact.conclusions())
    assert any("1 of 2 differ" in line and "bf16 allows" in line for line in rounded.conclusions())
    assert exact.as_object()["scenes"][0]["answers_equal"] is False


def test_a_simulation_claims_neither_times_nor_answers() -> None:
    prompt = bytes(4 * 10)
    reply = Reply("x", (1,), 0, None, None)
    simulated = SceneResult(SCENE, (Exchange(prompt, reply, reply),))
    report = Report((simulated,), PRICE, Setup(MACHINE), complete=True)
    scene = report.as_object()["scenes"][0]
    assert report.as_object()["simulated"] is True
    assert {None} == {scene[key] for key in ("ttft_off_s", "ttft_on_s", "wall_off_s", "wall_on_s", "answers_equal")}
    assert any(line.startswith("Simulated") for line in report.conclusions())
    assert not any(line.startswith(("Answers", "Measured")) for line in report.conclusions())
    output = io.StringIO()
    Console(file=output, width=80).print(as_table(simulated, PRICE))
    assert "TTFT" not in output.getvalue()


def test_a_report_on_nothing_still_stands() -> None:
    report = Report((), PRICE, Setup(MACHINE, "a-model", "fp32", 2), complete=False)
    assert [] == report.as_object()["scenes"]
    assert not report.has_fault


def test_this_machine_has_a_name_and_cores() -> None:
    machine = this_machine()
    assert machine.processor
    assert machine.cores >= 1
    assert machine.system
