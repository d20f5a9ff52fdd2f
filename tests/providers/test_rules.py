"""Provider rules: what the data says, which model falls under which rules, and a loader that takes nothing on trust."""

from datetime import date

import pytest

from prefold.errors import UsageError
from prefold.providers.rules import (
    SECTIONS,
    CacheRules,
    Certainty,
    Control,
    Moment,
    Storage,
    parse_provider,
    providers,
    rules_for,
)

ALL_RULES: tuple[CacheRules, ...] = tuple(family for provider in providers() for family in provider.families)
FILE = """
schema = 1
provider = "somebody"
seen = 2026-11-30

[sources]
guide = "https://example.com/guide"

[defaults]
control = "implicit"
minimum_tokens = 10
granularity_tokens = 1
ttls = [300]
read_multiplier = 0.5
sections = ["tools", "system", "messages"]

[defaults.facts]
control = { source = "guide", certainty = "official" }
minimum_tokens = { source = "guide", certainty = "official" }
granularity_tokens = { source = "guide", certainty = "official" }
ttls = { source = "guide", certainty = "official" }
read_multiplier = { source = "guide", certainty = "unsure", note = "A guess." }

[[families]]
name = "small"
models = ["small-*"]
"""


@pytest.mark.parametrize(
    ("model", "provider", "minimum", "control"),
    [
        ("claude-sonnet-4-5-20250929", "anthropic", 1024, "explicit"),
        ("claude-3-5-sonnet-latest", "anthropic", 1024, "explicit"),
        ("claude-3-5-haiku-20241022", "anthropic", 2048, "explicit"),
        ("claude-opus-4-6", "anthropic", 4096, "explicit"),
        ("claude-opus-5-5", "anthropic", 512, "explicit"),
        ("claude-of-next-year", "anthropic", 4096, "explicit"),
        ("vertex_ai/claude-opus-4-6@20260101", "anthropic", 4096, "explicit"),
        ("openrouter/anthropic/claude-opus-4.5", "anthropic", 4096, "explicit"),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", "bedrock", 1024, "explicit"),
        ("bedrock/eu.anthropic.claude-haiku-4-5-20251001-v1:0", "bedrock", 4096, "explicit"),
        (
            "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-sonnet-4-5-v1:0",
            "bedrock",
            1024,
            "explicit",
        ),
        ("amazon.nova-pro-v1:0", "bedrock", 1024, "explicit"),
        ("gpt-4o-2024-08-06", "openai", 1024, "implicit"),
        ("GPT-4o", "openai", 1024, "implicit"),
        ("chatgpt-4o-latest", "openai", 1024, "implicit"),
        ("ft:gpt-4o-2024-08-06:team::id", "openai", 1024, "implicit"),
        ("openai/gpt-5.2", "openai", 1024, "implicit"),
        ("gpt-5.6-sol", "openai", 1024, "breakpoint"),
        ("gpt-6.1-terra", "openai", 1024, "breakpoint"),
        ("azure/gpt-4o", "azure", 1024, "implicit"),
        ("azure/gpt-5.6-sol", "azure", 1024, "breakpoint"),
        ("models/gemini-2.5-pro", "gemini", 4096, "implicit"),
        ("gemini-2.5-flash", "gemini", 1024, "implicit"),
        ("qwen-plus", "qwen", 1024, "implicit"),
        ("deepseek-chat", "deepseek", 64, "implicit"),
        ("MiniMax-M3", "minimax", 512, "implicit"),
        ("groq/openai/gpt-oss-120b", "groq", 1024, "implicit"),
        ("accounts/fireworks/models/deepseek-v4-pro", "fireworks", 1, "implicit"),
        ("hosted_vllm/meta-llama/Llama-3", "vllm", 16, "implicit"),
    ],
)
def test_model_names_lead_to_rules(model: str, provider: str, minimum: int, control: str) -> None:
    rules = rules_for(model)
    assert rules is not None
    assert (provider, minimum, control) == (rules.provider, rules.minimum_tokens, rules.control)


@pytest.mark.parametrize("model", ["", "gpt-4-1106-preview", "gpt-3.5-turbo", "openai/gpt-oss-120b", "llama-3"])
def test_models_without_rules(model: str) -> None:
    assert rules_for(model) is None


def test_most_specific_pattern_wins() -> None:
    family = {
        model: rules_for(model) for model in ("gpt-5.2", "gpt-5.2-pro", "kimi-k3.1-pro", "kimi-k3.1-pro-highspeed")
    }
    assert [0.1, 1.0, 0.1, 0.05] == [rules.read_multiplier for rules in family.values() if rules]


@pytest.mark.parametrize(
    ("model", "multiplier"), [("kimi-k2.5", 0.167), ("kimi-k2.6", 0.168), ("chatgpt-4o-latest", 1.0)]
)
def test_price_of_a_read(model: str, multiplier: float) -> None:
    rules = rules_for(model)
    assert rules is not None
    assert multiplier == rules.read_multiplier


