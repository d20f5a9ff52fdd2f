"""An analysis without the texts of its log: their shapes, and hashes that tell equal ones from different ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prefold.prompts.causes import CAUSES

_MOST = 48  # characters of a shape
_MOST_ALIKE = 4  # of one kind in a row
_MOST_SIGNS = 2  # signs or spaces in a row

_RUNS = re.compile(
    r"(?P<upper>[A-Z]+)|(?P<lower>[a-z]+)|(?P<digit>\d+)|(?P<letter>[^\W\d_]+)|(?P<space>\s+)|(?P<sign>.)"
)
_STAND_INS = {"upper": "A", "lower": "a", "digit": "9", "letter": "x", "space": " "}

_STRUCTURE = frozenset(
    {
        "additionalProperties",
        "anyOf",
        "args",
        "arguments",
        "cache_control",
        "content",
        "contents",
        "default",
        "description",
        "enum",
        "function",
        "functionCall",
        "functionDeclarations",
        "functionResponse",
        "id",
        "image",
        "input",
        "input_schema",
        "inputSchema",
        "instructions",
        "items",
        "json",
        "messages",
        "model",
        "name",
        "oneOf",
        "output",
        "parameters",
        "parts",
        "prompt",
        "properties",
        "reasoning",
        "required",
        "response",
        "role",
        "schema",
        "source",
        "strict",
        "summary",
        "system",
        "system_instruction",
        "systemInstruction",
        "text",
        "thinking",
        "title",
        "tool_call_id",
        "tool_calls",
        "tool_choice",
        "tool_use_id",
        "toolConfig",
        "toolResult",
        "tools",
        "toolSpec",
        "toolUse",
        "type",
        "url",
    }
)
"""Keys that a provider's format prescribes; all others may come from a user."""
_KEY = re.compile(r'[^\W\d]\w*|"(?:[^"\\]|\\.)*"')
_PATH = re.compile(rf"(\.?{_KEY.pattern}|\[(\d+|\*|{_KEY.pattern})\])+")
_PLAIN_NAME = re.compile(r"[a-z][a-z_]{0,47}")


def redacted(analysis: Mapping[str, Any], *, key: bytes, keep_names: bool = False) -> dict[str, Any]:
    """The same analysis with every text from the log replaced by its shape and a short hash.

    Figures, file names and line numbers, names of models, and what prefold itself has to say stay as they are.

    Args:
        analysis: as `render_html` takes it; not changed.
        key: up to 64 secret bytes, so that nobody can tell a text by hashing guesses.
        keep_names: whether names of tenants stay readable.
    """
    mask = _Mask(key)
    flame, order, reported = analysis["flame"], analysis["order"], analysis["reported"]
    breaks = [_break(entry, mask) for entry in analysis["breaks"]]
    # Advice repeats the paths and fixes of breaks.
    repeated = {
        before[name]: after[name]
        for before, after in zip(analysis["breaks"], breaks, strict=True)
        for name in ("path", "fix")
        if before[name]
    }
    return {
        **analysis,
        "attribution": [{**row, "path": mask.path(row["path"])} for row in analysis["attribution"]],
        "reported": reported and {**reported, "miss_reasons": mask.reasons(reported.get("miss_reasons"))},
        "breaks": breaks,
        "order": order and {**order, "moves": [_move(move, mask) for move in order["moves"]]},
        "over_time": [
            row if keep_names else {**row, "tenant": mask.name(row["tenant"])} for row in analysis["over_time"]
        ],
        "advice": [
            {**item, **{name: mask.sentence(_replaced(item[name], repeated)) for name in ("title", "text")}}
            for item in analysis["advice"]
        ],
        "flame": flame
        and {
            **flame,
            "labels": [mask.text(label) for label in flame["labels"]],
            "paths": [mask.path(path) for path in flame["paths"]],
        },
        "redacted": True,
    }


def shape(text: str) -> str:
    """What kinds of characters a text has: `Aaaa 99-99` for `Room 12-34`.

    Capital letters become `A`, small ones `a`, digits `9`, letters without case `x`; runs are cut short.
    """
    made: list[str] = []
    length = signs = 0
    for run in _RUNS.finditer(text.replace("\n", " ")):
        kind = run.lastgroup or "sign"
        signs = signs + 1 if kind in {"sign", "space"} else 0
        if signs > _MOST_SIGNS:
            continue
        if kind == "sign":
            piece = run.group()
        else:
            piece = _STAND_INS[kind] * (1 if kind == "space" else min(len(run.group()), _MOST_ALIKE))
        made.append(piece)
        length += len(piece)
        if length >= _MOST:
            return "".join(made)[:_MOST] + "…"
    return "".join(made)


@dataclass(frozen=True, slots=True)
class _Mask:
    key: bytes

    def hash(self, text: str) -> str:
        data = text.encode(errors="surrogatepass")
        return hashlib.blake2b(data, key=self.key, digest_size=4).hexdigest()

    def text(self, text: str) -> str:
        return f"{shape(text)} #{self.hash(text)}" if text else text

    def name(self, name: str) -> str:
        return f"#{self.hash(name)}" if name else name

    def path(self, path: str | None) -> str | None:
        """A path in which keys that no format prescribes are hashes."""
        if not path:
            return path
        if not _PATH.fullmatch(path):
            return self.name(path)
        return _KEY.sub(lambda found: found.group() if found.group() in _STRUCTURE else self.name(found.group()), path)

    def reasons(self, counts: Mapping[str, int] | None) -> dict[str, int]:
        """Counts by the name of a provider's reason, in which all but plain names are hashes."""
        return {
            name if _PLAIN_NAME.fullmatch(name) else self.name(name): count for name, count in (counts or {}).items()
        }

    def sentence(self, sentence: str) -> str:
        """A sentence of prefold's own, without what it quotes."""
        return re.sub(r"(['\"`“‘])(.+?)(['\"`”’])", lambda quoted: self.name(quoted.group(2)), sentence)


def _replaced(sentence: str, replacements: Mapping[str, str]) -> str:
    for before, after in replacements.items():
        sentence = sentence.replace(before, after)
    return sentence


def _break(entry: Mapping[str, Any], mask: _Mask) -> dict[str, Any]:
    cause = CAUSES.get(entry["cause"])
    return {
        **entry,
        "path": mask.path(entry["path"]),
        "before": mask.text(entry["before"]),
        "after": mask.text(entry["after"]),
        # Those of a single break may quote what they found.
        "explanation": cause.summary if cause else "",
        "fix": cause.fix if cause else "",
        "miss_reasons": mask.reasons(entry["miss_reasons"]),
    }


def _move(move: Mapping[str, Any], mask: _Mask) -> dict[str, Any]:
    to = move["to"]
    return {
        **move,
        "path": mask.path(move["path"]),
        "text": mask.text(move["text"]),
        "to": mask.path(to) if re.search(r"[.\[]", to) else mask.sentence(to),
    }
