"""Where two requests part, why, what it costs, and whether the fix mends it."""

import copy
import json
from pathlib import Path as File
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.errors import InvalidRequest
from prefold.prompts.causes import CAUSES
from prefold.prompts.divergence.compare import Divergence, compare
from prefold.prompts.divergence.reuse import target_rules
from prefold.prompts.divergence.text_difference import masked
from prefold.prompts.prompt import Prompt, Stability
from prefold.prompts.tokens import Estimate, counter_for
from prefold.prompts.view import view_of
from prefold.providers.rules import rules_for, rules_of

from .breaks import Pair, conversation, pairs, written

SHARED = File(__file__).parents[4] / "shared" / "data" / "breaks"
PAIRS = list(pairs())


def compared(before: Any, after: Any, dialect: str | None = None, **options: Any) -> Divergence:
    return compare(Prompt.of(before, dialect), Prompt.of(after, dialect), **options)


def keeps_new_words(mended: Prompt, before: Prompt, after: Prompt) -> bool:
    """Whether all that only the later request says behind its last answer, values aside, is in the mended one too."""
    old, new = view_of(before).text, view_of(mended).text
    texts = [segment.text for segment in after.segments if segment.stability is Stability.REQUEST and segment.role]
    texts = texts or ["\n".join(after.segments[-1].text.splitlines()[-3:])]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return all(line in new for line in lines if line not in old and masked(line) == line)


def found(divergence: Divergence) -> tuple[str, str | None]:
    return divergence.cause, None if divergence.path is None else str(divergence.path)


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data/breaks is not there")
def test_the_public_cases() -> None:
    cases = [json.loads(file.read_text()) for file in sorted(SHARED.glob("*.json"))]
    assert 12 == len(cases)
    for case in cases:
        divergence = compared(case["before"], case["after"], case["dialect"], gap_seconds=case["gap_seconds"])
        assert (case["expect"]["cause"], case["expect"]["path"]) == found(divergence), case["id"]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.dialect}-{pair.language}-{pair.name}")
def test_every_kind_in_every_dialect(pair: Pair) -> None:
    """The cause, the path and the position are right, and the fix removes the break."""
    before, after = Prompt.of(pair.before, pair.dialect), Prompt.of(pair.after, pair.dialect)
    divergence = compare(before, after, gap_seconds=pair.gap_seconds)
    assert (pair.cause, pair.path) == found(divergence)
    if divergence.cause in ("none", "model", "parameter", "routed_away", "salt"):
        assert (pair.cause == "none") is (divergence.lost_tokens == 0)
    else:
        texts = view_of(before).text, view_of(after).text
        char = divergence.char
        assert texts[0][:char] == texts[1][:char]
        assert texts[0][char] != texts[1][char]
    if divergence.mended is not None:
        assert keeps_new_words(divergence.mended[1], before, after)
        mended = compare(*divergence.mended, gap_seconds=pair.gap_seconds)
        assert divergence.cause != mended.cause
        assert divergence.gain_tokens == max(0, min(divergence.lost_tokens, mended.hit_tokens - divergence.hit_tokens))
        assert divergence.gain_tokens > 0 or divergence.lost_tokens < 128


def test_every_cause_is_described() -> None:
    named = {pair.cause for pair in PAIRS} | {"template_default", "bos", "lookback", "expired", "too_short"}
    assert named | {"no_breakpoint", "evicted"} == set(CAUSES)


def test_json_has_the_promised_fields() -> None:
    pair = next(pair for pair in PAIRS if pair.cause == "clock")
    shown = compared(pair.before, pair.after, pair.dialect).as_json()
    assert {"cause", "path", "char", "token", "lost_tokens", "before", "after", "fix", "gain_tokens"} <= shown.keys()
    assert shown == json.loads(json.dumps(shown))


# --- rules of providers


def marked(*texts: str, markers: dict[int, dict[str, str]], system: str = "") -> dict[str, Any]:
    """An Anthropic request whose messages are single blocks, some of them marked."""
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": [{"type": "text", "text": text}]}
        for i, text in enumerate(texts)
    ]
    for index, marker in markers.items():
        messages[index]["content"][0]["cache_control"] = marker
    body = {"model": "claude-sonnet-4-5", "max_tokens": 10, "messages": messages}
    return {**body, "system": system} if system else body


LONG = "The quick brown fox explains the rules of the house in great detail. " * 120
SHORT_LIVED = {"type": "ephemeral"}
LONG_LIVED = {"type": "ephemeral", "ttl": "1h"}


