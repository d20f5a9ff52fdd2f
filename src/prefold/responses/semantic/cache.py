"""The verified semantic cache: from a question to an answer that was shown to be right, or to the reason for none."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec

from prefold.errors import PrefoldError, UsageError
from prefold.responses.cache import AnswerCache, AnswerCacheOptions
from prefold.responses.cache import Mode as ExactMode
from prefold.responses.flights import Fetch, LiveAnswer
from prefold.responses.semantic.allowance import Allowance
from prefold.responses.semantic.decision.decision import Decision, DecisionOptions
from prefold.responses.semantic.decision.learned import Learned
from prefold.responses.semantic.decision.weigh import Weighed, weigh, with_verifier
from prefold.responses.semantic.embedders.embedding import Embedding
from prefold.responses.semantic.embedders.faults import NoVector
from prefold.responses.semantic.judge import Answered, Finding, Judge, same_words
from prefold.responses.semantic.live import Document, Learning, NotJson, replay
from prefold.responses.semantic.options import Counts, Mode, SemanticOptions
from prefold.responses.semantic.question import QuestionOptions, read_question
from prefold.responses.semantic.types import (
    Answer,
    Candidate,
    Entries,
    Entry,
    Found,
    Hit,
    Question,
    Reason,
    Sample,
    Verdict,
    Verifier,
)
from prefold.responses.store import StoreFailed

_log = logging.getLogger(__name__)

_JUDGE = "judge"
"""The principal that stands for whoever found two answers the same, where those who got them cannot be told apart."""
_NOBODY = "somebody"
"""The principal that stands for all whom nobody can tell apart."""
_WORTH_A_LOOK = 0.1
"""Probability below which vectors of tokens make no pair likely: of fow-cache and Kmemo none even below 0.3."""
_SURE = frozenset((None, Reason.UNPROVEN))
_WOULD_SERVE = frozenset((None, Reason.SHADOW, Reason.AUDITED, Reason.UNPROVEN, Reason.UNCONFIRMED))


class SemanticCache:
    """Looks up questions, and learns from what the model answers.

        found = await cache.look_up(question)
        if found.hit is not None:
            ...  # serve it
        else:
            answer = ...  # ask the model
            cache.learn(found, answer)

    Neither ever raises, nor keeps anybody waiting beyond its budgets: every doubt is a miss, with its reason.

    Args:
        mode: what it may do.
        entries: the one truth.
        embedding: of questions.
        judge: compares answers, in the background.
        verifier: looks at two questions before one is answered for the other; None for none.
        options: see there.
        decision: what is asked of the decision.
        clock: Unix seconds.
        draw: uniform in 0 to 1, for audits.
        new_id: makes ids of entries: 32 hex digits that nobody can guess.
        exact: answers requests that are the same, and joins those that come at once, for `ask`.
    """

    def __init__(
        self,
        mode: Mode,
        entries: Entries,
        embedding: Embedding,
        judge: Judge,
        *,
        verifier: Verifier | None = None,
        options: SemanticOptions | None = None,
        decision: DecisionOptions | None = None,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        draw: Callable[[], float],
        new_id: Callable[[], str],
        exact: AnswerCache | None = None,
    ) -> None:
        self.mode = mode
        self._exact = exact or AnswerCache(ExactMode.OFF, None, AnswerCacheOptions(), clock, monotonic)
        self.entries = entries
        self._embedding = embedding
        self._judge = judge
        self._verifier = verifier
        self._options = options = options or SemanticOptions()
        self._clock = clock
        self._draw = draw
        self._new_id = new_id
        self._inserts = Allowance(options.inserts_per_minute, max(1.0, options.inserts_per_minute), monotonic)
        self._learned = Learned(
            entries,
            lambda: embedding.fingerprint,
            decision or DecisionOptions(),
            pools=options.pools,
            rooms=options.rooms,
            clock=monotonic,
            spawn=self._spawn,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._misses: Counter[Reason] = Counter()
        self._done: Counter[str] = Counter()
        self._flushed: Counter[str] = Counter()

    @property
    def counts(self) -> Counts:
        """What happened so far."""
        done = self._done
        return Counts(
            hits=done["hits"],
            misses=MappingProxyType(dict(self._misses)),
            learned=done["learned"],
            aliases=done["aliases"],
            rejected=done["rejected"],
            unjudged=done["unjudged"],
        )

    @property
    def tallies(self) -> Counter[str]:
        """The same by the names of a report: those of reasons, and of what else is counted."""
        return Counter({reason.value: count for reason, count in self._misses.items()}) + self._done

    def refused(self, reason: Reason) -> None:
        """Count a request that may not be answered by meaning."""
        self._misses[reason] += 1

    # Looking up

    async def look_up(self, question: Question) -> Found:
        """The answer to a question, or the reason why there is none."""
        found = await self._look_up(question)
        if found.hit is not None:
            self._done["hits"] += 1
        else:
            self._misses[found.verdict.reason or Reason.NO_CANDIDATE] += 1
        return found

    async def explain(self, question: Question) -> Found:
        """As `look_up`, but nothing is counted, and nothing audited."""
        return await self._look_up(question, is_explained=True)

    async def _look_up(self, question: Question, *, is_explained: bool = False) -> Found:
        if self.mode is Mode.OFF:
            return Found(question, Verdict(Reason.OFF))
        try:
            vector = await self._embedding(question.text)
        except NoVector as error:
            return Found(question, Verdict(error.reason))
        try:
            async with asyncio.timeout(self._options.store_seconds):
                candidates = await self._entries_near(question, vector)
        except (StoreFailed, TimeoutError):
            return Found(question, Verdict(Reason.STORE_FAILED), vector=vector)
        if not candidates:
            return Found(question, Verdict(Reason.NO_CANDIDATE), vector=vector)
        decision, clusters = await self._learned.about(question, len(vector), self._options.store_seconds)
        possible = [candidate for candidate in candidates if not candidate.rejected] or candidates
        weighed = weigh(question, vector, possible, clusters, self._embedding.tokens)
        verdict = await self._judged(question, weighed, decision, tuple(candidates))
        if not weighed.has_tokens and verdict.probability >= _WORTH_A_LOOK:
            self._embedding.prepare(weighed.candidate.wording)  # for the next question near it; this one does not wait
        if verdict.reason is None and not is_explained and decision.should_audit(self._draw()):
            verdict = replace(verdict, reason=Reason.AUDITED)
        if verdict.reason is None and self.mode is Mode.SHADOW:
            verdict = replace(verdict, reason=Reason.SHADOW)
        return await self._with_answer(Found(question, verdict, vector=vector))

    async def _entries_near(self, question: Question, vector: Any) -> list[Candidate]:
        """Entries of the question's partition; where there are none, those that were shared with everybody."""
        looking = (vector.tobytes(), self._embedding.fingerprint, self._options.candidates)
        candidates = await self.entries.nearest(question, *looking)
        if not candidates and question.open_context:
            everybody = replace(question, context=question.open_context, partition="")
            candidates = await self.entries.nearest(everybody, *looking)
        return candidates

    async def _judged(
        self, question: Question, weighed: Weighed, decision: Decision, candidates: tuple[Candidate, ...]
    ) -> Verdict:
        """What is decided about a question and the entry that may answer it, whatever the mode."""
        candidate, pair = weighed.candidate, weighed.pair
        verified: float | None = None
        is_alike = weighed.overlap >= self._options.least_overlap
        failed: Reason | None = None
        if self._verifier is not None and _barrier(candidate, self._options.principals) is None:
            try:
                async with asyncio.timeout(self._options.verify_seconds):
                    verified = await self._verifier.same(candidate.wording, question.text)
                pair = with_verifier(pair, verified)
            except (PrefoldError, TimeoutError):
                failed = Reason.VERIFIER_FAILED
        judgement = decision.judge(pair)
        reason = failed or judgement.reason
        if reason in _SURE and not is_alike and verified is None:
            reason = Reason.UNSURE  # near as vectors, yet hardly a word in common: what an attacker would make
        barrier = _barrier(candidate, self._options.principals)
        if barrier is not None and (barrier is not Reason.UNCONFIRMED or reason in _SURE):
            reason = barrier
        return Verdict(
            reason,
            candidate,
            guards=weighed.guards,
            probability=judgement.probability,
            bound=judgement.bound,
            features=pair.evidence,
            others=candidates,
        )

    async def _with_answer(self, found: Found) -> Found:
        verdict = found.verdict
        if verdict.reason is not None or verdict.candidate is None:
            return found
        try:
            async with asyncio.timeout(self._options.store_seconds):
                answer = await self.entries.answer(verdict.candidate.entry)
        except (StoreFailed, TimeoutError):
            return replace(found, verdict=replace(verdict, reason=Reason.STORE_FAILED))
        if answer is None:
            return replace(found, verdict=replace(verdict, reason=Reason.EXPIRED))
        age = max(0.0, self._clock() - verdict.candidate.created)
        return replace(found, hit=Hit(answer, verdict.candidate, verdict.probability, age))

    # In the path of answers

    async def reply(self, question: Question, fetch: Fetch, *, api: str, fields: Mapping[str, Any]) -> LiveAnswer:
        """The answer of the cache in the form that was asked for, or the one that is fetched, and learned from.

        Args:
            question: see `read_question`.
            fetch: asks the model.
            api: path of the endpoint.
            fields: the request's body.
        """
        found = await self.look_up(question)
        if found.hit is not None:
            return replay(found.hit, api, fields, self._new_id(), self._clock())
        return Learning(await fetch(), api, lambda answer: self.learn(found, answer))

    async def ask(
        self,
        request: Mapping[str, Any],
        call_model: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]],
        *,
        api: str = "/v1/chat/completions",
        partition: str = "",
        principal: str = "",
        options: QuestionOptions = QuestionOptions(),  # noqa: B008 - frozen
    ) -> dict[str, Any]:
        """The answer to a request: kept for the same one, or for one that means the same, or the model's.

        Args:
            request: body of the API; not one that asks for a stream.
            call_model: gives the model's answer to a request, as the API's document.
            api: path of the endpoint whose form both have.
            partition: whose answers may be given; those of two partitions never meet.
            principal: who asks, for counting independent witnesses.
            options: which requests may be answered by meaning.

        Returns:
            The API's document, with `prefold` in it where it was kept for other words.

        Raises:
            UsageError: for a request that asks for a stream.
            Exception: what `call_model` raises.
        """
        if request.get("stream"):
            raise UsageError("`ask` gives whole answers.", hint="leave `stream` out, or use the gateway")

        try:
            asked = msgspec.json.encode(request)
        except (TypeError, ValueError):  # half a surrogate pair, or nothing that JSON has a form for
            self.refused(Reason.UNREADABLE)
            return dict(await call_model(request))
        given: Mapping[str, Any] = {}

        async def fetch() -> LiveAnswer:
            nonlocal given
            given = await call_model(request)
            return Document(given)

        question = read_question(
            api, request, partition=partition, principal=principal, options=options, by_credentials=False
        )
        find = fetch
        if isinstance(question, Reason):
            self.refused(question)
        else:
            find = partial(self.reply, question, fetch, api=api, fields=request)
        key = self._exact.key(api, request, asked, partition, {})
        try:
            async with self._exact.reply(key, find) as reply:
                body = b"".join([chunk async for chunk in reply.chunks])
        except NotJson:
            return dict(given) or dict(await call_model(request))
        return msgspec.json.decode(body, type=dict[str, Any])

    # Learning

    def learn(self, found: Found, answer: Answer) -> None:
        """Take what the model answered, in the background: compare it with what would have been served, and keep it."""
        if self.mode is Mode.OFF or found.vector is None or found.hit is not None:
            return
        if len(self._tasks) >= self._options.learning:
            self._done["unjudged"] += 1
            return
        self._spawn(self._learn(found, answer))

    async def _learn(self, found: Found, answer: Answer) -> None:
        try:
            finding = await self._compare(found, answer)
            candidate = found.verdict.candidate
            if candidate is not None and finding is not None and not same_words(candidate.wording, found.question.text):
                await self._record(found, candidate, is_same=finding is Finding.SAME)
            if candidate is not None and finding is Finding.SAME:
                await self._add_wording(found, candidate)
                return
            if candidate is not None and finding is Finding.DIFFERENT:
                self._done["rejected"] += 1
                await self.entries.reject(candidate.entry, found.question.text)
            await self._keep(found, answer)
        except StoreFailed as error:
            _log.warning("An answer was not learned from: %s", error.message)

    async def _compare(self, found: Found, answer: Answer) -> Finding | None:
        """Whether the candidate's answer says the same; None where there is none, or nobody may look."""
        candidate = found.verdict.candidate
        if candidate is None or candidate.quarantined or candidate.rejected:
            return None
        kept = await self.entries.answer(candidate.entry)
        if kept is None:
            return None
        is_likely = _would_serve(found.verdict)
        finding = await self._judge.compare(
            Answered(candidate.wording, kept.text),
            Answered(found.question.text, answer.text),
            partition=found.question.partition,
            leaving=0.0 if is_likely else self._judge.half,
        )
        if finding is None:
            self._done["unjudged"] += 1
        return finding

    async def _record(self, found: Found, candidate: Candidate, *, is_same: bool) -> None:
        verdict = found.verdict
        await self.entries.record(
            Sample(
                features=verdict.features,
                same=is_same,
                entry=candidate.entry,
                cluster=candidate.cluster,
                route=found.question.route,
                probability=verdict.probability,
                would_serve=_would_serve(verdict),
                at=self._clock(),
                pool=self._learned.pool_of(found.question),
            )
        )

    async def _add_wording(self, found: Found, candidate: Candidate) -> None:
        """Make the question a wording of the entry, and whoever asked it a witness: he got the same answer."""
        question = replace(found.question, principal=found.question.principal or _JUDGE)
        await self.entries.add_wording(candidate.entry, question, found.vector.tobytes(), self._embedding.fingerprint)
        self._learned.add(question, candidate.cluster, found.vector)
        self._done["aliases"] += 1

    async def _keep(self, found: Found, answer: Answer) -> None:
        question = found.question
        principal = question.principal or _NOBODY
        if not self._inserts.take(f"{question.partition}\0{principal}"):
            self._done["held_back"] += 1
            return
        now = self._clock()
        entry = self._new_id()
        kept = await self.entries.put(
            Entry(
                id=entry,
                question=replace(question, principal=principal),
                vector=found.vector.tobytes(),
                embedder=self._embedding.fingerprint,
                answer=answer,
                cluster=entry,
                created=now,
                expires=now + self._options.ttl_seconds,
            )
        )
        if kept == entry:
            self._learned.add(question, entry, found.vector)
            self._done["learned"] += 1
        else:  # known, perhaps to another embedder alone; nobody is a witness, since no answers were compared
            unseen = replace(question, principal="")
            await self.entries.add_wording(kept, unseen, found.vector.tobytes(), self._embedding.fingerprint)

    # What administrators do

    async def quarantine(self, entry: str, note: str = "") -> bool:
        """Serve an entry no more, from now on; whether there is one of this id."""
        return await self.entries.quarantine(entry, note)

    async def vet(self, entry: str) -> bool:
        """Free an entry for all of its partition."""
        return await self.entries.vet(entry)

    async def share(self, entry: str) -> bool:
        """Free an entry for all partitions."""
        return await self.entries.share(entry)

    async def delete(self, entry: str) -> bool:
        """Remove an entry with all that was derived from its texts."""
        self._learned.forget_wordings()
        return await self.entries.delete(entry)

    async def invalidate(self, tag: str) -> int:
        """Remove all entries with a tag; how many there were."""
        self._learned.forget_wordings()
        return await self.entries.invalidate(tag)

    async def close(self, seconds: float = 1.0) -> None:
        """Give what is being learned this long, then let go of everything."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._flush()
        await self._exact.close()
        await self._embedding.close()
        await self.entries.close()

    async def _flush(self) -> None:
        """Add what was counted since the last time to what the store has counted."""
        total = self.tallies
        news = total - self._flushed
        if not news:
            return
        try:
            async with asyncio.timeout(self._options.store_seconds):
                await self.entries.tally(news)
        except (StoreFailed, TimeoutError):
            return
        self._flushed = total

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _barrier(candidate: Candidate, principals: int) -> Reason | None:
    """What keeps an entry from being served to a question, however sure the decision is."""
    if candidate.quarantined:
        return Reason.QUARANTINED
    if candidate.rejected:
        return Reason.REJECTED
    if not candidate.vetted and candidate.principals < principals:
        return Reason.UNCONFIRMED
    return None


def _would_serve(verdict: Verdict) -> bool:
    """Whether a question would have been answered from the cache, but for the mode, proof, audit and witnesses."""
    return verdict.reason in _WOULD_SERVE
