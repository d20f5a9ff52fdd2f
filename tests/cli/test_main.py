"""The command `prefold` itself: help, errors, exit codes, start-up."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

import prefold as package
from prefold.cli.extras import ENGINE_MODULES, missing_extra
from prefold.cli.main import COMMANDS
from prefold.cli.main import prefold as group
from prefold.cli.settings import configurable

REPOSITORY = Path(__file__).parents[2]

HEAVY = {
    "aiohttp",
    "asyncio",
    "jinja2",
    "numpy",
    "openai",
    "platformdirs",
    "prometheus_client",
    "rich",
    "safetensors",
    "tokenizers",
    "tomllib",
    "torch",
    "transformers",
    "uvicorn",
}


def all_commands() -> list[tuple[str, click.Command]]:
    """Every command with its path."""
    found: list[tuple[str, click.Command]] = []

    def visit(path: str, command: click.Command) -> None:
        found.append((path, command))
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                visit(f"{path} {name}", child)

    visit("prefold", group)
    return found


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"], []])
def test_start_up_imports_nothing_heavy(arguments: list[str], clean_environment: dict[str, str]) -> None:
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: sys.stderr.write('\\n'.join(sys.modules)))\n"
        "from prefold.cli.main import main\n"
        "main()\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=clean_environment, capture_output=True, text=True, check=True
    )
    modules = finished.stderr.split("\n")
    top = {module.partition(".")[0] for module in modules}
    if not arguments:
        # A bare call reads the configuration, as every command does.
        top -= {"platformdirs", "tomllib"}
    assert set() == top & HEAVY
    commands = {lazy.module for lazy in COMMANDS.values()}
    assert set() == commands & set(modules)
    assert {"prefold", "prefold.errors", "prefold.cli"} == {
        module for module in modules if module.startswith("prefold") and not module.startswith("prefold.cli.")
    }
    assert len(modules) < 250


def test_version(prefold) -> None:
    assert f"prefold {package.__version__}\n" == prefold("--version").stdout


def test_without_arguments_says_what_to_do_next(prefold) -> None:
    finished = prefold()
    assert "" == finished.stderr
    for command in ("prefold demo", "prefold serve", "prefold size", "prefold --help"):
        assert command in finished.stdout


def test_help_lists_every_command_in_the_words_of_its_own_help(prefold) -> None:
    text = prefold("--help").stdout
    for name, lazy in COMMANDS.items():
        command = group.get_command(click.Context(group), name)
        assert command is not None
        assert command.help is not None
        assert lazy.help == command.help.partition("\n")[0]
        assert f"  {name}" in text
        assert lazy.help in text


@pytest.mark.parametrize(("path", "command"), all_commands(), ids=[path for path, _ in all_commands()])
def test_every_command_and_option_is_documented(path: str, command: click.Command) -> None:
    assert command.help, f"{path} has no help"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{path} {parameter.opts[0]} has no help"
            assert parameter.help[0].isupper() or not parameter.help[0].isalpha()
            assert parameter.help.endswith((".", "]")), f"{path} {parameter.opts[0]}: {parameter.help}"
        else:
            for name in re.findall("[A-Z]+", parameter.make_metavar(click.Context(command))):
                assert name in (command.help or ""), f"{path} does not explain {name}"


@pytest.mark.parametrize(("path", "command"), all_commands(), ids=[path for path, _ in all_commands()])
def test_every_variable_is_named_after_its_option(path: str, command: click.Command, monkeypatch) -> None:
    """PREFOLD_SERVE_KV_MEMORY sets --kv-memory of `prefold serve`, and nothing is named otherwise."""
    prefix = path.replace(" ", "_").replace("-", "_").upper()
    context = click.Context(command, auto_envvar_prefix=prefix)
    for key, parameter in configurable(command).items():
        if isinstance(parameter, click.Option):
            monkeypatch.setenv(f"{prefix}_{key.upper()}", "1")
            assert "1" == parameter.resolve_envvar_value(context), f"{path} {parameter.opts[0]}"


def test_unknown_command_suggests_help(prefold) -> None:
    finished = prefold("serv", check=2)
    assert "" == finished.stdout
    assert finished.stderr.startswith("error: No such command 'serv'")
    assert finished.stderr.endswith("hint: See `prefold --help`.\n")


def test_wrong_usage_names_the_option_and_the_command(prefold) -> None:
    finished = prefold("serve", "--port", "high", check=2)
    assert "'--port'" in finished.stderr
    assert finished.stderr.endswith("hint: See `prefold serve --help`.\n")


def test_own_errors_come_with_their_hint(prefold) -> None:
    finished = prefold("demo", "--price", "cheap", check=2)
    assert "" == finished.stdout
    assert "error: --price is 'cheap'.\nhint: Write two numbers, as in miss=2,hit=0.04.\n" == finished.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kv-memory", "0"], "error: --kv-memory is 0\n"),
        (["--grid", "9", "--step-tokens", "8"], "exceeds --step-tokens 8\n"),
        (["--blend-memory", "1GiB"], "error: --blend-memory is set while blend is off\n"),
        (["--blend-recompute", "0.3"], "error: --blend-recompute is set while blend is off\n"),
        (["--policy", "fifo-ish"], "'--policy'"),
    ],
)
def test_what_an_engine_cannot_be_told_is_named_as_the_option(prefold, options: list[str], said: str) -> None:
    pytest.importorskip("torch")
    assert said in prefold("serve", *options, check=2).stderr


@pytest.mark.parametrize("module", ["torch", "uvicorn", "tokenizers"])
def test_serve_without_the_extra_says_what_to_install(prefold, module: str) -> None:
    if module != "torch":  # which is looked for first
        pytest.importorskip("torch")
    finished = prefold("serve", without=[module], check=2)
    assert f"error: This needs the package {module}, which is not installed." in finished.stderr
    assert "pip install 'prefold[engine]'" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_module_that_no_extra_brings_is_a_fault(prefold) -> None:
    assert missing_extra(ModuleNotFoundError("No module named 'surprise'", name="surprise")) is None
    finished = prefold("size", "--layers", "1", without=["prefold.cli.size", "json"], check=2)
    assert "Traceback" in finished.stderr
    assert "error: This is a fault of prefold." in finished.stderr


def test_the_extra_is_the_one_in_the_project_file() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    requirements = project["project"]["optional-dependencies"]["engine"]
    names = {requirement.partition(">")[0].replace("-", "_") for requirement in requirements}
    assert ENGINE_MODULES == names


def test_ctrl_c_ends_with_130_and_one_line(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    pipe = tmp_path / "never-written.toml"
    os.mkfifo(pipe)
    code = "from prefold.cli.main import main; print('started', flush=True); main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--config-file", str(pipe), "config", "path"],
        env=clean_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert "started\n" == process.stdout.readline()
        descriptor = os.open(pipe, os.O_WRONLY)  # returns when the command has begun to read
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        os.close(descriptor)
    assert (130, "Stopped.\n") == (process.returncode, errors)


@pytest.mark.parametrize("arguments", [["--help"], ["config", "show"]])
def test_a_reader_that_goes_away_is_no_error(arguments: list[str], clean_environment: dict[str, str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    finished = subprocess.run(
        [sys.executable, "-c", "from prefold.cli.main import main; main()", *arguments],
        env=clean_environment,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (141, "") == (finished.returncode, finished.stderr)


def test_shell_completion_knows_commands_and_options(prefold) -> None:
    completing = {"_PREFOLD_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    commands = prefold(environment={**completing, "COMP_WORDS": "prefold se"}).stdout
    assert "plain,serve\n" == commands
    options = prefold(environment={**completing, "COMP_WORDS": "prefold demo --qu", "COMP_CWORD": "2"}).stdout
    assert "plain,--quick\n" == options
    assert "_PREFOLD_COMPLETE=bash_complete" in prefold(environment={"_PREFOLD_COMPLETE": "bash_source"}).stdout
