"""Why a request stops matching what came before: the causes, with what to do about each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of breaks, and all that `prefold explain` says about it.

    Attributes:
        name: as in `Divergence.cause`.
        summary: one sentence: what happened.
        fix: one sentence: what to do.
        before: an example that breaks.
        after: the same, mended.
    """

    name: str
    summary: str
    fix: str
    before: str
    after: str


NONE = "none"

_ALL = (
    Cause(
        NONE,
        "The request continues what was sent before, or shares with it all that it can.",
        "Nothing needs to be done.",
        "[system, question]",
        "[system, question, answer, next question]",
    ),
    Cause(
        "clock",
        "A date or time stands in a part that should stay the same.",
        "Move it to the end of the newest message, and leave those of earlier turns as they were sent.",
        'system: "Now: 2026-11-01T10:00:00Z\\nYou are a support agent. ..."',
        'system: "You are a support agent. ..."   newest message: "... Now: 2026-11-01T10:00:00Z"',
    ),
    Cause(
        "identifier",
        "An id, address or random value stands in a part that should stay the same.",
        "Take it out of the prompt: send it as request metadata, or at the end of the newest message.",
        'system: "Request 3f2b8f1e-...\\nYou are a support agent. ..."',
        'system: "You are a support agent. ..."   metadata: {"request_id": "3f2b8f1e-..."}',
    ),
    Cause(
        "tool_order",
        "The same tools come in another order.",
        "Sort the tools by name before they are sent.",
        "tools: [read_policy, search_orders]   then [search_orders, read_policy]",
        "tools: sorted(tools, key=lambda tool: tool['name'])",
    ),
    Cause(
        "tool_set",
        "A tool was added, removed or renamed; tools come first, so all that follows them is read again.",
        "Send the same tools in every request and forbid those that must not be called, for example by tool_choice.",
        "tools: [search]   then [search, escalate]",
        "tools: [escalate, search] from the first request on",
    ),
    Cause(
        "key_order",
        "The same JSON value was written with its keys in another order.",
        "Write it once and send the same text, or sort its keys; where order carries meaning, as in the properties of "
        "a schema, decide on one order.",
        '{"type": "object", "properties": ...}   then {"properties": ..., "type": "object"}',
        "json.dumps(value, sort_keys=True)",
    ),
    Cause(
        "block_order",
        "The same blocks come in another order, as retrieved documents do when they are sorted by score.",
        "Put them in an order that does not depend on the request, such as by id.",
        "documents: [7, 3, 9]   then [3, 9, 7]",
        "documents: [3, 7, 9]",
    ),
    Cause(
        "moved_block",
        "A block that was in the history is elsewhere now, as with a reminder that is kept at the end.",
        "Leave what was sent where it was, and only add behind it.",
        "[question, reminder]   then [question, answer, next question, reminder]",
        "[question, reminder]   then [question, reminder, answer, next question, reminder]",
    ),
    Cause(
        "whitespace",
        "The words are the same; only white space, escapes or characters that cannot be seen differ.",
        "Write the text in one place only; let one serialiser with fixed separators write all JSON.",
        '"rules\\n\\nexamples"   then "rules\\n\\n\\nexamples"',
        "one template, rendered once",
    ),
    Cause(
        "number_format",
        "The same number was written in another way.",
        "Keep numbers in one type and write them with one function.",
        '{"price": 10.0}   then {"price": 10}',
        '{"price": 10}   in both',
    ),
    Cause(
        "text_edit",
        "The words differ.",
        "Keep what was sent as it was, and put what is new behind it.",
        '"You are a helpful agent."   then "You are a careful agent."',
        "one text for all requests of a release",
    ),
    Cause(
        "truncation",
        "Earlier messages, or parts of them, were left out.",
        "Shorten the history seldom and by much, at the same place each time, instead of a little in every turn.",
        "[q1, a1, q2, a2, q3]   then [q2, a2, q3, a3, q4]",
        "[q1, a1, q2, a2, q3, a3, q4], and a cut to half when the window is full",
    ),
    Cause(
        "summary",
        "Earlier messages were replaced by a summary.",
        "Summarise seldom, when the window is nearly full, and keep the summary from then on.",
        "[q1, a1, q2, a2, q3]   then [summary, q3, a3, q4]",
        "[summary, q3, a3, q4]   then [summary, q3, a3, q4, a4, q5]",
    ),
    Cause(
        "model",
        "Another model was asked: caches are kept for each model.",
        "Stay with one model within a conversation; hand side tasks to the other model as requests of their own.",
        '"model": "claude-sonnet-4-5"   then "model": "claude-haiku-4-5"',
        "one model per conversation",
    ),
    Cause(
        "parameter",
        "A setting that changes the rendered prompt was changed.",
        "Keep it the same within a conversation.",
        '"tool_choice": {"type": "auto"}   then {"type": "any"}',
        '"tool_choice": {"type": "auto"}   in both',
    ),
    Cause(
        "template_default",
        "The chat template put a default system message into one of the two.",
        "Always send a system message of your own.",
        'messages: [user]   rendered as "system: You are a helpful assistant. user: ..."',
        "messages: [system, user]",
    ),
    Cause(
        "bos",
        "The token that begins a text is there twice in one of the two.",
        "Let either the chat template or the tokenizer add it, not both.",
        '"<s><s>[INST] ..."   then "<s>[INST] ..."',
        "tokenizer(text, add_special_tokens=False)   for a rendered template",
    ),
    Cause(
        "lookback",
        "More blocks were added in one turn than the provider looks back for an earlier breakpoint.",
        "Set an extra breakpoint before that many blocks have been added.",
        "breakpoint, 25 blocks, breakpoint",
        "breakpoint, 15 blocks, breakpoint, 10 blocks, breakpoint",
    ),
    Cause(
        "expired",
        "More time went by than the entry lives.",
        "Ask for the longer lifetime where pauses are long, or send a small request in between.",
        'a pause of 15 minutes with {"type": "ephemeral"}',
        '{"type": "ephemeral", "ttl": "1h"}',
    ),
    Cause(
        "too_short",
        "The common prefix is shorter than the least that the provider caches.",
        "Put more of what stays the same in front of what changes, or do without a cache here.",
        "a prefix of 600 tokens where 1,024 is the least",
        "rules, tools and examples in one prefix above the minimum",
    ),
    Cause(
        "no_breakpoint",
        "No cache marker stands at the end of a part that repeats.",
        "Set one at the end of the part that stays the same.",
        'system: [{"type": "text", "text": "..."}]',
        'system: [{"type": "text", "text": "...", "cache_control": {"type": "ephemeral"}}]',
    ),
    Cause(
        "evicted",
        "Everything matches, yet the provider or server no longer had the entry.",
        "Give the cache more memory, pin the prefix, or send requests with the same prefix closer together.",
        "a hit is expected, usage reports 0 cached tokens",
        "a pin, or a prompt_cache_key",
    ),
    Cause(
        "routed_away",
        "The request was sent to another machine than the one that holds the prefix.",
        "Send the same prompt_cache_key with all requests that share a prefix.",
        '"prompt_cache_key": "request-17"   then "request-18"',
        '"prompt_cache_key": "support-agent"   in both',
    ),
    Cause(
        "salt",
        "The two requests have different cache salts, so they must not share.",
        "Give requests of one tenant one salt; what all may share can lie before the salted part.",
        '"cache_salt": "session-1"   then "session-2"',
        '"cache_salt": "tenant-42"   in both',
    ),
)

CAUSES: Mapping[str, Cause] = MappingProxyType({cause.name: cause for cause in _ALL})
"""All causes, by name."""
