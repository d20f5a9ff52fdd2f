import pytest

from prefold.core.distinct import DistinctCount, DistinctLately

HOUR = 3_600.0


def hashes(count: int, first: int = 0) -> list[int]:
    """Numbers of 64 bits that are spread as hashes are (splitmix64)."""
    mask = (1 << 64) - 1
    made = []
    for number in range(first, first + count):
        value = (number * 0x9E3779B97F4A7C15) & mask
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
        made.append((value ^ (value >> 31)) - (1 << 63))  # signed, as Python's are
    return made


@pytest.mark.parametrize("count", [0, 1, 10, 1_000, 5_000, 12_000, 30_000, 200_000])
def test_counts_are_close(count):
    seen = DistinctCount()
    for digest in hashes(count):
        seen.add(digest)
    assert count == pytest.approx(seen.together_with(DistinctCount()), rel=0.05)


def test_what_is_seen_again_is_no_news():
    one, other = DistinctCount(), DistinctCount()
    for digest in hashes(100) * 3:
        one.add(digest)
        other.add(digest)
    assert 100 == pytest.approx(one.together_with(other), rel=0.02)


def test_what_lies_two_windows_back_is_forgotten():
    lately = DistinctLately(HOUR, 0.0)

    def see(first: int, count: int) -> None:
        for digest in hashes(count, first):
            lately.add(digest)

    see(0, 10)
    assert 10 == lately.read(HOUR - 1)
    assert 10 == lately.read(HOUR)
    see(5, 10)
    assert 15 == lately.read(HOUR + 1)
    assert 10 == lately.read(2 * HOUR)
    assert 0 == lately.read(3 * HOUR)
    see(0, 3)
    assert 0 == lately.read(9 * HOUR)
