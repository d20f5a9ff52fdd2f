"""A conversation and a model's chat template, rendered in several ways to see what the template does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any

from prefold.errors import InvalidRequest, ModelError
from prefold.prompts.paths import Path
from prefold.prompts.prompt import Prompt
from prefold.prompts.sequences import common_length
from prefold.prompts.templates.chat_template import ChatTemplate, Clock, read_object
from prefold.prompts.templates.conversation import Conversation, Write, conversation_of
from prefold.prompts.templates.marked import locate
from prefold.prompts.view import Piece

EXCERPT = 60
"""Characters of a text that are shown of it."""

# Another time of which no part is the same: year, month, day, weekday, hour, minute, second.
_MUCH_LATER = timedelta(days=397, hours=13, minutes=31, seconds=37)


def template_in(folder: FilePath, *, clock: Clock) -> ChatTemplate:
    """The chat template of a Hugging Face folder; the folder need hold nothing else.

    Raises:
        ModelError: if there is none, or a file is damaged.
    """
    template = ChatTemplate.from_folder(folder, clock=clock)
    if template is None:
        raise ModelError(
            f"{folder} has no chat template.",
            hint="Give a folder with chat_template.jinja, or with a tokenizer_config.json that holds one.",
        )
    return template


def tokenizer_adds_bos(folder: FilePath, bos: str) -> bool:
    """Whether the tokenizer of a folder puts BOS before a text, unless it is told not to.

    Its post-processor says so, or an older setting; False where the folder has no tokenizer.

    Raises:
        ModelError: if a file is damaged.
    """
    if not bos:
        return False
    processor = read_object(folder / "tokenizer.json").get("post_processor")
    match processor:
        case {"processors": [*steps]}:
            pass
        case _:
            steps = [processor]
    for step in steps:
        match step:
            case {"single": [{"SpecialToken": {"id": first}}, *_]} if first == bos:
                return True
    return read_object(folder / "tokenizer_config.json").get("add_bos_token") is True


@dataclass(frozen=True)
class Scene:
    """A rendered conversation, and the means to render it differently.

    Attributes:
        prompt: where it comes from.
        conversation: what the template is given.
        template: at a clock that stands still.
        moment: the time that the template writes.
        arguments: what else the request gives the template, by `chat_template_kwargs`.
        text: what the template makes of it.
    """

    prompt: Prompt
    conversation: Conversation
    template: ChatTemplate
    moment: datetime
    arguments: Mapping[str, Any]
    text: str

    @classmethod
    def of(cls, prompt: Prompt, template: ChatTemplate, moment: datetime) -> Scene:
        """Render a prompt at a time.

        Raises:
            InvalidRequest: if the prompt is no conversation, or the template refuses it.
        """
        still = template.with_clock(lambda: moment)
        conversation = conversation_of(prompt)
        arguments = _template_arguments(prompt)
        return cls(prompt, conversation, still, moment, arguments, _render(still, conversation, arguments))

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """Where each part of the request is in the text."""
        return locate(self.text, self._render_with)

    def _render_with(self, write: Write) -> str:
        return _render(self.template, conversation_of(self.prompt, write), self.arguments)

    def part(self, until: int, *, answering: bool) -> str | None:
        """The first messages alone; None where the template refuses them."""
        if until == 0:
            return None
        some = replace(self.conversation, messages=self.conversation.messages[:until])
        try:
            return _render(self.template, some, self.arguments, answering=answering)
        except InvalidRequest:
            return None

    def with_system(self, content: str) -> str | None:
        """The same after a system message; None where the template knows no such messages."""
        messages = [{"role": "system", "content": content}, *self.conversation.messages]
        try:
            return _render(self.template, replace(self.conversation, messages=messages), self.arguments)
        except InvalidRequest:
            return None

    @cached_property
    def has_system(self) -> bool:
        """Whether the request holds a system message."""
        return any(message.get("role") == "system" for message in self.conversation.messages)

    @cached_property
    def default_span(self) -> tuple[int, int] | None:
        """Where the template wrote a system message that the request does not hold.

        It is what is not there any more when the request has a system message of its own.
        """
        if self.has_system or (other := self.with_system("\uf8ff")) is None:
            return None
        return _difference(self.text, other)

    @cached_property
    def clock_span(self) -> tuple[int, int] | None:
        """Where the template wrote the time, in whole numbers and words."""
        later = self.moment + _MUCH_LATER
        other = _render(self.template.with_clock(lambda: later), self.conversation, self.arguments)
        if (span := _difference(self.text, other)) is None:
            return None
        start, end = span
        while start and _is_in_word(self.text[start - 1]):
            start -= 1
        while end < len(self.text) and _is_in_word(self.text[end]):
            end += 1
        return start, end

    def text_to_extend(self, new: Scene) -> str:
        """What a later request that goes on from this one must begin with.

        An answer continues the opening of an answer at the end; another message takes its place.
        """
        messages, more = self.conversation.messages, new.conversation.messages
        if len(more) == len(messages) or more[len(messages)].get("role") == "assistant":
            return self.text
        return self.part(len(messages), answering=False) or self.text

    def end_of_message(self, index: int) -> int:
        """Where a message ends in the text, as far as it was written at all."""
        steps = self.conversation.paths[index].steps
        return max((piece.end for piece in self.pieces if piece.path.steps[: len(steps)] == steps), default=0)

    def path_at(self, char: int) -> Path | None:
        """The part of the request at a character; None in the template's own text at the end."""
        return next((piece.path for piece in self.pieces if char < piece.end), None)


