import pytest

from prefold.analysis.advice import advise
from prefold.analysis.situation import Situation, guess_situation


def analysis(**changes):
    plain = {
        "input_tokens": 1000,
        "log": {"sources": ["requests.jsonl"]},
        "attribution": [],
        "breaks": [],
        "order": None,
        "capacity": None,
        "caches": [],
    }
    return {**plain, **changes}


def lost(reason: str, tokens: int = 200) -> dict:
    return {"reason": reason, "tokens": tokens}


def test_nothing_to_do_is_said():
    assert ["Leave it as it is"] == [step["title"] for step in advise(Situation.HOSTED_API, analysis())]


@pytest.mark.parametrize(
    ("reason", "title"),
    [
        ("breakpoint", "Set cache markers where prefixes end"),
        ("below_minimum", "Bring what repeats above the minimum"),
        ("expired", "Keep entries longer"),
        ("evicted", "Give the cache more room, or a tier below it"),
        ("other_replica", "Send requests where their prefix is"),
        ("other_tenant", "Share what all tenants have in common"),
    ],
)
def test_each_reason_has_its_step(reason, title):
    steps = advise(Situation.HOSTED_API, analysis(attribution=[lost(reason), lost("cold", 800)]))
    assert [title] == [step["title"] for step in steps]
    assert "20.0%" in steps[0]["text"]


def test_less_than_one_in_a_hundred_is_not_worth_a_step():
    steps = advise(Situation.HOSTED_API, analysis(attribution=[lost("evicted", 9)]))
    assert ["Leave it as it is"] == [step["title"] for step in steps]


def test_a_break_comes_with_its_pair():
    found = {
        "cause": "clock",
        "path": "system[0].text",
        "tokens": 500,
        "requests": 1200,
        "fix": "Move it.",
        "example": ["a.jsonl:3", "a.jsonl:4"],
    }
    step = advise(Situation.HOSTED_API, analysis(breaks=[found]))[0]
    assert {
        "title": "Mend the prefix: clock at system[0].text",
        "text": "50.0% of input is read again for it, in 1,200 requests. Move it.",
        "command": "prefold diff a.jsonl:3 a.jsonl:4",
    } == step


def test_the_situation_decides_what_comes_first():
    facts = analysis(
        attribution=[lost("other_replica"), lost("evicted")], order={"share_before": 0.3, "share_after": 0.5}
    )
    routed = advise(Situation.MANY_REPLICAS, facts)
    hosted = advise(Situation.HOSTED_API, facts)
    assert "Send requests where their prefix is" == routed[0]["title"]
    assert "Put what never changes first" == hosted[0]["title"]
    assert sorted(step["title"] for step in routed) == sorted(step["title"] for step in hosted)


def test_policy_and_slots():
    points = [{"tokens": 10, "lru": 0.2, "optimum": 0.3}, {"tokens": 20, "lru": 0.5, "optimum": 0.5}]
    caches = [{"cache": "llamacpp", "hit_rate": 0.2}, {"cache": "prefold", "hit_rate": 0.6}]
    steps = advise(Situation.LAPTOP, analysis(capacity={"points": points}, caches=caches))
    assert ["Share prefixes between slots", "Evict by what is likely to come back"] == [step["title"] for step in steps]


@pytest.mark.parametrize(
    ("providers", "replicas", "salts", "situation"),
    [
        ({}, 1, 1, Situation.HOSTED_API),
        ({"openai": 3, "vllm": 1}, 1, 1, Situation.HOSTED_API),
        ({"openai": 1, "vllm": 3}, 1, 1, Situation.OWN_ENGINE),
        ({"vllm": 3}, 2, 5, Situation.MANY_REPLICAS),
        ({"vllm": 3}, 1, 5, Situation.MANY_TENANTS),
        ({"llamacpp": 3}, 1, 5, Situation.LAPTOP),
    ],
)
def test_guess(providers, replicas, salts, situation):
    assert situation == guess_situation(providers, replicas=replicas, salts=salts)
