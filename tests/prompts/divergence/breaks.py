"""Pairs of requests with the right answer, made from one neutral conversation for every dialect and two languages."""

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

LANGUAGES = ("en", "zh")
DIALECTS = ("anthropic", "openai", "responses", "gemini", "bedrock", "completion")

_RULES = {
    "en": [
        f"Guideline {n}: verify field {n * 7 % 31} of the form, then tell the member what you found."
        for n in range(160)
    ],
    "zh": [f"守则{n}:请先核对表格第{n * 7 % 31}栏的内容,再把结果告诉会员。" for n in range(160)],
}
_TURNS = {
    "en": [
        "My parcel has not arrived.",
        "I see. Which city was it sent to?",
        "To Leeds.",
        "It left the depot.",
        "And when?",
    ],
    "zh": ["我的包裹还没有到。", "明白了,请问寄往哪个城市?", "寄往杭州。", "它已经离开仓库。", "什么时候到?"],
}
_TOOLS = ("track_parcel", "find_member", "refund_order", "open_case")


@dataclass(frozen=True)
class Pair:
    name: str
    dialect: str
    language: str
    before: Any
    after: Any
    cause: str
    path: str | None
    gap_seconds: float = 30.0


@dataclass
class Conversation:
    """A conversation before it is written in a dialect; `turns` alternate between user and assistant."""

    language: str
    system: str
    turns: list[str]
    tools: list[dict[str, Any]]
    model: str = ""
    marked: bool = True

    def copied(self) -> "Conversation":
        return copy.deepcopy(self)

    def grown(self, by: int = 2) -> "Conversation":
        longer = self.copied()
        words = (
            ["Anything else?", "Yes, one more thing."]
            if self.language == "en"
            else ["还有别的问题吗?", "有,还有一个。"]
        )
        longer.turns += [f"{words[i % 2]} ({len(longer.turns) + i})" for i in range(by)]
        return longer


def schema(number: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"key": {"type": "string"}, "count": {"type": "integer", "minimum": number}},
        "required": ["key"],
    }


def conversation(language: str) -> Conversation:
    description = "Use it to look at one thing." if language == "en" else "用来查询一项内容。"
    tools = [{"name": name, "description": description, "schema": schema(i)} for i, name in enumerate(_TOOLS)]
    joiner = " " if language == "en" else ""
    return Conversation(language, joiner.join(_RULES[language]), list(_TURNS[language]), tools)


def written(talk: Conversation, dialect: str) -> Any:
    """The body of a conversation."""
    return _WRITERS[dialect](talk)


def _anthropic(talk: Conversation) -> dict[str, Any]:
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": [{"type": "text", "text": text}]}
        for i, text in enumerate(talk.turns)
    ]
    system = [{"type": "text", "text": talk.system}]
    if talk.marked:
        messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        system[-1]["cache_control"] = {"type": "ephemeral"}
    tools = [{"name": t["name"], "description": t["description"], "input_schema": t["schema"]} for t in talk.tools]
    return {
        "model": talk.model or "claude-sonnet-4-5",
        "max_tokens": 64,
        "tools": tools,
        "system": system,
        "messages": messages,
    }


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    return {"name": tool["name"], "description": tool["description"], "parameters": tool["schema"]}


def _openai(talk: Conversation) -> dict[str, Any]:
    messages = [{"role": "system", "content": talk.system}]
    messages += [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(talk.turns)]
    tools = [{"type": "function", "function": _function(t)} for t in talk.tools]
    return {"model": talk.model or "gpt-5.2", "messages": messages, "tools": tools}


def _responses(talk: Conversation) -> dict[str, Any]:
    kinds = ("input_text", "output_text")
    items = [
        {"role": ("user", "assistant")[i % 2], "content": [{"type": kinds[i % 2], "text": text}]}
        for i, text in enumerate(talk.turns)
    ]
    tools = [{"type": "function", **_function(t)} for t in talk.tools]
    return {"model": talk.model or "gpt-5.2", "instructions": talk.system, "input": items, "tools": tools}


