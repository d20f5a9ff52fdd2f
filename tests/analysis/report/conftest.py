"""Analyses to draw, and a browser to draw them in."""

import copy
import json
import math
import random
import shutil
from pathlib import Path

import pytest

from prefold.analysis.advice import advise
from prefold.analysis.bill import Bill
from prefold.analysis.caches.base import Reason
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.record import Blocks, Body, Place, Record
from prefold.analysis.report.flame import FlameTree
from prefold.analysis.report.page import render_html
from prefold.analysis.request import Request
from prefold.analysis.routes import Routes, five_routes
from prefold.analysis.situation import LAPTOP_ENGINES, Situation
from prefold.core.tokens import pack

NASTY = "</script><img src=x onerror=alert(1)><!--\u2028\u2029&amp;\x00\ud800'\""

RULES = (
    "You are the support agent of a shop. Today is 2026-11-{day:02d}T09:{minute:02d}:00Z. Be brief and polite. "
    "Look orders up before you answer. Never promise a refund above the price that was paid. "
)
TOOLS = "search_orders(query), read_policy(topic), escalate(reason): tools of the support agent. " * 3
QUESTIONS = [
    "Where is my order?",
    "Can I return the shoes?",
    "The parcel is damaged.",
    "Please change the address of my order.",
    "退货需要多长时间？",
]


def request_of(messages, *, number=0, model="gpt-4o", time=0.0, salt=None):
    """A request whose tokens are characters."""
    run, ends = [], []
    for message in messages:
        run += [ord(character) for character in message["content"]]
        ends.append(len(run))
    body = json.dumps({"model": model, "messages": messages}).encode()
    record = Record(Body(body), Place("requests.jsonl", number + 1), model=model)
    return Request(pack(run), 1, len(run), time, record, ends=tuple(ends), salt=salt)


def blocks_of(ids, *, tokens=None, number=0):
    """A request of a trace of blocks of 16 tokens."""
    run = pack(ids)
    content = Blocks(run, 16, tokens or 16 * len(ids))
    return Request(run, 16, content.tokens, 0.0, Record(content, Place("trace.jsonl", number + 1)))


