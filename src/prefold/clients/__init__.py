"""The official client libraries, watched: usage and breaks of the requests that an application sends."""

from prefold.clients.counters import Break as Break
from prefold.clients.counters import Counters as Counters
from prefold.clients.watch import watch as watch
from prefold.clients.watch import watcher_of as watcher_of
from prefold.clients.watcher import Watcher as Watcher