@pytest.mark.parametrize(
    ("marker", "gap", "cause"),
    [
        (SHORT_LIVED, 299, "none"),
        (SHORT_LIVED, 301, "expired"),
        (LONG_LIVED, 3500, "none"),
        (LONG_LIVED, 3700, "expired"),
    ],
)
def test_entries_live_as_long_as_their_marker_says(marker: dict[str, str], gap: float, cause: str) -> None:
    before = marked(LONG, markers={0: marker})
    after = marked(LONG, "Yes.", "And?", markers={2: marker})
    divergence = compared(before, after, gap_seconds=gap)
    assert (cause, None) == found(divergence)
    if gap == 301:
        assert divergence.gain_tokens == divergence.lost_tokens > 1024  # an hour is enough
    if gap == 3700:
        assert 0 == divergence.gain_tokens  # no lifetime is


@pytest.mark.parametrize(("blocks", "cause"), [(18, "none"), (19, "lookback"), (60, "lookback")])
def test_a_turn_that_outgrows_the_lookback(blocks: int, cause: str) -> None:
    before = marked(LONG, markers={0: SHORT_LIVED})
    turn = [f"Step {i}." for i in range(blocks)]
    after = marked(LONG, *turn, "Done?", markers={blocks + 1: SHORT_LIVED})
    divergence = compared(before, after)
    assert (cause, None) == found(divergence)
    if cause == "lookback":
        assert "messages[0].content[0]" in divergence.fix
        assert divergence.gain_tokens == divergence.lost_tokens > 1024


