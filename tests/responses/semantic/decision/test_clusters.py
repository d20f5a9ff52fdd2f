"""Closeness learned from wordings that share an answer."""

from __future__ import annotations

import threading

import numpy as np

from prefold.responses.semantic.decision.clusters import CLOSENESS, Closeness, Clusters

SIZE = 32


def unit(vector: np.ndarray) -> np.ndarray:
    return (vector / np.linalg.norm(vector)).astype(np.float32)


class World:
    """Clusters that differ in 6 directions, and wordings that differ in all others, four times as much."""

    def __init__(self, clusters: int, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.means = np.zeros((clusters, SIZE))
        self.means[:, :6] = self.random.normal(size=(clusters, 6))

    def wording(self, cluster: int) -> np.ndarray:
        noise = self.random.normal(size=SIZE)
        noise[:6] *= 0.3
        noise[6:] *= 1.2
        return unit(self.means[cluster] + noise)


def fed(world: World, clusters: int, wordings: int) -> Clusters:
    learned = Clusters(SIZE)
    for _ in range(wordings):
        for cluster in range(clusters):
            learned.add(f"c{cluster}", world.wording(cluster))
            if learned.due:
                learned.refresh()
    return learned


def value(closeness: Closeness | None, name: str) -> float:
    assert closeness is not None
    return closeness.features[CLOSENESS.index(name)]


def right_of(learned: Clusters, world: World, clusters: int) -> int:
    names = [f"c{cluster}" for cluster in range(clusters)]
    found = [(learned.closest(world.wording(at % clusters), names), f"c{at % clusters}") for at in range(300)]
    return sum(closeness is not None and closeness.cluster == cluster for closeness, cluster in found)


def test_the_metric_finds_the_directions_that_matter() -> None:
    world = World(20)
    learned = fed(world, 20, 15)
    plain = Clusters(SIZE)
    for cluster in range(20):
        for _ in range(15):
            plain.add(f"c{cluster}", world.wording(cluster))
    assert right_of(learned, world, 20) > 1.3 * right_of(plain, world, 20)


def test_words_tell_apart_what_vectors_do_not() -> None:
    learned = Clusters(SIZE)
    same = unit(np.ones(SIZE))
    for number in range(4):
        learned.add("on", same, f"turn the light on {number}")
        learned.add("off", same, f"turn the light off {number}")
    for text, cluster in (("please turn it off", "off"), ("please turn it on", "on")):
        closeness = learned.closest(same, ["on", "off"], text)
        assert closeness is not None
        assert cluster == closeness.cluster
        assert value(closeness, "words") > 0
    nobody = learned.closest(same, ["on", "off"], "unheard-of words")
    assert value(nobody, "words") <= 0


def test_a_lone_near_cluster_has_high_odds_and_a_far_one_low_ones() -> None:
    learned = Clusters(SIZE)
    learned.add("c", unit(np.eye(SIZE)[0]))
    near, far = unit(np.eye(SIZE)[0] + 0.1), unit(np.eye(SIZE)[0] + 3 * np.eye(SIZE)[1])
    assert value(learned.closest(near, ["c"]), "vote") > 0 > value(learned.closest(far, ["c"]), "vote")


def test_of_no_known_cluster_nothing_is_said() -> None:
    assert Clusters(SIZE).closest(unit(np.ones(SIZE)), ["c"]) is None
    learned = Clusters(SIZE)
    learned.add("c", unit(np.ones(SIZE)))
    assert learned.closest(unit(np.ones(SIZE)), []) is None
    found = learned.closest(unit(np.ones(SIZE)), ["unknown", "c"])
    assert found is not None
    assert "c" == found.cluster


def test_a_removed_cluster_is_gone_and_its_place_is_used_again() -> None:
    learned = Clusters(SIZE)
    one, other = unit(np.eye(SIZE)[0]), unit(np.eye(SIZE)[1])
    learned.add("a", one, "words of a")
    learned.add("b", other, "words of b")
    learned.remove("a")
    learned.remove("a")
    assert 1 == learned.wordings
    assert learned.closest(one, ["a"]) is None
    learned.add("c", one, "words of c")
    found = learned.closest(one, ["a", "b", "c"], "words of c")
    assert found is not None
    assert "c" == found.cluster


def test_beyond_the_most_clusters_those_without_new_wordings_are_forgotten() -> None:
    learned = Clusters(SIZE, max_clusters=100)
    for number in range(250):
        learned.add(f"c{number}", unit(np.eye(SIZE)[number % SIZE] + 0.01))
        learned.add("kept", unit(np.ones(SIZE)))
    vector = unit(np.ones(SIZE))
    assert learned.closest(vector, ["c0", "c150"]) is None
    assert learned.closest(vector, ["c249"]) is not None
    assert learned.closest(vector, ["kept"]) is not None


def test_the_same_wordings_give_the_same_closeness() -> None:
    ones = [fed(World(10, seed=3), 10, 8).closest(unit(np.ones(SIZE)), ["c1", "c2", "c3"]) for _ in range(2)]
    assert ones[0] == ones[1]


def test_equal_wordings_and_lone_clusters_teach_no_metric() -> None:
    learned = Clusters(SIZE)
    for number in range(60):
        learned.add(f"c{number}", unit(np.eye(SIZE)[number % SIZE] + 0.1))
    learned.refresh()
    for _ in range(60):
        learned.add("c1", unit(np.eye(SIZE)[1] + 0.1))
    learned.refresh()
    assert np.isfinite(learned.closest(unit(np.ones(SIZE)), ["c1", "c2"]).features).all()


def test_the_metric_may_be_learned_in_a_thread_while_wordings_come() -> None:
    world = World(10)
    learned = fed(world, 10, 5)
    failures: list[BaseException] = []

    def refresh() -> None:
        try:
            for _ in range(30):
                learned.refresh()
        except BaseException as failure:  # noqa: BLE001 - told by the test
            failures.append(failure)

    thread = threading.Thread(target=refresh)
    thread.start()
    added = 0
    while thread.is_alive():
        learned.add(f"d{added % 200}", world.wording(added % 10), f"text {added}")
        assert learned.closest(world.wording(1), ["c1", "c2", f"d{added % 200}"]) is not None
        added += 1
    thread.join()
    assert not failures
    assert 50 + added == learned.wordings
