"""`prefold serve`: a model behind an OpenAI-compatible server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from prefold.core.policies import POLICIES
from prefold.errors import UsageError

if TYPE_CHECKING:
    from prefold.engine.options import DType, KVDType

_DTYPES: dict[str, DType] = {"bf16": "bfloat16", "fp32": "float32", "bfloat16": "bfloat16", "float32": "float32"}

_KV_DTYPES: dict[str, KVDType] = {**_DTYPES, "int8": "int8", "int4": "int4", "fp8": "fp8", "": ""}

_FIELD = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")

_WITH_CONFIG = frozenset({"config", "host", "port", "log_level"})


@click.command()
@click.argument("model", required=False)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Serve as a gateway, in front of the servers that FILE (TOML) names.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 for any free one.")
@click.option("--served-model-name", metavar="NAME", help="What clients call the model.  [default: its own name]")
@click.option(
    "--dtype", type=click.Choice(list(_DTYPES)), default="bf16", show_default=True, help="Of weights and activations."
)
@click.option("--device", default="cpu", show_default=True, help="Where the model runs: cpu, cuda, cuda:1, ...")
@click.option("--kv-memory", metavar="SIZE", default="2GiB", show_default=True, help="Memory for K/V.")
@click.option(
    "--kv-dtype",
    type=click.Choice([name for name in _KV_DTYPES if name]),
    help="How K/V are kept: int8 holds about twice the tokens of bf16, int4 four times as many, at some loss.  "
    "[default: as --dtype]",
)
@click.option(
    "--tier",
    multiple=True,
    metavar="WHERE",
    help="Keep K/V that leaves the memory for it: host=8GiB, disk=FOLDER,50GiB[,ttl=3d], redis://HOST:6379/0, "
    "s3://BUCKET/PREFIX. May be given several times.",
)
@click.option(
    "--tier-write",
    type=click.Choice(["evict", "through"]),
    default="evict",
    show_default=True,
    help="When it goes to the tiers: as it is evicted, or also as soon as it is computed.",
)
@click.option(
    "--step-tokens", type=click.IntRange(min=1), default=1024, show_default=True, help="Most tokens in a step."
)
@click.option(
    "--max-running", type=click.IntRange(min=1), default=64, show_default=True, help="Most answers at a time."
)
@click.option(
    "--order",
    type=click.Choice(["lpm", "fcfs"]),
    default="lpm",
    show_default=True,
    help="Who goes first: the longest cached prefix, or the first to come.",
)
@click.option(
    "--max-overtakes",
    type=click.IntRange(min=0),
    default=64,
    show_default=True,
    help="How often a request may be overtaken under lpm.",
)
@click.option(
    "--grid",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Cut hits and chunks of prompts at multiples of this many tokens. A prompt that runs alone, on a prefix that "
    "came from prompts, then has the same logits to the bit, cold and warm.",
)
@click.option(
    "--policy",
    type=click.Choice(sorted(POLICIES)),
    default="default",
    show_default=True,
    help="Who is evicted from the cache.",
)
@click.option(
    "--pin-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Prompts to compute and pin before clients are let in: chat requests in JSON or JSONL.",
)
@click.option(
    "--pin-limit",
    type=click.FloatRange(0, 0.9),
    default=0.5,
    show_default=True,
    help="Share of the K/V memory that pins may hold.",
)
@click.option(
    "--kernel",
    type=click.Choice(["auto", "native", "torch"]),
    default="auto",
    show_default=True,
    help="What the model runs on: a kernel in C++ for CPUs, compiled on first use, or torch's own.",
)
@click.option(
    "--blend",
    is_flag=True,
    help="Reuse the chunks that requests mark, wherever they stand in the prompt. Their answers are approximate.",
)
@click.option(
    "--blend-recompute",
    type=click.FloatRange(0, 1),
    default=0.15,
    show_default=True,
    help="Share of a reused chunk's tokens that is computed all the same.",
)
@click.option("--blend-memory", metavar="SIZE", default="512MiB", show_default=True, help="Memory for chunks.")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads of the model.  [default: all cores]")
@click.option(
    "--kv-events",
    metavar="ADDRESS",
    default="",
    help="Tell routers which blocks are cached, over ZMQ as vLLM does: tcp://127.0.0.1:5557.  [default: tell nobody]",
)
@click.option(
    "--kv-replay", metavar="ADDRESS", default="", help="Where they can ask for what they missed: tcp://127.0.0.1:5558."
)
@click.option(
    "--role",
    type=click.Choice(["both", "prefill", "decode"]),
    default="both",
    show_default=True,
    help="Compute prompts for other engines, or take over from such ones, through a tier that they share.",
)
@click.option(
    "--drain-timeout",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds that running requests may take to finish after Ctrl-C or SIGTERM.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="What is logged to standard error.",
)
@click.pass_context
def serve(
    context: click.Context,
    /,
    model: str | None,
    config: Path | None,
    host: str,
    port: int,
    served_model_name: str | None,
    drain_timeout: float,
    log_level: str,
    dtype: str,
    kv_memory: str,
    kv_dtype: str | None,
    pin_file: Path | None,
    **options: Any,
) -> None:
    """Serve MODEL over HTTP.

    MODEL is a Hugging Face folder, a .gguf file or a hub id; smollm2-135m-instruct without it. The server speaks
    OpenAI's API under /v1, and never reads a prompt prefix twice while it is in memory.

    With --config it is a gateway: it sends each request where its prefix is already, keeps tenants apart, and counts
    what they use. What stands in front of, and all the rest, is said in FILE.
    """
    import logging

    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if config is not None:
        from prefold.cli.gateway import serve_gateway

        _check_given(context)
        is_given = {name: _is_given(context, name) for name in ("host", "port")}
        serve_gateway(
            config,
            host=host if is_given["host"] else None,
            port=port if is_given["port"] else None,
            log_level=log_level,
        )
        return

    # Not before: a gateway in front of other servers runs where there is no torch.
    from prefold.cli.display import LoadingDisplay
    from prefold.cli.session import console, current_cache_folder
    from prefold.core.units import parse_bytes
    from prefold.engine.checkpoint import resolve
    from prefold.engine.loading import load_engine
    from prefold.engine.options import EngineOptions
    from prefold.engine.worker import EngineWorker
    from prefold.server import run
    from prefold.server.app import PrefoldApp

    try:
        engine_options = EngineOptions(
            dtype=_DTYPES[dtype],
            kv_memory=parse_bytes(kv_memory),
            kv_dtype=_KV_DTYPES[kv_dtype or ""],
            tiers=options.pop("tier"),
            blend_memory=parse_bytes(options.pop("blend_memory")),
            **options,
        )
    except UsageError as error:
        raise UsageError(_with_options(context, error.message), hint=_with_options(context, error.hint)) from None
    listener = run.bind(host, port)  # before the model is loaded: a port that is taken is known at once
    with LoadingDisplay(console(stderr=True)) as progress:
        folder = current_cache_folder()
        checkpoint = resolve(model, cache_dir=folder, progress=progress)
        progress(f"Loading {checkpoint.name}", 0, 0)
        worker = EngineWorker(lambda: load_engine(checkpoint, engine_options, cache_folder=folder, progress=progress))
        worker.start()
        names = tuple(dict.fromkeys(name for name in (served_model_name, checkpoint.name, model) if name))
        app = PrefoldApp(worker, names)
        if pin_file is not None:
            app.pin(pin_file, progress)
    room = f"{worker.engine.cache.capacity:,} tokens"
    run.serve(
        app,
        worker,
        listener,
        drain_timeout=drain_timeout,
        log_level=log_level,
        on_ready=lambda: click.echo(f"Serving {names[0]} at {run.url_of(listener)}/v1 (K/V room for {room})", err=True),
    )


def _with_options(context: click.Context, text: str) -> str:
    """An error about fields of `EngineOptions`, with the options that are meant."""
    return _FIELD.sub(lambda name: _option(name[0]) if name[0] in context.params else name[0], text)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) not in (ParameterSource.DEFAULT, None)


def _check_given(context: click.Context) -> None:
    """Refuse options of the engine beside --config, which has a table for it."""
    for name in context.params.keys() - _WITH_CONFIG:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"--config is given together with {'MODEL' if name == 'model' else _option(name)}.",
                hint="describe the engine in the file, in its table [engine]",
            )
