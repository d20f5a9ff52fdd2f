import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.analysis.model_names import disguised, is_public
from prefold.providers.rules import CacheRules, Control, providers, rules_for

TAG = "model-0123456789abcdef"
SECRETS = ("acmesecret", "Geheim", "skQ7dkw", "123456789012", "4111-1111-1111-1111", "żółw", "\ud83d", "top\nsecret")
PIECES = (
    *(
        "gpt-4o",
        "claude-sonnet-4-5",
        "ft:",
        "openai/",
        "azure/",
        "vllm/",
        "bedrock/",
        "us.anthropic.",
        "qwen",
        "latest",
    ),
    *(
        "arn:aws:bedrock:us-east-1:",
        "https://",
        "models/",
        ":ft-",
        "-",
        ":",
        "/",
        "@",
        "?key=",
        " ",
        "-2024-08-06",
        "3",
    ),
)


def rules(name: str, provider: str | None) -> list[CacheRules | None]:
    return [rules_for(name, provider, control=control) for control in (None, *Control)]


@given(
    st.lists(st.sampled_from(PIECES), max_size=5),
    st.sampled_from(SECRETS),
    st.lists(st.sampled_from(PIECES), max_size=4),
    st.sampled_from(["", "openai", "azure", "vllm"]),
)
def test_no_secret_gets_through_and_rules_stay(before: list[str], secret: str, after: list[str], provider: str) -> None:
    name = "".join((*before, secret, *after))
    assert not is_public(name)
    other = disguised(name, provider, TAG)
    assert secret.lower() not in other.lower()
    for served_by in (None, provider or None):
        assert rules(name, served_by) == rules(other, served_by)


@given(st.text(max_size=30), st.sampled_from(["", "anthropic", "nobody"]))
def test_any_text_is_public_or_is_disguised(name: str, provider: str) -> None:
    if not is_public(name):
        assert name not in disguised(name, provider, TAG) or len(name) < 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openai/ft:gpt-4o:acmesecretorg:secretproj:abc", f"openai/ft:gpt-4o:{TAG}"),
        ("gpt-4o:ft-acmesecret-2023-01", f"gpt-4o:ft-{TAG}"),
        ("azure/secret-deployment-acme", f"azure/{TAG}"),
        ("https://user:secretpw@host/v1/gpt-4o", TAG),
        ("gpt-4o-secret", f"gpt-4o-{TAG}"),
    ],
)
def test_what_stays(name: str, expected: str) -> None:
    assert expected == disguised(name, "", TAG)


def test_a_profile_of_bedrock_keeps_its_model() -> None:
    profile = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    first, second = (disguised(profile, "", f"model-{number}") for number in (1, 2))
    assert first.startswith("bedrock/claude-sonnet-4-5:")
    assert first != second


@pytest.mark.parametrize(
    "name",
    [
        "gpt-4o",
        "gpt-4o-mini-2024-07-18",
        "ft:gpt-4o",
        "claude-3-5-sonnet-20241022",
        "anthropic.claude-3-5-sonnet-20241022-v2:0",
        "us.anthropic.claude-opus-4-5-20251101-v1:0",
        "gemini-2.5-flash-preview-09-2025",
        "meta-llama/Llama-3.3-70B-Instruct",
        "Qwen/Qwen3-235B-A22B-Instruct-2507",
        "deepseek-reasoner",
        "openrouter/anthropic/claude-sonnet-4.5",
        "claude-sonnet-4@20250514",
        "accounts/fireworks/models/deepseek-v3p1",
        "gpt-5.1-codex-max",
        "doubao-seed-1-6-250615",
        "moonshotai/Kimi-K2-Instruct-0905",
    ],
)
def test_what_makers_call_their_models_is_public(name: str) -> None:
    assert is_public(name)


def test_what_rules_call_models_is_public() -> None:
    patterns = [pattern for one in providers() for family in one.families for pattern in family.models]
    assert all(is_public(pattern.replace("*", "")) for pattern in patterns if "[" not in pattern)
