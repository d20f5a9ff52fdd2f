"""Prompts of traces as texts that stand for them, so that what moves parts of texts can move runs of ids.

A content block becomes a line, or a document, that holds its name: made of its first id, its length and its content, so
that equal blocks have equal names and names sort like ids. Names consist of letters, since digits could be taken for a
value that changes. This needs a trace in which equal ids are equal content behind any beginning.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import accumulate

from prefold.analysis.record import Body
from prefold.analysis.request import Marker
from prefold.analysis.traced import TracedPrompt
from prefold.core.tokens import WIDTH, count, unpack
from prefold.prompts.prompt import Dialect, Prompt, Section

_LETTERS = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")
_DIGITS = str.maketrans("ghijklmnopqrstuv", "0123456789abcdef")
_ID, _LENGTH, _DIGEST = 8, 8, 16  # letters
_NAME = re.compile(f"[g-v]{{{_ID + _LENGTH + _DIGEST}}}")
_DOCUMENT = '<document id="{}"></document>'
_BEFORE_DOCUMENT = _DOCUMENT.partition("{}")[0]


def is_named(content: TracedPrompt) -> bool:
    """Whether texts can stand for the content blocks of a prompt: it has some, and their ids name what is in them."""
    return content.names_content and bool(content.ends or not content.run)


def stand_in(content: TracedPrompt, model: str = "") -> Body:
    """A chat with a line for each content block, in tokens as long as `NAMES` says; see `is_named`."""
    system: list[str] = []
    said: list[str] = []
    documents = set(content.documents)
    for number, run, end in _blocks_of(content):
        name = _name_of(run, content.block_tokens)
        lines = system if end <= content.system_end else said
        lines.append(_DOCUMENT.format(name) if number in documents else name)
    messages = [{"role": "system", "content": "\n".join(system)}] if system else []
    messages.append({"role": "user", "content": "\n".join(said)})
    return Body(json.dumps({"model": model, "messages": messages}).encode(), Dialect.OPENAI)


def restored(content: TracedPrompt, prompt: Prompt) -> TracedPrompt:
    """What a prompt stands for, whose parts may have been moved since `stand_in` made it of some content.

    Markers stay behind as many content blocks as before.
    """
    blocks = {_name_of(run, content.block_tokens): run for _, run, _ in _blocks_of(content)}
    runs: list[bytes] = []
    documents: list[int] = []
    system_end = 0
    for segment in prompt.segments:
        for found in _NAME.finditer(segment.text):
            if segment.text.endswith(_BEFORE_DOCUMENT, 0, found.start()):
                documents.append(len(runs))
            runs.append(blocks[found[0]])
            if segment.section is Section.SYSTEM:
                system_end += count(runs[-1])
    ends = tuple(accumulate(map(count, runs)))
    were = [end for _, _, end in _blocks_of(content)]
    markers = tuple(Marker(ends[bisect_left(were, marker.end)], marker.ttl) for marker in content.markers)
    return replace(
        content,
        run=b"".join(runs),
        ends=ends,
        positions=(),
        markers=markers,
        system_end=system_end,
        documents=tuple(documents),
    )


class Names:
    """Measures texts that stand for content blocks, in tokens of these; see `prefold.prompts.ordering.proposal`."""

    def size(self, text: str) -> int:
        """Tokens of the content blocks that are named."""
        return sum(int(name[_ID : _ID + _LENGTH].translate(_DIGITS), 16) for name in self.blocks(text))

    def blocks(self, text: str) -> Sequence[str]:
        """The names."""
        return _NAME.findall(text)


def shown(text: str) -> str:
    """What a text names, as ids: of each content block its first."""
    return ", ".join(f"id {int(name[:_ID].translate(_DIGITS), 16)}" for name in _NAME.findall(text))


def _blocks_of(content: TracedPrompt) -> Iterator[tuple[int, bytes, int]]:
    """The content blocks that are not empty: their numbers, what is in them, and units before their ends."""
    begin = 0
    for number, end in enumerate(content.ends):
        if end > begin:
            yield number, content.run[begin * WIDTH : end * WIDTH], end
        begin = end


def _name_of(run: bytes, unit: int) -> str:
    [first] = unpack(run[:WIDTH])
    digest = blake2b(run, digest_size=_DIGEST // 2).hexdigest()
    return f"{first:08x}{count(run) * unit:08x}{digest}".translate(_LETTERS)
