"""Where something lies in a request body: `messages[2].content[0]`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefold.errors import UsageError

Step = str | int

_PLAIN_KEY = re.compile(r"[^\W\d]\w*")
_PART = re.compile(r'\.?([^\W\d]\w*)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')


@dataclass(frozen=True, order=True, slots=True)
class Path:
    """Keys and positions from the root of a JSON value down; without steps the root itself.

    Attributes:
        steps: a text for a key of an object, a whole number for a position in a list.
    """

    steps: tuple[Step, ...] = ()

    @classmethod
    def of(cls, *steps: Step) -> Path:
        """A path from its steps."""
        return cls(steps)

    @classmethod
    def parse(cls, text: str) -> Path:
        """Read what `str` writes.

        Raises:
            UsageError: if the text is not a path.
        """
        steps: list[Step] = []
        position = 0
        while position < len(text):
            part = _PART.match(text, position)
            if part is None or (text[position] == "." and not steps):
                raise UsageError(f"{text!r} is not a path.", hint="Write it like messages[2].content[0].")
            key, index, quoted = part.groups()
            steps.append(int(index) if index else json.loads(quoted) if quoted else key)
            position = part.end()
        return cls(tuple(steps))

    def __str__(self) -> str:
        written: list[str] = []
        for step in self.steps:
            if isinstance(step, int):
                written.append(f"[{step}]")
            elif _PLAIN_KEY.fullmatch(step):
                written.append(f".{step}" if written else step)
            else:
                written.append(f"[{json.dumps(step, ensure_ascii=False)}]")
        return "".join(written)

    def __truediv__(self, step: Step) -> Path:
        return Path((*self.steps, step))

    @property
    def parent(self) -> Path:
        """The path without its last step; the root's is the root."""
        return Path(self.steps[:-1])

    def get(self, value: Any) -> Any:
        """What lies there.

        Raises:
            LookupError: if nothing does.
        """
        for step in self.steps:
            value = _child(value, step)
        return value

    def find(self, value: Any) -> Any:
        """What lies there; None if nothing does."""
        try:
            return self.get(value)
        except LookupError:
            return None

    def set(self, value: Any, new: Any) -> Any:
        """A copy of a JSON value with something else there; all that lies elsewhere is shared with the original.

        Raises:
            LookupError: if there is no such place. An object takes a new key, a list no new position.
        """
        if not self.steps:
            return new
        step, rest = self.steps[0], Path(self.steps[1:])
        if isinstance(value, Mapping) and isinstance(step, str):
            child = rest.set(value[step], new) if step in value or rest.steps else new
            return {**value, step: child}
        replaced = rest.set(_child(value, step), new)
        items = list(value)
        items[int(step)] = replaced
        return items


def _child(value: Any, step: Step) -> Any:
    """A member of an object or an item of a list; texts are not lists here."""
    if isinstance(step, str):
        if isinstance(value, Mapping):
            return value[step]
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value[step]
    raise KeyError(step)
