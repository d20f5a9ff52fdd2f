"""The page in a real Chromium. On leaving, each page must have fetched nothing and complained about nothing."""

import json
import re
import time

import pytest

SECTIONS = [
    "overview",
    "advice",
    "attribution",
    "flame",
    "breaks",
    "order",
    "capacity",
    "over_time",
    "caches",
    "routes",
]

pytestmark = pytest.mark.timeout(180)


def wait_until(page, condition):
    """Wait for a condition; Playwright's own way of waiting is refused by the page's policy."""
    end = time.monotonic() + 15
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(20)


def fragment(page):
    return page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.slice(1)))")


def active_row(page):
    return page.evaluate(
        """() => document.getElementById(document.querySelector('.tree').getAttribute('aria-activedescendant'))
            ?.querySelector('.tree-name span:last-child').textContent"""
    )


def click_frame(page, row, share):
    box = page.locator(".flame-canvas").bounding_box()
    page.locator(".flame-canvas").click(position={"x": box["width"] * share, "y": 24 * row + 12})


def pixel(page, row, share):
    return page.evaluate(
        """([row, share]) => {
            const canvas = document.querySelector('.flame-canvas');
            const ratio = canvas.width / canvas.clientWidth;
            const pen = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
            pen.drawImage(canvas, -Math.floor(canvas.width * share), -Math.floor((24 * row + 4) * ratio));
            return [...pen.getImageData(0, 0, 1, 1).data];
        }""",
        [row, share],
    )


def test_every_section_is_there(analysis_of, open_page):
    page = open_page(analysis_of("full")).page
    sections = page.evaluate("[...document.querySelectorAll('main section')].map((found) => found.id)")
    assert [f"section-{name}" for name in SECTIONS] == sections
    for name in SECTIONS:
        section = page.locator(f"#section-{name}")
        assert section.locator("h2").inner_text()
        assert 40 < len(section.inner_text())
        assert "The log has nothing to show here." not in section.inner_text()
    assert 3 == page.locator(".break").count()
    assert ["2", "5"] == page.locator(".break").first.locator("del, ins").all_inner_texts()
    assert "<U+000D>⏎<U+200B>" == page.locator(".break").nth(2).locator("ins").inner_text()
    assert 2 == page.locator(".chart svg").count()
    assert 10 == page.locator("#section-caches tbody tr").count()
    assert ["lossless"] * 2 + ["can change answers"] * 3 == page.locator(".badge").all_inner_texts()
    footer = page.locator("footer").inner_text()
    for said in ("4,300 tokens", "requests.jsonl:204", "12 days old", "exact: o200k_base 4,890", "prefold 0."):
        assert said in footer


def test_a_log_that_says_nothing_is_shown_too(analysis_of, open_page):
    page = open_page(analysis_of("empty")).page
    assert len(SECTIONS) == page.locator("section h2").count()
    assert "NaN" not in page.locator("#page").inner_text()
    assert "null" not in page.locator("#page").inner_text()


def test_hostile_texts_are_shown_and_do_nothing(analysis_of, open_page, nasty):
    page = open_page(analysis_of("hostile")).page
    assert 0 == page.locator("img").count()
    assert 2 == page.locator("script").count()
    assert nasty[:25] in page.locator("h1").inner_text()
    page.locator("#language").click()
    page.locator("#flame-search").fill("<img")
    wait_until(page, "location.hash.includes('find')")
    assert 0 == page.locator("img").count()


@pytest.mark.parametrize("name", ["full", "hostile"])
def test_no_rate_is_above_all(analysis_of, open_page, name):
    page = open_page(analysis_of(name)).page
    rates = [float(found) for found in re.findall(r"([\d.]+)%", page.locator("#page").inner_text())]
    assert 20 < len(rates)
    assert 100 >= max(rates)


def test_a_click_zooms_and_copies_the_path(analysis_of, open_page):
    opened = open_page(analysis_of("full"), permissions=["clipboard-read", "clipboard-write"])
    page = opened.page
    before = pixel(page, 0, 0.9)
    click_frame(page, 2, 0.1)
    assert {"zoom": "2"} == fragment(page)
    assert before != pixel(page, 0, 0.9)
    assert "messages[0]" == page.evaluate("navigator.clipboard.readText()")
    assert "Copied: messages[0]" == page.locator(".toast").inner_text()
    assert "messages[0]" in page.locator(".frame-detail").inner_text()
    assert "search_orders" in page.locator(".crumbs [aria-current]").inner_text()
    page.locator(".crumb").first.click()
    assert {} == fragment(page)
    assert before == pixel(page, 0, 0.9)


