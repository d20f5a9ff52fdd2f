"""The stable prefix of a prompt, and one name for exactly what the model reads of it.

Fingerprints are kept in files that outlive this code, so the bytes that are hashed are written down here, in full, and
carry a version:

    SHA-256( "prefold/prefix-fingerprint/1" padded to 32
             | for each segment: field(section) field(role) field(begin) field(text) )

where field(x) is the length of x in UTF-8 as a little-endian uint64, then x, and begin is "begin" where a message
begins with the segment, otherwise empty. The text is the segment's own: words as they are, structured content as
compact JSON in its own order of keys. So cache markers, white space between the members of a body, and parameters such
as `model` make no difference; the order of tools, the order of keys and every character of text do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Any

from prefold.errors import InvalidRequest
from prefold.prompts.paths import Step
from prefold.prompts.prompt import Dialect, Prompt, Section, Segment, Stability

_DOMAIN = b"prefold/prefix-fingerprint/1".ljust(32, b"\0")
_VERSION = "pf1:"
_SHOWN_DIGITS = 12


class Part(StrEnum):
    """Which part of a prompt is meant to stay as it is."""

    SYSTEM = "system"
    """The system prompt."""
    TOOLS = "tools"
    """The tool definitions."""
    PREFIX = "prefix"
    """Tools, system and messages up to the last answer of the assistant, such as examples; all of a plain text."""
    WHOLE = "whole"
    """Everything, the last words of the user included."""


def read_prefix(body: bytes, part: Part, dialect: Dialect | None = None) -> Prompt:
    """The stable part of a request body or a plain text.

    Raises:
        InvalidRequest: if the body cannot be read, or has no such part.
    """
    prompt = Prompt.parse(body, dialect)
    return prefix_of(prompt.value, part, prompt.dialect)


def prefix_of(value: Mapping[str, Any] | str, part: Part, dialect: Dialect | None = None) -> Prompt:
    """The stable part of a prompt as a prompt of its own, in the form that a lock file gives back.

    Args:
        value: a body as a JSON value, or a plain text.
        part: what of it is meant to stay.
        dialect: the body's form; None to recognise it. A body of nothing but `tools` and `system` is Anthropic's.

    Raises:
        InvalidRequest: if the value is no body, or has no such part.
    """
    if isinstance(value, str):
        value, dialect = {"prompt": value}, Dialect.COMPLETION
    if dialect is None and value.keys() <= {"tools", "system"}:
        dialect = Dialect.ANTHROPIC
    prompt = Prompt.of(dict(value), dialect)
    # Through JSON and back: tuples become lists, and what is kept is what will be read.
    prompt = Prompt.of(json.loads(prompt.render()), prompt.dialect)
    kept = [segment.path for segment in prompt.segments if _is_in(segment, part, prompt.dialect)]
    if not kept:
        missing = "nothing that stays" if part is Part.PREFIX else "nothing" if part is Part.WHOLE else f"no {part}"
        raise InvalidRequest(
            f"The prompt has {missing}, read in the dialect {prompt.dialect}.", hint="Name another part or dialect."
        )
    return Prompt.of(_only(prompt.value, [path.steps for path in kept]), prompt.dialect)


def fingerprint_of(prefix: Prompt) -> str:
    """The name of what the model reads of a prefix: `pf1:` and 64 hexadecimal digits."""
    digest = sha256(_DOMAIN)
    for segment in prefix.segments:
        for field in fields_of(segment):
            encoded = field.encode(errors="surrogatepass")
            digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return _VERSION + digest.hexdigest()


def fields_of(segment: Segment) -> tuple[str, str, str, str]:
    """All of a segment that counts, its text last."""
    return segment.section, segment.role, "begin" if segment.begins_message else "", segment.text


def shortened(fingerprint: str) -> str:
    """The first digits of a fingerprint, to be read by people."""
    return fingerprint[: len(_VERSION) + _SHOWN_DIGITS]


def _is_in(segment: Segment, part: Part, dialect: Dialect) -> bool:
    match part:
        case Part.SYSTEM:
            return segment.section is Section.SYSTEM
        case Part.TOOLS:
            return segment.section is Section.TOOLS
        case Part.PREFIX:
            return dialect is Dialect.COMPLETION or segment.stability is not Stability.REQUEST
        case Part.WHOLE:
            return True


def _only(value: Any, wanted: list[tuple[Step, ...]], *, is_root: bool = True) -> Any:
    """A JSON value without the fields at its top, and the items of its lists, that lead to none of the wanted places.

    What stands beside a wanted place inside an object stays: a message keeps its role.
    """
    if () in wanted:
        return value
    below: dict[Step, list[tuple[Step, ...]]] = {}
    for steps in wanted:
        below.setdefault(steps[0], []).append(steps[1:])
    if isinstance(value, list):
        return [_only(item, below[index], is_root=False) for index, item in enumerate(value) if index in below]
    return {
        key: _only(item, below[key], is_root=False) if key in below else item
        for key, item in value.items()
        if key in below or not is_root
    }
