"""The index beside a plain list of all vectors."""

import subprocess
import sys

import pytest

pytest.importorskip("numpy", reason="the extra answers is not installed")

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from prefold.errors import ModelError
from prefold.responses.semantic.entries.index import VectorIndex

SIZE = 6


def units(count, size=SIZE, seed=0, clusters=None):
    """Vectors of unit length; with `clusters`, around so many of them, as questions are around intents."""
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(count, size))
    if clusters is not None:
        centres = random.normal(size=(clusters, size))
        vectors = centres[random.integers(0, clusters, count)] + 0.5 * vectors
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def nearest(vectors, query, count):
    """Ids and cosines from a mapping of all vectors."""
    found = [(key, float(np.dot(vector, query))) for key, vector in vectors.items()]
    return sorted(found, key=lambda each: (-each[1], each[0]))[:count]


VECTORS = units(40)


class Comparison(RuleBasedStateMachine):
    """The same done to an index and to a mapping."""

    exact_up_to = 10_000
    ids = Bundle("ids")

    def __init__(self):
        super().__init__()
        self.index = VectorIndex(SIZE, self.exact_up_to)
        self.vectors = {}

    @rule(target=ids, key=st.integers(0, 30), number=st.integers(0, len(VECTORS) - 1), as_bytes=st.booleans())
    def add(self, key, number, as_bytes):
        vector = VECTORS[number]
        self.index.add(key, vector.tobytes() if as_bytes else vector)
        self.vectors[key] = vector
        return key

    @rule(key=st.one_of(consumes(ids), st.integers(0, 40)))
    def remove(self, key):
        assert (self.vectors.pop(key, None) is not None) == self.index.remove(key)

    @rule(number=st.integers(0, len(VECTORS) - 1), count=st.integers(-1, 35))
    def search(self, number, count):
        query = VECTORS[number]
        found = self.index.search(query, count)
        expected = nearest(self.vectors, query, max(0, count))
        assert [cosine for _, cosine in expected] == pytest.approx([cosine for _, cosine in found], abs=1e-5)
        assert len(found) == len({key for key, _ in found})
        for key, cosine in found:
            assert cosine == pytest.approx(float(np.dot(self.vectors[key], query)), abs=1e-5)

    @invariant()
    def holds_the_same(self):
        assert len(self.vectors) == len(self.index)
        assert all((key in self.vectors) == (key in self.index) for key in range(41))


class ComparisonByGraph(Comparison):
    """With nearly everything in the graph, which is small enough to be searched whole."""

    exact_up_to = 3


TestExact = Comparison.TestCase
TestExact.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.fixture
def usearch():
    pytest.importorskip("usearch", reason="the extra answers is not installed")


@pytest.mark.usefixtures("usearch")
class TestByGraph(ComparisonByGraph.TestCase):
    settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.usefixtures("usearch")
def test_nearest_of_thousands_are_found():
    vectors = units(3_000, size=64, clusters=100)
    index = VectorIndex(64, exact_up_to=500)
    for key, vector in enumerate(vectors):
        index.add(key, vector)
    for key in range(0, 2_000, 2):
        assert index.remove(key)
    left = {key: vector for key, vector in enumerate(vectors) if key % 2 or key >= 2_000}
    assert len(left) == len(index)
    queries = units(100, size=64, seed=1, clusters=100)
    shared = sum(
        len({key for key, _ in nearest(left, query, 10)} & {key for key, _ in index.search(query, 10)})
        for query in queries
    )
    assert 0.98 <= shared / 1_000
    assert [(1_999, pytest.approx(1.0, abs=1e-5))] == index.search(vectors[1_999], 1)


@pytest.mark.usefixtures("usearch")
def test_a_vector_that_is_added_again_is_replaced_wherever_it_was():
    index = VectorIndex(SIZE, exact_up_to=2)
    for key in range(6):
        index.add(key, VECTORS[key])
    index.add(0, VECTORS[20])  # from the graph
    index.add(5, VECTORS[21])
    assert 6 == len(index)
    assert {0: 1.0, 5: 1.0} == {
        key: pytest.approx(cosine, abs=1e-5) for number in (20, 21) for key, cosine in index.search(VECTORS[number], 1)
    }


def test_small_indexes_do_without_usearch():
    code = (
        "import sys; sys.modules['usearch'] = None\n"
        "import numpy as np\n"
        "from prefold.errors import MissingExtra\n"
        "from prefold.responses.semantic.entries.index import VectorIndex\n"
        "index = VectorIndex(2, 3)\n"
        "for key in range(3): index.add(key, np.array([1, 0], 'f4'))\n"
        "try: index.add(3, np.array([1, 0], 'f4'))\n"
        "except MissingExtra as error: print(len(index), error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "3 An index of so many vectors needs the package usearch. (pip install 'prefold[answers]')" == (
        done.stdout.strip()
    )


@pytest.mark.parametrize("first", [np.nan, np.inf, 0.0, 2.0])
def test_vectors_that_are_not_of_unit_length(first):
    index = VectorIndex(SIZE)
    with pytest.raises(ModelError, match="not of unit length"):
        index.add(1, [first, 0, 0, 0, 0, 0])
    assert 0 == len(index)


def test_empty():
    assert [] == VectorIndex(SIZE).search(VECTORS[0], 5)
    assert not VectorIndex(SIZE).remove(1)


@pytest.mark.parametrize(
    "vector", [units(1, 5)[0], units(2), units(1, 7)[0].tobytes(), b"", [1.0]], ids=["5", "two", "7", "none", "1"]
)
def test_vectors_of_another_embedder(vector):
    index = VectorIndex(SIZE)
    index.add(1, VECTORS[1])
    with pytest.raises(ModelError, match="does not belong into an index of 6 numbers"):
        index.add(2, vector)
    with pytest.raises(ModelError, match="does not belong"):
        index.search(vector, 1)
    assert 1 == len(index)
