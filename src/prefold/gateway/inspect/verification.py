"""Whether a server keeps prefixes: the same long prompt twice, the tokens that it says it had, and the time it took.

A report of cached tokens settles it with two requests. Where there is none (engines leave it out unless told),
time decides, with more requests: prompts that are new and their repetitions in turns, and short ones. A hit can save at
most the time of a new prompt less that of a short one. How much of that a repetition did save tells whether there was a
hit, whatever the network and the first token take.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from statistics import median
from types import MappingProxyType
from typing import Any

from prefold.errors import UsageError
from prefold.gateway.call import Api
from prefold.gateway.upstream import Answer, Headers, Outgoing, Upstream, UpstreamFailed
from prefold.providers.usage import Usage, read_usage

PROMPT_TOKENS = 1_500
"""Tokens of a long prompt: beyond OpenAI's minimum of 1,024."""

MESSAGES_PROMPT_TOKENS = 4_600
"""The same for Anthropic's API, where some models keep nothing below 4,096."""

ROUNDS = 3
"""How often time is taken where nothing is reported."""

TOTAL_SECONDS = 300.0
"""Longest time for all of it."""

_ANSWER_BYTES = 1 << 20
_VISIBLE = 1.5  # a long prompt takes so many times as long as a short one, or time cannot tell
_HIT_SAVES, _MISS_SAVES = 0.5, 0.2  # of what a hit can save: at least, at most

_WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end"
)
"""Each is one token to every common tokenizer, with the space before it."""


