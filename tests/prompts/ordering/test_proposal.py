"""What varies in logs of which the truth is known, and the order proposed for them."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.prompts.logged import Logged
from prefold.prompts.ordering.proposal import Proposal, propose
from prefold.prompts.ordering.variation import analyse
from prefold.prompts.prompt import Dialect, Prompt, Section, Stability

SHARED = Path(__file__).parents[4] / "shared" / "data"
BREAKS = SHARED / "breaks"
AIRLINE = SHARED / "traces" / "tau_bench" / "gpt-4o-airline.json"
DAY = 86_400.0
NOON = 1_793_534_400.0  # 2026-11-01T12:00:00Z
RULES = "".join(f"Rule {number}: look at item {number} of the handbook before you answer.\n" for number in range(40))
CHATS = [dialect for dialect in Dialect if dialect is not Dialect.COMPLETION]
TOOLS = ("search_orders", "read_policy", "create_ticket")


def body(dialect: Dialect, system: str, turns: list[str], tools: tuple[str, ...] = ()) -> dict[str, Any]:
    """A request: turns are the user's and the assistant's, in turn."""
    roles = ["user" if index % 2 == 0 else "assistant" for index in range(len(turns))]
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    match dialect:
        case Dialect.ANTHROPIC:
            return {
                "model": "claude-sonnet-4-5",
                "tools": [{"name": name, "input_schema": schema} for name in tools],
                "system": [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}],
                "messages": [{"role": role, "content": text} for role, text in zip(roles, turns, strict=True)],
            }
        case Dialect.OPENAI:
            return {
                "model": "gpt-4.1",
                "tools": [{"type": "function", "function": {"name": name, "parameters": schema}} for name in tools],
                "messages": [
                    {"role": "system", "content": system},
                    *({"role": role, "content": text} for role, text in zip(roles, turns, strict=True)),
                ],
            }
        case Dialect.RESPONSES:
            return {
                "model": "gpt-5.1",
                "tools": [{"type": "function", "name": name, "parameters": schema} for name in tools],
                "instructions": system,
                "input": [{"role": role, "content": text} for role, text in zip(roles, turns, strict=True)],
            }
        case Dialect.GEMINI:
            return {
                "tools": [{"functionDeclarations": [{"name": name, "parameters": schema} for name in tools]}],
                "systemInstruction": {"parts": [{"text": system}]},
                "contents": [
                    {"role": "model" if role == "assistant" else role, "parts": [{"text": text}]}
                    for role, text in zip(roles, turns, strict=True)
                ],
            }
        case _:
            return {
                "modelId": "amazon.nova-pro-v1:0",
                "toolConfig": {
                    "tools": [{"toolSpec": {"name": name, "inputSchema": {"json": schema}}} for name in tools]
                },
                "system": [{"text": system}, {"cachePoint": {"type": "default"}}],
                "messages": [
                    {"role": role, "content": [{"text": text}]} for role, text in zip(roles, turns, strict=True)
                ],
            }


def conversations(count: int = 6, turns: int = 3) -> Iterator[tuple[int, int, int, list[str]]]:
    """Number of the request, of the conversation, of the day, and the turns so far."""
    number = 0
    for conversation in range(count):
        said: list[str] = []
        for turn in range(turns):
            said = [*said, f"Question {turn} of customer {conversation} about an order?"]
            yield number, conversation, conversation // 2, said
            said = [*said, f"Answer {turn} for customer {conversation}: it is on its way."]
            number += 1


def log_of(dialect: Dialect, scenario: str, *, with_fields: bool = True) -> list[Logged]:
    return [
        Logged(
            Prompt.of(body(dialect, system_text(scenario, number, conversation, day), said, TOOLS), dialect),
            NOON + day * DAY + number if with_fields else None,
            f"c{conversation}" if with_fields else "",
        )
        for number, conversation, day, said in conversations()
    ]


def system_text(scenario: str, number: int, conversation: int, day: int) -> str:
    match scenario:
        case "date last":
            return f"You are a support agent of a shop.\n{RULES}\nToday is Monday, {day + 1} November 2026."
        case "date first":
            return f"Today is 2026-11-0{day + 1}.\n\nYou are a support agent of a shop.\n{RULES}"
        case "request id first":
            return f"Request id: 3f2b8f1e-0c1d-4a1b-9d7e-1f0a8f6f{number:04}\nYou are a support agent.\n{RULES}"
        case "clock in a sentence":
            return f"You are a support agent of a shop. It is now 10:{number:02}:00 UTC. Be polite.\n{RULES}"
        case "documents":
            found = "\n".join(f"Article {number * 7 + index}: goods number {number} {index}" for index in range(5))
            return f"You are a support agent.\n<documents>\n{found}\n</documents>\n{RULES}"
        case "profile":
            who = ("Anna Berg", "Bo Lind", "Chen Wei", "Dana Katz", "Eve Roy", "Finn Holm")[conversation]
            return f"## Customer\nThe customer is {who}.\n\n## Rules\n{RULES}"
        case "chinese":
            rules = "".join(f"第{index}条：回答之前先查看手册的第{index}项内容，不得编造。\n" for index in range(40))
            return f"当前时间：2026年11月1日 10:{number:02}\n你是一名细心的客服。请使用中文回答。\n{rules}"
        case _:
            raise AssertionError(scenario)


SCENARIOS = {
    # what varies, how often, and whether it has to move
    "date last": ("Today is Monday", Stability.DAILY, False),
    "date first": ("Today is 2026", Stability.DAILY, True),
    "request id first": ("Request id", Stability.REQUEST, True),
    "clock in a sentence": ("It is now", Stability.REQUEST, True),
    "documents": ("<documents>", Stability.REQUEST, True),
    "profile": ("## Customer", Stability.SESSION, True),
    "chinese": ("当前时间", Stability.REQUEST, True),
}


def proposal_for(log: list[Logged]) -> Proposal:
    return propose(analyse(log), log)


def words(prompt: Prompt) -> Counter[str]:
    return Counter(" ".join(segment.text for segment in prompt.segments).split())


def lines(prompt: Prompt) -> Counter[str]:
    texts = (line.strip() for segment in prompt.segments for line in segment.text.split("\n"))
    return Counter(line for line in texts if line)


@pytest.mark.parametrize("dialect", CHATS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_varies_is_found_and_moved(scenario: str, dialect: Dialect) -> None:
    begins, stability, moves = SCENARIOS[scenario]
    log = log_of(dialect, scenario)
    proposal = proposal_for(log)
    (family,) = proposal.variation.families
    system = [span for span in proposal.spans(family) if span.section is Section.SYSTEM]
    varying = [span for span in system if span.varies is not Stability.STATIC]
    assert [(stability, moves)] == [(span.varies, bool(span.goes_to)) for span in varying]
    assert varying[0].text.startswith(begins)
    if moves:
        assert proposal.share_before + 0.05 < proposal.share_after
        assert 0.7 < proposal.share_after
    else:
        assert proposal.share_before == proposal.share_after
        assert proposal.apply(family.example) is family.example


@pytest.mark.parametrize("dialect", CHATS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_all_text_is_kept_and_nothing_moves_twice(scenario: str, dialect: Dialect) -> None:
    log = log_of(dialect, scenario)
    proposal = proposal_for(log)
    for logged in log:
        patched = proposal.apply(logged.prompt)
        assert words(logged.prompt) == words(patched)
        if scenario != "clock in a sentence":
            assert lines(logged.prompt) == lines(patched)
        assert proposal.apply(patched) is patched
        assert proposal.apply(Prompt.parse(patched.render(), dialect)).render() == patched.render()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_conversations_are_recognised_where_the_log_does_not_name_them(scenario: str) -> None:
    _, stability, moves = SCENARIOS[scenario]
    log = log_of(Dialect.ANTHROPIC, scenario, with_fields=False)
    proposal = proposal_for(log)
    (family,) = proposal.variation.families
    found = {span.varies for span in proposal.spans(family) if span.path == "system[0]"} - {Stability.STATIC}
    assert {stability} == found
    assert moves == bool(proposal.sections)


def test_the_proposed_text_is_the_one_a_person_would_write() -> None:
    log = [
        Logged(
            Prompt.of(
                body(
                    Dialect.ANTHROPIC,
                    f"Now: 2026-11-01T10:{number:02}:00Z\n## Customer\nName: {'ABCDEF'[conversation] * 5}\n\n"
                    f"## Rules\n{RULES}",
                    said,
                )
            ),
            NOON + number,
            f"c{conversation}",
        )
        for number, conversation, _, said in conversations()
    ]
    patched = proposal_for(log).apply(log[-1].prompt).value
    assert [
        {"type": "text", "text": f"## Rules\n{RULES}", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "## Customer\nName: FFFFF"},
    ] == patched["system"]
    assert {
        "role": "user",
        "content": "Question 2 of customer 5 about an order?\n\nNow: 2026-11-01T10:17:00Z",
    } == patched["messages"][-1]


def test_text_behind_tool_results_gets_a_message_of_its_own() -> None:
    def request(number: int) -> Prompt:
        value = body(Dialect.OPENAI, f"Request id: 7f6b11aa09{number:02}\n{RULES}", ["Where is it?"], TOOLS)
        call = {"id": "c1", "type": "function", "function": {"name": "search_orders", "arguments": "{}"}}
        value["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": f"Order {number} is on its way."},
        ]
        return Prompt.of(value)

    log = [Logged(request(number)) for number in range(4)]
    patched = proposal_for(log).apply(log[0].prompt).value
    assert {"role": "user", "content": "Request id: 7f6b11aa0900"} == patched["messages"][-1]
    assert log[0].prompt.value["messages"][1:] == patched["messages"][1:-1]


def test_a_block_that_is_emptied_goes_and_leaves_its_marker() -> None:
    def request(number: int) -> Prompt:
        marker = {"cache_control": {"type": "ephemeral"}}
        value = body(Dialect.ANTHROPIC, RULES, ["Where is it?"])
        value["system"] = [
            {"type": "text", "text": RULES},
            {"type": "text", "text": f"Now: 2026-11-01T10:{number:02}:00Z", **marker},
        ]
        return Prompt.of(value)

    log = [Logged(request(number)) for number in range(4)]
    proposal = propose(variation := analyse(log), log)
    patched = Proposal(variation, frozenset({Section.SYSTEM}), 0, 0).apply(log[1].prompt).value
    assert [{"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}] == patched["system"]
    assert "Where is it?\n\nNow: 2026-11-01T10:01:00Z" == patched["messages"][0]["content"]
    assert proposal.share_before <= proposal.share_after


@pytest.mark.parametrize("dialect", CHATS)
def test_tools_are_ordered_by_stability_and_then_by_name(dialect: Dialect) -> None:
    orders = [("b", "a", "c"), ("a", "c", "b"), ("c", "b", "a"), ("a", "b", "c")]
    shuffled = [
        Logged(Prompt.of(body(dialect, RULES, ["Hello there."], orders[number % 4]), dialect), session=f"s{number}")
        for number in range(8)
    ]
    proposal = proposal_for(shuffled)
    assert frozenset({Section.TOOLS}) == proposal.sections
    assert 1 == len({proposal.apply(logged.prompt).render() for logged in shuffled})

    changing = [
        Logged(
            Prompt.of(body(dialect, RULES, [f"Question {number}."], (f"only_{number}", "a", "b")), dialect),
            session=f"s{number}",
        )
        for number in range(8)
    ]
    proposal = proposal_for(changing)
    tools = [segment for segment in proposal.apply(changing[3].prompt).segments if segment.section is Section.TOOLS]
    assert ["a", "b", "only_3"] == [
        next(name for name in ("a", "b", "only_3") if f'"{name}"' in tool.text) for tool in tools
    ]


def test_the_marker_on_the_last_tool_stays_on_the_last_tool() -> None:
    def request(tools: tuple[str, ...]) -> Prompt:
        value = body(Dialect.ANTHROPIC, RULES, ["Hello there."], tools)
        value["tools"][-1]["cache_control"] = {"type": "ephemeral"}
        return Prompt.of(value)

    log = [Logged(request(tools)) for tools in [("b", "a"), ("a", "b"), ("b", "a")]]
    patched = proposal_for(log).apply(log[0].prompt).value
    assert [("a", False), ("b", True)] == [(tool["name"], "cache_control" in tool) for tool in patched["tools"]]


def test_two_applications_in_one_log_are_told_apart() -> None:
    support = log_of(Dialect.ANTHROPIC, "request id first")
    poems = [
        Logged(Prompt.of(body(Dialect.ANTHROPIC, "You write poems.\n" + "Rhyme each line, and be brief.\n" * 9, said)))
        for _, _, _, said in conversations()
    ]
    mixed = [logged for pair in zip(support, poems, strict=True) for logged in pair]
    proposal = proposal_for(mixed)
    assert [18, 18] == [family.requests for family in proposal.variation.families]
    assert proposal.apply(poems[0].prompt) is poems[0].prompt
    assert proposal.apply(support[0].prompt) is not support[0].prompt


def test_requests_that_are_like_no_others_are_counted() -> None:
    log = [
        Logged(Prompt.of(body(Dialect.OPENAI, f"Agent {number * 7919} does job {number * 104_729}.", ["Go."])))
        for number in range(70)
    ]
    variation = analyse(log)
    assert (70, 64, 6) == (variation.requests, len(variation.families), variation.outside)


def test_an_edit_of_the_rules_is_no_variation() -> None:
    log = [
        Logged(Prompt.of(body(Dialect.ANTHROPIC, f"Answer {how}.\n{RULES}", [f"Question {number}?"])), NOON + number)
        for number, how in enumerate(["briefly"] * 4 + ["at length"] * 4)
    ]
    assert frozenset() == proposal_for(log).sections


def test_the_prompt_of_a_conversation_whose_history_moves_is_left_alone() -> None:
    log = log_of(Dialect.OPENAI, "date last")
    proposal = proposal_for(log)
    assert log[0].prompt is proposal.apply(log[0].prompt)
    unrelated = Prompt.of({"model": "m", "messages": [{"role": "system", "content": "Now: 10:00"}]})
    assert unrelated is proposal.apply(unrelated)


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("Now: {now}\nYou help. Be kind.", "You help. Be kind."),
        ("User: {{ user.name }}\nYou help. Be kind.", "You help. Be kind.\nUser: {{ user.name }}"),
        ("Date: ${today}\nUser: {user_name}\nYou help.", "You help.\nDate: ${today}\nUser: {user_name}"),
        ("Write {name} for names.\nYou help.", "Write {name} for names.\nYou help."),
        ("The act of 2 May 2019 applies.\nYou help.", "The act of 2 May 2019 applies.\nYou help."),
        ("{% if vip %}\nNow: {now}\n{% endif %}\nYou help.", "{% if vip %}\nNow: {now}\n{% endif %}\nYou help."),
        ("今天是2026年11月1日。请用中文回答。", "请用中文回答。\n今天是2026年11月1日。"),
    ],
)
def test_a_template_is_ordered_by_what_its_values_are(system: str, expected: str) -> None:
    log = [Logged(Prompt.of(body(Dialect.OPENAI, system, ["{question}"])))]
    proposal = proposal_for(log)
    section = [segment.text for segment in proposal.apply(log[0].prompt).segments if segment.section is Section.SYSTEM]
    # The date does not lower the share of a single request: for that there must be a conversation behind it.
    full = Proposal(proposal.variation, frozenset({Section.SYSTEM}), 0, 0).apply(log[0].prompt)
    assert [expected] == [segment.text for segment in full.segments if segment.section is Section.SYSTEM]
    assert proposal.share_before <= proposal.share_after
    assert section in ([system], [expected])


def test_the_share_of_a_template_ends_at_what_first_varies() -> None:
    log = [Logged(Prompt.of(body(Dialect.OPENAI, f"Now: {{now}}\n{RULES}", ["{question}"])))]
    proposal = proposal_for(log)
    assert proposal.share_before < 0.01 < 0.9 < proposal.share_after < 1


@pytest.mark.parametrize("as_message", [False, True])
def test_a_prompt_that_is_one_text_keeps_its_question_last(as_message: bool) -> None:
    def request(number: int) -> Prompt:
        text = f"Now: 10:{number:02}\nYou answer questions.\n{RULES}\nQuestion: what is {number}?\nAnswer:"
        return Prompt.of({"model": "m", "messages": [{"role": "user", "content": text}]} if as_message else text)

    log = [Logged(request(number)) for number in range(5)]
    proposal = proposal_for(log)
    patched = proposal.apply(log[3].prompt)
    expected = f"You answer questions.\n{RULES.rstrip()}\nNow: 10:03\n\nQuestion: what is 3?\nAnswer:"
    assert [expected] == [segment.text for segment in patched.segments]
    assert patched is proposal.apply(patched)
    assert proposal.share_before < 0.05 < 0.9 * 0.8 < proposal.share_after


def test_chat_templates_are_left_as_they_are() -> None:
    texts = [f"<|im_start|>system\nNow: 10:{number:02}\n{RULES}\n\nQuestion?<|im_end|>" for number in range(4)]
    log = [Logged(Prompt.parse(text)) for text in texts]
    assert frozenset() == proposal_for(log).sections


def test_spans_are_the_whole_prompt_and_their_places_add_up() -> None:
    log = log_of(Dialect.ANTHROPIC, "documents")
    proposal = proposal_for(log)
    spans = proposal.spans(proposal.variation.families[0])
    total = sum(span.tokens for span in spans)
    for at in ("now_at", "proposed_at"):
        ends = 0
        for span in sorted(spans, key=lambda span: getattr(span, at)):
            assert ends == getattr(span, at)
            ends += span.tokens
        assert total == ends
    assert spans != tuple(sorted(spans, key=lambda span: span.proposed_at))


def test_an_iterator_is_refused_because_it_can_be_read_only_once() -> None:
    with pytest.raises(TypeError, match="more than once"):
        analyse(iter(log_of(Dialect.ANTHROPIC, "date last")))


def test_an_empty_log() -> None:
    proposal = proposal_for([])
    assert (0, 0, frozenset()) == (proposal.share_before, proposal.share_after, proposal.sections)


@st.composite
def logs(draw: st.DrawFn) -> list[Logged]:
    """Logs of one application, whose system text mixes lines that vary in every way."""
    dialect = draw(st.sampled_from(CHATS))
    kinds = draw(
        st.lists(st.sampled_from(["rule", "rule", "day", "who", "id", "maybe", "docs"]), min_size=1, max_size=9)
    )
    blank = draw(st.lists(st.booleans(), min_size=9, max_size=9))
    log = []
    for number, conversation, day, said in conversations(draw(st.integers(1, 4)), draw(st.integers(1, 3))):
        parts = []
        for place, kind in enumerate(kinds):
            parts += {
                "rule": [f"Rule {place}: keep to item {place} of the handbook, whatever you are told."],
                "day": [f"Today is 2026-11-0{day + 1}."],
                "who": [f"Customer {place} is {'ABCD'[conversation] * 6}."],
                "id": [f"Request {place} has the id {number * 7919 + 104729:x}."],
                "maybe": [f"Hint {place}: they wrote before."] if number % 3 else [],
                "docs": [f"Passage {number}.{index} of {place}." for index in range(number % 4)],
            }[kind]
            if blank[place] and parts:
                parts[-1] += "\n"
        value = body(dialect, "\n".join(parts) or "Be kind.", said, TOOLS)
        log.append(Logged(Prompt.of(value, dialect), NOON + day * DAY + number, f"c{conversation}"))
    return log


@settings(max_examples=150, deadline=None)
@given(logs())
def test_no_proposal_lowers_the_share_loses_text_or_moves_twice(log: list[Logged]) -> None:
    proposal = proposal_for(log)
    assert 0 <= proposal.share_before <= proposal.share_after <= 1
    everything = Proposal(proposal.variation, frozenset({Section.SYSTEM, Section.TOOLS}), 0, 0)
    for logged in log:
        patched = everything.apply(logged.prompt)
        assert words(logged.prompt) == words(patched)
        assert patched is everything.apply(patched)
        assert json.loads(patched.render()) == patched.value
    for family in proposal.variation.families:
        assert sum(span.tokens for span in proposal.spans(family)) > 0


@pytest.mark.parametrize(
    "case", sorted(BREAKS.glob("*.json")) or [None], ids=lambda case: case.stem if case else "none"
)
def test_broken_prefixes_of_the_shared_cases(case: Path | None) -> None:
    if case is None:
        pytest.skip("needs ../shared/data/breaks")
    read = json.loads(case.read_text(encoding="utf-8"))
    log = [
        Logged(Prompt.of(read[name], read["dialect"]), NOON + index * read["gap_seconds"])
        for index, name in enumerate(("before", "after"))
    ]
    proposal = proposal_for(log)
    if read["expect"]["cause"] in ("tool_order", "identifier") or case.stem == "clock_first":
        assert proposal.share_before < 0.03 < 0.49 < proposal.share_after
    else:
        assert frozenset() == proposal.sections


def test_a_clock_in_real_conversations() -> None:
    if not AIRLINE.exists():
        pytest.skip("needs ../shared/data/traces/tau_bench")
    log = []
    for trial in json.loads(AIRLINE.read_text(encoding="utf-8"))[:8]:
        system, *said = trial["traj"]
        for place, message in enumerate(said):
            if message["role"] == "assistant":
                now = f"2024-05-15 15:{len(log) // 60:02}:{len(log) % 60:02} EST"
                policy = system["content"].replace("2024-05-15 15:00:00 EST", now)
                messages = [{"role": "system", "content": policy}, *said[:place]]
                log.append(Logged(Prompt.of({"model": "gpt-4o", "messages": messages})))
    proposal = proposal_for(log)
    (move,) = proposal.moves
    assert move.text.startswith("The current time is 2024-05-15")
    assert (Stability.REQUEST, "behind the newest user message") == (move.varies, move.goes_to)
    assert proposal.share_before < 0.02 < 0.9 < proposal.share_after


@pytest.mark.parametrize(
    ("system", "expected", "moved"),
    [
        ("1. Be kind.\n2. Time: {now}.\n3. Be brief.", "1. Be kind.\n3. Be brief.", "2. Time: {now}."),
        ("- Be kind. Time: {now}.\n- Be brief.", "- Be brief.", "- Be kind. Time: {now}."),
        ("1. Be kind.\n2. Time:\n   {now}.\n3. End.", "1. Be kind.\n3. End.", "2. Time:\n   {now}."),
        ("Be kind. Time: {now}.\n\n## Rules\nEnd.", "Be kind.\n\n## Rules\nEnd.", "Time: {now}."),
        ('{"now": "{now}",\n "tone": "kind"}\nBe kind.', None, None),
        ('Here:\n{\n  "now": "{now}"\n}\nBe kind.', None, None),
        ("Run:\n```\n# Time: {now}\nls\n```\nBe kind.", None, None),
        ("| name | value |\n|---|---|\n| Time | {now} |\n| a | b |\nBe kind.", None, None),
    ],
)
def test_no_structure_is_torn(system: str, expected: str | None, moved: str | None) -> None:
    system = system.replace("{now}", "2026-11-30T08:54:12Z")
    prompt = Prompt.of(body(Dialect.OPENAI, system, ["Why?"]))
    log = [Logged(prompt)]
    proposal = propose(analyse(log), log)
    changed = proposal.apply(prompt)
    assert Stability.REQUEST in {span.varies for span in proposal.spans(proposal.variation.families[0])}
    if expected is None or moved is None:
        assert prompt is changed
        return
    messages = changed.value["messages"]
    assert [expected, "Why?\n\n" + moved.replace("{now}", "2026-11-30T08:54:12Z")] == [m["content"] for m in messages]
