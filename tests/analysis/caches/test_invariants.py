"""What holds for every cache under every rules of the package, whatever the requests."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.analysis.caches.base import Served
from prefold.analysis.caches.spec import Tier
from prefold.analysis.request import Marker, Request
from prefold.providers.rules import CacheRules, Storage

from .support import ALL_RULES, cache, request, text

PIECES = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([40, 700, 1500])), min_size=1, max_size=4)


@st.composite
def requests(draw) -> list[Request]:
    """Prompts put together from a few pieces, so that many begin alike."""
    made = []
    time = 0.0
    for _ in range(draw(st.integers(1, 12))):
        tokens: list[int] = []
        ends = []
        for piece, size in draw(PIECES):
            tokens += text(size, piece)
            ends.append(len(tokens))
        has_ends = draw(st.booleans())
        marked = draw(st.sets(st.sampled_from(ends), max_size=4)) if has_ends else ()
        time += draw(st.sampled_from([0.0, 1.0, 400.0, 4000.0]))
        made.append(
            request(
                tokens,
                time,
                ends=ends if has_ends else (),
                markers=[Marker(end, draw(st.sampled_from([None, 300, 3600]))) for end in sorted(marked)],
                system_end=ends[0] if has_ends else 0,
                output=text(draw(st.sampled_from([0, 1, 33])), 9),
                duration=draw(st.sampled_from([None, 0.0, 5.0, 1000.0])),
                ttft=draw(st.sampled_from([None, 0.5])),
                tenant=draw(st.sampled_from(["", "a"])),
            )
        )
    return made


def check(sent: Request, served: Served) -> None:
    assert 0 <= served.hit <= sent.tokens
    assert all(tokens > 0 for tokens in served.written.values())
    assert served.hit + sum(served.written.values()) <= sent.tokens
    stops = [loss.stop for loss in served.lost]
    assert sorted(set(stops)) == stops
    assert all(served.hit < stop <= sent.tokens for stop in stops)


@pytest.mark.parametrize("of", ALL_RULES, ids=lambda of: f"{of.provider}: {of.family}")
@settings(max_examples=15)
@given(log=requests())
def test_hits_writes_and_losses_add_up(of: CacheRules, log: list[Request]):
    model = cache(of)
    sent: dict[object, list[Request]] = defaultdict(list)
    for each in log:
        served = model.serve(each)
        check(each, served)
        known = max((_common(each, other) for other in sent[each.scope]), default=0)
        assert served.hit <= known  # nothing is read that was never sent or answered
        sent[each.scope].append(each)


@pytest.mark.parametrize("stores", [Storage.PREFIXES, Storage.ENTRIES, Storage.UNITS, Storage.SLOTS, Storage.RESOURCE])
@settings(max_examples=30)
@given(
    log=requests(),
    capacity=st.sampled_from([None, 1, 100, 2000]),
    replicas=st.sampled_from([1, 3]),
    routing=st.sampled_from(["round_robin", "least_pending", "sticky", "prefix_hash", "exact"]),
    isolated=st.booleans(),
    loss_rate=st.sampled_from([0.0, 0.5]),
    tiers=st.sampled_from([(), (Tier("host", 3000, 16),), (Tier("host", 100, 64), Tier("disk", None, 256))]),
)
def test_the_same_under_every_setting(stores, log, capacity, replicas, routing, isolated, loss_rate, tiers):
    of = next(rules for rules in ALL_RULES if rules.stores is stores)
    model = cache(
        of,
        capacity=capacity,
        replicas=replicas,
        routing=routing if replicas > 1 else "round_robin",
        isolate_tenants=isolated,
        loss_rate=loss_rate,
        tiers=tiers if stores in (Storage.PREFIXES, Storage.SLOTS) else (),
    )
    for each in log:
        check(each, model.serve(each))


@pytest.mark.parametrize("of", ALL_RULES, ids=lambda of: f"{of.provider}: {of.family}")
def test_what_is_sent_twice_is_read_the_second_time(of: CacheRules):
    model = cache(of)
    prompt = request(text(6000), ends=(5000, 6000), markers=(5000, 6000), system_end=5000)
    first, second = model.serve(prompt), model.serve(prompt)
    assert 0 == first.hit
    assert 5000 <= second.hit <= 6000
    assert not second.written
    assert second.hit >= 6000 - of.granularity_tokens or of.stores is Storage.RESOURCE


@pytest.mark.parametrize("of", [of for of in ALL_RULES if of.ttls], ids=lambda of: f"{of.provider}: {of.family}")
def test_what_has_expired_is_not_read(of: CacheRules):
    model = cache(of)
    late = float(of.ttls[0] + 1)
    served = [
        model.serve(request(text(6000), time, ends=(6000,), markers=(6000,), system_end=6000)) for time in (0.0, late)
    ]
    assert [0, 0] == [each.hit for each in served]


def _common(one: Request, other: Request) -> int:
    """Tokens that a prompt shares with an earlier one and the answer to it."""
    earlier = other.run + other.output
    size = min(len(one.run), len(earlier))
    return next((at for at in range(0, size, 4) if one.run[at : at + 4] != earlier[at : at + 4]), size) // 4
