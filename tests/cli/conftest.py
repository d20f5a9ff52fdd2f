"""The command line as users meet it: a process of its own, in an empty folder, without their configuration."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pytest

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
"""Makes packages look as if they were not installed."""

MAIN = "from prefold.cli.main import main; main()"


class Prefold(Protocol):
    """Runs `prefold` to its end."""

    def __call__(
        self,
        *arguments: str,
        environment: Mapping[str, str] = ...,
        without: Sequence[str] = ...,
        check: int | None = ...,
        stdin: str = ...,
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def clean_environment(tmp_path: Path) -> dict[str, str]:
    """The environment without anything that configures prefold or colours."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PREFOLD_") and name not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}
    }
    return {**kept, "XDG_CONFIG_HOME": str(tmp_path / "config-home"), "PYTHONWARNINGS": "error"}


@pytest.fixture
def prefold(tmp_path: Path, clean_environment: dict[str, str]) -> Prefold:
    """Run the command in the folder `tmp_path`; `check` is the exit code that it must have, `stdin` its input."""

    def run(
        *arguments: str,
        environment: Mapping[str, str] = {},
        without: Sequence[str] = (),
        check: int | None = 0,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        code = BLOCK.format(names=set(without)) + MAIN if without else MAIN
        finished = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path,
            env={**clean_environment, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        if check is not None:
            assert check == finished.returncode, finished.stdout + finished.stderr
        return finished

    return run
