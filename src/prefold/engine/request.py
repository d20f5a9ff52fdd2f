"""What goes into an engine and what comes out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from prefold.core.keys import SHARED, Scope
from prefold.core.tokens import WIDTH, count
from prefold.engine.pins import Pinned, PinWish
from prefold.errors import InvalidRequest, PrefoldError

FinishReason = Literal["stop", "length", "cancelled", "error"]

MAX_STOPS = 16
MAX_LOGPROBS = 20
MAX_CHOICES = 128
MAX_CHUNKS = 1000


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


@dataclass(frozen=True, slots=True)
class BlendUsage:
    """What a prompt with marked chunks was answered from.

    Attributes:
        chunks: marked ones.
        reused: those of them that were known.
        reused_tokens: whose K and V were taken over from another place. The answer is exact where there are none.
        recomputed_tokens: tokens of known chunks that were computed all the same.
        reason: why no chunk could be reused at all; empty where they could.
    """

    chunks: int
    reused: int = 0
    reused_tokens: int = 0
    recomputed_tokens: int = 0
    reason: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether the answer is what it would have been without blending."""
        return not self.reused_tokens


@dataclass(frozen=True)
class Usage:
    """Tokens of one request.

    Attributes:
        prompt: input tokens.
        cached: those of them that need not be computed, exact to the token; never more than `prompt - 1`.
        completion: generated tokens, of all choices.
        blend: what became of the chunks in the prompt; None where none were marked.
    """

    prompt: int
    cached: int
    completion: int
    blend: BlendUsage | None = None


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
        pin: what became of the request's wish to pin, beside `usage`; None where it had none or was not computed.
    """

    choice: int
    text: str = ""
    tokens: tuple[int, ...] = ()
    infos: tuple[TokenInfo, ...] = ()
    finish: FinishReason | None = None
    usage: Usage | None = None
    error: PrefoldError | None = None
    pin: Pinned | PrefoldError | None = None


@dataclass(eq=False)
class Request:
    """A prompt to be continued.

    Attributes:
        prompt: the tokens, packed (`core.tokens.pack`); at least one.
        sampling: how the answer is chosen.
        on_output: called in the engine's thread, in order, and must neither block nor raise.
        scope: who may share the prompt's K and V.
        pin: what of the prompt is to stay once it is computed; None for nothing.
        chunks: tokens `start..stop` that may stand elsewhere in the next prompt, in order; see `engine.blend`.
    """

    prompt: bytes
    sampling: SamplingOptions
    on_output: Callable[[Output], None]
    scope: Scope = field(default=SHARED)
    pin: PinWish | None = None
    chunks: tuple[tuple[int, int], ...] = ()

    @property
    def opening(self) -> bytes:
        """The tokens before the first chunk; all where there is none. The first token is what it is in any prompt."""
        return self.prompt[: max(self.chunks[0][0], 1) * WIDTH] if self.chunks else self.prompt

    def check_chunks(self) -> None:
        """Refuse chunks that are empty, overlap or do not lie in the prompt.

        Raises:
            InvalidRequest: naming the first one.
        """
        if len(self.chunks) > MAX_CHUNKS:
            raise InvalidRequest(
                f"{len(self.chunks)} chunks in one prompt", hint=f"mark up to {MAX_CHUNKS}", param="prefold_chunks"
            )
        end = 0
        for start, stop in self.chunks:
            if fault := fault_of_chunk(start, stop, end, count(self.prompt)):
                raise InvalidRequest(
                    f"The chunk of tokens {start} to {stop} {fault}",
                    hint="give chunks in order, as [start, stop] with stop exclusive",
                    param="prefold_chunks",
                )
            end = stop


def fault_of_chunk(start: int, stop: int, end: int, length: int) -> str:
    """What is wrong with a chunk `start..stop`, as the end of a sentence; empty if nothing is.

    Args:
        start: where it begins.
        stop: where it ends.
        end: where the chunk before it ends.
        length: of the text.
    """
    if start < 0 or stop > length:
        return f"lies outside of 0 to {length}"
    if start == stop:
        return "is empty"
    if stop < start:
        return "ends before it begins"
    return f"begins before {end}, where the one before it ends" if start < end else ""
