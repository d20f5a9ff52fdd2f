"""Reasons of answers by meaning, in words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from prefold.responses.semantic.types import Reason

WORDS: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.OFF: "answers by meaning are off",
        Reason.NOT_A_QUESTION: "the request asks nothing that could be answered by meaning",
        Reason.EARLIER_TURNS: "there are turns before the last one",
        Reason.TOOLS: "the request offers tools",
        Reason.SAMPLED: "the answer is left to chance: the temperature is not 0",
        Reason.MANY_ANSWERS: "several answers are asked for",
        Reason.NOT_TEXT: "the last turn is not only text, or more than text is asked for",
        Reason.TIME_BOUND: "the answer depends on when it is asked",
        Reason.PERSONAL: "only data of whoever asks can answer it",
        Reason.TOO_LONG: "the question is too long",
        Reason.UNREADABLE: "the text holds characters that cannot be read",
        Reason.EMBEDDER_MISSING: "the embedder is not there",
        Reason.EMBEDDER_SLOW: "the embedder took too long",
        Reason.EMBEDDER_FAILED: "the embedder failed",
        Reason.STORE_FAILED: "the store failed, or took too long",
        Reason.VERIFIER_FAILED: "the verifier failed, or took too long",
        Reason.NO_CANDIDATE: "nothing is kept in this context",
        Reason.EXPIRED: "the entry has expired, or was removed meanwhile",
        Reason.QUARANTINED: "the entry is in quarantine",
        Reason.REJECTED: "the question was found to have another answer before",
        Reason.UNCONFIRMED: "too few independent ones got this answer, and nobody vetted it",
        Reason.UNSURE: "it is not probable enough that the answer is the same",
        Reason.UNPROVEN: "answers as probable as this are not proven to be right often enough yet",
        Reason.AUDITED: "it was drawn to go to the model all the same, so that drift is seen",
        Reason.SHADOW: "it would have been served, but the mode is shadow",
        Reason.LANGUAGE: "language or script differs",
        Reason.NEGATION: "one of them is negated",
        Reason.NUMBER: "numbers or units differ",
        Reason.DATE: "dates or times differ",
        Reason.POLARITY: "they point in opposite directions",
        Reason.ENTITY: "names differ",
        Reason.QUOTE: "quoted text differs",
        Reason.CODE: "code, paths or addresses differ",
        Reason.QUESTION_WORD: "they ask for another kind of thing",
        Reason.OPERAND: "what they are about differs",
        Reason.SCOPE: "one of them is narrower",
    }
)
"""What each reason means."""
