"""A synthetic log from the text of an option."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prefold.analysis.record import Blocks, Place, Record
from prefold.analysis.synthetic.bodies import Order
from prefold.analysis.synthetic.shapes import SHAPES, records_of
from prefold.core.tokens import pack
from prefold.errors import UsageError

_MOST_TOKENS = 10_000_000  # of one request; beyond the context of any model
_MOST_IDS = 2**32
_FORMS = "Write prefix=4000,suffix=200,requests=10000, or SHAPE:good or SHAPE:bad, with SHAPE one of {}."


@dataclass(frozen=True, slots=True)
class Plain:
    """Requests that begin with the same tokens and end with tokens of their own, one a second.

    The worked example of provider caching: with 4,000 shared and 200 own tokens in 10,000 requests, 42 million tokens
    are sent. At 2 USD for a million they cost 84 USD. A cache that bills hits at 0.04 makes that 10,000 times 4,000 x
    0.04 + 200 x 2 millionths, 5.60 USD; since the first request finds nothing yet, it is 5.60784 USD in full.

    Attributes:
        prefix: tokens that all requests share.
        suffix: tokens that each has for itself.
        requests: how many there are.
    """

    prefix: int
    suffix: int
    requests: int

    def __iter__(self) -> Iterator[Record]:
        """The requests, as token ids."""
        shared = pack(range(self.prefix))
        size = self.prefix + self.suffix
        for number in range(self.requests):
            first = self.prefix + number * self.suffix
            run = shared + pack(range(first, first + self.suffix))
            yield Record(Blocks(run, 1, size), Place("synthetic", number + 1), time=float(number))


@dataclass(frozen=True, slots=True)
class Shaped:
    """Traffic of a usual kind, as bodies of requests; the same each time that it is iterated.

    Attributes:
        shape: a name in `SHAPES`.
        order: whether what is stable comes first.
        requests: how many there are.
        seed: of all that is drawn by chance. The words of both orders are the same.
    """

    shape: str
    order: Order
    requests: int
    seed: int

    def __iter__(self) -> Iterator[Record]:
        """The requests, oldest first."""
        return records_of(self.shape, self.order, requests=self.requests, seed=self.seed)


def workload(text: str) -> Plain | Shaped:
    """Read a workload.

    Args:
        text: `prefix=4000,suffix=200,requests=10000`; or a shape and its order, such as `rag:good`, and behind it any
            of `,requests=N` (1,000 by default) and `,seed=N` (0).

    Raises:
        UsageError: naming what is wrong with it.
    """
    first, *rest = (part.strip() for part in text.split(","))
    hint = _FORMS.format(", ".join(SHAPES))
    if "=" in first:
        values = _values([first, *rest], {"prefix": None, "suffix": None, "requests": None}, hint)
        plain = Plain(values["prefix"], values["suffix"], values["requests"])
        if not 0 < plain.prefix + plain.suffix <= _MOST_TOKENS:
            raise UsageError(
                f"Requests of {plain.prefix + plain.suffix:,} tokens cannot be simulated.",
                hint=f"Give prefix and suffix from 1 to {_MOST_TOKENS:,} together.",
            )
        if plain.prefix + plain.suffix * plain.requests > _MOST_IDS:
            raise UsageError(
                f"{text!r} needs more than {_MOST_IDS:,} different tokens.",
                hint="Give fewer requests or a smaller suffix.",
            )
        return plain
    shape, colon, order = first.partition(":")
    if shape not in SHAPES or not colon or order not in list(Order):
        raise UsageError(f"There is no workload {first!r}.", hint=hint)
    values = _values(rest, {"requests": 1000, "seed": 0}, hint)
    return Shaped(shape, Order(order), values["requests"], values["seed"])


def _values(parts: list[str], defaults: Mapping[str, int | None], hint: str) -> dict[str, int]:
    """Read `name=N` parts; a default of None must be given."""
    given: dict[str, int] = {}
    for part in parts:
        written = re.fullmatch(r"(\w+)\s*=\s*(\d{1,12})", part, re.ASCII)
        if written is None or written[1] not in defaults or written[1] in given:
            raise UsageError(f"{part!r} cannot be read as a part of a workload.", hint=hint)
        given[written[1]] = int(written[2])
    for name, default in defaults.items():
        if given.setdefault(name, -1 if default is None else default) < 0:
            raise UsageError(f"The workload does not say {name}.", hint=hint)
    if given["requests"] < 1:
        raise UsageError("A workload needs requests.", hint="Give requests=1 or more.")
    return given
