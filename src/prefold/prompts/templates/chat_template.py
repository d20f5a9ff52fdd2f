"""Chat templates: a conversation as the text a model was trained to read.

Rendering equals transformers' `apply_chat_template(..., tokenize=False)` byte for byte, with the clock passed in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from prefold.errors import InvalidRequest, ModelError

if TYPE_CHECKING:
    from jinja2.parser import Parser

Clock = Callable[[], datetime]

# Names under which clients send a message's reasoning; templates read the first, those of gpt-oss the second.
_REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
# What a template that is at odds with the messages raises, apart from its own errors.
_RENDER_ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


class ChatTemplate:
    """A model's chat template, compiled once.

    Args:
        source: the template, or several by name: `tool_use` is taken where there are tools, `default` otherwise.
        clock: the time now, for templates that write the date; a template of this kind changes the prefix when it
            does, which is the commonest way to lose a cache.
        origin: what to call the template in error messages, such as its file.
        special_tokens: texts of special tokens by the name templates know them by, such as `bos_token`.

    Raises:
        ModelError: if the template does not compile.
    """

    def __init__(
        self,
        source: str | Mapping[str, str],
        *,
        clock: Clock,
        origin: str = "The chat template",
        **special_tokens: str,
    ) -> None:
        environment = _environment(clock)
        self.clock = clock
        self._sources = {"default": source} if isinstance(source, str) else source
        self._origin = origin
        self._special_tokens = special_tokens
        self._templates: dict[str, Template] = {}
        for name, text in self._sources.items():
            try:
                self._templates[name] = environment.from_string(text)
            except TemplateSyntaxError as error:
                raise ModelError(
                    f"{origin} is not valid: {_reason(error)} (line {error.lineno}).",
                    hint="Download the model again, or replace the template with the model's published one.",
                ) from error

    @classmethod
    def from_folder(cls, folder: Path, *, clock: Clock) -> ChatTemplate | None:
        """The template in a Hugging Face folder, or None for a model without one.

        Raises:
            ModelError: if a file is damaged or a template does not compile.
        """
        settings = read_object(folder / "tokenizer_config.json")
        sources = _template_files(folder) or _configured_templates(settings.get("chat_template"))
        if not sources:
            return None
        named = {**read_object(folder / "special_tokens_map.json"), **settings}
        special_tokens = {name: text for name, value in named.items() if (text := _token_text(name, value))}
        return cls(sources, clock=clock, origin=f"The chat template in {folder}", **special_tokens)

    @property
    def bos(self) -> str:
        """The token that begins a text; empty for a model without one."""
        return self._special_tokens.get("bos_token", "")

    def with_clock(self, clock: Clock) -> ChatTemplate:
        """The same template at another time."""
        return ChatTemplate(self._sources, clock=clock, origin=self._origin, **self._special_tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """A conversation as text.

        Args:
            messages: the conversation, in the OpenAI chat format.
            tools: tool definitions, in the same format.
            add_generation_prompt: whether to open the assistant's answer at the end.
            **kwargs: whatever else the template understands, such as `enable_thinking`.

        Raises:
            InvalidRequest: if there are no messages, or the template refuses them.
        """
        if not messages:
            raise InvalidRequest("The list of messages is empty.", hint="Send at least one message.", param="messages")
        name = "tool_use" if tools and "tool_use" in self._templates else "default"
        template = self._templates.get(name)
        if template is None:
            known = ", ".join(self._templates)
            raise InvalidRequest(f"The model has no default chat template, only {known}.", hint="Send a plain prompt.")
        variables = {**self._special_tokens, "documents": None, **kwargs}
        try:
            return template.render(
                variables,
                messages=[_normalised(message) for message in messages],
                tools=tools,
                add_generation_prompt=add_generation_prompt,
            )
        except (TemplateError, *_RENDER_ERRORS) as error:
            raise InvalidRequest(
                f"The model's chat template does not accept these messages: {_reason(error)}.",
                hint="Check roles, their order, and that each content is text.",
                param="messages",
            ) from error


def _reason(error: Exception) -> str:
    """What an error says, to stand within a sentence."""
    said = error.message if isinstance(error, TemplateError) else str(error)
    return (said or type(error).__name__).rstrip(".")


class _GenerationTag(Extension):
    """`{% generation %}`: marks the assistant's words for training, and means nothing when rendering."""

    tags = {"generation"}  # noqa: RUF012 - declared so by the base class

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


def _environment(clock: Clock) -> ImmutableSandboxedEnvironment:
    def strftime_now(pattern: str) -> str:
        return clock().strftime(pattern)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: Jinja's own filter escapes for HTML, which no model was trained on."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _normalised(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without its null fields, which templates would print, and with reasoning under its standard name."""
    present = {key: value for key, value in message.items() if value is not None}
    reasoning = next((present[field] for field in _REASONING_FIELDS if field in present), None)
    if reasoning is None:
        return present
    return {"thinking": reasoning, **present, "reasoning_content": reasoning}


def _template_files(folder: Path) -> dict[str, str]:
    files = {"default": folder / "chat_template.jinja"}
    files |= {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    return {name: _read_text(path) for name, path in files.items() if path.is_file()}


def _configured_templates(value: Any) -> dict[str, str]:
    if isinstance(value, str):
        return {"default": value}
    if isinstance(value, list):
        return {str(entry["name"]): str(entry["template"]) for entry in value if isinstance(entry, dict)}
    return {}


def _token_text(name: str, value: Any) -> str:
    """The text of a special token, which settings give plainly or with its matching options beside it."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if name.endswith("_token") and isinstance(text, str) else ""


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object of a model's folder; an empty one where there is no such file.

    Raises:
        ModelError: if the file is damaged.
    """
    if not path.is_file():
        return {}
    try:
        value = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}.", hint="Download the model again.") from error
    return value if isinstance(value, dict) else {}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}.", hint="Download the model again.") from error
