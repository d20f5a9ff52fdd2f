"""Where two requests part only because of the chat template that renders them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from prefold.prompts.paths import Path
from prefold.prompts.prompt import Prompt
from prefold.prompts.sequences import common_length
from prefold.prompts.templates.chat_template import ChatTemplate
from prefold.prompts.templates.scene import EXCERPT, Scene, excerpt, rewrite_of

_LONGEST_GAP = 10 * 365 * 24 * 3600  # seconds; a longer one changes no more of a date


@dataclass(frozen=True, slots=True)
class TemplateBreak:
    """Where two rendered requests part although their bodies do not: the template is to blame.

    Attributes:
        cause: `template_default`, `bos`, `clock` or `text_edit`.
        path: the part of the later request concerned; None where it is the template's own text.
        char: first character in which the rendered texts differ.
        before: what the earlier one has there, some characters of it.
        after: what the later one has there.
        explanation: one sentence.
        kept: the earlier rendering, as far as it is known: what could have matched.
        text: the later rendering.
    """

    cause: str
    path: Path | None
    char: int
    before: str
    after: str
    explanation: str
    kept: str
    text: str


def template_break(
    before: Prompt, after: Prompt, template: ChatTemplate, *, gap_seconds: float = 0.0
) -> TemplateBreak | None:
    """Where the template makes two requests part, although their bodies are the same up to there.

    A default system message is the template's doing too, where the one request has it and the other its own.

    Args:
        before: the earlier request.
        after: the later one.
        template: of the model that both are for.
        gap_seconds: the time between them, for templates that write the date.

    Returns:
        None where the rendered texts part no earlier than the bodies do.

    Raises:
        InvalidRequest: if one is no conversation, or the template refuses it.
    """
    now = template.clock()
    then = now - timedelta(seconds=min(_LONGEST_GAP, gap_seconds))
    old, new = Scene.of(before, template, then), Scene.of(after, template, now)
    if old.arguments != new.arguments:
        return None
    if then != now and (found := _break_at_clock(old, new)):
        return found
    if old.conversation.tools != new.conversation.tools:
        return None  # the bodies part before the first message
    shared = common_length(old.conversation.messages, new.conversation.messages)
    if shared == 0:
        return _break_at_opening(old, new)
    if shared < len(old.conversation.messages):
        return _break_before(new.end_of_message(shared - 1), old.text, new)
    kept = old.text_to_extend(new)
    return _break_before(len(kept), kept, new) or _break_by_rewrite(new, shared)


def _break_at_clock(old: Scene, new: Scene) -> TemplateBreak | None:
    char = common_length(old.text, new.text)
    span = new.clock_span
    if span is None or not span[0] <= char < span[1]:
        return None
    explanation = f"The template writes the time, {excerpt(new.text, *span)}."
    return _break("clock", None, char, old.text, new, explanation)


def _break_before(limit: int, kept: str, new: Scene) -> TemplateBreak | None:
    """The break, if the later text parts from what was kept before a limit."""
    char = common_length(kept, new.text)
    if char >= limit:
        return None
    path = new.path_at(char)
    was, now = excerpt(kept, char, len(kept)), excerpt(new.text, char, len(new.text))
    return _break("text_edit", path, char, kept, new, f"The template rewrites {path}: {was} is now {now}.")


def _break_by_rewrite(new: Scene, index: int) -> TemplateBreak | None:
    messages = new.conversation.messages
    if index >= len(messages) - 1 or messages[index].get("role") != "assistant":
        return None
    rewrite = rewrite_of(new, index)
    if rewrite is None:
        return None
    kept = new.text[: rewrite.start] + rewrite.before
    return _break("text_edit", rewrite.path, rewrite.start, kept, new, rewrite.explanation)


def _break_at_opening(old: Scene, new: Scene) -> TemplateBreak | None:
    """The break in the template's own opening, where the first messages differ already."""
    char = common_length(old.text, new.text)
    bos = new.template.bos
    if bos and old.text.startswith(bos * 2) != new.text.startswith(bos * 2):
        return _break("bos", new.path_at(char), char, old.text, new, f"One of the two begins with {bos} twice.")
    spans = old.default_span, new.default_span
    span = spans[0] or spans[1]
    if span is None or all(spans) or not span[0] <= char <= span[1]:
        return None
    which = "earlier" if spans[0] else "later"
    explanation = f"The template puts a system message of its own into the {which} request, which has none."
    path = new.conversation.paths[0] if new.has_system else None
    return _break("template_default", path, char, old.text, new, explanation)


def _break(cause: str, path: Path | None, char: int, kept: str, new: Scene, explanation: str) -> TemplateBreak:
    before, after = kept[char : char + EXCERPT], new.text[char : char + EXCERPT]
    return TemplateBreak(cause, path, char, before, after, explanation, kept, new.text)
