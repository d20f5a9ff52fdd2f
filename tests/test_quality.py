"""The checks of code and package that have a program of their own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import prefold

REPOSITORY = Path(__file__).parents[1]
LONGEST_FILE = 600
"""Lines; what is longer is two things."""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "command",
    [
        ["-m", "ruff", "check", "."],
        ["-m", "ruff", "format", "--check", "."],
        ["-m", "mypy"],
        ["-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
    ],
    ids=["ruff check", "ruff format", "mypy", "import contracts"],
)
def test_tool_is_content(command: list[str]) -> None:
    finished = subprocess.run([sys.executable, *command], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert 0 == finished.returncode, finished.stdout + finished.stderr


def test_no_file_is_too_long() -> None:
    sources = [*(REPOSITORY / "src").rglob("*.py"), *(REPOSITORY / "src").rglob("*.cpp")]
    lengths = {source: len(source.read_text(encoding="utf-8").splitlines()) for source in sources}
    assert lengths
    assert {} == {source: length for source, length in lengths.items() if length > LONGEST_FILE}


def test_the_change_log_has_this_version() -> None:
    changes = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\S+)", changes, re.MULTILINE)
    assert prefold.__version__ == versions[0]
