"""The block keys of what lies in the tree, each computed once."""

from __future__ import annotations

from collections.abc import Sequence

from prefold.core.keys import chain, root_key, salted_key
from prefold.core.radix import Node
from prefold.core.tokens import WIDTH
from prefold.engine.slots import Names, Span


class Namer:
    """Gives the keys of a path's blocks, and leaves them on the spans for the next time.

    Args:
        fingerprint: of all that K and V depend on beside the tokens.
        size: tokens of a block.
    """

    def __init__(self, fingerprint: str, size: int) -> None:
        self._fingerprint = fingerprint
        self._size = size

    def root(self, namespace: str = "") -> bytes:
        """The key before every first block."""
        return root_key(self._fingerprint, namespace)

    def keys(self, path: Sequence[Node[Span]]) -> list[bytes]:
        """Keys of the whole blocks of a path, whether or not their K and V are in place.

        Args:
            path: nodes from below the root down.
        """
        keys: list[bytes] = []
        front, namespace, salt = b"", "", None  # tokens of the block that is not whole yet; what begins in it
        for node in path:
            if isinstance(node.edge, tuple):
                namespace, salt = node.edge[0] or namespace, node.edge[1] or salt
            span = node.value
            if span.names is None:
                parent = keys[-1] if keys else self.root(namespace)
                names = chain(parent if salt is None else salted_key(parent, salt), front + node.run, self._size)
                span.names = Names(self._size, self._size - node.start % self._size, tuple(names))
            if span.names.keys:
                keys += span.names.keys
                salt = None
            rest = node.stop % self._size
            front = (front + node.run)[-rest * WIDTH :] if rest else b""
        return keys
