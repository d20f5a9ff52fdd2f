"""What a cache without a limit remembers is bounded, however long the log and however short its prompts."""

import pytest

from prefold.analysis.caches import common
from prefold.analysis.caches.base import Reason
from prefold.providers.rules import Storage

from .support import ALL_RULES, cache, request, text

BOUNDED = [rules for rules in ALL_RULES if rules.stores is not Storage.SLOTS]


@pytest.mark.parametrize("of", BOUNDED[:: len(BOUNDED) // 12], ids=lambda of: f"{of.provider}: {of.family}")
def test_the_oldest_of_many_short_prompts_are_forgotten(of, monkeypatch):
    monkeypatch.setattr(common, "MOST_NODES", 50)
    model = cache(of)
    length = max(of.minimum_tokens, 64) + 64
    first = request(text(length, 0), 0.0)
    model.serve(first)
    for number in range(1, 200):
        model.serve(request(text(length, number), 0.0))
    assert (0, Reason.EVICTED) == (model.serve(first).hit, model.serve(request(text(length, 300), 0.0)).otherwise)
