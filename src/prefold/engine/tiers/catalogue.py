"""What lies in a tier, of all models, for those who look after it; no layout and no key is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from prefold.engine.tiers.base import Stored
from prefold.engine.tiers.folder import Folder, file_name
from prefold.engine.tiers.objects import Objects
from prefold.engine.tiers.order import LeafFirst
from prefold.engine.tiers.record import HEADER_BYTES, NO_PARENT, Header, is_whole, parse_header

_TOGETHER = 64


class Catalogue(Protocol):
    """The blocks of a tier. Methods raise what the store raises."""

    def entries(self, where: str = "") -> Iterator[Stored]:
        """All blocks, or those whose fingerprint begins so."""

    def read(self, entry: Stored) -> bytes | None:
        """A block as it is stored, None if it is gone."""

    def heads(self, entries: Sequence[Stored]) -> list[Header | None]:
        """What blocks say of themselves."""

    def remove(self, entries: Sequence[Stored]) -> None:
        """Remove blocks, the last one first."""

    def close(self) -> None:
        """Let go of it."""


class FolderCatalogue:
    """The blocks of a disk tier.

    Args:
        path: a folder that exists.
    """

    def __init__(self, path: Path) -> None:
        self._folder = Folder(path, create=False)

    def entries(self, where: str = "") -> Iterator[Stored]:
        """See `Catalogue`."""
        for folder in self._folder.wheres():
            if folder.startswith(where):
                yield from self._folder.scan(folder)

    def read(self, entry: Stored) -> bytes | None:
        """See `Catalogue`."""
        try:
            return self._folder.read_start(entry.where, _file(entry), entry.size)
        except FileNotFoundError:
            return None

    def heads(self, entries: Sequence[Stored]) -> list[Header | None]:
        """See `Catalogue`."""
        heads: list[Header | None] = []
        for entry in entries:
            try:
                heads.append(parse_header(self._folder.read_start(entry.where, _file(entry), HEADER_BYTES)))
            except FileNotFoundError:
                heads.append(None)
        return heads

    def remove(self, entries: Sequence[Stored]) -> None:
        """See `Catalogue`."""
        for entry in reversed(entries):
            self._folder.remove(entry.where, _file(entry))
        for where in {entry.where for entry in entries}:
            self._folder.remove_empty(where)

    def close(self) -> None:
        """See `Catalogue`."""
        self._folder.close()


class ObjectsCatalogue:
    """The blocks of a remote tier.

    Args:
        objects: where they lie.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def entries(self, where: str = "") -> Iterator[Stored]:
        """See `Catalogue`."""
        return self._objects.items(where)

    def read(self, entry: Stored) -> bytes | None:
        """See `Catalogue`."""
        return self._objects.get([_object(entry)])[0]

    def heads(self, entries: Sequence[Stored]) -> list[Header | None]:
        """See `Catalogue`."""
        starts = self._objects.get_starts([_object(entry) for entry in entries], HEADER_BYTES)
        return [parse_header(start or b"") for start in starts]

    def remove(self, entries: Sequence[Stored]) -> None:
        """See `Catalogue`."""
        self._objects.remove([_object(entry) for entry in reversed(entries)])

    def close(self) -> None:
        """See `Catalogue`."""
        self._objects.close()


@dataclass(slots=True)
class Model:
    """What a tier holds of one model in one form.

    Attributes:
        where: hex fingerprint.
        about: model, format and shape, as a block says; empty if none can be read.
        sealed: whether it is encrypted.
        blocks: how many.
        bytes: of all.
        used: Unix seconds of the last use; None if unknown.
    """

    where: str
    about: str
    sealed: bool
    blocks: int
    bytes: int
    used: float | None


def models(catalogue: Catalogue, where: str = "") -> list[Model]:
    """What a tier holds, the most recently used first."""
    found: dict[str, Model] = {}
    for entry in catalogue.entries(where):
        model = found.get(entry.where)
        if model is None:
            (header,) = catalogue.heads([entry])
            about, sealed = (header.about, header.sealed) if header else ("", False)
            model = found[entry.where] = Model(entry.where, about, sealed, 0, 0, None)
        model.blocks += 1
        model.bytes += entry.size
        if entry.used:
            model.used = max(entry.used / 1e9, model.used or 0.0)
    return sorted(found.values(), key=lambda model: (-(model.used or 0.0), model.where))


def damaged(
    catalogue: Catalogue, entries: Sequence[Stored], progress: Callable[[int], None] = lambda _: None
) -> list[Stored]:
    """Read blocks; those that are cut short, altered, or not what their name says.

    Args:
        catalogue: of the tier.
        entries: which blocks.
        progress: told the bytes of each block that was read.
    """
    bad = []
    for entry in entries:
        data = catalogue.read(entry)
        if data is not None:  # else it went in between
            header = parse_header(data)
            named = header is not None and (header.fingerprint, header.key) == (entry.where, entry.key)
            if not named or not is_whole(data):
                bad.append(entry)
        progress(entry.size)
    return bad


def to_prune(
    catalogue: Catalogue, entries: Sequence[Stored], *, before: float | None = None, size: int | None = None
) -> list[Stored]:
    """Blocks to remove so that none is left that was last used before a time, and no more than `size` bytes are.

    Ends of chains go first and the least recently used before others; what depends on a block goes with it.

    Args:
        catalogue: of the tier.
        entries: its blocks. Those of which the use is not known count as the oldest for `size`, and stay for `before`.
        before: Unix seconds.
        size: bytes that may stay.

    Returns:
        Blocks, parents before children.
    """
    names = {bytes.fromhex(entry.where) + entry.key: entry for entry in entries}
    order = LeafFirst()
    for name, parent in zip(names, _parents(catalogue, list(names.values())), strict=True):
        entry = names[name]
        order.add(name, parent, entry.size, entry.used)
    going = []
    while (leaf := order.oldest_leaf()) is not None:
        used = order.used(leaf)
        is_old = before is not None and used is not None and 0 < used < before * 1e9
        if not is_old and (size is None or order.total <= size):
            break
        going.append(names[leaf])
        order.discard(leaf)
    return going[::-1]


def _parents(catalogue: Catalogue, entries: Sequence[Stored]) -> Iterator[bytes | None]:
    """For each block the index's name of the one before it."""
    for start in range(0, len(entries), _TOGETHER):
        group = entries[start : start + _TOGETHER]
        unknown = [entry for entry in group if entry.parent is None]
        said = dict(zip(unknown, catalogue.heads(unknown), strict=True))
        for entry in group:
            header = said.get(entry)
            parent = entry.parent or (header.parent if header else NO_PARENT)
            yield None if parent == NO_PARENT else bytes.fromhex(entry.where) + parent


def _file(entry: Stored) -> str:
    return file_name(entry.key, entry.parent)


def _object(entry: Stored) -> str:
    return f"{entry.where}/{entry.key.hex()}"
