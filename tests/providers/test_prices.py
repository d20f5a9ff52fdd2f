"""What tokens cost."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.errors import MissingExtra, UsageError
from prefold.providers.prices import Price, Prices
from prefold.providers.rules import rules_for
from prefold.providers.usage import Usage

NOW = datetime(2026, 12, 1, tzinfo=UTC)
counts = st.integers(0, 10**9)
amounts = st.floats(0, 1_000)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    write = draw(counts)
    of_5m = draw(st.integers(0, write))
    return Usage(draw(counts), draw(counts), write, of_5m, draw(st.integers(0, write - of_5m)), draw(counts), True)


prices = st.builds(Price, amounts, amounts, amounts, amounts, amounts)


@given(usages(), prices)
def test_parts_sum_to_the_total(usage: Usage, price: Price) -> None:
    cost = price.cost_of(usage)
    assert cost.uncached + cost.read + cost.write + cost.output == cost.total
    by_hand = (
        usage.uncached * price.input
        + usage.read * price.read
        + (usage.write - usage.write_1h) * price.write
        + usage.write_1h * price.write_1h
        + usage.output * price.output
    )
    assert pytest.approx(by_hand / 1e6) == cost.total


@given(usages(), usages(), prices)
def test_more_tokens_never_cost_less(usage: Usage, more: Usage, price: Price) -> None:
    assert price.cost_of(usage).total <= price.cost_of(usage + more).total
    assert pytest.approx(price.cost_of(usage).total + price.cost_of(more).total) == price.cost_of(usage + more).total


def test_the_worked_example() -> None:
    priced = Prices.load(given="miss=2,hit=0.04", now=NOW)
    price = priced.price_of("any model")
    prefix, suffix = 4_000 * 10_000, 200 * 10_000
    assert 84 == price.cost_of(Usage(uncached=prefix + suffix)).total
    assert pytest.approx(5.6) == price.cost_of(Usage(uncached=suffix, read=prefix)).total
    assert ("given price", None, "USD") == (priced.source, priced.age_days, price.currency)


def test_what_a_given_price_leaves_out_follows_from_the_rules() -> None:
    price = Prices.load(given="input=10", now=NOW).price_of("claude-sonnet-4-5")
    assert (10, 1, 12.5, 20, 0) == (price.input, price.read, price.write, price.write_1h, price.output)
    price = Prices.load(given="miss=10,hit=2,write=3,write_1h=4,output=5", now=NOW).price_of("claude-sonnet-4-5")
    assert (10, 2, 3, 4, 5) == (price.input, price.read, price.write, price.write_1h, price.output)


def test_a_given_price_holds_for_every_cache() -> None:
    priced = Prices.load(given="miss=2,hit=0.04", now=NOW)
    price = priced.price_of("gpt-4o", rules=rules_for("claude-sonnet-4-5"))
    assert (2, 0.04, 2.5) == (price.input, price.read, price.write)


@pytest.mark.parametrize(
    "text", ["", "hit=1", "miss", "miss=x", "miss=-1", "miss=nan", "miss=inf", "miss=1,input=2", "miss=1,other=2"]
)
def test_prices_that_are_none(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        Prices.load(given=text, now=NOW)
    assert repr(text) in raised.value.message
    assert raised.value.hint


class TestPublicList:
    """Prices of genai-prices, of which only what no price list changes is asserted."""

    @pytest.fixture(autouse=True)
    def package(self) -> None:
        pytest.importorskip("genai_prices", reason="the extra `analysis` is not installed")

    @pytest.mark.parametrize(
        ("name", "same_as"),
        [
            ("anthropic/claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
            ("openrouter/anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
            ("claude-sonnet-4-5-latest", "claude-sonnet-4-5"),
            ("openai/gpt-4o-2024-08-06", "gpt-4o"),
            ("gpt-4o-20240806", "gpt-4o"),
            ("gpt-5.6-2026-09-01", "gpt-5.6"),
            ("gemini/gemini-2.5-flash", "gemini-2.5-flash"),
            ("vertex_ai/gemini-2.5-flash", "gemini-2.5-flash"),
        ],
    )
    def test_names_are_resolved(self, name: str, same_as: str) -> None:
        priced = Prices.load(now=NOW)
        assert priced.price_of(same_as) is not None
        assert priced.price_of(same_as) == priced.price_of(name)

    @pytest.mark.parametrize(
        "name",
        ["us.anthropic.claude-sonnet-4-5-20250929-v1:0", "ft:gpt-4o-2024-08-06:team::id", "groq/openai/gpt-oss-120b"],
    )
    def test_names_with_a_price_of_their_own(self, name: str) -> None:
        assert Prices.load(now=NOW).price_of(name) is not None

    @pytest.mark.parametrize(("name", "provider"), [("no-such-model", ""), ("gpt-4o", "vllm"), ("", ""), ("x/", "y")])
    def test_nobody_knows(self, name: str, provider: str) -> None:
        assert Prices.load(now=NOW).price_of(name, provider) is None

    def test_source_and_age(self) -> None:
        priced = Prices.load(now=NOW)
        price = priced.price_of("gpt-4o")
        assert price.source == priced.source
        assert price.source.startswith("genai-prices ")
        assert (NOW.date() - price.as_of).days == priced.age_days
        later = Prices.load(now=datetime(2027, 12, 1, tzinfo=UTC))
        assert later.age_days > 270
        assert 0 <= Prices.load(now=datetime.combine(price.as_of, datetime.min.time(), UTC)).age_days

    def test_reads_cost_less_and_writes_no_less_than_input(self) -> None:
        price = Prices.load(now=NOW).price_of("claude-sonnet-4-5")
        assert price.read < price.input < price.write < price.write_1h < price.output

    def test_a_missing_price_follows_from_the_rules(self) -> None:
        price = Prices.load(now=NOW).price_of("ft:gpt-4o-2024-08-06:team::id")
        rules = rules_for("ft:gpt-4o-2024-08-06:team::id")
        assert price.input * rules.read_multiplier == price.read
        assert price.input == price.write

    def test_the_cache_of_another_provider(self) -> None:
        priced = Prices.load(now=NOW)
        own, other = priced.price_of("gpt-4o"), priced.price_of("gpt-4o", rules=rules_for("claude-sonnet-4-5"))
        assert own.input == other.input
        assert pytest.approx((own.input * 0.1, own.input * 1.25, own.input * 2)) == (
            other.read,
            other.write,
            other.write_1h,
        )

    def test_long_requests_cost_more(self) -> None:
        price = Prices.load(now=NOW).price_of("gemini-2.5-pro")
        ((limit, _),) = price.longer
        assert price.input == price.at(limit).input < price.at(limit + 1).input
        assert price.read == price.at(0).read < price.at(10 * limit).read

    def test_another_currency(self) -> None:
        dollars = Prices.load(now=NOW).price_of("gemini-2.5-pro")
        euros = Prices.load(currency="EUR", rate=0.5, now=NOW).price_of("gemini-2.5-pro")
        assert (0.5 * dollars.input, 0.5 * dollars.read, "EUR") == (euros.input, euros.read, euros.currency)
        assert "EUR" == euros.at(10**6).currency
        with pytest.raises(UsageError, match=r"nobody said what that is in EUR.*--rate"):
            Prices.load(currency="EUR", now=NOW).price_of("gpt-4o")

    def test_storage_of_a_named_cache(self) -> None:
        rules = rules_for("gemini-2.5-pro", control="resource")
        assert (
            rules.storage_usd_per_million_hour == Prices.load(now=NOW).price_of("gemini-2.5-pro", rules=rules).storage
        )
        half = Prices.load(currency="EUR", rate=0.5, now=NOW).price_of("gemini-2.5-pro", rules=rules)
        assert 0.5 * rules.storage_usd_per_million_hour == half.storage
        unknown = Prices.load(given="miss=1", currency="EUR", now=NOW).price_of("gemini-2.5-pro", rules=rules)
        assert unknown.storage is None
        assert 0 == Prices.load(now=NOW).price_of("gemini-2.5-pro").storage


@pytest.mark.parametrize(
    ("currency", "rate"),
    [("eur", 1.0), ("EURO", 1.0), ("EUR", 0.0), ("EUR", -1.0), ("EUR", float("nan")), ("USD", 2.0)],
)
def test_currencies_and_rates_that_are_none(currency: str, rate: float) -> None:
    with pytest.raises(UsageError):
        Prices.load(given="miss=1", currency=currency, rate=rate, now=NOW)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "genai_prices"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(MissingExtra, match=r"prefold\[analysis\]"):
        Prices.load(now=NOW)
    assert 1 == Prices.load(given="miss=1", now=NOW).price_of("gpt-4o").input
    file = tmp_path / "prices.toml"
    file.write_text('[[prices]]\nmodel = "gpt-*"\ninput = 3.0\n')
    priced = Prices.load(overrides=file, now=NOW)
    assert (3, None) == (priced.price_of("gpt-4o").input, priced.price_of("claude-sonnet-4-5"))


class TestOverrides:
    FILE = """
        [[prices]]
        model = "qwen-*"
        input = 4.0
        read = 1.0
        currency = "CNY"

        [[prices]]
        model = "*"
        input = 2
        output = 8
    """

    def load(self, folder: Path, text: str = FILE, **options: object) -> Prices:
        file = folder / "prices.toml"
        file.write_text(text)
        return Prices.load(overrides=file, now=NOW, **options)

    def test_the_first_match_counts(self, tmp_path: Path) -> None:
        priced = self.load(tmp_path, currency="CNY", rate=7.0)
        price = priced.price_of("qwen/Qwen-Plus-2025-01-01")
        assert (4, 1, "CNY") == (price.input, price.read, price.currency)
        price = priced.price_of("gpt-4o")
        assert (14, 7, 56) == (price.input, price.read, price.output)
        assert priced.source.startswith("override file")

    def test_a_currency_nobody_can_convert(self, tmp_path: Path) -> None:
        priced = self.load(tmp_path)
        assert (2, 8) == (priced.price_of("gpt-4o").input, priced.price_of("gpt-4o").output)
        with pytest.raises(UsageError, match="is in CNY, but USD is asked for") as refused:
            priced.price_of("qwen-plus")
        assert "Write it in USD, or ask for CNY." == refused.value.hint

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot be read"):
            Prices.load(overrides=tmp_path / "none.toml", now=NOW)

    @pytest.mark.parametrize(
        ("text", "named"),
        [
            ("[[prices", "valid TOML"),
            ("", "no [[prices]]"),
            ("prices = 3", "no [[prices]]"),
            ("prices = [3]", "price 1"),
            ("other = 1", "'other'"),
            ('[[prices]]\nmodel = "x"', "input is missing"),
            ("[[prices]]\ninput = 1", "model is None"),
            ('[[prices]]\nmodel = "x"\ninput = true', "input"),
            ('[[prices]]\nmodel = "x"\ninput = -1', "input"),
            ('[[prices]]\nmodel = "x"\ninput = 1\nwrites = 1', "'writes'"),
            ('[[prices]]\nmodel = "x"\ninput = 1\ncurrency = "eur"', "'eur'"),
        ],
    )
    def test_files_that_are_none(self, tmp_path: Path, text: str, named: str) -> None:
        with pytest.raises(UsageError) as raised:
            self.load(tmp_path, text)
        assert named in raised.value.message
        assert "prices.toml" in raised.value.message
        assert raised.value.hint
