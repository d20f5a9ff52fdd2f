"""KV events: what engines tell of the blocks they hold, and the index that follows them."""

from __future__ import annotations

from prefold.gateway.events.feed import EventFeed, FeedState
from prefold.gateway.events.ranks import RankedIndex
from prefold.gateway.events.source import Counts, Endpoint, Trust

__all__ = ["Counts", "Endpoint", "EventFeed", "FeedState", "RankedIndex", "Trust"]
