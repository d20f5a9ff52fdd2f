import shlex

import pytest

from prefold.analysis.advice import advise
from prefold.analysis.encode import BLOCK_IDS
from prefold.analysis.situation import FIRST_STEPS, LAPTOP_ENGINES, Situation, guess_situation
from prefold.providers.rules import providers as known_providers

LOG = {
    "sources": ["requests.jsonl"],
    "formats": {"openai": 9},
    "skipped": 0,
    "models": {"gpt-4o": 9},
    "tokens": {"counters": {"o200k_base": 9}},
}


def analysis(log=LOG, **changes):
    plain = {
        "input_tokens": 1000,
        "log": log,
        "cache": "own",
        "attribution": [],
        "breaks": [],
        "order": None,
        "capacity": None,
        "caches": [],
    }
    return {**plain, **changes}


def titles(steps) -> list[str]:
    return [step["title"] for step in steps]


def lost(reason: str, tokens: int = 200) -> dict:
    return {"reason": reason, "tokens": tokens}


def test_nothing_to_do_is_said():
    assert ["Leave it as it is"] == [step["title"] for step in advise(Situation.HOSTED_API, analysis())]


@pytest.mark.parametrize(
    ("situation", "reason", "title"),
    [
        ("hosted_api", "breakpoint", "Set cache markers where prefixes end"),
        ("hosted_api", "below_minimum", "Bring what repeats above the minimum"),
        ("hosted_api", "expired", "Keep entries longer"),
        ("own_engine", "evicted", "Give the cache more room, or a tier below it"),
        ("many_replicas", "other_replica", "Send requests where their prefix is"),
        ("many_tenants", "other_tenant", "Share what all tenants have in common"),
    ],
)
def test_each_reason_has_its_step_where_it_can_be_done(situation, reason, title):
    facts = analysis(attribution=[lost(reason), lost("cold", 800)])
    steps = advise(Situation(situation), facts)
    assert [title] == titles(steps)
    assert "20.0 %" in steps[0]["text"]
    elsewhere = [other for other in Situation if title in titles(advise(other, facts))]
    step = {"breakpoint": "breakpoints", "below_minimum": "breakpoints", "expired": "lifetime", "evicted": "capacity"}
    step |= {"other_replica": "routing", "other_tenant": "tenants"}
    assert elsewhere == [other for other in Situation if step[reason] in FIRST_STEPS[other]]


def test_less_than_one_in_a_hundred_is_not_worth_a_step():
    steps = advise(Situation.OWN_ENGINE, analysis(attribution=[lost("evicted", 9)]))
    assert ["Leave it as it is"] == titles(steps)


def broken(gain: int = 450, **changes) -> dict:
    plain = {
        "cause": "tool_order",
        "path": "system[0].text",
        "tokens": 500,
        "requests": 1200,
        "fix": "Move it.",
        "gain_tokens": gain,
        "example": ["a.jsonl:3", "a.jsonl:4"],
    }
    return {**plain, **changes}


def test_a_break_comes_with_its_pair():
    step = advise(Situation.HOSTED_API, analysis(breaks=[broken()]))[0]
    assert {
        "title": "Mend the prefix: tool order at system[0].text",
        "text": "50.0 % of input is read again for it, in 1,200 requests; replayed with the fix, 45.0 % more is read "
        "from the cache. Move it.",
        "command": "prefold diff a.jsonl:3 a.jsonl:4",
    } == step


def test_a_break_that_no_fix_mends_is_no_step():
    facts = analysis(breaks=[broken(0, cause="too_short"), broken(9), broken(20, cause=None, path="")])
    assert ["Mend the prefix: another history"] == titles(advise(Situation.HOSTED_API, facts))


