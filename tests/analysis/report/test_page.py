"""The page as text: what it may load, and how it carries what a log holds."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from prefold.analysis.report.bundle import bundle
from prefold.analysis.report.page import embedded, render_html
from prefold.prompts.causes import CAUSES

ASSETS = files("prefold.analysis.report") / "assets"


class Elements(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.found = []
        self.texts = {}
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.found and self.found[-1][0] in {"script", "style"}:
            tag, attributes = self.found[-1]
            self.texts.setdefault(attributes.get("type", tag), data)


@pytest.mark.parametrize("name", ["empty", "full", "hostile", "block_trace"])
def test_it_is_one_file_that_loads_nothing(analysis_of, name):
    elements = Elements(render_html(analysis_of(name)))
    assert {"html", "head", "meta", "title", "style", "body", "div", "noscript", "p", "script"} == {
        tag for tag, _ in elements.found
    }
    assert not [attributes for _, attributes in elements.found if {"src", "href", "style", "onerror"} & set(attributes)]


def test_the_policy_allows_this_script_and_this_style_only(analysis_of):
    elements = Elements(render_html(analysis_of("full")))
    (policy,) = (
        found["content"] for _, found in elements.found if found.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    def digest(text):
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert {
        "default-src": "'none'",
        "script-src": digest(elements.texts["module"]),
        "style-src": digest(elements.texts["style"]),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    } == rules


def test_what_a_log_holds_stays_data(analysis_of, nasty):
    analysis = analysis_of("hostile")
    page = render_html(analysis)
    elements = Elements(page)
    assert analysis == json.loads(elements.texts["application/json"])["analysis"]
    assert nasty not in page
    assert 2 == page.count("</script>")
    page.encode()


def test_embedded_json_has_no_character_that_ends_its_element():
    text = embedded({"text": "</script>&\u2028\u2029\ud800"})
    assert not set("<>&\u2028\u2029") & set(text)
    assert text.isascii()
    assert {"text": "</script>&\u2028\u2029\ud800"} == json.loads(text)


def test_nothing_in_the_script_makes_markup():
    script = "".join(asset.read_text(encoding="utf-8") for asset in ASSETS.iterdir() if asset.name.endswith(".js"))
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "</script"):
        assert way not in script


def test_every_text_is_there_in_every_language():
    line = re.compile(r'^  "?([\w.]+)"?:\s+"(.*)",$', re.MULTILINE)
    english, chinese = (
        line.findall((ASSETS / f"texts-{code}.js").read_text(encoding="utf-8")) for code in ("en", "zh")
    )
    assert dict(english).keys() == dict(chinese).keys()
    assert len(dict(english)) == len(english)
    for key, text in english:
        assert sorted(re.findall(r"\{(\w+)", text)) == sorted(re.findall(r"\{(\w+)", dict(chinese)[key])), key


def test_a_translated_sentence_takes_over_all_values():
    sentences = (ASSETS / "sentences.js").read_text(encoding="utf-8")
    pairs = re.findall(r'^    "?(.*?)"?:\s+"(.*)",$', sentences, re.MULTILINE)
    assert 60 < len(pairs)
    for english, chinese in pairs:
        assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", chinese)), english


@pytest.mark.parametrize("name", ["(?<=", "(?<!", ".at(", "structuredClone", "toSorted", "findLast", "scheduler"])
def test_no_script_needs_a_browser_of_this_year(name):
    assert [] == [asset.name for asset in ASSETS.iterdir() if name in asset.read_text(encoding="utf-8")]


def test_every_cause_and_its_fix_are_translated():
    sentences = (ASSETS / "sentences.js").read_text(encoding="utf-8")
    known = {json.loads(line) for line in re.findall(r'^    (".*?"):\s', sentences, re.MULTILINE)}
    assert {sentence for cause in CAUSES.values() for sentence in (cause.summary, cause.fix)} <= known


def test_every_text_is_used_and_every_text_used_is_there():
    texts = (ASSETS / "texts-en.js").read_text(encoding="utf-8")
    known = set(re.findall(r'^  "?([\w.]+)"?:', texts, re.MULTILINE))
    script = "".join(
        asset.read_text(encoding="utf-8")
        for asset in ASSETS.iterdir()
        if asset.name.endswith(".js") and not asset.name.startswith("texts-")
    )
    assert set(re.findall(r'\btext\(\s*"([\w.]+)"', script)) <= known
    sections = {
        "overview",
        "attribution",
        "flame",
        "breaks",
        "order",
        "capacity",
        "over_time",
        "caches",
        "advice",
        "routes",
    }
    assert {f"nav.{section}" for section in sections} | sections <= known
    built = re.compile(
        r"(nav|reason|cause|problem|route|situation|page\.theme|capacity|over_time|caches)\.\w+|\w+\.note"
    )
    assert set() == {key for key in known - sections if f'"{key}"' not in script and not built.fullmatch(key)}


def test_modules_become_one_script():
    modules = {
        "main.js": 'import { double } from "./double.js";\nconst one = 1;\nexport const two = double(one);\n',
        "double.js": "export function double(one) {\n  return one * 2;\n}\n",
    }
    assert (
        '"use strict";\nconst modules = {};\n'
        'modules["double.js"] = (() => {\nfunction double(one) {\n  return one * 2;\n}\nreturn { double };\n})();\n'
        'modules["main.js"] = (() => {\nconst { double } = modules["double.js"];\nconst one = 1;\n'
        "const two = double(one);\nreturn { two };\n})();\n"
    ) == bundle("main.js", modules.__getitem__)
