"""Whether the same question over another context is ever answered from the first one's.

The most reckless decision of all is tried: whatever was asked in the same words gets the answer that was given first.
Once with the key that the cache makes of a request, in which everything but the last turn counts exactly; and once with
a key of the last turn alone, as caches have that see nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefold.errors import UsageError
from prefold.responses.semantic.decision.shares import Share
from prefold.responses.semantic.question import QuestionOptions, read_question
from prefold.responses.semantic.trial.streams import Figures
from prefold.responses.semantic.types import Question

_NAMES = (("context", "text", "intent"), ("passage", "question", "answer"))
"""Of the fields of a line; the second row is CondaQA's."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question over a context.

    Attributes:
        context: a passage, say.
        text: of the question.
        answer: that is right.
    """

    context: str
    text: str
    answer: str


@dataclass(frozen=True, slots=True)
class ContextTrial:
    """Both keys.

    Attributes:
        exact: with everything but the last turn in the key.
        last_turn: with nothing else in it.
        refused: requests that may not be answered by meaning at all; they count as misses of both.
    """

    exact: Figures
    last_turn: Figures
    refused: int

    def as_json(self) -> dict[str, Any]:
        """For `--json`: figures of the exact key on top."""
        return {**self.exact.as_json(), "refused": self.refused, "last_turn_alone": self.last_turn.as_json()}


def has_contexts(path: Path) -> bool:
    """Whether the first line of a file is a question over a context.

    Raises:
        UsageError: if it cannot be read.
    """
    try:
        with path.open(encoding="utf-8") as file:
            row = json.loads(next((line for line in file if line.strip()), "null"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", hint="Give a JSONL file.") from None
    except ValueError:
        return False
    return isinstance(row, dict) and any(all(name in row for name in names) for names in _NAMES)


def read_contexts(path: Path) -> list[Asked]:
    """A JSONL file with `context`, `text` and `intent` in each line, or `passage`, `question` and `answer`.

    Raises:
        UsageError: if it is not one.
    """
    return list(_read(path))


def _read(path: Path) -> Iterator[Asked]:
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            values = next([row[name] for name in names] for names in _NAMES if names[0] in row)
        except (ValueError, KeyError, TypeError, StopIteration):
            values = []
        if len(values) != 3 or not all(isinstance(value, str) for value in values):
            raise UsageError(
                f"Line {number} of {path.name} is no question over a context.",
                hint='Write lines such as {"context": "...", "text": "...", "intent": "..."}.',
            )
        yield Asked(*values)


def try_contexts(asked: Sequence[Asked]) -> ContextTrial:
    """Ask everything in order.

    Args:
        asked: questions, some of which come again over other contexts.
    """
    questions = [_question(each) for each in asked]

    def figures(key: Callable[[Question], object]) -> Figures:
        known: dict[object, str] = {}
        served = wrong = 0
        began = None
        for place, (each, question) in enumerate(zip(asked, questions, strict=True)):
            if question is None:
                continue
            kept = known.get(key(question))
            if kept is None:
                known[key(question)] = each.answer
                continue
            served += 1
            wrong += kept != each.answer
            began = place if began is None else began
        return Figures(Share(served, len(asked)), Share(wrong, len(asked)), began)

    return ContextTrial(
        exact=figures(lambda question: (question.context, question.text)),
        last_turn=figures(lambda question: question.text),
        refused=sum(question is None for question in questions),
    )


def _question(asked: Asked) -> Question | None:
    """What the cache makes of the request; None where it would not look."""
    request = {
        "model": "any",
        "temperature": 0,
        "messages": [{"role": "system", "content": asked.context}, {"role": "user", "content": asked.text}],
    }
    question = read_question(
        "/v1/chat/completions", request, partition="", principal="", options=QuestionOptions(), by_credentials=False
    )
    return question if isinstance(question, Question) else None
