"""Templates to render with: each does one thing that real ones do, in words of its own."""

from datetime import datetime
from pathlib import Path
from typing import Any

from prefold.prompts.prompt import Prompt
from prefold.prompts.templates.chat_template import ChatTemplate
from prefold.prompts.templates.scene import template_in

TEMPLATES = Path(__file__).parent / "folders"
NOON = datetime(2026, 11, 30, 12, 0, 0)  # noqa: DTZ001 - templates see a local time without a zone


def template(name: str) -> ChatTemplate:
    """A template of the folder `templates`, at noon."""
    return template_in(TEMPLATES / name, clock=lambda: NOON)


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def chat(*messages: dict[str, Any], **more: Any) -> Prompt:
    """An OpenAI chat request."""
    return Prompt.of({"model": "some-model", "messages": list(messages), **more}, "openai")