@pytest.mark.parametrize(("model", "cause"), [(None, "none"), ("us.anthropic.claude-sonnet-4-5", "lookback")])
def test_parallel_tool_calls_are_one_position_on_the_claude_api(model: str | None, cause: str) -> None:
    before = marked(LONG, markers={0: SHORT_LIVED})
    after = copy.deepcopy(before)
    del after["messages"][0]["content"][0]["cache_control"]
    calls = [{"type": "tool_use", "id": f"t{i}", "name": "f", "input": {}} for i in range(15)]
    results = [{"type": "tool_result", "tool_use_id": f"t{i}", "content": "ok"} for i in range(15)]
    results[-1]["cache_control"] = SHORT_LIVED
    after["messages"] += [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    if model is not None:
        before["model"] = after["model"] = model
    assert (cause, None) == found(compared(before, after))


def test_no_marker_at_all() -> None:
    divergence = compared(marked(LONG, markers={}), marked(LONG, "Yes.", "And?", markers={}))
    assert ("no_breakpoint", None) == found(divergence)
    assert "messages[0].content[0]" in divergence.fix
    assert divergence.gain_tokens == divergence.lost_tokens > 1024


def test_the_marker_was_stripped_on_the_way() -> None:
    divergence = compared(marked(LONG, markers={0: SHORT_LIVED}), marked(LONG, "Yes.", "And?", markers={}))
    assert ("no_breakpoint", None) == found(divergence)
    assert divergence.gain_tokens == divergence.lost_tokens > 1024


def test_a_marker_on_a_block_that_never_repeats() -> None:
    before = marked("Where is Bern?", markers={0: SHORT_LIVED}, system=LONG)
    after = marked("How do bees sleep?", markers={0: SHORT_LIVED}, system=LONG)
    divergence = compared(before, after)
    assert ("no_breakpoint", None) == found(divergence)
    assert "system" in divergence.fix
    assert divergence.gain_tokens == divergence.lost_tokens > 1024


def test_an_automatic_marker_counts() -> None:
    before = {**marked(LONG, markers={}), "cache_control": SHORT_LIVED}
    after = {**marked(LONG, "Yes.", "And?", markers={}), "cache_control": SHORT_LIVED}
    divergence = compared(before, after)
    assert ("none", None) == found(divergence)
    assert divergence.hit_tokens > 1024


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gpt-5.2", "gemini-2.5-flash"])
def test_a_prefix_below_the_minimum(model: str) -> None:
    dialect = {"c": "anthropic", "g": "openai"}[model[0]]
    before = {"model": model, "messages": [{"role": "user", "content": "Short."}]}
    after = {
        **before,
        "messages": [*before["messages"], {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "?"}],
    }
    divergence = compared(before, after, dialect)
    assert ("too_short", None) == found(divergence)
    assert 0 == divergence.hit_tokens == divergence.gain_tokens


def chat(*texts: str, model: str = "gpt-5.2", **settings: Any) -> dict[str, Any]:
    messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
    return {"model": model, "messages": messages, **settings}


@pytest.mark.parametrize(
    ("settings", "gap", "cause"),
    [({}, 290, "none"), ({}, 900, "expired"), ({"prompt_cache_retention": "24h"}, 4000, "none")],
)
def test_lifetimes_without_markers(settings: dict[str, str], gap: float, cause: str) -> None:
    before, after = chat(LONG, **settings), chat(LONG, "Yes.", "And?", **settings)
    assert (cause, None) == found(compared(before, after, gap_seconds=gap))


def test_hits_are_multiples_of_the_granularity() -> None:
    before, after = chat(LONG), chat(LONG, "Yes.", "And?")
    divergence = compared(before, after)
    assert 0 == divergence.hit_tokens % 128
    assert divergence.hit_tokens >= 1024
    total = counter_for("gpt-5.2").count(view_of(Prompt.of(before)).text)
    assert 0 <= total - divergence.hit_tokens < 128


def test_implicit_breakpoints_of_newer_models() -> None:
    before, after = chat(LONG, model="gpt-5.6"), chat(LONG, "Yes.", "And?", model="gpt-5.6")
    assert ("none", None) == found(compared(before, after, gap_seconds=1700))
    assert ("expired", None) == found(compared(before, after, gap_seconds=1900))
    other = chat(LONG + "Where is Bern?", model="gpt-5.6"), chat(LONG + "How do bees sleep?", model="gpt-5.6")
    # No fallback to the shorter unmarked prefix: what the two share is lost.
    assert 0 == compared(*other).hit_tokens


def test_an_exact_cache_has_no_rules() -> None:
    before, after = chat("Hi.", model="my-own"), chat("Hi.", "Yes?", "Go on.", model="my-own")
    divergence = compared(before, after, gap_seconds=1e9)
    assert ("none", None) == found(divergence)
    assert divergence.hit_tokens == counter_for("my-own").count(view_of(Prompt.of(before)).text)
    assert ("none", None) == found(compared(before, after, rules=rules_for("my-own", "prefold")))


def test_a_setting_takes_only_its_section() -> None:
    before = marked(LONG, markers={0: SHORT_LIVED}, system=LONG)
    before["system"] = [{"type": "text", "text": LONG, "cache_control": SHORT_LIVED}]
    after = {**before, "tool_choice": {"type": "any"}}
    divergence = compared(before, after)
    assert ("parameter", "tool_choice") == found(divergence)
    assert divergence.hit_tokens > 1024  # system stays
    assert divergence.lost_tokens > 1024  # the message does not


def test_settings_that_say_the_default_are_no_change() -> None:
    before = marked(LONG, markers={0: SHORT_LIVED})
    after = {**before, "tool_choice": {"type": "auto"}, "thinking": {"type": "disabled"}, "temperature": 0.3}
    assert ("none", None) == found(compared(before, after))


def test_an_allow_list_of_tools_is_no_change() -> None:
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}
    assert ("none", None) == found(compared(chat(LONG), chat(LONG, tool_choice=allowed)))


def test_server_tools_and_citations_are_settings() -> None:
    before = marked(LONG, markers={0: SHORT_LIVED})
    before["tools"] = [{"name": "f", "input_schema": {"type": "object"}}]
    after = {**before, "tools": [*before["tools"], {"type": "web_search_20250305", "name": "web_search"}]}
    assert ("parameter", "tools[1]") == found(compared(before, after))
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": LONG}}
    before = marked("x", markers={})
    before["messages"][0]["content"] = [document]
    after = copy.deepcopy(before)
    after["messages"][0]["content"][0]["citations"] = {"enabled": True}
    assert ("parameter", "messages[0].content[0].citations") == found(compared(before, after))


def test_evicted_is_what_usage_says_and_nothing_else_explains() -> None:
    before, after = chat(LONG), chat(LONG, "Yes.", "And?")
    assert ("evicted", None) == found(compared(before, after, observed_tokens=0))
    assert ("none", None) == found(compared(before, after, observed_tokens=1152))
    assert "clock" == compared(chat("10:00 " + LONG), chat("10:01 " + LONG), observed_tokens=0).cause


