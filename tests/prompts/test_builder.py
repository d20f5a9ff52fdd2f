"""Prompts put together so that their prefix stays."""

from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.errors import InvalidRequest
from prefold.prompts.builder import PromptBuilder
from prefold.prompts.prompt import Dialect, Prompt, Section, Stability
from prefold.prompts.view import view_of

DIALECTS = [dialect for dialect in Dialect if dialect is not Dialect.COMPLETION]
REQUEST_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def tool(dialect: Dialect, name: str) -> dict[str, Any]:
    match dialect:
        case Dialect.OPENAI:
            return {"type": "function", "function": {"name": name}}
        case Dialect.BEDROCK:
            return {"toolSpec": {"name": name}}
        case _:
            return {"name": name, "description": "d"}


def mixed(dialect: Dialect) -> PromptBuilder:
    """Parts in the worst order."""
    return (
        PromptBuilder()
        .system("Now: 2026-11-30T08:54:12Z", "request")
        .system("The customer is Ada.", "session")
        .system("Today is 2026-11-30.", "daily")
        .document("kb-2", "Second.")
        .document("kb-1", "First.")
        .document("handbook", "Standing.", "static")
        .system("You are a support agent.")
        .tool(tool(dialect, "b"))
        .tool(tool(dialect, "a"))
        .message("user", "Hello")
        .message("assistant", "Hello, Ada")
        .message("user", "Where is my parcel?")
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_parts_in_order_of_their_stability(dialect: Dialect) -> None:
    prompt = mixed(dialect).build(dialect, model="m")
    segments = prompt.segments
    ranks = [segment.stability.rank for segment in segments]
    assert sorted(ranks) == ranks
    assert ["static"] * 4 + ["daily"] + ["session"] * 3 + ["request"] * 4 == [s.stability.value for s in segments]
    assert [
        "You are a support agent.",
        '<document id="handbook">\nStanding.\n</document>',
        "Today is 2026-11-30.",
        "The customer is Ada.",
        "Hello",
        "Hello, Ada",
        '<document id="kb-1">\nFirst.\n</document>',
        '<document id="kb-2">\nSecond.\n</document>',
        "Where is my parcel?",
        "Now: 2026-11-30T08:54:12Z",
    ] == [segment.text for segment in segments[2:]]
    assert [Section.TOOLS] * 2 + [Section.SYSTEM] * 4 + [Section.MESSAGES] * 6 == [s.section for s in segments]
    assert "m" == prompt.model
    assert [segment.text for segment in segments] == [s.text for s in Prompt.parse(prompt.render(), dialect).segments]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_new_request_shares_all_in_front_of_it(dialect: Dialect) -> None:
    def built(now: str, question: str) -> str:
        builder = PromptBuilder().tool(tool(dialect, "a")).system(f"Now: {now}", "request").system("You are an agent.")
        return view_of(builder.message("user", question).build(dialect)).text

    first, second = built("2026-11-30T08:54:12Z", "Why?"), built("2026-11-30T09:00:00Z", "Why?")
    assert first.index("08:54") > first.index("Why?") > first.index("You are an agent.")
    assert first.partition("08:54")[0] == second.partition("09:00")[0]


def test_a_completion_is_one_text() -> None:
    builder = PromptBuilder().system("Answer.").document("d", "Facts.").message("user", "Why?")
    prompt = builder.build("completion", model="m", max_tokens=5)
    assert {"model": "m", "prompt": 'Answer.\n\n<document id="d">\nFacts.\n</document>\n\nWhy?', "max_tokens": 5} == (
        prompt.value
    )
    with pytest.raises(InvalidRequest, match="A completion has no tools"):
        builder.tool({"name": "a"}).build("completion")
    with pytest.raises(InvalidRequest, match="no content but text"):
        builder.message("user", [{"type": "image"}]).build("completion")


def test_a_short_prompt_is_as_short_as_by_hand() -> None:
    builder = PromptBuilder().system("Be kind.").message("user", "Hi")
    assert {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]} == (
        builder.build("openai").value
    )
    assert {
        "model": "claude-x",
        "system": [{"type": "text", "text": "Be kind."}],
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 10,
    } == builder.build("anthropic", model="claude-x", max_tokens=10).value
    assert {
        "systemInstruction": {"parts": [{"text": "Be kind."}]},
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
    } == builder.build("gemini").value


