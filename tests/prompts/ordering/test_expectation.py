"""How often a text is likely to vary, by what it holds."""

import pytest

from prefold.prompts.ordering.expectation import expected_stability, only_dates_differ
from prefold.prompts.prompt import Stability


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Now: 2026-11-01T10:00:00Z", Stability.REQUEST),
        ("The current time is 10:00 UTC.", Stability.REQUEST),
        ("Today is Monday, 30 November 2026.", Stability.DAILY),
        ("2026-11-30", Stability.DAILY),
        ("今天是2026年11月1日。", Stability.DAILY),
        ("当前时间：2026年11月1日 10:00", Stability.REQUEST),
        ("Session id: 8f6f2b11aa", Stability.SESSION),
        ("user_id=3f2b8f1e-0c1d-4a1b-9d7e-1f0a8f6f2b11", Stability.SESSION),
        ("Request 3f2b8f1e-0c1d-4a1b-9d7e-1f0a8f6f2b11", Stability.REQUEST),
        ("Work in /home/anna/project.", Stability.SESSION),
        ("Time: {now}", Stability.REQUEST),
        ("Time: {{ current_time }}", Stability.REQUEST),
        ("id ${REQUEST_ID}", Stability.REQUEST),
        ("%(question)s", Stability.REQUEST),
        ("$documents", Stability.REQUEST),
        ("Today: {date:%Y-%m-%d}", Stability.DAILY),
        ("{currentDate}", Stability.DAILY),
        ("{{ user.name | upper }}", Stability.SESSION),
        ("<<customer_profile>>", Stability.SESSION),
        # What stays
        ("The act of 2 May 2019 applies.", Stability.STATIC),
        ("We are open from 10:00 to 18:00.", Stability.STATIC),
        ("Write {name} where the name goes.", Stability.STATIC),
        ('Answer as {"ok": true}.', Stability.STATIC),
        ("It costs $5.", Stability.STATIC),
        ("Update the record.", Stability.STATIC),
        ("", Stability.STATIC),
    ],
)
def test_values_and_placeholders(text: str, expected: Stability) -> None:
    assert expected is expected_stability(text)


def test_only_dates_differ() -> None:
    assert only_dates_differ(["Today is 2026-11-01.", "Today is 2026-11-02."])
    assert not only_dates_differ(["Today is 2026-11-01."])
    assert not only_dates_differ(["Today is 2026-11-01.", "Now is 2026-11-02."])
    assert not only_dates_differ(["At 2026-11-01T10:00:00Z", "At 2026-11-01T11:00:00Z"])
