"""What goes into an engine and what comes out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from prefold.core.keys import SHARED, Scope
from prefold.errors import InvalidRequest, PrefoldError

FinishReason = Literal["stop", "length", "cancelled", "error"]

MAX_STOPS = 16
MAX_LOGPROBS = 20
MAX_CHOICES = 128


@dataclass(frozen=True)
class SamplingOptions:
    """How the answer is chosen.

    Attributes:
        max_tokens: most tokens to generate, at least 1.
        temperature: 0 for the likeliest token, up to 2.
        top_p: smallest share of the probability, likeliest tokens first, that is sampled from; over 0, up to 1.
        top_k: number of likeliest tokens that are sampled from, 0 for all.
        seed: makes sampling repeatable; choice `i` of several uses `seed + i`.
        stop: texts that end the answer; they are not part of it.
        logprobs: report log-probabilities of the chosen and of this many likeliest tokens; None for none at all.
        ignore_eos: go on to `max_tokens` even after an end-of-text token; for benchmarks.
        choices: how many answers, `n` in the API.

    Raises:
        InvalidRequest: naming the field whose value cannot be used.
    """

    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    ignore_eos: bool = False
    choices: int = 1

    def __post_init__(self) -> None:
        _check("max_tokens", self.max_tokens, self.max_tokens >= 1, "at least 1")
        _check("temperature", self.temperature, 0 <= self.temperature <= 2, "0 to 2")  # OpenAI's range
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "over 0 and at most 1")
        _check("top_k", self.top_k, self.top_k >= 0, "0 (off) or more")
        _check("seed", self.seed, self.seed is None or -(2**63) <= self.seed < 2**63, "a 64-bit whole number")
        _check(
            "stop", self.stop, len(self.stop) <= MAX_STOPS and all(self.stop), f"up to {MAX_STOPS} texts, none empty"
        )
        within = self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS
        _check("logprobs", self.logprobs, within, f"0 to {MAX_LOGPROBS}")
        _check("n", self.choices, 1 <= self.choices <= MAX_CHOICES, f"1 to {MAX_CHOICES}")


def _check(name: str, value: object, valid: bool, allowed: str) -> None:
    if not valid or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidRequest(f"{name} is {value!r}", hint=f"allowed: {allowed}", param=name)


@dataclass(frozen=True)
class TokenLogprob:
    """Log-probability of one token, natural logarithm, before temperature and cuts."""

    token: int
    logprob: float


@dataclass(frozen=True)
class TokenInfo:
    """A generated token with its own and the likeliest log-probabilities, likeliest first."""

    chosen: TokenLogprob
    likeliest: tuple[TokenLogprob, ...]


@dataclass(frozen=True)
class Usage:
    """Tokens of one request.

    Attributes:
        prompt: input tokens.
        cached: those of them that need not be computed; never more than `prompt - 1`.
        completion: generated tokens, of all choices.
    """

    prompt: int
    cached: int
    completion: int


@dataclass(frozen=True)
class Output:
    """Something that happened to one choice of a request.

    Attributes:
        choice: which of the `n` answers, from 0.
        text: text that is now certain; may be empty.
        tokens: token ids generated since the last output of this choice.
        infos: log-probabilities of `tokens`, where asked for.
        finish: why the choice ended, None while it goes on.
        usage: of the whole request; set on its very last output.
        error: why, where `finish` is `error`.
    """

    choice: int
    text: str = ""
    tokens: tuple[int, ...] = ()
    infos: tuple[TokenInfo, ...] = ()
    finish: FinishReason | None = None
    usage: Usage | None = None
    error: PrefoldError | None = None


@dataclass(eq=False)
class Request:
    """A prompt to be continued.

    Attributes:
        prompt: the tokens, packed (`core.tokens.pack`); at least one.
        sampling: how the answer is chosen.
        on_output: called in the engine's thread, in order, and must neither block nor raise.
        scope: who may share the prompt's K and V.
    """

    prompt: bytes
    sampling: SamplingOptions
    on_output: Callable[[Output], None]
    scope: Scope = field(default=SHARED)
