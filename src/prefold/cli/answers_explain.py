"""`prefold answers explain`: what is found for a question, what speaks against it, and what is decided."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefold.cli.answers_options import answers_extra, existing_store, json_option, max_wrong_option, store_option
from prefold.cli.session import console, echo_json

if TYPE_CHECKING:
    from prefold.responses.semantic.types import Candidate, Found, Question, Reason

_APIS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions")
_SECONDS = 30.0
_FEATURES_SHOWN = 8


@click.command()
@click.argument("question")
@click.argument("other", required=False)
@click.option(
    "--request",
    "request_file",
    metavar="FILE",
    allow_from_autoenv=False,
    help="The rest of the request, as JSON: its last user turn is replaced by QUESTION.",
)
@click.option("--model", default="", help="Model asked, where there is no --request.")
@click.option("--api", type=click.Choice(_APIS), default=_APIS[0], show_default=True, help="Endpoint asked.")
@click.option("--partition", default="", help="Tenant, or its end user, whose entries are looked at.")
@click.option("--embedder", default="minilm", show_default=True, help="What makes vectors of questions.")
@store_option
@max_wrong_option
@json_option
def explain(
    *,
    question: str,
    other: str | None,
    request_file: str | None,
    model: str,
    api: str,
    partition: str,
    embedder: str,
    store: Path | None,
    max_wrong: float,
    as_json: bool,
) -> None:
    """Explain what is decided about QUESTION, or compare it with OTHER.

    With one text it is looked for in the store, as if it were asked now: candidates, what differs, the probability
    that the answer is the same, the bound on wrong answers, and the decision. With two, both are compared by what is
    known before any traffic, and no store is read.
    """
    with answers_extra():
        from prefold.responses.semantic.embedders import make_embedder

        if other is not None:
            shown = _comparison(question, other, make_embedder(embedder, os.environ))
        else:
            from prefold.responses.semantic.question import QuestionOptions, read_question
            from prefold.responses.semantic.types import Reason

            path = existing_store(store)
            fields = _request(question, request_file, model, api)
            asked = read_question(
                api,
                fields,
                partition=partition,
                principal="",
                options=QuestionOptions(earlier_turns=True, tools=True, sampled=True),
                by_credentials=False,
            )
            shown = _refused(asked) if isinstance(asked, Reason) else _found(_look_up(asked, path, embedder, max_wrong))
    if as_json:
        echo_json({"schema_version": 1, **shown})
    else:
        _show(shown)


def _request(question: str, file: str | None, model: str, api: str) -> dict[str, Any]:
    """The request with the question in it.

    Raises:
        UsageError: if the file holds no request.
    """
    import json

    from prefold.cli.inputs import read_request, shown
    from prefold.errors import UsageError

    fields: Any = {"model": model, "temperature": 0}
    if file is not None:
        try:
            fields = json.loads(read_request(file))
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            raise UsageError(f"{shown(file)} is no request.", hint="Give the body of one, a JSON object.")
    name = {"/v1/responses": "input", "/v1/completions": "prompt"}.get(api, "messages")
    turns = fields.get(name)
    if name == "prompt" or (name == "input" and not isinstance(turns, list)):
        return {**fields, name: question}
    before = turns if isinstance(turns, list) else []
    if before and isinstance(before[-1], dict) and before[-1].get("role") == "user":
        before = before[:-1]
    return {**fields, name: [*before, {"role": "user", "content": question}]}


def _look_up(question: Question, path: Path, embedder: str, max_wrong: float) -> Found:
    """What the cache would decide; it is asked as if it were on, and nothing is counted or changed."""
    import asyncio
    import secrets
    import time

    from prefold.responses.semantic.allowance import Allowance
    from prefold.responses.semantic.cache import SemanticCache
    from prefold.responses.semantic.decision.decision import DecisionOptions
    from prefold.responses.semantic.embedders import make_embedder
    from prefold.responses.semantic.embedders.embedding import Embedding
    from prefold.responses.semantic.entries.records import EntriesOptions
    from prefold.responses.semantic.entries.sqlite_entries import SqliteEntries
    from prefold.responses.semantic.judge import Judge
    from prefold.responses.semantic.options import Mode, SemanticOptions

    async def run() -> Found:
        embedding = Embedding(make_embedder(embedder, os.environ), _SECONDS)
        cache = SemanticCache(
            Mode.ON,
            SqliteEntries(path, EntriesOptions(), time.time),
            embedding,
            Judge(None, Allowance(0, 0, time.monotonic)),
            options=SemanticOptions(store_seconds=_SECONDS),
            decision=DecisionOptions(max_wrong=max_wrong),
            clock=time.time,
            monotonic=time.monotonic,
            draw=lambda: 1.0,
            new_id=lambda: secrets.token_hex(16),
        )
        try:
            found = await cache.explain(question)
            if found.verdict.candidate is not None:
                # A gateway has the vectors of its tokens at hand after the first question near it.
                await embedding(found.verdict.candidate.wording)
                found = await cache.explain(question)
            return found
        finally:
            await cache.close()

    return asyncio.run(run())


def _refused(reason: Reason) -> dict[str, Any]:
    return {**_decision(reason), "probability": None, "bound": None, "guards": [], "features": [], "candidates": []}


def _found(found: Found) -> dict[str, Any]:
    from prefold.responses.semantic.wording.features import FEATURES

    verdict = found.verdict
    picked = verdict.candidate
    return {
        **_decision(verdict.reason),
        "probability": verdict.probability if picked else None,
        "bound": verdict.bound if picked else None,
        "picked": picked.entry if picked else None,
        "guards": _guards(verdict.guards),
        "features": _contributions(verdict.features[: len(FEATURES)]),
        "candidates": [_candidate(candidate) for candidate in verdict.others],
    }


def _comparison(question: str, other: str, embedder: Any) -> dict[str, Any]:
    """Two texts, by what is known before any traffic."""
    from prefold.responses.semantic.wording.facts import facts
    from prefold.responses.semantic.wording.features import pair_features
    from prefold.responses.semantic.wording.guards import differences
    from prefold.responses.semantic.wording.prior import prior

    a, b = facts(question), facts(other)
    tokens = None
    if hasattr(embedder, "embed_tokens"):
        (first, first_tokens), (second, second_tokens) = map(embedder.embed_tokens, (question, other))
        tokens = (first_tokens, second_tokens)
    else:
        first, second = embedder.embed([question, other])
    similarity = float(first @ second)
    features = pair_features(a, b, similarity, tokens)
    return {
        "similarity": similarity,
        "probability": prior(features),
        "guards": _guards(differences(a, b)),
        "features": _contributions(features),
    }


def _decision(reason: Reason | None) -> dict[str, Any]:
    from prefold.cli.answers_words import WORDS
    from prefold.responses.semantic.wording.guards import GUARDS

    if reason is None:
        return {"decision": "hit", "reason": None, "in_words": "it is answered from the cache"}
    alone = ", which no judged pairs have shown to be harmless yet" if reason in GUARDS else ""
    return {"decision": "miss", "reason": reason.value, "in_words": f"{WORDS[reason]}{alone}"}


def _guards(guards: Sequence[Reason]) -> list[dict[str, str]]:
    from prefold.cli.answers_words import WORDS

    return [{"guard": guard.value, "in_words": WORDS[guard]} for guard in guards]


def _contributions(features: Sequence[float]) -> list[dict[str, Any]]:
    """Features by how much they weigh, for or against, before any traffic."""
    if not features:
        return []
    from prefold.responses.semantic.wording.features import FEATURES
    from prefold.responses.semantic.wording.prior import weights

    model = weights(features[FEATURES.index("near_known")] > 0)
    weighed = [
        (weight * value, name, value) for name, value, weight in zip(FEATURES, features, model.by_feature, strict=True)
    ]
    weighed.sort(key=lambda row: -abs(row[0]))
    return [{"feature": name, "value": value, "log_odds": log_odds} for log_odds, name, value in weighed if log_odds]


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "entry": candidate.entry,
        "wording": candidate.wording,
        "similarity": candidate.similarity,
        "principals": candidate.principals,
        "vetted": candidate.vetted,
        "quarantined": candidate.quarantined,
        "rejected": candidate.rejected,
    }


def _show(shown: Mapping[str, Any]) -> None:
    _show_candidates(shown)
    if "similarity" in shown:
        _tell(f"Similarity   {shown['similarity']:.3f}")
    _show_rows("Speaks against it", [(guard["guard"], guard["in_words"]) for guard in shown["guards"]])
    _show_rows(
        "What weighs most before any traffic, in log-odds",
        [
            (f"{row['log_odds']:+.2f}", row["feature"], f"{row['value']:.2f}")
            for row in shown["features"][:_FEATURES_SHOWN]
        ],
    )
    if shown["probability"] is not None:
        _tell(f"Probability  {shown['probability']:.4f} that the answer is the same")
    if shown.get("bound") is not None:
        _tell(f"Bound        {shown['bound']:.2%} of the answers as probable as this may be wrong")
    if "decision" in shown:
        reason = f" ({shown['reason']})" if shown["reason"] else ""
        _tell(f"Decision     {shown['decision']}{reason}: {shown['in_words']}")


def _show_candidates(shown: Mapping[str, Any]) -> None:
    rows = []
    for candidate in shown.get("candidates", ()):
        marks = [mark for mark in ("vetted", "quarantined", "rejected") if candidate[mark]]
        picked = "*" if candidate["entry"] == shown["picked"] else ""
        seen_by = ", ".join([f"seen by {candidate['principals']}", *marks])
        rows.append((f"{picked}{candidate['similarity']:.3f}", candidate["entry"], candidate["wording"], seen_by))
    _show_rows("Candidates (* is the one that is decided about)", rows)


def _show_rows(title: str, rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    for number in range(len(rows[0])):
        table.add_column(no_wrap=number < 2)  # an id is to be copied
    for row in rows:
        table.add_row(*map(Text, row))
    _tell(title)
    console().print(table)


def _tell(text: str) -> None:
    console().print(text, markup=False, soft_wrap=True)
