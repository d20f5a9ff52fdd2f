"""Which names of models give nothing away, and what stands for those that might."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from prefold.errors import UsageError
from prefold.providers.rules import CacheRules, Control, providers, rules_for

_SEPARATORS = "-._:/@"
_CHUNK = re.compile(r"[a-z]+|\d+|.", re.DOTALL)
_DATE = re.compile(r"(?<!\d)20\d\d(-?)[01]\d\1[0-3]\d(?!\d)")
_MOST_NUMBERS, _MOST_DIGITS, _MOST_CHUNKS = 6, 10, 40  # beside a date
_CHOICE = re.compile(r"\[(.)[^]]*\]")
_WORDS = frozenset(
    """
    a adaptive air apac audio awq b base beta c chat coder cohere command e embed embedding exp experimental fast fp
    free gemma gguf gptq guard h hermes high image instant instruct int it l large latest lite live low max maverick
    medium meta microsoft minimal mixtral moe n nano nemo nemotron next nvfp nvidia ollama omni openrouter phi plus
    qwq realtime reasoner reasoning s scout search small t text thinking tts turbo ultra vision vl
    """.split()  # noqa: SIM905 - one word a line would take a page
)
"""Words that makers put into the names of their models, beside those that rules know them by."""


def is_public(name: str) -> bool:
    """Whether a model's name is made of nothing but words of makers, their versions and dates."""
    rest, dates = _DATE.subn("", name.lower())
    chunks = _CHUNK.findall(rest)
    numbers = [chunk for chunk in chunks if chunk.isdecimal()]
    return (
        dates <= 1
        and len(chunks) <= _MOST_CHUNKS
        and len(numbers) <= _MOST_NUMBERS
        and sum(map(len, numbers)) <= _MOST_DIGITS
        and all(map(_is_public_chunk, chunks))
    )


def disguised(name: str, provider: str, tag: str) -> str:
    """A name that falls under the same rules as another, and has nothing of it but what is public.

    Args:
        name: the other.
        provider: whom the log names beside it; else empty.
        tag: a word that stands for what is not public, different for different names.
    """
    wanted = _all_rules(name, provider)
    return next((other for other in _candidates(name, wanted, tag) if _all_rules(other, provider) == wanted), tag)


def _candidates(name: str, wanted: tuple[CacheRules | None, ...], tag: str) -> Iterator[str]:
    start = name[: _public_length(name)]
    if is_public(start):
        yield start + tag
    for rules in filter(None, wanted):
        prefixes = next(known.prefixes for known in providers() if known.name == rules.provider)
        for pattern in rules.models:
            model = _CHOICE.sub(r"\1", pattern).replace("*", tag)
            # Rules and prices take a number behind a colon for a version.
            version = "" if tag in model else f":{int.from_bytes(tag.encode()) % 10**16}"
            yield from (f"{prefix}{model}{version}" for prefix in ("", *prefixes))


def _public_length(name: str) -> int:
    """Characters up to the last separator before what is not public."""
    length = position = 0
    for chunk in _CHUNK.findall(name.lower()):
        if not _is_public_chunk(chunk):
            break
        position += len(chunk)
        if chunk in _SEPARATORS:
            length = position
    return length


def _is_public_chunk(chunk: str) -> bool:
    return chunk in _SEPARATORS or chunk in _known_words() or (chunk.isdecimal() and chunk.isascii())


@functools.cache
def _known_words() -> frozenset[str]:
    known = [name for one in providers() for name in (one.name, *one.aliases, *one.prefixes)]
    known += [pattern for one in providers() for family in one.families for pattern in family.models]
    return _WORDS.union(*(re.findall(r"[a-z]+", _CHOICE.sub("-", name)) for name in known))


def _all_rules(name: str, provider: str) -> tuple[CacheRules | None, ...]:
    """The rules that a name falls under, whatever is asked: with its provider or without, of each kind."""
    return tuple(
        _rules(name, served_by, control) for served_by in (None, provider or None) for control in (None, *Control)
    )


def _rules(name: str, provider: str | None, control: Control | None) -> CacheRules | None:
    try:
        return rules_for(name, provider, control=control)
    except UsageError:  # nothing is known of the provider
        return None
