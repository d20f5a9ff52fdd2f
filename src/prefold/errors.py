"""One hierarchy of errors. Each says what went wrong and carries a hint that says what to do about it."""

from __future__ import annotations


class PrefoldError(Exception):
    """Base of every error that prefold raises on purpose.

    Args:
        message: what went wrong, one sentence, naming the value or file concerned.
        hint: what the reader can do about it, one sentence.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(PrefoldError):
    """A command, option or configuration value that cannot be used as given."""


class InvalidTokens(PrefoldError):
    """Token ids that are negative, not whole numbers, or outside the vocabulary."""


class InvalidSalt(PrefoldError):
    """A cache salt that is empty, too long, or holds a forbidden character."""


class InvalidRequest(PrefoldError):
    """A request that no server state could make acceptable.

    Args:
        param: the request field at fault, such as `temperature`, where there is one.
    """

    def __init__(self, message: str, *, hint: str = "", param: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.param = param


class PromptTooLong(InvalidRequest):
    """Prompt and answer together exceed the context length, or could never fit the K/V memory."""


class CapacityError(PrefoldError):
    """The cache cannot make the room asked for, because what it holds is pinned."""


class ModelError(PrefoldError):
    """A model that cannot be found, read or converted."""


class UnsupportedModel(ModelError):
    """A model whose architecture the prefix cache cannot serve correctly."""


class MissingExtra(PrefoldError):
    """A feature whose optional packages are not installed."""


class EngineFailed(PrefoldError):
    """The model or the engine failed while it worked on the request."""


class NoRoom(PrefoldError):
    """The request would fit the K/V memory, but what is pinned leaves too little of it."""


class EngineStopped(PrefoldError):
    """The engine was shut down while the request was waiting or running."""