def test_keys_and_wheel_move_and_zoom(analysis_of, open_page):
    page = open_page(analysis_of("full")).page
    canvas = page.locator(".flame-canvas")
    canvas.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowLeft", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert {"zoom": "2"} == fragment(page)
    page.keyboard.press("Escape")
    assert {"zoom": "1"} == fragment(page)
    page.keyboard.press("Home")
    assert {} == fragment(page)
    page.keyboard.press("+")
    low, high = map(int, fragment(page)["range"].split("-"))
    assert 0 < low < high
    page.keyboard.press("-")
    assert {} == fragment(page)
    canvas.hover()
    page.mouse.wheel(0, -100)
    wait_until(page, "location.hash.includes('range')")


def test_a_zoom_that_moves_ends_where_one_at_once_does(analysis_of, open_page):
    page = open_page(analysis_of("full"), reduced_motion="no-preference").page
    drawing = "document.querySelector('.flame-canvas').toDataURL()"
    before = page.evaluate(drawing)
    page.locator(".flame-canvas").focus()
    page.keyboard.press("+")
    wait_until(page, f"{drawing} !== {before!r}")
    page.wait_for_timeout(400)  # more than it moves
    after = page.evaluate(drawing)
    page.reload()
    assert after == page.evaluate(drawing) != before


def test_the_wheel_scrolls_the_page_until_the_graph_has_the_focus(analysis_of, open_page):
    page = open_page(analysis_of("full")).page
    page.locator(".flame-canvas").hover()
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, 200)
    wait_until(page, f"scrollY > {before}")
    assert {} == fragment(page)


def test_the_tip_says_what_a_frame_is(analysis_of, open_page):
    page = open_page(analysis_of("full")).page
    assert not page.locator(".tip").is_visible()
    page.locator(".flame-canvas").hover(position={"x": 40, "y": 60})
    tip = page.locator(".tip").inner_text()
    assert "search_orders(query)" in tip
    assert "messages[0]" in tip
    assert "read from cache" in tip


def test_the_tip_goes_when_what_it_speaks_of_does(analysis_of, open_page):
    page = open_page(analysis_of("full")).page
    page.locator(".flame-canvas").hover(position={"x": 40, "y": 60})
    assert page.locator(".tip").is_visible()
    click_frame(page, 2, 0.1)
    page.wait_for_timeout(300)  # a browser may tell of a pointer that stays where it is
    assert not page.locator(".tip").is_visible()
    page.locator(".flame-canvas").hover(position={"x": 60, "y": 60})
    assert page.locator(".tip").is_visible()
    page.locator("#flame-search").focus()
    page.keyboard.type("clock")
    wait_until(page, "location.hash.includes('find')")
    assert not page.locator(".tip").is_visible()


def test_search_counts_marks_and_stays_in_the_address(analysis_of, open_page):
    opened = open_page(analysis_of("full"))
    page = opened.page
    before = pixel(page, 2, 0.5)
    page.locator("#flame-search").fill("2026-11-02")
    wait_until(page, "location.hash.includes('find')")
    assert re.fullmatch(r"\d+ frames, \d+\.\d% of the tokens", page.locator(".found").inner_text())
    assert before != pixel(page, 2, 0.5)  # it does not hold the text, so it is pale now
    click_frame(page, 2, 0.1)
    kept = fragment(page)
    assert {"find": "2026-11-02", "zoom": "2"} == kept
    found = page.locator(".found").inner_text()
    page.reload()
    assert kept == fragment(page)
    assert "2026-11-02" == page.locator("#flame-search").input_value()
    assert found == page.locator(".found").inner_text()
    assert "search_orders" in page.locator(".crumbs [aria-current]").inner_text()
    page.locator("#flame-search").fill("")
    wait_until(page, "!location.hash.includes('find')")
    assert "" == page.locator(".found").inner_text()


