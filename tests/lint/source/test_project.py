import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.errors import UsageError
from prefold.lint.findings import Finding, Rule, Scope
from prefold.lint.source.project import Project, lint_source
from prefold.lint.source.rules import SOURCE_RULES

CORPUS = Path(__file__).parent / "corpus"
EXPECTATION = re.compile(r"# expect: (?P<rules>PF\d{3}(?:, PF\d{3})*)")


@dataclass(frozen=True)
class Snippet:
    """A small project: the text of each file."""

    name: str
    files: dict[str, str]

    @property
    def expected(self) -> Counter[tuple[str, int, str]]:
        """File, line and rule of each finding, as the trailing comments say."""
        return Counter(
            (file, number, rule)
            for file, text in self.files.items()
            for number, line in enumerate(text.split("\n"), 1)
            for match in EXPECTATION.finditer(line)
            for rule in match["rules"].split(", ")
        )

    def found(self) -> Counter[tuple[str, int, str]]:
        project = Project.of(self.files)
        return Counter(
            (file, line_of(text, finding), finding.rule)
            for file, text in self.files.items()
            for finding in lint_source(text, file, project)
        )


def line_of(text: str, finding: Finding) -> int:
    return text.count("\n", 0, finding.start) + 1


def read_snippets() -> list[Snippet]:
    snippets = []
    for path in sorted(CORPUS.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for part in re.split(r"(?m)^# snippet: ", text)[1:]:
            name, _, body = part.partition("\n")
            first, *others = re.split(r"(?m)^# file: (\S+)\n", body)
            files = dict(zip(others[::2], others[1::2], strict=True)) or {"main.py": first}
            snippets.append(Snippet(f"{path.stem}: {name}", files))
    return snippets


SNIPPETS = read_snippets()


def test_the_corpus_is_large_and_half_of_it_is_clean() -> None:
    clean = [snippet for snippet in SNIPPETS if not snippet.expected]
    assert len(SNIPPETS) >= 80
    assert 0.4 <= len(clean) / len(SNIPPETS) <= 0.6


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: snippet.name)
def test_corpus(snippet: Snippet) -> None:
    assert snippet.expected == snippet.found()


@pytest.mark.parametrize(
    "snippet", [snippet for snippet in SNIPPETS if snippet.expected], ids=lambda snippet: snippet.name
)
def test_a_fix_removes_its_finding_and_adds_none(snippet: Snippet) -> None:
    project = Project.of(snippet.files)
    findings = {file: lint_source(text, file, project) for file, text in snippet.files.items()}
    mended = {file: apply(text, findings[file]) for file, text in snippet.files.items()}
    left = Counter(finding.rule for found in findings.values() for finding in found if not finding.fix)
    again = Project.of(mended)
    assert left == Counter(finding.rule for file, text in mended.items() for finding in lint_source(text, file, again))


def is_mended(snippet: Snippet) -> bool:
    text = snippet.files.get("main.py", "")
    return any(finding.fix for finding in lint_source(text, "main.py"))


@pytest.mark.parametrize(
    "snippet", [snippet for snippet in SNIPPETS if is_mended(snippet)], ids=lambda snippet: snippet.name
)
def test_a_mended_snippet_starts_as_it_did(snippet: Snippet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = snippet.files["main.py"]
    mended = apply(text, lint_source(text, "main.py"))
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "none")
    try:
        exec(compile(text, "main.py", "exec"), {"__name__": "snippet", "__file__": "main.py"})
    except (ImportError, OSError) as error:
        pytest.skip(f"it needs what is not here: {error}")
    exec(compile(mended, "main.py", "exec"), {"__name__": "snippet", "__file__": "main.py"})


def apply(text: str, findings: list[Finding]) -> str:
    for change in sorted((change for finding in findings for change in finding.fix), key=lambda change: -change.start):
        text = text[: change.start] + change.text + text[change.end :]
    return text


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(
    ("line", "span"),
    [
        ('SYSTEM_PROMPT = "时间：" + str(time.time())', "time.time()"),
        ('SYSTEM_PROMPT = f"主机：{socket.gethostname()}，请回答。"', "socket.gethostname()"),
        ('SYSTEM_PROMPT = f"""第一行\n第二行 {os.getpid()!r:>8} 完"""', "os.getpid()"),
        ('SYSTEM_PROMPT = ("一" f"二 {len([1])} {uuid.uuid4().hex[:8]}" "三")', "uuid.uuid4()"),
        ('SYSTEM_PROMPT = f"""\n{", ".join(sorted(os.listdir(".")) + os.listdir("文件"))}"""', 'os.listdir("文件")'),
    ],
)
def test_spans_are_characters_of_the_file(line: str, span: str, mark: str, line_end: str) -> None:
    text = mark + f"import os, socket, time, uuid\n# 说明：中文与 🙂\n{line}\n".replace("\n", line_end)
    [finding] = lint_source(text, "a.py")
    assert span == text[finding.start : finding.end]


