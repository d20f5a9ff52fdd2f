"""Placeholders of templates, and what their names say."""

import pytest

from prefold.prompts.placeholders import Style, find_placeholders, stability_of_name
from prefold.prompts.prompt import Stability


@pytest.mark.parametrize(
    ("written", "name", "style"),
    [
        ("{{ now }}", "now", Style.JINJA),
        ("{{now}}", "now", Style.JINJA),
        ("{{- user.name | upper -}}", "user.name", Style.JINJA),
        ("{{ now() }}", "now", Style.JINJA),
        ("{{ request.args['id'] }}", "request.args", Style.JINJA),
        ("{now}", "now", Style.BRACE),
        ("{now:%Y-%m-%d}", "now", Style.BRACE),
        ("{user.name!r:>10}", "user.name", Style.BRACE),
        ("{rows[0]}", "rows[0]", Style.BRACE),
        ("{0}", "0", Style.BRACE),
        ("{}", "", Style.BRACE),
        ("{时间}", "时间", Style.BRACE),
        ("%(now)s", "now", Style.PERCENT),
        ("%s", "", Style.POSITION),
        ("$now", "now", Style.DOLLAR),
        ("${NOW}", "NOW", Style.DOLLAR),
        ("<<now>>", "now", Style.ANGLE),
    ],
)
def test_every_style(written: str, name: str, style: Style) -> None:
    for before, behind in (("", ""), ("Time: ", ", answer."), ("时间：", "。")):
        (found,) = find_placeholders(f"{before}{written}{behind}")
        assert (len(before), len(before) + len(written)) == (found.start, found.end)
        assert (name, style) == (found.name, found.style)


@pytest.mark.parametrize(
    "text", ['{"type": "object"}', "{{", "a << b >> c", "5 % 3, 100%", "$5", "{a b}", "{% if now %}", "{{ 1 }}", "<<>>"]
)
def test_what_is_no_placeholder(text: str) -> None:
    assert [] == find_placeholders(text)


@pytest.mark.parametrize("piece", ["{", "{{", "{{a ", "{a:", "$", "%(", "<<a", "{{a." * 3])
def test_long_monotony_is_read_in_linear_steps(piece: str) -> None:
    """A quadratic pattern would not end here within the time that a test has."""
    assert find_placeholders(piece * (200_000 // len(piece))) is not None


NAMES = {
    Stability.REQUEST: "now time current_time currentTime CURRENT_TIME utc_now timestamp ts datetime now_iso created_at"
    " datetime.now request_id requestId request.id ctx.trace_id order_id uuid nonce 时间 当前时间 请求编号",
    Stability.DAILY: "date today current_date todays_date date_today day weekday today_str 日期 今天 当前日期",
    Stability.SESSION: "session_id sessionId conversation_id user_id userId user.id user.name user_name username cwd"
    " hostname client_ip 用户名 会话编号 当前用户",
    None: "question context name tone language persona timezone time_zone date_of_birth release_date runtime update"
    " tools max_tokens seed candidate days timeout id user 问题",
}


@pytest.mark.parametrize(("stability", "name"), [(key, name) for key, names in NAMES.items() for name in names.split()])
def test_names(stability: Stability | None, name: str) -> None:
    assert stability == stability_of_name(name)
