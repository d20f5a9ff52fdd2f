"""What all commands inherit: colours and the cache folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prefold.cli.session import wants_color


@pytest.mark.parametrize(
    ("color", "environment", "is_terminal", "expected"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": "", "FORCE_COLOR": ""}, True, True),
        ("auto", {"NO_COLOR": "", "FORCE_COLOR": ""}, False, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_precedence_of_colours(color, environment, is_terminal, expected) -> None:
    assert expected == wants_color(color, environment, is_terminal=is_terminal)


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
    ],
)
def test_a_table_follows_it(prefold, arguments, environment, expected) -> None:
    finished = prefold(*arguments, "demo", "--quick", without=["torch"], environment={"TERM": "xterm", **environment})
    assert expected == ("\x1b[" in finished.stdout)


def test_json_is_never_coloured(prefold) -> None:
    finished = prefold("--color", "always", "demo", "--quick", "--json", without=["torch"])
    assert 1 == json.loads(finished.stdout)["schema_version"]


def test_the_cache_folder_is_handed_to_commands(prefold, tmp_path: Path) -> None:
    for name in ("tokenizers", "gguf"):
        pytest.importorskip(name)
    (tmp_path / "cache").write_text("a file where the folder should be")
    finished = prefold("--cache-dir", "cache", "demo", check=2)
    assert "'cache' is a file" in finished.stderr
    (tmp_path / "cache").unlink()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "models").write_text("a file where a folder must be made")
    finished = prefold("demo", environment={"PREFOLD_CACHE_DIR": "cache"}, check=2)
    assert "cache/models" in finished.stderr


@pytest.mark.parametrize(
    "arguments", [["providers", "anthropic"], ["providers"], ["simulate", "--synthetic", "rag:good,requests=20"]]
)
def test_nobody_reads_any_more(tmp_path: Path, clean_environment, arguments) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nowhere:
        finished = subprocess.run(
            [sys.executable, "-c", "from prefold.cli.main import main; main()", *arguments],
            cwd=tmp_path,
            env=clean_environment,
            stdout=nowhere,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
            check=False,
        )
    assert (141, "") == (finished.returncode, "".join(finished.stderr.splitlines(keepends=True)[2:]))
