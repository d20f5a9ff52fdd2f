"""Every example runs and prints, to the letter, what the file beside it says."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def test_the_teaching_implementations_are_there() -> None:
    assert {"block_cache.py", "radix_cache.py"} <= {example.name for example in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_prints_its_known_output(example: Path) -> None:
    finished = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False)
    assert (0, "") == (finished.returncode, finished.stderr)
    assert example.with_suffix(".out").read_text() == finished.stdout