# --- what is no break


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (chat(LONG), chat(LONG)),
        (chat(LONG, "Yes.", "And?"), chat(LONG)),  # the last turns are asked again
        (chat(LONG + "Where is Bern?"), chat(LONG + "How do bees sleep?")),
        (chat(LONG, "Yes.", "Where?"), chat(LONG, "Yes.", "How do bees sleep at night?")),
        (chat("Where is Bern?", "In Switzerland."), chat("How do bees sleep?", "At night.", "Why?")),
        (chat(LONG), chat(LONG + " And one more thing.")),
        ({"prompt": LONG}, {"prompt": LONG + " More."}),
        ({"prompt": LONG + "Where?"}, {"prompt": LONG + "How do they?"}),
    ],
)
def test_what_is_no_break(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert ("none", None) == found(compared(before, after))


def test_the_words_of_another_role_are_another_text() -> None:
    before = {"model": "m", "messages": [{"role": "user", "content": LONG}, {"role": "user", "content": "Hi"}]}
    after = copy.deepcopy(before)
    after["messages"][0]["role"] = "assistant"
    assert ("text_edit", "messages[0]") == found(compared(before, after))


def test_a_doubled_beginning_and_a_default_system_turn() -> None:
    text = "[INST] Tell me of bees. [/INST] They fly." + LONG
    assert ("bos", "prompt") == found(compared({"prompt": "<s><s>" + text}, {"prompt": "<s>" + text}))
    turn = "<|im_start|>user\nTell me of bees.<|im_end|>\n" + LONG
    system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    assert ("template_default", "prompt") == found(compared({"prompt": system + turn}, {"prompt": turn}))


def test_tool_results_replaced_by_a_placeholder() -> None:
    def body(result: str, *more: str) -> dict[str, Any]:
        request = marked(LONG, "I look.", "x", *more, markers={})
        request["messages"][2]["content"] = [{"type": "tool_result", "tool_use_id": "t", "content": result}]
        return request

    before, after = body(LONG), body("[Old tool result content cleared]", "Fine.", "Next?")
    assert ("truncation", "messages[2].content[0]") == found(compared(before, after))


def test_numbers_in_arguments_of_a_call() -> None:
    def body(arguments: str, *more: str) -> dict[str, Any]:
        request = chat(LONG, "x", "Go on.", *more)
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        request["messages"][1] = {"role": "assistant", "content": None, "tool_calls": [call]}
        return request

    later = ("Yes.", "And?")
    path = "messages[1].tool_calls[0]"
    assert ("number_format", path) == found(compared(body('{"n": 10.0, "m": 1}'), body('{"n": 10, "m": 1}', *later)))
    assert ("whitespace", path) == found(compared(body('{"n": 10, "m": 1}'), body('{"n":10,"m":1}', *later)))
    swapped = compared(body('{"n": 10, "m": 1}'), body('{"m": 1, "n": 10}', *later))
    assert "key_order" == swapped.cause
    assert str(swapped.path).startswith(path)


# --- properties


PIECES = st.sampled_from(
    ["rule ", "你好 ", "10 ", "10.0 ", "2026-03-04 ", "\n", "a", "é", "\u200b", '{"a": 1} ', "now "]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


@given(st.lists(TEXTS, min_size=1, max_size=5), st.lists(TEXTS, min_size=1, max_size=5))
def test_the_position_is_the_first_difference(before: list[str], after: list[str]) -> None:
    one, other = Prompt.of(chat(*before, model="m")), Prompt.of(chat(*after, model="m"))
    divergence = compare(one, other)
    first, second = view_of(one).text, view_of(other).text
    if divergence.is_break:
        char = divergence.char
        assert char is not None
        assert first[:char] == second[:char]
        assert first[char : char + 1] != second[char : char + 1]
        assert divergence.path is not None
    assert divergence.lost_tokens >= 0
    assert divergence.gain_tokens >= 0
    assert divergence.hit_tokens <= counter_for("m").count(second) + 5  # estimates are rounded for each segment


@given(st.lists(TEXTS, min_size=1, max_size=5), st.lists(TEXTS, min_size=1, max_size=3))
def test_growth_is_never_a_break(texts: list[str], more: list[str]) -> None:
    assert "none" == compared(chat(*texts, model="m"), chat(*texts, *more, model="m")).cause


@given(st.sampled_from(PAIRS))
def test_a_request_never_breaks_itself(pair: Pair) -> None:
    divergence = compared(pair.before, pair.before, pair.dialect)
    assert divergence.cause in ("none", "no_breakpoint", "too_short")


def test_an_estimate_says_that_it_is_one() -> None:
    divergence = compared(written(conversation("en"), "anthropic"), written(conversation("en").grown(), "anthropic"))
    assert not divergence.tokens_are_exact
    assert isinstance(counter_for("claude-sonnet-4-5"), Estimate)
    assert "estimate" in divergence.counter


# --- what a fix may do to a request


def systems(text: str, *turns: str, model: str = "gpt-5.2") -> dict[str, Any]:
    body = chat(*turns, model=model)
    return {**body, "messages": [{"role": "system", "content": text}, *body["messages"]]}


def mended(before: Any, after: Any, dialect: str | None = None) -> tuple[Any, Any]:
    found = compared(before, after, dialect)
    assert found.mended is not None
    again = compare(*found.mended)
    assert again.cause != found.cause
    return found.mended[0].value, found.mended[1].value


def test_only_the_sentence_with_the_date_moves() -> None:
    one, other = (systems(f"You are a helpful assistant. Today is 2026-11-0{n}.", LONG) for n in (3, 4))
    before, after = mended(one, other)
    assert "You are a helpful assistant." == before["messages"][0]["content"].strip()
    assert f"{LONG}\n\nToday is 2026-11-03." == before["messages"][1]["content"]
    assert f"{LONG}\n\nToday is 2026-11-04." == after["messages"][1]["content"]


def test_a_system_message_that_is_only_the_date_goes() -> None:
    one, other = (systems(f"Now: 10:1{n}", LONG) for n in (5, 6))
    before, _ = mended(one, other)
    assert [("user", f"{LONG}\n\nNow: 10:15")] == [(m["role"], m["content"]) for m in before["messages"]]


def test_what_was_put_behind_a_question_stays_in_the_history() -> None:
    one, other = systems(f"Now: 10:15\n{LONG}", "Hi."), systems(f"Now: 10:16\n{LONG}", "Hi.", "Yes?", "Bees?")
    before, after = mended(one, other)
    texts = ["Hi.\n\nNow: 10:15", "Yes?", "Bees?\n\nNow: 10:16"]
    assert texts == [message["content"] for message in after["messages"][1:]]
    assert before["messages"][1] == after["messages"][1]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "system", "content": "CLOCK"}]},
        {"systemInstruction": {"parts": [{"text": "CLOCK"}]}, "contents": []},
    ],
)
def test_nothing_is_moved_where_nothing_would_be_left(body: Any) -> None:
    before, after = (json.loads(json.dumps(body).replace("CLOCK", f"Now: 10:1{n}")) for n in (5, 6))
    found = compared(before, after)
    assert "clock" == found.cause
    for prompt in found.mended or ():
        assert all(segment.text for segment in prompt.segments)


