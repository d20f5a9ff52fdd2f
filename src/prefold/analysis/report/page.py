"""The report as one page that opens offline: style, script and figures are inside, and nothing else may be loaded."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from prefold import __version__
from prefold.analysis.report.bundle import bundle

_ASSETS = files("prefold.analysis.report") / "assets"

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="prefold {version}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="page"><noscript><p>A script inside this file draws the report: please allow it.</p></noscript></div>
<script type="application/json" id="analysis">{analysis}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def render_html(analysis: Mapping[str, Any]) -> str:
    """The page of an analysis, which is what `prefold report --json` prints.

    Texts of the log reach the page as JSON in which no character can end its element, and the script makes them text
    nodes and nothing else. The policy allows this very script and style by their hashes.
    """
    style, script = _asset("report.css"), bundle("report.js", _asset)
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=policy,
        version=html.escape(__version__),
        title=html.escape(_unpaired_replaced(f"{analysis['title']} · prefold")),
        style=style,
        script=script,
        analysis=embedded({"analysis": analysis, "version": __version__}),
    )


def embedded(value: Mapping[str, Any]) -> str:
    """A value as JSON that can stand inside of a script element: ASCII, without `<`, `>` and `&`."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _unpaired_replaced(text: str) -> str:
    """The text with halves of surrogate pairs, which UTF-8 cannot write, replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
