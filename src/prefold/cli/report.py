"""`prefold report`: where the tokens of a log are recomputed, why, and what that costs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from prefold.cli.exit_codes import ExitCode
from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from prefold.analysis.analyse import Analysis
    from prefold.analysis.request import Request

_COMPARED = (
    *("openai", "gpt-5.6", "anthropic", "gemini", "deepseek", "qwen"),
    *("vllm", "sglang", "llamacpp", "prefold"),
)
"""The caches that every log is shown under."""
_SITUATIONS = ("hosted_api", "own_engine", "many_replicas", "many_tenants", "laptop")


@click.command()
@click.argument("sources", metavar="[LOG|-]...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    allow_from_autoenv=False,
    help="Write the report as one HTML page.",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    allow_from_autoenv=False,
    help="Write all figures as JSON; - is standard output.",
)
@click.option("--redact", is_flag=True, help="Show shapes and hashes instead of text.")
@click.option(
    "--cache",
    metavar="NAME",
    help="The provider, engine or model whose rules hold for the log.  [default: by each request's model]",
)
@click.option("--capacity", metavar="SIZE", help="Capacity of an own cache, such as 10GiB or 200000tokens.")
@click.option("--policy", metavar="NAME", default="lru", show_default=True, help="Who is evicted from it.")
@click.option("--replicas", type=click.IntRange(min=1), default=1, show_default=True, help="Servers of an own cache.")
@click.option(
    "--routing",
    type=click.Choice(["round_robin", "consistent_hash", "exact"]),
    default="round_robin",
    show_default=True,
    help="How requests are spread over them.",
)
@click.option("--isolate", type=click.Choice(["tenant"]), help="Who shares nothing with others.")
@click.option("--situation", type=click.Choice(_SITUATIONS), help="What you run.  [default: guessed from the log]")
@click.option(
    "--kv-bytes-per-token", type=click.IntRange(min=1), metavar="N", help="What a token takes of a capacity in bytes."
)
@click.option("--price", metavar="PRICE", help="Per million tokens, such as miss=2,hit=0.04.  [default: the model's]")
@click.option("--prices", type=click.Path(), metavar="FILE", help="TOML file of own prices.")
@click.option("--currency", metavar="CODE", default="USD", show_default=True, help="Of all costs.")
@click.option("--rate", type=float, metavar="NUMBER", help="What 1 USD is worth in the currency.")
@click.option("--log-format", metavar="NAME", help="Format of the log.  [default: recognised by content]")
@click.option(
    "--tokenizer", metavar="NAME|PATH", help="What counts tokens.  [default: the model's own, or an estimate]"
)
@click.option("--lenient", is_flag=True, help="Count lines that cannot be read, and leave them out.")
def report(
    *,
    sources: tuple[str, ...],
    output: str | None,
    json_file: str | None,
    redact: bool,
    cache: str | None,
    capacity: str | None,
    policy: str,
    replicas: int,
    routing: str,
    isolate: str | None,
    situation: str | None,
    kv_bytes_per_token: int | None,
    price: str | None,
    prices: str | None,
    currency: str,
    rate: float | None,
    log_format: str | None,
    tokenizer: str | None,
    lenient: bool,
) -> None:
    """Show where the tokens of LOG are recomputed, and why.

    LOG is a file, a folder, or - for standard input; several are read as one log, in order of time. Every input token
    has exactly one reason. Without -o and --json a summary is printed. Ctrl-C reports what was read so far.
    """
    from functools import partial
    from pathlib import Path

    from prefold.analysis.analyse import Analysis, Options
    from prefold.analysis.caches.named import OWN, named_rules, parse_capacity
    from prefold.analysis.caches.spec import CacheSpec
    from prefold.analysis.comparison import ComparisonAside
    from prefold.analysis.encode import Encoder, encoded
    from prefold.analysis.situation import Situation
    from prefold.cli.inputs import shown
    from prefold.cli.log_progress import reading, tell_notes
    from prefold.cli.outputs import write_file
    from prefold.cli.pricing import BYTES_PER_TOKEN, load_prices

    bytes_per_token = kv_bytes_per_token or BYTES_PER_TOKEN
    name = cache or OWN
    rules = named_rules(name)
    grain = rules.granularity_tokens if rules else 1
    spec = CacheSpec(
        name=name,
        rules=rules,
        capacity=parse_capacity(capacity, bytes_per_token=bytes_per_token, block_tokens=grain) if capacity else None,
        policy=policy,
        replicas=replicas,
        routing=routing,
        isolate_tenants=isolate == "tenant",
    )
    options = Options(
        cache=spec,
        situation=Situation(situation) if situation else None,
        bytes_per_token=kv_bytes_per_token,
    )
    encoder = Encoder(tokenizer=tokenizer, isolate_tenants=isolate == "tenant")
    priced = partial(load_prices, price, prices, currency, rate)
    loaded = priced()
    compared = [CacheSpec(name=name, rules=named_rules(name)) for name in _COMPARED]
    with (
        reading(sources, lenient=lenient, log_format=log_format) as log,
        ComparisonAside(compared, priced) as comparison,
    ):
        analysis = Analysis(options, encoder, comparison, loaded)
        is_complete = _read(analysis, encoded(log, encoder, log))
        result = analysis.as_json([shown(source) for source in sources], log.notes)
        tell_notes(log.notes)
    result["complete"] = is_complete
    if redact:
        result = _redacted(result)
    if output:
        from prefold.analysis.report.page import render_html

        write_file(Path(output), render_html(result).encode())
        console(stderr=True).print(f"Wrote {output}.", markup=False)
    if json_file == "-":
        echo_json(result)
    elif json_file:
        import json

        write_file(Path(json_file), json.dumps(result, ensure_ascii=False).encode(errors="replace"))
    if not output and not json_file:
        from prefold.analysis.report.terminal import print_summary

        print_summary(result, console())
    if not is_complete:
        console(stderr=True).print("Stopped: these are the figures of the log so far.")
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def _read(analysis: Analysis, requests: Iterable[Request]) -> bool:
    """Take in a log; false if it was interrupted."""
    try:
        for request in requests:
            analysis.add(request)
    except KeyboardInterrupt:
        return False
    return True


def _redacted(result: dict[str, Any]) -> dict[str, Any]:
    import secrets

    from prefold.analysis.report.redact import redacted

    return redacted(result, key=secrets.token_bytes(32))
