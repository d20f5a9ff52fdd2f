"""A prompt as data: ordered segments, each with the place it came from and how stable it is.

A `Prompt` holds the body of a request as it arrived, so that rendering gives the same bytes back, and reads it as the
sequence of segments that the model reads. Transforms make a new body and with it a new prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from prefold.errors import InvalidRequest
from prefold.prompts.json_text import JsonText
from prefold.prompts.paths import Path


class Stability(StrEnum):
    """How often a part changes, from the most stable to the least: the order in which a prompt keeps its prefix."""

    STATIC = "static"
    """Only when the application does."""
    DAILY = "daily"
    SESSION = "session"
    """From one conversation to the next."""
    REQUEST = "request"
    """Each time."""

    @property
    def rank(self) -> int:
        """0 for the most stable."""
        return list(Stability).index(self)


class Section(StrEnum):
    """Parts of a request, in the order in which the model reads them."""

    TOOLS = "tools"
    SYSTEM = "system"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Segment:
    """One span of a prompt.

    Attributes:
        path: where it comes from, such as `tools[3]` or `messages[2].content[0]`; `messages[2]` where a message's
            content is a text.
        section: the part of the request that it belongs to.
        role: whose words it is, as the dialect spells it; `tool` for a tool definition.
        content: a text, or the JSON value of structured content such as a tool definition or an image.
        text: what it adds to the rendered view: the text itself, or compact JSON in its own order of keys, without
            cache markers.
        begins_message: whether a message begins with it.
        stability: how often it changes.
        marker: the cache marker on it (`cache_control`, `cachePoint`, `prompt_cache_breakpoint`), or None.
        text_path: where its text lies, to change it; None for structured content.
    """

    path: Path
    section: Section
    role: str
    content: Any
    text: str
    begins_message: bool = True
    stability: Stability = Stability.STATIC
    marker: Any = None
    text_path: Path | None = None

    @property
    def message(self) -> Path | None:
        """The message that it is a part of, such as `messages[2]`; None outside of messages and in plain text."""
        steps = self.path.steps
        return Path(steps[:2]) if len(steps) > 1 and steps[0] in _MESSAGE_LISTS and isinstance(steps[1], int) else None


_MESSAGE_LISTS = ("messages", "input", "contents")


class Dialect(StrEnum):
    """Forms of a request."""

    ANTHROPIC = "anthropic"
    """Anthropic Messages."""
    OPENAI = "openai"
    """OpenAI Chat Completions, and all who speak it."""
    RESPONSES = "responses"
    """OpenAI Responses."""
    GEMINI = "gemini"
    """Gemini `generateContent`."""
    BEDROCK = "bedrock"
    """Amazon Bedrock Converse."""
    COMPLETION = "completion"
    """A body with `prompt`, or nothing but the text of a prompt."""

    @classmethod
    def named(cls, name: str) -> Dialect:
        """The dialect of a name, which may be one of its other usual names.

        Raises:
            InvalidRequest: listing the known dialects.
        """
        plain = name.strip().lower().replace("-", "_")
        plain = _OTHER_NAMES.get(plain, plain)
        try:
            return cls(plain)
        except ValueError:
            known = ", ".join(cls)
            raise InvalidRequest(f"There is no dialect {name!r}.", hint=f"Known dialects: {known}.") from None


_OTHER_NAMES = {
    "anthropic_messages": "anthropic",
    "claude": "anthropic",
    "chat": "openai",
    "chat_completions": "openai",
    "openai_chat": "openai",
    "openai_chat_completions": "openai",
    "openai_responses": "responses",
    "google": "gemini",
    "gemini_generate_content": "gemini",
    "generatecontent": "gemini",
    "generate_content": "gemini",
    "bedrock_converse": "bedrock",
    "converse": "bedrock",
    "completions": "completion",
    "openai_completions": "completion",
    "plain": "completion",
    "text": "completion",
}


@dataclass(frozen=True)
class Prompt:
    """A request as ordered segments.

    Attributes:
        dialect: its form.
        document: the body; None for plain text.
        plain_text: the text of a prompt that came without a body.
    """

    dialect: Dialect
    document: JsonText | None
    plain_text: str = field(default="", repr=False)

    @classmethod
    def parse(cls, body: bytes | str, dialect: Dialect | str | None = None) -> Prompt:
        """Read a request.

        Args:
            body: JSON, or the plain text of a prompt.
            dialect: its form; None to recognise it by content. Text that does not begin like a JSON object is a plain
                prompt.

        Raises:
            InvalidRequest: if the body is empty, binary, not JSON (naming line and column), not an object, or of no
                known dialect.
        """
        source = body if isinstance(body, str) else _decoded(body)
        if isinstance(dialect, str):
            dialect = Dialect.named(dialect)
        start = source.lstrip("\ufeff \t\r\n")[:1]
        if not start:
            raise InvalidRequest("The body is empty.", hint="Give a JSON request body, or the text of a prompt.")
        if start != "{" and (dialect is Dialect.COMPLETION or (dialect is None and start != "[")):
            _refuse_binary(source)
            return cls(Dialect.COMPLETION, None, source)
        return cls._of_document(JsonText.parse(source), dialect)

    @classmethod
    def of(cls, value: Mapping[str, Any] | str, dialect: Dialect | str | None = None) -> Prompt:
        """The prompt of a body that has been read already, such as the keyword arguments of a client library.

        Raises:
            InvalidRequest: if the value cannot be written as JSON, or is of no known dialect.
        """
        if isinstance(dialect, str):
            dialect = Dialect.named(dialect)
        if isinstance(value, str):
            return cls(Dialect.COMPLETION, None, value)
        return cls._of_document(JsonText.of(value), dialect)

    @classmethod
    def _of_document(cls, document: JsonText, dialect: Dialect | None) -> Prompt:
        from prefold.prompts.dialects import recognise  # noqa: PLC0415 - readers know segments, this knows readers

        if not isinstance(document.value, dict):
            raise InvalidRequest("The body is not a JSON object.", hint="A request body looks like {...}.")
        return cls(dialect or recognise(document.value), document)

    @property
    def value(self) -> Any:
        """The body as a JSON value, or the plain text; not to be changed in place."""
        return self.plain_text if self.document is None else self.document.value

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Its parts, in the order in which the model reads them.

        Raises:
            InvalidRequest: naming the field whose form is not that of the dialect.
        """
        from prefold.prompts.dialects import read_plain, read_segments  # noqa: PLC0415 - as above

        return read_plain(self.plain_text) if self.document is None else read_segments(self.value, self.dialect)

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """Every field at the top of the body that is no segment, such as `model` and `tool_choice`."""
        from prefold.prompts.dialects import PROMPT_FIELDS  # noqa: PLC0415 - as above

        if self.document is None:
            return {}
        return {key: value for key, value in self.value.items() if key not in PROMPT_FIELDS[self.dialect]}

    @property
    def model(self) -> str:
        """The model asked for; empty if the body does not say."""
        name = self.parameters.get("model") or self.parameters.get("modelId") or ""
        return name if isinstance(name, str) else ""

    def render(self) -> bytes:
        """The body, byte for byte as it was read where nothing was changed."""
        return (self.plain_text if self.document is None else self.document.source).encode(errors="surrogatepass")

    def with_value(self, value: Any) -> Prompt:
        """The same prompt with another body.

        Parts of the new value that are, by identity, parts of the old one keep their bytes: change bodies as in
        `{**value, "tools": sorted(value["tools"], key=...)}`.
        """
        if self.document is None:
            return Prompt(self.dialect, None, str(value))
        return Prompt(self.dialect, self.document.with_value(value))

    def replaced(self, changes: Mapping[Path, Any]) -> Prompt:
        """The same prompt with other values at some places, such as at a segment's `text_path`.

        Raises:
            LookupError: if there is no such place.
        """
        value = self.value
        for path, new in changes.items():
            value = path.set(value, new)
        return self.with_value(value)


def _decoded(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"The body is not UTF-8 text: byte {error.start} is 0x{body[error.start]:02X}.",
            hint="Give the JSON itself; unpack compressed files first.",
        ) from None


def _refuse_binary(text: str) -> None:
    if "\x00" in text:
        raise InvalidRequest(
            f"The text holds a NUL at character {text.index(chr(0))}: this is a binary file.",
            hint="Give a JSON request body, or the text of a prompt.",
        )
