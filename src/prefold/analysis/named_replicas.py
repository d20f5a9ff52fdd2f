"""The servers that a log names, each with a cache of its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from prefold.analysis.caches.base import CacheModel, Loss, Reason, Served
from prefold.analysis.caches.build import build
from prefold.analysis.caches.spec import CacheSpec
from prefold.analysis.request import Request

_MOST_REPLICAS = 32


def cache_of_log(spec: CacheSpec) -> CacheModel:
    """The cache that a log is judged by: one for each replica that it names, unless replicas are simulated.

    Raises:
        UsageError: as `build`.
    """
    if spec.replicas > 1:
        return build(spec)
    build(spec)  # an error comes before the first request
    return PerReplica(lambda: build(spec))


class PerReplica:
    """A cache for each replica that requests name, and one for all that name none.

    What a replica lacks counts as held by another where a single cache for all of them would have it. With a limited
    capacity that is the least: together they hold more than the one does. Of many replicas that come and go, those used
    least recently are gone.

    Args:
        make_cache: makes an empty one.
    """

    def __init__(self, make_cache: Callable[[], CacheModel]) -> None:
        self._make_cache = make_cache
        self._caches: OrderedDict[str, CacheModel] = OrderedDict()
        self._single = make_cache()

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        single = self._single.serve(request)
        if not request.record.replica:
            return single
        served = self._of(request.record.replica).serve(request)
        lost = [Loss(Reason.OTHER_REPLICA, single.hit)] if single.hit > served.hit else []
        known = max(served.hit, single.hit)
        for loss in (*served.lost, *single.lost):  # what a replica cannot explain, all together may
            if loss.stop > known:
                lost.append(loss)
                known = loss.stop
        return served._replace(lost=tuple(lost))

    def _of(self, replica: str) -> CacheModel:
        cache = self._caches.pop(replica, None) or self._make_cache()
        self._caches[replica] = cache
        if len(self._caches) > _MOST_REPLICAS:
            self._caches.popitem(last=False)
        return cache
