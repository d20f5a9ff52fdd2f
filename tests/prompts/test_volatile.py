"""`find_volatile`: every form of clock, identifier, address and nonce, and nothing that only looks like one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.prompts.volatile import Kind, find_volatile


def found_in(text: str) -> list[tuple[str, str]]:
    return [(volatile.kind.value, text[volatile.start : volatile.end]) for volatile in find_volatile(text)]


@pytest.mark.parametrize(
    "written",
    [
        "2026-11-01",
        "2026/11/01",
        "2026.11.01",
        "20261101",
        "2026-11",
        "2026-W44",
        "2026-W44-7",
        "01/11/2026",
        "11/1/26",
        "01-11-2026",
        "1.11.2026",
        "Nov 1, 2026",
        "Nov. 1, 2026",
        "November 1st, 2026",
        "NOVEMBER 1, 2026",
        "November 1",
        "1 November 2026",
        "1st of November 2026",
        "1-Nov-2026",
        "01/Nov/2026",
        "November 2026",
        "November, 2026",
        "Sunday, 1 November 2026",
        "Sunday, November 1, 2026",
        "Sun Nov 1",
        "1. Dezember 2026",
        "1er novembre 2026",
        "1 de noviembre de 2026",
        "2026年11月1日",
        "2026 年 11 月 1 日",
        "2026年11月1日星期日",
        "2026年11月1日（星期日）",
        "11月1日",
        "2026年11月",
        "2026년 11월 1일",
        "二〇二六年十一月一日",
    ],
)
def test_dates(written: str) -> None:
    assert [("date", written)] == found_in(f"It is {written}, so answer.")
    assert [("date", written)] == found_in(written)
    assert [("date", written)] == found_in(f"现在：{written}。")


@pytest.mark.parametrize(
    "written",
    [
        "2026-11-01T10:00:00Z",
        "2026-11-01T10:00:00.123456+08:00",
        "2026-11-01 10:00:00",
        "2026-11-01 10:00:00 UTC",
        "2026-11-01, 10:00",
        "20261101T100000Z",
        "Sun, 01 Nov 2026 10:00:00 GMT",
        "Sun, 01 Nov 2026 10:00:00 +0000",
        "Sun Nov 1 10:00:00 2026",
        "01/Nov/2026:10:00:00 +0000",
        "November 1, 2026 at 10:00 AM",
        "Monday, November 2, 2026, 3:05 pm",
        "2026年11月1日 10:00",
        "2026年11月1日下午3点05分",
        "10:00:00 UTC",
        "10:00:00",
        "10:00 AM",
        "10:00",
        "9:05:07.123",
        "3pm",
        "3 p.m.",
        "下午3点",
        "下午 3:05",
        "10点30分",
        "午後3時",
        "09時43分",
        "10.03 Uhr",
        "10 Uhr",
        "10 o'clock",
        "2026年11月1日10:03",
        "2026年11月1日10:03:22",
        "2026年11月1日10点03分",
        "2026年11月1日（星期日）10:03",
        "2026年11月1日星期日下午3点",
    ],
)
def test_times(written: str) -> None:
    assert [("time", written)] == found_in(f"Now ({written}) answer")
    assert [("time", written)] == found_in(written)


CLOCK_FORMS = [
    ("date", "2026-11-30"),
    ("date", "2026/11/30"),
    ("date", "2026年11月30日"),
    ("time", "2026-11-30 09:43:11"),
    ("time", "2026-11-30T10:03:22"),
    ("time", "2026年11月30日10:03"),
    ("time", "14:30"),
    ("time", "09:43:11"),
]


@pytest.mark.parametrize("label", ["Time", "date", "Now", "当前时间", "日期", "現在時刻"])
@pytest.mark.parametrize("colon", [":", "：", ": "])
@pytest.mark.parametrize(("kind", "written"), CLOCK_FORMS)
def test_a_clock_directly_behind_a_colon_is_seen_as_a_whole(kind: str, written: str, colon: str, label: str) -> None:
    assert [(kind, written)] == found_in(f"{label}{colon}{written}\n你好")


@pytest.mark.parametrize("text", ["fe80:10:00", "a:10:00", "1:2026-11-30", "::10:00"])
def test_no_clock_begins_within_an_address(text: str) -> None:
    assert [] == found_in(text)


@pytest.mark.parametrize("text", ["9:00-18:00", "Sat 10:00-14:00", "Mo 08:00–18:30", "每天9:00~18:00"])
def test_a_span_of_hours_is_no_clock(text: str) -> None:
    assert [] == found_in(text)


@pytest.mark.parametrize("text", ["Today is Sunday.", "Current day: Sunday", "Now it is Sunday", "Weekday = Sunday"])
def test_a_weekday_counts_where_it_is_today(text: str) -> None:
    assert [("date", "Sunday")] == found_in(text)


def test_a_chinese_weekday_counts_where_it_is_today() -> None:
    assert [("date", "星期日")] == found_in("今天是星期日。")
    assert [] == found_in("周一至星期日营业。")


@pytest.mark.parametrize("written", ["1793527200", "1793527200123", "1793527200123456", "1793527200123456789"])
def test_epochs(written: str) -> None:
    assert [("epoch", written)] == found_in(f"ts={written} ok")
    assert [("epoch", written)] == found_in(written)


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("uuid", "3f2b8f1e-0c1d-4a1b-9d7e-1f0a8f6f2b11"),
        ("uuid", "3F2B8F1E-0C1D-4A1B-9D7E-1F0A8F6F2B11"),
        ("hex", "4bf92f3577b34da6"),
        ("hex", "4bf92f3577b34da6a3ce929d0e0e4736"),
        ("hex", "0x4bf92f3577b34da6"),
        ("address", "10.0.3.17"),
        ("address", "fe80::1ff:fe23:4567:890a"),
        ("address", "2001:db8:0:0:0:0:2:1"),
        ("address", "2001:db8::2:1"),
        ("address", "00:1a:2b:3c:4d:5e"),
        ("token", "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        ("token", "V1StGXR8_Z5jdHi6B-myT"),
        ("token", "7ZkQ2mXp9LrT4vWb8NsY"),
        ("token", "k3j9x0q8z7m2n5p1w6r4"),
        ("identifier", "req_011CSHoEeqs5C35K2UUqR7Fy"),
        ("identifier", "sess_8f3a91"),
        ("identifier", "toolu_01A09q90qw90lq917835lq9"),
        ("user_path", "/home/alice"),
        ("user_path", "/Users/alice.smith"),
        ("user_path", ":\\Users\\alice"),
        ("nonce", "cch=1a2b3"),
        ("nonce", "x-anthropic-billing-header: cc_version=2.1.37.abc; cch=1a2b3;"),
    ],
)
def test_identifiers_addresses_and_nonces(kind: str, written: str) -> None:
    assert [(kind, written)] == found_in(written)
    assert [(kind, written)] == found_in(f"<{written}\n>")
    assert [(kind, written)] == found_in(f"你好 {written}\n再见")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("session_id: ab12", "ab12"),
        ("Session ID: 8842", "8842"),
        ("sessionId=8842", "8842"),
        ('{"request_id": "r-8842"}', "r-8842"),
        ("**Trace ID:** 8842", "8842"),
        ("X-Request-Id: 8842", "8842"),
        ("Your session ID is 8842.", "8842"),
        ("request: 8842", "8842"),
        ("nonce=8842ab", "8842ab"),
        ("会话ID：8842", "8842"),
        ("请求编号：8842", "8842"),
        ("user_id = 'u-17'", "u-17"),
        ("User: Ann (user_id 8842193), tenant acme", "8842193"),
        ("Session ID 8842193", "8842193"),
    ],
)
def test_labelled_identifiers(text: str, value: str) -> None:
    assert [("identifier", value)] == found_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "Rule 12: check item 12, page 3 of 40, in version 1.2.3 (or 2.10.0).",
        "sessionId: string, request_id: str, user_id is required",
        "The price is 1,234,567.89 or 12345678 units; 0.30000000000000004 apart.",
        "def test_http2_server_v3(int32_t value, x86_64 machine): return a[1::2]",
        "useOAuth2CallbackHandlerV2AndThenSomeMoreWords, getX509CertificateV3ForHTTP2",
        "call_center24 run_tests msg_handler2 trace_function",
        "1.5e-10 2.678636961770877e-33 1e5",
        "https://example.com/home/page and ~/home/x",
        "std::vector<int> add::bad deadbeef",
        "Open Monday to Friday.",
        "Give 3 examples, 24小时 or 3年 or 5个月.",
        "",
    ],
)
def test_nothing_is_found(text: str) -> None:
    assert [] == found_in(text)


def test_the_more_specific_kind_has_the_place() -> None:
    assert [("uuid", "3f2b8f1e-0c1d-4a1b-9d7e-1f0a8f6f2b11")] == found_in(
        "request_id: 3f2b8f1e-0c1d-4a1b-9d7e-1f0a8f6f2b11"
    )
    assert [("identifier", "4bf92f3577b34da6")] == found_in("trace_id=4bf92f3577b34da6")


@pytest.mark.parametrize(
    "piece", ["1", "a1b2c3d4", ":", "1:", "1.", "1-", "10:00 ", "id:1 ", "_", "/home/", "May 1 ", "1月"]
)
def test_long_monotony_is_read_in_linear_steps(piece: str) -> None:
    """A quadratic pattern would not end here within the time that a test has."""
    text = piece * (300_000 // len(piece))
    found = find_volatile(text)
    assert all(0 <= volatile.start < volatile.end <= len(text) for volatile in found)


@given(
    st.lists(
        st.sampled_from(
            ["2026-11-01", " ", "10:00", "cch=1a2", "/home/a1", "id: ", "0", "f", "-", ".", ":", "年", "x1"]
        )
    )
)
def test_spans_are_in_order_and_do_not_overlap(pieces: list[str]) -> None:
    found = find_volatile("".join(pieces))
    ends = [0, *(volatile.end for volatile in found)]
    assert all(end <= volatile.start < volatile.end for end, volatile in zip(ends, found, strict=False))


def test_kinds_are_spelled_as_documented() -> None:
    assert {
        "date",
        "time",
        "epoch",
        "uuid",
        "hex",
        "identifier",
        "address",
        "user_path",
        "token",
        "nonce",
    } == {kind.value for kind in Kind}
