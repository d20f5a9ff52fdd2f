"""What the page says beside its figures, in a real Chromium: by which rules they hold, and what they are made from."""

import pytest

pytestmark = pytest.mark.timeout(180)


def test_lines_over_time_by_tenant(analysis_of, open_page):
    page = open_page(analysis_of("full")).page
    section = page.locator("#section-over_time")
    assert ["overall"] == section.locator(".legend li").all_inner_texts()
    section.get_by_role("combobox").select_option("tenant")
    assert ["acme", "blue", "cobalt", "delta", "echo", "others"] == section.locator(".legend li").all_inner_texts()
    section.get_by_role("combobox").select_option("model")
    assert ["gpt-4o", "gpt-4o-mini"] == section.locator(".legend li").all_inner_texts()


@pytest.mark.parametrize(
    ("points", "infinite", "said"),
    [
        ([], 0.0, "Nothing repeats in whole blocks"),
        ([], 0.5, "All that repeats fits into a few thousand tokens: with any capacity beyond, 50.0% of the input"),
        ([{"tokens": 4096, "lru": 0.5, "optimum": 0.5}], 0.5, "All that repeats fits into a few thousand tokens"),
    ],
)
def test_a_curve_without_a_course_is_a_sentence(analysis_of, open_page, points, infinite, said):
    capacity = {"unit_bytes": None, "points": points, "infinite": infinite, "block_tokens": 64, "exact": True}
    section = open_page({**analysis_of("full"), "capacity": capacity}).page.locator("#section-capacity")
    assert said in section.inner_text()
    assert "in blocks of 64 tokens" in section.inner_text()
    assert 0 == section.locator(".chart").count()


def test_each_possible_rate_says_by_which_rules(analysis_of, open_page):
    page = open_page(analysis_of("full")).page
    for section, said in (
        ("overview", "by the rules of the cache that was asked, a hit rate of 80.3% was possible"),
        ("order", "in blocks of some 16 tokens, for a cache that forgets nothing"),
        ("capacity", "For a cache in blocks of 64 tokens without a minimum"),
        ("caches", "prefold's own cache matches to the token"),
    ):
        assert said in page.locator(f"#section-{section}").inner_text()


@pytest.mark.parametrize(
    ("reported", "said"),
    [
        (None, "by simulation; "),
        (4_890, "by reported usage; "),
        (4_780, "by reported usage in 4,780 requests, else by simulation; "),
    ],
)
def test_costs_say_what_they_are_made_from(analysis_of, open_page, reported, said):
    analysis = analysis_of("full")
    analysis["reported"] = reported and {**analysis["reported"], "requests": reported}
    assert f"{said}$128.46 without any cache" in open_page(analysis).page.locator("#section-overview").inner_text()


def test_an_interrupted_report_says_so_at_the_top(analysis_of, open_page):
    page = open_page({**analysis_of("full"), "complete": False}).page
    assert "Interrupted: these are the requests up to then." in page.locator(".masthead").inner_text()


def test_one_is_singular(analysis_of, open_page):
    analysis = analysis_of("full")
    analysis["breaks"][0]["requests"] = 1
    page = open_page(analysis).page
    assert "1,904,310 tokens recomputed in 1 request, " in page.locator(".break").first.inner_text()
