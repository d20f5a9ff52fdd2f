"""All that was sent so far, by whom: what an unlimited cache that forgets nothing could have given a request."""

from __future__ import annotations

from typing import NamedTuple

from prefold.analysis.memory import MOST_NODES, MOST_UNITS
from prefold.analysis.request import Request
from prefold.core.keys import SHARED, Scope
from prefold.core.radix import Leaves, Node, RadixTree

_MOST_SCOPES = 1 << 16
_Senders = int
"""A set of scopes: a bit for each."""


class Known(NamedTuple):
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

    def __init__(self, capacity: int = MOST_UNITS) -> None:
        self.forgot = False
        self._capacity = capacity
        self._namespaces: dict[int, Scope] = {1: SHARED}
        self._clock = 0
        self._begin()

    def _begin(self) -> None:
        self._leaves: Leaves[_Senders] = Leaves()
        self._tree: RadixTree[_Senders] = RadixTree(0, lambda senders, _: (senders, senders), self._leaves)
        self._scopes: dict[tuple[str, str | None], int] = {}
        self._of_model: dict[str, _Senders] = {}

    def look(self, request: Request) -> Known:
        """How much of a request was sent before. Changes nothing."""
        match = self._tree.peek(request.run, self._namespace(request.unit))
        return self._known(request, match.node, match.length)

    def add(self, request: Request) -> Known:
        """Note that a request was sent; returns how much of it was sent before."""
        sender = self._scopes.get(request.scope)
        if sender is None:
            if len(self._scopes) == _MOST_SCOPES:
                self.forgot = True
                self._begin()
            sender = self._scopes[request.scope] = 1 << len(self._scopes)
            model = request.record.model
            self._of_model[model] = self._of_model.get(model, 0) | sender
        self._clock += 1
        tree, namespace = self._tree, self._namespace(request.unit)
        match = tree.peek(request.run, namespace)
        node = match.node
        if node.value == sender and not node.children and match.length == node.stop:
            # Nobody else sent what this goes on from: one node does for the whole conversation.
            tree.extend(node, request.run)
            tree.touch(node, self._clock)
            own = match.length * request.unit
            self._forget()
            return Known(own, own, own)
        inserted = tree.insert(request.run, namespace, lambda *_: sender, self._clock, match)
        node = inserted.node
        tree.touch(node, self._clock)
        if inserted.added and node.parent is not None:
            node = node.parent
        known = self._known(request, node, inserted.existed)
        while node.parent is not None and not node.value & sender:
            node.value |= sender
            node = node.parent
        self._forget()
        return known

    def _forget(self) -> None:
        """Make room: what was sent least recently goes, and no more of it than has to."""
        tree = self._tree
        while tree.size > self._capacity or tree.node_count > MOST_NODES:
            if (oldest := self._leaves.oldest()) is None:
                break
            self.forgot = True
            excess = tree.size - self._capacity if tree.node_count <= MOST_NODES else oldest.length
            tree.truncate(oldest, max(0, oldest.length - excess))

    def _known(self, request: Request, node: Node[_Senders], reach: int) -> Known:
        """How much was sent of a prompt that matches `reach` units, the last of them in `node`."""
        sender, unit = self._scopes.get(request.scope, 0), request.unit
        of_model = self._of_model.get(request.record.model, 0)
        tenants = 0
        while node.parent is not None:
            if node.value & sender:
                own = min(node.stop, reach) * unit
                return Known(own, max(own, tenants), reach * unit)
            if not tenants and node.value & of_model:
                tenants = min(node.stop, reach) * unit
            node = node.parent
        return Known(0, tenants, reach * unit)

    def _namespace(self, unit: int) -> Scope:
        """Ids of blocks of another length are other ids."""
        found = self._namespaces.get(unit)
        if found is None:
            found = self._namespaces[unit] = Scope(namespace=f"{unit} tokens")
        return found
