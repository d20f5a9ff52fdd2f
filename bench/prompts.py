"""Time what prefold does with prompts: comparing two, linting text, making canonical forms, parsing and rendering.

    python bench/prompts.py [--rounds 7] [--json]

No peer is installed for these; each job is paired with what Python itself needs for the same bytes, `json.loads` of the
bodies or one search of the text with a regular expression, in the same round. Times are of the processor, so that other
programs do not count. Figures are medians over the rounds, with the middle half of them. A first round is not counted.

    diff      two requests of 1 MB that part in their first line, near their end, or not at all
    lint      20 MB of ordinary text: English and Chinese prose, code, JSON, about one digit in 25 characters; and 4 MB
              each of texts that are full of numbers, where each number is one that could be a clock or an id
    canonical a request of 1 MB in canonical form already, and one with its tools in another order
    parse     a request of 1 MB, read into segments and rendered again
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from prefold import __version__
from prefold.lint.text import lint_text
from prefold.prompts.canonical.canonicalize import canonicalize
from prefold.prompts.divergence.compare import compare
from prefold.prompts.prompt import Prompt
from prefold.prompts.tokens import counter_for

ENGLISH = (
    "the agent reads",
    "a handbook and",
    "answers with care",
    "about orders",
    "refunds",
    "and parcels",
    "that were sent",
)
CHINESE = "先查询订单再回答用户的问题不要猜测也不要泄露其他客户的信息"
OTHERS = (
    "total = sum(price * 3 for price in prices[:10])",
    '{"id": 17, "price": 10.5, "tags": ["new", "v2"]}',
    "see section 4.2 of RFC 9110",
    "version 3.11 of 2026",
)


def words(size: int, seed: int) -> str:
    """Ordinary text of about a size in characters."""
    dice = random.Random(seed)
    written: list[str] = []
    length = 0
    while length < size:
        kind = dice.random()
        if kind < 0.8:
            part = " ".join(dice.choices(ENGLISH, k=5)) + ". "
        elif kind < 0.9:
            part = "".join(dice.choices(CHINESE, k=20)) + "。\n"
        else:
            part = dice.choice(OTHERS) + "\n"
        written.append(part)
        length += len(part)
    return "".join(written)


NUMBERED = {
    "laws": "§ {small} ({small}) The Act of {day} March {year}, as amended by Regulation {year}/{number}, applies.\n",
    "Chinese handbook": "第{small}条 根据{year}年{small}月{day}日发布的规定，客服应当在{day}小时内答复客户。\n",
    "changelog": "## 1.{day}.{small} - {year}-{month}-{day}\n- Fixed #{number}: the parser crashed on empty input\n",
    "transcript": "[{day}:{minute}] user{small}: could you please check order {number} for me, thanks a lot\n",
    "prices": "| {number} | Widget {small} | {day}.{minute} EUR | 12:00-18:00 |\n",
    "few-shot JSON": '{{"input": "order {number} arrives late", "score": 0.{minute}, "id": "ex-{number}"}}\n',
    "access log": '{day}.0.{small}.{day} - - [{day}/Nov/2026:{day}:{minute}:{minute} +0000] "GET /{number}" 200\n',
}
"""Lines of texts that are full of numbers."""


def numbered(line: str, size: int, seed: int) -> str:
    """Text of about a size in characters, of lines that differ in their numbers."""
    dice = random.Random(seed)
    written: list[str] = []
    length = 0
    while length < size:
        part = line.format(
            small=dice.randint(1, 9),
            day=dice.randint(10, 23),
            month=dice.randint(10, 12),
            minute=dice.randint(10, 59),
            year=dice.randint(1990, 2026),
            number=dice.randint(1000, 99999),
        )
        written.append(part)
        length += len(part)
    return "".join(written)


def request(model: str) -> dict[str, Any]:
    """A request of about 1 MB: 40 tools, a system prompt of 200 KB, 399 messages."""
    properties = {"query": {"type": "string"}, "limit": {"type": "integer"}}
    tools = [
        {
            "name": f"tool_{number:02}",
            "description": words(200, number),
            "input_schema": {"type": "object", "properties": properties, "required": ["query"]},
        }
        for number in range(40)
    ]
    messages = [
        {"role": ("user", "assistant")[number % 2], "content": [{"type": "text", "text": words(1900, 100 + number)}]}
        for number in range(399)
    ]
    system = [{"type": "text", "text": f"Now: 10:15:00\n{words(200_000, 7)}", "cache_control": {"type": "ephemeral"}}]
    return {"model": model, "max_tokens": 100, "tools": tools, "system": system, "messages": messages}


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


Jobs = dict[str, tuple[Callable[[], object], Callable[[], object], int]]
"""By name: the work, what it is paired with, and the bytes it reads."""


def lint_jobs() -> Jobs:
    """Linting texts of each kind."""
    counter = counter_for()
    digits = re.compile(r"[0-9]{2}[:-][0-9]{2}")
    texts = {name: numbered(line, 4_000_000, 5) for name, line in NUMBERED.items()}
    return {
        f"lint, {name}": (
            partial(lint_text, text, "-", counter),
            partial(digits.findall, text),
            len(text.encode()),
        )
        for name, text in {"ordinary text": words(20_000_000, 3), **texts}.items()
    }


def jobs() -> Jobs:
    """All of them."""
    found: Jobs = {}
    for model in ("claude-sonnet-4-5", "gpt-5.2"):
        before = json.dumps(request(model))
        for name, after in {
            "first line": before.replace("10:15:00", "10:16:00"),
            "near the end": before[:-3000] + before[-3000:].replace("agent", "waiter", 1),
            "no difference": before,
        }.items():

            def diff(before: str = before, after: str = after) -> object:
                return compare(Prompt.parse(before), Prompt.parse(after))

            def read(before: str = before, after: str = after) -> object:
                return json.loads(before), json.loads(after)

            kind = "exact" if counter_for(model).is_exact else "estimated"
            found[f"diff, {name}, {kind} tokens"] = (diff, read, len(before.encode()) + len(after.encode()))

    found.update(lint_jobs())
    body = json.dumps(request("claude-sonnet-4-5"))
    compact = canonicalize(Prompt.parse(body)).prompt.render()
    value = json.loads(body)
    shuffled = json.dumps({**value, "tools": value["tools"][::-1]})
    for name, source in {"canonical already": compact.decode(), "tools in another order": shuffled}.items():

        def canonical(source: str = source) -> object:
            return canonicalize(Prompt.parse(source))

        def load(source: str = source) -> object:
            return json.loads(source)

        found[f"canonical, {name}"] = (canonical, load, len(source.encode()))
    found["parse and render"] = (
        lambda: (prompt := Prompt.parse(body), prompt.segments, prompt.render()),
        lambda: json.loads(body),
        len(body.encode()),
    )
    return found


def main() -> int:
    """Run the jobs and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows = []
    for name, (work, pair, size) in jobs().items():
        times = [(seconds(work), seconds(pair)) for _ in range(options.rounds + 1)][1:]
        own = sorted(ours for ours, _ in times)
        low, middle, high = statistics.quantiles(own, n=4) if len(own) > 1 else [own[0]] * 3
        rows.append(
            {
                "job": name,
                "milliseconds": round(1e3 * middle, 1),
                "middle_half": [round(1e3 * low, 1), round(1e3 * high, 1)],
                "megabytes_per_second": round(size / 1e6 / middle, 1),
                "times_python": round(statistics.median(ours / theirs for ours, theirs in times), 1),
            }
        )
    if options.json:
        print(json.dumps({"schema_version": 1, "prefold": __version__, "python": sys.version.split()[0], "rows": rows}))
        return 0
    print(f"prefold {__version__}, Python {sys.version.split()[0]}, {options.rounds} rounds")
    print(f"{'':44}{'ms':>9}{'middle half':>20}{'MB/s':>8}{'x Python':>10}")
    for row in rows:
        half = "{}..{}".format(*row["middle_half"])
        rate = row["megabytes_per_second"]
        print(f"{row['job']:44}{row['milliseconds']:>9}{half:>20}{rate:>8}{row['times_python']:>10}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