def test_a_tools_result_is_not_written_into() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "c", "content": '{"a": 1}'}

    def body(clock: str, *more: dict[str, Any]) -> dict[str, Any]:
        request = systems(f"Now: {clock}\n{LONG}", "Hi.")
        request["messages"] += [{"role": "assistant", "content": None, "tool_calls": [call]}, result, *more]
        return request

    before, after = mended(
        body("10:15"), body("10:16", {"role": "assistant", "content": "1."}, {"role": "user", "content": "And?"})
    )
    assert result in before["messages"]
    assert result in after["messages"]
    assert {"role": "user", "content": "Now: 10:15"} == before["messages"][-1]
    assert before["messages"] == after["messages"][: len(before["messages"])]


def test_equal_turns_are_not_mistaken_for_one_another() -> None:
    turns = ["Change my flight.", "Shall I?", "yes"]
    one = systems(f"Be kind. {LONG}", *turns)
    other = systems(f"Be brief. {LONG}", *turns, "Done. Also book a hotel?", "yes")
    _, after = mended(one, other)
    assert [*turns, "Done. Also book a hotel?", "yes"] == [m["content"] for m in after["messages"][1:]]


def test_no_more_markers_than_the_provider_takes() -> None:
    def body(count: int) -> dict[str, Any]:
        blocks = [{"type": "text", "text": f"{i} {LONG}", "cache_control": SHORT_LIVED} for i in range(4)]
        blocks[0]["text"] = str(count)
        return {"model": "claude-sonnet-4-5", "system": LONG, "messages": [{"role": "user", "content": blocks}]}

    _, after = mended(body(1), body(2))
    markers = [segment.marker for segment in Prompt.of(after).segments if segment.marker]
    assert 4 == len(markers)
    assert Prompt.of(after).segments[0].marker  # the system prompt's is among them


def test_the_newest_marker_is_kept_when_history_is_restored() -> None:
    one, other = (marked("Hi.", markers={0: SHORT_LIVED}, system=f"Be {how}. {LONG}") for how in ("kind", "brief"))
    _, after = mended(one, other)
    assert SHORT_LIVED == after["messages"][0]["content"][0]["cache_control"]


