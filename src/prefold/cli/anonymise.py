"""`prefold anonymise`: a trace of a log that can be shared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from prefold.cli.log_options import log_options
from prefold.cli.session import console

if TYPE_CHECKING:
    from prefold.analysis.logs.log import Log

_SHORTEST_SECRET = 16  # characters: fewer can be tried out


@click.command()
@click.argument("sources", metavar="LOG|-...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    allow_from_autoenv=False,
    help="Where the trace goes; what is there is replaced.  [default: standard output]",
)
@click.option(
    "--key-env",
    metavar="NAME",
    help="Environment variable with a secret, so that exports made with it can be compared.  [default: a random key]",
)
@click.option("--rename-models", is_flag=True, help="Rename models and providers too, which loses rules and prices.")
@log_options
def anonymise(
    sources: tuple[str, ...],
    output: Path | None,
    key_env: str | None,
    rename_models: bool,
    log_format: str | None,
    tokenizer: str | None,
    lenient: bool,
) -> None:
    """Write a trace of LOG that can be shared.

    LOG is a file, a folder, or - for standard input; several are read as one log, in order of time.

    The trace simulates like the log. It has no text, no ids, no names but those of models and providers, and no dates.
    It shows lengths, which requests begin alike and how far, which belong together, the times between them, and what
    the provider counted.
    """
    import secrets
    import sys
    from contextlib import nullcontext

    from prefold.analysis.anonymise import LONGEST_KEY, Anonymiser
    from prefold.analysis.encode import Encoder, encoded
    from prefold.cli.log_progress import reading
    from prefold.cli.outputs import check_output, replacing
    from prefold.errors import InvalidRequest

    if output is not None:
        check_output(output, sources)
    key = secrets.token_bytes(LONGEST_KEY) if key_env is None else _key_in(key_env)
    anonymiser = Anonymiser(key, rename_models=rename_models, is_shared=key_env is not None)
    encoder = Encoder(tokenizer=tokenizer)
    with (
        reading(sources, log_format=log_format, lenient=lenient) as log,
        nullcontext(sys.stdout.buffer) if output is None else replacing(output) as file,
    ):
        file.write(anonymiser.header())
        for request in encoded(log, encoder, log):
            try:
                file.write(anonymiser.line(request))
            except InvalidRequest as error:  # it is too long to be read back
                log.refuse(request.record.place, error.message)
        _tell(log, is_exact=encoder.is_exact, forgot=anonymiser.forgot)


def _key_in(variable: str) -> bytes:
    """The key of a secret in an environment variable.

    Raises:
        UsageError: if it is not there, or too short.
    """
    import hashlib
    import os

    from prefold.errors import UsageError

    secret = os.environ.get(variable, "")
    if len(secret) < _SHORTEST_SECRET:
        raise UsageError(
            f"The environment variable {variable} holds {len(secret)} characters.",
            hint=f"Set it to a secret of at least {_SHORTEST_SECRET}.",
        )
    return hashlib.blake2b(secret.encode(errors="surrogateescape")).digest()


def _tell(log: Log, *, is_exact: bool, forgot: bool) -> None:
    from prefold.cli.log_progress import tell_notes

    talk = console(stderr=True)
    talk.print(f"{log.notes.records:,} requests.")
    tell_notes(log.notes)
    if not is_exact:
        talk.print("Token counts are an estimate.")
    if forgot:
        talk.print("The log shares more than can be remembered: what came back after long is taken for new.")