def test_lookback_is_stated_only_where_it_is_documented() -> None:
    of_bedrock = {rules.family: rules.lookback for rules in ALL_RULES if rules.provider == "bedrock"}
    assert {"Amazon Nova"} == {family for family, lookback in of_bedrock.items() if lookback is None}
    assert {None, 20} == set(of_bedrock.values())


def test_provider_restricts() -> None:
    assert rules_for("claude-sonnet-4-5", "openai") is None
    on_bedrock = rules_for("claude-sonnet-4-5", "Bedrock")
    assert on_bedrock is not None
    assert "bedrock" == on_bedrock.provider
    engine = rules_for("", "prefold")
    assert engine is not None
    assert (0, 1, Control.IMPLICIT) == (engine.minimum_tokens, engine.granularity_tokens, engine.control)


def test_other_names_of_providers() -> None:
    assert rules_for("qwen-plus", "dashscope") == rules_for("qwen-plus", "qwen") == rules_for("qwen-plus")


def test_unknown_provider_names_the_known() -> None:
    with pytest.raises(UsageError, match=r"'nobody' is not known.*anthropic.*vllm"):
        rules_for("claude-sonnet-4-5", "nobody")


def test_one_way_of_caching_can_be_asked_for() -> None:
    explicit, resource = (
        rules_for("qwen-plus", control="explicit"),
        rules_for("gemini-2.5-pro", control=Control.RESOURCE),
    )
    assert explicit is not None
    assert resource is not None
    assert (4, 20, 1.25) == (explicit.max_breakpoints, explicit.lookback, explicit.write_multiplier(300))
    assert (4.5, 1.0) == (resource.storage_usd_per_million_hour, resource.write_multiplier(3600))
    assert rules_for("gpt-4o", control="explicit") is None


def test_all_families_are_complete_and_consistent() -> None:
    wanted = {
        "anthropic", "azure", "bedrock", "deepseek", "fireworks", "gemini", "groq", "llama.cpp", "lmcache", "minimax",
        "mistral", "moonshot", "openai", "prefold", "qwen", "sglang", "tensorrt-llm", "together", "vllm", "volcengine",
        "xai", "zhipu",
    }  # fmt: skip
    assert wanted == {provider.name for provider in providers()}
    for rules in ALL_RULES:
        assert date(2026, 1, 1) <= rules.seen, rules.family
        assert set(SECTIONS) == set(rules.sections), rules.family
        assert 0 <= rules.read_multiplier <= 1, rules.family
        assert set(rules.write_multipliers) <= set(rules.ttls), rules.family
        assert {"control", "minimum_tokens", "ttls", "read_multiplier"} <= set(rules.facts), rules.family
        if rules.control in (Control.EXPLICIT, Control.BREAKPOINT):
            assert rules.max_breakpoints >= 1, rules.family
            assert rules.ttls, rules.family


def test_what_is_kept_follows_from_the_control_unless_the_file_says_more() -> None:
    usual = {
        Control.IMPLICIT: Storage.PREFIXES,
        Control.EXPLICIT: Storage.ENTRIES,
        Control.BREAKPOINT: Storage.ENTRIES,
        Control.RESOURCE: Storage.RESOURCE,
    }
    special = {rules.provider: rules.stores for rules in ALL_RULES if rules.stores is not usual[rules.control]}
    assert {"deepseek": Storage.UNITS, "llama.cpp": Storage.SLOTS} == special
    older = rules_for("deepseek-v3.1")
    assert older is not None
    assert (Storage.PREFIXES, 64) == (older.stores, older.granularity_tokens)


def test_what_the_simulator_needs_is_there() -> None:
    def of(model: str, control: Control | None = None) -> CacheRules:
        rules = rules_for(model, control=control)
        assert rules is not None
        return rules

    assert (
        80 == of("gpt-5.6").searched_entries == of("gpt-6.1").searched_entries == of("azure/gpt-5.6").searched_entries
    )
    assert 20_000 == of("amazon.nova-pro-v1:0").maximum_tokens
    claude, qwen = of("claude-sonnet-4-5"), of("qwen-plus", Control.EXPLICIT)
    assert (Moment.REQUEST, Moment.FIRST_TOKEN, True) == (claude.ttl_from, claude.readable_from, claude.ttl_renewed)
    assert (Moment.ANSWER, Moment.ANSWER, True) == (qwen.ttl_from, qwen.readable_from, qwen.ttl_renewed)
    assert not of("gemini-2.5-pro", Control.RESOURCE).ttl_renewed
    assert (4, 0.1) == (of("llamacpp/x").slots, of("llamacpp/x").slot_similarity)
    assert ("cpu", "disk", "remote") == of("lmcache/x").tiers
    hosted = {rules.provider for rules in ALL_RULES if not rules.self_hosted}
    assert {"llama.cpp", "lmcache", "prefold", "sglang", "tensorrt-llm", "vllm"} == {
        rules.provider for rules in ALL_RULES if rules.self_hosted
    }
    assert not hosted & {rules.provider for rules in ALL_RULES if rules.computes_last or rules.tiers}
    for rules in ALL_RULES:
        assert bool(rules.ttls) >= ("ttl_renewed" in rules.facts) or rules.provider in ("openai", "azure"), rules.family
        assert not (rules.best_effort and rules.self_hosted), rules.family