class Conclusion(StrEnum):
    """What came of it."""

    CACHES = "caches"
    CACHES_SILENTLY = "caches_silently"
    """By the time that it takes; it does not say so in its usage."""
    DOES_NOT_CACHE = "does_not_cache"
    CANNOT_SAY = "cannot_say"


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome for one server, model and endpoint.

    Attributes:
        conclusion: what came of it.
        reason: what it is drawn from, as a sentence.
        input_tokens: of the long prompt, as the server counts them; 0 where it does not say.
        cached_tokens: those of the repetition that it says it had; None where it does not say.
        fresh_seconds: a long prompt's time until its answer of one token, when it was new.
        repeat_seconds: the same when it was not. Both None where there was no answer.
    """

    conclusion: Conclusion
    reason: str
    input_tokens: int = 0
    cached_tokens: int | None = None
    fresh_seconds: float | None = None
    repeat_seconds: float | None = None


async def verify(
    upstream: Upstream,
    model: str,
    api: Api = Api.CHAT,
    *,
    clock: Callable[[], float],
    random: Random,
    prompt_tokens: int | None = None,
) -> Verification:
    """Find out whether a server keeps prefixes.

    Two requests of one generated token each, and nine more where their usage does not settle it.

    Args:
        upstream: the server; what it answers with is never an error of this function.
        model: the name to ask for.
        api: the endpoint to use: chat, completions or messages.
        clock: monotonic seconds.
        random: makes prompts that nobody has sent before.
        prompt_tokens: about so many tokens in a long prompt; None for more than any provider's minimum.

    Raises:
        UsageError: if the endpoint reads no prompt that is known here.
    """
    if api not in _BODIES:
        raise UsageError(
            f"{api.value} cannot be verified.", hint=f"Use one of {', '.join(api.value for api in _BODIES)}."
        )
    if prompt_tokens is None:
        prompt_tokens = MESSAGES_PROMPT_TOKENS if api is Api.MESSAGES else PROMPT_TOKENS
    try:
        async with asyncio.timeout(TOTAL_SECONDS):
            return await _verified(_Asker(upstream, model, api, clock), random, prompt_tokens)
    except TimeoutError:
        reason = f"It did not answer all requests within {TOTAL_SECONDS:g} s."
    except UpstreamFailed as failure:
        reason = failure.message
    except _Refused as refusal:
        reason = refusal.reason
    return Verification(Conclusion.CANNOT_SAY, reason)


async def _verified(asker: _Asker, random: Random, prompt_tokens: int) -> Verification:
    if (settled := _by_report(await _round(asker, random, prompt_tokens))) is not None:
        return settled
    # Time is taken from here on, since the first request may have waited for the model to be loaded.
    rounds: list[_Round] = []
    short_seconds: list[float] = []
    for _ in range(ROUNDS):
        short_seconds.append((await asker.ask(_prompt(random, 1))).seconds)
        rounds.append(await _round(asker, random, prompt_tokens))
        if (settled := _by_report(rounds[-1])) is not None:
            return settled
    return _by_time(rounds, median(short_seconds))


@dataclass(frozen=True, slots=True)
class _Reply:
    """An answer: how long it took, and what it says of its tokens."""

    seconds: float
    usage: Usage

    @property
    def is_hit(self) -> bool:
        """Whether it says that it had most of its prompt."""
        return 2 * self.usage.read > self.usage.input

    @property
    def cached(self) -> int | None:
        return self.usage.read if self.usage.is_reported else None


@dataclass(frozen=True, slots=True)
class _Round:
    """A prompt that was new, and once more."""

    fresh: _Reply
    repeat: _Reply

    def concludes(self, conclusion: Conclusion, reason: str) -> Verification:
        usage = self.repeat.usage
        return Verification(
            conclusion, reason, usage.input, self.repeat.cached, self.fresh.seconds, self.repeat.seconds
        )


async def _round(asker: _Asker, random: Random, prompt_tokens: int) -> _Round:
    prompt = _prompt(random, prompt_tokens)
    return _Round(await asker.ask(prompt), await asker.ask(prompt))


def _prompt(random: Random, tokens: int) -> str:
    """A text that begins as none before it, and that no part of has been read at the same place."""
    return f"{random.getrandbits(64):016x} {' '.join(random.choices(_WORDS.split(), k=tokens))}"


def _by_report(round_: _Round) -> Verification | None:
    """What usage says; None where it does not settle it."""
    if round_.fresh.is_hit:
        return round_.concludes(
            Conclusion.CANNOT_SAY, "It says that it had a prompt in its cache that nobody has sent before."
        )
    if not round_.repeat.is_hit:
        return None
    usage = round_.repeat.usage
    return round_.concludes(
        Conclusion.CACHES, f"It says that it had {usage.read:,} of {usage.input:,} tokens when they came again."
    )


def _by_time(rounds: list[_Round], short_seconds: float) -> Verification:
    fresh = median(round_.fresh.seconds for round_ in rounds)
    repeat = median(round_.repeat.seconds for round_ in rounds)
    usage = rounds[-1].repeat.usage
    says = f"says that it had {usage.read:,} of them" if usage.is_reported else "does not say what it had"

    def concluded(conclusion: Conclusion, reason: str) -> Verification:
        return Verification(conclusion, reason, usage.input, rounds[-1].repeat.cached, fresh, repeat)

    times = f"{_milliseconds(fresh)} new, {_milliseconds(repeat)} again"
    can_save = fresh - short_seconds
    saved = (fresh - repeat) / can_save if can_save > 0 else 0.0
    is_visible = fresh >= _VISIBLE * short_seconds
    is_apart = max(round_.repeat.seconds for round_ in rounds) < min(round_.fresh.seconds for round_ in rounds)
    if is_visible and saved >= _HIT_SAVES and is_apart:
        return concluded(Conclusion.CACHES_SILENTLY, f"The prompt took {times}; its usage {says}.")
    if usage.is_reported and not usage.read:
        return concluded(
            Conclusion.DOES_NOT_CACHE, f"It says that it had none of the tokens when they came again ({times})."
        )
    if is_visible and saved <= _MISS_SAVES:
        return concluded(Conclusion.DOES_NOT_CACHE, f"The prompt took {times}; its usage {says}.")
    why = "times vary too much" if is_visible else "a long prompt takes hardly longer than a short one"
    return concluded(Conclusion.CANNOT_SAY, f"Its usage {says}, and {why} ({times}).")


def _milliseconds(seconds: float) -> str:
    return f"{1_000 * seconds:,.0f} ms"


# Asking


class _Refused(Exception):
    """An answer without what was asked for."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Asker:
    """Sends prompts, one after another."""

    def __init__(self, upstream: Upstream, model: str, api: Api, clock: Callable[[], float]) -> None:
        self._upstream = upstream
        self._model = model
        self._api = api
        self._clock = clock

    async def ask(self, prompt: str) -> _Reply:
        """Have one token generated; it is not streamed, since some engines send the head of a stream before they begin.

        Raises:
            UpstreamFailed: if there is no answer.
            _Refused: if it is none to the prompt.
        """
        body = json.dumps({"model": self._model, "max_tokens": 1, **_BODIES[self._api](prompt)}).encode()
        began = self._clock()
        answer = await self._upstream.send(Outgoing("POST", self._api.value, _HEADERS, body))
        content = await read_body(answer, _ANSWER_BYTES)
        seconds = self._clock() - began
        if answer.status != 200:
            why = _STATUSES.get(answer.status, "see its log")
            raise _Refused(f"It refused {self._api.value} with status {answer.status}: {why}.")
        try:
            usage = read_usage(json.loads(content or b""))
        except (ValueError, RecursionError):
            raise _Refused(f"It answered {self._api.value} with something that is not JSON.") from None
        return _Reply(seconds, usage or Usage())


async def read_body(answer: Answer, limit: int) -> bytes | None:
    """The whole body of an answer; None if it is longer than `limit` bytes.

    Raises:
        UpstreamFailed: if it breaks off.
    """
    parts: list[bytes] = []
    size = 0
    try:
        async for chunk in answer.chunks():
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                return None
    finally:
        await answer.close()
    return b"".join(parts)


_HEADERS: Headers = [(b"content-type", b"application/json"), (b"anthropic-version", b"2023-06-01")]

_STATUSES: Mapping[int, str] = MappingProxyType(
    {
        400: "perhaps its context is too short",
        401: "it wants another key",
        403: "it wants another key",
        404: "it has no such model, or no such endpoint",
        429: "it is too busy",
        503: "it is too busy, or not ready",
    }
)

_BODIES: Mapping[Api, Callable[[str], dict[str, Any]]] = MappingProxyType(
    {
        Api.CHAT: lambda prompt: {"messages": [{"role": "user", "content": prompt}]},
        Api.COMPLETIONS: lambda prompt: {"prompt": prompt},
        # Anthropic keeps what ends at a marker only; engines with its API take no notice of it.
        Api.MESSAGES: lambda prompt: {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": prompt, "cache_control": {"type": "ephemeral"}}],
                }
            ]
        },
    }
)
