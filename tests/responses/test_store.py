"""What every store promises, and the form in which answers lie in it."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.responses.sqlite_store import SqliteStore
from prefold.responses.store import StoredAnswer, decode_answer, encode_answer

from .support import KEY, NOW, stored

answers = st.builds(
    StoredAnswer,
    status=st.integers(100, 599),
    headers=st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), max_size=3).map(tuple),
    chunks=st.lists(st.binary(max_size=900), max_size=4).map(tuple),
    created=st.floats(0, 4e9),
    input_tokens=st.integers(0, 2**40),
    output_tokens=st.integers(0, 2**40),
)


@given(answers)
def test_what_is_encoded_is_decoded(answer):
    assert answer == decode_answer(KEY, encode_answer(KEY, answer))


@given(answers, st.data())
def test_a_damaged_answer_is_none(answer, data):
    encoded = bytearray(encode_answer(KEY, answer))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    # Even the form cannot be told wrong: what is plain does not inflate, and what is deflated is no document.
    assert decode_answer(KEY, bytes(encoded)) is None


@given(answers, st.data())
def test_a_shortened_answer_is_none(answer, data):
    encoded = encode_answer(KEY, answer)
    assert decode_answer(KEY, encoded[: data.draw(st.integers(0, len(encoded) - 1))]) is None


def test_an_answer_under_another_key_is_none():
    assert decode_answer(b"x" * 32, encode_answer(KEY, stored())) is None


def test_an_answer_of_another_version_is_none():
    assert decode_answer(KEY, b"\x09" + encode_answer(KEY, stored())[1:]) is None


def test_streams_take_little_room():
    chunks = tuple(b'data: {"object":"chat.completion.chunk","n":%d}\n\n' % n for n in range(1_000))
    assert len(encode_answer(KEY, stored(chunks))) * 8 < len(b"".join(chunks))


@pytest.fixture(params=["sqlite", "redis"])
def make_store(request, tmp_path):
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "folder" / "answers.db", 1 << 20, lambda: NOW)
    pytest.importorskip("redis", reason="redis comes with the extra `gateway`")
    from prefold.responses.redis_store import RedisStore  # noqa: PLC0415 - imports redis

    url = request.getfixturevalue("redis_url")
    return lambda: RedisStore(url, budget_seconds=10)


def test_contract(make_store, request):
    async def scenario():
        store, other = make_store(), make_store()
        # The Redis server is the same in all tests.
        key = request.node.name.encode().ljust(32)
        assert await store.get(key) is None
        await store.put(key, stored(), 60)
        assert stored() == await store.get(key)
        assert stored() == await other.get(key)
        await other.put(key, stored((b"new",)), 60)
        assert stored((b"new",)) == await store.get(key)
        assert await store.get(b"?" * 32) is None
        await store.close()
        await other.close()

    asyncio.run(scenario())


def test_many_at_once(make_store):
    async def scenario():
        store = make_store()
        keys = [bytes([number]) * 32 for number in range(100)]
        await asyncio.gather(*(store.put(key, stored((key,)), 60) for key in keys))
        found = await asyncio.gather(*map(store.get, keys))
        assert [(key,) for key in keys] == [answer.chunks for answer in found]
        await store.close()

    asyncio.run(scenario())
