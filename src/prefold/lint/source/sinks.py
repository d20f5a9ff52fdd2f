"""Which places of a Python program make up the stable part of a prompt."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from prefold.lint.source.catalog import words
from prefold.lint.source.modules import Module, dotted_name, last_name
from prefold.lint.source.values import Value, merge_taints

SYSTEM_ROLES = frozenset({"system", "developer"})

_PROMPT = r"(?:system|sys|developer)_?(?:prompt|instruction)s?"
_PART = r"text|template|tmpl|str|string|base|prefix|header|preamble|body|content|parts|lines|blocks?|v\d+|zh|cn|en|full"
_MAKE = r"(?:get|build|make|create|render|compose)"
_VARIABLE = re.compile(rf"(?:^|_){_PROMPT}(?:_?(?:{_PART}))?$|系统提示词?$|系统指令$", re.IGNORECASE)
_MODEL_VARIABLE = re.compile(
    r"^(?:\w+_)?(?:system_(?:message|text|content|blocks?|parts|template)|instructions|prompt_prefix|static_prefix|"
    r"preamble)$|^SYSTEM$|系统消息$",
    re.IGNORECASE,
)
_FUNCTION = re.compile(
    rf"{_PROMPT}|^{_MAKE}_(?:system|preamble|prompt_prefix)(?:_(?:message|text|blocks?|content))?$|系统提示",
    re.IGNORECASE,
)
_MODEL_FUNCTION = re.compile(
    rf"^_?(?:{_MAKE}_)?(?:(?:\w+_)?(?:system_message|system_text|agent_instructions)|instructions?)$", re.IGNORECASE
)
_ABOUT_A_PROMPT = re.compile(
    r"hash|_id$|path|version|tokens?$|length|size|count|_at$|_file$|fingerprint|digest|key$"
    r"|^(?:log|test|is|has|check|save|load|count|print|diff)_",
    re.IGNORECASE,
)
_SETTER = re.compile(
    rf"^(?:set|add|with|update|append|insert)_(?:{_PROMPT}|system_message|system|instructions)$", re.IGNORECASE
)

_SYSTEM_KEYWORDS = words(
    "system_prompt system_instruction system_instructions system_message systemInstruction sys_prompt"
)
_SDK_KEYWORDS = words("system instructions tools preamble cached_content functions tool_config toolConfig")
PROMPT_KEYWORDS = _SYSTEM_KEYWORDS | _SDK_KEYWORDS
"""Arguments of calls that are the stable part of a prompt."""
_SDK_METHODS = words(
    """create acreate stream parse completion acompletion converse converse_stream generate_content chat chat_stream
    generate_content_async generate_content_stream count_tokens generate complete acomplete run run_sync query invoke
    ainvoke bind_tools generate_text create_and_poll create_and_run create_react_agent create_agent"""
)
_AGENT_MAKER = re.compile(r"Agent$|^create_\w*agent$")
_AGENT_KEYWORDS = words(
    "prompt instruction global_instruction goal backstory role state_modifier messages_modifier system_template"
)
"""Arguments of agents, and of functions that make them, that become parts of the system prompt."""
_SDK_CLASSES = re.compile(r"(?:Agent|Assistant|GenerativeModel|ChatModel|Config|Options|LLM|Predictor|Chat)$")
_MODEL_KEYWORDS = words("model messages modelId max_tokens contents message model_id")
"""Arguments that tell a model's call from others, where the file imports no library for models."""
_FIRST_KEYWORDS = words("prompt input contents")
_FIRST_METHODS = words(
    """create generate_content generate_content_async generate_content_stream generate completion acompletion complete
    acomplete invoke ainvoke predict stream"""
)
_POSITIONAL_METHODS = words(
    "invoke ainvoke generate generate_content generate_content_async complete acomplete predict"
)
_MESSAGE_CLASSES = words(
    """SystemMessage SystemPromptPart SystemChatMessage DeveloperMessage SystemMessagePromptTemplate
    ChatCompletionSystemMessageParam ChatCompletionDeveloperMessageParam"""
)
_MESSAGE_METHODS = words("from_system system_message")
_CONTENT_KEYS = ("content", "text", "parts", "prompt", "template", "blocks")
_BODY_KEYS = words("messages contents input anthropic_version")
_BODY_SYSTEM_KEYS = ("system", "instructions", "system_instruction", "systemInstruction", "tools")
_MARKERS = words("cache_control cachePoint prompt_cache_breakpoint")
_MENTIONS = re.compile(
    "|".join(
        (
            *sorted({"system", "instruction", "prompt", "preamble", "系统", "提示", "bind_tools"} | SYSTEM_ROLES),
            rf"\b(?:{'|'.join(sorted(_SDK_KEYWORDS | _FIRST_KEYWORDS | _AGENT_KEYWORDS))})(?:\s*=|[\"'])",
            rf"\.(?:{'|'.join(sorted(_POSITIONAL_METHODS))})\b",
            r"[\"']user[\"']",
        )
    ),
    re.IGNORECASE,
)
"""In every file in which something is a sink: the names and words by which the functions here know them."""


