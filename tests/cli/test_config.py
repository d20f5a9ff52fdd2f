"""Configuration: files, variables, precedence, and how faults in them are reported."""

import json
import tomllib
from pathlib import Path

import pytest


def user_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config-home" / "prefold" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return path


def shown(finished) -> dict[tuple[str, str], tuple[object, str, str]]:
    """`{(section, key): (value, source, origin)}` of `config show --json`."""
    report = json.loads(finished.stdout)
    assert 1 == report["schema_version"]
    return {
        (entry["section"], entry["key"]): (entry["value"], entry["source"], entry["origin"])
        for entry in report["settings"]
    }


def test_defaults(prefold) -> None:
    values = shown(prefold("config", "show", "--json"))
    assert (8000, "default", "") == values["serve", "port"]
    assert (None, "default", "") == values["serve", "model"]
    assert ("auto", "default", "") == values["", "color"]
    assert ("miss=2,hit=0.04", "default", "") == values["demo", "price"]
    # What one call does is not configuration.
    assert not {("size", "json"), ("demo", "json"), ("", "config-file"), ("", "version")} & values.keys()


def test_precedence(prefold, tmp_path: Path) -> None:
    """Flags, variables, the project's file, the user's file, defaults: each wins where those before it are silent."""
    user = user_file(tmp_path, 'color = "never"\n[serve]\nport = 1\nhost = "user"\norder = "fcfs"\n')
    (tmp_path / "prefold.toml").write_text('[serve]\nport = 2\nhost = "project"\n')
    values = shown(
        prefold(
            "--cache-dir",
            "here",
            "config",
            "show",
            "--json",
            environment={"PREFOLD_SERVE_PORT": "3", "PREFOLD_COLOR": ""},
        )
    )
    project = str(tmp_path / "prefold.toml")
    assert ("here", "flag", "--cache-dir") == values["", "cache-dir"]
    assert (3, "variable", "PREFOLD_SERVE_PORT") == values["serve", "port"]
    assert ("project", "file", project) == values["serve", "host"]
    assert ("fcfs", "file", str(user)) == values["serve", "order"]
    assert ("never", "file", str(user)) == values["", "color"]
    assert (64, "default", "") == values["serve", "max-running"]


def test_values_of_files_reach_the_command(prefold, tmp_path: Path) -> None:
    (tmp_path / "prefold.toml").write_text('[demo]\nquick = true\ncurrency = "EUR"\nprice = "miss=3,hit=0.3"\n')
    report = json.loads(prefold("demo", "--json", without=["torch"]).stdout)
    assert [3, 3, 3] == [scene["requests"] for scene in report["scenes"]]
    assert "EUR" == report["currency"]
    assert {"miss": 3.0, "hit": 0.3} == report["price_per_million"]
    flagged = prefold("demo", "--json", "--currency", "USD", without=["torch"])
    assert "USD" == json.loads(flagged.stdout)["currency"]


def test_keys_are_written_with_dashes_or_underscores(prefold, tmp_path: Path) -> None:
    (tmp_path / "prefold.toml").write_text('cache_dir = "a"\n[serve]\nkv-memory = "3GiB"\nmax_running = 5\n')
    values = shown(prefold("config", "show", "--json"))
    assert [
        "a",
        "3GiB",
        5,
    ] == [values["", "cache-dir"][0], values["serve", "kv-memory"][0], values["serve", "max-running"][0]]


def test_pyproject_is_read_where_there_is_no_prefold_toml(prefold, tmp_path: Path) -> None:
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text('[project]\nname = "other"\n[tool.prefold.serve]\nport = 4\n')
    assert (4, "file", f"{pyproject} [tool.prefold]") == shown(prefold("config", "show", "--json"))["serve", "port"]
    (tmp_path / "prefold.toml").write_text('color = "never"\n')
    assert (8000, "default", "") == shown(prefold("config", "show", "--json"))["serve", "port"]
    (tmp_path / "prefold.toml").unlink()
    pyproject.write_text('[project]\nname = "other"\n')
    assert (8000, "default", "") == shown(prefold("config", "show", "--json"))["serve", "port"]


