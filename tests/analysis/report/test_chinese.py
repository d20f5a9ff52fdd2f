"""The page in Chinese: no sentence is left in English, and none is translated that nobody says."""

import json
import re
from importlib.resources import files

import pytest

from prefold.prompts.causes import CAUSES

pytestmark = pytest.mark.timeout(180)

HISTORY_CHANGED = "Blocks that were sent before come behind other ones; the trace does not say why."

TEXTS = """() => {
    const walker = document.createTreeWalker(document.getElementById("page"), NodeFilter.SHOW_TEXT);
    const texts = [];
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        if (!node.parentElement.closest("[translate=no], [lang=en]")) texts.push(node.data);
    }
    for (const found of document.querySelectorAll("[title], [aria-label], [placeholder]")) {
        if (found.closest("[translate=no], .command, #language")) continue;
        texts.push(...["title", "aria-label", "placeholder"].map((name) => found.getAttribute(name) ?? ""));
    }
    return texts;
}"""

NAMES_OF_THE_LOG = {
    *("requests", "jsonl", "openai", "gpt", "mini", "genai", "prices", "base", "empty", "trace", "system", "changed"),
    *("messages", "content", "tools", "acme", "blue", "cobalt", "delta", "echo", "fox", "golf"),
}
SAID_IN_ANY_LANGUAGE = {
    *(
        "prefold",
        "token",
        "Token",
        "UTC",
        "API",
        "LRU",
        "JSON",
        "KiB",
        "MiB",
        "GiB",
        "Enter",
        "Escape",
        "speedscope",
        "price",
    ),
    *("tool", "choice", "properties", "prompt", "cache", "key"),  # tool_choice, prompt_cache_key
}


@pytest.mark.parametrize("name", ["empty", "advised", "block_trace"])
def test_no_english_is_left_in_chinese(analysis_of, open_page, name):
    analysis = analysis_of(name)
    page = open_page(analysis, locale="zh-CN").page
    texts = page.evaluate(TEXTS)
    words = {word for text in texts for word in re.findall(r"[A-Za-z]{3,}", text)}
    assert set() == words - NAMES_OF_THE_LOG - SAID_IN_ANY_LANGUAGE
    assert len(analysis["advice"]) == page.locator(".advice li").count()


def test_every_translation_is_of_something_that_is_said(analysis_of):
    analysis = analysis_of("advised")
    said = {
        *(sentence for cause in CAUSES.values() for sentence in (cause.summary, cause.fix)),
        *(step[part] for step in analysis["advice"] for part in ("title", "text")),
        *(route["text"] for route in analysis["routes"]),
        *(route["text"].partition(". ")[2] for route in analysis["routes"]),
        *("ids of the log", "estimate", "estimate (claude)", "Standard input", HISTORY_CHANGED),
        *("to its place by name", "behind the other tools", "behind the newest user message"),
        *("to the end of the system text", "before the last paragraph"),
    }
    script = (files("prefold.analysis.report") / "assets" / "sentences.js").read_text(encoding="utf-8")
    templates = [json.loads(found) for found in re.findall(r'^    (".*?"):\s', script, re.MULTILINE)]
    patterns = [re.sub(r"\\\{\w+\\\}", ".*", re.escape(template)) for template in templates]
    assert 60 < len(patterns)
    assert [] == [pattern for pattern in patterns if not any(re.fullmatch(pattern, sentence) for sentence in said)]
