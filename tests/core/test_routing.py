"""Which replica a request goes to."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.core.routing import (
    POLICIES,
    Ask,
    Choice,
    Exact,
    Lately,
    LeastPending,
    Load,
    PrefixHash,
    RoundRobin,
    Sticky,
    Why,
    make,
)
from prefold.errors import UsageError


def fleet(size: int) -> list[Load]:
    return [Load(f"http://10.0.0.{index}:8000") for index in range(size)]


def places(
    policy: PrefixHash | Sticky, asks: Sequence[Ask], loads: Sequence[Load], allowed: Sequence[int]
) -> list[str]:
    return [loads[policy.choose(ask, loads, allowed).replica].name for ask in asks]


LOADS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 10**6)), min_size=1, max_size=6)


@pytest.mark.parametrize("name", POLICIES)
@given(data=st.data(), amounts=LOADS, beginning=st.binary(max_size=4), session=st.sampled_from(["", "a", "b"]))
def test_every_policy_takes_an_allowed_replica(name, data, amounts, beginning, session):
    loads = [Load(f"r{index}", *amount) for index, amount in enumerate(amounts)]
    everyone = range(len(loads))
    allowed = sorted(data.draw(st.sets(st.sampled_from(everyone), min_size=1)))
    matched = data.draw(st.lists(st.integers(0, 1000), max_size=len(loads)))
    policy = make(name)
    choice = policy.choose(Ask(beginning, session, 1000, matched), loads, allowed)
    assert choice.replica in allowed
    assert (choice.why is Why.ONLY_ONE) == (len(allowed) == 1)


def test_policies_are_named_as_in_the_configuration():
    assert ["round_robin", "least_pending", "sticky", "prefix_hash", "exact"] == list(POLICIES)
    with pytest.raises(UsageError, match=r"no routing 'magic'.*exact"):
        make("magic")


def test_options_reach_their_policies():
    loads = fleet(4)
    asks = [Ask(beginning=f"{number}".encode(), tokens=10) for number in range(100)]
    expected = [PrefixHash(7).choose(ask, loads, range(4)) for ask in asks]
    assert expected == [make("prefix_hash", virtual_nodes=7).choose(ask, loads, range(4)) for ask in asks]
    assert expected != [make("prefix_hash").choose(ask, loads, range(4)) for ask in asks]
    held = Ask(beginning=b"x", tokens=100, matched=[50, 0])
    busy = [Load("a", tokens=1000), Load("b", tokens=400)]
    assert Choice(1, Why.OVERLOADED) == make("exact", load_bound=1.1).choose(held, busy, range(2))
    assert Choice(0, Why.EXACT) == make("exact", load_bound=1.9).choose(held, busy, range(2))


# Round robin


def test_round_robin_takes_each_in_turn():
    policy, loads = RoundRobin(), fleet(3)
    assert [0, 1, 2, 0, 1, 2] == [policy.choose(Ask(), loads, range(3)).replica for _ in range(6)]
    assert [0, 2, 0] == [policy.choose(Ask(), loads, [0, 2]).replica for _ in range(3)]
    assert Choice(1, Why.ROUND_ROBIN) == policy.choose(Ask(), loads, range(3))


def test_round_robin_serves_models_that_alternate_evenly():
    policy, loads = RoundRobin(), fleet(4)
    chosen = Counter(policy.choose(Ask(), loads, allowed).replica for _ in range(10) for allowed in ([0, 1], [2, 3]))
    assert {0: 5, 1: 5, 2: 5, 3: 5} == chosen


# Least pending


def test_least_pending_takes_the_idlest_and_of_equals_each_in_turn():
    policy = LeastPending()
    loads = [Load("a", 2, 0), Load("b", 1, 900), Load("c", 1, 800), Load("d", 1, 800), Load("e", 0, 0)]
    assert [2, 3, 2, 3] == [policy.choose(Ask(), loads, range(4)).replica for _ in range(4)]
    assert Choice(4, Why.LEAST_PENDING) == policy.choose(Ask(), loads, range(5))


# On a ring


def test_sessions_stay_where_they_are_and_others_are_spread():
    policy, loads = Sticky(), fleet(4)
    first = {policy.choose(Ask(b"%d" % number, "conversation"), loads, range(4)).replica for number in range(50)}
    assert 1 == len(first)
    assert Why.STICKY is policy.choose(Ask(session="conversation"), loads, range(4)).why
    assert {0, 1, 2, 3} == {policy.choose(Ask(session=f"{number}"), loads, range(4)).replica for number in range(100)}
    without = [policy.choose(Ask(b"same"), loads, range(4)) for _ in range(4)]
    assert [Choice(index, Why.FALLBACK) for index in range(4)] == without


def test_equal_beginnings_go_to_one_place_and_a_session_has_its_own():
    policy, loads = PrefixHash(), fleet(4)
    chosen = {policy.choose(Ask(b"system", tokens=number), loads, range(4)) for number in range(50)}
    assert [Why.PREFIX_HASH] == [choice.why for choice in chosen]
    assert {0, 1, 2, 3} == {policy.choose(Ask(b"system", f"{number}"), loads, range(4)).replica for number in range(99)}
    assert Why.FALLBACK is policy.choose(Ask(tokens=5), loads, range(4)).why


@pytest.mark.parametrize("size", [2, 5, 20])
def test_a_replica_that_comes_or_goes_moves_only_its_share(size):
    loads = fleet(size + 1)
    asks = [Ask(beginning=f"{number}".encode()) for number in range(4000)]
    policy = PrefixHash()
    many = places(policy, asks, loads, range(size + 1))
    new = loads[-1].name
    fewer = places(policy, asks, loads[:-1], range(size))
    assert all(new == after or before == after for before, after in zip(fewer, many, strict=True))
    share = sum(name == new for name in many) / len(many)
    assert 0.6 / (size + 1) < share < 1.5 / (size + 1)
    # The same where it is only down, and whatever the order in which replicas are listed.
    assert fewer == places(policy, asks, loads, range(size))
    assert many == places(PrefixHash(), asks, loads[::-1], range(size + 1))


def test_places_are_the_same_in_every_process():
    loads = fleet(5)
    asks = [Ask(beginning=f"{number}".encode()) for number in range(10)]
    assert [0, 1, 2, 1, 1] == [PrefixHash().choose(ask, loads, range(5)).replica for ask in asks[:5]]


@pytest.mark.parametrize("policy", [PrefixHash(), Sticky()])
def test_requests_that_all_belong_to_one_place_are_bounded(policy):
    loads = fleet(8)
    whys = []
    for _ in range(1000):
        choice = policy.choose(Ask(b"same", "same", tokens=100), loads, range(8))
        loads[choice.replica].pending += 1
        whys.append(choice.why)
    assert max(load.pending for load in loads) <= 1.25 * 1000 / 8 + 1
    assert Why.OVERLOADED not in whys[:8]  # nobody notices so few
    assert Why.OVERLOADED in whys


def test_tokens_are_bounded_too():
    policy, loads = PrefixHash(), fleet(8)
    for _ in range(1000):
        loads[policy.choose(Ask(b"same", tokens=100), loads, range(8)).replica].tokens += 100
    assert max(load.tokens for load in loads) <= 1.25 * 100_000 / 8 + 200


def test_a_replica_passed_over_by_one_is_not_by_others():
    policy, loads = PrefixHash(), fleet(4)
    asks = [Ask(f"{number}".encode(), tokens=10) for number in range(400)]
    before = [policy.choose(ask, loads, range(4)) for ask in asks]
    hot = before[0].replica
    loads[hot].pending = 50
    after = [policy.choose(ask, loads, range(4)) for ask in asks]
    for old, new in zip(before, after, strict=True):
        assert new == old if old.replica != hot else (new.replica != hot and new.why is Why.OVERLOADED)


def test_where_each_has_too_much_of_something_the_place_stays():
    policy = PrefixHash()
    ask = Ask(b"x", tokens=1)
    loads = [Load("a", pending=100, tokens=0), Load("b", pending=0, tokens=10**6)]
    assert policy.choose(ask, [Load("a"), Load("b")], range(2)) == policy.choose(ask, loads, range(2))


@pytest.mark.parametrize("policy", [PrefixHash(), Sticky()])
@pytest.mark.parametrize("counted", [1, 10, 40], ids=["as estimated", "ten times as many", "forty times as many"])
def test_a_replica_that_is_hardly_busy_keeps_what_is_at_home_there(policy, counted):
    loads, lately = [Load("a", waiting=0), Load("b", waiting=0)], Lately()
    ask = Ask(b"same", "same", tokens=100)
    chosen, running = [], []
    for _ in range(500):
        choice = policy.choose(ask, loads, range(2))
        chosen.append(choice)
        load = loads[choice.replica]
        load.pending += 1
        load.wait_for(ask.tokens)
        running.append((load, lately.add(load, ask.tokens, 2)))
        if len(running) == 8:  # at once
            load, work = running.pop(0)
            load.pending -= 1
            load.wait_for(-ask.tokens)
            work.correct(counted * ask.tokens)
    assert 1 == len(set(chosen))
    assert chosen[0].why is not Why.OVERLOADED


@pytest.mark.parametrize(("waiting", "is_busy"), [(9_000, False), (9_024, True), (None, True)])
def test_a_busy_replica_loses_what_exceeds_its_share(waiting, is_busy):
    ask = Ask(b"same", tokens=1000)
    home = PrefixHash().choose(ask, [Load("a"), Load("b")], range(2)).replica
    loads = [Load("a", waiting=0), Load("b", waiting=0)]
    loads[home] = Load(loads[home].name, 7, 50_000, waiting)  # with 9,024 as much under way as 8 such prompts
    expected = Choice(1 - home, Why.OVERLOADED) if is_busy else Choice(home, Why.PREFIX_HASH)
    assert expected == PrefixHash().choose(ask, loads, range(2))


# Exact


def test_exact_goes_where_most_is_held():
    policy, loads = Exact(), fleet(4)
    assert Choice(2, Why.EXACT) == policy.choose(Ask(tokens=1000, matched=[0, 160, 800, 320]), loads, range(4))
    assert Choice(3, Why.EXACT) == policy.choose(Ask(tokens=1000, matched=[0, 160, 800, 320]), loads, [0, 1, 3])


def test_exact_falls_back_to_the_idlest_where_nothing_matches():
    policy = Exact()
    loads = [Load("a", 1), Load("b", 0), Load("c", 0)]
    for matched in ([], [0, 0, 0], [0, 0], [0, 0, 0, 500]):
        assert Why.FALLBACK is policy.choose(Ask(tokens=1000, matched=matched), loads, range(3)).why
    assert {1, 2} == {policy.choose(Ask(tokens=1000), loads, range(3)).replica for _ in range(2)}


def test_exact_spreads_ties_by_a_rule_that_every_process_follows():
    loads = fleet(4)
    asks = [Ask(b"system", f"{number}", 1000, [500, 500, 500, 0]) for number in range(300)]
    chosen = [Exact().choose(ask, loads, range(4)).replica for ask in asks]
    assert chosen == [Exact().choose(ask, loads, range(4)).replica for ask in asks]
    assert {0, 1, 2} == set(chosen)
    assert min(Counter(chosen).values()) > 70


def test_a_little_load_decides_between_equal_matches_only():
    loads = [Load("a", tokens=5000), Load("b", tokens=4000), Load("c", tokens=5000)]
    policy = Exact()
    assert Choice(1, Why.EXACT) == policy.choose(Ask(b"x", tokens=9000, matched=[512, 512, 512]), loads, range(3))
    assert Choice(2, Why.EXACT) == policy.choose(Ask(b"x", tokens=9000, matched=[512, 512, 1024]), loads, range(3))


def test_a_replica_gives_up_affinity_once_its_excess_weighs_more_than_going_elsewhere_costs():
    policy = Exact()
    ask = Ask(b"x", tokens=5000, matched=[4000, 0])

    def chosen(tokens: int) -> Choice:
        return policy.choose(ask, [Load("a", tokens=tokens), Load("b", tokens=10_000)], range(2))

    assert Choice(0, Why.EXACT) == chosen(10_000)
    assert Choice(0, Why.EXACT) == chosen(17_000)  # 125 above 1.25 times the mean of 13,500, which counts ten times
    assert Choice(1, Why.OVERLOADED) == chosen(18_000)  # 500 above it


def test_the_first_conversations_stay_where_they_began():
    policy, loads, lately = Exact(), fleet(8), Lately()
    matched = {name: [0] * 8 for name in "abc"}
    places = {name: [] for name in "abc"}
    for turn in range(1, 20):
        for name in "abc":
            chosen = policy.choose(Ask(name.encode(), "", 1000 * turn, matched[name]), loads, range(8)).replica
            lately.add(loads[chosen], 1000 * turn - matched[name][chosen], 8)
            matched[name][chosen] = 1000 * turn
            places[name].append(chosen)
    assert 3 == len({tuple(set(chosen)) for chosen in places.values()})
    assert all(len(set(chosen)) == 1 for chosen in places.values())


def test_requests_under_way_count_as_well():
    policy = Exact()
    ask = Ask(b"x", tokens=5000, matched=[4000, 0, 0, 0])
    others = [Load(name) for name in "bcd"]
    assert Choice(0, Why.EXACT) == policy.choose(ask, [Load("a", pending=8), *others], range(4))
    assert Why.OVERLOADED is policy.choose(ask, [Load("a", pending=16), *others], range(4)).why


def test_a_hot_replica_gives_up_affinity_alone():
    policy, loads = Exact(), fleet(4)
    loads[0].tokens, loads[0].pending = 200_000, 60
    for holder in (1, 2, 3):
        matched = [0] * 4
        matched[holder] = 800
        assert Choice(holder, Why.EXACT) == policy.choose(Ask(b"x", tokens=1000, matched=matched), loads, range(4))
    assert Why.OVERLOADED is policy.choose(Ask(b"x", tokens=1000, matched=[800, 0, 0, 0]), loads, range(4)).why


@pytest.mark.parametrize("size", [4, 8])
def test_a_prefix_that_everybody_asks_for_is_soon_held_by_as_many_as_the_bound_asks_for(size):
    policy, loads, lately = Exact(), fleet(size), Lately()
    shared, own = 8000, 500
    matched, computed = [0] * size, [0] * size
    for number in range(4000):
        chosen = policy.choose(Ask(b"%d" % number, "", shared + own, matched), loads, range(size)).replica
        tokens = shared + own - matched[chosen]
        matched[chosen] = shared
        computed[chosen] += tokens
        lately.add(loads[chosen], tokens, size)
    assert sum(map(bool, matched)) > size / 1.25
    assert max(computed) < 1.25 * sum(computed) / size


# Load


def test_lately_keeps_the_latest_requests():
    lately, loads = Lately(window=2), fleet(2)
    for tokens in (1, 10, 100, 1000):
        lately.add(loads[0], tokens, 2)
    assert (1111, 0) == (loads[0].tokens, loads[1].tokens)
    lately.add(loads[1], 5, 2)
    assert (1110, 5) == (loads[0].tokens, loads[1].tokens)
    lately.add(loads[1], 7, 1)  # one of the two is gone: fewer are remembered
    assert (0, 12) == (loads[0].tokens, loads[1].tokens)


def test_what_was_thought_of_a_request_is_put_right_until_it_is_forgotten():
    lately, [load] = Lately(window=2), fleet(1)
    first, second = lately.add(load, 100, 1), lately.add(load, 100, 1)
    first.correct(3)
    assert 103 == load.tokens
    third = lately.add(load, 100, 1)
    assert 200 == load.tokens
    first.correct(7)  # long gone
    second.correct(110)
    third.correct(0)
    assert 110 == load.tokens
