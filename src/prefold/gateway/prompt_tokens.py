"""The tokens of a call's prompt, as the engine behind it will see them.

To tokenise 32 KiB takes some ten milliseconds, so it is done once for each text: a prompt is cut where special tokens
stand and, where it is long, where lines begin, and each piece is remembered. A tokenizer that looks across such places
is given the whole text.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product
from typing import Any, TypeVar

from prefold.core.tokens import pack
from prefold.engine.tokenizer import Tokenizer
from prefold.errors import PrefoldError
from prefold.gateway.call import Api, Call

MOST_BYTES = 1 << 20
"""Of a body up to which its prompt is tokenised: some 250,000 tokens of English.

A tokenizer takes up to 300 bytes of memory for each byte of text (for text without spaces; mostly a third), and a
second for two to four megabytes.
"""

_INLINE_BYTES = 16 << 10  # bodies up to this are rendered and cut in the event loop, larger ones in a thread
_INLINE_CHARACTERS = 2_048  # up to this many unknown ones are tokenised in the event loop, more in a thread
_PIECE_OVERHEAD = 200  # bytes that Python takes for the objects around a remembered piece, roughly
_MOST_PIECES = 4_096  # the last one is all the rest: pieces are looked up in the event loop
_LONG_CHARACTERS = 4_096  # a piece is cut at the first line that begins behind so many of them
_LINE = re.compile(r"(?<=\S\n)(?=[^\W\d_])")  # with other whitespace around it, a line's end may be a part of a token

_Result = TypeVar("_Result")


async def work_on(call: Call, work: Callable[[], _Result]) -> _Result:
    """Do what takes the longer the larger a call's body is: in a thread, if it is large."""
    return work() if len(call.body) <= _INLINE_BYTES else await asyncio.to_thread(work)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A prompt in pieces.

    Attributes:
        pieces: of its text.
        front: packed tokens before them.
        back: packed tokens behind them.
    """

    pieces: Sequence[str] = ()
    front: bytes = b""
    back: bytes = b""


class PromptTokens:
    """Tokenises prompts for one model.

    Args:
        tokenizer: the model's.
        capacity: bytes of pieces and their tokens that are remembered.
    """

    def __init__(self, tokenizer: Tokenizer, capacity: int = 64 << 20) -> None:
        self._tokenizer = tokenizer
        self._capacity = capacity
        self._known: OrderedDict[tuple[str | None, str], bytes] = OrderedDict()  # by salt: see `run`
        self._size = 0
        self._front, self._back = _added_around(tokenizer)
        added = sorted(tokenizer.added_texts, key=len, reverse=True)
        is_piecewise = bool(added) and _is_piecewise(tokenizer, added)
        self._special = re.compile("|".join(map(re.escape, added))) if is_piecewise else None
        self._is_linewise = is_piecewise and _is_linewise(tokenizer)

    async def run(self, call: Call) -> bytes | None:
        """The prompt's packed tokens; None where they cannot be told.

        That is so for requests that name no text (several prompts, images), and for those that the template refuses:
        the engine will say what is wrong with them. Tenants that share no prefixes share no pieces either, since the
        time that is saved would tell of them.

        Args:
            call: its body has at most `MOST_BYTES`, since memory and time grow with it.
        """
        try:
            cut = await work_on(call, lambda: self._cut(call))
            return None if cut is None else await self._tokens_of(cut, call.tenant.salt)
        except (PrefoldError, TypeError, AttributeError, KeyError, ValueError):
            return None

    def _cut(self, call: Call) -> _Cut | None:
        fields = call.fields
        if call.api is Api.COMPLETIONS:
            return self._cut_prompt(fields.get("prompt"))
        if call.api is not Api.CHAT:
            return None
        text = self._tokenizer.apply_chat_template(
            [_as_text(message) for message in fields["messages"]],
            tools=fields.get("tools"),
            add_generation_prompt=fields.get("add_generation_prompt", True),
            **(fields.get("chat_template_kwargs") or {}),
        )
        return _Cut(self._pieces(text))

    def _cut_prompt(self, prompt: object) -> _Cut | None:
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str):
            pieces = self._pieces(prompt)
            return _Cut(pieces) if self._tokenizer.begins_itself(prompt) else _Cut(pieces, self._front, self._back)
        if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
            return _Cut(front=pack(prompt))
        return None

    async def _tokens_of(self, cut: _Cut, salt: str | None) -> bytes:
        runs = {piece: self._recall((salt, piece)) for piece in cut.pieces}
        new = [piece for piece, run in runs.items() if run is None]
        if sum(map(len, new)) <= _INLINE_CHARACTERS:
            made = [self._tokens(piece) for piece in new]
        else:
            made = await asyncio.to_thread(lambda: [self._tokens(piece) for piece in new])
        for piece, run in zip(new, made, strict=True):
            runs[piece] = run
            self._remember((salt, piece), run)
        return b"".join([cut.front, *(runs[piece] or b"" for piece in cut.pieces), cut.back])

    def _pieces(self, text: str) -> list[str]:
        """The text, cut before each special token, and before lines where it is long.

        Where it is cut depends on what stands before alone, so that prompts with one beginning have the same pieces.
        """
        starts = list(islice(self._starts(text), _MOST_PIECES))
        return [text[start:stop] for start, stop in zip(starts, [*starts[1:], len(text)], strict=True) if start < stop]

    def _starts(self, text: str) -> Iterator[int]:
        """Where pieces begin, in order."""
        start = 0
        yield start
        specials = self._special.finditer(text) if self._special is not None else ()
        for stop in chain((match.start() for match in specials), (len(text),)):
            if self._is_linewise:
                while line := _LINE.search(text, start + _LONG_CHARACTERS, stop):
                    start = line.start()
                    yield start
            if start < stop < len(text):
                start = stop
                yield start

    def _tokens(self, text: str) -> bytes:
        return pack(self._tokenizer.encode(text, add_special=False))

    def _recall(self, key: tuple[str | None, str]) -> bytes | None:
        run = self._known.get(key)
        if run is not None:
            self._known.move_to_end(key)
        return run

    def _remember(self, key: tuple[str | None, str], run: bytes) -> None:
        if key in self._known:  # another request brought it meanwhile
            return
        self._known[key] = run
        self._size += len(key[1]) + len(run) + _PIECE_OVERHEAD
        while self._size > self._capacity:
            (_, oldest), gone = self._known.popitem(last=False)
            self._size -= len(oldest) + len(gone) + _PIECE_OVERHEAD


def _added_around(tokenizer: Tokenizer) -> tuple[bytes, bytes]:
    """The packed tokens that a tokenizer adds before and behind a text."""
    bare = tokenizer.encode("a word", add_special=False)
    whole = tokenizer.encode("a word", add_special=True)
    start = next(at for at in range(len(whole)) if whole[at : at + len(bare)] == bare)
    return pack(whole[:start]), pack(whole[start + len(bare) :])


def _is_piecewise(tokenizer: Tokenizer, added: Sequence[str]) -> bool:
    """Whether texts have the same tokens when they are cut before special ones; asked of the tokenizer itself."""
    return all(
        _may_be_cut(tokenizer, before, f"{special}{after}")
        for special in added
        for before, after in (("a word", "a word"), ("a line. \n", " \nword"))
    )


def _is_linewise(tokenizer: Tokenizer) -> bool:
    """Whether texts have the same tokens when they are cut where `_LINE` says; asked of the tokenizer itself."""
    ends = ("a word\n", "It ended.\n", "12\n", "f(x) {\n", '"\n', "- \t}\n", "\u4e2d\u6587\u3002\n", "\u0301\n")
    beginnings = ("word", "The", "a\n", "I'm", "\u4e2d\u6587", "\u00e9t\u00e9")
    return all(_may_be_cut(tokenizer, before, after) for before, after in product(ends, beginnings))


def _may_be_cut(tokenizer: Tokenizer, before: str, after: str) -> bool:
    def tokens(text: str) -> list[int]:
        return tokenizer.encode(text, add_special=False)

    return tokens(f"{before}{after}") == tokens(before) + tokens(after)


def _as_text(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose content is one text, as engines hand it to the template.

    Raises:
        ValueError: if it holds something else.
    """
    content = message.get("content")
    if isinstance(content, list):
        if any(part.get("type", "text") != "text" for part in content):
            raise ValueError("not a text")
        content = "\n".join(part["text"] for part in content)
    return {**message, "content": content}