def test_a_finding_tells_the_way_of_the_value() -> None:
    files = {
        "shop/clock.py": "import time\n\ndef stamp():\n    return time.time()\n",
        "shop/bot.py": (
            "from openai import OpenAI\nfrom shop.clock import stamp\n\n"
            "def ask(question):\n    head = f'At {stamp()}'\n"
            "    return OpenAI().responses.create(model='gpt-5', instructions=head, input=question)\n"
        ),
    }
    project = Project.of(files)
    assert [] == lint_source(files["shop/bot.py"], "shop/bot.py", project)
    [finding] = lint_source(files["shop/clock.py"], "shop/clock.py", project)
    assert "`time.time()` reads the clock and flows into instructions= of OpenAI.responses.create." == finding.message
    assert (
        "returned by `stamp` (shop/bot.py, line 5)",
        "flows through `head` (shop/bot.py, line 5)",
        "into instructions= of OpenAI.responses.create (shop/bot.py, line 6)",
    ) == finding.notes


def test_a_date_is_said_to_change_once_a_day() -> None:
    [finding] = lint_source("import datetime\nSYSTEM_PROMPT = f'{datetime.date.today()}'\n", "a.py")
    assert "`datetime.date.today()` changes once a day and flows into `SYSTEM_PROMPT`." == finding.message
    assert "once a day" not in lint_source("import time\nSYSTEM_PROMPT = time.ctime()\n", "a.py")[0].message


def test_a_template_is_shown_at_the_placeholder() -> None:
    text = f'SYSTEM_PROMPT = "Session {{session_id}}.\\n{"Rules. " * 20}"\n'
    [finding] = lint_source(text, "a.py")
    assert "{session_id}" == text[finding.start : finding.end]
    assert "in its first lines" in RULES[finding.rule].summary


RULES = {rule.id: rule for rule in SOURCE_RULES}


def test_every_rule_has_a_snippet() -> None:
    assert set(RULES) == {rule for snippet in SNIPPETS for _, _, rule in snippet.expected}


@pytest.mark.parametrize("rule", SOURCE_RULES, ids=lambda rule: rule.id)
def test_a_rule_is_explained(rule: Rule) -> None:
    assert Scope.SOURCE is rule.scope
    assert rule.before != rule.after
    assert rule.summary.endswith(".")
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
    for example in (rule.before, rule.after):
        compile(example, rule.id, "exec")