def _gemini(talk: Conversation) -> dict[str, Any]:
    contents = [{"role": ("user", "model")[i % 2], "parts": [{"text": text}]} for i, text in enumerate(talk.turns)]
    return {
        "model": talk.model or "gemini-2.5-flash",
        "systemInstruction": {"parts": [{"text": talk.system}]},
        "tools": [{"functionDeclarations": [_function(t) for t in talk.tools]}],
        "contents": contents,
    }


def _bedrock(talk: Conversation) -> dict[str, Any]:
    point = {"cachePoint": {"type": "default"}}
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": [{"text": text}]} for i, text in enumerate(talk.turns)
    ]
    messages[-1]["content"].append(point)
    tools = [
        {"toolSpec": {"name": t["name"], "description": t["description"], "inputSchema": {"json": t["schema"]}}}
        for t in talk.tools
    ]
    return {
        "modelId": talk.model or "anthropic.claude-sonnet-4-5-20250929-v1:0",
        "system": [{"text": talk.system}, point],
        "messages": messages,
        "toolConfig": {"tools": tools},
    }


def _completion(talk: Conversation) -> dict[str, Any]:
    names = ("User", "Agent")
    lines = [f"{names[i % 2]}: {text}" for i, text in enumerate(talk.turns)]
    return {"model": talk.model or "my-model", "prompt": "\n".join([talk.system, *lines, "Agent:"])}


_WRITERS: dict[str, Callable[[Conversation], Any]] = {
    "anthropic": _anthropic,
    "openai": _openai,
    "responses": _responses,
    "gemini": _gemini,
    "bedrock": _bedrock,
    "completion": _completion,
}

SYSTEM = {
    "anthropic": "system[0]",
    "openai": "messages[0]",
    "responses": "instructions",
    "gemini": "systemInstruction.parts[0]",
    "bedrock": "system[0]",
    "completion": "prompt",
}
TOOLS = {
    "anthropic": "tools[{}]",
    "openai": "tools[{}]",
    "responses": "tools[{}]",
    "gemini": "tools[0].functionDeclarations[{}]",
    "bedrock": "toolConfig.tools[{}]",
}
SCHEMAS = {
    "anthropic": "tools[{}].input_schema",
    "openai": "tools[{}].function.parameters",
    "responses": "tools[{}].parameters",
    "gemini": "tools[0].functionDeclarations[{}].parameters",
    "bedrock": "toolConfig.tools[{}].toolSpec.inputSchema.json",
}
TURNS = {
    "anthropic": "messages[{}].content[0]",
    "responses": "input[{}].content[0]",
    "gemini": "contents[{}].parts[0]",
    "bedrock": "messages[{}].content[0]",
    "completion": "prompt",
}
MESSAGES = {"anthropic": "messages[{}]", "responses": "input[{}]", "gemini": "contents[{}]", "bedrock": "messages[{}]"}


def turn(dialect: str, index: int) -> str:
    return f"messages[{index + 1}]" if dialect == "openai" else TURNS[dialect].format(index)


def message(dialect: str, index: int) -> str:
    return f"messages[{index + 1}]" if dialect == "openai" else MESSAGES[dialect].format(index)


