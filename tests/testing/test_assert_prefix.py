"""The helper for test runners other than pytest."""

import subprocess
import sys
from pathlib import Path

import pytest

from prefold.errors import UsageError
from prefold.prompts.fingerprints.lock import LockFile
from prefold.testing import assert_prefix


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the environment that decides anything here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PREFOLD_UPDATE", raising=False)


def accept(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("PREFOLD_UPDATE", "1")
        assert_prefix(name, text)


def test_new_accepted_same_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AssertionError, match=r"'rules' is not in prefold.lock.json.*\n.*PREFOLD_UPDATE=1"):
        assert_prefix("rules", "客服规则：简短。")
    accept(monkeypatch, "rules", "客服规则：简短。")
    assert capsys.readouterr().err.startswith("prefold: accepted rules: new, pf1:")
    assert_prefix("rules", "客服规则：简短。")
    assert_prefix("rules", lambda: "客服规则：简短。")
    with pytest.raises(AssertionError) as caught:
        assert_prefix("rules", "客服规则：详细。")
    assert "before       客服规则：|简短。\n  after        客服规则：|详细。" in str(caught.value)
    assert ["rules"] == list(LockFile(tmp_path / "prefold.lock.json").read().entries)


def test_the_lock_file_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFOLD_UPDATE", "1")
    assert_prefix("rules", system="Be brief.", lock=tmp_path / "other.json")
    monkeypatch.setenv("PREFOLD_UPDATE", "0")
    assert_prefix("rules", system="Be brief.", lock=tmp_path / "other.json")


def test_updates_are_refused_under_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    monkeypatch.setenv("PREFOLD_UPDATE", "1")
    with pytest.raises(UsageError, match="PREFOLD_UPDATE writes nothing under CI"):
        assert_prefix("rules", "text")
    assert [] == list(tmp_path.iterdir())


def test_a_unittest_shows_the_reason(tmp_path: Path) -> None:
    (tmp_path / "test_prompts.py").write_text(
        "import unittest\n"
        "from prefold.testing import assert_prefix\n"
        "class PromptTest(unittest.TestCase):\n"
        "    def test_rules(self):\n"
        "        assert_prefix('rules', 'Be brief.')\n"
    )
    finished = subprocess.run(
        [sys.executable, "-m", "unittest", "test_prompts"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert 1 == finished.returncode
    assert "FAIL: test_rules" in finished.stderr
    assert "AssertionError: The prefix 'rules' is not in prefold.lock.json." in finished.stderr
