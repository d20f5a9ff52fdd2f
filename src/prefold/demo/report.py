"""What a played scene comes to: a table for people, an object for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table

from prefold.demo.machine import Machine
from prefold.demo.play import SceneResult

EXACT_DTYPE = "fp32"
"""The numbers in which the cache changes no answer."""

_TOKENS_PER_PRICE = 1_000_000


@dataclass(frozen=True)
class Price:
    """What a provider asks for input tokens.

    Attributes:
        miss: for a million tokens that were computed.
        hit: for a million tokens that its cache served.
        currency: of both.
    """

    miss: float
    hit: float
    currency: str

    def bill(self, hit: int, miss: int) -> float:
        """The price of so many input tokens."""
        return (hit * self.hit + miss * self.miss) / _TOKENS_PER_PRICE


@dataclass(frozen=True)
class Setup:
    """What the scenes were played on.

    Attributes:
        machine: the computer.
        model: name of the model, None if its answers were simulated.
        dtype: what it computed in, None likewise.
        threads: with how many threads, None likewise.
    """

    machine: Machine
    model: str | None = None
    dtype: str | None = None
    threads: int | None = None


@dataclass(frozen=True)
class Report:
    """All scenes that were played.

    Attributes:
        results: the scenes.
        price: of input tokens.
        setup: what they were played on.
        complete: whether these are all requests of all scenes.
    """

    results: tuple[SceneResult, ...]
    price: Price
    setup: Setup
    complete: bool

    @property
    def simulated(self) -> bool:
        """Whether no model was involved, so that there are neither times nor answers."""
        return self.setup.model is None

    @property
    def differing(self) -> int:
        """Number of answers that the cache changed."""
        return sum(result.differing for result in self.results)

    @property
    def has_fault(self) -> bool:
        """Whether an answer changed that must not."""
        return self.differing > 0 and self.setup.dtype == EXACT_DTYPE

    def as_object(self) -> dict[str, object]:
        """The report for `--json`: times in seconds, costs in the price's currency."""
        return {
            "schema_version": 1,
            "simulated": self.simulated,
            "complete": self.complete,
            "model": self.setup.model,
            "dtype": self.setup.dtype,
            "threads": self.setup.threads,
            "machine": asdict(self.setup.machine),
            "price_per_million": {"miss": self.price.miss, "hit": self.price.hit},
            "currency": self.price.currency,
            "scenes": [self._scene_object(result) for result in self.results],
        }

    def _scene_object(self, result: SceneResult) -> dict[str, object]:
        return {
            "name": result.scene.name,
            "requests": len(result.exchanges),
            "tokens_sent": result.tokens_sent,
            "tokens_recomputed": result.tokens_recomputed,
            "hit_rate": round(result.hit_rate, 6),
            "ttft_off_s": _rounded(result.ttft("off")),
            "ttft_on_s": _rounded(result.ttft("on")),
            "wall_off_s": _rounded(result.wall("off")),
            "wall_on_s": _rounded(result.wall("on")),
            "cost_off": round(self.price.bill(0, result.tokens_sent), 9),
            "cost_on": round(self.price.bill(result.tokens_hit, result.tokens_recomputed), 9),
            "answers_equal": None if self.simulated else result.differing == 0,
        }

    def conclusions(self) -> list[str]:
        """What follows from all scenes together, a sentence or two a line."""
        price = self.price
        bill = (
            f"Input bill: {price.miss:g} {price.currency} for a million tokens that are recomputed, "
            f"{price.hit:g} for a million that are served from cache."
        )
        if self.simulated:
            return [bill, "Simulated: token counts are those of the cache; no model ran, so there are no times."]
        machine = self.setup.machine
        measured = (
            f"Measured with {self.setup.model} in {self.setup.dtype}, {self.setup.threads} threads on "
            f"{machine.processor} ({machine.cores} cores), {machine.system}, one request at a time."
        )
        return [bill, self._verdict(), measured]

    def _verdict(self) -> str:
        answers = sum(len(result.exchanges) for result in self.results)
        if not self.differing:
            return f"Answers: all {answers} are the same with the cache on as with the cache off."
        if self.has_fault:
            return (
                f"Answers: {self.differing} of {answers} differ, and in {EXACT_DTYPE} none should. Please report this."
            )
        return (
            f"Answers: {self.differing} of {answers} differ, which {self.setup.dtype} allows: a prompt that is "
            f"computed in other pieces is rounded in other places. {EXACT_DTYPE} gives the same answers."
        )


def as_table(result: SceneResult, price: Price) -> Table:
    """A scene as a table of what the cache changed."""
    table = Table(
        title=f"{result.scene.title}: {len(result.exchanges)} requests", title_justify="left", box=SIMPLE_HEAD
    )
    table.add_column("")
    table.add_column("cache off", justify="right")
    table.add_column("cache on", justify="right")
    table.add_column("on / off", justify="right")
    sent, recomputed = result.tokens_sent, result.tokens_recomputed
    table.add_row("tokens sent", f"{sent:,}", f"{sent:,}", "")
    table.add_row("tokens recomputed", f"{sent:,}", f"{recomputed:,}", _share(recomputed, sent))
    table.add_row("hit rate", "0.0 %", f"{result.hit_rate:.1%}".replace("%", " %"), "")
    _add_times(table, "TTFT, median", result.ttft("off"), result.ttft("on"))
    _add_times(table, "wall time", result.wall("off"), result.wall("on"))
    cost_off, cost_on = price.bill(0, sent), price.bill(result.tokens_hit, recomputed)
    table.add_row(
        "input bill",
        f"{cost_off:.4f} {price.currency}",
        f"{cost_on:.4f} {price.currency}",
        _share(cost_on, cost_off),
    )
    return table


def _add_times(table: Table, name: str, off: float | None, on: float | None) -> None:
    if off is not None and on is not None:
        table.add_row(name, f"{off:.2f} s", f"{on:.2f} s", _share(on, off))


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}".replace("%", " %") if whole else ""


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
