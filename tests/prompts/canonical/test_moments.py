"""Date-times in one format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.prompts.canonical.moments import Granularity, with_moments

MOMENT = "2026-11-30T08:54:12.123456+00:00"


@pytest.mark.parametrize(
    ("granularity", "expected"),
    [
        (Granularity.DAY, "2026-11-30"),
        (Granularity.HOUR, "2026-11-30T08:00Z"),
        (Granularity.MINUTE, "2026-11-30T08:54Z"),
        (Granularity.SECOND, "2026-11-30T08:54:12Z"),
    ],
)
def test_granularities(granularity: Granularity, expected: str) -> None:
    assert f"Now: {expected}." == with_moments(f"Now: {MOMENT}.", granularity).text


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30T08:54",
        "2026-11-30 08:54",
        "2026/11/30 08:54",
        "2026.11.30 08:54",
        "30.11.2026 08:54",
        "30/11/2026, 08:54",
        "11/30/2026 08:54",
        "11/30/2026 8:54 AM",
        "30 Nov 2026 08:54",
        "30th of November 2026 at 08:54",
        "30-Nov-2026 08:54",
        "30. November 2026 08:54",
        "November 30, 2026 at 8:54 a.m.",
        "Monday, November 30th, 2026, 08:54",
        "2026年11月30日 08:54",
        "2026年11月30日 上午8:54",
        "2026年11月30日08时54分",
        "2026年11月30日星期一 8点54分",
        "2026年11月30日（星期一）上午8点54分",
        "2026年11月30日 午前8時54分",
        "2026년 11월 30일 오전 8:54",
        "20261130T0854",
    ],
)
def test_forms_of_a_moment(text: str) -> None:
    assert "2026-11-30T08:54" == with_moments(text, Granularity.SECOND).text
    assert "现在是2026-11-30T08:00。" == with_moments(f"现在是{text}。", Granularity.HOUR).text
    assert "Now: 2026-11-30" == with_moments(f"Now: {text}", Granularity.DAY).text


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30T23:54:12Z",
        "2026-11-30 23:54:12 UTC",
        "2026-11-30 23:54:12 GMT",
        "2026-11-30T23:54:12+00:00",
        "2026-12-01T07:54:12+08:00",
        "2026-12-01 07:54:12 +0800",
        "2026-12-01 07:54:12 UTC+8",
        "2026-11-30 14:24:12-09:30",
        "20261130T235412Z",
        "Mon, 30 Nov 2026 23:54:12 GMT",
        "Mon Nov 30 23:54:12 UTC 2026",
        "Tue, 1 Dec 2026 07:54:12 GMT+08:00",
        "30.11.2026 11:54:12 PM UTC",
    ],
)
def test_one_instant_has_one_text(text: str) -> None:
    assert "2026-11-30T23:54:12Z" == with_moments(text, Granularity.SECOND).text
    assert "2026-11-30" == with_moments(text, Granularity.DAY).text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30 12:30 am", "2026-11-30T00:30"),
        ("2026-11-30 12:30 pm", "2026-11-30T12:30"),
        ("2026年11月30日 下午8:54", "2026-11-30T20:54"),
        ("2026年11月30日 晚上8点整", "2026-11-30T20:00"),
        ("Mon Nov  2 08:54:12 2026", "2026-11-02T08:54:12"),
    ],
)
def test_halves_of_a_day(text: str, expected: str) -> None:
    assert expected == with_moments(text, Granularity.SECOND).text


@pytest.mark.parametrize("granularity", Granularity)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("11/12/2026 08:54", "its day and month may be either way round"),
        ("11/12/26 08:54", "its year has two digits"),
        ("2026-11-30 08:54 EST", "EST is the name of more than one zone"),
        ("2026-11-30 08:00-10:00", "-10:00 may be a zone or the end of it"),
        ("2026-11-30 08:54:12+23:00", "there is no zone +23:00"),
        ("30 Mai 2026 08:54", "its month has no English name"),
        ("2026年11月30日 中午1:30", "its half of the day is not clear"),
        ("2026-11-30 00:30 PM", "its half of the day is not clear"),
        ("Tue, 30 Nov 2026 08:54", "it is another day of the week"),
        ("Mon, Mon, 30 Nov 2026 08:54", "it is another day of the week"),
        ("2026-02-30 08:54", "there is no such time"),
        ("2026-11-30T08:54:99", "there is no such time"),
        ("0001-01-01T00:00:00+08:00", "there is no such time"),
    ],
)
def test_what_cannot_be_told_stays_and_is_said(text: str, reason: str, granularity: Granularity) -> None:
    found = with_moments(f"Now: {text}, {text}; 2026-11-30 08:54", granularity)
    assert found.text.startswith(f"Now: {text}, {text}; 2026-11-30")
    assert [(text, reason)] == [(doubt.text, doubt.reason) for doubt in found.doubts]


@pytest.mark.parametrize(
    "text",
    [
        "Open from 08:00 to 17:30.",
        "2026-11-30",
        "ratio 3:45",
        "12026-11-30T08:54",
        "November 30, 2026",
        "Maybe 5, 2026 at 10:00",
        "2026-11-30 08:54 09:10",
        "上午8:54",
    ],
)
def test_what_is_no_moment_stays(text: str) -> None:
    found = with_moments(text, Granularity.DAY)
    assert (text, ()) == (found.text, found.doubts)


MOMENT_PARTS = (
    "2026-11-30|1 Nov 2026|Mon, |2026年1月2日|（星期五）|30.11.2026|11/12/2026|20261130|Nov 30|T|08|0854| |, | at "
    "|08:54|上午|8点|54分|:12|.5|Z|+00:00|-0500| UTC| PM| AM|x|\u0301|\n|7|-|/| 2026"
)
MOMENTS = st.lists(st.sampled_from(MOMENT_PARTS.split("|")), max_size=12).map("".join)


@given(MOMENTS, st.sampled_from(Granularity))
def test_one_format_is_settled_at_once(text: str, granularity: Granularity) -> None:
    once = with_moments(text, granularity)
    assert once == with_moments(once.text, granularity)


@pytest.mark.parametrize("part", ["2026-11-30 ", "08:54 ", "Mon, ", "1 Nov ", "1.", "1 ", "20261130T", "T08:54"])
def test_a_long_text_takes_no_longer_than_its_length(part: str) -> None:
    assert part * 30_000 == with_moments(part * 30_000, Granularity.DAY).text  # an hour, if each place saw all the rest
