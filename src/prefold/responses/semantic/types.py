"""What the parts of the semantic cache hand to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

POLICY_VERSION = 1
"""Of keys, guards and decision together: entries of another version are never read."""


class Reason(StrEnum):
    """Why a question was not answered from the cache, or what speaks against a pair; the value is what is counted.

    Everything uncertain is a miss, and each miss has one of these.
    """

    # The request may never be answered by meaning
    OFF = "off"
    NOT_A_QUESTION = "not_a_question"
    EARLIER_TURNS = "earlier_turns"
    TOOLS = "tools"
    SAMPLED = "sampled"
    MANY_ANSWERS = "many_answers"
    NOT_TEXT = "not_text"
    TIME_BOUND = "time_bound"
    PERSONAL = "personal"
    TOO_LONG = "too_long"
    UNREADABLE = "unreadable"
    # A part could not say
    EMBEDDER_MISSING = "embedder_missing"
    EMBEDDER_SLOW = "embedder_slow"
    EMBEDDER_FAILED = "embedder_failed"
    STORE_FAILED = "store_failed"
    VERIFIER_FAILED = "verifier_failed"
    # Nothing to serve
    NO_CANDIDATE = "no_candidate"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"
    REJECTED = "rejected"
    UNCONFIRMED = "unconfirmed"
    # The decision
    UNSURE = "unsure"
    UNPROVEN = "unproven"
    AUDITED = "audited"
    SHADOW = "shadow"
    # Guards: what differs between two questions
    LANGUAGE = "language"
    NEGATION = "negation"
    NUMBER = "number"
    DATE = "date"
    POLARITY = "polarity"
    ENTITY = "entity"
    QUOTE = "quote"
    CODE = "code"
    QUESTION_WORD = "question_word"
    OPERAND = "operand"
    SCOPE = "scope"


@dataclass(frozen=True, slots=True)
class Question:
    """A request that may be answered by meaning, taken apart into what must be the same and what may be worded freely.

    Attributes:
        context: SHA-256 over everything but the last user turn, and over `partition`; 32 bytes.
        partition: whose entries may be seen: a tenant, or its end user. Hashed wherever it is kept.
        principal: hash of who asks, for counting independent ones; "" where nobody can tell.
        route: the model asked for; what figures are pooled over.
        text: the last user turn, without white space at its ends.
        language: of the text: "en", "zh", another ISO 639-1 code or a script's name.
        tags: by which what becomes of it can be invalidated later.
        open_context: the same as `context` without the partition: what an administrator shared with everybody lies
            there; empty where nothing is to be shared.
    """

    context: bytes
    partition: str
    principal: str
    route: str
    text: str
    language: str
    tags: frozenset[str] = frozenset()
    open_context: bytes = b""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry near a question, by the nearest of the wordings that it is known under.

    Attributes:
        entry: id of the entry.
        wording: the text that is near.
        similarity: cosine of the two vectors, -1 to 1.
        cluster: entries with equal answers have the same.
        principals: how many independent ones got this answer.
        vetted: by an administrator or a judge.
        quarantined: not to be served until somebody looked.
        rejected: that this question has another answer was found before.
        created: Unix seconds.
        expires: Unix seconds.
    """

    entry: str
    wording: str
    similarity: float
    cluster: str
    principals: int = 1
    vetted: bool = False
    quarantined: bool = False
    rejected: bool = False
    created: float = 0.0
    expires: float = float("inf")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer in no provider's form; `render` in `forms` makes it into any.

    Attributes:
        text: all of it.
        model: that the upstream named.
        finish: "stop" or "length", in OpenAI's words.
        input_tokens: of the request that was answered, as reported.
        output_tokens: likewise.
        deltas: lengths, in characters, of the pieces in which it came; empty where it came whole.
    """

    text: str
    model: str = ""
    finish: str = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    deltas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One pair of which it became known whether its answers are the same: what the decision learns from.

    Attributes:
        features: see `FEATURES` in `features`.
        same: whether the answers are the same.
        entry: id of the candidate's entry.
        cluster: of the candidate.
        route: of the question.
        probability: that the decision gave before it knew.
        would_serve: whether the pair would have been served, had everything been switched on.
        at: Unix seconds.
        pool: hash of the partition whose decision learns from it; "" for one that learns from all.
        number: rises with each sample in a store.
    """

    features: tuple[float, ...]
    same: bool
    entry: str
    cluster: str
    route: str
    probability: float
    would_serve: bool
    at: float
    pool: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer with what it answers.

    Attributes:
        id: random, 32 hex digits.
        question: that it was given to first.
        vector: of its text: float32, little-endian, unit length.
        embedder: fingerprint of what made the vector.
        answer: kept.
        cluster: see `Candidate`.
        created: Unix seconds.
        expires: Unix seconds; hits do not move it.
    """

    id: str
    question: Question
    vector: bytes
    embedder: str
    answer: Answer
    cluster: str
    created: float
    expires: float


@dataclass(frozen=True, slots=True)
class KnownWording:
    """A text that an entry is known under.

    Attributes:
        cluster: of the entry.
        text: of a question.
        vector: of the text: float32, little-endian, unit length.
    """

    cluster: str
    text: str
    vector: bytes


class Entries(Protocol):
    """The one truth: entries, their wordings and vectors, judgements. Every method raises StoreFailed if it cannot."""

    async def nearest(self, question: Question, vector: bytes, embedder: str, count: int) -> list[Candidate]:
        """The entries of this context nearest to a question, best first, one for each entry, expired ones left out."""

    async def answer(self, entry: str) -> Answer | None:
        """What an entry answers; None where it is gone, expired or quarantined."""

    async def put(self, entry: Entry) -> str:
        """Keep an entry; returns its id.

        Where a live entry of the context knows the text already, nothing changes, nobody is counted, and the id is its.
        """

    async def add_wording(self, entry: str, question: Question, vector: bytes, embedder: str) -> None:
        """Another wording of an entry, or one that it has; counts its principal as one who got this answer."""

    async def reject(self, entry: str, text: str) -> None:
        """Remember that a question of this text has another answer than the entry."""

    async def quarantine(self, entry: str, note: str) -> bool:
        """Serve an entry no more; whether there is one of this id."""

    async def vet(self, entry: str) -> bool:
        """Free an entry for all who share its context; lifts a quarantine."""

    async def share(self, entry: str) -> bool:
        """Free an entry for all partitions, as `Question.open_context` says which; whether that can be done."""

    async def wordings(self, question: Question, embedder: str) -> list[KnownWording]:
        """Every wording in a question's context, oldest first."""

    async def delete(self, entry: str) -> bool:
        """Remove text, vectors, wordings, rejections in one transaction."""

    async def invalidate(self, tag: str) -> int:
        """Remove all entries with a tag; how many there were."""

    async def record(self, sample: Sample) -> None:
        """Keep a sample."""

    async def samples(self, pool: str, after: int = 0) -> list[Sample]:
        """A pool's samples with a higher number than `after`, oldest first."""

    async def pools(self) -> list[str]:
        """Pools that have samples."""

    async def tally(self, news: Mapping[str, int]) -> None:
        """Add to what is counted, by name."""

    async def tallies(self) -> Mapping[str, int]:
        """What was counted so far, by name."""

    async def counts(self) -> Mapping[str, int]:
        """entries, wordings, quarantined, samples, bytes."""

    async def close(self) -> None:
        """Let go of files and connections."""