class Certainty(IntEnum):
    """How directly a place is part of a prompt; the lowest of several is reported."""

    CALL = 0
    MESSAGE = 1
    NAME = 2


@dataclass(frozen=True, slots=True)
class Sink:
    """A place that is part of a prompt's stable prefix.

    Attributes:
        words: its name, such as "system= of client.messages.create".
        module: where it stands.
        line: counted from 1.
        certainty: how directly it is part of a prompt.
        is_first_message: whether only what stands before long fixed text matters there: a user message at the start of
            the prompt.
    """

    words: str
    module: Module
    line: int
    certainty: Certainty
    is_first_message: bool = False


def may_have_prompts(module: Module) -> bool:
    """Whether there can be a prompt in a file; false lets it be left unread."""
    return _MENTIONS.search(module.text) is not None


def stable_part(value: Value) -> Value:
    """What of a system or tools argument is to be cached: of a list with breakpoints, the items up to the last one."""
    if value.entries is None:
        return value
    items = [item for key, item in value.entries.items() if isinstance(key, int)]
    marked = [place for place, item in enumerate(items) if item.entries is not None and _MARKERS & item.entries.keys()]
    if not marked:
        return value
    return Value(merge_taints(items[: marked[-1] + 1]))


def call_sinks(
    node: ast.Call, module: Module, arguments: list[Value], keywords: Mapping[str, Value]
) -> Iterator[tuple[Value, Sink]]:
    """Arguments of a call that go into a prompt, each with the place."""
    callee = last_name(node.func)
    whole = dotted_name(node.func) or callee
    is_sdk = (callee in _SDK_METHODS or _SDK_CLASSES.search(callee) is not None) and (
        module.imports_models or not _MODEL_KEYWORDS.isdisjoint(keywords)
    )

    is_agent = module.imports_models and _AGENT_MAKER.search(callee) is not None

    def sink(words: str, certainty: Certainty = Certainty.CALL, *, is_first: bool = False) -> Sink:
        return Sink(words, module, node.lineno, certainty, is_first)

    for name, value in keywords.items():
        if name in _SYSTEM_KEYWORDS or (is_sdk and name in _SDK_KEYWORDS) or (is_agent and name in _AGENT_KEYWORDS):
            yield stable_part(value), sink(f"{name}= of {whole}")
        elif is_sdk and name in _FIRST_KEYWORDS and callee in _FIRST_METHODS:
            yield value, sink(f"{name}= of {whole}", is_first=True)
    if callee in _POSITIONAL_METHODS and arguments:
        yield arguments[0], sink(f"the prompt of {whole}", is_first=True)
    if _SETTER.match(callee) or callee == "bind_tools":
        for value in arguments:
            yield stable_part(value), sink(f"{whole}")
    for value in _message_content(node, arguments, keywords):
        yield value, sink("the system message", Certainty.MESSAGE)