@pytest.mark.parametrize("address", ["#zoom=999999&range=5-1", "#zoom=-1", "#zoom=x&range=", "#%", "#find=%00"])
def test_an_address_that_means_nothing_shows_the_whole(analysis_of, open_page, address):
    page = open_page(analysis_of("full"), fragment=address).page
    assert "all requests" == page.locator(".crumbs").inner_text()


def test_a_new_address_is_followed(analysis_of, open_page):
    page = open_page(analysis_of("full"), fragment="#zoom=1").page
    page.evaluate("location.hash = '#zoom=2&find=clock'")
    wait_until(page, "document.querySelector('.crumbs [aria-current]').textContent.startsWith('search_orders')")
    assert "clock" == page.locator("#flame-search").input_value()


def test_a_browser_that_refuses_an_address_gets_it_later(analysis_of, open_page):
    page = open_page(analysis_of("full")).page
    page.evaluate(
        """() => {
            const real = history.replaceState.bind(history);
            history.replaceState = () => { history.replaceState = real; throw new DOMException("", "SecurityError"); };
        }"""
    )
    click_frame(page, 2, 0.1)
    assert {} == fragment(page)
    wait_until(page, "location.hash === '#zoom=2'")


def test_links_to_sections_leave_the_state_alone(analysis_of, open_page):
    page = open_page(analysis_of("full"), fragment="#zoom=2").page
    page.get_by_role("link", name="Caches").click()
    assert {"zoom": "2"} == fragment(page)
    assert "heading-caches" == page.evaluate("document.activeElement.id")


def test_the_table_is_walked_with_keys(analysis_of, open_page):
    page = open_page(analysis_of("full")).page
    page.locator(".tree").focus()
    assert "all requests" == active_row(page)
    page.keyboard.press("ArrowDown")
    assert "gpt-4o" == active_row(page)
    page.keyboard.press("ArrowDown")
    assert "gpt-4o-mini" == active_row(page)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert active_row(page).startswith("search_orders")
    page.keyboard.press("ArrowRight")
    rows = page.locator(".tree").get_attribute("aria-rowcount")
    page.keyboard.press("End")
    assert "gpt-4o-mini" == active_row(page)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert "2" == page.locator(".tree").get_attribute("aria-rowcount") != rows
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert {"zoom": "1"} == fragment(page)
    assert "gpt-4o" in page.locator(".frame-detail").inner_text()


def test_language_and_theme_switch_and_stay(analysis_of, open_page):
    opened = open_page(analysis_of("full"), color_scheme="light", fragment="#zoom=2&find=clock")
    page = opened.page
    assert "en" == page.evaluate("document.documentElement.lang")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#language").click()
    assert "zh-Hans" == page.evaluate("document.documentElement.lang")
    assert "每个 token 的去向" == page.locator("#heading-attribution").inner_text()
    assert {"zoom": "2", "find": "clock"} == fragment(page)
    assert "修复 发送前按名称对工具排序。" in page.locator(".break").nth(1).inner_text()
    for _ in range(2):
        page.locator("#theme").click()
    assert "主题：深色" == page.locator("#theme").inner_text()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light != dark
    page.reload()
    assert "主题：深色" == page.locator("#theme").inner_text()
    assert dark == page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#language").click()
    assert "Where every token went" == page.locator("#heading-attribution").inner_text()


def test_the_system_decides_on_the_theme(analysis_of, open_page):
    page = open_page(analysis_of("full"), color_scheme="dark").page
    assert "dark" == page.evaluate("document.documentElement.dataset.theme")
    graph = pixel(page, 2, 0.5)
    page.emulate_media(color_scheme="light")
    wait_until(page, "document.documentElement.dataset.theme === 'light'")
    assert graph != pixel(page, 2, 0.5)


def test_files_for_other_tools(analysis_of, open_page):
    analysis = analysis_of("full")
    page = open_page(analysis).page
    with page.expect_download() as saved:
        page.locator("#save-speedscope").click()
    assert "prefold.speedscope.json" == saved.value.suggested_filename
    profile = json.loads(saved.value.path().read_text(encoding="utf-8"))
    sent, recomputed = profile["profiles"]
    assert "https://www.speedscope.app/file-format-schema.json" == profile["$schema"]
    assert analysis["flame"]["nodes"]["tokens"][0] == sent["endValue"]
    total, hit = analysis["flame"]["nodes"]["tokens"][0], analysis["flame"]["nodes"]["hit"][0]
    assert total - hit == recomputed["endValue"]
    for events in (sent["events"], recomputed["events"]):
        open_frames, at = [], 0
        for event in events:
            assert at <= event["at"]
            at = event["at"]
            if event["type"] == "O":
                open_frames.append(event["frame"])
            else:
                assert open_frames.pop() == event["frame"]
        assert [] == open_frames
    with page.expect_download() as saved:
        page.locator("#save-collapsed").click()
    lines = saved.value.path().read_text(encoding="utf-8").splitlines()
    assert total == sum(int(line.rsplit(" ", 1)[1]) for line in lines)
    assert all(line.startswith("all requests;gpt-4o") for line in lines)


