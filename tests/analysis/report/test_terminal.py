"""The summary in a terminal."""

import io
import re

import pytest
from rich.console import Console

from prefold.analysis.report.terminal import print_summary


def printed(analysis, **options):
    console = Console(file=io.StringIO(), highlight=False, **options)
    print_summary(analysis, console)
    return console.file.getvalue()


def test_it_says_what_matters_most(analysis_of):
    text = printed(analysis_of("full"), width=100)
    for said in (
        "4,890 requests",
        "12,845,993",
        "56.9 %",
        "a hit rate of 80.3 % was possible by this cache's rules",
        "USD 64.49  by reported usage in 4,780 requests, else by simulation",
        "USD 38.21  simulated: had all avoidable tokens been read from the cache",
        "1. clock at messages[1].content: 1,904,310 tokens in 1,322 requests",
        "Sort the tools by name before they are sent. Replayed with it, 498,300 more",
        "openai-5.6",
        "$ prefold lint requests.jsonl --fix",
        "unexplained 0.1 %",
        "3 lines skipped",
        "prices 12 days old",
    ):
        assert said in text or said.replace("0.1 %", "0.0 %") in text


def test_content_that_returns_for_no_cause_has_a_line_of_its_own(analysis_of):
    row = {"reason": "changed_prefix", "path": None, "requests": 1, "share": 0.5, "cost": None}
    rows = [{**row, "cause": "clock", "tokens": 70_001}, {**row, "cause": None, "tokens": 30_002}]
    text = printed({**analysis_of("full"), "attribution": rows}, width=100)
    assert re.search(r"70,001  changed prefix *\n.* 30,002  repeated behind another beginning", text)


def test_without_a_terminal_it_is_plain_text(analysis_of):
    text = printed(analysis_of("full"), width=100)
    assert "\x1b" not in text
    assert "█" not in text


def test_a_terminal_shows_the_bar_in_its_full_width(analysis_of):
    text = printed(analysis_of("full"), width=60, force_terminal=True, color_system="standard")
    assert 60 == text.count("█")


@pytest.mark.parametrize("width", [20, 24, 40, 60, 80, 200])
def test_lines_keep_to_the_width_but_commands_and_numbers_stay_whole(analysis_of, width):
    text = printed(analysis_of("full"), width=width)
    lines = text.splitlines()
    assert [] == [line for line in lines if len(line) > width and not line.startswith("   $ ")]
    assert "   $ prefold lint requests.jsonl --fix" in lines
    for number in ("12,845,993", "5,535,773", "1,904,310", "4,611,712", "12,400,000", "-168,290"):
        assert number in text
    assert "…" not in text


@pytest.mark.parametrize("width", [24, 40, 80])
def test_wrapped_lines_of_a_list_keep_its_indent(analysis_of, width):
    _, _, listed = printed(analysis_of("full"), width=width).partition("What broke the prefix\n")
    items = listed.split("\n\n")[0].splitlines()
    assert 6 <= len(items)
    assert all(re.match(r"(\d\.|  ) \S", line) for line in items)


def test_what_was_reported_stands_beside_what_was_simulated(analysis_of):
    text = printed(analysis_of("full"), width=100)
    for said in (
        "reported    7,020,112  56.6 % of 12,400,000 tokens in 4,780 requests",
        "simulated   7,188,402  58.0 % of 12,400,000 tokens",
        "difference   -168,290",
    ):
        assert said in text


def test_how_much_more_there_is_than_is_shown(analysis_of):
    analysis = analysis_of("full")
    analysis["breaks"] *= 3
    analysis["advice"] *= 2
    text = printed(analysis, width=100)
    assert "5. " in text
    assert "   and 4 more, which the page shows (-o FILE)" in text
    assert "   and 1 more, which the page shows (-o FILE)" in text


def test_an_interrupted_report_says_so_at_the_top(analysis_of):
    lines = printed({**analysis_of("full"), "complete": False}, width=100).splitlines()
    assert "Interrupted: these are the requests up to then." == lines[1]


def test_a_history_that_was_forgotten_is_told(analysis_of):
    analysis = analysis_of("full")
    said = "longer than what is remembered"
    assert said not in printed(analysis, width=200)
    analysis["log"]["history_was_forgotten"] = True
    assert said in printed(analysis, width=200)


def test_a_break_without_a_cause_is_explained(analysis_of):
    analysis = analysis_of("full")
    analysis["breaks"][0].update(
        cause=None, path=None, fix="", gain_tokens=0, explanation="The trace does not say why."
    )
    text = printed(analysis, width=100)
    assert "1. another history: 1,904,310 tokens in 1,322 requests\n   The trace does not say why.\n2. " in text
    assert "None" not in text


@pytest.mark.parametrize("name", ["empty", "block_trace"])
def test_what_is_missing_is_left_out(analysis_of, name):
    text = printed(analysis_of(name), width=80)
    assert "What broke the prefix" not in text
    assert "None" not in text


def test_texts_of_the_log_cannot_steer_the_terminal(analysis_of):
    analysis = analysis_of("hostile")
    analysis["title"] = "\x1b[2J[bold]title\x07"
    analysis["breaks"][0]["path"] = "a\x1b]8;;https://example.com\x1b\\b"
    text = printed(analysis, width=80)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]title" in text


def test_a_hit_rate_above_one_is_never_shown(analysis_of):
    text = printed({**analysis_of("full"), "hit_rate": 7.5}, width=100)
    assert "750" not in text
    assert "100.0 %" in text
