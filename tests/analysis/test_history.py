"""What was sent before, by whom: the tree against the plainest possible search."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prefold.analysis.history import History, Known
from prefold.analysis.record import Blocks, Place, Record
from prefold.analysis.request import Request
from prefold.core.tokens import pack

runs = st.lists(st.integers(0, 1), max_size=6)
requests = st.builds(
    lambda ids, model, salt, unit: request(ids, model=model, salt=salt, unit=unit),
    runs,
    st.sampled_from(["a", "b"]),
    st.sampled_from([None, "x", "y"]),
    st.sampled_from([1, 64]),
)


def request(ids: list[int], *, model: str = "a", salt: str | None = None, unit: int = 1) -> Request:
    run = pack(ids)
    record = Record(Blocks(run, unit, len(ids) * unit), Place("log", 1), model=model)
    return Request(run, unit, len(ids) * unit, 0.0, record, salt=salt)


def longest(of: Request, among: list[Request]) -> int:
    def shared(other: Request) -> int:
        length = 0
        while other.unit == of.unit and length < min(of.units, other.units):
            if of.run[length * 4 : length * 4 + 4] != other.run[length * 4 : length * 4 + 4]:
                break
            length += 1
        return length * of.unit

    return max(map(shared, among), default=0)


@given(st.lists(requests, max_size=12))
def test_as_the_longest_of_all(sent: list[Request]) -> None:
    history = History()
    for number, new in enumerate(sent):
        before = sent[:number]
        expected = Known(
            longest(new, [each for each in before if each.scope == new.scope]),
            longest(new, [each for each in before if each.record.model == new.record.model]),
            longest(new, before),
        )
        assert expected == history.look(new)
        assert expected == history.add(new)
    assert not history.forgot


def test_the_oldest_is_forgotten() -> None:
    history = History(capacity=6)
    history.add(request([1, 2, 3]))
    history.add(request([1, 2, 4, 5]))
    assert not history.forgot
    history.add(request([1, 2, 4, 5, 6, 7]))
    assert history.forgot
    assert 2 == history.look(request([1, 2, 3])).own
    assert 6 == history.look(request([1, 2, 4, 5, 6, 7])).own


@given(st.lists(requests, max_size=12), st.integers(1, 8))
def test_what_is_forgotten_is_only_said_to_be_new(sent: list[Request], capacity: int) -> None:
    small, large = History(capacity), History()
    for each in sent:
        less, more = small.add(each), large.add(each)
        assert less.own <= less.tenants <= less.anywhere
        assert (less.own, less.tenants, less.anywhere) <= (more.own, more.tenants, more.anywhere)
        assert small.forgot or less == more


def test_after_many_scopes_it_begins_anew() -> None:
    history = History()
    for salt in range(1 << 16):
        history.add(request([1, 2], salt=str(salt)))
    assert not history.forgot
    assert Known(2, 2, 2) == history.look(request([1, 2], salt="0"))
    history.add(request([3], salt="another"))
    assert history.forgot
    assert Known(0, 0, 0) == history.look(request([1, 2], salt="0"))
