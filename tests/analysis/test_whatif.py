"""Logs as they would have been, each alternative on a small log, and the passages of a real RAG service."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from prefold.analysis.bounds import Bounds
from prefold.analysis.record import Blocks, Body, Place, Record
from prefold.analysis.request import Request
from prefold.analysis.whatif.alternatives import ALTERNATIVES, what_if
from prefold.core.tokens import WIDTH, count
from prefold.errors import UsageError
from prefold.prompts.view import view_of
from prefold.providers.usage import Usage

RAGPULSE = Path(__file__).parents[3] / "shared" / "data" / "traces" / "ragpulse" / "data"


def record(body: Any, line: int = 1, **more: Any) -> Record:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Record(Body(content), Place("log", line), **more)


def bodies(records: Iterable[Record]) -> list[Any]:
    return [json.loads(found.content.content) for found in records if isinstance(found.content, Body)]


def chat(*said: str, **more: Any) -> dict[str, Any]:
    """An OpenAI chat: user and assistant by turns, behind a system message."""
    roles = ("user", "assistant")
    messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(said)]
    return {"model": "gpt-4o", "messages": [{"role": "system", "content": "rules"}, *messages], **more}


def said(body: Any) -> list[Any]:
    return [message["content"] for message in body["messages"][1:]]


def test_canonicalised() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in "ab"]
    one = {"model": "gpt-4o", "tools": tools, "messages": [{"role": "user", "content": "hi"}]}
    other = {
        "model": "gpt-4o",
        "tools": [dict(reversed(tool.items())) for tool in tools[::-1]],
        "messages": one["messages"],
    }
    first, second = (found.content for found in what_if("canonicalised", [record(one), record(other)]))
    assert first == second


def test_what_the_provider_counted_is_left_out() -> None:
    log = [
        record(chat("a"), usage=Usage(100, 50), ttft=1.0, miss_reason="tools", time=3.0, answer="b", output_tokens=7)
    ]
    changed = next(iter(what_if("canonicalised", log)))
    assert (None, None, "", 3.0, "b", 7) == (
        changed.usage,
        changed.ttft,
        changed.miss_reason,
        changed.time,
        changed.answer,
        changed.output_tokens,
    )


def test_reordered() -> None:
    rules = "\n".join(f"Rule {number}: stay with the handbook of orders." for number in range(40))
    log = [
        record(
            {
                "model": "gpt-4o",
                "messages": [
                    {"role": "system", "content": f"Request id: {number * 7919:08x}\n{rules}"},
                    {"role": "user", "content": f"question {number}"},
                ],
            },
            number,
            time=60.0 * number,
            session=str(number),
        )
        for number in range(30)
    ]
    changed = bodies(what_if("reordered", log))
    assert {rules} == {body["messages"][0]["content"].strip() for body in changed}
    assert all(f"{number * 7919:08x}" in body["messages"][-1]["content"] for number, body in enumerate(changed))


def test_documents() -> None:
    def asked(*names: str) -> dict[str, Any]:
        return chat("".join(f'<document id="{name}">{name}</document>' for name in names) + " What?")

    def order(name: str) -> list[str]:
        log = [record(asked(*names)) for names in ("abc", "bc", "c")]
        return ["".join(part[0] for part in said(body)[0].split('id="')[1:]) for body in bodies(what_if(name, log))]

    assert ["abc", "bc", "c"] == order("documents_by_id")
    assert ["cba", "cb", "c"] == order("documents_by_popularity")


def test_documents_that_are_blocks_count_too() -> None:
    def asked(*names: str) -> dict[str, Any]:
        blocks = [
            {"type": "document", "title": name, "source": {"type": "text", "media_type": "text/plain", "data": name}}
            for name in names
        ]
        return {"model": "claude-opus-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": blocks}]}

    changed = bodies(what_if("documents_by_popularity", [record(asked(*names)) for names in ("ab", "b")]))
    assert [["b", "a"], ["b"]] == [[block["title"] for block in body["messages"][0]["content"]] for body in changed]


def test_history_truncated() -> None:
    log = [record(chat(*"abcde")), record(chat("a"))]
    assert [["d", "e"], ["a"]] == [said(body) for body in bodies(what_if("history_truncated:2", log))]
    assert {"rules"} == {body["messages"][0]["content"] for body in bodies(what_if("history_truncated:2", log))}


def test_history_summarised_every_n_turns() -> None:
    words = ["first question", "1", "second question", "2", "third question", "3", "fourth question", "4", "fifth"]
    log = [record(chat(*words[: 2 * turn - 1])) for turn in range(1, 6)]
    changed: list[list[Any]] = [said(body) for body in bodies(what_if("history_summarised:2", log))]
    assert [words[:1], words[:3]] == changed[:2]
    summary = [{"type": "text", "text": "Summary of 2 turns: first question 1 second question 2"}]
    assert [[summary, "third question"], [summary, *words[4:7]]] == changed[2:4]
    assert "Summary of 4 turns: first question 1 second question 2 third question 3" in changed[4][0][0]["text"]
    assert ["fifth"] == changed[4][1:]


def test_results_of_tools_are_no_turns_of_the_user() -> None:
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "42"}]}
    asked = {"role": "user", "content": [{"type": "text", "text": "next"}]}
    body = {"model": "claude-opus-4-5", "max_tokens": 9, "messages": [asked, result, asked, result]}
    (changed,) = bodies(what_if("history_summarised:1", [record(body)]))
    assert [asked, result] == changed["messages"][1:]


@pytest.mark.parametrize(
    "sent",
    [
        [["a"], ["a", "1", "b"], ["b", "2", "c"], ["c", "3", "d"]],  # cut to the newest
        [["a"], ["a", "1", "b"], ["summary", "b", "2", "c"], ["other summary", "c", "3", "d"]],
        [["a"], ["a", "1", "b"], ["a", "1", "b", "2", "c"], ["a", "1", "b", "2", "c", "3", "d"]],  # kept as it is
    ],
)
def test_history_kept(sent: list[list[str]]) -> None:
    log = []
    for line, words in enumerate(sent, start=1):
        offset = 0 if words[-1] == "a" or len(words) % 2 else 1  # the newest is the user's
        body = chat(*words)
        for index, message in enumerate(body["messages"][1:]):
            message["role"] = ("user", "assistant")[(index + offset) % 2]
        log.append(record(body, line, session="s"))
    whole = ["a", "1", "b", "2", "c", "3", "d"]
    assert [whole[: 2 * turn + 1] for turn in range(4)] == [said(body) for body in bodies(what_if("history_kept", log))]


def test_a_history_that_begins_anew_is_left_alone() -> None:
    log = [record(chat("a", "1", "b"), session="s"), record(chat("x"), session="s"), record(chat("b"), session="t")]
    assert [["a", "1", "b"], ["x"], ["b"]] == [said(body) for body in bodies(what_if("history_kept", log))]


def anthropic(marker: Any = None) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": "rules " * 6000}
    if marker is not None:
        block["cache_control"] = marker
    return {
        "model": "claude-opus-4-5",
        "max_tokens": 9,
        "system": [block],
        "messages": [{"role": "user", "content": "hi"}],
    }


def test_lifetimes_of_markers() -> None:
    log = [
        record(anthropic({"type": "ephemeral"})),
        record(anthropic({"type": "ephemeral", "ttl": "1h"})),
        record(anthropic()),
    ]

    def markers(name: str) -> list[Any]:
        return [body["system"][0].get("cache_control") for body in bodies(what_if(name, log))]

    assert [{"type": "ephemeral"}] * 2 + [None] == markers("markers_5m")
    assert [{"type": "ephemeral", "ttl": "1h"}] * 2 + [None] == markers("markers_1h")
    automatic = [record({**anthropic(), "cache_control": {"type": "ephemeral"}})]
    assert {"type": "ephemeral", "ttl": "1h"} == bodies(what_if("markers_1h", automatic))[0]["cache_control"]


def test_planned_markers_with_a_longer_lifetime() -> None:
    log = [record(anthropic(), model="claude-opus-4-5")]
    (planned,) = bodies(what_if("breakpoints_planned", log))
    assert {"type": "ephemeral"} == planned["system"][0]["cache_control"]
    (both,) = bodies(what_if("breakpoints_planned+markers_1h", log))
    assert {"type": "ephemeral", "ttl": "1h"} == both["system"][0]["cache_control"]


def test_one_model() -> None:
    ids = Record(Blocks(b"", 1, 0), Place("log", 4), model="rare")
    log = [
        record(chat("a"), model="gpt-4o"),
        record(chat("a", model="x"), model="x"),
        record(chat("b"), model="gpt-4o"),
        ids,
    ]
    changed = list(what_if("one_model", log))
    assert ["gpt-4o"] * 4 == [found.model for found in changed]
    assert ["gpt-4o"] * 3 == [body["model"] for body in bodies(changed)]


def test_salts_by_tenant() -> None:
    log = [record(chat("a"), tenant=tenant) for tenant in ("acme/@", "acme/@", "other", "")]
    salts = [body.get("cache_salt") for body in bodies(what_if("salts_by_tenant", log))]
    assert salts[0] == salts[1] != salts[2]
    assert salts[3] is None
    assert {16} == {len(salt) for salt in salts if salt}


@pytest.mark.parametrize("name", list(ALTERNATIVES))
def test_every_alternative_keeps_the_records_and_can_be_read_again(name: str) -> None:
    log = [
        record(chat("a", "1", "b"), 1, time=1.0, session="s", tenant="t", model="gpt-4o"),
        record(b"\xff", 2, time=2.0),
        record("plain text", 3, time=3.0),
        record({"model": "m", "prompt": "complete"}, 4, time=4.0),
    ]
    changed = what_if(name, log)
    assert [(found.place, found.time) for found in log] == [(found.place, found.time) for found in changed]
    assert list(changed) == list(changed)
    assert [] == list(what_if(name, []))
    assert ALTERNATIVES[name].text.endswith(".")


@pytest.mark.parametrize("name", [name for name in ALTERNATIVES if name != "one_model"])
def test_ids_cannot_be_changed(name: str) -> None:
    with pytest.raises(UsageError, match=r"log:7 has ids instead of text\."):
        list(what_if(name, [Record(Blocks(b"", 1, 0), Place("log", 7))]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "There is no alternative 'nothing'"),
        ("markers_1h+", "There is no alternative ''"),
        ("markers_1h:3", "The alternative 'markers_1h:3' cannot be read"),
        ("history_truncated:0", "The alternative 'history_truncated:0' cannot be read"),
        ("history_truncated:many", "cannot be read"),
    ],
)
def test_what_is_no_alternative_is_named(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        what_if(name, [])
    assert caught.value.hint


def test_an_iterator_is_refused() -> None:
    with pytest.raises(TypeError, match="more than once"):
        what_if("canonicalised", iter([]))


# ---------------------------------------------------------------------------------------------------- a real service


def lines_of(name: str) -> list[Any]:
    lines = (RAGPULSE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def ragpulse() -> list[Record]:
    """RAGPulse as chats with stand-ins for its texts, four characters a token.

    Rules and a block that is new in nearly every request make the system text; passages, history and question the
    message. The tags around passages make it about 1 % longer than the trace says.
    """
    texts: dict[int, str] = {}
    for name in ("1_sys_prompt", "2_passages", "3_history", "4_user_input", "5_web_search"):
        for part in lines_of(name):
            length = part.pop("token_length")
            (identifier,) = part.values()
            texts[identifier] = (f"w{identifier:06}, " * (length // 2 + 1))[: 4 * length]
    log = []
    for line, request in enumerate(lines_of("0_trace"), start=1):
        ids = request["hash_ids"]
        passages = "\n".join(f'<document id="{part}">{texts[part]}</document>' for part in ids["passages_ids"])
        rest = [texts[part] for field in ("history", "web_search", "user_input") for part in ids[field]]
        messages = [
            {"role": "system", "content": "\n\n".join(texts[part] for part in ids["sys_prompt"])},
            {"role": "user", "content": "\n\n".join([passages, *rest])},
        ]
        more = {"time": float(request["timestamp"]), "session": request["session_id"]}
        log.append(record({"model": "rag", "messages": messages}, line, **more))
    return log


def share(records: Iterable[Record]) -> float:
    """Prefix hits of a cache without limit, four characters a token."""
    bounds = Bounds()
    for found in records:
        assert isinstance(found.content, Body)
        text = view_of(found.content.prompt).text.encode("ascii")
        run = text[: len(text) // WIDTH * WIDTH]  # as many bytes as a token id has
        bounds.add(Request(run, 1, count(run), 0.0, found))
    return bounds.lru().hit_rate(None)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_it_brings_in_a_real_service() -> None:
    if not RAGPULSE.exists():
        pytest.skip("the shared data is not here")
    log = ragpulse()
    reordered = list(what_if("reordered", log))
    shares = [share(log), share(reordered), share(what_if("documents_by_popularity", reordered))]
    assert [0.312, 0.37, 0.423] == [round(found, 3) for found in shares]