def _message_content(node: ast.Call, arguments: list[Value], keywords: Mapping[str, Value]) -> Iterator[Value]:
    """Content of a system message that a call makes."""
    callee = last_name(node.func)
    owner = last_name(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    if callee in _MESSAGE_CLASSES or owner in _MESSAGE_CLASSES or callee in _MESSAGE_METHODS:
        yield from arguments[:1]
    elif call_role(node) in SYSTEM_ROLES:
        yield from arguments[1:2]
    else:
        return
    for key in _CONTENT_KEYS:
        if key in keywords:
            yield stable_part(keywords[key])


def call_role(node: ast.Call) -> str:
    """The role of the message that a call makes, such as `Message(role="system", ...)`; empty where it says none."""
    for keyword in node.keywords:
        if keyword.arg == "role":
            if isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
            return last_name(keyword.value).lower()
    return {"SystemMessage": "system", "HumanMessage": "user", "AIMessage": "assistant"}.get(last_name(node.func), "")


def role_of(node: ast.expr) -> str:
    """The role of a message display, empty where it is not one or does not say."""
    if isinstance(node, ast.Call):
        return call_role(node)
    if isinstance(node, ast.Tuple) and len(node.elts) == 2 and isinstance(node.elts[0], ast.Constant):
        role = str(node.elts[0].value)
        return {"human": "user", "ai": "assistant"}.get(role, role)
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "role" and isinstance(value, ast.Constant):
                return str(value.value)
    return ""


def dict_sinks(node: ast.Dict, module: Module, value: Value, *, is_stable: bool) -> Iterator[tuple[Value, Sink]]:
    """Entries of a dict display that go into a prompt: a system message, or the body of a request.

    Args:
        node: the display.
        module: where it stands.
        value: what is known of it.
        is_stable: whether it stands where a system message is part of the prefix.
    """
    entries = value.entries or {}
    if is_stable and role_of(node) in SYSTEM_ROLES:
        for key in _CONTENT_KEYS:
            if key in entries:
                yield stable_part(entries[key]), Sink("the system message", module, node.lineno, Certainty.MESSAGE)
    if _BODY_KEYS & entries.keys():
        for key in _BODY_SYSTEM_KEYS:
            if key in entries:
                words = f'"{key}" of the request body'
                yield stable_part(entries[key]), Sink(words, module, node.lineno, Certainty.MESSAGE)


def key_sink(
    key: object, container: Value, module: Module, line: int, *, is_system_message: bool = False
) -> Sink | None:
    """The place that `container[key] = ...` is, None if it is no part of a prompt.

    Args:
        key: if it is a constant.
        container: what is known of it.
        module: where the assignment stands.
        line: of it, counted from 1.
        is_system_message: whether the program has found the container to be a system message.
    """
    role = (container.entries or {}).get("role")
    if key in _CONTENT_KEYS and (is_system_message or (role is not None and role.text in SYSTEM_ROLES)):
        return Sink("the system message", module, line, Certainty.MESSAGE)
    is_body = container.entries is not None and bool(_BODY_KEYS & container.entries.keys())
    if key in _SYSTEM_KEYWORDS or (
        key in _BODY_SYSTEM_KEYS and (is_body or (key == "system" and module.imports_models))
    ):
        return Sink(f'"{key}" of the request body', module, line, Certainty.MESSAGE)
    return None


def is_prompt_variable(name: str, module: Module) -> bool:
    """Whether a variable by its name holds a system prompt."""
    return bool(_VARIABLE.search(name) or (module.imports_models and _MODEL_VARIABLE.search(name)))


def is_prompt_function(name: str, decorators: Iterable[str], module: Module) -> bool:
    """Whether a function by its name or decorator returns a system prompt."""
    if _ABOUT_A_PROMPT.search(name):
        return False
    if module.imports_models and ({"system_prompt", "instructions"} & set(decorators) or _MODEL_FUNCTION.search(name)):
        return True
    return _FUNCTION.search(name) is not None