def test_only_rules_said_to_be_fixable_are_fixed() -> None:
    fixed = {
        finding.rule
        for snippet in SNIPPETS
        for file, text in snippet.files.items()
        for finding in lint_source(text, file, Project.of(snippet.files))
        if finding.fix
    }
    assert {rule.id for rule in SOURCE_RULES if rule.is_fixable} == fixed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = (2\n", "line 2, column 5"),
        ("def f(:\n", "line 1"),
        ("x = '\0'\n", "a.py is not valid Python"),
        ("x = " + "(" * 10_000 + ")" * 10_000, "a.py is"),
        ("x = " + "-" * 100_000 + "1", "a.py is"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        lint_source(text, "a.py")
    assert caught.value.hint


def test_a_broken_file_does_not_hide_what_is_in_others() -> None:
    files = {"broken.py": "def", "good.py": "import os\nfrom broken import x\nSYSTEM_PROMPT = f'{os.getpid()}{x}'\n"}
    assert ["PF307"] == [finding.rule for finding in lint_source(files["good.py"], "good.py", Project.of(files))]


def test_of_a_long_chain_of_calls_every_clock_is_found() -> None:
    count = 400
    calls = "".join(
        f"def f{number}(q):\n    x = f'{{time.time()}} {{f{number + 1}(q)}}'\n"
        f"    return client.responses.create(model='m', instructions=x, input=q)\n"
        for number in range(count)
    )
    findings = lint_source(f"import time\nfrom openai import OpenAI\nclient = OpenAI()\n{calls}", "a.py")
    assert ["PF301"] * count == [finding.rule for finding in findings]


def test_a_call_that_is_first_met_deep_inside_others_is_still_read_in_full() -> None:
    chain = "".join(f"def f{number}():\n    return f{number + 1}()\n" for number in range(9))
    text = f"import time\n{chain}def f9():\n    return clock()\ndef clock():\n    return time.time()\n"
    assert ["PF301"] == [finding.rule for finding in lint_source(f"{text}f0()\nSYSTEM_PROMPT = f9()\n", "a.py")]


@pytest.mark.parametrize(
    "line",
    [
        'client.responses.create(model="m", input=[{"role": "developer", "content": f"{time.time()} You help."}])',
        "client.models.generate_content(model='m', contents=f'{time.time()} {RULES}')",
        "client.responses.create(model='m', input=f'{time.time()} {RULES}')",
        "llm.invoke(f'{time.time()} {RULES}')",
        "llm.complete(f'{time.time()} {RULES}')",
        "Agent(role='x', goal=f'{time.time()} y')",
    ],
)
def test_a_file_is_read_whatever_it_calls_a_prompt(line: str) -> None:
    text = f"import time\nfrom crewai import Agent\nRULES = '{'Be brief. ' * 30}'\n{line}\n"
    assert ["PF301"] == [finding.rule for finding in lint_source(text, "a.py")]


RULES_TEXT = "Be brief. " * 100


def test_the_cost_is_told_where_it_is_known() -> None:
    [known] = lint_source(f"import time\nSYSTEM_PROMPT = f'{{time.time()}} {RULES_TEXT}'\n", "a.py")
    [unknown] = lint_source("import time\nSYSTEM_PROMPT = f'{time.time()}' + RULES\n", "a.py")
    assert known.lost_tokens is not None
    assert 150 <= known.lost_tokens <= 400
    assert unknown.lost_tokens is None


CLOCK_AT_THE_END = "import time\nSYSTEM_PROMPT = time.ctime()\n"


@pytest.mark.parametrize(
    "text",
    [
        "x = " + " + ".join(["y"] * 2_000),
        "x = " + "[" * 90 + "]" * 90,
        "x = " + "f(" * 90 + ")" * 90,
        "if x:\n    pass\n" + "elif x:\n    pass\n" * 800,
        "\n".join("    " * depth + "if x:" for depth in range(90)) + "\n" + "    " * 90 + "pass",
        "\n".join(f"def f{number}(x):\n    return f{number + 1}(x) + f{number + 2}(x)" for number in range(200)),
        "def f(x):\n    return f(g(x))\ndef g(x):\n    return g(f(x))\nf(f)",
        "class A(B):\n    x = A\nclass B(A):\n    def y(self):\n        self.z = self.y().z\n        return self",
        "x = y = z = lambda: x(y(z()))\nx()",
        "d = {}\n" + "d = {'a': d, 'b': d}\n" * 40,
        "d = {}\nif d:\n" + "    d = {'a': d, 'b': d}\n" * 40 + "else:\n" + "    d = [d, d]\n    d = {'a': d}\n" * 40,
        "d = 1\nif d:\n" + "    d = [d, d]\n" * 40 + "else:\n" + "    d = [d, d]\n" * 40,
        "for a in b:\n for c in d:\n  for e in f:\n   for g in h:\n    for i in j:\n     x = a, x, c, x, e, x",
    ],
    ids=range(13),
)
def test_strange_programs_are_read_to_the_end(text: str) -> None:
    text = f"{text}\n{CLOCK_AT_THE_END}"
    assert ["PF301"] == [finding.rule for finding in lint_source(text, "a.py")]


def test_imports_in_a_circle() -> None:
    files = {
        "one.py": "from two import b\nimport time\na = time.time()\nSYSTEM_PROMPT = f'{b}'\n",
        "two.py": "import one\nb = 'x'\ndef build_system_prompt():\n    return f'{one.a}'\n",
    }
    project = Project.of(files)
    assert ["PF301"] == [finding.rule for finding in lint_source(files["one.py"], "one.py", project)]
    assert [] == lint_source(files["two.py"], "two.py", project)


def test_the_nearest_file_of_a_name_is_imported() -> None:
    app = "from prompts import head\nSYSTEM_PROMPT = head\n"
    files = {
        "a/prompts.py": "import uuid\nhead = str(uuid.uuid4())\n",
        "a/app.py": app,
        "b/prompts.py": "head = 'You are a cook.'\n",
        "b/app.py": app,
    }
    project = Project.of(files)
    assert [1, 0, 0, 0] == [len(lint_source(text, file, project)) for file, text in files.items()]


@pytest.mark.parametrize(
    ("sql", "is_found"),
    [
        ("SELECT name FROM tools", True),
        ("select name from tools where kind = %s", True),
        ("SELECT name FROM tools ORDER BY name", False),
        ("SELECT count(*) FROM tools", False),
        ("SELECT prompt FROM tenants WHERE tenant_id = ?", False),
        ("SELECT name FROM tools LIMIT 1", False),
        ("SELECT name FROM tools LIMIT 10", True),
        ("INSERT INTO tools VALUES (1)", False),
    ],
)
def test_unordered_queries(sql: str, is_found: bool) -> None:
    text = f"def build_system_prompt(c):\n    return str([row for row in c.execute({sql!r})])\n"
    assert (["PF306"] if is_found else []) == [finding.rule for finding in lint_source(text, "a.py")]


@settings(max_examples=50, deadline=None)
@given(
    st.permutations(["import time", "def f(x):\n    return x", "y = f(time.time())", "SYSTEM_PROMPT = f(y)"]),
    st.text(alphabet=" \t\n#'\"\\(){}[]:=.,xfé中", max_size=40),
)
def test_any_text_is_read_or_refused(lines: list[str], noise: str) -> None:
    text = "\n".join([*lines, noise])
    try:
        findings = lint_source(text, "a.py")
    except UsageError:
        return
    assert all(0 <= finding.start < finding.end <= len(text) for finding in findings)
