"""Cache markers on their way between the APIs.

Anthropic marks the end of a prefix with `cache_control` on a block, a tool or the body. OpenAI has
`prompt_cache_breakpoint` on content parts, from GPT-5.6 on. Many servers with OpenAI's API read `cache_control` there
too (Qwen, OpenRouter, other gateways), and engines ignore it, since they cache every prefix anyway.
"""

from __future__ import annotations

from enum import Enum, auto

from prefold.gateway.config import Kind
from prefold.gateway.translate.shapes import Json
from prefold.providers.rules import Control, rules_for
from prefold.server.fields import Fields

CACHE_CONTROL = "cache_control"
BREAKPOINT = "prompt_cache_breakpoint"

_LONG = "1h"  # of Anthropic's lifetimes, the one that is not the default of 5 minutes
_LONG_BREAKPOINT = "12h"  # the shortest of OpenAI's lifetimes that holds it: the other is 30 minutes


class Markers(Enum):
    """What an upstream with OpenAI's API makes of Anthropic's markers."""

    KEPT = auto()
    """They stay as they are, wherever they stand."""
    CONTENT_ONLY = auto()
    """They stay on content. Chat templates would print those on tools and tool calls into the prompt."""
    BREAKPOINTS = auto()
    """They become OpenAI's, which only content can carry."""
    NONE = auto()
    """They are left out: the API refuses unknown fields, and caches without being told."""

    @classmethod
    def of(cls, kind: Kind, model: str) -> Markers:
        """What they become for a model of an upstream."""
        match kind:
            case Kind.OPENAI:
                rules = rules_for(model, "openai")
                return cls.BREAKPOINTS if rules is not None and rules.control is Control.BREAKPOINT else cls.NONE
            case Kind.PREFOLD | Kind.VLLM | Kind.SGLANG | Kind.LLAMACPP:
                return cls.CONTENT_ONLY
            case _:
                return cls.KEPT

    def on_content(self, block: Fields) -> Json:
        """The fields that a content part gets for the marker of its block."""
        marker = block.part(CACHE_CONTROL)
        if marker is None or self is Markers.NONE:
            return {}
        if self is not Markers.BREAKPOINTS:
            return {CACHE_CONTROL: block.get(CACHE_CONTROL)}
        lifetime = {"ttl": _LONG_BREAKPOINT} if marker.get("ttl") == _LONG else {}
        return {BREAKPOINT: {"mode": "explicit", **lifetime}}

    def elsewhere(self, block: Fields) -> Json:
        """The fields that a tool, a tool call or the body gets for its marker."""
        has_marker = self is Markers.KEPT and block.part(CACHE_CONTROL) is not None
        return {CACHE_CONTROL: block.get(CACHE_CONTROL)} if has_marker else {}


def as_cache_control(part: Fields) -> Json:
    """The fields that a block gets for the marker, of either form, on a part, a tool or a tool call of OpenAI's."""
    if part.part(CACHE_CONTROL) is not None:
        return {CACHE_CONTROL: part.get(CACHE_CONTROL)}
    marker = part.part(BREAKPOINT)
    if marker is None:
        return {}
    # A lifetime that is asked for is at least half an hour; OpenAI's default is not asked for.
    lifetime = {"ttl": _LONG} if marker.get("ttl") is not None else {}
    return {CACHE_CONTROL: {"type": "ephemeral", **lifetime}}