def test_words_of_a_request_without_a_message_of_the_users() -> None:
    prompt = PromptBuilder().system("Now: 2026-11-30T08:54:12Z", "request").build("anthropic")
    assert [{"role": "user", "content": [{"type": "text", "text": "Now: 2026-11-30T08:54:12Z"}]}] == (
        prompt.value["messages"]
    )


def test_geminis_own_tools_stand_beside_its_functions() -> None:
    prompt = PromptBuilder().tool({"googleSearch": {}}).tool({"name": "b"}).tool({"name": "a"}).build("gemini")
    assert [{"functionDeclarations": [{"name": "a"}, {"name": "b"}]}, {"googleSearch": {}}] == prompt.value["tools"]


def test_documents_by_popularity() -> None:
    builder = PromptBuilder(popularity={"b": 2, "a": 1}).document("a", "A").document("b", "B").message("user", "?")
    texts = [segment.text for segment in builder.build("anthropic").segments]
    assert ['<document id="b">\nB\n</document>', '<document id="a">\nA\n</document>', "?"] == texts


def test_an_id_cannot_end_its_attribute() -> None:
    (segment, _) = PromptBuilder().document('"><x>', "").message("user", "?").build("anthropic").segments
    assert "<document id='\"&gt;&lt;x&gt;'>\n\n</document>" == segment.text


def test_a_builder_is_never_changed() -> None:
    base = PromptBuilder().system("Shared.")
    one, two = base.message("user", "1"), base.message("user", "2")
    assert ["Shared.", "1"] == [segment.text for segment in one.build("anthropic").segments]
    assert ["Shared.", "2"] == [segment.text for segment in two.build("anthropic").segments]


