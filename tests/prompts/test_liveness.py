"""`is_live`: which values in a stable part of a prompt change from request to request."""

import pytest

from prefold.prompts.liveness import find_live, is_example, is_live
from prefold.prompts.volatile import find_volatile


def live_in(text: str) -> list[str]:
    live = list(find_live(text))
    assert live == [found for found in find_volatile(text) if is_live(text, found)]
    return [text[found.start : found.end] for found in live]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Now: 2026-11-01T10:00:00Z\nYou are an agent.", "2026-11-01T10:00:00Z"),
        ("You are an agent. Today is November 1, 2026.", "November 1, 2026"),
        ("Today is Sunday, November 1.", "Sunday, November 1"),
        ("Today's date: 2026-11-01", "2026-11-01"),
        ("The current date is 2026-11-01.", "2026-11-01"),
        ("Current time (UTC): 10:00", "10:00"),
        ("current_date=2026-11-01", "2026-11-01"),
        ("The time is 10:00 AM.", "10:00 AM"),
        ("It is 3pm in Berlin.", "3pm"),
        ("# Agent\nDate: 1 November 2026\nRules", "1 November 2026"),
        ("<date>2026-11-01</date>", "2026-11-01"),
        ("As of 2026-11-01, answer briefly.", "2026-11-01"),
        ("2026-11-01\nYou are an agent.", "2026-11-01"),
        ("[2026-11-01 10:00:00] You are an agent.", "2026-11-01 10:00:00"),
        ("Generated at 2026-11-01 10:00:00", "2026-11-01 10:00:00"),
        ("今天是2026年11月1日，星期日。", "2026年11月1日，星期日"),
        ("当前时间：2026年11月1日 10:00", "2026年11月1日 10:00"),
        ("现在是下午3点。", "下午3点"),
        ("Heute: 01.11.2026", "01.11.2026"),
        ("Heute ist Montag, der 30. November 2026", "30. November 2026"),
        ("Nous sommes le 30 novembre", "30 novembre"),
        ("Now: 10.03 Uhr", "10.03 Uhr"),
        ("It's now 10 o'clock", "10 o'clock"),
        ("오늘은 2026년 11월 30일", "2026년 11월 30일"),
        ("現在の時刻は09時43分", "09時43分"),
        ("Timestamp: 1793527200", "1793527200"),
        ("x=1793527200123", "1793527200123"),
        ("Request 3f2b8f1e-0c1d-4a1b-9d7e-1f0a8f6f2b11\nYou are", "3f2b8f1e-0c1d-4a1b-9d7e-1f0a8f6f2b11"),
        ("[run 4bf92f3577b34da6]", "4bf92f3577b34da6"),
        ("Session ID: 8842", "8842"),
        ("Client IP: 81.2.69.142", "81.2.69.142"),
        ("Working directory: /home/alice/project", "/home/alice"),
        ("Tag: 7ZkQ2mXp9LrT4vWb8NsY", "7ZkQ2mXp9LrT4vWb8NsY"),
        (
            "x-anthropic-billing-header: cc_version=2.1; cch=00000;",
            "x-anthropic-billing-header: cc_version=2.1; cch=00000;",
        ),
    ],
)
def test_live(text: str, value: str) -> None:
    assert [value] == live_in(text)


@pytest.mark.parametrize("label", ["当前时间", "系统时间", "现在时间", "Now", "Current time", "current date"])
@pytest.mark.parametrize("colon", [":", "：", ": "])
@pytest.mark.parametrize("value", ["2026-11-30 09:43:11", "2026/11/30", "2026年11月30日10点03分", "14:30"])
def test_a_clock_behind_a_colon_is_live(label: str, colon: str, value: str) -> None:
    assert [value] == live_in(f"You are an agent.\n{label}{colon}{value}\nRules")


@pytest.mark.parametrize("label", ["Time", "date", "时间", "日期"])
@pytest.mark.parametrize("colon", [":", "：", ": "])
@pytest.mark.parametrize("value", ["2026-11-30 09:43:11", "2026-11-30T10:03:22", "2026年11月30日"])
@pytest.mark.parametrize("before", ["", "You are an agent.\n", "你是客服。"])
def test_a_label_without_now_needs_a_date(label: str, colon: str, value: str, before: str) -> None:
    assert [value] == live_in(f"{before}{label}{colon}{value}\nRules")


def test_values_far_apart_are_judged_by_what_stands_around_each() -> None:
    filler = "The agent reads the handbook. " * 60
    clock = "Today is 2026-11-30. "
    sample = "For example 2026-11-30. "
    assert ["2026-11-30"] * 3 == live_in((clock + filler + sample + filler) * 3)


def test_what_follows_an_announcement_is_an_example() -> None:
    text = "Examples:\nNow: {now}"
    assert is_example(text, text.index("{"))
    assert not is_example("Now: {now}", 5)


@pytest.mark.parametrize(
    "text",
    [
        "The law of 1 January 2024 applies since 2024-02-01 and until 2026-12-31.",
        "The French Revolution began on 14 July 1789.",
        "Knowledge cutoff: 2025-01. Release date: 2026-03-01.",
        "Dates are written like 2026-11-01, times in the format 10:00:00.",
        "ISO 8601 timestamp, e.g. 2026-01-15T10:30:00Z",
        "日期格式：2026-11-01。例如 2026年11月1日。",
        "We are open from 09:00 to 17:00, Monday to Friday.",
        'Example:\n{"at": "2026-11-01T10:00:00Z", "id": "3f2b8f1e-0c1d-4a1b-9d7e-1f0a8f6f2b11"}',
        "<example>\nNow: 2026-11-01T10:00:00Z\n</example>",
        "Holidays:\n- 2026-12-25\n- 2026-12-26\n",
        "Holidays:\n2026-12-25\n2026-12-26\r\n2026-12-31\n\nRules",
        "Version 2026-11-01 of the API; last updated 2026-10-30 12:00:00.",
        "Call 1800555019 or order 1600000000 pieces.",
        "Run it on 127.0.0.1 or 0.0.0.0; the net is 10.0.0.0/8; see section 1.2.3.4.",
        "Files are in /home/user/data and /Users/username.",
        "sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "The nil UUID is 00000000-0000-0000-0000-000000000000.",
        "Use namespace 6ba7b810-9dad-11d1-80b4-00c04fd430c8.",
        "Names hash to 6BA7B814-9DAD-11D1-80B4-00C04FD430C8 and 6ba7b811-9dad-11d1-80b4-00c04fd430c8",
        "Heart rate is 0000180d-0000-1000-8000-00805f9b34fb, battery 0000180f-0000-1000-8000-00805f9b34fb",
        '例如:用户问“去年五月一日的订单在哪里”,你应当先调用函数 query_order(date="2026-05-01"),再回答',
        "For instance, when asked where last month's parcels went, call find(date='2026-05-01')",
        "Convert Unix timestamps: 1700000000 is 2023-11-14T22:13:20Z.",
        "1793527200123 -> 2026-11-01 10:00:00",
        "北京2026年11月的气温，服务器2026年11月1日采购",
        "Read https://docs.example.com/d/1A2b3C4d5E6f7G8h9I0jK for more.",
        "session_id: uuid4, request_id: str36",
        'Send request=httpx2.Request to uuid: 13.0.2 or <span id="section-python3">.',
    ],
)
def test_constant(text: str) -> None:
    assert [] == live_in(text)