CLOCKS = {
    "en": [
        ("Current time: 2026-03-04 09:15:22", "Current time: 2026-03-04 09:16:40"),
        ("Date: Wednesday, March 4, 2026", "Date: Thursday, March 5, 2026"),
        ("It is 9:15 AM now.", "It is 9:47 PM now."),
        ("ts=1772615722", "ts=1772615901"),
        ("Wed, 04 Mar 2026 09:15:22 GMT", "Wed, 04 Mar 2026 09:15:23 GMT"),
        ("Happy Wednesday!", "Happy Thursday!"),
        ("As of 04/03/2026 prices hold.", "As of 05/03/2026 prices hold."),
        ("2026-03-04T09:15:22.123456+01:00", "2026-03-04T09:15:22.987654+01:00"),
    ],
    "zh": [
        ("当前时间:2026年3月4日 09:15", "当前时间:2026年3月4日 09:16"),
        ("今天是2026年3月4日,星期三。", "今天是2026年3月5日,星期四。"),
        ("现在是上午9点15分。", "现在是下午3点20分。"),
        ("现在是上午九点五十九分。", "现在是上午十点零一分。"),
        ("时间戳:1772615722", "时间戳:1772615799"),
    ],
}
IDENTIFIERS = {
    "en": [
        ("Trace 0b6f6a1c-98a1-4c39-b1a4-52d5b7f0c001", "Trace 77e2d9f4-1be0-4f6b-8f0d-9a7c3e21aa02"),
        ("request_id: req_8fK2mQz91LpX", "request_id: req_Zt55bVnA07cW"),
        ("session=4f9d2c7ab01e63f8", "session=a07be91cd2f34456"),
        ("Client address 10.32.7.19", "Client address 10.32.8.204"),
        (
            "x-anthropic-billing-header: cc_version=2.1; cch=3fa91;",
            "x-anthropic-billing-header: cc_version=2.1; cch=b20c7;",
        ),
        ("[req 8f3c1aa9]", "[req 27be04d6]"),
        ("User ID: 88213", "User ID: 91544"),
    ],
    "zh": [
        ("会话ID:7f1e0c3a9b2d4e56", "会话ID:c90a77d1e2b34f88"),
        ("请求编号:3d1f9a52-7c40-4b7e-9a53-0f6c2e7d1b10", "请求编号:b7e04c19-2f6d-4d6a-8c1a-7d9f3a5e2c44"),
        ("用户编号:10086213", "用户编号:10099871"),
    ],
}


def pairs() -> Iterator[Pair]:
    for language in LANGUAGES:
        for dialect in DIALECTS:
            yield from _text_pairs(dialect, language)
            if dialect != "completion":
                yield from _tool_pairs(dialect, language)
                yield from _history_pairs(dialect, language)
            yield from _setting_pairs(dialect, language)


def _pair(name: str, dialect: str, before: Conversation, after: Conversation, cause: str, path: str | None) -> Pair:
    return Pair(name, dialect, before.language, written(before, dialect), written(after, dialect), cause, path)


def _text_pairs(dialect: str, language: str) -> Iterator[Pair]:
    base, system = conversation(language), SYSTEM[dialect]
    yield _pair("growth", dialect, base, base.grown() if dialect != "completion" else base, "none", None)
    half = base.system.find(_RULES[language][80])
    for cause, values in (("clock", CLOCKS[language]), ("identifier", IDENTIFIERS[language])):
        for number, (first, second) in enumerate(values):
            for place, text in {
                "front": "{}\n" + base.system,
                "end": base.system + "\n{}",
                "middle": base.system[:half] + "\n{}\n" + base.system[half:],
                "inline": base.system[:half] + "({}) " + base.system[half:],
            }.items():
                before, after = base.copied(), base.grown()
                before.system, after.system = text.replace("{}", first), text.replace("{}", second)
                yield _pair(f"{cause} {number} {place}", dialect, before, after, cause, system)
    gap = base.system.index(" ", half) if language == "en" else half
    for name, changed in {
        "double space": base.system[:gap] + "  " + base.system[gap:].lstrip(),
        "no-break space": base.system[:gap] + "\u00a0" + base.system[gap:].lstrip(),
        "zero width": base.system[:half] + "\u200b" + base.system[half:],
        "line end": base.system[:half] + "\n" + base.system[half:],
        "at the end": base.system + " \n",
    }.items():
        before, after = base.copied(), base.grown()
        after.system = changed
        yield _pair(f"whitespace {name}", dialect, before, after, "whitespace", system)
    before, after = base.copied(), base.grown()
    before.system, after.system = (
        base.system[:half] + "caf\u00e9 " + base.system[half:],
        base.system[:half] + "cafe\u0301 " + base.system[half:],
    )
    yield _pair("unicode form", dialect, before, after, "whitespace", system)
    for number, (first, second) in enumerate((("0.5", ".5"), ("1000", "1,000"), ("12.0", "12"), ("1e3", "1000.0"))):
        before, after = base.copied(), base.grown()
        before.system = base.system[:half] + f"limit = {first} EUR " + base.system[half:]
        after.system = base.system[:half] + f"limit = {second} EUR " + base.system[half:]
        yield _pair(f"number {number}", dialect, before, after, "number_format", system)
    before, after = base.copied(), base.grown()
    after.system = base.system.replace(_RULES[language][80], _RULES[language][80][::-1])
    yield _pair("other words", dialect, before, after, "text_edit", system)
    lines = _RULES[language]
    before, after = base.copied(), base.grown()
    shuffled = list(lines)
    random.Random(7).shuffle(shuffled)
    before.system, after.system = "\n".join(lines), "\n".join(shuffled)
    yield _pair("lines in another order", dialect, before, after, "block_order", system)
    before, after = base.copied(), base.grown()
    before.system += '\n{"limits": {"daily": 5, "weekly": 20}, "currency": "EUR"}'
    after.system += '\n{"currency": "EUR", "limits": {"weekly": 20, "daily": 5}}'
    yield _pair("JSON keys in text", dialect, before, after, "key_order", system)
    before, after = base.copied(), base.grown()
    before.system += '\n{"limits": {"daily": 5}}'
    after.system += '\n{"limits":{"daily":5}}'
    yield _pair("JSON spacing in text", dialect, before, after, "whitespace", system)


