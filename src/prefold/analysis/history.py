"""All that was sent so far, by whom: what an unlimited cache that forgets nothing could have given a request."""

from __future__ import annotations

from dataclasses import dataclass

from prefold.analysis.request import Request
from prefold.core.keys import SHARED, Scope
from prefold.core.radix import Leaves, Node, RadixTree

_CAPACITY = 1 << 23  # units, four bytes each
_MOST_SCOPES = 1 << 16


@dataclass(frozen=True, slots=True)
class Known:
    """How much of a prompt's beginning was sent before, in tokens: `own <= tenants <= anywhere`.

    Attributes:
        own: in the request's own scope, that is with its model and salt.
        tenants: to its model, with any salt.
        anywhere: to any model.
    """

    own: int
    tenants: int
    anywhere: int


class History:
    """One radix tree of all prompts, with the scopes that sent each part of them.

    Whoever sent a node sent its ancestors too, so a look goes down once, and up again only past what others sent. After
    65,536 scopes it begins anew.

    Args:
        capacity: units that are held; beyond it those sent least recently are forgotten.

    Attributes:
        forgot: whether anything was forgotten, so that what is called new may be older than that.
    """

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self.forgot = False
        self._capacity = capacity
        self._namespaces: dict[int, Scope] = {1: SHARED}
        self._clock = 0
        self._begin()

    def _begin(self) -> None:
        self._leaves: Leaves[set[int]] = Leaves()
        self._tree: RadixTree[set[int]] = RadixTree(set(), lambda senders, _: (set(senders), senders), self._leaves)
        self._scopes: dict[tuple[str, str | None], int] = {}
        self._models: list[str] = []  # by scope

    def look(self, request: Request) -> Known:
        """How much of a request was sent before. Changes nothing."""
        match = self._tree.peek(request.run, self._namespace(request.unit))
        return self._known(request, match.node, match.length)

    def add(self, request: Request) -> Known:
        """Note that a request was sent; returns how much of it was sent before."""
        scope = self._scopes.get(request.scope)
        if scope is None:
            if len(self._models) == _MOST_SCOPES:
                self.forgot = True
                self._begin()
            scope = self._scopes[request.scope] = len(self._models)
            self._models.append(request.record.model)
        self._clock += 1
        tree = self._tree
        inserted = tree.insert(request.run, self._namespace(request.unit), lambda *_: {scope}, self._clock)
        node = inserted.node
        tree.touch(node, self._clock)
        if inserted.added and node.parent is not None:
            node = node.parent
        known = self._known(request, node, inserted.existed)
        while node.parent is not None and scope not in node.value:
            node.value.add(scope)
            node = node.parent
        while tree.size > self._capacity and (oldest := self._leaves.oldest()) is not None:
            self.forgot = True
            tree.truncate(oldest, max(0, oldest.length - (tree.size - self._capacity)))
        return known

    def _known(self, request: Request, node: Node[set[int]], reach: int) -> Known:
        """How much was sent of a prompt that matches `reach` units, the last of them in `node`."""
        scope, model, unit = self._scopes.get(request.scope, -1), request.record.model, request.unit
        tenants = 0
        while node.parent is not None:
            if scope in node.value:
                own = min(node.stop, reach) * unit
                return Known(own, max(own, tenants), reach * unit)
            if not tenants and any(self._models[sender] == model for sender in node.value):
                tenants = min(node.stop, reach) * unit
            node = node.parent
        return Known(0, tenants, reach * unit)

    def _namespace(self, unit: int) -> Scope:
        """Ids of blocks of another length are other ids."""
        found = self._namespaces.get(unit)
        if found is None:
            found = self._namespaces[unit] = Scope(namespace=f"{unit} tokens")
        return found