@pytest.mark.parametrize(
    ("text", "span", "stability"),
    [
        ("The time is 2026-11-30T08:54:12Z.", "2026-11-30T08:54:12Z", "request"),
        ("Today is 2026-11-30.", "2026-11-30", "daily"),
        (f"Request id: {REQUEST_ID}", REQUEST_ID, "request"),
        (f"session_id: {REQUEST_ID}", REQUEST_ID, "session"),
        ("x-billing: cch=1f3a9;", "1f3a9", "request"),
    ],
)
def test_clocks_and_ids_are_refused_where_nothing_may_change(text: str, span: str, stability: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        PromptBuilder().system(text)
    assert span in caught.value.message
    assert (
        f"character {text.index(span)}," in caught.value.message
        or f"at character {text.index('cch')}" in caught.value.message
    )
    assert f"stability='{stability}'" in caught.value.hint
    for builder in (PromptBuilder().system(text, stability), PromptBuilder().system(text, fixed=True)):
        assert text in [segment.text for segment in builder.build("anthropic").segments]


def test_a_day_is_daily_and_a_time_is_not() -> None:
    PromptBuilder().system("Today is 2026-11-30.", "daily")
    with pytest.raises(InvalidRequest, match="The daily system text holds"):
        PromptBuilder().system("The time is 2026-11-30T08:54:12Z.", "daily")


@pytest.mark.parametrize(
    "value", [datetime(2026, 11, 30, tzinfo=UTC), date(2026, 11, 30), UUID(int=5)], ids=["datetime", "date", "UUID"]
)
def test_values_that_a_program_has_just_made_are_refused(value: object) -> None:
    for add in (
        lambda: PromptBuilder().system(value),
        lambda: PromptBuilder().system({"a": [value]}),
        lambda: PromptBuilder().tool({"name": "t", "default": value}),
    ):
        with pytest.raises(InvalidRequest, match=f"holds the {type(value).__name__} "):
            add()
    fixed = PromptBuilder().tool({"name": "t", "default": value}, fixed=True).build("anthropic")
    assert isinstance(fixed.value["tools"][0]["default"], str)


def test_values_are_written_as_canonical_json() -> None:
    (segment,) = PromptBuilder().system({"b": 1.50, "a": {"y", "x"}}).build("anthropic").segments
    assert '{"a":["x","y"],"b":1.5}' == segment.text


def test_what_is_no_clock_is_let_through() -> None:
    text = "Python 3.11, the law of 2018-05-25, 192.0.2.1, open from 08:00 to 17:00."
    assert text == PromptBuilder().system(text).build("anthropic").segments[0].text


def test_examples_go_before_the_conversation() -> None:
    builder = (
        PromptBuilder().message("user", "2+2", "static").message("assistant", "4", "static").message("user", "3+3")
    )
    assert ["static", "static", "request"] == [s.stability.value for s in builder.build("openai").segments]
    with pytest.raises(InvalidRequest, match="A static message comes behind a session one"):
        PromptBuilder().message("user", "Hi", "session").message("user", "2+2", "static")
    with pytest.raises(InvalidRequest, match="The static user message holds"):
        PromptBuilder().message("user", f"Request id: {REQUEST_ID}", "static")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PromptBuilder().system("x", "weekly"), "no stability 'weekly'"),
        (lambda: PromptBuilder().message("system", "x"), "has the role system"),
        (lambda: PromptBuilder().tool(["x"]), "not an object"),
        (lambda: PromptBuilder().tool({"name": object()}), "of type object"),
        (lambda: PromptBuilder().build("klingon"), "no dialect 'klingon'"),
    ],
)
def test_what_cannot_be_built(call: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        call()
    assert caught.value.hint


PARTS = st.lists(st.tuples(st.sampled_from(["system", "document", "tool"]), st.sampled_from(Stability)), max_size=8)


@given(PARTS, st.sampled_from(DIALECTS), st.randoms())
def test_any_parts_come_in_order_however_they_are_added(parts: Any, dialect: Dialect, random: Any) -> None:
    def built(order: list[tuple[int, str, Stability]]) -> Prompt:
        builder = PromptBuilder().message("user", "?")
        for number, kind, stability in order:
            match kind:
                case "tool":
                    builder = builder.tool(tool(dialect, f"t{number}"), stability)
                case "document":
                    builder = builder.document(f"d{number}", "text", stability)
                case _:
                    builder = builder.system(f"s{number}", stability)
        return builder.build(dialect)

    numbered = [(number, *part) for number, part in enumerate(parts)]
    prompt = built(numbered)
    for section in Section:
        ranks = [segment.stability.rank for segment in prompt.segments if segment.section is section]
        assert sorted(ranks) == ranks
    assert len(parts) + 1 == len(prompt.segments)
    mixed_up = [part for part in numbered if part[1] != "system"]
    random.shuffle(mixed_up)
    again = built([*(part for part in numbered if part[1] == "system"), *mixed_up])
    assert prompt.render() == again.render()


def test_parts_of_one_name_are_in_one_order() -> None:
    tools = [{"type": "mcp", "server_label": "s", "server_url": url} for url in ("https://a", "https://b")]
    bodies = [
        PromptBuilder().tool(one).tool(two).document("d", first).document("d", second).message("user", "Hi")
        for one, two, first, second in ((*tools, "x", "y"), (*tools[::-1], "y", "x"))
    ]
    assert 1 == len({builder.build("anthropic").render() for builder in bodies})


def test_what_is_of_a_customer_is_of_a_session() -> None:
    with pytest.raises(InvalidRequest) as caught:
        PromptBuilder().system(f"Customer id: {REQUEST_ID}")
    assert "stability='session'" in caught.value.hint