def test_what_gains_most_comes_first():
    facts = analysis(
        attribution=[lost("expired", 300), lost("evicted", 900)],
        breaks=[broken(20), broken(400, cause="clock")],
        order={"share_before": 0.3, "share_after": 0.35},
    )
    assert [
        "Mend the prefix: clock at system[0].text",
        "Keep entries longer",
        "Put what never changes first",
        "Mend the prefix: tool order at system[0].text",
    ] == titles(advise(Situation.HOSTED_API, facts))


def test_of_equal_gains_the_first_of_the_situation_counts():
    facts = analysis(attribution=[lost("other_replica")], order={"share_before": 0.25, "share_after": 0.5})
    facts["attribution"] += [lost("evicted", 250)]
    facts["attribution"][0]["tokens"] = 250
    assert [
        "Send requests where their prefix is",
        "Give the cache more room, or a tier below it",
        "Put what never changes first",
    ] == titles(advise(Situation.MANY_REPLICAS, facts))


def test_policy_and_slots():
    points = [{"tokens": 10, "lru": 0.2, "optimum": 0.3}, {"tokens": 20, "lru": 0.5, "optimum": 0.5}]
    caches = [{"cache": "llama.cpp", "hit_rate": 0.2}, {"cache": "prefold", "hit_rate": 0.6}]
    facts = analysis(capacity={"points": points}, caches=caches)
    assert ["Share prefixes between slots"] == titles(advise(Situation.LAPTOP, facts))
    (step,) = advise(Situation.OWN_ENGINE, facts)
    assert "Evict by what is likely to come back" == step["title"]
    assert "prefold simulate requests.jsonl --policy lru,default --capacity 10tokens" == step["command"]


def commands(log, reading=(), **changes) -> list[str]:
    """Every command that some situation advises."""
    points = [{"tokens": 10, "lru": 0.2, "optimum": 0.3}]
    reasons = ("breakpoint", "expired", "evicted", "other_replica")
    places = [f"{log['sources'][0]}:{number}" for number in (3, 4)]
    facts = analysis(
        log,
        breaks=[broken(example=places)],
        attribution=[lost(reason) for reason in reasons],
        capacity={"points": points},
        order={"share_before": 0.3, "share_after": 0.5},
        **changes,
    )
    steps = [step for situation in Situation for step in advise(situation, facts, reading)]
    return sorted({step["command"] for step in steps if step["command"]})


def test_commands_for_a_log_of_requests():
    assert [
        "prefold breakpoints requests.jsonl:4 --patched",
        "prefold diff requests.jsonl:3 requests.jsonl:4",
        "prefold order requests.jsonl",
        "prefold simulate requests.jsonl --curve",
        "prefold simulate requests.jsonl --policy lru,default --capacity 10tokens",
        "prefold simulate requests.jsonl --replicas 4 --routing exact",
    ] == commands(LOG)


@pytest.mark.parametrize(
    ("model", "cache", "is_longer", "command"),
    [
        ("gpt-4o", "own", False, None),
        ("some-model", "own", False, None),
        ("gpt-5.1", "own", True, None),  # which no marker asks for
        ("claude-sonnet-4-5", "own", True, "prefold simulate requests.jsonl --what-if markers_1h"),
        ("gpt-4o", "anthropic", True, "prefold simulate requests.jsonl --cache anthropic --what-if markers_1h"),
        ("claude-sonnet-4-5", "deepseek", False, None),
    ],
)
def test_a_longer_lifetime_only_where_there_is_one(model, cache, is_longer, command):
    log = {**LOG, "models": {"gpt-4o-mini": 1, model: 8}}
    (step,) = advise(Situation.HOSTED_API, analysis(log, cache=cache, attribution=[lost("expired")]))
    assert ("Keep entries longer", command) == (step["title"], step["command"])
    assert is_longer == ("ask for the longer lifetime" in step["text"])
    assert "send a small request in between" in step["text"]


