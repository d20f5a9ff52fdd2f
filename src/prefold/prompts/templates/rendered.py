"""A prompt as the text that a model's own chat template makes of it, and what the template does to prefixes.

Engines that run open models render a request with the model's template before they look for a cached prefix. The
template may add what the request does not hold, write the date, or rewrite what it wrote a turn ago: all that is named.
"""

from __future__ import annotations

from dataclasses import dataclass

from prefold.prompts.paths import Path
from prefold.prompts.prompt import Prompt
from prefold.prompts.templates.chat_template import ChatTemplate
from prefold.prompts.templates.scene import Scene, excerpt, rewrite_of
from prefold.prompts.view import Piece


@dataclass(frozen=True, slots=True)
class TemplateFinding:
    """Something that a template does at the cost of prefixes.

    Attributes:
        cause: `template_default`, `bos`, `clock` or `text_edit`.
        message: one sentence: what it does.
        help: one sentence: what to do.
        path: the part of the request concerned; None where it is the template's own text.
        start: first character of the place in the rendered text.
        end: the character after it.
    """

    cause: str
    message: str
    help: str
    path: Path | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered conversation.

    Attributes:
        text: exactly what the template makes of it.
        pieces: where each part of the request is in it; what stands between them is the template's own.
        findings: what the template does at the cost of prefixes, in the order of the text.
    """

    text: str
    pieces: tuple[Piece, ...]
    findings: tuple[TemplateFinding, ...]


def rendered(prompt: Prompt, template: ChatTemplate, *, adds_bos: bool = False) -> Rendered:
    """A prompt as a model's chat template writes it.

    A field `chat_template_kwargs` of the body, which vLLM and SGLang know, is given to the template.

    Args:
        prompt: a conversation, in any dialect.
        template: the model's.
        adds_bos: whether its tokenizer puts BOS before a text; see `tokenizer_adds_bos`.

    Raises:
        InvalidRequest: if the prompt is no conversation, or the template refuses it.
    """
    scene = Scene.of(prompt, template, template.clock())
    found = [
        _default_finding(scene),
        _bos_finding(scene, adds_bos=adds_bos),
        _clock_finding(scene),
        _history_finding(scene),
    ]
    findings = sorted((finding for finding in found if finding), key=lambda finding: finding.start)
    return Rendered(scene.text, scene.pieces, tuple(findings))


def _default_finding(scene: Scene) -> TemplateFinding | None:
    if (span := scene.default_span) is None:
        return None
    return TemplateFinding(
        "template_default",
        f"The template puts in a system message that the request does not hold: {excerpt(scene.text, *span)}.",
        "Send a system message of your own in every request.",
        None,
        *span,
    )


def _bos_finding(scene: Scene, *, adds_bos: bool) -> TemplateFinding | None:
    bos = scene.template.bos
    if not bos or not scene.text.startswith(bos):
        return None
    if scene.text.startswith(bos * 2):
        start, end = len(bos), 2 * len(bos)
        path = next((piece.path for piece in scene.pieces if piece.header_end < end), None)
        message = f"The text begins with {bos} twice: the template writes it, and the first message holds it too."
        return TemplateFinding("bos", message, f"Take {bos} out of the message.", path, start, end)
    if not adds_bos:
        return None
    return TemplateFinding(
        "bos",
        f"The template writes {bos}, and the tokenizer puts another before it unless told not to.",
        "Encode rendered text with add_special_tokens=False.",
        None,
        0,
        len(bos),
    )


def _clock_finding(scene: Scene) -> TemplateFinding | None:
    if (span := scene.clock_span) is None:
        return None
    return TemplateFinding(
        "clock",
        f"The template writes the time, {excerpt(scene.text, *span)}, and what follows is read again when it changes.",
        "Give the template a fixed date, if it takes one in chat_template_kwargs, or serve an edited template.",
        None,
        *span,
    )


def _history_finding(scene: Scene) -> TemplateFinding | None:
    messages = scene.conversation.messages
    answers = (index for index in range(len(messages) - 2, -1, -1) if messages[index].get("role") == "assistant")
    index = next(answers, None)
    rewrite = None if index is None else rewrite_of(scene, index)
    if rewrite is None:
        return None
    return TemplateFinding("text_edit", rewrite.explanation, _KEEP_HISTORY, rewrite.path, rewrite.start, rewrite.end)


_KEEP_HISTORY = (
    "Have the template keep earlier answers as they were, if it takes such a setting in chat_template_kwargs; "
    "otherwise the last answer is read again in every turn."
)
