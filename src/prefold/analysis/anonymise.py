"""Traces that can be shared: what caches look at in requests, and nothing of what was said.

Caches ask one thing of two prompts: how far they begin alike. So that is all that a trace tells. The prompts of a log,
each with its answer, make a tree, and the tree is cut into numbered *branches*: a branch begins where a prompt first
parts from all before it, and ends where the first prompt that went on along it did. A prompt is the path of branches
that it takes, `[[0, 17], [4096, 203]]`: from its beginning on it is on branch 17, and from unit 4,096 on, where it
parted from what else was sent, on branch 203. To read it back, the first unit of each stretch gets the number of its
branch as its id, and all others get their position. Then two prompts agree up to a unit exactly if those of the log
did, for any tokenizer and any size of blocks, and no line needs another to be read.

Nothing is derived from texts, so that nobody can test a guess: numbers count up. Names are hashed under a key. Those of
providers with rules stay, and those of models that are made of public words, versions and dates alone, since rules and
prices hang on them; in any other model's name, what is not public is hashed, such as the owner of a fine-tuned model,
the name of a deployment, a path or a key, and the name that is left falls under the same rules. Only for a key that the
user gives, so that exports can be compared, is the content hashed, too: up to the end of each content block, so that
equal beginnings have equal hashes.

Every cache that asks no more than how far prompts begin alike does the same with a trace as with its log. Routing by
consistent hash, where a hash of the content decides, agrees no better than two drawings do; ARC and S3-FIFO, which
remember what they evicted by its first token, may differ by a little.

What a trace does show: the times between requests, lengths, which requests share how much, which belong to one tenant
or session, models and providers, and what the provider counted.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from prefold.analysis.model_names import disguised, is_public
from prefold.analysis.record import Blocks, Place, Record
from prefold.analysis.request import Marker, Request
from prefold.analysis.traced import TracedPrompt
from prefold.core.keys import SHARED
from prefold.core.radix import Leaves, Node, RadixTree
from prefold.core.tokens import WIDTH, count, pack
from prefold.errors import InvalidRequest
from prefold.providers.rules import providers
from prefold.providers.usage import Usage

FORMAT = "prefold-trace"
"""What the first line of a trace says it is."""

VERSION = 1
"""Of the format."""

LONGEST_KEY = 64
"""Bytes of a key."""

_MOST_MODELS = 1_000  # then they are looked up anew
_MOST_UNITS = 32 * 1024 * 1024  # in the tree: 128 MiB
_MOST_NODES = 200_000  # in the tree: some 100 MiB
_FIRST_POSITION = 2**31  # ids below are those of branches
_LONGEST_PROMPT = 16 * 1024 * 1024  # units, with the answer
_OTHER_STOP = "other"
_STOPS = frozenset(
    (
        *("", "stop", "length", "tool_calls", "function_call", "content_filter"),  # OpenAI
        *("end_turn", "tool_use", "max_tokens", "stop_sequence", "pause_turn", "refusal"),  # Anthropic
        *("STOP", "MAX_TOKENS", "SAFETY", "RECITATION"),  # Gemini
        *("tool_call", "completed", "incomplete", "max_output_tokens"),  # OpenAI Responses, as read from its output
    )
)

_Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
_Branches = Annotated[int, msgspec.Meta(ge=0, lt=_FIRST_POSITION)]


class _Line(msgspec.Struct, omit_defaults=True):
    """A request as its line has it. `hashes` are for readers with the same key; prefold does not read them."""

    tokens: _Count
    units: _Count
    path: list[tuple[_Count, _Branches]]
    time: float | None = None
    unit: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = 1
    model: str = ""
    provider: str = ""
    tenant: str = ""
    session: str = ""
    replica: str = ""
    salt: str | None = None
    ends: list[_Count] = []
    positions: list[_Count] = []
    markers: list[tuple[_Count, int | None]] = []
    system_end: _Count = 0
    output_units: _Count = 0
    output_tokens: _Count = 0
    usage: Usage | None = None
    stop: str = ""
    duration: float | None = None
    ttft: float | None = None
    hashes: list[str] = []


class Anonymiser:
    """Turns the requests of a log into the lines of a trace. Its memory is bounded, whatever the log.

    Args:
        key: up to `LONGEST_KEY` secret bytes, under which names are hashed.
        rename_models: whether models and providers get other names, too. Then rules and prices are lost with them.
        is_shared: whether other exports are made with this key, to be compared with this one: contents are hashed.

    Attributes:
        forgot: whether content was forgotten to stay within bounds: what shares only that is taken for new.
    """

    def __init__(self, key: bytes, *, rename_models: bool = False, is_shared: bool = False) -> None:
        self.forgot = False
        self._key = key
        self._rename_models = rename_models
        self._is_shared = is_shared
        self._paths = _Paths()
        self._models: dict[tuple[str, str], str] = {}
        self._start: int | None = None
        self._providers = frozenset(name for one in providers() for name in (one.name, *one.aliases))

    @staticmethod
    def header() -> bytes:
        """The first line of a trace."""
        return msgspec.json.encode({"format": FORMAT, "version": VERSION}) + b"\n"

    def line(self, request: Request) -> bytes:
        """The line of a request; requests come in the order of the log.

        Raises:
            InvalidRequest: if prompt and answer are longer than can be read back.
        """
        record = request.record
        run = request.run + request.output
        if count(run) > _LONGEST_PROMPT:
            raise InvalidRequest(
                f"{record.place}: prompt and answer have {count(run):,} units.",
                hint=f"A trace takes {_LONGEST_PROMPT:,}.",
            )
        line = _Line(
            time=self._time(record.time),
            tokens=request.tokens,
            units=request.units,
            path=self._paths.add(run),
            unit=request.unit,
            model=self._model(record.model, record.provider),
            provider=self._provider(record.provider),
            tenant=self._name("tenant", record.tenant),
            session=self._name("session", record.session),
            replica=self._name("replica", record.replica),
            salt=None if request.salt is None else self._name("salt", request.salt),
            ends=list(request.ends),
            positions=list(request.positions),
            markers=[(marker.end, marker.ttl) for marker in request.markers],
            system_end=request.system_end,
            output_units=count(request.output),
            output_tokens=request.output_tokens,
            usage=record.usage,
            stop=record.stop if record.stop in _STOPS else _OTHER_STOP,
            duration=record.duration,
            ttft=record.ttft,
            hashes=list(self._hashes(request)) if self._is_shared else [],
        )
        self.forgot = self._paths.forgot
        return msgspec.json.encode(line) + b"\n"

    def _time(self, time: float | None) -> float | None:
        """Seconds since the log began."""
        if time is None:
            return None
        if self._start is None:
            # Of a whole number of seconds nothing is lost when it is subtracted: differences of times stay the same.
            self._start = math.floor(time)
        return time - self._start

    def _model(self, name: str, provider: str) -> str:
        """A model's name where nothing in it is the user's own; else one that falls under the same rules."""
        if self._rename_models or not name:
            return self._name("model", name)
        key = name, provider
        if key not in self._models:
            if len(self._models) == _MOST_MODELS:
                self._models.clear()
            self._models[key] = name if is_public(name) else disguised(name, provider, self._name("model", name))
        return self._models[key]

    def _provider(self, name: str) -> str:
        return name if name in self._providers and not self._rename_models else self._name("provider", name)

    def _name(self, kind: str, name: str) -> str:
        """A name in place of another; empty for none."""
        if not name:
            return ""
        content = name.encode(errors="surrogatepass")
        digest = hashlib.blake2b(content, key=self._key, digest_size=8, person=kind.encode())
        return f"{kind}-{digest.hexdigest()}"

    def _hashes(self, request: Request) -> Iterator[str]:
        """Hashes of the prompt up to the end of each content block, or of the whole where blocks are not known."""
        digest = hashlib.blake2b(key=self._key, digest_size=8, person=b"content")
        start = 0
        for end in request.ends or (request.units,):
            digest.update(request.run[start * WIDTH : end * WIDTH])
            start = end
            yield digest.copy().hexdigest()


class _Branch:
    """A stretch of the tree that is one in the trace.

    Attributes:
        number: its id, from 1.
        reach: the furthest that any prompt has gone along it: only there may one go on along it.
    """

    __slots__ = ("number", "reach")

    def __init__(self, number: int, reach: int) -> None:
        self.number = number
        self.reach = reach


class _Paths:
    """The tree of all that was sent, the least recently used of which is forgotten to stay within bounds.

    Attributes:
        forgot: whether anything was.
    """

    def __init__(self, most_units: int = _MOST_UNITS, most_nodes: int = _MOST_NODES) -> None:
        self.forgot = False
        self._most_units = most_units
        self._most_nodes = most_nodes
        self._nodes = 0
        self._branches = 0
        self._clock = 0
        self._leaves: Leaves[_Branch] = Leaves()
        # Nothing goes on along the root's branch.
        self._tree = RadixTree(_Branch(0, -1), lambda branch, _: (branch, branch), self._leaves)

    def add(self, run: bytes) -> list[tuple[int, int]]:
        """The path of a run, which is part of the tree from now on."""
        if not run:
            return []
        self._clock += 1
        match = self._tree.peek(run)
        branch = match.node.value
        if match.length < count(run) and match.length != branch.reach:
            self._branches += 1
            branch = _Branch(self._branches, match.length)
        inserted = self._tree.insert(run, SHARED, lambda _start, _stop: branch, self._clock)
        branch.reach = max(branch.reach, count(run))
        self._nodes += len(inserted.added) + (inserted.head is not None)
        self._tree.touch(inserted.node, self._clock)
        path: list[tuple[int, int]] = []
        for node in inserted.node.path():
            if not path or path[-1][1] != node.value.number:
                path.append((node.start, node.value.number))
        self._forget(inserted.node)
        return path

    def _forget(self, latest: Node[_Branch]) -> None:
        while self._tree.size > self._most_units or self._nodes > self._most_nodes:
            leaf = self._leaves.oldest()
            if leaf is None or leaf is latest:
                return
            self._tree.truncate(leaf, 0)
            self._nodes -= 1
            self.forgot = True


def expanded(path: list[tuple[int, int]], units: int) -> bytes:
    """The run of a path: each stretch begins with the number of its branch, and goes on with positions.

    Positions, so that caches which tell places by single ids find different ids at different places.
    """
    run = bytearray(_positions(max(1024, 1 << (units - 1).bit_length()))[: units * WIDTH])
    for start, number in path:
        if start < units:
            run[start * WIDTH : (start + 1) * WIDTH] = number.to_bytes(WIDTH, "little")
    return bytes(run)


@functools.lru_cache(maxsize=2)
def _positions(units: int) -> bytes:
    """The ids of units that do not begin a stretch, packed."""
    return pack(range(_FIRST_POSITION, _FIRST_POSITION + units))


def read_line(value: Mapping[str, Any], place: Place) -> Record | None:
    """The record of a line of a trace; None for the first line, which holds none.

    Raises:
        InvalidRequest: if the line is none of this version.
    """
    if "format" in value:
        if value["format"] == FORMAT and value.get("version") == VERSION:
            return None
        raise InvalidRequest(
            f"The trace has version {value.get('version')!r}.", hint=f"This version of prefold reads {VERSION}."
        )
    try:
        line = msgspec.convert(value, _Line)
    except (msgspec.ValidationError, UnicodeError) as error:  # half of a surrogate pair
        raise InvalidRequest(f"There is no record of a trace: {error}.", hint="Write the trace again.") from None
    units = line.units + line.output_units
    is_ascending = all(ends == sorted(set(ends)) for ends in (line.ends, [start for start, _ in line.path]))
    is_counted = len(line.positions) in (0, len(line.ends)) and line.positions == sorted(line.positions)
    fits = is_ascending and is_counted and max([*line.ends, line.system_end], default=0) <= line.units
    if units > _LONGEST_PROMPT or not fits:
        raise InvalidRequest("There is no record of a trace: its positions do not fit.", hint="Write the trace again.")
    run = expanded(line.path, units)
    cut = line.units * WIDTH
    return Record(
        content=TracedPrompt(
            run=run[:cut],
            block_tokens=line.unit,
            tokens=max(line.tokens, line.units * line.unit),
            ends=tuple(line.ends),
            positions=tuple(line.positions),
            markers=tuple(Marker(end, ttl) for end, ttl in line.markers),
            system_end=line.system_end,
            salt=line.salt,
        ),
        place=place,
        time=line.time,
        model=line.model,
        provider=line.provider,
        tenant=line.tenant,
        session=line.session,
        replica=line.replica,
        usage=line.usage,
        answer=Blocks(run[cut:], line.unit, line.output_units * line.unit) if line.output_units else None,
        output_tokens=line.output_tokens or None,
        stop=line.stop,
        duration=line.duration,
        ttft=line.ttft,
    )
