"""The tokens of a call's prompt, as the engine behind it will see them.

To tokenise 32 KiB takes some ten milliseconds, so it is done once for each text: a rendered prompt is cut where special
tokens stand, and each piece is remembered. A tokenizer that looks across special tokens is given the whole text.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from prefold.core.tokens import pack
from prefold.engine.tokenizer import Tokenizer
from prefold.errors import PrefoldError
from prefold.gateway.call import Api, Call

_INLINE_CHARACTERS = 2_048  # up to this many unknown ones are tokenised in the event loop, more in a thread
_PIECE_OVERHEAD = 200  # bytes that Python takes for the objects around a remembered piece, roughly


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
        added = sorted(tokenizer.added_texts, key=len, reverse=True)
        self._cut = re.compile("|".join(map(re.escape, added))) if added and _is_piecewise(tokenizer, added) else None

    async def run(self, call: Call) -> bytes | None:
        """The prompt's packed tokens; None where they cannot be told.

        That is so for requests that name no text (several prompts, images), and for those that the template refuses:
        the engine will say what is wrong with them. Tenants that share no prefixes share no pieces either, since the
        time that is saved would tell of them.
        """
        try:
            return await self._run(call)
        except (PrefoldError, TypeError, AttributeError, KeyError, ValueError):
            return None

    async def _run(self, call: Call) -> bytes | None:
        fields = call.fields
        if call.api is Api.COMPLETIONS:
            return await self._of_prompt(fields.get("prompt"))
        if call.api is not Api.CHAT:
            return None
        text = self._tokenizer.apply_chat_template(
            [_as_text(message) for message in fields["messages"]],
            tools=fields.get("tools"),
            add_generation_prompt=fields.get("add_generation_prompt", True),
            **(fields.get("chat_template_kwargs") or {}),
        )
        return await self._of_pieces(self._pieces(text), call.tenant.salt)

    async def _of_prompt(self, prompt: object) -> bytes | None:
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str):
            if len(prompt) <= _INLINE_CHARACTERS:
                return self._tokens(prompt, add_special=True)
            return await asyncio.to_thread(self._tokens, prompt, add_special=True)
        if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
            return pack(prompt)
        return None

    async def _of_pieces(self, pieces: Sequence[str], salt: str | None) -> bytes:
        runs = {piece: self._recall((salt, piece)) for piece in pieces}
        new = [piece for piece, run in runs.items() if run is None]
        if sum(map(len, new)) <= _INLINE_CHARACTERS:
            made = [self._tokens(piece) for piece in new]
        else:
            made = await asyncio.to_thread(lambda: [self._tokens(piece) for piece in new])
        for piece, run in zip(new, made, strict=True):
            runs[piece] = run
            self._remember((salt, piece), run)
        return b"".join([runs[piece] or b"" for piece in pieces])

    def _pieces(self, text: str) -> list[str]:
        """The text, cut before each special token."""
        if self._cut is None:
            return [text]
        starts = [match.start() for match in self._cut.finditer(text)]
        if not starts or starts[0]:
            starts.insert(0, 0)
        return [text[start:stop] for start, stop in zip(starts, [*starts[1:], len(text)], strict=True) if start < stop]

    def _tokens(self, text: str, *, add_special: bool = False) -> bytes:
        return pack(self._tokenizer.encode(text, add_special=add_special))

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


def _is_piecewise(tokenizer: Tokenizer, added: Sequence[str]) -> bool:
    """Whether pieces have the tokens that they have in the whole; asked of the tokenizer itself."""

    def tokens(text: str) -> list[int]:
        return tokenizer.encode(text, add_special=False)

    return all(
        tokens(f"{before}{special}{after}") == tokens(before) + tokens(f"{special}{after}")
        for special in added
        for before, after in (("a word", "a word"), ("a line. \n", " \nword"))
    )


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
