"""`prefold size`: memory that the keys and values of a model take."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from prefold.cli.session import console, current_cache_folder

if TYPE_CHECKING:
    from prefold.engine.model_config import ModelConfig
    from prefold.engine.size import KVShape

_COMMON_CONTEXTS = (4096, 8192, 16384, 32768, 65536, 131072)
_LONGEST_COMMON_CONTEXT = _COMMON_CONTEXTS[-1]


@click.command()
@click.argument("model", required=False)
@click.option("--context", type=click.IntRange(min=1), help="Tokens of a context.  [default: the model's own length]")
@click.option("--kv-dtype", help="Type of the numbers kept, such as bf16, fp8 or int4.  [default: the model's own]")
@click.option("--memory", metavar="SIZE", help="Memory for K/V, such as 80GiB: also say how many requests fit it.")
@click.option("--layers", type=click.IntRange(min=1), help="Without MODEL: decoder layers.")
@click.option("--kv-heads", type=click.IntRange(min=1), help="Without MODEL: K/V heads per layer.")
@click.option("--head-dim", type=click.IntRange(min=1), help="Without MODEL: width of a head.")
@click.option(
    "--kv-lora-rank", type=click.IntRange(min=1), help="Without MODEL, latent attention: width of the latent."
)
@click.option("--rope-head-dim", type=click.IntRange(min=1), help="Without MODEL, latent attention: rotated width.")
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")
def size(
    model: str | None,
    context: int | None,
    kv_dtype: str | None,
    memory: str | None,
    layers: int | None,
    kv_heads: int | None,
    head_dim: int | None,
    kv_lora_rank: int | None,
    rope_head_dim: int | None,
    as_json: bool,
) -> None:
    """Print the K/V bytes of MODEL per token and per context.

    MODEL is a Hugging Face folder, a config.json, a .gguf file, a hub id (only its config.json is fetched) or
    smollm2-135m-instruct. Without it, --layers with --kv-heads and --head-dim, or with --kv-lora-rank and
    --rope-head-dim, describe one.
    """
    from prefold.core.units import parse_bytes
    from prefold.engine.size import KVShape, canonical_dtype

    described = {
        "--layers": layers,
        "--kv-heads": kv_heads,
        "--head-dim": head_dim,
        "--kv-lora-rank": kv_lora_rank,
        "--rope-head-dim": rope_head_dim,
    }
    config = _read_model(model, described)
    shape = KVShape.of_model(config) if config else _described_shape(described)
    report = _report(
        shape,
        model=model,
        dtype=canonical_dtype(kv_dtype or (config.torch_dtype if config else "bfloat16")),
        context=context or (config.context_length if config else _LONGEST_COMMON_CONTEXT),
        memory=None if memory is None else parse_bytes(memory),
        note=config.partial_attention if config else "",
    )
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        _print_table(report)


def _read_model(model: str | None, described: dict[str, int | None]) -> ModelConfig | None:
    from prefold.errors import UsageError

    given = [option for option, value in described.items() if value is not None]
    if model is None:
        return None
    if given:
        raise UsageError(f"{given[0]} describes a model, but MODEL is given too.", hint="Give one or the other.")
    from prefold.cli.display import LoadingDisplay
    from prefold.engine.checkpoint import resolve_config

    with LoadingDisplay(console(stderr=True)) as progress:
        return resolve_config(model, cache_dir=current_cache_folder(), progress=progress)


def _described_shape(described: dict[str, int | None]) -> KVShape:
    from prefold.engine.size import KVShape
    from prefold.errors import UsageError

    match {option: value for option, value in described.items() if value is not None}:
        case {"--layers": layers, "--kv-heads": kv_heads, "--head-dim": head_dim, **rest} if not rest:
            return KVShape.of_heads(layers, kv_heads, head_dim)
        case {"--layers": layers, "--kv-lora-rank": rank, "--rope-head-dim": rope_head_dim, **rest} if not rest:
            return KVShape.of_latent(layers, rank, rope_head_dim)
        case given:
            raise UsageError(
                f"A model is not described by {', '.join(given)}." if given else "There is neither MODEL nor a shape.",
                hint="Give MODEL, or --layers --kv-heads --head-dim, or --layers --kv-lora-rank --rope-head-dim.",
            )


def _report(
    shape: KVShape, *, model: str | None, dtype: str, context: int, memory: int | None, note: str
) -> dict[str, Any]:
    """The answer as `--json` prints it; sizes in bytes, contexts in tokens."""

    def row(tokens: int) -> dict[str, int]:
        sizes = {"tokens": tokens, "bytes": shape.bytes_for(tokens, dtype)}
        return sizes if memory is None else {**sizes, "requests": shape.requests_in(memory, tokens, dtype)}

    return {
        "schema_version": 1,
        "model": model,
        "attention": shape.attention,
        "layers": shape.layers,
        "kv_dtype": dtype,
        "bytes_per_token": shape.bytes_per_token(dtype),
        "memory": memory,
        "context": row(context),
        "contexts": [row(tokens) for tokens in _COMMON_CONTEXTS],
        "note": f"Upper bound: {note}." if note else None,
    }


def _print_table(report: dict[str, Any]) -> None:
    from rich.table import Table

    from prefold.core.units import format_bytes

    memory = report["memory"]
    table = Table(title="K/V memory", caption=report["note"])
    table.add_column("tokens", justify="right")
    table.add_column("K/V", justify="right")
    if memory is not None:
        table.add_column(f"requests in {format_bytes(memory)}", justify="right")
    table.add_row("1", format_bytes(report["bytes_per_token"]), end_section=True)
    for row in report["contexts"]:
        if row == report["context"]:
            continue  # a line of its own, the last one
        table.add_row(*_cells(row))
    table.add_section()
    table.add_row(*_cells(report["context"]), style="bold")

    described = f"{report['model'] or 'Model'}: {report['layers']} layers, {report['attention']}, {report['kv_dtype']}"
    data = console()
    data.print(described, markup=False)
    data.print(table)


def _cells(row: dict[str, int]) -> list[str]:
    from prefold.core.units import format_bytes

    cells = [f"{row['tokens']:,}", format_bytes(row["bytes"])]
    return [*cells, f"{row['requests']:,}"] if "requests" in row else cells