def support_tree():
    """Conversations of a support agent with a clock in its rules, served by a cache of everything."""
    rng = random.Random(7)
    tree = FlameTree()
    seen = []
    for session in range(60):
        day, minute = 1 + session // 20, rng.randrange(6) if session % 3 else 0
        messages = [
            {"role": "system", "content": TOOLS},
            {"role": "system", "content": RULES.format(day=day, minute=minute)},
        ]
        for turn in range(rng.randrange(1, 5)):
            messages = [*messages, {"role": "user", "content": rng.choice(QUESTIONS)}]
            request = request_of(messages, number=len(seen), model="gpt-4o" if session % 5 else "gpt-4o-mini")
            known = [_common(request.run, run) for model, run in seen if model == request.record.model]
            tree.add(request, max(known, default=0) // 4)
            seen.append((request.record.model, request.run))
            answer = f"Answer {turn} of session {session}: " + "one moment, I will look that up. " * rng.randrange(1, 6)
            messages = [*messages, {"role": "assistant", "content": answer}]
    return tree


def _common(one, other):
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


def empty_analysis():
    return {
        "schema_version": 1,
        "title": "empty.jsonl",
        "log": {
            "sources": ["empty.jsonl"],
            "requests": 0,
            "formats": {},
            "skipped": 0,
            "skipped_lines": [],
            "problems": {},
            "first_time": None,
            "last_time": None,
            "tenants": 0,
            "sessions": 0,
            "models": {},
            "tokens": {"counters": {}, "exact": True},
        },
        "input_tokens": 0,
        "hit_tokens": 0,
        "recomputed_tokens": 0,
        "avoidable_tokens": 0,
        "hit_rate": None,
        "possible_hit_rate": None,
        "cost": None,
        "attribution": [],
        "reported": None,
        "breaks": [],
        "order": None,
        "capacity": None,
        "over_time": [],
        "caches": [],
        "routes": [],
        "situation": None,
        "advice": [],
        "flame": FlameTree().as_json(),
        "redacted": False,
    }


def full_analysis():
    """Something in every section: what stands in `full.json`, series, and a tree."""
    analysis = json.loads((Path(__file__).parent / "full.json").read_text(encoding="utf-8"))
    start = analysis["log"]["first_time"]
    return {
        **analysis,
        "capacity": {
            "unit_bytes": 24_576,
            "points": [
                {
                    "tokens": 1_000 * 2**step,
                    "lru": 0.72 / (1 + math.exp(4.5 - step * 0.75)),
                    "optimum": 0.72 / (1 + math.exp(3.2 - step * 0.9)),
                    "default": 0.72 / (1 + math.exp(4 - step * 0.78)),
                }
                for step in range(14)
            ],
            "infinite": 0.7203,
            "block_tokens": 64,
            "exact": True,
        },
        "over_time": [
            {
                "time": start + 3_600 * hour,
                "tenant": tenant,
                "model": "gpt-4o" if index < 5 else "gpt-4o-mini",
                "input_tokens": 20_000 // (index + 1),
                "hit_tokens": int(
                    20_000 // (index + 1) * (0.62 - 0.05 * index + 0.12 * math.sin(hour / 6 + index)) * (hour != 30)
                ),
            }
            for hour in range(48)
            for index, tenant in enumerate(["acme", "blue", "cobalt", "delta", "echo", "fox", "golf"])
        ],
        "flame": support_tree().as_json(),
    }


def advised_analysis():
    """The full analysis with all that prefold can advise, and each route, as it says them."""
    analysis = full_analysis()
    lost = [{**analysis["attribution"][1], "reason": str(reason), "tokens": 10**6} for reason in Reason]
    separate, shared = LAPTOP_ENGINES
    told = {
        **analysis,
        "cache": "own",
        "attribution": lost,
        "caches": [
            *analysis["caches"],
            *({"cache": name, "hit_rate": rate} for name, rate in ((separate, 0), (shared, 1))),
        ],
        "breaks": [
            *analysis["breaks"],
            {**analysis["breaks"][0], "cause": None, "path": None, "fix": "", "gain_tokens": 2 * 10**6},
        ],
    }
    with_lifetimes = {**told, "log": {**told["log"], "models": {"claude-sonnet-4-5": 1}}}
    advice = [
        *(step for situation in Situation for step in advise(situation, told)),
        *advise(Situation.HOSTED_API, with_lifetimes),
        *advise(Situation.LAPTOP, {**empty_analysis(), "cache": "own"}),
    ]
    bill = Bill(CacheSpec("own", None), None)
    return {
        **analysis,
        "breaks": told["breaks"],
        "advice": list({(step["title"], step["text"]): step for step in advice}.values()),
        "routes": five_routes(Routes(), bill, 5),
    }


def hostile_analysis():
    """The full analysis with markup and control characters in every text, as key too."""

    def spoiled(value):
        if isinstance(value, dict):
            return {name: spoiled(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [spoiled(inner) for inner in value]
        return NASTY + value if isinstance(value, str) else value

    analysis = spoiled(full_analysis())
    for name in ("formats", "models", "problems"):
        analysis["log"][name] = {NASTY: 1}
    analysis["log"]["tokens"]["counters"] = {NASTY: 1}
    analysis["breaks"][0]["miss_reasons"] = {NASTY: 1}
    analysis["breaks"][0]["tokens"] = 2**53
    analysis["hit_rate"] = 7.5
    return analysis


def block_trace_analysis():
    tree = FlameTree()
    for number in range(40):
        tree.add(blocks_of([1, 2, 3, 10 + number % 4, 100 + number], tokens=85, number=number), 64 if number > 3 else 0)
    return {**empty_analysis(), "title": "trace.jsonl", "input_tokens": 40 * 85, "flame": tree.as_json()}


def many_nodes_analysis(count):
    """A flame graph of a given size, as a tree that is built node by node would be."""
    rng = random.Random(3)
    parents, depths, children = [-1], [0], [[]]
    while len(parents) < count:
        parent = rng.randrange(len(parents)) if rng.random() < 0.7 else len(parents) - 1
        if depths[parent] > 60:
            continue
        children[parent].append(len(parents))
        parents.append(parent)
        depths.append(depths[parent] + 1)
        children.append([])
    tokens = [rng.randrange(1, 200) for _ in parents]
    hit = [rng.randrange(own + 1) for own in tokens]
    for node in range(count - 1, 0, -1):
        tokens[parents[node]] += tokens[node]
        hit[parents[node]] += hit[node]
    order, stack = [], [0]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(sorted(children[node], key=tokens.__getitem__))
    flame = {
        "nodes": {
            "depth": [depths[node] for node in order],
            "tokens": [tokens[node] for node in order],
            "hit": [hit[node] for node in order],
            "label": [node % 5_000 for node in order],
            "path": [node % 50 for node in order],
        },
        "labels": [f"text number {number}" for number in range(5_000)],
        "paths": [f"messages[{number}].content" for number in range(50)],
        "merged": 0,
    }
    return {**empty_analysis(), "input_tokens": tokens[0], "flame": flame}


_CACHE = {}


@pytest.fixture
def analysis_of():
    """Makes an analysis by name; each caller gets one of its own."""
    makers = {
        "empty": empty_analysis,
        "full": full_analysis,
        "advised": advised_analysis,
        "hostile": hostile_analysis,
        "block_trace": block_trace_analysis,
        "many_nodes": lambda: many_nodes_analysis(100_000),
    }

    def make(name):
        if name not in _CACHE:
            _CACHE[name] = makers[name]()
        return copy.deepcopy(_CACHE[name])

    return make


@pytest.fixture
def make_request():
    return request_of


@pytest.fixture
def make_blocks():
    return blocks_of


@pytest.fixture
def nasty():
    return NASTY


@pytest.fixture(scope="module")  # its event loop must end before other tests start theirs
def chromium():
    sync_api = pytest.importorskip("playwright.sync_api")
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    executable = next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        pytest.skip("no Chromium on the path")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A page and all that went wrong on it."""

    def __init__(self, page, path):
        self.page = page
        self.path = path
        self.complaints = []
        self.requests = []
        page.on("console", lambda message: self.complaints.append(message.text) if message.type != "log" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append("a dialog"), dialog.dismiss()))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, fragment=""):
        self.page.goto("about:blank")
        self.page.goto(self.path.as_uri() + fragment)


@pytest.fixture
def open_page(chromium, tmp_path):
    """Opens the page of an analysis; afterwards nothing may have gone wrong, and nothing may have been fetched."""
    opened = []

    def open_it(analysis, *, width=1280, height=900, fragment="", **options):
        options = {"locale": "en-GB", "reduced_motion": "reduce", **options}
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        context.set_default_timeout(15_000)
        path = tmp_path / f"report-{len(opened)}.html"
        path.write_text(render_html(analysis), encoding="utf-8")
        page = Opened(context.new_page(), path)
        page.open(fragment)
        opened.append((context, page))
        return page

    yield open_it
    for context, page in opened:
        context.close()
        assert [] == page.complaints
        assert {page.path.as_uri()} == {
            url.split("#")[0] for url in page.requests if not url.startswith(("about:", "blob:"))
        }