def test_json_that_is_nested_deep_is_read_as_text() -> None:
    deep = '{"a":' * 700 + "1" + "}" * 700
    found_cause = compared(systems(deep, "Hi."), systems(deep.replace("1", "2"), "Hi.")).cause
    assert "text_edit" == found_cause


# --- wrong answers that were given once


def test_a_marked_block_that_goes_on_is_another_block() -> None:
    before = marked(LONG, markers={0: SHORT_LIVED}, system=LONG)
    after = marked(LONG + "\n\nHello?", markers={0: SHORT_LIVED}, system=LONG)
    assert ("text_edit", "messages[0].content[0]") == found(compared(before, after))
    assert "none" == compared(chat(LONG), chat(LONG + "\n\nHello?")).cause  # caches without markers keep the front


def test_a_message_about_a_summary_is_no_summary() -> None:
    turns = ["Here's a summary of my booking so far. Today is 2026-11-03. Please check it.", "Fine.", "Thanks."]
    changed = [turns[0].replace("11-03", "11-04"), *turns[1:], "Welcome.", "Bye."]
    assert ("clock", "messages[1]") == found(compared(systems(LONG, *turns), systems(LONG, *changed)))


@pytest.mark.parametrize("first", ["It is 2026-11-30 14:02:43.", "You help Ann."])
def test_rules_that_speak_of_summaries_are_no_summary(first: str) -> None:
    changed, cause = ("It is 2026-11-30 06:32:46.", "clock") if "It is" in first else ("You help Bo.", "text_edit")
    rules = f"Return the summary of the order so far. {LONG}"
    pair = (systems(f"{text}\n\n{rules}", *turns) for text, turns in ((first, ["Hi.", "Yes?"]), (changed, ["Why?"])))
    assert (cause, "messages[0]") == found(compared(*pair))


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ('{"price": 2.5, "n": 1}', '{"price": 2.50, "n": 1}', "number_format"),
        ('{"price": 1000.0, "n": 1}', '{"price": 1e3, "n": 1}', "number_format"),
        ('{"state": "\\u72b6"}', '{"state": "状"}', "whitespace"),
        ('{"a": [1, 2]}', '{"a":[1,2]}', "whitespace"),
    ],
)
def test_one_value_written_in_two_ways(old: str, new: str, cause: str) -> None:
    assert cause == compared(chat(LONG, old, "Go on."), chat(LONG, new, "Go on.", "Yes.", "And?")).cause


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("It was loaded in Halle, and it should move on within two days.", "It was loaded in Halle, under way."),
        ("You are a helpful agent of Northwind who answers in English.", "You are a helpful agent of Eastwood."),
    ],
)
def test_other_words_are_no_truncation(old: str, new: str) -> None:
    assert "text_edit" == compared(systems(old + "\n" + LONG, "Hi."), systems(new + "\n" + LONG, "Hi.")).cause
    assert "text_edit" == compared(systems(old, LONG), systems(new, LONG)).cause


def test_a_default_system_turn_in_a_conversation_that_goes_on() -> None:
    turn = f"<|im_start|>user\n{LONG}<|im_end|>\n<|im_start|>assistant\n"
    system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    after = f"{system}{turn}Yes.<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n"
    assert ("template_default", "prompt") == found(compared({"prompt": turn}, {"prompt": after}))


@pytest.mark.parametrize("names", [("User", "Assistant"), ("用户", "助手")])
def test_a_history_in_one_text(names: tuple[str, str]) -> None:
    def prompt(turns: list[str]) -> dict[str, str]:
        lines = [f"{names[i % 2]}: {text}" for i, text in enumerate(turns)]
        return {"prompt": "\n".join([LONG, *lines, f"{names[1]}:"])}

    turns = [f"{LONG[:200]} Turn {number}, {number * 37 % 91}." for number in range(9)]
    assert ("truncation", "prompt") == found(compared(prompt(turns), prompt([*turns[2:], "Well.", "So?"])))
    summary = ["Summary of the conversation so far: bees.", *turns[5:], "Well.", "So?"]
    assert ("summary", "prompt") == found(compared(prompt(turns), prompt(summary)))
    assert "none" == compared(prompt(turns), {"prompt": prompt(turns)["prompt"] + " Yes.\nUser: And?"}).cause