def test_no_two_families_claim_the_same_pattern() -> None:
    claims = [(rules.provider, rules.control, pattern) for rules in ALL_RULES for pattern in rules.models]
    assert len(claims) == len(set(claims))


def test_names_and_prefixes_mean_one_provider() -> None:
    names = [name for provider in providers() for name in (provider.name, *provider.aliases)]
    prefixes = [prefix for provider in providers() for prefix in provider.prefixes]
    assert len(names) == len(set(names))
    assert len(prefixes) == len(set(prefixes))
    assert prefixes == [prefix.lower() for prefix in prefixes]


def test_rules_file_is_read() -> None:
    provider = parse_provider(FILE, "somebody.toml")
    (rules,) = provider.families
    assert ("somebody", "small", date(2026, 11, 30)) == (provider.name, rules.family, rules.seen)
    assert Certainty.UNSURE is rules.facts["read_multiplier"].certainty
    assert "https://example.com/guide" == rules.facts["ttls"].source


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema = 1", "schema = 2", "has schema 2"),
        ("schema = 1", "schema = true", "schema is True"),
        ("schema = 1", "schema =", "not valid TOML"),
        ('provider = "somebody"', "", "provider is missing"),
        ("minimum_tokens = 10", "", "minimum_tokens is missing"),
        ("minimum_tokens = 10", "minimum_tokens = -1", "minimum_tokens is -1"),
        ("minimum_tokens = 10", 'minimum_tokens = "10"', "minimum_tokens is '10'"),
        ("minimum_tokens = 10", "minimum_tokens = 10\nmin = 3", "'min' is unknown"),
        ("ttls = [300]", 'ttls = ["5m"]', "ttls holds '5m'"),
        ("ttls = [300]", "ttls = [300]\nwrite_multipliers = { 60 = 1.5 }", "write_multipliers has no source"),
        ("ttls = [300]", "ttls = [300]\nlookback = 20", "lookback has no source"),
        ("ttls = [300]", "ttls = [300]\nslots = 4", "slots has no source"),
        ("ttls = [300]", "ttls = [300]\nstores = 'drawers'", "stores is 'drawers'"),
        ("ttls = [300]", "ttls = [300]\nreadable_from = 'dawn'", "readable_from is 'dawn'"),
        ("ttls = [300]", "ttls = [300]\nself_hosted = 1", "self_hosted is 1"),
        ("ttls = [300]", "ttls = [300]\nmaximum_tokens = 0", "maximum_tokens is 0"),
        ("ttls = [300]", "ttls = [300]\nttl_from = 'request'", "ttl_from has no source"),
        ('control = "implicit"', 'control = "magic"', "control is 'magic'"),
        ('"tools", "system", "messages"', '"tools", "footer"', "sections is"),
        ('ttls = { source = "guide", certainty = "official" }', "", "ttls has no source"),
        ('ttls = { source = "guide"', 'ttls = { source = "hearsay"', "'hearsay' has no address"),
        ('"unsure", note', '"sure", note', "certainty is 'sure'"),
        ('note = "A guess."', "remark = 1", "'remark' is unknown"),
        ("[defaults.facts]", '[defaults.facts]\nweather = { source = "guide", certainty = "official" }', "'weather'"),
        ("seen = 2026-11-30", 'seen = "today"', "seen is 'today'"),
        ('models = ["small-*"]', "models = [1]", "models holds 1"),
        ('name = "small"', 'name = "small"\nfacts = "none"', "facts is 'none'"),
    ],
)
def test_loader_is_strict(old: str, new: str, message: str) -> None:
    assert old in FILE
    with pytest.raises(UsageError) as caught:
        parse_provider(FILE.replace(old, new, 1), "somebody.toml")
    assert message in caught.value.message
    assert "somebody.toml" in caught.value.message
    assert caught.value.hint


def test_write_multiplier_needs_a_lifetime_of_its_own() -> None:
    text = FILE.replace("ttls = [300]", "ttls = [300]\nwrite_multipliers = { 60 = 1.5 }", 1).replace(
        "[defaults.facts]", '[defaults.facts]\nwrite_multipliers = { source = "guide", certainty = "official" }'
    )
    with pytest.raises(UsageError, match="write_multipliers has 60 s"):
        parse_provider(text, "somebody.toml")


@pytest.mark.parametrize("values", ['stores = "slots"', "slots = 4"])
def test_slots_go_with_a_number(values: str) -> None:
    key = values.split(maxsplit=1)[0]
    text = FILE.replace("ttls = [300]", f"ttls = [300]\n{values}").replace(
        "[defaults.facts]", f'[defaults.facts]\n{key} = {{ source = "guide", certainty = "official" }}'
    )
    with pytest.raises(UsageError, match="slots is"):
        parse_provider(text, "somebody.toml")
