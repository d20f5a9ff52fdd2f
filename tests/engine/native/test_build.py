"""Compiling on first use: what is kept, what is built anew, and what happens where it cannot be built."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from prefold.engine.attention import TorchPool  # noqa: E402 - after the check that torch is there
from prefold.engine.loading import load_engine  # noqa: E402
from prefold.engine.native.build import ISA_VARIABLE, NoKernel, build, is_whole, targets_here  # noqa: E402
from prefold.engine.native.library import load_kernel  # noqa: E402
from prefold.engine.native.pool import NativePool  # noqa: E402
from prefold.engine.options import EngineOptions  # noqa: E402
from prefold.errors import UsageError  # noqa: E402

LOGGER = "prefold.engine.native.choice"


class Told:
    """A `Progress` that keeps what it is told."""

    def __init__(self):
        self.stages = []

    def __call__(self, stage, done, total):
        self.stages.append((stage, done, total))


def put(path, content):
    """Put another file in the place of one that may be loaded: cut short, it would kill this process at its end."""
    path.unlink()
    path.write_bytes(content)


@pytest.fixture
def environ(kernel):
    """The environment, where there is a compiler and the CPU is known."""
    return {**os.environ, ISA_VARIABLE: targets_here()[-1].name}  # that one compiles fastest


def test_it_is_compiled_once_and_progress_is_told(tmp_path, environ):
    told = Told()
    first = build(tmp_path / "new", environ, told)
    assert [(0, 0), (1, 1)] == [(done, total) for _, done, total in told.stages]
    written = first.stat().st_mtime_ns
    assert first == build(tmp_path / "new", environ, told)
    assert (2, written) == (len(told.stages), first.stat().st_mtime_ns)
    assert [first] == list((tmp_path / "new").iterdir())  # nothing is left of the building


def test_a_damaged_file_is_built_anew(tmp_path, environ):
    path = build(tmp_path, environ, Told())
    whole = path.read_bytes()
    for damaged in (
        b"",
        whole[: len(whole) // 2],
        whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:],
        b"no library" * 20,
    ):
        put(path, damaged)
        assert not is_whole(path)
    told = Told()
    load_kernel(tmp_path, told, environ)
    assert 2 == len(told.stages)
    assert is_whole(path)


def test_other_flags_or_another_compiler_are_another_file(tmp_path, environ):
    wrapper = tmp_path / "wrapper"
    wrapper.write_text('#!/bin/sh\nexec c++ "$@"\n')
    wrapper.chmod(0o700)
    names = {
        build(tmp_path / "kept", {**environ, "CXX": command}, Told()).name
        for command in ("c++", "c++ -g0", str(wrapper))
    }
    assert 3 == len(names)


def test_processes_may_build_at_the_same_time(tmp_path, environ):
    code = (
        "import os, sys; from pathlib import Path; from prefold.engine.native.library import load_kernel;"
        "print(load_kernel(Path(sys.argv[1]), lambda *_: None).name)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    running = [subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert {environ[ISA_VARIABLE] + "\n"} == {process.communicate(timeout=100)[0] for process in running}
    assert [0, 0, 0] == [process.returncode for process in running]
    (path,) = tmp_path.iterdir()
    assert is_whole(path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"CXX": "/bin/false"}, "failed with exit code 1"),
        ({"CXX": "no-such-compiler"}, "no C\\+\\+ compiler"),
        ({"CXX": "c++ -fno-such-flag"}, "no-such-flag"),
        ({"CXX": "/bin/true"}, "cannot be loaded"),
    ],
)
def test_why_there_is_no_kernel_is_said(tmp_path, environ, changes, reason):
    with pytest.raises(NoKernel, match=reason):
        build(tmp_path, {**environ, **changes}, Told())
    assert [] == list(tmp_path.iterdir())


def test_an_unknown_target_is_refused(tmp_path, environ):
    with pytest.raises(UsageError, match="avx1024") as caught:
        build(tmp_path, {**environ, ISA_VARIABLE: "avx1024"}, Told())
    assert "avx512bf16, avx512, avx2" in caught.value.hint


@pytest.mark.parametrize("compiler", ["no-such-compiler", "/bin/false", "/bin/true"])
def test_what_another_compiler_made_will_do_where_nothing_can_be_compiled(tmp_path, environ, compiler):
    path = build(tmp_path, environ, Told())
    without = {**environ, "CXX": compiler}
    assert path == build(tmp_path, without, Told())
    put(path, path.read_bytes()[:-1])
    with pytest.raises(NoKernel):
        build(tmp_path, without, Told())


def test_a_compiler_that_hangs_is_ended_with_its_children(tmp_path, environ, monkeypatch):
    monkeypatch.setattr("prefold.engine.native.build._TIMEOUT_SECONDS", 0.5)
    hanging = tmp_path / "hanging"
    hanging.write_text(f"#!/bin/sh\nsleep 1000 & echo $! >{tmp_path}/child; wait\n")
    hanging.chmod(0o700)
    with pytest.raises(NoKernel, match="has not ended after"):
        build(tmp_path / "kept", {**environ, "CXX": str(hanging)}, Told())
    assert [] == list((tmp_path / "kept").iterdir())
    state = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    assert not state.exists() or ") Z " in state.read_text()


def test_a_folder_that_cannot_be_written_is_no_kernel(tmp_path, environ):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(NoKernel, match="cannot be kept"):
        build(tmp_path / "file", environ, Told())


def test_an_engine_goes_on_without_and_says_so_once(tmp_path, default_checkpoint, monkeypatch, caplog):
    monkeypatch.setenv("CXX", "/bin/false")
    with caplog.at_level(logging.WARNING):
        engine = load_engine(default_checkpoint, EngineOptions(kv_memory=1 << 20), cache_folder=tmp_path)
    assert isinstance(engine.kv, TorchPool)
    (said,) = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert "failed with exit code 1" in said or "no kernel for this CPU" in said


def test_a_kernel_that_was_asked_for_and_is_not_there_is_an_error(tmp_path, default_checkpoint, monkeypatch):
    monkeypatch.setenv("CXX", "/bin/false")
    with pytest.raises(UsageError, match="native kernel cannot be used"):
        load_engine(default_checkpoint, EngineOptions(kv_memory=1 << 20, kernel="native"), cache_folder=tmp_path)


def test_the_options_choose(kernel, tmp_path, default_checkpoint, caplog):
    with caplog.at_level(logging.WARNING):
        for options, kind in (
            ({"kernel": "torch"}, TorchPool),
            ({"kernel": "native"}, NativePool),
            ({"kernel": "auto"}, NativePool),
            ({"kernel": "auto", "grid": 16}, TorchPool),
        ):
            engine = load_engine(default_checkpoint, EngineOptions(kv_memory=1 << 20, **options))
            assert isinstance(engine.kv, kind)
    assert [] == [record for record in caplog.records if record.name == LOGGER]
    with pytest.raises(UsageError, match="Unknown kernel"):
        EngineOptions(kernel="cuda")