def _tool_pairs(dialect: str, language: str) -> Iterator[Pair]:
    base = conversation(language)
    tool, inner = TOOLS[dialect], SCHEMAS[dialect]

    def changed(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Conversation:
        after = base.grown()
        after.tools = change(after.tools)
        return after

    extra = {**base.tools[0], "name": "zz_escalate"}
    variants = {
        "tools reversed": (lambda t: t[::-1], "tool_order", tool.format(0)),
        "two tools swapped": (lambda t: [t[0], t[2], t[1], t[3]], "tool_order", tool.format(1)),
        "tool added at the end": (lambda t: [*t, extra], "tool_set", tool.format(4)),
        "tool added in front": (lambda t: [extra, *t], "tool_set", tool.format(0)),
        "tool removed from the middle": (lambda t: [t[0], *t[2:]], "tool_set", tool.format(1)),
        "last tool removed": (lambda t: t[:-1], "tool_set", tool.format(3)),
        "tool renamed": (lambda t: [t[0], {**t[1], "name": "find_person"}, *t[2:]], "tool_set", tool.format(1)),
        "keys reversed": (
            lambda t: [t[0], {**t[1], "schema": dict(reversed(t[1]["schema"].items()))}, *t[2:]],
            "key_order",
            inner.format(1),
        ),
        "number in a schema": (
            lambda t: [
                {
                    **t[0],
                    "schema": {
                        **t[0]["schema"],
                        "properties": {**t[0]["schema"]["properties"], "count": {"type": "integer", "minimum": 0.0}},
                    },
                },
                *t[1:],
            ],
            "number_format",
            tool.format(0),
        ),
        "description reworded": (
            lambda t: [{**t[0], "description": "Other words altogether."}, *t[1:]],
            "text_edit",
            tool.format(0),
        ),
        "space in a description": (
            lambda t: [{**t[0], "description": t[0]["description"] + "\n"}, *t[1:]],
            "whitespace",
            tool.format(0),
        ),
    }
    for name, (change, cause, path) in variants.items():
        yield _pair(name, dialect, base, changed(change), cause, path)
    before = base.copied()
    before.tools[2]["description"] += " Updated 2026-03-04 09:15."
    after = before.grown()
    after.tools[2]["description"] = base.tools[2]["description"] + " Updated 2026-03-04 09:21."
    yield _pair("clock in a description", dialect, before, after, "clock", tool.format(2))


def _history_pairs(dialect: str, language: str) -> Iterator[Pair]:
    base = conversation(language).grown(4)
    for dropped in (1, 2, 4):
        after = base.grown()
        del after.turns[:dropped]
        if dialect in ("anthropic", "bedrock") and dropped % 2:
            continue  # roles have to alternate
        if dropped % 2:
            continue
        yield _pair(f"first {dropped} messages left out", dialect, base, after, "truncation", message(dialect, 0))
    after = base.grown()
    del after.turns[2:4]
    yield _pair("messages left out after the first two", dialect, base, after, "truncation", message(dialect, 2))
    summary = {
        "en": "Summary of the conversation so far: the member waits for a parcel.",
        "zh": "以下是之前对话的摘要:会员在等一个包裹。",
    }
    after = base.grown()
    after.turns[:3] = [summary[language]]
    yield _pair("messages summarised", dialect, base, after, "summary", message(dialect, 0))
    after = base.grown()
    after.turns = [summary[language], *after.turns[-2:]]
    yield _pair("all summarised", dialect, base, after, "summary", message(dialect, 0))
    after = base.grown()
    after.turns[2] = (
        "Completely different words were here before." if language == "en" else "这里原来说的完全是另外一件事情。"
    )
    yield _pair("message edited", dialect, base, after, "text_edit", turn(dialect, 2))
    after = base.grown()
    after.turns[1] = after.turns[1].replace(" ", "  ").replace(",", ", ")
    yield _pair("space in history", dialect, base, after, "whitespace", turn(dialect, 1))
    before, after = base.copied(), base.grown()
    before.turns[2] = "[2026-03-04 09:15:22] " + before.turns[2]
    after.turns[2] = "[2026-03-04 09:17:05] " + after.turns[2]
    yield _pair("clock in history", dialect, before, after, "clock", turn(dialect, 2))
    reminder = {
        "en": "\nRemember to answer in two short sentences and to stay polite.",
        "zh": "\n请记住用两句话回答,并且始终保持礼貌,不要离题。",
    }
    before, after = base.copied(), base.grown()
    before.turns[-1] += reminder[language]
    after.turns[-1] += reminder[language]
    yield _pair("reminder at the end", dialect, before, after, "moved_block", turn(dialect, len(base.turns) - 1))
    other = base.copied()
    other.turns = [
        "Something else entirely: can I change my address?" if language == "en" else "另外一件事:我可以修改地址吗?"
    ]
    first = base.copied()
    first.turns = base.turns[:1]
    first.marked = other.marked = True
    yield _pair("another question", dialect, first, other, "none", None)


def _setting_pairs(dialect: str, language: str) -> Iterator[Pair]:
    base = conversation(language)
    other = {
        "anthropic": "claude-haiku-4-5",
        "gemini": "gemini-2.5-pro",
        "bedrock": "anthropic.claude-opus-4-1-20250805-v1:0",
    }
    after = base.grown() if dialect != "completion" else base.copied()
    after.model = other.get(dialect, "gpt-5.2-mini")
    yield _pair("another model", dialect, base, after, "model", "modelId" if dialect == "bedrock" else "model")
    fields: dict[str, list[tuple[str, Any, Any]]] = {
        "anthropic": [
            ("tool_choice", None, {"type": "any"}),
            ("tool_choice", {"type": "auto"}, {"type": "tool", "name": "find_member"}),
            ("thinking", None, {"type": "enabled", "budget_tokens": 2048}),
            ("thinking", {"type": "enabled", "budget_tokens": 2048}, {"type": "enabled", "budget_tokens": 4096}),
        ],
        "openai": [
            ("tool_choice", "auto", "required"),
            ("reasoning_effort", "low", "high"),
            ("response_format", None, {"type": "json_object"}),
            ("web_search_options", None, {}) if False else ("web_search_options", None, {"search_context_size": "low"}),
        ],
        "responses": [("reasoning", {"effort": "low"}, {"effort": "high"}), ("tool_choice", None, "required")],
    }
    for name, first, second in fields.get(dialect, []):
        before, later = written(base, dialect), written(base.grown(), dialect)
        if first is not None:
            before[name] = first
        if second is not None:
            later[name] = second
        path = "reasoning.effort" if name == "reasoning" else name
        yield Pair(f"{name} {first} {second}", dialect, language, before, later, "parameter", path)
    for name, cause in (("prompt_cache_key", "routed_away"), ("cache_salt", "salt")):
        if dialect in ("openai", "responses", "completion"):
            before, later = written(base, dialect), written(base.grown() if dialect != "completion" else base, dialect)
            before[name], later[name] = "one", "two"
            yield Pair(f"{name}", dialect, language, before, later, cause, name)
