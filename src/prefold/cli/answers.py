"""`prefold answers`: answers by meaning, seen, proven and administered."""

from __future__ import annotations

import click

from prefold.cli.answers_acts import audit, browse, delete, invalidate, share, show, vet, wrong
from prefold.cli.answers_bench import bench
from prefold.cli.answers_explain import explain
from prefold.cli.answers_report import report


@click.group()
def answers() -> None:
    """Prove, explain and administer answers by meaning.

    They are kept by the gateway, or by an application that opens a cache of its own. Whether they are served stands in
    the gateway's file: mode = "off", "shadow" or "on".
    """


for _command in (report, explain, bench, browse, show, vet, share, wrong, delete, invalidate, audit):
    answers.add_command(_command)
