"""Eight kinds of traffic that most applications have one of.

Each is a generator of sessions that draws all words from the dice it is given, so that a seed gives the same traffic
everywhere. Stable texts have some 1,500 tokens and more: providers cache nothing shorter than 1,024.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from types import MappingProxyType
from typing import Any

from prefold.analysis.interleave import interleave
from prefold.analysis.record import Body, Place, Record
from prefold.analysis.synthetic.bodies import MODEL, Order, Session, Turn, bodies
from prefold.prompts.prompt import Dialect

_CONCURRENT = 8
_TENANTS = 4
_WORDS = (  # noqa: SIM905 - a hundred words read better as a text
    "account address agent answer archive balance basket batch billing branch budget button carrier catalog change "
    "channel claim client column commit contract country coupon courier custom damage default delivery deposit detail "
    "device discount dispute document domain email engine entry error export feature filter folder format header "
    "holiday import invoice label language ledger limit manual margin member merge meter method minute module notice "
    "number offer office option order owner parcel partner payment period person policy portal price process product "
    "profile project query quota record refund region release report request return review reward sample schedule "
    "section service session shipment signal source status stock storage street summary supply system target team "
    "template ticket token total transfer unit update user vendor version visit voucher warehouse window"
).split()


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of traffic.

    Attributes:
        text: what it is, one sentence.
        sessions: makes sessions without end.
    """

    text: str
    sessions: Callable[[Random], Iterator[Session]]


def records_of(shape: str, order: Order, *, requests: int, seed: int) -> Iterator[Record]:
    """Traffic of a kind: sessions of four tenants, eight at a time.

    Args:
        shape: a name in `SHAPES`.
        order: where requests have what they share.
        requests: how many there are.
        seed: of all that is drawn by chance.
    """
    mixed = interleave(_one_by_one(shape, order, seed), _CONCURRENT)
    for number, record in enumerate(islice(mixed, requests), start=1):
        yield replace(record, place=Place(f"{shape}:{order}", number))


def _one_by_one(shape: str, order: Order, seed: int) -> Iterator[Record]:
    words = Random(f"{shape} {seed}")  # noqa: S311 - traffic, no secrets
    shuffles = Random(f"{shape} {seed} order")  # noqa: S311 - the same
    for number, session in enumerate(SHAPES[shape].sessions(words), start=1):
        time = 0.0
        for turn, content in zip(session.turns, bodies(session, order, shuffles), strict=True):
            time += turn.wait
            yield Record(
                Body(content, Dialect.OPENAI),
                Place(f"{shape}:{order}", number),
                time=time,
                model=MODEL,
                tenant=session.tenant,
                session=f"{shape}-{number}",
                answer=turn.answer,
                stop="tool_calls" if turn.calls else "stop",
                duration=turn.duration,
            )
            time += turn.duration


# ------------------------------------------------------------------------------------------------------------- words


def _prose(dice: Random, words: int) -> str:
    """Sentences of about so many words."""
    sentences = []
    while words > 0:
        length = dice.randint(6, 14)
        sentences.append(" ".join(dice.choices(_WORDS, k=length)).capitalize() + ".")
        words -= length
    return " ".join(sentences)


def _clock(dice: Random) -> str:
    return f"It is 2026-11-30 {dice.randint(0, 23):02}:{dice.randint(0, 59):02}:{dice.randint(0, 59):02}."


def _tenant(dice: Random) -> str:
    return f"tenant-{dice.randint(1, _TENANTS)}"


def _turn(dice: Random, question: int, answer: int, *, wait: float = 30.0, news: Sequence[str] = ()) -> Turn:
    """A turn with so many words, after a pause that is `wait` seconds on average."""
    return Turn(
        wait=round(dice.expovariate(1 / wait), 3),
        duration=round(1 + answer / 40, 3),
        question=_prose(dice, question),
        answer=_prose(dice, answer),
        news=tuple(news),
    )


def _alone(dice: Random, question: str, answer: int, **more: Any) -> Turn:
    """A question that does not build on those before it."""
    return replace(_turn(dice, 1, answer, wait=10.0), question=question, **more)


# ------------------------------------------------------------------------------------------------------------ shapes


def _agent(dice: Random) -> Iterator[Session]:
    names = [f"{verb}_{noun}" for verb in ("find", "read", "write") for noun in ("file", "issue", "page", "table")]
    tools = tuple(_tool(name, _prose(dice, 30)) for name in names)
    rules = _prose(dice, 1200)
    while True:
        turns = [
            replace(
                _turn(dice, 60 if number else 25, 8, wait=4.0, news=[_clock(dice)]),
                calls=dice.choice(names),
                answer=json.dumps({"query": _prose(dice, 6)}),
            )
            for number in range(dice.randint(5, 15))
        ]
        turns[-1] = replace(turns[-1], calls="", answer=_prose(dice, 60))
        yield Session(_tenant(dice), (rules,), tuple(turns), tools=tools)


