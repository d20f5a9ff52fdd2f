"""Prefixes that stay in the K/V memory: named, counted, limited, and gone when their time is up.

Lives in the engine's thread. A pin has the name of what it covers, so that the same prefix is pinned once, however
often and by whomever it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from math import inf

from prefold.core.cache import Cache, Pin
from prefold.core.keys import SHARED, Scope, root_key, salted_key
from prefold.core.radix import Node
from prefold.core.tokens import WIDTH, count
from prefold.engine.slots import Span
from prefold.errors import CapacityError

MAX_PINS = 1000
"""Pins at a time; each costs a little whenever another one comes or goes."""

SALT_SHARE = 0.5
"""Most of what pins may hold that those of one salt may, so that no tenant takes it all."""


@dataclass(frozen=True, slots=True)
class PinWish:
    """A prefix that is to stay once it is computed.

    Attributes:
        run: its tokens, packed; the beginning of the prompt of the request that asks for it.
        seconds: for which it stays, counted from when it is pinned.
    """

    run: bytes
    seconds: float = inf


@dataclass(frozen=True, slots=True)
class Pinned:
    """A pin as it is at one moment.

    Attributes:
        id: its name, made from tokens and salt: the same prefix has the same one in every process.
        tokens: its length.
        seconds: until it ends, None for never.
        hits: requests since it was pinned whose prompts begin with all of it.
        salted: whether it is of use to one salt only.
    """

    id: str
    tokens: int
    seconds: float | None
    hits: int
    salted: bool


@dataclass(slots=True, eq=False)
class _Entry:
    pin: Pin[Span]
    owner: str | None  # salt of the request that asked for it first
    salted: bool
    until: float
    hits: int = 0


class Pins:
    """The pins of one engine.

    Args:
        cache: what they are in.
        clock: monotonic seconds.
    """

    def __init__(self, cache: Cache[Span], clock: Callable[[], float]) -> None:
        self._cache = cache
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._by_node: dict[Node[Span], _Entry] = {}  # a node stays the end of what it ended when it was pinned
        self._next_end = inf

    def __len__(self) -> int:
        """Pins, those included whose time is up and who have not been looked at since."""
        return len(self._entries)

    def add(self, wish: PinWish, scope: Scope = SHARED) -> Pinned:
        """Pin a prefix that the cache holds; the longer time counts where it is pinned already.

        Raises:
            CapacityError: if pins, or those of its salt, would hold more than they may; or if the cache holds only a
                part of the prefix. Nothing is changed then.
        """
        self.expire()
        owner = scope.salt
        if owner is not None and count(wish.run) <= scope.salt_from:  # the salt begins behind it: it is everybody's
            scope = Scope(namespace=scope.namespace)
        name = pin_id(wish.run, scope)
        until = self._clock() + wish.seconds
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = self._pin(wish.run, scope, owner)
            self._by_node[entry.pin.node] = entry
        entry.until = max(entry.until, until)
        self._find_next_end()
        return self._state(name, entry)

    def remove(self, name: str) -> Pinned | None:
        """Let a prefix be evicted again; returns what the pin was, None where there is none of this name."""
        self.expire()
        entry = self._entries.get(name)
        if entry is None:
            return None
        state = self._state(name, entry)
        self._drop(name)
        self._find_next_end()
        return state

    def used(self, path: Iterable[Node[Span]]) -> None:
        """A prompt that lies on these nodes was asked for."""
        if self._entries:
            for node in path:
                if (entry := self._by_node.get(node)) is not None:
                    entry.hits += 1

    def expire(self) -> None:
        """Drop those whose time is up."""
        if self._next_end == inf or self._clock() < self._next_end:
            return
        now = self._clock()
        for name in [name for name, entry in self._entries.items() if entry.until <= now]:
            self._drop(name)
        self._find_next_end()

    def all(self) -> list[Pinned]:
        """All of them, the first that was pinned first."""
        self.expire()
        return [self._state(name, entry) for name, entry in self._entries.items()]

    # Inside

    def _pin(self, run: bytes, scope: Scope, owner: str | None) -> _Entry:
        if len(self._entries) >= MAX_PINS:
            raise CapacityError(f"There are {MAX_PINS} pins already", hint="unpin something first")
        known = self._cache.tree.peek(run, scope).length
        if known < count(run):
            raise CapacityError(
                f"Only {known} of {count(run)} tokens to be pinned are in the cache", hint="try again later"
            )
        pin = self._cache.pin(run, scope)
        if owner is not None:
            self._check_share(pin, owner)
        return _Entry(pin, owner, scope.salt is not None, until=-inf)  # any time is longer than none

    def _check_share(self, pin: Pin[Span], owner: str) -> None:
        """Unpin again and refuse if the pins of a salt hold too much. What they have in common counts once."""
        nodes = set(pin.node.path())
        for entry in self._entries.values():
            if entry.owner == owner:
                nodes.update(entry.pin.node.path())
        total, most = sum(node.length for node in nodes), int(self._cache.pin_limit * SALT_SHARE)
        if total > most:
            self._cache.unpin(pin)
            raise CapacityError(
                f"Pinning {pin.length} tokens would bring those pinned with this cache_salt to {total}",
                hint=f"at most {most} may be, half of what pins may hold; unpin something first",
            )

    def _drop(self, name: str) -> None:
        entry = self._entries.pop(name)
        del self._by_node[entry.pin.node]
        self._cache.unpin(entry.pin)

    def _find_next_end(self) -> None:
        self._next_end = min((entry.until for entry in self._entries.values()), default=inf)

    def _state(self, name: str, entry: _Entry) -> Pinned:
        left = None if entry.until == inf else max(0.0, entry.until - self._clock())
        return Pinned(name, entry.pin.length, left, entry.hits, entry.salted)


def pin_id(run: bytes, scope: Scope) -> str:
    """The name of a pinned prefix: says nothing of its tokens or its salt to who does not know them."""
    parent, rest = root_key("pin", scope.namespace), run
    if scope.salt is not None and count(run) > scope.salt_from:
        cut = scope.salt_from * WIDTH
        parent, rest = salted_key(sha256(parent + run[:cut]).digest(), scope.salt), run[cut:]
    return f"pin-{sha256(parent + rest).hexdigest()[:24]}"