class Embedder(Protocol):
    """Turns texts into vectors. Blocking: it runs in a thread.

    Attributes:
        fingerprint: hash of model, tokenizer, pooling and precision.
        size: numbers in a vector.
    """

    fingerprint: str
    size: int

    def embed(self, texts: list[str]) -> Any:
        """float32 array, shape [len(texts), size], rows of unit length.

        Raises:
            PrefoldError: if it cannot.
        """


class Verifier(Protocol):
    """Looks at two questions together. Blocking, or a call to a model: it runs within a time budget."""

    async def same(self, a: str, b: str) -> float:
        """Probability, 0 to 1, that both have the same answer.

        Raises:
            PrefoldError: if it cannot say.
        """


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided about a question, and why.

    Attributes:
        reason: None where it may be served.
        candidate: that was decided about, if any.
        guards: what speaks against it.
        probability: that the answer is the same.
        bound: upper bound on the share of wrong answers at this probability and above; 1.0 where nothing is known.
        features: that the decision saw.
        others: further candidates, for explaining.
    """

    reason: Reason | None
    candidate: Candidate | None = None
    guards: tuple[Reason, ...] = ()
    probability: float = 0.0
    bound: float = 1.0
    features: tuple[float, ...] = ()
    others: tuple[Candidate, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Hit:
    """An answer to serve.

    Attributes:
        answer: kept.
        candidate: that it was kept for.
        probability: that it is right.
        age: seconds since it was given.
    """

    answer: Answer
    candidate: Candidate
    probability: float
    age: float


@dataclass(frozen=True, slots=True)
class Found:
    """What looking for a question came to.

    Attributes:
        question: that was looked for.
        verdict: whether it is served, and why not.
        hit: what is served; None for a miss.
        vector: of the question, float32, (size,); None where there is none.
    """

    question: Question
    verdict: Verdict
    hit: Hit | None = None
    vector: Any = None