def _tool(name: str, description: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _rag(dice: Random) -> Iterator[Session]:
    rules = _prose(dice, 1200)
    passages = [f"<document id={number}>{_prose(dice, 150)}</document>" for number in range(200)]
    # By popularity, as in most collections: the n-th is asked for 1/n as often as the first (Zipf).
    weights = [1 / (rank + 1) for rank in range(len(passages))]
    while True:
        turns = []
        for _ in range(dice.randint(1, 6)):
            found = sorted(set(dice.choices(range(len(passages)), weights, k=5)))
            documents = tuple(passages[rank] for rank in found)
            turns.append(_alone(dice, _prose(dice, 20), 80, documents=documents, news=(_clock(dice),)))
        yield Session(_tenant(dice), (rules,), tuple(turns), is_one_message=True)


def _persona(dice: Random) -> Iterator[Session]:
    character = _prose(dice, 1500)
    while True:
        user = f"The user is {dice.choice(_WORDS)} {dice.randint(1, 9999)}. {_prose(dice, 60)}"
        turns = tuple(
            _turn(dice, 20, 60, wait=40.0, news=[f"Mood: {dice.choice(_WORDS)}. {_clock(dice)}"])
            for _ in range(dice.randint(4, 20))
        )
        yield Session(_tenant(dice), (character,), turns, own=(user,))


def _code(dice: Random) -> Iterator[Session]:
    rules = _prose(dice, 1000)
    projects = [f"Files:\n{_prose(dice, 1500)}" for _ in range(_TENANTS)]
    while True:
        project = dice.randrange(_TENANTS)
        opened = f"Task: {_prose(dice, 80)}"
        turns = tuple(
            _turn(dice, 40, 150, wait=20.0, news=[f"Cursor: line {dice.randint(1, 2000)}. {_prose(dice, 30)}"])
            for _ in range(dice.randint(5, 15))
        )
        yield Session(f"tenant-{project + 1}", (rules,), turns, own=(projects[project], opened))


def _dataset(dice: Random) -> Iterator[Session]:
    rules = _prose(dice, 100)
    table = "\n".join(f"{row}, {', '.join(dice.choices(_WORDS, k=8))}" for row in range(600))
    while True:
        turns = tuple(_alone(dice, _prose(dice, 25), 40) for _ in range(dice.randint(2, 10)))
        yield Session(_tenant(dice), (rules, table), turns, is_one_message=True)


def _customer_service(dice: Random) -> Iterator[Session]:
    policies = _prose(dice, 1800)
    while True:
        customer = f"Customer {dice.randint(10_000, 99_999)}, ticket {dice.getrandbits(64):016x}. {_prose(dice, 80)}"
        turns = tuple(_turn(dice, 25, 50, wait=45.0, news=[_clock(dice)]) for _ in range(dice.randint(2, 8)))
        yield Session(_tenant(dice), (policies,), turns, own=(customer,))


def _evaluation(dice: Random) -> Iterator[Session]:
    rubric = _prose(dice, 1500)
    variants = [f"Variant {name}. {_prose(dice, 300)}" for name in "AB"]
    while True:
        items = [f"Item {dice.randint(1, 99_999)}. {_prose(dice, 120)}" for _ in range(10)]
        for variant in variants:
            turns = tuple(_alone(dice, item, 20) for item in items)
            yield Session(_tenant(dice), (rubric,), turns, own=(variant,), is_one_message=True)


def _few_shot(dice: Random) -> Iterator[Session]:
    rules = _prose(dice, 150)
    examples = tuple(f"Text: {_prose(dice, 40)}\nClass: {dice.choice(_WORDS)}" for _ in range(32))
    while True:
        turns = tuple(
            _alone(dice, f"Text: {_prose(dice, 40)}\nClass:", 1, documents=examples) for _ in range(dice.randint(1, 20))
        )
        yield Session(_tenant(dice), (rules,), turns, is_one_message=True)


SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "agent": Shape(
            "An agent calls tools turn by turn; the bad order has a clock and shuffled tools first.", _agent
        ),
        "rag": Shape("Questions over passages that are found for each; the bad order has them by score first.", _rag),
        "persona": Shape("A character talks with many users; the bad order begins with the user and a mood.", _persona),
        "code": Shape("A code assistant knows a project; the bad order begins with the cursor.", _code),
        "dataset": Shape("Many questions about one table; the bad order asks before it shows the table.", _dataset),
        "customer_service": Shape(
            "Customers ask about one set of policies; the bad order begins with the time and the customer.",
            _customer_service,
        ),
        "evaluation": Shape(
            "Two variants of a prompt are judged item by item; the bad order begins with the item.", _evaluation
        ),
        "few_shot": Shape(
            "Texts are classified by examples; the bad order begins with the text and shuffles the examples.", _few_shot
        ),
    }
)
"""Every kind by its name."""
