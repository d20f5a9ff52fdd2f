"""Pictures of the report for the documentation, from the synthetic log of these tests.

python tests/analysis/report/screenshots.py docs/images
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

from conftest import full_analysis
from prefold.analysis.report.page import render_html

PICTURES = [("report.png", "light", "overview", 1180), ("report-flame.png", "dark", "flame", 860)]


def main(folder: Path) -> None:
    with TemporaryDirectory() as scratch, sync_playwright() as playwright:
        page_file = Path(scratch) / "report.html"
        page_file.write_text(render_html(full_analysis()), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, theme, section, height in PICTURES:
            page = browser.new_page(
                viewport={"width": 1120, "height": height}, color_scheme=theme, locale="en-GB", reduced_motion="reduce"
            )
            page.goto(page_file.as_uri())
            if section == "flame":
                page.get_by_role("link", name="Flame graph").click()
                page.locator(".flame-canvas").hover(position={"x": 620, "y": 60})
            page.screenshot(path=folder / name)
            page.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
