"""Playing scenes over the cache alone, and what the comparison says."""

from prefold.core.tokens import count
from prefold.demo.play import Exchange, Reply, SceneResult, play
from prefold.demo.scenes import SCENES, Scene, load_scene
from prefold.demo.simulated import SimulatedPlayer

SCENE = Scene(
    "name", "title", "about.", 4, "one two three four five six seven eight", (("nine ten", "eleven"), ("nine",))
)


def result_of(off: list[Reply], on: list[Reply]) -> SceneResult:
    exchanges = (Exchange(bytes(4 * 10), before, after) for before, after in zip(off, on, strict=True))
    return SceneResult(SCENE, tuple(exchanges))


def reply(*tokens: int, cached: int = 0, ttft: float = 1.0, wall: float = 2.0) -> Reply:
    return Reply("text", tokens, cached, ttft, wall)


def test_off_recomputes_everything_and_on_nothing_twice() -> None:
    result = play(SCENE, SimulatedPlayer(10_000), lambda _: None)
    assert [0, 0, 0] == [exchange.off.cached for exchange in result.exchanges]
    first, second, third = (exchange.prompt for exchange in result.exchanges)
    hits = [exchange.on.cached for exchange in result.exchanges]
    # The second turn finds the first prompt and all of its answer but the last token, which no model has read.
    assert second.startswith(first)
    assert [0, count(first) + SCENE.answer_tokens - 1] == hits[:2]
    # A new chat finds the system prompt and as much of the question as is the same.
    shared = next(index for index in range(count(third)) if first[: 4 * index + 4] != third[: 4 * index + 4])
    assert shared == hits[2]
    assert count(first) + count(second) + count(third) == result.tokens_sent
    assert result.tokens_sent - sum(hits) == result.tokens_recomputed
    assert sum(hits) / result.tokens_sent == result.hit_rate


def test_every_request_is_told_of_once_in_each_pass() -> None:
    told: list[str] = []
    play(SCENE, SimulatedPlayer(10_000), told.append)
    assert ["off"] * 3 + ["on"] * 3 == told


def test_a_scene_starts_from_an_empty_cache() -> None:
    player = SimulatedPlayer(10_000)
    once, again = (play(SCENE, player, lambda _: None) for _ in range(2))
    assert once == again


def test_the_scenes_of_the_demo_share_most_of_what_they_send() -> None:
    for name in SCENES:
        result = play(load_scene(name), SimulatedPlayer(65_536), lambda _: None)
        assert 0.75 < result.hit_rate < 1


def test_medians_sums_and_differences() -> None:
    off = [reply(1, 2, ttft=3.0, wall=4.0), reply(3, ttft=1.0, wall=2.0), reply(4, ttft=2.0, wall=2.5)]
    on = [
        reply(1, 2, ttft=0.5, wall=1.0),
        reply(3, cached=6, ttft=0.1, wall=0.5),
        reply(5, cached=9, ttft=0.2, wall=0.5),
    ]
    result = result_of(off, on)
    assert (30, 15, 15, 0.5) == (result.tokens_sent, result.tokens_hit, result.tokens_recomputed, result.hit_rate)
    assert (2.0, 0.2) == (result.ttft("off"), result.ttft("on"))
    assert (8.5, 2.0) == (result.wall("off"), result.wall("on"))
    assert 1 == result.differing
