from prefold.analysis.record import Blocks, Place, Record
from prefold.analysis.request import Request
from prefold.analysis.timeline import OTHERS, Timeline


def request(time: float, *, tenant: str = "", model: str = "m", tokens: int = 10) -> Request:
    record = Record(Blocks(b"", 1, tokens), Place("log", 1), tenant=tenant, model=model)
    return Request(b"", 1, tokens, time, record)


def test_counts_by_slice_tenant_and_model():
    timeline = Timeline(width=60)
    timeline.add(request(1000), 4)
    timeline.add(request(1059), 6)
    timeline.add(request(1060, tenant="acme"), 0)
    assert timeline.as_json() == [
        {"time": 1000, "tenant": "", "model": "m", "input_tokens": 20, "hit_tokens": 10},
        {"time": 1060, "tenant": "acme", "model": "m", "input_tokens": 10, "hit_tokens": 0},
    ]


def test_slices_double_and_lose_nothing():
    timeline = Timeline(width=1, most_slices=8)
    for second in range(1000):
        timeline.add(request(second), second % 2)
    slices = timeline.as_json()
    assert 128 == timeline.width
    assert 8 == len(slices)
    assert [0, 128, 256] == [each["time"] for each in slices[:3]]
    assert 10_000 == sum(each["input_tokens"] for each in slices)
    assert 500 == sum(each["hit_tokens"] for each in slices)


def test_a_long_pause_is_no_trouble():
    timeline = Timeline(width=1, most_slices=4)
    timeline.add(request(0), 0)
    timeline.add(request(1e9), 0)
    assert 2 == len(timeline.as_json())


def test_tenants_beyond_the_limit_share_a_series():
    timeline = Timeline(most_series=3)
    for number in range(10):
        timeline.add(request(0, tenant=f"t{number}"), 1)
    assert ["t0", "t1", "t2"] == sorted({row["tenant"] for row in timeline.as_json()} - {OTHERS})
    assert [70] == [row["input_tokens"] for row in timeline.as_json() if row["tenant"] == OTHERS]


def test_empty():
    assert [] == Timeline().as_json()