def _render(
    template: ChatTemplate,
    conversation: Conversation,
    arguments: Mapping[str, Any],
    *,
    answering: bool | None = None,
) -> str:
    messages = conversation.messages
    if answering is None:  # a last message of the assistant is to be continued
        answering = not messages or messages[-1].get("role") != "assistant"
    return template.render(messages, conversation.tools, answering, **arguments)


def _template_arguments(prompt: Prompt) -> dict[str, Any]:
    given = prompt.parameters.get("chat_template_kwargs")
    own = ("messages", "tools", "add_generation_prompt")
    return {key: value for key, value in given.items() if key not in own} if isinstance(given, dict) else {}


def _is_in_word(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _difference(text: str, other: str) -> tuple[int, int] | None:
    """The part of a text that stands in another's place; None where the other only holds more."""
    start = common_length(text, other)
    most = min(len(text), len(other)) - start
    end = len(text) - min(common_length(text[::-1], other[::-1]), most)
    return (start, end) if text[start:end].strip() else None


@dataclass(frozen=True, slots=True)
class Rewrite:
    """An answer that is not in the history as it was generated.

    Attributes:
        path: the message's, or that of its part.
        start: the first character that is not what it was.
        end: the end of the piece it lies in.
        before: what was there.
        explanation: one sentence.
    """

    path: Path | None
    start: int
    end: int
    before: str
    explanation: str


def rewrite_of(scene: Scene, index: int) -> Rewrite | None:
    """What the template did to the history when the answer at an index got a successor.

    An engine holds the request that asked for the answer, and behind it the answer as it was generated. So the text
    must begin with that request, with the answer as it was the last message, and hold what was thought before it.
    """
    message = scene.conversation.messages[index]
    where = scene.conversation.paths[index]
    asked = scene.part(index, answering=True) or ""
    for kept in (asked, _answered(scene, index)):
        start = common_length(kept, scene.text)
        if start < len(kept):
            piece = next((piece for piece in scene.pieces if start < piece.end), None)
            path, end = (piece.path, piece.end) if piece else (where, len(scene.text))
            was, now = excerpt(kept, start, len(kept)), excerpt(scene.text, start, len(scene.text))
            explanation = f"The template rewrites {path}: {was} a turn ago is now {now}."
            return Rewrite(path, start, end, kept[start:], explanation)
    thought, start = _thought(message), len(asked)
    end = max(start, scene.end_of_message(index))
    if thought in scene.text[start:end]:
        return None
    explanation = f"The template leaves out what was thought in {where}: {excerpt(thought, 0, len(thought))}."
    return Rewrite(where, start, end, thought, explanation)


def _answered(scene: Scene, index: int) -> str:
    """The conversation up to an answer, without what a template writes behind a last message."""
    text = scene.part(index + 1, answering=False) or ""
    content = scene.conversation.messages[index].get("content")
    words = content.strip() if isinstance(content, str) else ""
    at = text.rfind(words) if words else -1
    return text if at < 0 else text[: at + len(words)]


def _thought(message: Mapping[str, Any]) -> str:
    """What was thought before an answer, sent back in a field of its own or in the text."""
    for name in ("reasoning_content", "thinking", "reasoning"):
        if isinstance(text := message.get(name), str) and text.strip():
            return text.strip()
    content = message.get("content")
    if not isinstance(content, str) or "</think>" not in content:
        return ""
    return content.rpartition("</think>")[0].rpartition("<think>")[2].strip()


def excerpt(text: str, start: int, end: int) -> str:
    """A part of a text as a JSON string, shortened."""
    shown = text[start : min(end, start + EXCERPT)]
    return json.dumps(shown + "..." * (end - start > EXCERPT), ensure_ascii=False)