@pytest.mark.parametrize(
    ("cause", "reason", "title"),
    [
        ("expired", "expired", "Keep entries longer"),
        ("no_breakpoint", "breakpoint", "Set cache markers where prefixes end"),
        ("lookback", "lookback", "Set a further cache marker in long turns"),
        ("too_short", "below_minimum", "Bring what repeats above the minimum"),
    ],
)
def test_a_loss_that_has_a_step_of_its_own_is_advised_once(cause, reason, title):
    facts = analysis(attribution=[lost(reason)], breaks=[broken(200, cause=cause, path="")])
    assert [title] == titles(advise(Situation.HOSTED_API, facts))


@pytest.mark.parametrize(
    "change",
    [
        {"sources": ["requests.jsonl.gz"]},
        {"sources": ["folder"]},
        {"sources": ["requests.json"]},
        {"formats": {"tau_bench": 9}},
        {"formats": {"openai": 8, "litellm": 1}},
    ],
)
def test_what_only_the_simulator_reads(change):
    assert {"simulate"} == {shlex.split(command)[1] for command in commands({**LOG, **change})}


def test_nothing_reads_standard_input_again():
    assert [] == commands({**LOG, "sources": ["Standard input"]})


def test_a_name_that_no_terminal_shows_as_it_is():
    assert [] == commands({**LOG, "sources": ["two\nlines.jsonl"]})


def test_a_trace_whose_ids_name_content_can_be_reordered():
    trace = {**LOG, "models": {}, "formats": {"ragpulse": 9}, "tokens": {"counters": {BLOCK_IDS: 9}}}
    assert any(command.endswith(" --what-if reordered") for command in commands(trace))


def test_a_trace_has_no_markers_to_change():
    trace = {
        **LOG,
        "models": {"claude-sonnet-4-5": 9},
        "formats": {"mooncake": 9},
        "tokens": {"counters": {BLOCK_IDS: 9}},
    }
    assert not any("--what-if" in command for command in commands(trace))


def test_several_sources_and_how_they_were_read():
    log = {**LOG, "sources": ["a.jsonl", "b.jsonl"]}
    found = commands(log, reading=["--log-format", "openai", "--lenient"], cache="anthropic")
    assert "prefold simulate a.jsonl b.jsonl --cache anthropic --log-format openai --lenient --curve" in found
    assert "prefold diff a.jsonl:3 a.jsonl:4 --provider anthropic" in found
    assert not any(command.startswith("prefold order") for command in found)


def test_names_are_quoted():
    name = "-my log; touch PWNED.jsonl"
    found = commands({**LOG, "sources": [name]})
    assert 6 == len(found)
    assert all(f"./{name}" in shlex.split(command)[2] for command in found)


@pytest.mark.parametrize(
    ("providers", "replicas", "salts", "situation"),
    [
        ({}, 1, 1, Situation.HOSTED_API),
        ({"openai": 3, "vllm": 1}, 1, 1, Situation.HOSTED_API),
        ({"openai": 1, "vllm": 3}, 1, 1, Situation.OWN_ENGINE),
        ({"vllm": 3}, 2, 5, Situation.MANY_REPLICAS),
        ({"vllm": 3}, 1, 5, Situation.MANY_TENANTS),
        ({"llama.cpp": 3}, 1, 5, Situation.LAPTOP),
        ({"prefold": 3}, 1, 1, Situation.LAPTOP),
        ({"tensorrt-llm": 3}, 1, 1, Situation.OWN_ENGINE),
        ({"lmcache": 3}, 1, 1, Situation.OWN_ENGINE),
        ({"blocks": 3}, 1, 1, Situation.OWN_ENGINE),
    ],
)
def test_guess(providers, replicas, salts, situation):
    assert situation == guess_situation(providers, replicas=replicas, salts=salts)


def test_every_provider_has_a_situation():
    by_situation = {known.name: guess_situation({known.name: 1}, replicas=1, salts=1) for known in known_providers()}
    own = {known.name for known in known_providers() if known.families[0].self_hosted}
    assert own == {name for name, situation in by_situation.items() if situation is not Situation.HOSTED_API}
    assert set(LAPTOP_ENGINES) <= own