def test_a_named_file_replaces_the_others(prefold, tmp_path: Path) -> None:
    (tmp_path / "prefold.toml").write_text("[serve]\nport = 5\n")
    named = tmp_path / "named.toml"
    named.write_text('[serve]\nhost = "named"\n')
    values = shown(prefold("--config-file", str(named), "config", "show", "--json"))
    assert ("named", "file", str(named)) == values["serve", "host"]
    assert (8000, "default", "") == values["serve", "port"]
    values = shown(prefold("config", "show", "--json", environment={"PREFOLD_CONFIG_FILE": str(named)}))
    assert "named" == values["serve", "host"][0]


def test_show_prints_a_file_that_gives_the_same_values(prefold, tmp_path: Path) -> None:
    (tmp_path / "prefold.toml").write_text(
        '[serve]\nhost = "quoted \\"host\\""\ndrain-timeout = 2.5\ntier = ["host=1GiB", "disk=kv,2GiB"]\n'
        "[demo]\nquick = true\n"
    )
    first = prefold("config", "show").stdout
    tomllib.loads(first)
    (tmp_path / "prefold.toml").write_text(first)
    second = prefold("config", "show", "--origin").stdout
    assert first.splitlines() == [line.partition("  # ")[0] for line in second.splitlines()]
    assert f"  # {tmp_path / 'prefold.toml'}" in second
    tomllib.loads(second)


def test_path_lists_where_files_are_looked_for(prefold, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    report = json.loads(prefold("config", "path", "--json").stdout)
    assert 1 == report["schema_version"]
    expected = [
        {"path": str(tmp_path / "prefold.toml"), "table": "", "exists": False},
        {"path": str(tmp_path / "pyproject.toml"), "table": "tool.prefold", "exists": True},
        {"path": str(tmp_path / "config-home" / "prefold" / "config.toml"), "table": "", "exists": False},
    ]
    assert expected == report["files"]
    lines = prefold("config", "path").stdout.splitlines()
    assert f"{tmp_path / 'prefold.toml'} (absent)" == lines[0]
    assert f"{tmp_path / 'pyproject.toml'} [tool.prefold]" == lines[1]


SECTIONS = (
    "demo, serve, size, diff, lint, canonicalize, order, breakpoints, render, report, simulate, doctor, watch-log, "
    "anonymise"
)


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        ("[serve]\nprot = 1\n", "FILE: serve.prot is unknown.", "Did you mean port?"),
        ("[serv]\nport = 1\n", "FILE: there is no section [serv].", "Did you mean serve?"),
        ("[config]\n", "FILE: there is no section [config].", f"The sections are {SECTIONS}."),
        ('colour = "never"\n', "FILE: colour is unknown.", "Did you mean color?"),
        ("serve = 8000\n", "FILE: serve is the number 8000.", "Write it as a section, [serve]."),
        ('[serve]\nport = "80"\n', 'FILE: serve.port is the text "80".', "Write an unquoted whole number."),
        ("[serve]\nport = true\n", "FILE: serve.port is the boolean true.", "Write an unquoted whole number."),
        ("[serve]\nport = 80.5\n", "FILE: serve.port is the number 80.5.", "Write an unquoted whole number."),
        ("[serve]\nhost = 5\n", "FILE: serve.host is the number 5.", "Write a text in quotes."),
        ("[serve]\nhost = ['a']\n", "FILE: serve.host is a list.", "Write a text in quotes."),
        ("[serve]\nhost = {a = 1}\n", "FILE: serve.host is a table.", "Write a text in quotes."),
        ("[serve]\nhost = 2026-01-01\n", "FILE: serve.host is the date or time 2026-01-01.", "Write a text in quotes."),
        ("[serve]\ndrain-timeout = '1'\n", 'FILE: serve.drain-timeout is the text "1".', "Write an unquoted number."),
        ("[demo]\nquick = 1\n", "FILE: demo.quick is the number 1.", "Write true or false."),
        ("[demo]\njson = true\n", "FILE: demo.json is unknown.", "Known here are quick, dtype, price, currency."),
        ("[serve]\nport = 70000\n", "FILE: serve.port: 70000 is not in the range", "See `prefold serve --help`."),
        ("color = 'red'\n", "FILE: color: 'red' is not one of", "See `prefold --help`."),
        ("[serve\n", "FILE is not valid TOML: Expected ']'", "See https://toml.io."),
    ],
)  # fmt: skip
def test_faults_name_file_and_key(prefold, tmp_path: Path, content: str, message: str, hint: str) -> None:
    path = tmp_path / "prefold.toml"
    path.write_text(content)
    finished = prefold("size", "--layers", "1", check=2)
    error, said = finished.stderr.splitlines()
    assert error.startswith("error: " + message.replace("FILE", str(path)))
    assert f"hint: {hint}" == said


