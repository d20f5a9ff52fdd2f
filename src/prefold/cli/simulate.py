"""`prefold simulate`: the same traffic under several caches, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from prefold.cli.exit_codes import ExitCode
from prefold.cli.log_options import check_requests, log_options, price_options, replica_options
from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from prefold.analysis.caches.spec import CacheSpec
    from prefold.analysis.logs.log import Log
    from prefold.analysis.record import Record
    from prefold.analysis.request import Request
    from prefold.analysis.simulate import SimulatedRow, Simulation
    from prefold.providers.prices import Prices

_POLICIES = ("lru", "lfu", "fifo", "arc", "s3-fifo", "gdsf", "ttl-lru", "pinned", "default")
_SHAPES = ("agent", "rag", "persona", "code", "dataset", "customer_service", "evaluation", "few_shot")
"""Names for `--help`, which imports nothing for it; tests compare them with what there is."""


def _listed(_context: click.Context, _parameter: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
    """Values given with several options, or with commas in one."""
    return tuple(part.strip() for value in given for part in value.split(",") if part.strip())


@dataclass(frozen=True, slots=True)
class _Caches:
    """What the options say of the caches.

    Attributes:
        names: as `named_rules` reads them; none for what the log was made for.
        capacities: as `parse_capacity` reads them.
        policies: names.
        tiers: as `parse_tier` reads them.
        replicas: how many servers share the traffic.
        routing: how they do.
        isolates_tenants: whether tenants share nothing.
        loss_rate: share of requests that find nothing in a cache that promises nothing.
        seed: of what is drawn by chance.
        bytes_per_token: that keys and values of a token take.
    """

    names: Sequence[str]
    capacities: Sequence[str]
    policies: Sequence[str]
    tiers: Sequence[str]
    replicas: int
    routing: str
    isolates_tenants: bool
    loss_rate: float
    seed: int
    bytes_per_token: int

    def specs(self, first: Request | None) -> list[CacheSpec]:
        """The caches to simulate, for a log that begins with a request.

        Raises:
            UsageError: as `named_rules`, `specs_for` and `check_effect`.
        """
        from prefold.analysis.caches.named import OWN, check_effect, is_provider, named_rules, specs_for
        from prefold.analysis.caches.resolve import PLAIN
        from prefold.analysis.caches.spec import CacheSpec
        from prefold.analysis.record import Blocks

        is_trace = first is not None and not first.ends and isinstance(first.record.content, Blocks)
        names = self.names or ((PLAIN.provider,) if is_trace else (OWN,))
        specs: list[CacheSpec] = []
        for name in names:
            template = CacheSpec(
                name=name,
                rules=named_rules(name, first.record.model if first else ""),
                replicas=self.replicas,
                routing=self.routing,
                isolate_tenants=self.isolates_tenants,
                loss_rate=self.loss_rate,
                seed=self.seed,
                by_model=is_provider(name),
            )
            specs += specs_for(
                template,
                unit=first.unit if first else 1,
                capacities=self.capacities,
                policies=self.policies,
                tiers=self.tiers,
                bytes_per_token=self.bytes_per_token,
            )
        check_effect(specs, capacities=self.capacities, policies=self.policies, tiers=self.tiers)
        return specs


@click.command()
@click.argument("sources", metavar="[LOG|-]...", nargs=-1)
@click.option(
    "--cache",
    "caches",
    metavar="NAME",
    multiple=True,
    allow_from_autoenv=False,
    callback=_listed,
    help="A provider, engine or model whose cache is simulated; can be given several times.  "
    "[default: own, and blocks for traces of blocks]",
)
@click.option(
    "--capacity",
    "capacities",
    metavar="SIZE",
    multiple=True,
    allow_from_autoenv=False,
    callback=_listed,
    help="Capacities of each replica of an own cache, such as 1GiB,10GiB or 200000tokens or 10000blocks.  "
    "[default: unlimited]",
)
@click.option(
    "--policy",
    "policies",
    metavar="NAME",
    multiple=True,
    allow_from_autoenv=False,
    callback=_listed,
    help=f"Who is evicted: {', '.join(_POLICIES)}.  [default: lru]",
)
@click.option(
    "--tier",
    "tiers",
    metavar="NAME=SIZE",
    multiple=True,
    allow_from_autoenv=False,
    help="A slower store below, such as host=10GiB, cpu=10GiB, disk=1TiB or remote=1TiB; several, the fastest first.",
)
@replica_options
@click.option(
    "--loss-rate",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of requests for which a cache that promises nothing has nothing.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of what is drawn by chance.")
@click.option(
    "--kv-bytes-per-token",
    type=click.IntRange(min=1),
    help="What a token takes of a capacity in bytes.  [default: 131072, as of Llama 3 8B in bf16]",
)
@click.option("--kv-model", metavar="MODEL", help="The same, from a model as in `prefold size`.")
@price_options
@click.option(
    "--synthetic",
    metavar="WORKLOAD",
    allow_from_autoenv=False,
    help="Instead of LOG: prefix=4000,suffix=200,requests=10000, or one of these shapes, with :good or :bad behind it: "
    f"{', '.join(_SHAPES)}; also with ,requests=N and ,seed=N.",
)
@click.option("--interleave", type=click.IntRange(min=1), metavar="N", help="Run N sessions of LOG side by side.")
@click.option(
    "--what-if",
    "alternatives",
    metavar="NAME",
    multiple=True,
    allow_from_autoenv=False,
    help="Also the log as it would have been, such as reordered or history_truncated:10; list prints all.",
)
@click.option(
    "--curve",
    is_flag=True,
    allow_from_autoenv=False,
    help="Also least recently used at every capacity, and the optimum: at those given, or at powers of two.",
)
@log_options
@click.option(
    "--ray",
    metavar="ADDRESS",
    allow_from_autoenv=False,
    help="Simulate on this Ray cluster, as `ray.init` names it, such as auto or ray://host:10001.",
)
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")
def simulate(
    *,
    sources: tuple[str, ...],
    caches: tuple[str, ...],
    capacities: tuple[str, ...],
    policies: tuple[str, ...],
    tiers: tuple[str, ...],
    replicas: int,
    routing: str,
    isolate: str | None,
    loss_rate: float,
    seed: int,
    kv_bytes_per_token: int | None,
    kv_model: str | None,
    price: str | None,
    prices: str | None,
    currency: str,
    rate: float | None,
    synthetic: str | None,
    interleave: int | None,
    alternatives: tuple[str, ...],
    curve: bool,
    log_format: str | None,
    tokenizer: str | None,
    lenient: bool,
    ray: str | None,
    as_json: bool,
) -> None:
    """Send the requests of LOG to simulated caches.

    LOG is a file, a folder, or - for standard input; several are read as one log, in order of time. A row says what a
    cache hit, recomputed, wrote and would have cost. Capacities and policies are for caches on one's own machines; a
    provider's has lifetimes instead. Ctrl-C prints what was done so far.
    """
    from functools import partial

    from prefold.analysis.whatif.alternatives import what_if
    from prefold.cli.pricing import bytes_per_token, load_prices
    from prefold.errors import UsageError

    if "list" in alternatives:
        _print_alternatives()
        return
    if ray is not None and curve:
        raise UsageError("--ray and --curve exclude each other.", hint="Bounds need the whole log: leave out --ray.")
    chosen = _Caches(
        names=caches,
        capacities=capacities,
        policies=policies or ("lru",),
        tiers=tiers,
        replicas=replicas,
        routing=routing,
        isolates_tenants=isolate == "tenant",
        loss_rate=loss_rate,
        seed=seed,
        bytes_per_token=bytes_per_token(kv_bytes_per_token, kv_model),
    )
    priced = partial(load_prices, price, prices, currency, rate)
    loaded = priced()
    runs: list[_Run] = []
    with _opened(sources, synthetic, log_format, lenient=lenient) as (logged, log):
        records = logged if interleave is None else _Interleaved(logged, interleave)
        variants = [("", records), *((name, what_if(name, records)) for name in alternatives)]
        for name, variant in variants:
            runs.append(_Run(name, chosen, loaded, tokenizer, wants_curve=curve and not name))
            if ray is None:
                runs[-1].read(variant, log)
            else:
                runs[-1].read_on_ray(variant, log, ray, priced)
            check_requests(runs[-1].requests, is_complete=runs[-1].is_complete)
            if not runs[-1].is_complete:
                break
    if as_json:
        echo_json(_report(runs, loaded, log))
    else:
        _print(runs, loaded, log)
    if not runs[-1].is_complete:
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


@dataclass(frozen=True, slots=True)
class _Interleaved:
    """A log whose sessions run side by side, which can be iterated again."""

    records: Iterable[Record]
    concurrent: int

    def __iter__(self) -> Iterator[Record]:
        from prefold.analysis.interleave import interleave

        return interleave(self.records, self.concurrent)


class _Run:
    """A log on its way through the caches.

    Args:
        what_if: how it differs from what was sent; empty if it does not.
        chosen: the caches.
        prices: what tokens cost; None if that is not known.
        tokenizer: what counts them.
        wants_curve: whether bounds are asked for.
    """

    def __init__(
        self, what_if: str, chosen: _Caches, prices: Prices | None, tokenizer: str | None, *, wants_curve: bool
    ) -> None:
        from prefold.analysis.bounds import Bounds
        from prefold.analysis.encode import Encoder
        from prefold.analysis.tally import Meter, PriceOf

        self.what_if = what_if
        self.is_complete = True
        self.encoder = Encoder(tokenizer=tokenizer)
        self._chosen = chosen
        self._prices = prices
        self._bounds = Bounds() if wants_curve else None
        self._simulation: Simulation | None = None
        self._rows: list[SimulatedRow] = []
        self._uncached = Meter(PriceOf(prices))

    @property
    def requests(self) -> int:
        """How many there were."""
        return self._uncached.tally.requests

    @property
    def cost_without_cache(self) -> float | None:
        """What all input costs if none of it is cached; None where nothing has a price."""
        return self._uncached.tally.cost

    @property
    def rows(self) -> list[SimulatedRow]:
        """What each cache did."""
        return self._rows or self._simulating(None).rows()

    def read(self, records: Iterable[Record], log: Log | None) -> None:
        """Send all requests to the caches; Ctrl-C ends it."""
        try:
            for request in self._counted(records, log):
                self._simulating(request).add(request)
                if self._bounds is not None:
                    self._bounds.add(request)
        except KeyboardInterrupt:
            self.is_complete = False

    def read_on_ray(
        self, records: Iterable[Record], log: Log | None, address: str, priced: Callable[[], Prices | None]
    ) -> None:
        """The same on a Ray cluster; Ctrl-C ends it without a result."""
        from itertools import chain

        from prefold.analysis.shards import simulate_on_ray

        requests = self._counted(records, log)
        if (first := next(requests, None)) is not None:
            specs = self._chosen.specs(first)
            self._rows = simulate_on_ray(chain([first], requests), specs, priced, address=address)

    def _counted(self, records: Iterable[Record], log: Log | None) -> Iterator[Request]:
        """The requests, counted on their way."""
        from prefold.analysis.caches.base import Served
        from prefold.analysis.encode import encoded

        for request in encoded(records, self.encoder, log):
            self._uncached.add(request, Served(hit=0))
            yield request

    def _simulating(self, first: Request | None) -> Simulation:
        """The caches; which they are depends on the first request."""
        from prefold.analysis.simulate import Simulation

        if self._simulation is None:
            self._simulation = Simulation(self._chosen.specs(first), self._prices)
        return self._simulation

    def curve(self) -> dict[str, Any] | None:
        """Hit rates of least recently used and of the optimum, by capacity; None where they are not asked for."""
        if (bounds := self._bounds) is None:
            return None
        lru = bounds.lru()
        tokens = sorted({row.capacity_tokens for row in self.rows if row.capacity_tokens is not None})
        if not tokens:
            tokens = [lru.unit << power for power in range(64) if lru.unit << power <= lru.largest]
        return bounds.as_json(tokens, lru)


def _report(runs: Sequence[_Run], prices: Prices | None, log: Log | None) -> dict[str, Any]:
    """The answer as `--json` prints it."""
    sent = runs[0]
    report: dict[str, Any] = {
        "schema_version": 1,
        "complete": runs[-1].is_complete,
        "skipped": log.notes.skipped if log else 0,
        "problems": dict(log.notes.problems) if log else {},
        "tokens": {"counters": dict(sent.encoder.counters), "exact": sent.encoder.is_exact},
        "prices": prices.source if prices else None,
        "rows": [
            {"what_if": run.what_if or None, **row.as_json(), "cost_without_cache": run.cost_without_cache}
            for run in runs
            for row in run.rows
        ],
    }
    curve = sent.curve()
    return report if curve is None else {**report, "curve": curve}


def _print(runs: Sequence[_Run], prices: Prices | None, log: Log | None) -> None:
    """Print tables, and what is to be known of them to standard error."""
    from prefold.cli.log_progress import tell_notes

    rows = [(run.what_if, row) for run in runs for row in run.rows]
    _print_rows(rows, runs[0].cost_without_cache)
    if (curve := runs[0].curve()) is not None:
        _print_curve(curve)
    talk = console(stderr=True)
    if not runs[-1].is_complete:
        talk.print("Stopped: these are the numbers of the log so far.")
    if not runs[0].encoder.is_exact:
        talk.print("Token counts are an estimate.")
    if log is not None:
        tell_notes(log.notes)
    if prices is None:
        talk.print("No prices: give --price, or install them with pip install 'prefold[analysis]'.", markup=False)
    elif unpriced := max(row.unpriced_requests for _, row in rows):
        talk.print(f"{unpriced:,} requests have no known price.")


def _print_rows(rows: Sequence[tuple[str, SimulatedRow]], cost_without_cache: float | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    _, sent = rows[0]
    currency = next((row.currency for _, row in rows if row.currency), "")
    columns: dict[str, Callable[[SimulatedRow], str]] = {"cache": lambda row: row.cache}
    if any(row.policy not in (None, "lru") for _, row in rows):
        columns["policy"] = lambda row: row.policy or "-"
    if any(row.capacity_tokens is not None for _, row in rows):
        columns["capacity"] = lambda row: "-" if row.capacity_tokens is None else f"{row.capacity_tokens:,}"
    columns["hits"] = lambda row: _percent(row.hit_rate)
    columns["recomputed"] = lambda row: f"{row.recomputed_tokens:,}"
    if any(row.written_tokens for _, row in rows):
        columns["written"] = lambda row: f"{row.written_tokens:,}"
    if currency:
        columns[f"cost, {currency}"] = lambda row: "-" if row.cost is None else f"{row.cost:,.2f}"
    if sent.replicas > 1:
        columns["imbalance"] = lambda row: f"{row.load_imbalance:.2f}"
    title = f"{sent.requests:,} requests, {sent.input_tokens:,} input tokens"
    if currency and cost_without_cache is not None:
        title += f"; {currency} {cost_without_cache:,.2f} without a cache"
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    has_alternatives = any(what_if for what_if, _ in rows)
    for header in (*(["what if"] if has_alternatives else []), *columns):
        table.add_column(header, justify="left" if header in ("what if", "cache", "policy") else "right")
    for what_if, row in rows:
        cells = [*([what_if or "as sent"] if has_alternatives else []), *(cell(row) for cell in columns.values())]
        table.add_row(*map(Text, cells))
    data = console()  # a number that is cut short is a wrong number: rather let a narrow terminal wrap the lines
    data.width = max(data.width, data.measure(table, options=data.options.update(max_width=1_000)).maximum)
    data.print(title, markup=False, soft_wrap=True)
    data.print(table)


def _print_curve(curve: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title="Bounds of any cache", box=SIMPLE_HEAD)
    for header in ("tokens", "lru", "optimum"):
        table.add_column(header, justify="right")
    for point in curve["points"]:
        table.add_row(f"{point['tokens']:,}", _percent(point["lru"]), _percent(point["optimum"]))
    table.add_row("unlimited", *[_percent(curve["infinite"])] * 2)
    console().print(table)


def _print_alternatives() -> None:
    from prefold.analysis.whatif.alternatives import ALTERNATIVES

    for name, alternative in ALTERNATIVES.items():
        shown = f"{name}:{alternative.number}" if alternative.number else name
        click.echo(f"{shown:<24}{alternative.text}")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


@contextmanager
def _opened(
    sources: tuple[str, ...], synthetic: str | None, log_format: str | None, *, lenient: bool
) -> Iterator[tuple[Iterable[Record], Log | None]]:
    """The requests to simulate, and the log that they come from, if any."""
    from prefold.analysis.synthetic.workload import workload
    from prefold.cli.log_progress import reading
    from prefold.errors import UsageError

    if bool(sources) == (synthetic is not None):
        raise UsageError(
            "There is both a LOG and --synthetic." if sources else "There is no LOG.",
            hint="Give a log, - for standard input, or --synthetic.",
        )
    if synthetic is not None:
        yield workload(synthetic), None
        return
    with reading(sources, lenient=lenient, log_format=log_format) as log:
        yield log, log
