"""`prefold demo`: three scenes with the prefix cache off and on."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import click

from prefold.cli.exit_codes import ExitCode
from prefold.cli.extras import INSTALL_HINT, missing_extra
from prefold.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from prefold.demo.engine import EnginePlayer
    from prefold.demo.report import Price
    from prefold.demo.scenes import Scene
    from prefold.engine.options import DType

_DTYPES: Mapping[str, DType] = {"fp32": "float32", "bf16": "bfloat16"}
_QUICK_REQUESTS = 3
_SIMULATED_CAPACITY = 65_536  # tokens; no scene fills it


@click.command()
@click.option("--quick", is_flag=True, help=f"Play the first {_QUICK_REQUESTS} requests of each scene only.")
@click.option(
    "--dtype",
    type=click.Choice(list(_DTYPES)),
    default="fp32",
    show_default=True,
    help="What the model computes in. fp32 promises equal answers; bf16 may round them apart.",
)
@click.option(
    "--price",
    metavar="miss=M,hit=H",
    default="miss=2,hit=0.04",
    show_default=True,
    help="Price of a million input tokens that a provider's cache missed and hit.",
)
@click.option("--currency", default="CNY", show_default=True, help="Currency of --price.")
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print JSON.")
@click.pass_context
def demo(context: click.Context, quick: bool, dtype: str, price: str, currency: str, as_json: bool) -> None:
    """Play three scenes with the prefix cache off and on.

    An agent that resends its growing context, one contract that is asked many questions, and a long persona with many
    short chats run on the default model: first so that every request reads its whole prompt, then so that no prefix is
    read twice. Takes about two minutes on two cores. Without the packages of the extra `engine` the scenes are
    simulated.
    """
    from prefold.cli.display import scene_display
    from prefold.cli.session import console
    from prefold.demo.machine import this_machine
    from prefold.demo.play import Player, SceneResult, play
    from prefold.demo.report import Report, Setup, as_table
    from prefold.demo.scenes import SCENES, load_scene
    from prefold.demo.simulated import SimulatedPlayer

    scenes = [load_scene(name) for name in SCENES]
    if quick:
        scenes = [scene.shortened(_QUICK_REQUESTS) for scene in scenes]
    data, talk = console(), console(stderr=True)
    rates = _parse_price(price, currency)
    engine = _load_engine(_DTYPES[dtype], talk)
    machine = this_machine()
    setup = Setup(machine, engine.name, dtype, engine.threads) if engine else Setup(machine)
    player: Player = engine or SimulatedPlayer(_SIMULATED_CAPACITY)
    results: list[SceneResult] = []
    interrupted = False
    try:
        for scene in scenes:
            with scene_display(scene, talk) as on_reply:
                results.append(play(scene, player, on_reply))
            if not as_json:
                data.print(as_table(results[-1], rates), "")
    except KeyboardInterrupt:
        interrupted = True
    report = Report(tuple(results), rates, setup, complete=not (quick or interrupted))
    if as_json:
        click.echo(json.dumps(report.as_object(), ensure_ascii=False, indent=2))
    else:
        data.print(*report.conclusions(), sep="\n", soft_wrap=True, markup=False)
    if interrupted:
        finished, left = scenes[: len(results)], scenes[len(results) :]
        talk.print(f"Stopped. Finished scenes: {_names(finished)}. Others: {_names(left)}.")
        context.exit(ExitCode.INTERRUPTED)
    if report.has_fault:
        context.exit(ExitCode.FINDINGS)


def _load_engine(dtype: DType, talk: Console) -> EnginePlayer | None:
    """The default model, or None where the packages to run it are not installed."""
    try:
        from prefold.demo.engine import EnginePlayer
    except ModuleNotFoundError as error:
        if missing_extra(error) is None:
            raise
        talk.print(f"The package {error.name} is not installed, so the scenes are simulated: no model runs.")
        talk.print(f"For the real thing: {INSTALL_HINT}", markup=False, soft_wrap=True)
        return None
    from prefold.cli.display import LoadingDisplay
    from prefold.cli.session import current_cache_folder

    with LoadingDisplay(talk) as progress:
        return EnginePlayer.load(dtype, current_cache_folder(), progress)


def _names(scenes: Sequence[Scene]) -> str:
    return ", ".join(scene.name for scene in scenes) or "none"


def _parse_price(text: str, currency: str) -> Price:
    """The prices in `miss=2,hit=0.04`."""
    from prefold.demo.report import Price

    amounts = {}
    for part in text.split(","):
        name, _, amount = part.partition("=")
        try:
            amounts[name.strip()] = float(amount)
        except ValueError:
            amounts[name.strip()] = math.nan
    if amounts.keys() != {"miss", "hit"} or not all(0 <= amount < math.inf for amount in amounts.values()):
        raise UsageError(f"--price is {text!r}.", hint="Write two numbers, as in miss=2,hit=0.04.")
    return Price(amounts["miss"], amounts["hit"], currency)
