"""Rules for text: values in a stable part that are other ones in the next request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from prefold.lint.findings import Finding, Rule, Scope
from prefold.prompts.liveness import find_live, is_example
from prefold.prompts.placeholders import Placeholder, find_placeholders, stability_of_name
from prefold.prompts.prompt import Stability
from prefold.prompts.tokens import TokenCounter
from prefold.prompts.volatile import Kind, Volatile

_READ_AGAIN = (
    "A prefix cache matches a request up to the first token that differs: all that stands behind this value is read, "
    "and paid for, again in every request."
)

CLOCK = Rule(
    "PF101",
    "clock-in-prefix",
    Scope.TEXT,
    "A date or time of the clock stands in a part that should stay the same.",
    f"{_READ_AGAIN} A date costs one miss a day, a time one miss a request. Dates of laws, releases and examples are "
    "no clocks and are not reported.",
    "Now: 2026-11-01T10:00:00Z\nYou are a support agent. ...",
    "You are a support agent. ...\n(the time stands at the end of the newest message)",
)
EPOCH = Rule(
    "PF102",
    "epoch-in-prefix",
    Scope.TEXT,
    "A clock counted in seconds or milliseconds since 1970 stands in a part that should stay the same.",
    f"{_READ_AGAIN} Ten digits count only where they are called a time; thirteen in the range of our years always do.",
    "timestamp=1793527200\nYou are a support agent. ...",
    "You are a support agent. ...",
)
UUID = Rule(
    "PF103",
    "uuid-in-prefix",
    Scope.TEXT,
    "A UUID stands in a part that should stay the same.",
    f"{_READ_AGAIN} UUIDs that name a constant (a model, a project, a collection, a file) or are part of a URL are not "
    "reported.",
    "Request 3f2b8f1e-0c1d-4a1b-9d7e-1f0a8f6f2b11\nYou are a support agent. ...",
    "You are a support agent. ...\n(the UUID is in the request's metadata)",
)
HEX = Rule(
    "PF104",
    "hex-in-prefix",
    Scope.TEXT,
    "A long hexadecimal number stands in a part that should stay the same.",
    f"{_READ_AGAIN} Digests and commits that are called so are not reported.",
    "[run 4bf92f3577b34da6]\nYou are a support agent. ...",
    "You are a support agent. ...",
)
IDENTIFIER = Rule(
    "PF105",
    "id-in-prefix",
    Scope.TEXT,
    "The id of a session, a request, a user or the like stands in a part that should stay the same.",
    f"{_READ_AGAIN} An id of a session costs one miss a session, and keeps sessions from sharing the prefix.",
    "Session ID: 8842\nYou are a support agent. ...",
    "You are a support agent. ...\n(if the model needs the id, it stands in the newest message)",
)
ADDRESS = Rule(
    "PF106",
    "address-in-prefix",
    Scope.TEXT,
    "A network address stands in a part that should stay the same.",
    f"{_READ_AGAIN} Addresses of every machine or of none (127.0.0.1, 0.0.0.0), of networks and of documentation are "
    "not reported.",
    "Client IP: 81.2.69.142\nYou are a support agent. ...",
    "You are a support agent. ...",
)
USER_PATH = Rule(
    "PF107",
    "user-path-in-prefix",
    Scope.TEXT,
    "A path with the name of a user stands in a part that should stay the same.",
    f"{_READ_AGAIN} Each user gets a prefix of their own, though all else is the same. Home folders of containers "
    "(user, app, runner, ubuntu and the like) are not reported.",
    "Working directory: /home/alice/shop\nYou are a coding agent. ...",
    "You are a coding agent. Paths are relative to the working directory. ...",
)
TOKEN = Rule(
    "PF108",
    "random-token-in-prefix",
    Scope.TEXT,
    "Letters and digits that look drawn at random stand in a part that should stay the same.",
    f"{_READ_AGAIN} A constant that looks random, such as the key of a resource, can be ignored with a reason.",
    "Tag: 7ZkQ2mXp9LrT4vWb8NsY\nYou are a support agent. ...",
    "You are a support agent. ...",
)
NONCE = Rule(
    "PF109",
    "client-nonce",
    Scope.TEXT,
    "A client puts a number that changes with each request in front of the system prompt.",
    "Some coding clients begin the system block with a header such as `x-anthropic-billing-header: ... cch=1a2b3;`. A "
    "server that does not know it, local ones above all, takes it for text and reads the whole prompt again each time.",
    "x-anthropic-billing-header: cc_version=2.1.37; cch=1a2b3;\nYou are a coding agent. ...",
    "You are a coding agent. ...\n(turn the header off in the client, or strip it in front of the server)",
)
PLACEHOLDER = Rule(
    "PF110",
    "volatile-placeholder",
    Scope.TEXT,
    "A template has a place for a clock or an id in front of text that stays the same.",
    f"{_READ_AGAIN} Reported in files only: in a request the place has been filled.",
    "Now: {current_time}. Request: {{ request_id }}\nYou are a support agent. ...",
    "You are a support agent. ...\nNow: {current_time}",
)

TEXT_RULES: tuple[Rule, ...] = (
    *(CLOCK, EPOCH, UUID, HEX, IDENTIFIER),
    *(ADDRESS, USER_PATH, TOKEN, NONCE, PLACEHOLDER),
)


@dataclass(frozen=True, slots=True)
class _Words:
    """What is said about a value of some kind."""

    rule: Rule
    name: str
    help: str


_MOVE_TO_THE_END = "Move it to the end of the newest message."
_TAKE_OUT = "Take it out of the prompt, or move it to the end of the newest message."
_WORDS: Mapping[Kind, _Words] = MappingProxyType(
    {
        Kind.DATE: _Words(CLOCK, "The date", _MOVE_TO_THE_END),
        Kind.TIME: _Words(CLOCK, "The time", _MOVE_TO_THE_END),
        Kind.EPOCH: _Words(EPOCH, "The epoch number", _MOVE_TO_THE_END),
        Kind.UUID: _Words(UUID, "The UUID", "Send it as request metadata, not in the prompt."),
        Kind.HEX: _Words(HEX, "The hexadecimal number", _TAKE_OUT),
        Kind.IDENTIFIER: _Words(IDENTIFIER, "The id", "Send it as request metadata, not in the prompt."),
        Kind.ADDRESS: _Words(ADDRESS, "The address", _TAKE_OUT),
        Kind.USER_PATH: _Words(USER_PATH, "The user's path", "Name paths relative to the working directory."),
        Kind.TOKEN: _Words(TOKEN, "The random-looking token", _TAKE_OUT),
        Kind.NONCE: _Words(NONCE, "The client's nonce", "Turn it off in the client, or strip it before the server."),
    }
)
_SAMPLE = 100_000
"""Characters from which the length of a text in tokens is judged."""
_LONGEST_SHOWN = 60
"""Characters of a value that a message repeats."""


def lint_text(text: str, file: str, counter: TokenCounter) -> list[Finding]:
    """Findings in a text that is, as a whole, a stable part of a prompt.

    Args:
        text: of a file.
        file: its name, for the findings.
        counter: counts the tokens behind a value.
    """
    values = [*find_live(text)]
    places = [*_volatile_places(text)]
    if not values and not places:
        return []
    density = tokens_per_character(text, counter)
    found = [_value_finding(text, value, file, "", estimated_tokens(text, value.start, density)) for value in values]
    found += [_place_finding(place, file, estimated_tokens(text, place.start, density)) for place in places]
    return sorted(found, key=lambda finding: finding.start)


def live_values(text: str, file: str, path: str = "") -> Iterator[Finding]:
    """Values in a text that change from request to request; spans are characters of this text."""
    return (_value_finding(text, value, file, path, None) for value in find_live(text))


def _value_finding(text: str, value: Volatile, file: str, path: str, lost: int | None) -> Finding:
    words = _WORDS[value.kind]
    message = f"{words.name} {_shown(text[value.start : value.end])} changes from request to request."
    return Finding(words.rule.id, message, file, value.start, value.end, words.help, path, lost_tokens=lost)


_OFTEN: Mapping[Stability, str] = MappingProxyType(
    {Stability.REQUEST: "request", Stability.DAILY: "day", Stability.SESSION: "session"}
)
_LONGEST_PATH = 200
_PATH_BEFORE = re.compile(r"(?:(?<!<)/[^\s<>:：]*|://[^\s<>]*)\Z")
_NOT_BLANK = re.compile(r"\S")


def _volatile_places(text: str) -> Iterator[Placeholder]:
    """Places for clocks and ids in front of other text, without those of paths and examples."""
    for place in find_placeholders(text):
        if stability_of_name(place.name) is None or _is_in_path(text, place.start, place.end):
            continue
        if _NOT_BLANK.search(text, place.end) and not is_example(text, place.start):
            yield place


def _place_finding(place: Placeholder, file: str, lost: int) -> Finding:
    often = _OFTEN[stability_of_name(place.name) or Stability.REQUEST]
    message = f"The place for {place.name!r} is filled with another value in each {often}."
    help_ = "Move it to the end of the template."
    return Finding(PLACEHOLDER.id, message, file, place.start, place.end, help_, lost_tokens=lost)


def _is_in_path(text: str, start: int, end: int) -> bool:
    """Whether a placeholder is a part of a path or a URL, as in the description of an interface."""
    return text.startswith("/", end) or _PATH_BEFORE.search(text, max(0, start - _LONGEST_PATH), start) is not None


def tokens_per_character(text: str, counter: TokenCounter) -> float:
    """How many tokens a character of the text stands for, judged by a sample from its beginning."""
    sample = text[:_SAMPLE]
    return counter.count(sample) / max(1, len(sample))


def estimated_tokens(text: str, start: int, per_character: float) -> int:
    """Tokens of a text from a character on."""
    return round(per_character * (len(text) - start))


def _shown(value: str) -> str:
    shown = value if len(value) <= _LONGEST_SHOWN else f"{value[: _LONGEST_SHOWN - 3]}..."
    return repr(shown)
