"""Opening a cache of one's own."""

import asyncio
import stat

import pytest

from prefold.errors import MissingExtra, ModelError, UsageError
from prefold.responses.semantic.decision.decision import EVIDENCE, DecisionOptions
from prefold.responses.semantic.entries.records import EntriesOptions
from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries
from prefold.responses.semantic.open_cache import ENTRIES_NAME, entries_file, open_cache
from prefold.responses.semantic.types import Reason, Sample

from .cache_support import Broken, Model, first, gone, need_minilm, request


def one_request(folder, **options):
    """What one request comes to: its answer, and the counts."""

    async def run():
        async with open_cache(folder, **options) as cache:
            found = await cache.ask(request(first("sharpen a knife")), Model())
            return found["choices"][0]["message"]["content"], cache.counts

    return asyncio.run(run())


def proven(folder):
    """A store that has shown enough for a limit of a half."""

    async def fill():
        entries = SqliteEntries(folder / ENTRIES_NAME, EntriesOptions(), lambda: 0.0)
        alike = tuple(float(name in ("similarity", "covered", "same_words", "same_kind")) for name in EVIDENCE)
        for _ in range(100):
            await entries.record(Sample(alike, True, "e", "c", "m", 0.91, True, 0.0, pool="p"))
        await entries.close()

    asyncio.run(fill())


def test_files_are_made_for_their_owner_alone(tmp_path):
    need_minilm()
    folder = tmp_path / "new" / "answers"
    text, counts = one_request(folder, deadline_seconds=5.0)
    assert ("About How do I sharpen a knife?.", {Reason.NO_CANDIDATE: 1}) == (text, dict(counts.misses))
    names = {path.name for path in folder.iterdir()}
    assert {ENTRIES_NAME, "answers.sqlite"} <= names
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert folder / ENTRIES_NAME == entries_file(folder) == entries_file(folder / ENTRIES_NAME)


def test_on_needs_a_proof_or_force(tmp_path):
    embedder = Broken(gone)
    decision = DecisionOptions(max_wrong=0.5)
    with pytest.raises(UsageError, match="are not proven"):
        one_request(tmp_path, mode="on", embedder=embedder, decision=decision)
    one_request(tmp_path, mode="on", embedder=embedder, decision=decision, force=True)
    proven(tmp_path)
    one_request(tmp_path, mode="on", embedder=embedder, decision=decision)
    with pytest.raises(UsageError, match="are not proven"):
        one_request(tmp_path, mode="on", embedder=embedder, decision=DecisionOptions(max_wrong=0.001))


def test_an_embedder_that_is_not_there_is_said_at_once(tmp_path):
    with pytest.raises(UsageError, match="no embedder 'nonsense'"):
        one_request(tmp_path, embedder="nonsense")
    with pytest.raises((ModelError, MissingExtra)):
        one_request(tmp_path, embedder=f"onnx:{tmp_path}")


def test_a_mode_that_is_none_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="no mode 'maybe'"):
        one_request(tmp_path, mode="maybe", embedder=Broken(gone))
