"""The history of a conversation: kept whole, cut to its end, or summarised from time to time."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from prefold.prompts.canonical.sorting import without_markers
from prefold.prompts.edits import message_field, text_block
from prefold.prompts.prompt import Dialect, Prompt, Section

_MOST_CONVERSATIONS = 1000
"""Whose messages are remembered; the one that was longest idle is forgotten first."""
_EXCERPT = 120
"""Characters of each part that a summary repeats..."""
_LONGEST_SUMMARY = 4000
"""...and of the summary in all, about 1,000 tokens."""
_RESULTS = ("tool_result", "toolResult", "functionResponse", "function_response")


@dataclass(frozen=True, slots=True)
class _Talk:
    """The messages of a request.

    Attributes:
        prompt: the request.
        opening: messages that are instructions, which come first.
        said: the others.
    """

    prompt: Prompt
    opening: list[Any]
    said: list[Any]

    def with_said(self, said: list[Any]) -> Prompt:
        """The request with other messages."""
        field = message_field(self.prompt.dialect)
        return self.prompt.with_value({**self.prompt.value, field: [*self.opening, *said]})


def truncated(prompt: Prompt, messages: int) -> Prompt:
    """A request with so many messages at most, the newest; instructions stay.

    Raises:
        InvalidRequest: as `Prompt.segments`.
    """
    talk = _talk(prompt)
    if talk is None or len(talk.said) <= messages:
        return prompt
    return talk.with_said(talk.said[-messages:])


def summarised(prompt: Prompt, turns: int) -> Prompt:
    """A request whose history was replaced by a summary each time that it had grown by so many turns of the user.

    The summary is one message with the beginning of each part that it stands for.

    Raises:
        InvalidRequest: as `Prompt.segments`.
    """
    talk = _talk(prompt)
    if talk is None:
        return prompt
    starts = [index for index, message in enumerate(talk.said) if _begins_turn(message)]
    over = (len(starts) - 1) // turns * turns
    if over <= 0:
        return prompt
    cut = starts[over]
    border = len(talk.opening) + cut
    excerpts = (
        " ".join(segment.text[:_EXCERPT].split())
        for segment in prompt.segments
        if segment.message is not None and len(talk.opening) <= int(segment.message.steps[1]) < border
    )
    text = f"Summary of {over} turns: {' '.join(excerpts)}"[:_LONGEST_SUMMARY]
    return talk.with_said([_message(text, prompt.dialect), *talk.said[cut:]])


class Kept:
    """Histories as they would be if no message had ever been dropped from them.

    A request that continues an earlier one of its conversation gets all of its messages back; what it has new behind
    the last of them stays. One that shows no message of the earlier request is left as it is.
    """

    def __init__(self) -> None:
        self._said: OrderedDict[str, list[Any]] = OrderedDict()

    def whole(self, prompt: Prompt, conversation: str) -> Prompt:
        """A request of a conversation with its whole history.

        Raises:
            InvalidRequest: as `Prompt.segments`.
        """
        talk = _talk(prompt)
        if talk is None:
            return prompt
        before = self._said.pop(conversation, [])
        said = _continued(before, talk.said)
        self._said[conversation] = said
        if len(self._said) > _MOST_CONVERSATIONS:
            self._said.popitem(last=False)
        return prompt if len(said) == len(talk.said) else talk.with_said(said)


def _continued(before: list[Any], said: list[Any]) -> list[Any]:
    """All messages, if `said` goes on from the last one in `before`; else `said`."""
    if not before:
        return said
    last = without_markers(before[-1])
    if len(said) >= len(before) and without_markers(said[len(before) - 1]) == last:
        return said
    for index in range(len(said) - 2, -1, -1):
        if without_markers(said[index]) == last:
            return [*before, *said[index + 1 :]]
    return said


def _talk(prompt: Prompt) -> _Talk | None:
    """The messages of a request; None for a body without a list of them."""
    first = next((segment.message for segment in prompt.segments if segment.section is Section.MESSAGES), None)
    messages = prompt.value.get(message_field(prompt.dialect)) if isinstance(prompt.value, dict) else None
    if first is None or not isinstance(messages, list):
        return None
    opening = int(first.steps[1])
    return _Talk(prompt, messages[:opening], messages[opening:])


def _begins_turn(message: Any) -> bool:
    """Whether the user speaks, rather than a tool."""
    if not isinstance(message, dict) or message.get("role") != "user":
        return False
    blocks = message.get("content", message.get("parts"))
    if not isinstance(blocks, list):
        return True
    return not any(
        isinstance(block, dict) and (block.get("type") in _RESULTS or not block.keys().isdisjoint(_RESULTS))
        for block in blocks
    )


def _message(text: str, dialect: Dialect) -> dict[str, Any]:
    blocks = [text_block(text, dialect)]
    return {"role": "user", "parts" if dialect is Dialect.GEMINI else "content": blocks}
