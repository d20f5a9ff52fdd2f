"""The demo's engine against what the core predicts, on the real model."""

import time

import pytest

from prefold.core.cache import Cache, NoValues
from prefold.core.tokens import WIDTH, pack
from prefold.demo.play import SceneResult, play
from prefold.demo.scenes import Scene, load_scene

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from prefold.demo.engine import EnginePlayer
from prefold.engine.loading import load_engine
from prefold.engine.options import EngineOptions

SCENE = Scene(
    name="small",
    title="A small scene",
    about="Two chats.",
    answer_tokens=6,
    system=load_scene("persona").system[:600],
    chats=(("Do you have oolong?", "Which one for a beginner?"), ("Do you have cocoa?",)),
)


@pytest.fixture(scope="module")
def result(default_checkpoint) -> SceneResult:
    options = EngineOptions(dtype="float32", kv_memory=64 << 20)
    player = EnginePlayer(default_checkpoint.name, load_engine(default_checkpoint, options), time.perf_counter)
    return play(SCENE, player, lambda _: None)


def test_tokens_recomputed_are_those_that_the_core_predicts(result: SceneResult) -> None:
    cache: Cache[None] = Cache(100_000, NoValues(), None)
    predicted = []
    for exchange in result.exchanges:
        generated = pack(exchange.on.tokens)
        lease = cache.admit(exchange.prompt, reserve=len(exchange.on.tokens), make_value=lambda _start, _stop: None)
        # The last token was chosen, but never read.
        cache.release(lease, tail=generated[:-WIDTH], make_value=lambda _start, _stop: None)
        predicted.append(lease.hit)
    assert predicted == [exchange.on.cached for exchange in result.exchanges]
    assert cache.counters.recomputed == result.tokens_recomputed
    assert 0 == predicted[0]
    assert min(predicted[1:]) > 100


def test_with_the_cache_off_nothing_is_reused(result: SceneResult) -> None:
    assert {0} == {exchange.off.cached for exchange in result.exchanges}


def test_the_cache_changes_no_answer(result: SceneResult) -> None:
    assert 0 == result.differing
    for exchange in result.exchanges:
        assert exchange.off.text == exchange.on.text
        assert 1 <= len(exchange.on.tokens) <= SCENE.answer_tokens


def test_a_turn_sends_the_answer_before_it(result: SceneResult) -> None:
    first, second, _ = (exchange.prompt for exchange in result.exchanges)
    assert second.startswith(first)


def test_times_are_measured(result: SceneResult) -> None:
    for mode in ("off", "on"):
        for reply in result.replies(mode):
            assert reply.ttft is not None
            assert reply.wall is not None
            assert 0 < reply.ttft <= reply.wall