def test_a_hundred_thousand_frames(analysis_of, open_page):
    page = open_page(analysis_of("many_nodes")).page
    assert pixel(page, 0, 0.5) != pixel(page, 5, 0.3)
    assert 60 > page.locator(".tree-row").count()  # only those in sight exist
    assert re.search(r"22 of \d\d levels", page.locator("#section-flame").inner_text())
    page.locator("#flame-search").fill("text number 77")
    wait_until(page, "location.hash.includes('find')")
    assert re.match(r"[\d,]+ frames", page.locator(".found").inner_text())
    click_frame(page, 3, 0.1)
    assert "zoom" in fragment(page)
    page.locator(".tree").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    page.keyboard.press("PageUp")
    assert 60 > page.locator(".tree-row").count()
    assert active_row(page)


def test_commands_are_copied(analysis_of, open_page):
    page = open_page(analysis_of("full"), permissions=["clipboard-read", "clipboard-write"]).page
    page.locator(".command button").first.click()
    wait_until(page, "document.querySelector('.toast').textContent")
    assert "prefold lint requests.jsonl --fix" == page.evaluate("navigator.clipboard.readText()")


def test_printed_it_is_light_and_complete_and_without_controls(analysis_of, open_page):
    analysis = analysis_of("full")
    analysis["caches"] *= 3
    page = open_page(analysis, color_scheme="dark").page
    assert not page.locator("#section-caches tbody tr").last.is_visible()
    page.emulate_media(media="print")
    wait_until(page, "document.documentElement.dataset.theme === 'light'")
    assert page.locator("#section-caches tbody tr").last.is_visible()
    assert page.locator(".flame-canvas").is_visible()
    assert 0 == page.locator("button:visible:not(.crumb)").count()
    assert not page.locator(".sections").is_visible()
    for name in SECTIONS:
        assert 40 < len(page.locator(f"#section-{name}").inner_text())
    assert [] == page.evaluate(
        """() => [...document.querySelectorAll('#page *')].filter((found) => found.getClientRects().length
            && ['fixed', 'sticky'].includes(getComputedStyle(found).position)
            && !found.closest('.flame-table')).map((found) => found.className)"""
    )


def test_what_is_drawn_fits_the_paper_and_the_screen_again(analysis_of, open_page):
    page = open_page(analysis_of("many_nodes")).page
    widths = "[...document.querySelectorAll('.flame-canvas, .chart svg')].map((found) => found.clientWidth)"
    heights = "[...document.querySelectorAll('.flame, .flame-canvas')].map((found) => found.clientHeight)"
    before = page.evaluate(widths)
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.printed = [{widths}, {heights}]; }})")
    document = page.pdf(format="A4")
    assert b"%PDF" == document[:4]
    assert 1 < len(re.findall(rb"/Type\s*/Page\b", document))
    printed_widths, (frame, canvas) = page.evaluate("window.printed")
    sheet = (210 - 2 * 14) / 25.4 * 96  # millimetres within the margins, as pixels
    assert [] == [width for width in printed_widths if not 0.9 * sheet < width <= sheet]
    assert frame == canvas > 400
    assert before == page.evaluate(widths)


def test_a_trace_of_blocks_is_drawn(analysis_of, open_page):
    page = open_page(analysis_of("block_trace")).page
    page.locator(".flame-canvas").hover(position={"x": 40, "y": 36})
    assert "blocks 1, 2, …" in page.locator(".tip").inner_text()
    page.locator("#language").click()
    page.locator(".flame-canvas").hover(position={"x": 44, "y": 36})
    assert "块 1, 2, …" in page.locator(".tip").inner_text()
