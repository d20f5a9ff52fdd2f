"""Records become requests: the same run whichever way a body is read, with the tokens that `diff` counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.analysis.encode import BLOCK_IDS, Encoder
from prefold.analysis.encoding.bodies import BodyReader
from prefold.analysis.encoding.memo import Memo
from prefold.analysis.encoding.parts import Part, Texts
from prefold.analysis.record import Blocks, Body, Place, Record
from prefold.analysis.request import Marker
from prefold.core.tokens import common_prefix, count, pack, unpack
from prefold.errors import InvalidRequest
from prefold.prompts.divergence.reuse import TokenSums
from prefold.prompts.prompt import Dialect, Prompt
from prefold.prompts.tokens import counter_for
from prefold.providers.usage import Usage

PLACE = Place("log.jsonl", 1)
CLAUDE = "claude-sonnet-4-5"


def record(body: Any, **fields: Any) -> Record:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    model = "" if isinstance(body, bytes) else body.get("model", "")
    return Record(Body(content, fields.pop("dialect", None)), PLACE, **{"model": model, **fields})


def chat(*messages: dict[str, Any], model: str = "gpt-4o", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": list(messages), **fields}


# --- the same whichever way a body is read

texts = st.text(max_size=12)
markers = st.sampled_from([{}, {"cache_control": {"type": "ephemeral"}}, {"cache_control": {"ttl": "1h"}}])
roles = st.sampled_from(["system", "developer", "user", "assistant", "tool", "model"])
blocks = st.one_of(
    st.builds(lambda text, mark: {"type": "text", "text": text, **mark}, texts, markers),
    st.builds(lambda text: {"text": text}, texts),
    st.builds(lambda text, mark: {"type": "tool_result", "tool_use_id": "t", "content": text, **mark}, texts, markers),
    st.just({"cachePoint": {"type": "default"}}),
    st.just({"type": "image", "source": {"data": "AAAA"}}),
    texts,
)
contents = st.one_of(texts, st.none(), st.lists(blocks, max_size=3))
messages = st.one_of(
    st.builds(lambda role, content: {"role": role, "content": content}, roles, contents),
    st.builds(lambda role, content: {"role": role, "parts": content}, roles, contents),
    st.builds(lambda name, calls: {"role": "assistant", "name": name, "tool_calls": calls}, texts, st.lists(blocks)),
    st.builds(lambda text: {"type": "function_call", "arguments": text, "id": text}, texts),
    texts,
    st.integers(),  # none at all
)
tools = st.lists(st.builds(lambda name, mark: {"name": name, "input_schema": {}, **mark}, texts, markers), max_size=2)
FIELDS = {
    "tools": st.one_of(tools, st.none(), texts),
    "functions": tools,
    "toolConfig": st.builds(lambda tools: {"tools": tools}, st.lists(blocks.filter(lambda b: not isinstance(b, str)))),
    "system": contents,
    "instructions": texts,
    "systemInstruction": st.one_of(texts, st.builds(lambda parts: {"parts": parts}, st.lists(blocks, max_size=2))),
    "messages": st.lists(messages, max_size=4),
    "input": st.one_of(st.lists(messages, max_size=4), texts),
    "contents": st.one_of(st.lists(messages, max_size=4), texts),
    "prompt": texts,
    "cache_salt": texts,
    "cache_control": st.just({"type": "ephemeral"}),
    "prompt_cache_options": st.sampled_from([{"mode": "explicit"}, {"ttl": "24h"}]),
    "model": st.sampled_from(["gpt-4o", "claude-sonnet-4-5", "gpt-5.6"]),
    "temperature": st.floats(allow_nan=False),
}
bodies = st.fixed_dictionaries({}, optional=FIELDS)
LISTS = {
    Dialect.ANTHROPIC: "messages",
    Dialect.OPENAI: "messages",
    Dialect.RESPONSES: "input",
    Dialect.GEMINI: "contents",
    Dialect.BEDROCK: "messages",
}
"""Where each dialect has its messages."""


@settings(max_examples=400)
@given(st.lists(bodies, min_size=1, max_size=3), st.sampled_from(list(Dialect)), st.sampled_from([None, 0, " "]))
def test_in_parts_and_as_a_whole(values: list[dict[str, Any]], dialect: Dialect, indent: Any) -> None:
    reader, known = BodyReader(1 << 20), Texts(counter_for("claude-3"), 1 << 20)
    for value in values * 2:
        content = json.dumps(value, indent=indent).encode()
        prompt = Prompt.parse(content, dialect)
        expected = outcome(lambda prompt=prompt: Texts(counter_for("claude-3"), 0).part(prompt.segments))
        assert expected == outcome(lambda content=content: reader.read(Body(content, dialect), known).part)
        if not isinstance(expected, str):
            form = reader.read(Body(content, dialect), known)
            assert dialect is form.dialect
            for name in ("model", "cache_salt", "cache_control", "prompt_cache_options"):
                assert prompt.parameters.get(name) == form.parameters.get(name)


@settings(max_examples=300)
@given(
    st.lists(messages, max_size=6),
    st.lists(st.tuples(st.integers(0, 6), st.lists(messages, max_size=2)), min_size=1, max_size=6),
    bodies,
    st.sampled_from(sorted(LISTS)),
    st.sampled_from(["", "s1"]),
    st.sampled_from([None, 0, " "]),
)
def test_conversations_that_go_on_and_part(
    said: list[Any],
    turns: list[tuple[int, list[Any]]],
    fields: dict[str, Any],
    dialect: Dialect,
    session: str,
    indent: Any,
) -> None:
    """Each turn keeps the beginning of the one before it and puts something behind that."""
    reader, known = BodyReader(1 << 20), Texts(counter_for("claude-3"), 1 << 20)
    for kept, new in turns:
        said = said[:kept] + new
        content = json.dumps({**fields, LISTS[dialect]: said}, indent=indent).encode()
        prompt = Prompt.parse(content, dialect)
        expected = outcome(lambda prompt=prompt: Texts(counter_for("claude-3"), 0).part(prompt.segments))
        assert expected == outcome(lambda content=content: reader.read(Body(content, dialect), known, session).part)


def outcome(read: Callable[[], Part]) -> Part | str:
    """What is read, or why it cannot be."""
    try:
        return read()
    except InvalidRequest as error:
        return str(error)


@pytest.mark.parametrize("dialect", [None, Dialect.OPENAI])
def test_tokens_are_those_that_diff_counts(dialect: Dialect | None) -> None:
    pytest.importorskip("rs_bpe")
    body = chat(
        {"role": "system", "content": "You are kind."},
        {"role": "user", "content": [{"type": "text", "text": "Grüße, 世界 🙂"}, {"type": "text", "text": "again"}]},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "look", "arguments": "{}"}}]},
        tools=[{"type": "function", "function": {"name": "look"}}],
    )
    request = Encoder().encode(record(body, dialect=dialect))
    sums = TokenSums(Prompt.of(body).segments, counter_for("gpt-4o"))
    assert sums.until[1:] == list(request.ends)
    assert sums.total == request.tokens == request.units
    assert sums.until[2] == request.system_end


def test_estimated_tokens_agree_within_rounding() -> None:
    text = "How long may an order be cancelled? 订单可以取消多久？ 🙂 " * 20
    body = {"model": CLAUDE, "system": text, "messages": [{"role": "user", "content": text}]}
    encoder = Encoder()
    request = encoder.encode(record(body, dialect=Dialect.ANTHROPIC))
    sums = TokenSums(Prompt.of(body).segments, counter_for(CLAUDE))
    assert len(sums.until) - 1 == len(request.ends)
    assert abs(sums.total - request.tokens) <= len(request.ends)
    assert not encoder.is_exact
    assert {"estimate (claude)": 1} == encoder.counters


def test_equal_beginnings_of_texts_are_equal_beginnings_of_runs() -> None:
    start = "The customer may cancel an order within thirty days. " * 10
    encoder = Encoder()
    runs = [
        encoder.encode(record(chat({"role": "user", "content": start + end}, model=CLAUDE))).run
        for end in ("Then it is final.", "Otherwise ask.")
    ]
    shared = counter_for(CLAUDE).count(start)
    assert shared - 1 <= common_prefix(*runs) <= shared + 8


def test_a_change_that_weighs_nothing_is_a_change() -> None:
    encoder = Encoder()
    runs = {
        encoder.encode(record(chat({"role": "user", "content": text}, model=CLAUDE))).run
        for text in ("order 10", "order 10 ", "order 10  ")
    }
    assert 3 == len(runs)


# --- markers, salts, answers, times


def test_markers() -> None:
    marked = {"type": "text", "text": "rules", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body = {"model": CLAUDE, "system": [marked], "messages": [{"role": "user", "content": "hello"}]}
    request = Encoder().encode(record(body, dialect=Dialect.ANTHROPIC))
    assert (Marker(request.ends[0], 3600),) == request.markers
    automatic = Encoder().encode(record({**body, "cache_control": {"type": "ephemeral"}}, dialect=Dialect.ANTHROPIC))
    assert (Marker(request.ends[0], 3600), Marker(request.units, None)) == automatic.markers


@pytest.mark.parametrize(("options", "marked"), [({}, True), ({"mode": "explicit"}, False)])
def test_a_cache_with_breakpoints_ends_an_entry_with_the_request(options: dict[str, str], marked: bool) -> None:
    body = chat({"role": "user", "content": "hello"}, model="gpt-5.6", prompt_cache_options=options)
    request = Encoder().encode(record(body, dialect=Dialect.OPENAI))
    assert ((Marker(request.units, None),) if marked else ()) == request.markers


def test_salts() -> None:
    body = chat({"role": "user", "content": "hello"}, prompt_cache_key="one")
    salted = {**body, "cache_salt": "s"}
    shared, isolated = Encoder(), Encoder(isolate_tenants=True)
    assert shared.encode(record(body, tenant="t")).salt is None
    assert "s" == shared.encode(record(salted, tenant="t")).salt
    assert "t" == isolated.encode(record(body, tenant="t")).salt
    assert isolated.encode(record(salted, tenant="t")).salt != isolated.encode(record(salted, tenant="u")).salt
    assert isolated.encode(record(body)).salt is None


def test_the_next_turn_goes_on_with_the_answer() -> None:
    question, answer = {"role": "user", "content": "Why?"}, "Because of the rain."
    encoder = Encoder()
    first = encoder.encode(record(chat(question), answer=answer, dialect=Dialect.OPENAI))
    second = encoder.encode(record(chat(question, {"role": "assistant", "content": answer}), dialect=Dialect.OPENAI))
    assert second.run == first.run + first.output
    assert count(first.output) == first.output_tokens


def test_length_of_the_answer() -> None:
    body = chat({"role": "user", "content": "Why?"})
    assert 7 == Encoder().encode(record(body, output_tokens=7, usage=Usage(output=9))).output_tokens
    assert 9 == Encoder().encode(record(body, usage=Usage(output=9), answer="So.")).output_tokens
    assert 0 == Encoder().encode(record(body)).output_tokens


def test_time_never_runs_backwards() -> None:
    body = chat({"role": "user", "content": "Why?"})
    encoder = Encoder()
    times = [encoder.encode(record(body, time=time)).time for time in (None, -5.0, 10.0, None, 3.0, 12.0)]
    assert [0.0, 0.0, 10.0, 10.0, 10.0, 12.0] == times


def test_blocks_stay_as_they_are() -> None:
    answer = Blocks(pack([9]), 512, 512)
    encoder = Encoder()
    request = encoder.encode(Record(Blocks(pack([1, 2]), 512, 1030), PLACE, answer=answer))
    assert ([1, 2], 512, 1030) == (unpack(request.run), request.unit, request.tokens)
    assert ([9], 512) == (unpack(request.output), request.output_tokens)
    assert encoder.is_exact
    assert {BLOCK_IDS: 1} == encoder.counters


def test_a_model_that_only_the_body_names_is_counted_by_its_own_tokenizer() -> None:
    pytest.importorskip("rs_bpe")
    encoder = Encoder()
    encoder.encode(record(json.dumps(chat({"role": "user", "content": "hello"})).encode()))
    assert {"o200k_base": 1} == encoder.counters


@pytest.mark.parametrize("content", [b"", b"{", b'{"messages": 5}', b'{"messages": [5]}', b"[" * 100_000, b"\xff{}"])
@pytest.mark.parametrize("dialect", [None, Dialect.OPENAI, Dialect.ANTHROPIC])
def test_what_is_no_body_is_refused(content: bytes, dialect: Dialect | None) -> None:
    with pytest.raises(InvalidRequest):
        Encoder().encode(Record(Body(content, dialect), PLACE))


def test_what_is_remembered_is_bounded_and_changes_nothing() -> None:
    conversation = [{"role": "user", "content": f"message {number}"} for number in range(60)]
    bodies = [json.dumps({"messages": conversation[:turn]}).encode() for turn in range(1, 60)]
    forgetful, remembering = BodyReader(2_000), BodyReader(1 << 20)
    texts_of = Texts(counter_for(CLAUDE), 1_000)
    for content in bodies:
        body = Body(content, Dialect.ANTHROPIC)
        assert remembering.read(body, texts_of) == forgetful.read(body, texts_of)


@pytest.mark.parametrize("session", ["", "s1"])
@pytest.mark.parametrize("last", ["Why?", 'a "quoted" }] and a backslash \\', "ß 🙂"])
def test_of_a_conversation_that_goes_on_only_what_is_new_is_read(session: str, last: str) -> None:
    reader, known = BodyReader(1 << 20), Texts(counter_for(CLAUDE), 1 << 20)
    split, sizes = reader._items, []

    def counted(raw: Any) -> Any:
        sizes.append(len(bytes(raw)))
        return split(raw)

    reader._items = counted
    conversation = [{"role": "user", "content": f"message {number} {last}" * 20} for number in range(60)]
    for turn in range(1, 61):
        reader.read(Body(json.dumps({"messages": conversation[:turn]}).encode(), Dialect.ANTHROPIC), known, session)
    brackets = 60 * len("[0]")
    assert len(json.dumps(conversation)) + brackets >= sum(sizes)


def test_what_is_remembered_in_place_of_something_else_takes_its_room() -> None:
    memo: Memo[str, int] = Memo(20, lambda _, size: size)
    memo.put("one", 2)
    for size in range(8):
        memo.put("other", size)
    assert (2, 7) == (memo.get("one"), memo.get("other"))
    memo.put("third", 2)
    assert (2, 7, 2) == (memo.get("one"), memo.get("other"), memo.get("third"))


BREAKS = Path(__file__).parents[3] / "shared" / "data" / "breaks"


@pytest.mark.skipif(not BREAKS.is_dir(), reason="needs ../shared/data/breaks")
def test_every_case_of_the_shared_data_is_read() -> None:
    encoder = Encoder()
    for file in sorted(BREAKS.glob("*.json")):
        case = json.loads(file.read_text())
        for body in (case["before"], case["after"]):
            with_dialect = encoder.encode(record(body, dialect=Dialect(case["dialect"])))
            without = encoder.encode(record(body))
            assert (with_dialect.run, with_dialect.ends) == (without.run, without.ends)
            assert with_dialect.units
