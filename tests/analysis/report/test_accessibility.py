"""The page in a real Chromium, for those who see, point, or read otherwise."""

from itertools import pairwise

import pytest

pytestmark = pytest.mark.timeout(180)


SMALL = """() => [...document.querySelectorAll('button, a, input, select, summary')]
    .filter((found) => found.getClientRects().length)
    .map((found) => [found.textContent, found.getBoundingClientRect()])
    .filter(([, { width, height }]) => width < 24 || height < 24)
    .map(([text, { width, height }]) => `${text} ${width} x ${height}`)"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
def test_targets_are_large_enough(analysis_of, open_page, width, locale):
    page = open_page(analysis_of("full"), width=width, locale=locale).page
    assert [] == page.evaluate(SMALL)


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_no_width_makes_the_page_scroll_sideways(analysis_of, open_page, width):
    page = open_page(analysis_of("full"), width=width).page
    assert width == page.evaluate("document.documentElement.scrollWidth")


NAMES = """() => [...document.querySelectorAll(
        'button, a, input, select, canvas, nav, [role=treegrid], [role=region], [role=img]')]
    .filter((found) => !(found.getAttribute('aria-label') || found.textContent).trim())
    .map((found) => found.outerHTML.slice(0, 80))"""

CONTRAST = """() => {
    const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    const parse = (text) => text.match(/[\\d.]+/g).map(Number);
    const luminance = ([red, green, blue]) => 0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
    const ground = (found) => {
        for (let at = found; at; at = at.parentElement) {
            const color = parse(getComputedStyle(at).backgroundColor);
            if (color.length < 4 || color[3] > 0.9) return color;
        }
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const poor = [];
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const found = node.parentElement;
        if (!node.data.trim() || !found.getClientRects().length || found.closest('script, style, noscript')) continue;
        const style = getComputedStyle(found);
        const color = found instanceof SVGElement ? style.fill : style.color;
        const [one, other] = [luminance(parse(color)), luminance(ground(found))].sort((a, b) => b - a);
        const ratio = (one + 0.05) / (other + 0.05);
        if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${found.className} ${node.data.slice(0, 30)}`);
    }
    return poor;
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_can_be_read_by_all(analysis_of, open_page, theme):
    page = open_page(analysis_of("full"), color_scheme=theme).page
    assert [] == page.evaluate(CONTRAST)
    assert [] == page.evaluate(NAMES)
    assert [] == page.evaluate(
        "() => { const ids = [...document.querySelectorAll('[id]')].map((found) => found.id);"
        " return ids.filter((id, at) => ids.indexOf(id) !== at); }"
    )
    levels = page.evaluate(
        "() => [...document.querySelectorAll('h1, h2, h3')].map((found) => Number(found.tagName[1]))"
    )
    assert 1 == levels[0] == levels.count(1)
    assert 1 == max(after - before for before, after in pairwise(levels))
    assert 1 == page.locator("main").count() == page.locator("footer").count()
    assert [] == page.evaluate(
        """() => [...document.querySelectorAll('[role=row]')].filter((row) =>
            ![...row.children].every((cell) => ['gridcell', 'columnheader'].includes(cell.getAttribute('role'))))"""
    )
    assert [] == page.evaluate(
        "() => [...document.querySelectorAll('[aria-labelledby]')]"
        ".filter((found) => !document.getElementById(found.getAttribute('aria-labelledby')))"
    )


def test_the_keyboard_reaches_everything(analysis_of, open_page):
    page = open_page(analysis_of("full")).page
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.className || document.activeElement.id"))
    for needed in ("skip", "language", "theme", "flame-search", "flame-canvas", "tree", "save-speedscope", "small"):
        assert needed in reached
