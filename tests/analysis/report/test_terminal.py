"""The summary in a terminal."""

import io

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
        "a hit rate of 80.3 % was possible",
        "USD 64.49",
        "1. clock at messages[1].content: 1,904,310 tokens in 1,322 requests",
        "Sort the tools by name before they are sent.",
        "openai-5.6",
        "$ prefold lint requests.jsonl --fix",
        "unexplained 0.1 %",
        "3 lines skipped",
        "prices 12 days old",
    ):
        assert said in text or said.replace("0.1 %", "0.0 %") in text


def test_without_a_terminal_it_is_plain_text(analysis_of):
    text = printed(analysis_of("full"), width=100)
    assert "\x1b" not in text
    assert "█" not in text


def test_a_terminal_shows_the_bar_in_its_full_width(analysis_of):
    text = printed(analysis_of("full"), width=60, force_terminal=True, color_system="standard")
    assert 60 == text.count("█")


@pytest.mark.parametrize("width", [20, 40, 60, 200])
def test_lines_keep_to_the_width_but_commands_stay_whole(analysis_of, width):
    lines = printed(analysis_of("full"), width=width).splitlines()
    assert [] == [line for line in lines if len(line) > width and not line.startswith("   $ ")]
    assert "   $ prefold lint requests.jsonl --fix" in lines


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
