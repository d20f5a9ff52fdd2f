"""A prompt of a trace that carries all that caches look at."""

from __future__ import annotations

from dataclasses import dataclass, replace

from prefold.analysis.record import Blocks
from prefold.analysis.request import Marker, Request


@dataclass(frozen=True, slots=True)
class TracedPrompt(Blocks):
    """A prompt given as ids, with what a body would say beside its text; positions as in `Request`.

    Attributes:
        ends: units before the end of each content block.
        positions: the number of the position of each, as in `Request`.
        markers: cache markers.
        system_end: units of tools and system prompt.
        salt: what keeps it apart from requests with another salt; None to share.
        names_content: whether equal ids mean equal content wherever they stand; otherwise only behind equal beginnings,
            so that nobody can say what of it comes again behind another one.
        documents: which of the content blocks are retrieved documents, by their numbers from 0.
    """

    ends: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    markers: tuple[Marker, ...] = ()
    system_end: int = 0
    salt: str | None = None
    names_content: bool = False
    documents: tuple[int, ...] = ()

    def completed(self, request: Request) -> Request:
        """What its ids alone make a request of, with the rest; a salt that the request has keeps it apart as well."""
        salts = [salt for salt in (request.salt, self.salt) if salt is not None]
        return replace(
            request,
            ends=self.ends,
            positions=self.positions,
            markers=self.markers,
            system_end=self.system_end,
            salt=":".join(salts) if salts else None,
        )