@pytest.mark.parametrize("dialect", ["openai", "gemini", "bedrock"])
def test_cleared_results_in_every_dialect(dialect: str) -> None:
    stub = "[Old tool result content cleared]"

    def body(result: str, *more: str) -> dict[str, Any]:
        request = written(conversation("en"), dialect)
        if dialect == "openai":
            request["messages"].append({"role": "tool", "tool_call_id": "c", "content": result})
            request["messages"] += [{"role": "user", "content": text} for text in more]
        elif dialect == "gemini":
            part = {"functionResponse": {"name": "f", "response": {"result": result}}}
            request["contents"] += [{"role": "user", "parts": [part]}]
            request["contents"] += [{"role": "model", "parts": [{"text": text}]} for text in more]
        else:
            block = {"toolResult": {"toolUseId": "c", "content": [{"text": result}]}}
            request["messages"] += [{"role": "user", "content": [block]}]
            request["messages"] += [{"role": "assistant", "content": [{"text": text}]} for text in more]
        return request

    assert "truncation" == compared(body(LONG), body(stub, "Fine."), dialect).cause


def test_a_provider_that_does_not_list_the_model_has_rules_all_the_same() -> None:
    rules = target_rules(Prompt.of(marked(LONG, markers={})), "deepseek")
    assert rules is not None
    assert "deepseek" == rules.provider


def test_requests_of_two_forms_are_not_compared() -> None:
    with pytest.raises(InvalidRequest, match="One request is openai, the other completion"):
        compared(chat(LONG), {"prompt": LONG})


def test_settings_that_only_the_rules_know() -> None:
    before, after = chat(LONG, model="gpt-5.6"), chat(LONG, model="gpt-5.6", service_tier="flex")
    assert ("parameter", "service_tier") == found(compared(before, after))


def test_many_equal_messages_with_one_edited() -> None:
    before, after = chat(*["ok"] * 4001), chat(*["ok"] * 4001)
    after["messages"][7]["content"] = "no"
    assert ("text_edit", "messages[7]") == found(compared(before, after))


def test_a_second_break_is_named() -> None:
    before = systems(f"Be kind. {LONG}", "Hi.")
    after = {**systems(f"Be brief. {LONG}", "Hi."), "model": "gpt-5.3"}
    assert "text_edit at messages[0]" in compared(before, after).note


# --- a mended request says all that the later one says


@pytest.mark.parametrize("dialect", ["anthropic", "openai", "responses", "gemini", "bedrock"])
def test_another_conversation_keeps_its_own_words(dialect: str) -> None:
    one, other = conversation("en"), conversation("en")
    one.system, other.system = f"You are kind. {one.system}", f"You are curt. {other.system}"
    one.turns, other.turns = ["Who chairs the board?"], ["When is the next session?"]
    _, after = mended(written(one, dialect), written(other, dialect), dialect)
    texts = [segment.text for segment in Prompt.of(after, dialect).segments]
    assert "When is the next session?" == texts[-1]
    assert not any("Who chairs" in text for text in texts)
    assert any(text.startswith("You are kind.") for text in texts)


def test_a_reminder_of_its_own_keeps_the_newest_question() -> None:
    reminder = {"role": "system", "content": "Remember to answer in two short sentences."}
    one = systems(LONG, "one")
    one["messages"].append(reminder)
    other = systems(LONG, "one", "1", "two?")
    other["messages"].append(reminder)
    assert "moved_block" == compared(one, other).cause
    _, after = mended(one, other)
    assert [*one["messages"], *other["messages"][2:]] == after["messages"]


def test_one_text_keeps_its_new_turns() -> None:
    def prompt(rule: str, *turns: str) -> dict[str, str]:
        lines = [f"{('User', 'Agent')[i % 2]}: {text}" for i, text in enumerate(turns)]
        return {"prompt": "\n".join([f"Rule 0: be {rule}.", LONG, *lines, "Agent:"])}

    _, after = mended(prompt("kind", "Hi."), prompt("curt", "Hi.", "Yes?", "Bees?"))
    assert prompt("kind", "Hi.", "Yes?", "Bees?") == after


def test_an_id_before_a_long_last_paragraph_is_found() -> None:
    text = "trace=4f9d2c7ab01e63f8\n\n" + LONG[:950]
    assert ("identifier", "prompt") == found(compared({"prompt": text}, {"prompt": text.replace("4f9d", "7b21")}))


