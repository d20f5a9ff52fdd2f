"""`prefold providers`."""

import json
import sys

import pytest
from click.testing import CliRunner, Result

from prefold.cli.providers import providers
from prefold.errors import UsageError
from prefold.providers.rules import providers as known


def run(*arguments: str, width: int = 200) -> Result:
    return CliRunner().invoke(providers, arguments, env={"COLUMNS": str(width)})


@pytest.mark.parametrize("width", [80, 200])
def test_all_are_listed(width: int) -> None:
    shown = run(width=width)
    assert 0 == shown.exit_code
    folded = "".join(shown.stdout.split())
    assert all(provider.name in folded for provider in known())
    assert all(len(line) <= width for line in shown.stdout.splitlines()[:-1])


def test_a_row_of_the_list() -> None:
    (row,) = [line for line in run().stdout.splitlines() if "Claude, 2,048 tokens" in line]
    assert all(text in row for text in ("anthropic", "explicit", "2,048", "5m, 1h", "0.1", "1.25, 2", "2026-"))


@pytest.mark.parametrize("provider", known(), ids=lambda provider: provider.name)
def test_everything_is_explained(provider) -> None:
    shown = run(provider.name).stdout
    for rules in provider.families:
        assert rules.family in shown
        assert all(note in shown for note in rules.notes)
        assert all(name in shown for name in rules.facts)
        assert all(f"{fact.certainty.replace('_', ' ')}: {fact.source}" in shown for fact in rules.facts.values())
        assert all(fact.note in shown for fact in rules.facts.values())


@pytest.mark.parametrize("alias", ["claude", " Anthropic "])
def test_other_names_of_a_provider(alias: str) -> None:
    assert run("anthropic").stdout == run(alias).stdout


def test_values_are_spelled_for_people() -> None:
    shown = run("claude-sonnet-4-5").stdout
    for line in (
        "minimum_tokens = 1,024",
        "ttls = 5 min, 1 h",
        "write_multipliers = 5 min: 1.25, 1 h: 2.0",
        "control = explicit",
    ):
        assert f"  {line}\n" in shown
    assert "a shorter prefix is not cached." in shown


def test_a_model_falls_under_one_family_for_each_way_of_caching() -> None:
    families = json.loads(run("qwen-plus", "--json").stdout)["families"]
    assert ["implicit", "explicit"] == [family["control"] for family in families]
    (family,) = json.loads(run("azure/gpt-4o-2024-08-06", "--json").stdout)["families"]
    assert "azure" == family["provider"]


def test_the_price_of_a_model() -> None:
    pytest.importorskip("genai_prices", reason="the extra `analysis` is not installed")
    shown = run("gemini-2.5-pro").stdout
    assert "USD per million tokens (genai-prices" in shown
    assert "above 200,000 input tokens" in shown
    price = json.loads(run("gemini-2.5-pro", "--json").stdout)["price"]
    assert price["read"] < price["input"] < price["longer"][0]["input"]
    assert 200_000 == price["longer"][0]["above_tokens"]


def test_without_a_price_list(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "genai_prices"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    shown = run("gpt-4o")
    assert 0 == shown.exit_code
    assert "per million tokens (" not in shown.stdout


def test_json() -> None:
    report = json.loads(run("--json").stdout)
    assert (1, None) == (report["schema_version"], report["price"])
    assert sum(len(provider.families) for provider in known()) == len(report["families"])
    (family,) = [family for family in report["families"] if family["family"] == "Claude, 2,048 tokens"]
    assert {"300": 1.25, "3600": 2.0} == family["write_multipliers"]
    assert {"source", "certainty", "note"} == family["facts"]["ttls"].keys()
    assert "anthropic/" in family["prefixes"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("antropic", "anthropic"),
        ("gbt-4o", "gpt-4o"),
        ("vlm", "vllm"),
        ("nope", "lists all"),
        ("xyzzy", "lists all"),
        ("", "lists all"),
    ],
)
def test_unknown_names(name: str, hint: str) -> None:
    error = run(name).exception
    assert isinstance(error, UsageError)
    assert repr(name) in error.message
    assert hint in error.hint


def test_caches_that_are_no_providers() -> None:
    assert "each request" in run("own").stdout
    assert [] == json.loads(run("own", "--json").stdout)["families"]
    assert "a plain cache" in run("blocks").stdout
    (family,) = json.loads(run("blocks", "--json").stdout)["families"]
    assert "blocks" == family["provider"]


def test_a_narrow_terminal_breaks_no_word() -> None:
    narrow, wide = run(width=40).stdout, run(width=129).stdout
    assert {word for word in wide.split() if "─" not in word} == {word for word in narrow.split() if "─" not in word}
