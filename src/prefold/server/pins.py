"""Prefixes that clients and operators pin: what they send, what they are told, and what is pinned before they come."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

from prefold.core.tokens import count
from prefold.engine.engine import Engine
from prefold.engine.pins import Pinned, PinWish
from prefold.engine.progress import Progress
from prefold.engine.request import Output, Request, SamplingOptions
from prefold.engine.tiers.ladder import TierState
from prefold.engine.worker import EngineWorker
from prefold.errors import EngineStopped, InvalidRequest, PrefoldError, UsageError
from prefold.server.fields import Fields, shown
from prefold.server.openai_requests import Call, Prompt, ServedModel, parse_prompt, pin_seconds
from prefold.server.openai_responses import as_http_error

Json = dict[str, Any]

_ONE_TOKEN = SamplingOptions(max_tokens=1, temperature=0.0)
"""The least that computes a prompt."""


# Requests


def parse_pin(fields: Fields, model: ServedModel) -> Call:
    """A body of `POST /cache/pins`: a prompt or messages as in a completion, and `seconds` for a time.

    Raises:
        InvalidRequest, InvalidTokens, InvalidSalt: naming the field at fault.
        HttpError: for an unknown model.
    """
    return Call((_pinned_prompt(fields, model),), _ONE_TOKEN, stream=False, include_usage=False)


def _pinned_prompt(fields: Fields, model: ServedModel) -> Prompt:
    seconds = pin_seconds(fields, "seconds") or inf
    prompt = parse_prompt(fields, model, answering=False)
    if not prompt.run:
        raise InvalidRequest(
            "These messages contribute nothing of their own to a conversation",
            hint="the model's chat template writes them only together with what follows",
            param="messages",
        )
    return Prompt(prompt.run, prompt.scope, PinWish(prompt.run, seconds))


# Answers


def pin_object(pin: Pinned) -> Json:
    """A pin as clients see it."""
    return asdict(pin)


def outcomes(pins: Mapping[int, Pinned | PrefoldError]) -> list[Json]:
    """What became of the wishes of one request, in the order of its prompts."""
    return [_outcome(pins[index]) for index in sorted(pins)]


def _outcome(pin: Pinned | PrefoldError) -> Json:
    if isinstance(pin, Pinned):
        return pin_object(pin)
    error = as_http_error(pin)
    return {"error": {"message": str(error), "code": error.code}}


def pins_object(engine: Engine) -> Json:
    """All pins, and how much they hold and may hold. To be called in the engine's thread."""
    pins = [pin_object(pin) for pin in engine.pins.all()]
    return {"pins": pins, "tokens": engine.cache.pinned, "limit_tokens": engine.cache.pin_limit}


def cache_object(engine: Engine) -> Json:
    """The state of the cache, in tokens. To be called in the engine's thread."""
    engine.pins.expire()
    cache, counters = engine.cache, engine.cache.counters
    return {
        "policy": engine.options.policy,
        "capacity": cache.capacity,
        "cached": cache.tree.size,
        "reserved": cache.reserved,
        "held": cache.tree.pinned,
        "pinned": cache.pinned,
        "pin_limit": cache.pin_limit,
        "pins": len(engine.pins),
        "requests": counters.requests,
        "input": counters.input,
        "hit": counters.hit,
        "inserted": counters.inserted,
        "evicted": counters.evicted,
        "tiers": [] if engine.ladder is None else [tier_object(tier) for tier in engine.ladder.state()],
    }


def tier_object(tier: TierState) -> Json:
    """The state of a tier: tokens put into the pool from it; the rest in blocks and bytes."""
    return {"tier": tier.name, "loaded_tokens": tier.loaded, **asdict(tier.usage)}


# Files


@dataclass(frozen=True, slots=True)
class FilePin:
    """What a file asks to pin.

    Attributes:
        where: file and entry, for messages.
        prompt: with its wish.
    """

    where: str
    prompt: Prompt


def read_pin_file(path: Path, model: ServedModel) -> list[FilePin]:
    """The prompts in a file: JSON, one object or a list of them, or JSONL, an object a line.

    An object is the body of a chat completion, of which `messages`, `tools`, `cache_salt` and `cache_salt_from` count;
    or has a `prompt`; or, for short, a `system` message. `seconds` limits how long it stays.

    Raises:
        UsageError: if the file cannot be read, or naming the entry that cannot be pinned, and why.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"The pin file {path} cannot be read: {reason}", hint="give a file in JSON or JSONL") from None
    pins = []
    for place, value in _entries(path, text):
        where = f"{path}, {place}"
        if not isinstance(value, dict):
            raise UsageError(f"{where} is {shown(value)}", hint='write an object, such as {"system": "You are ..."}')
        try:
            pins.append(FilePin(where, _pinned_prompt(Fields(_spelled_out(value)), model)))
        except PrefoldError as error:
            raise UsageError(f"{where}: {error.message}", hint=error.hint) from None
    return pins


def _entries(path: Path, text: str) -> Iterable[tuple[str, Any]]:
    """Each entry with its place."""
    try:
        whole = json.loads(text)
    except ValueError:
        pass
    else:
        values = whole if isinstance(whole, list) else [whole]
        return [(f"entry {number}", value) for number, value in enumerate(values, 1)]
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                entries.append((f"line {number}", json.loads(line)))
            except ValueError as error:
                raise UsageError(
                    f"{path}, line {number} is not JSON: {error}", hint="write one object a line, or a list of objects"
                ) from None
    return entries


def _spelled_out(entry: Json) -> Json:
    """An entry with its short form, `system`, written as messages."""
    system = entry.get("system")
    if system is None or entry.get("messages") is not None:
        return entry
    rest = {name: value for name, value in entry.items() if name != "system"}
    return {**rest, "messages": [{"role": "system", "content": system}]}


def pin_all(worker: EngineWorker, pins: list[FilePin], progress: Progress) -> int:
    """Compute and pin what a file asks for, one after the other; returns the tokens pinned.

    Args:
        worker: started.
        pins: from `read_pin_file`.
        progress: told what is done, how many of how many.

    Raises:
        UsageError: naming the entry that could not be pinned, and why.
    """
    for number, pin in enumerate(pins):
        progress("Pinning prefixes", number, len(pins))
        try:
            outcome = _compute(worker, pin.prompt)
        except PrefoldError as error:
            outcome = error
        if isinstance(outcome, PrefoldError):
            tokens = count(pin.prompt.run)
            raise UsageError(f"{pin.where} of {tokens} tokens was not pinned: {outcome.message}", hint=outcome.hint)
    progress("Pinning prefixes", len(pins), len(pins))
    return worker.engine.cache.pinned


def _compute(worker: EngineWorker, prompt: Prompt) -> Pinned | PrefoldError:
    done: Future[Pinned | PrefoldError] = Future()

    def take(output: Output) -> None:  # in the engine's thread
        if output.finish is not None:
            done.set_result(output.pin or output.error or EngineStopped("The engine stopped", hint="see its log"))

    (ticket,) = worker.submit(Request(prompt.run, _ONE_TOKEN, take, prompt.scope, prompt.pin))
    ticket.result()  # raises where the engine did not take it
    return done.result()
