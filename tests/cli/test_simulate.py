"""`prefold simulate`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefold.analysis.simulate import Simulation
from prefold.analysis.synthetic.shapes import SHAPES
from prefold.analysis.whatif.alternatives import ALTERNATIVES, what_if
from prefold.cli.simulate import simulate
from prefold.core.policies import POLICIES
from prefold.errors import InvalidRequest, PrefoldError, UsageError
from prefold.providers.rules import providers

RULES = "".join(f"Rule {number}: look at item {number} of the handbook before you answer.\n" for number in range(100))
SYNTHETIC = ("--synthetic", "prefix=4000,suffix=200,requests=10000")


def body(number: int, **more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": f"Where is order {number}?"}]
    return {"model": "gpt-4o", "messages": messages, **more}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "requests.jsonl"
    lines = ({"body": body(number, user=f"u{number % 2}"), "timestamp": 1000 + number} for number in range(6))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": n, "input_length": 2048, "output_length": 5, "hash_ids": [0, 1 + n % 3, 4 + n % 3, 7 + n % 3]}
        for n in range(9)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def run(*arguments: str | Path, stdin: str | None = None, code: int = 0) -> Result:
    result = CliRunner().invoke(simulate, [str(argument) for argument in arguments], input=stdin)
    assert code == result.exit_code, (result.output, result.exception)
    return result


def rows(*arguments: str | Path, **options: Any) -> list[dict[str, Any]]:
    report = json.loads(run(*arguments, "--json", **options).stdout)
    assert 1 == report["schema_version"]
    return report["rows"]


def refused(*arguments: str | Path) -> PrefoldError:
    result = CliRunner().invoke(simulate, [str(argument) for argument in arguments])
    assert isinstance(result.exception, PrefoldError), result.output
    return result.exception


def test_the_worked_example() -> None:
    (row,) = rows(*SYNTHETIC, "--price", "miss=2,hit=0.04")
    assert (10_000, 42_000_000, 9_999 * 4000) == (row["requests"], row["input_tokens"], row["hit_tokens"])
    assert 5.60784 == pytest.approx(row["cost"])
    (dear,) = rows(*SYNTHETIC, "--price", "miss=2,hit=2")
    assert 84 == pytest.approx(dear["cost"])


def test_the_worked_example_says_what_it_costs_without_a_cache() -> None:
    (row,) = rows(*SYNTHETIC, "--price", "miss=2,hit=0.04")
    assert 84 == pytest.approx(row["cost_without_cache"])
    shown = run(*SYNTHETIC, "--price", "miss=2,hit=0.04").stdout
    assert "USD 84.00 without a cache" in shown
    assert {"95.2", "%", "2,004,000", "5.61"} <= set(shown.split())


def test_the_cost_without_a_cache_is_that_of_the_changed_log(tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    turns = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"Turn {n}."} for n in range(9)]
    path.write_text(json.dumps({"model": "gpt-4o", "messages": turns}), "utf-8")
    sent, shorter = rows(path, "--price", "miss=1000", "--what-if", "history_truncated:1")
    for row in (sent, shorter):
        assert row["input_tokens"] / 1000 == pytest.approx(row["cost_without_cache"])
    assert sent["input_tokens"] > shorter["input_tokens"]


def test_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    error = refused(tmp_path / "empty.jsonl", "--json")
    assert "The log holds no requests." == error.message


def test_alternatives_can_be_listed() -> None:
    shown = run("--what-if", "list").stdout
    assert all(f"{name}" in shown and each.text in shown for name, each in ALTERNATIVES.items())
    for name in re.findall("^[^ ]+", shown, re.MULTILINE):
        assert name == what_if(name, []).name


def test_help_names_all_policies_shapes_and_tiers() -> None:
    shown = " ".join(run("--help").stdout.split()).replace("s3- fifo", "s3-fifo").replace("ttl- lru", "ttl-lru")
    policies = re.search(r"Who is evicted: ([^.]+)\.", shown)
    shapes = re.search(r"behind it: ([^;]+);", shown)
    assert policies
    assert shapes
    assert set(POLICIES) == set(policies[1].split(", "))
    assert set(SHAPES) == set(shapes[1].split(", "))
    tiers = {tier for known in providers() for rules in known.families for tier in rules.tiers}
    assert all(f"{tier}=" in shown for tier in tiers)


def test_capacities_and_policies_of_a_trace_of_blocks(trace: Path) -> None:
    found = rows(trace, "--capacity", "4blocks,7blocks", "--capacity", "unlimited", "--policy", "lru,fifo")
    expected = [("blocks", policy, blocks) for blocks in (4, 7, None) for policy in ("lru", "fifo")]
    assert expected == [(row["cache"], row["policy"], row["capacity_blocks"]) for row in found]
    assert [2048, 3584, None] == [row["capacity_tokens"] for row in found[::2]]
    assert [round(8 / 36, 6), round((8 + 6 * 3) / 36, 6)] == [found[0]["hit_rate"], found[4]["hit_rate"]]
    assert all(row["recomputed_tokens"] == row["input_tokens"] - row["hit_tokens"] for row in found)


def test_caches_side_by_side(log: Path) -> None:
    found = rows(log, "--cache", "own,vllm", "--cache", "anthropic", "--capacity", "1GiB")
    own, vllm, anthropic = found
    assert ["own", "vllm", "anthropic"] == [row["cache"] for row in found]
    assert 1 == len({row["input_tokens"] for row in found})
    assert (None, 8192, 512) == (anthropic["capacity_tokens"], vllm["capacity_tokens"], vllm["capacity_blocks"])
    assert 0.7 < own["hit_rate"] < vllm["hit_rate"] < 0.85
    assert 0 < anthropic["hit_rate"]
    assert anthropic["written_tokens"] > 1000
    assert all(row["what_if"] is None for row in found)


def test_memory_by_tokens_and_by_bytes_of_a_token(log: Path) -> None:
    (row,) = rows(log, "--cache", "prefold", "--capacity", "1GiB", "--kv-bytes-per-token", "1048576")
    assert 1024 == row["capacity_tokens"] == row["capacity_blocks"]
    (row,) = rows(log, "--cache", "prefold", "--capacity", "3Mtokens")
    assert 3_000_000 == row["capacity_tokens"]


def test_memory_by_model(log: Path, tmp_path: Path) -> None:
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "torch_dtype": "bfloat16"}
    shape = {"intermediate_size": 128, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}
    (tmp_path / "config.json").write_text(json.dumps({**config, **heads, **shape}))
    (row,) = rows(log, "--cache", "prefold", "--capacity", "1MiB", "--kv-model", tmp_path / "config.json")
    assert 1024 * 1024 // (2 * 2 * 2 * 16 * 2) == row["capacity_tokens"]
    assert "exclude" in str(refused(log, "--kv-model", "x", "--kv-bytes-per-token", "5"))


def test_replicas(tmp_path: Path) -> None:
    path = tmp_path / "two.jsonl"
    two = [{"role": "system", "content": RULES}, {"role": "system", "content": RULES[::-1]}]
    lines = [{"body": {"model": "gpt-4o", "messages": [two[n % 4 in (1, 2)]]}, "timestamp": n} for n in range(8)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    spread = rows(path, "--cache", "prefold", "--replicas", "2")
    led = rows(path, "--cache", "prefold", "--replicas", "2", "--routing", "exact")
    assert [("round_robin", 2), ("exact", 2)] == [(row["routing"], row["replicas"]) for row in spread + led]
    assert spread[0]["hit_tokens"] < led[0]["hit_tokens"]
    assert all(1 <= row["load_imbalance"] < 2 for row in spread + led)


def test_tenants(log: Path) -> None:
    (apart,) = rows(log, "--cache", "prefold", "--isolate", "tenant")
    (together,) = rows(log, "--cache", "prefold")
    assert apart["hit_tokens"] < together["hit_tokens"]


def test_chance_and_its_seed() -> None:
    losses = [
        rows("--synthetic", "prefix=2000,suffix=50,requests=200", "--cache", "openai", "--loss-rate", "0.5", *seed)
        for seed in ([], ["--seed", "0"], ["--seed", "5"])
    ]
    assert losses[0] == losses[1] != losses[2]


def test_tiers(trace: Path) -> None:
    without = rows(trace, "--cache", "vllm", "--capacity", "4blocks")
    below = rows(trace, "--cache", "vllm,anthropic", "--capacity", "4blocks", "--tier", "host=10blocks")
    assert without[0]["hit_tokens"] < below[0]["hit_tokens"]
    assert "can have tiers" in str(refused(trace, "--cache", "anthropic", "--tier", "host=1GiB"))


def test_bounds(trace: Path) -> None:
    report = json.loads(run(trace, "--capacity", "4blocks", "--curve", "--json").stdout)
    (point,) = report["curve"]["points"]
    assert (2048, report["rows"][0]["hit_rate"]) == (point["tokens"], point["lru"])
    assert point["lru"] <= point["optimum"] <= report["curve"]["infinite"]
    assert "Bounds of any cache" in run(trace, "--curve").output


def test_what_if(log: Path) -> None:
    found = rows(log, "--cache", "prefold,openai", "--what-if", "canonicalised", "--what-if", "history_truncated:1")
    assert [None, None, "canonicalised", "canonicalised", "history_truncated:1", "history_truncated:1"] == [
        row["what_if"] for row in found
    ]
    output = run(log, "--what-if", "canonicalised").output
    assert "as sent" in output
    assert "canonicalised" in output
    assert "'nonsense'" in str(refused(log, "--what-if", "nonsense"))


def test_interleaved_sessions(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = [{"body": body(n), "timestamp": n % 3, "session": f"s{n // 3}"} for n in range(9)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    (row,) = rows(path, "--cache", "prefold", "--interleave", "2")
    assert 9 == row["requests"]


def test_standard_input(log: Path) -> None:
    (row,) = rows("-", stdin=log.read_text())
    assert ("own", 6) == (row["cache"], row["requests"])


def test_the_table(log: Path) -> None:
    result = run(log, "--cache", "vllm,anthropic", "--price", "miss=2,hit=0.2", "--replicas", "2")
    assert "6 requests, " in result.stdout
    header = next(line for line in result.stdout.splitlines() if " hits " in line)
    assert ["cache", "hits", "recomputed", "written", "cost,", "USD", "imbalance"] == header.split()
    assert "No prices" not in result.stderr


def test_a_table_shows_what_differs(log: Path) -> None:
    result = run(
        log, "--cache", "vllm", "--policy", "lru,fifo", "--capacity", "100000tokens", "--what-if", "markers_1h"
    )
    header = next(line for line in result.stdout.splitlines() if " hits " in line)
    assert ["what", "if", "cache", "policy", "capacity", "hits", "recomputed"] == header.split()[:7]


def test_a_narrow_terminal_cuts_no_number(log: Path, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    narrow = run(log, "--cache", "vllm,anthropic", "--price", "miss=2,hit=0.2").stdout
    monkeypatch.setenv("COLUMNS", "200")
    wide = run(log, "--cache", "vllm,anthropic", "--price", "miss=2,hit=0.2").stdout
    assert wide.split() == narrow.split()


def test_bad_lines_stop_or_are_counted(log: Path) -> None:
    log.write_text("{broken\n" + log.read_text() + '{"body": {"messages": 5}}\n' + log.read_text())
    assert isinstance(refused(log), InvalidRequest)
    report = json.loads(run(log, "--lenient", "--json").stdout)
    assert (12, 2) == (report["rows"][0]["requests"], report["skipped"])
    assert "2 lines were left out" in run(log, "--lenient").stderr


def test_ctrl_c_prints_what_was_done(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Simulation.add
    sent: Iterator[int] = iter(range(4))

    def interrupted(self: Simulation, request: Any) -> None:
        if next(sent) == 3:
            raise KeyboardInterrupt
        add(self, request)

    monkeypatch.setattr(Simulation, "add", interrupted)
    result = run(log, "--json", code=130)
    report = json.loads(result.stdout)
    assert (False, 3) == (report["complete"], report["rows"][0]["requests"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "There is no LOG"),
        (["x.jsonl", *SYNTHETIC], "both a LOG and --synthetic"),
        ([*SYNTHETIC, "--cache", "nonsense"], "no cache 'nonsense'"),
        ([*SYNTHETIC, "--policy", "magic"], "no policy 'magic'"),
        ([*SYNTHETIC, "--capacity", "10"], "has no unit"),
        ([*SYNTHETIC, "--cache", "vllm", "--tier", "host"], "no tier"),
        ([*SYNTHETIC, "--price", "free"], "free"),
        (["nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_what_cannot_be_simulated(arguments: list[str], message: str) -> None:
    error = refused(*arguments)
    assert isinstance(error, UsageError)
    assert message in str(error)
    assert error.hint
