"""What is said in a session, and the two orders in which a request can say it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

MODEL = "gpt-4o"


class Order(StrEnum):
    """Where a request has what it shares with others."""

    GOOD = "good"
    """First what never changes, then what a session keeps, last what is new; lists always in the same order."""
    BAD = "bad"
    """What is new first, what never changes last; lists in the order in which they were found."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one request adds.

    Attributes:
        wait: seconds between the answer before it and this request.
        duration: seconds until its answer is complete.
        news: texts that are new each time, such as the time of day.
        documents: what was found for it, in an order that does not depend on the question.
        question: what is asked, or the result of the tool that was called.
        answer: what comes back, or the arguments of a call.
        calls: the tool that the answer calls, whose result the next turn brings; empty for words.
    """

    wait: float
    duration: float
    question: str
    answer: str
    news: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    calls: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """What a conversation is made of.

    Attributes:
        tenant: whose it is.
        stable: texts that all sessions share.
        own: texts of this session.
        turns: what is said, in order.
        tools: definitions that all sessions share.
        is_one_message: whether all goes into one message of the user, instead of system and history.
    """

    tenant: str
    stable: tuple[str, ...]
    turns: tuple[Turn, ...]
    own: tuple[str, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    is_one_message: bool = False


def bodies(session: Session, order: Order, dice: Random) -> Iterator[bytes]:
    """The body of each request of a session, in the form of OpenAI Chat Completions.

    Args:
        session: what is said.
        order: where what is shared comes.
        dice: shuffles what has no order of its own, where the order is bad.
    """
    history: list[dict[str, Any]] = []
    for number, turn in enumerate(session.turns):
        documents = _listed(turn.documents, order, dice)
        if session.is_one_message:
            if order is Order.BAD:
                text = _joined([turn.question, *turn.news, *session.own, *documents, *session.stable])
                yield _body([{"role": "user", "content": text}])
                continue
            # In blocks, so that caches with markers find an end where less and less is shared.
            parts = [session.stable, (*documents, *session.own), (*turn.news, turn.question)]
            blocks = [{"type": "text", "text": f"{_joined(part)}\n\n"} for part in parts if part]
            yield _body([{"role": "user", "content": blocks}])
            continue
        if order is Order.GOOD:
            system = [*session.stable, *session.own]
            asked = _joined([*documents, *turn.news, turn.question])
        else:
            system = [*turn.news, *session.own, *documents, *session.stable]
            asked = turn.question
        is_result = number > 0 and session.turns[number - 1].calls
        said = {"role": "tool", "tool_call_id": f"call_{number}"} if is_result else {"role": "user"}
        history.append({**said, "content": asked})
        tools = _listed(session.tools, order, dice)
        yield _body([{"role": "system", "content": _joined(system)}, *history], tools)
        history.append(_answer(turn, number + 1))


def _listed(items: Sequence[Any], order: Order, dice: Random) -> list[Any]:
    listed = list(items)
    if order is Order.BAD:
        dice.shuffle(listed)
    return listed


def _answer(turn: Turn, number: int) -> dict[str, Any]:
    if not turn.calls:
        return {"role": "assistant", "content": turn.answer}
    function = {"name": turn.calls, "arguments": turn.answer}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(parts)


def _body(messages: Sequence[dict[str, Any]], tools: Sequence[Any] = ()) -> bytes:
    body = {"model": MODEL, **({"tools": tools} if tools else {}), "messages": messages}
    return json.dumps(body, ensure_ascii=False).encode()