def test_files_that_cannot_be_read(prefold, tmp_path: Path) -> None:
    finished = prefold("--config-file", "absent.toml", "size", check=2)
    assert finished.stderr.startswith("error: There is no configuration file absent.toml.\n")
    (tmp_path / "prefold.toml").write_bytes(b'color = "\xff"\n')
    finished = prefold("size", check=2)
    assert finished.stderr.startswith(f"error: {tmp_path / 'prefold.toml'} is not valid TOML: 'utf-8'")
    (tmp_path / "prefold.toml").unlink()
    (tmp_path / "prefold.toml").mkdir()
    finished = prefold("size", check=2)
    assert finished.stderr.startswith(f"error: {tmp_path / 'prefold.toml'} cannot be read: Is a directory.")
    (tmp_path / "prefold.toml").rmdir()
    (tmp_path / "pyproject.toml").write_text("[tool]\nprefold = 1\n")
    finished = prefold("size", check=2)
    assert finished.stderr.startswith(f"error: {tmp_path / 'pyproject.toml'} [tool.prefold] is not a table.\n")


def test_help_works_whatever_the_files_say(prefold, tmp_path: Path) -> None:
    (tmp_path / "prefold.toml").write_text("nonsense")
    prefold("--help")
    prefold("--version")
    completing = {"_PREFOLD_COMPLETE": "bash_complete", "COMP_WORDS": "prefold si", "COMP_CWORD": "1"}
    assert "plain,size\nplain,simulate\n" == prefold(environment=completing).stdout


def test_a_wrong_variable_is_wrong_usage(prefold) -> None:
    finished = prefold("config", "show", environment={"PREFOLD_SERVE_PORT": "high"}, check=2)
    assert "'high'" in finished.stderr


@pytest.mark.parametrize("written", ['"PF101, PF2"', '["PF101", "PF2"]'])
def test_a_list_is_a_text_with_commas_or_a_list(prefold, tmp_path: Path, written: str) -> None:
    (tmp_path / "prefold.toml").write_text(f"[lint]\nselect = {written}\n")
    assert ("PF101,PF2", "file") == shown(prefold("config", "show", "--json"))["lint", "select"][:2]
    (tmp_path / "a.txt").write_text("Now: 10:00\nSession ID: 8842\nYou are an agent.\n")
    found = prefold("lint", "a.txt", "--output-format", "concise", check=1)
    assert ["PF101"] == [line.split()[1] for line in found.stdout.splitlines()]


@pytest.mark.parametrize("written", ["[1]", "7", '[["PF1"]]'])
def test_a_list_holds_texts(prefold, tmp_path: Path, written: str) -> None:
    (tmp_path / "prefold.toml").write_text(f"[lint]\nselect = {written}\n")
    finished = prefold("lint", "-", stdin="x", check=2)
    assert "lint.select" in finished.stderr


def test_a_list_is_no_text_elsewhere(prefold, tmp_path: Path) -> None:
    (tmp_path / "prefold.toml").write_text('[serve]\nhost = ["a"]\n')
    finished = prefold("size", check=2)
    assert "serve.host is a list" in finished.stderr
