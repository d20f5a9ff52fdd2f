"""Settings of a request that break a prefix although its text stays the same.

Which part of the prefix a setting takes with it is a matter of the provider: its rules say so where it is known. Where
it is not, the whole prefix is taken to be lost, which is what a change of the rendered prompt would do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from prefold.prompts.paths import Path
from prefold.prompts.prompt import Prompt, Section
from prefold.providers.rules import CacheRules


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting that differs between two requests.

    Attributes:
        cause: `model`, `parameter`, `routed_away` or `salt`.
        path: where it is in the body.
        section: the first part of the prefix that it takes with it.
        before: its value in the earlier request, None where it is absent.
        after: its value in the later one.
    """

    cause: str
    path: Path
    section: Section
    before: Any
    after: Any


# Settings that reach the rendered prompt, or decide which cache is asked, and what leaving them out means.
_DEFAULTS: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "model": (),
        "modelId": (),
        "tool_choice": ("auto", {"type": "auto"}),
        "thinking": ({"type": "disabled"},),
        "reasoning.effort": (),
        "reasoning_effort": (),
        "effort": (),
        "output_config.effort": (),
        "output_config.format": (),
        "output_format": (),
        "speed": ("standard",),
        "mcp_servers": ([],),
        "response_format": ({"type": "text"},),
        "text": ({"format": {"type": "text"}},),
        "verbosity": (),
        "web_search": (False,),
        "web_search_options": (),
        "enable_search": (False,),
        "enable_thinking": (),
        "chat_template_kwargs": (),
        "citations": ({"enabled": False},),
        "function_call": ("auto",),
        "toolConfig.toolChoice": ({"auto": {}},),
        "toolConfig.functionCallingConfig": ({"mode": "AUTO"},),
        "generationConfig.thinkingConfig": (),
        "generationConfig.responseSchema": (),
        "generationConfig.responseMimeType": ("text/plain",),
        "additionalModelRequestFields": (),
        "cachedContent": (),
        "prompt_cache_key": (),
        "cache_salt": (),
    }
)
_CAUSES = MappingProxyType(
    {"model": "model", "modelId": "model", "prompt_cache_key": "routed_away", "cache_salt": "salt"}
)
_NESTED_RULES = ("effort", "format", "verbosity")  # of `output_config.effort` and the like, in rules


def setting_change(before: Prompt, after: Prompt, rules: CacheRules | None) -> SettingChange | None:
    """The setting that takes the longest part of the prefix with it; None where none does."""
    names = dict.fromkeys((*_DEFAULTS, *(rules.invalidation if rules is not None else ())))
    changes = [change for name in names if (change := _change(name, before, after, rules))]
    return min(changes, key=lambda change: list(Section).index(change.section), default=None)


def _change(name: str, before: Prompt, after: Prompt, rules: CacheRules | None) -> SettingChange | None:
    path = Path(tuple(name.split(".")))
    first, second = path.find(before.value), path.find(after.value)
    cause = _CAUSES.get(name, "parameter")
    if meaning(name, first) == meaning(name, second):
        return None
    if cause != "parameter" and (first is None or second is None) and name != "cache_salt":
        return None  # a request without its model is an excerpt
    if name == "tool_choice" and _is_allow_list(first) and _is_allow_list(second):
        return None  # OpenAI's way to forbid tools without touching the prefix
    return SettingChange(cause, path, _section(name, rules), first, second)


def meaning(name: str, value: Any) -> str:
    """What a value of a setting says, as text; empty where that is what leaving it out says.

    Args:
        name: the setting's, dotted.
        value: its value; None where it is absent.
    """
    if value in (None, *_DEFAULTS.get(name, ())):
        return ""
    return json.dumps(value, sort_keys=True)


def _is_allow_list(choice: Any) -> bool:
    return meaning("tool_choice", choice) == "" or (isinstance(choice, dict) and choice.get("type") == "allowed_tools")


def _section(name: str, rules: CacheRules | None) -> Section:
    known = rules.invalidation if rules is not None else {}
    for key in (name, *(f"{name}.{inner}" for inner in _NESTED_RULES), name.rpartition(".")[2]):
        if key in known:
            return Section(known[key])
    return Section.TOOLS
