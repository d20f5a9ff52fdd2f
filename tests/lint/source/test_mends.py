import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prefold.lint.findings import Finding
from prefold.lint.source.project import lint_source


def apply(text: str, findings: list[Finding]) -> str:
    for change in sorted((change for finding in findings for change in finding.fix), key=lambda change: -change.start):
        text = text[: change.start] + change.text + text[change.end :]
    return text


def program(expression: str, imports: str) -> str:
    return f'import {imports}\n\ndef build_system_prompt(profile, options):\n    return "资料：" + {expression}\n'


@pytest.mark.parametrize(
    ("expression", "imports", "mended"),
    [
        ("json.dumps(profile)", "json", "json.dumps(profile, sort_keys=True)"),
        ("json.dumps(profile,)", "json", "json.dumps(profile, sort_keys=True,)"),
        ("json.dumps((profile), indent=2)", "json", "json.dumps((profile), indent=2, sort_keys=True)"),
        ("json.dumps((profile))", "json", None),
        ("json.dumps(profile, sort_keys=False)", "json", None),
        ("orjson.dumps(profile)", "orjson", "orjson.dumps(profile, option=orjson.OPT_SORT_KEYS)"),
        ("fast.dumps(profile)", "orjson as fast", "fast.dumps(profile, option=fast.OPT_SORT_KEYS)"),
        ("orjson.dumps(profile, str)", "orjson", None),
        ("orjson.dumps(profile, option=orjson.OPT_INDENT_2)", "orjson", None),
        ("ujson.dumps(profile)", "ujson", "ujson.dumps(profile, sort_keys=True)"),
        ("simplejson.dumps(profile)", "simplejson", "simplejson.dumps(profile, sort_keys=True)"),
        ("rapidjson.dumps(profile)", "rapidjson", "rapidjson.dumps(profile, sort_keys=True)"),
        ("json.dumps(profile.input_schema)", "json", None),
        ("json.dumps(profile['parameters'])", "json", None),
        ("'The JSON schema is ' + json.dumps(profile)", "json", None),
        ("json.dumps({**profile, 'properties': options})", "json", None),
        ('", ".join(os.listdir(profile))', "os", '", ".join(sorted(os.listdir(profile)))'),
        ("str(os.listdir(profile))", "os", "str(sorted(os.listdir(profile)))"),
        ("str(list(os.scandir(profile)))", "os", None),  # entries of a folder cannot be compared
        ('"".join(glob.iglob(profile))', "glob", '"".join(sorted(glob.iglob(profile)))'),
        ("next(glob.iglob(profile))", "glob", None),  # a list is no iterator
        ("str(pathlib.Path(profile).glob('*').send(None))", "pathlib", None),
    ],
)
def test_mend(expression: str, imports: str, mended: str | None) -> None:
    text = program(expression, imports)
    [finding] = lint_source(text, "a.py")
    assert mended is not None or finding.fix == ()
    assert text.replace(expression, mended or expression) == apply(text, [finding])


@pytest.mark.parametrize(
    ("expression", "imports"),
    [
        ("json.dumps(profile, **options)", "json"),
        ("json.dumps(profile, **dict(sort_keys=True))", "json"),
        ("orjson.dumps(profile, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)", "orjson"),
        ("orjson.dumps(profile, None, orjson.OPT_SORT_KEYS)", "orjson"),
        ("orjson.dumps(profile, option=options)", "orjson"),
        ("simplejson.dumps(profile, item_sort_key=options)", "simplejson"),
        ("json.dumps([item.name for item in profile])", "json"),
        ("json.dumps([number for number in range(3)])", "json"),
    ],
)
def test_what_may_be_in_order_is_not_reported(expression: str, imports: str) -> None:
    assert [] == lint_source(program(expression, imports), "a.py")


def test_items_of_a_list_that_are_known_to_be_dicts_are_reported() -> None:
    for item in ("{**item}", "dict(item)"):
        [finding] = lint_source(program(f"json.dumps([{item} for item in profile])", "json"), "a.py")
        assert "PF305" == finding.rule


@pytest.mark.parametrize(
    ("name", "is_mended"),
    [("profile_text", True), ("schema_text", False), ("tool_spec", False), ("spectacle", True)],
)
def test_what_is_named_like_a_schema_is_not_sorted(name: str, is_mended: bool) -> None:
    text = f"import json\ndef f(value):\n    {name} = json.dumps(value)\n    system_prompt = {name}\n"
    [finding] = lint_source(text, "a.py")
    assert is_mended == bool(finding.fix)
    assert ("sort_keys=True" in finding.help) == is_mended


PROGRAMS = {
    "json": """
import json
def build_system_prompt(profile):
    return json.dumps(profile, indent=1)
called_from_outside = globals()["build_system_prompt"]
result = [called_from_outside({"b": 1, "a": 2}), called_from_outside({"a": 2, "b": 1})]
""",
    "orjson": """
import orjson
def build_system_prompt(profile):
    return "Profile: " + orjson.dumps(profile).decode()
called_from_outside = globals()["build_system_prompt"]
result = [called_from_outside({"b": 1, "a": 2}), called_from_outside({"a": 2, "b": 1})]
""",
    "listdir": """
import os
def build_system_prompt():
    names = os.listdir(".")
    names.remove("b.md")
    return f"{len(names)} skills: " + ", ".join(names)
result = [build_system_prompt(), "2 skills: a.md, c.md"]
""",
    "first of an iterator": """
import glob
def build_system_prompt():
    files = glob.iglob("[ab].md")
    system_prompt = next(files)
    return system_prompt + "".join(files)
result = [len(build_system_prompt()), 8]
""",
    "path in a loop": """
from pathlib import Path
def build_system_prompt():
    text = ""
    for file in Path().glob("*.md"):
        text += file.stem
    return text + "".join(file.stem for file in Path().iterdir())
result = [build_system_prompt(), "abcabc"]
""",
    "path, first": """
from pathlib import Path
def build_system_prompt():
    files = Path().glob("a.md")
    first = next(files, None)
    return first.name
result = [build_system_prompt(), "a.md"]
""",
    "set": """
WORDS = {"gamma", "alpha", "delta", "beta"}
def build_system_prompt():
    return ",".join(WORDS) + "".join(f"[{word}]" for word in WORDS) + " ".join(list(WORDS))
result = [build_system_prompt(), "alpha,beta,delta,gamma[alpha][beta][delta][gamma]alpha beta delta gamma"]
""",
    "set and numbers": """
WORDS = frozenset(("b", "a"))
def build_system_prompt():
    return "".join(f"{number}{word}" for number, word in enumerate(WORDS))
result = [build_system_prompt(), "0a1b"]
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_mended_program_runs_and_is_steady(name: str, tmp_path: Path) -> None:
    if name == "orjson":
        pytest.importorskip("orjson")
    for file in ("c.md", "a.md", "b.md"):
        (tmp_path / file).write_text("")
    findings = lint_source(PROGRAMS[name], "a.py")
    assert findings
    mended = apply(PROGRAMS[name], findings)
    assert [] == [finding for finding in lint_source(mended, "a.py") if finding.fix]
    for seed in ("1", "2"):
        [one, other] = run(mended, tmp_path, seed)
        assert one == other


def run(text: str, folder: Path, seed: str) -> list[object]:
    """The `result` of a program, run in a folder with a seed for the order of sets."""
    printing = f"{text}\nimport json\nprint(json.dumps(result))\n"
    command = [sys.executable, "-c", printing]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    result: list[object] = json.loads(done.stdout)
    return result
