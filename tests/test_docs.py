"""Every code block of the README files and the documentation is run.

What its language says decides how:

    bash      a script that must succeed, in an empty folder, with this environment's programs first
    console   commands after `$ `, each followed by what it prints; `...` stands for anything, within a line or, where
              it is a whole line, for any lines
    python    a script that must succeed
    toml      a configuration that prefold accepts, as prefold.toml or pyproject.toml, or as that of a gateway where the
              block is marked `<!-- toml: gateway -->`
    json      must be valid
    text      shown, not run: sample output

Where a page speaks of http://127.0.0.1:8000, a server runs, started by the very command in the README that is marked
`<!-- docs: server -->`; if that port is taken it gets another, and the page is read with that one in its place. Blocks
marked `<!-- ci: ... -->` set up an environment from nothing: `.ci/run` executes them, and a test here checks that.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from prefold.gateway.load_config import load_config

REPOSITORY = Path(__file__).parents[1]
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
DOCUMENTED_ADDRESS = "127.0.0.1:8000"
NOT_RUN = {"text"}

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\S*)[^\n]*\n(?P<code>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_MARK = re.compile(r"<!-- (\w+: \w+) -->\n\Z")
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        page: the file.
        line: where it begins.
        language: the word after the fence.
        mark: what the comment before it says, such as `ci: run`.
        code: the lines in it.
    """

    page: Path
    line: int
    language: str
    mark: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    """The code blocks of a page."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        before = text[: found.start()]
        mark = _MARK.search(before)
        indent = found["indent"]
        code = "".join(line.removeprefix(indent) for line in found["code"].splitlines(keepends=True))
        yield Block(page, before.count("\n") + 1, found["language"], mark[1] if mark else "", code)


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
RUN_HERE = [
    block
    for block in BLOCKS
    # The blocks of the Chinese README are those of the English one, as a test below makes sure.
    if not block.mark and block.language not in NOT_RUN and block.page.name != "README.zh.md"
]


@dataclass(frozen=True)
class Server:
    """A running `prefold serve`."""

    address: str


@pytest.fixture(scope="session")
def server(default_checkpoint: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server that the pages speak of."""
    (block,) = {block.code for block in BLOCKS if block.mark == "docs: server" and block.page.name == "README.md"}
    port = int(DOCUMENTED_ADDRESS.partition(":")[2])
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            probe.close()
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("server")
    log = folder / "log.txt"
    with log.open("w") as output:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {block.strip()} --port {port}"],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        while not is_healthy(port):
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield Server(f"127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(timeout=60)


def is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except OSError:
        return False


def environment(folder: Path) -> dict[str, str]:
    """This environment's programs first, and no configuration of the user's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFOLD_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    return {**kept, "PATH": path, "XDG_CONFIG_HOME": str(folder / "config-home"), "NO_COLOR": "1"}


def run(command: list[str], folder: Path) -> str:
    """What a command prints, which must succeed."""
    finished = subprocess.run(
        command,
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert 0 == finished.returncode, finished.stdout + finished.stderr
    return finished.stdout


def check_console(code: str, folder: Path) -> None:
    """Run the commands of a session and compare what they print."""
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        said = run(["bash", "-euo", "pipefail", "-c", command], folder)
        pattern = ""
        for line in expected.splitlines():
            if line.strip() == "...":
                pattern += r"(?:.*\n)*?"
            else:
                pattern += ".*".join(re.escape(piece) for piece in line.rstrip().split("...")) + r"[ ]*\n"
        assert re.fullmatch(pattern, said), f"$ {command}\n{said}"


@pytest.mark.parametrize("block", RUN_HERE, ids=str)
@pytest.mark.timeout(600)
def test_block(block: Block, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    code = block.code
    if DOCUMENTED_ADDRESS in block.page.read_text(encoding="utf-8") and block.language in {"bash", "console", "python"}:
        code = code.replace(DOCUMENTED_ADDRESS, request.getfixturevalue("server").address)
    if "curl " in code and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    match block.language:
        case "bash":
            run(["bash", "-euo", "pipefail", "-c", code], tmp_path)
        case "console":
            check_console(code, tmp_path)
        case "python":
            (tmp_path / "block.py").write_text(code, encoding="utf-8")
            run([sys.executable, "block.py"], tmp_path)
        case "toml" if block.mark == "toml: gateway":
            (tmp_path / "gateway.toml").write_text(code, encoding="utf-8")
            load_config(tmp_path / "gateway.toml", _Secrets())
        case "toml":
            name = "pyproject.toml" if "tool" in tomllib.loads(code) else "prefold.toml"
            (tmp_path / name).write_text(code, encoding="utf-8")
            assert name in run(["prefold", "config", "show", "--origin"], tmp_path)
        case "json":
            json.loads(code)
        case _:
            pytest.fail(f"{block} has the language {block.language!r}, for which nobody checks it")


class _Secrets(dict[str, str]):
    """An environment that holds every secret that a page speaks of."""

    def __missing__(self, name: str) -> str:
        return "0123456789abcdef" * 4

    def get(self, name: str, default: str | None = None) -> str:  # type: ignore[override]
        return self[name]


def test_there_are_blocks() -> None:
    assert {"bash", "console", "python", "toml", "json"} <= {block.language for block in RUN_HERE}


def test_ci_executes_the_two_set_up_commands() -> None:
    script = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    readme = [block for block in BLOCKS if block.page.name == "README.md"]
    assert {"ci: demo", "ci: run", "docs: server"} == {block.mark for block in readme if block.mark}
    for mark in ("demo", "run"):
        (block,) = (block for block in readme if block.mark == f"ci: {mark}")
        assert 1 == len(block.code.splitlines())
        assert f'"$(command_of {mark})' in script
        shown = subprocess.run(
            ["bash", REPOSITORY / ".ci" / "run", "--show", mark], capture_output=True, text=True, check=True
        ).stdout
        assert block.code == shown


def test_marks_are_known_and_the_same_in_both_languages() -> None:
    by_page = {
        name: [(block.language, block.mark, block.code) for block in BLOCKS if block.page.name == name]
        for name in ("README.md", "README.zh.md")
    }
    assert by_page["README.md"] == by_page["README.zh.md"]
    assert {"", "ci: demo", "ci: run", "docs: server", "toml: gateway"} == {block.mark for block in BLOCKS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = _LINK.findall(page.read_text(encoding="utf-8"))
    assert [] == [target for target in targets if not (page.parent / target).exists()]