def test_a_reminder_that_moves_within_one_text() -> None:
    reminder = "\nRemember to answer in two short sentences and to stay polite."

    def prompt(*turns: str) -> dict[str, str]:
        written_turns = [
            f"<|im_start|>{('user', 'assistant')[i % 2]}\n{text}<|im_end|>\n" for i, text in enumerate(turns)
        ]
        return {"prompt": f"<|im_start|>system\n{LONG}<|im_end|>\n{''.join(written_turns)}<|im_start|>assistant\n"}

    before = prompt(f"Where is my parcel now?{reminder}")
    after = prompt("Where is my parcel now?", "It left the depot.", f"And when will it come?{reminder}")
    assert ("moved_block", "prompt") == found(compared(before, after))


def test_keys_and_numbers_in_calls_are_sent_again_as_they_were() -> None:
    def body(arguments: dict[str, Any], *more: str) -> dict[str, Any]:
        request = marked(LONG, "x", "Go on.", *more, markers={0: SHORT_LIVED})
        request["messages"][1]["content"] = [{"type": "tool_use", "id": "t", "name": "f", "input": arguments}]
        return request

    later = ("Yes.", "And?")
    mended(body({"n": 2, "m": 1}), body({"m": 1, "n": 2}, *later))
    mended(body({"n": 2.0, "m": 1}), body({"n": 2, "m": 1}, *later))


def test_thoughts_that_were_taken_out_of_the_history() -> None:
    thought = "<think>\nThey want bees.\n</think>\n\n"
    before, after = chat(LONG, f"{thought}Bees fly.", "Why?"), chat(LONG, "Bees fly.", "Why?", "Wings.", "Oh.")
    assert ("truncation", "messages[1]") == found(compared(before, after))
    before = marked(LONG, "Bees fly.", "Why?", markers={})
    after = marked(LONG, "Bees fly.", "Why?", "Wings.", "Oh.", markers={})
    before["messages"][1]["content"].insert(0, {"type": "thinking", "thinking": "They want bees.", "signature": "s"})
    assert ("truncation", "messages[1].content[0]") == found(compared(before, after))


def test_a_remedy_that_does_not_help_is_not_offered() -> None:
    before, after = marked(LONG, markers={0: SHORT_LIVED}), marked(LONG, "Yes.", "And?", markers={2: SHORT_LIVED})
    expired = compared(before, after, gap_seconds=5000)
    assert ("expired", None, 0) == (expired.cause, expired.mended, expired.gain_tokens)


@pytest.mark.parametrize("part", ["call", "result"])
def test_ids_of_calls_that_are_drawn_anew(part: str) -> None:
    def body(call: str, result: str, *more: str) -> dict[str, Any]:
        request = chat(LONG, "x", *more)
        function = {"name": "f", "arguments": "{}"}
        calls = [{"id": call, "type": "function", "function": function}]
        request["messages"][1] = {"role": "assistant", "content": None, "tool_calls": calls}
        request["messages"].insert(2, {"role": "tool", "tool_call_id": result, "content": "7"})
        return request

    call = "b" if part == "call" else "a"
    other = body(call, "b", "So?", "Yes.", "Why?")
    path = {"call": "messages[1].tool_calls[0]", "result": "messages[2].tool_call_id"}[part]
    assert ("identifier", path) == found(compared(body("a", "a"), other))


def test_a_nested_setting_that_is_absent_altogether() -> None:
    before, after = chat(LONG, reasoning={"effort": "low"}), chat(LONG)
    found_change = compared(before, after)
    assert ("parameter", "reasoning.effort") == found(found_change)
    assert found_change.mended is not None
    assert before == found_change.mended[1].value
    assert "parameter" == compared(after, before).cause


def test_documents_in_another_order_beside_a_new_question() -> None:
    documents = [{"type": "text", "text": f"Document {name}. " + f"What it says of {name}. " * 40} for name in "abcd"]

    def asked(order: list[int], question: str) -> dict[str, Any]:
        blocks = [*(documents[index] for index in order), {"type": "text", "text": question}]
        return {"model": "gpt-4o", "messages": [{"role": "user", "content": blocks}]}

    before, after = asked([0, 1, 2, 3], "Is a true?"), asked([2, 0, 3, 1], "And what of b?")
    divergence = compared(before, after, rules=rules_of("prefold"))
    assert ("block_order", "messages[0].content[0]") == found(divergence)
    assert 0.9 * divergence.lost_tokens < divergence.gain_tokens
    assert divergence.mended is not None
    mended = divergence.mended[1].value["messages"][0]["content"]
    assert [*documents, {"type": "text", "text": "And what of b?"}] == mended
