"""What `prefold.watch` changes in requests before they are sent, when it is asked to.

An application sends the same tools and rules again and again, so the work on them is done once.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from prefold.prompts.breakpoints.plan import plan_breakpoints, rules_to_plan
from prefold.prompts.canonical.canonicalize import canonicalize
from prefold.prompts.dialects import PROMPT_FIELDS
from prefold.prompts.prompt import Dialect, Prompt
from prefold.prompts.tokens import RememberingCounter, counter_for

_MAX_FRONTS = 64  # tools and rules kept in canonical form
_CONVERSATION_FIELDS = frozenset({"messages", "input", "contents", "prompt"})
_dumped = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Editor:
    """Canonical forms and planned breakpoints, prompt after prompt.

    Args:
        canonicalize: give prompts their canonical form, by the default steps.
        breakpoints: place the markers that are planned.
        conversation: whether each request is repeated by the next; None to tell from the request.
    """

    def __init__(self, *, canonicalize: bool, breakpoints: bool, conversation: bool | None) -> None:
        self._canonicalizes = canonicalize
        self._places = breakpoints
        self._conversation = conversation
        self._canonical_front = functools.lru_cache(_MAX_FRONTS)(_canonical_front)
        self._counter_for = functools.lru_cache(_MAX_FRONTS)(lambda model: RememberingCounter(counter_for(model)))

    def __call__(self, prompt: Prompt) -> Prompt:
        """The prompt to send; the same one if there is nothing to change.

        Raises:
            InvalidRequest: if a part of the body has not the form of its dialect.
        """
        if self._canonicalizes:
            prompt = self._canonical(prompt)
        if self._places and (rules := rules_to_plan(prompt.model, None)) is not None:
            counter = self._counter_for(prompt.model)
            plan = plan_breakpoints(prompt, rules, counter=counter, is_conversation=self._conversation)
            prompt = plan.apply(prompt)
        return prompt

    def _canonical(self, prompt: Prompt) -> Prompt:
        """No default step moves anything between fields, so that each can be canonicalised by itself."""
        body: dict[str, Any] = prompt.value
        fields = PROMPT_FIELDS[prompt.dialect] - _CONVERSATION_FIELDS
        front = {name: value for name, value in body.items() if name in fields}
        rest = {name: value for name, value in body.items() if name not in fields}
        new_front = self._canonical_front(_dumped(front), prompt.dialect) if front else None
        new_rest = canonicalize(Prompt.of(rest, prompt.dialect)).prompt.value
        if new_front is None and new_rest is rest:
            return prompt
        new = {**(new_front or front), **new_rest}
        return Prompt.of({name: new[name] for name in body}, prompt.dialect)


def _canonical_front(text: str, dialect: Dialect) -> dict[str, Any] | None:
    """Tools and system in canonical form; None if they are already."""
    front = json.loads(text)
    new: dict[str, Any] = canonicalize(Prompt.of(front, dialect)).prompt.value
    return None if new is front else new
