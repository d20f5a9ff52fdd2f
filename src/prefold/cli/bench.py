"""`prefold bench`: what an option costs and brings, measured on this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from prefold.cli.session import console, current_cache_folder, echo_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefold.engine.options import DType
    from prefold.engine.quantised.quality import Quality

_DTYPES: dict[str, DType] = {"fp32": "float32", "bf16": "bfloat16"}


@click.group()
def bench() -> None:
    """Measure what an option costs and brings, on this machine."""


@bench.command("kv-quality")
@click.argument("model", required=False)
@click.option(
    "--dtype",
    type=click.Choice(list(_DTYPES)),
    default="fp32",
    show_default=True,
    help="Of weights, activations and the reference's K/V.",
)
@click.option("--device", default="cpu", show_default=True, help="Where the model runs: cpu, cuda, cuda:1, ...")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads of the model.  [default: all cores]")
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")
def kv_quality(model: str | None, dtype: str, device: str, threads: int | None, as_json: bool) -> None:
    """Say what MODEL loses with K/V in fewer bits, and how many more tokens fit.

    MODEL is a Hugging Face folder, a .gguf file or a hub id; smollm2-135m-instruct without it. It reads some 3,400
    tokens of English, Python and Chinese that travel with prefold, then goes on from nine places in them by itself.
    """
    from prefold.cli.display import LoadingDisplay
    from prefold.engine.checkpoint import resolve
    from prefold.engine.options import EngineOptions
    from prefold.engine.quantised.quality import compare

    options = EngineOptions(dtype=_DTYPES[dtype], device=device, threads=threads)
    with LoadingDisplay(console(stderr=True)) as progress:
        checkpoint = resolve(model, cache_dir=current_cache_folder(), progress=progress)
        found = compare(checkpoint, options, lambda stage: progress(stage, 0, 0))
    if as_json:
        echo_json(
            {
                "schema_version": 1,
                "model": checkpoint.name,
                "dtype": options.dtype,
                "device": device,
                "kv": [{**asdict(quality), "tokens_per_gib": quality.tokens_per_gib} for quality in found],
            }
        )
    else:
        _show(checkpoint.name, options.dtype, found)


def _show(name: str, dtype: str, found: Sequence[Quality]) -> None:
    from rich.table import Table

    first = found[0]
    table = Table(
        title=f"{name}, {dtype}: K/V in fewer bits against K/V in {dtype}",
        caption=f"{first.tokens:,} tokens of text, of which the reference's perplexity is "
        f"{first.reference_perplexity:.3f}; {first.answers} answers of {first.answer_tokens} tokens",
    )
    for column in (
        "K/V",
        "tokens in 1 GiB",
        "logit error",
        "largest",
        "changed tokens",
        "perplexity",
        "equal in answers",
        "equal until",
    ):
        table.add_column(column, justify="left" if column == "K/V" else "right")
    for quality in found:
        table.add_row(
            quality.name,
            f"{quality.tokens_per_gib:,}",
            f"{quality.relative_error:.2%}",
            f"{quality.largest_error:.2f}",
            f"{quality.changed:.2%}",
            f"{quality.perplexity:.3f}",
            f"{quality.agreed:.1%}",
            f"token {quality.agreed_prefix:.1f}",
        )
    console().print(table)
