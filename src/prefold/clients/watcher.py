"""What is known about the requests of a client: usage by label, and the breaks among them."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from prefold.clients.bodies import Body, UnreadableIterator, read_body
from prefold.clients.conversations import Conversations, Relation, Sent
from prefold.clients.counters import Break, Counters
from prefold.clients.report import table
from prefold.clients.worker import Worker
from prefold.errors import PrefoldError
from prefold.prompts.divergence.compare import compare
from prefold.prompts.prompt import Dialect, Prompt
from prefold.prompts.tokens import counter_for
from prefold.providers.usage import StreamUsage, Usage

OTHER_LABELS = "(others)"
"""Where requests are counted once there are too many labels."""
_MAX_LABELS = 1_000
_MAX_CAUSES = 256
_RECENT_BREAKS = 32
_MAX_WAITING = 64

# A changed text is how a new question looks; everything else is a break wherever it stands.
_CAUSES_OF_NEW_QUESTIONS = frozenset({"text_edit", "truncation", "summary"})
# With these the server puts its own history before the input, which cannot be seen here.
_FIELDS_OF_KEPT_HISTORY = ("previous_response_id", "conversation")


@dataclass(frozen=True, slots=True)
class _Seen:
    """A request on its way to be examined, its body as compact JSON: the caller may change his own at any time."""

    label: str
    dialect: Dialect
    body: str
    at: float


class Watcher:
    """Counts what a client's requests cost, and finds out which of them broke a prefix, and why.

    Nothing here raises into a request: whatever goes wrong is counted in `faults` and logged once, at DEBUG. Requests
    are compared on a thread of the watcher's own. It keeps the bodies of recent requests in memory, within bounds;
    headers and keys it never sees.

    Args:
        label: of requests outside of any `with watcher.label(...)`.
        edit: what is done to a prompt before it is sent; None to send it as it is.
        include_usage: whether streams of OpenAI's chat completions are asked to end with usage.
        on_break: is called with each break, on the watcher's thread.
        logger: gets a warning for each new kind of break.
        clock: seconds of a monotonic clock.
    """

    def __init__(
        self,
        *,
        label: str = "",
        edit: Callable[[Prompt], Prompt] | None = None,
        include_usage: bool = False,
        on_break: Callable[[Break], None] | None = None,
        logger: logging.Logger | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.include_usage = include_usage
        self._edit = edit
        self._on_break = on_break
        self._logger = logger or logging.getLogger("prefold.watch")
        self._clock = clock
        self._label = ContextVar("prefold.watch.label", default=str(label))
        self._counters: dict[str, Counters] = {}
        self._causes: OrderedDict[tuple[str, str, str], int] = OrderedDict()
        self._breaks: deque[Break] = deque(maxlen=_RECENT_BREAKS)
        self._conversations = Conversations()
        self._dropped = 0
        self._faults = 0
        self._has_sent_unedited = False
        self._renew()
        if hasattr(os, "register_at_fork"):
            renew = weakref.WeakMethod(self._renew)
            os.register_at_fork(after_in_child=lambda: (method := renew()) and method())

    def _renew(self) -> None:
        """Make lock and worker: a forked process inherits a lock that may be held, and no thread."""
        self._lock = threading.Lock()
        self._worker: Worker[_Seen] = Worker(self._examine, _MAX_WAITING)

    @contextlib.contextmanager
    def label(self, name: str) -> Iterator[None]:
        """Count the requests of this context, be it a thread or a task, under a label."""
        token = self._label.set(str(name))
        try:
            yield
        finally:
            self._label.reset(token)

    @property
    def counters(self) -> Mapping[str, Counters]:
        """Requests and tokens by label."""
        with self._lock:
            return dict(self._counters)

    @property
    def total(self) -> Counters:
        """Requests and tokens of all labels."""
        return sum(self.counters.values(), Counters())

    @property
    def usage(self) -> Usage:
        """Tokens of all labels."""
        return self.total.usage

    def hit_rate(self, label: str | None = None) -> float | None:
        """Input tokens served from cache divided by input tokens; None where nothing is known of them.

        Args:
            label: None for all labels together.
        """
        counted = self.total if label is None else self.counters.get(label, Counters())
        return counted.usage.hit_rate

    @property
    def breaks(self) -> tuple[Break, ...]:
        """The latest breaks, oldest first."""
        with self._lock:
            return tuple(self._breaks)

    @property
    def last_break(self) -> Break | None:
        """The latest break."""
        return next(reversed(self.breaks), None)

    @property
    def dropped(self) -> int:
        """Requests that were counted but not compared, because too many waited."""
        return self._dropped

    @property
    def faults(self) -> int:
        """Errors inside the watcher, none of which reached a request."""
        return self._faults

    def flush(self, seconds: float = 5.0) -> bool:
        """Wait, blocking this thread, until the requests so far are compared; False if that takes longer."""
        return self._worker.wait(seconds)

    def report(self) -> str:
        """Usage by label and causes of breaks, as a table of plain text."""
        with self._lock:
            counters, causes = dict(self._counters), dict(self._causes)
        return table(counters, causes, dropped=self._dropped, faults=self._faults)

    def begin(self, body: Mapping[str, Any], dialect: Dialect) -> Call:
        """A request is about to be sent.

        Args:
            body: its body; never changed here.
            dialect: its form.

        Returns:
            What to tell the rest to. Its `body` is the one to send.

        Raises:
            UnreadableIterator: if an iterator in the body fails: the application's own error, not one of the watcher.
        """
        call = Call(self, self._label.get(), body)
        self.count(call.label, Counters(requests=1))
        try:
            given = read_body(body)
            call.body = given.value
            text = self._edited(call, given, self._edit, dialect) if self._edit else given.text
            if not any(body.get(field) for field in _FIELDS_OF_KEPT_HISTORY):
                self._leave(_Seen(call.label, dialect, text, self._clock()))
        except UnreadableIterator:
            call.failed()
            raise
        except Exception as error:  # noqa: BLE001 - a request never fails because it is watched
            self.fault(error)
        return call

    def _leave(self, seen: _Seen) -> None:
        if not self._worker.submit(seen):
            with self._lock:
                self._dropped += 1

    def _edited(self, call: Call, given: Body, edit: Callable[[Prompt], Prompt], dialect: Dialect) -> str:
        """Give a call its edited body, and return it as compact JSON."""
        try:
            prompt = Prompt.parse(given.text, dialect)
            edited = edit(prompt)
        except Exception as error:  # noqa: BLE001 - as above
            self.fault(error)
            self._warn_of_unedited(error)
            return given.text
        if edited.document is None or edited.value is prompt.value:
            return given.text
        call.body = given.with_files(edited.value)
        return edited.document.source

    def _warn_of_unedited(self, error: Exception) -> None:
        with self._lock:
            is_first, self._has_sent_unedited = not self._has_sent_unedited, True
        if is_first:
            reason = error if isinstance(error, PrefoldError) else type(error).__name__
            self._logger.warning("a request could not be changed and was sent as it is: %s", reason)

    def count(self, label: str, more: Counters) -> None:
        """Add to a label's counters. Additions of whole numbers: nothing here can raise."""
        with self._lock:
            if label not in self._counters and len(self._counters) >= _MAX_LABELS:
                label = OTHER_LABELS
            self._counters[label] = self._counters.get(label, Counters()) + more

    def fault(self, error: Exception) -> None:
        """Something went wrong inside the watcher."""
        with self._lock:
            self._faults += 1
            is_first = self._faults == 1
        if is_first:
            with contextlib.suppress(Exception):
                self._logger.debug("prefold.watch failed, the request did not: %r", error, exc_info=error)

    def _examine(self, seen: _Seen) -> None:
        """Compare a request with the one that it follows; runs on the worker's thread."""
        try:
            prompt = Prompt.parse(seen.body, seen.dialect)
            followed = self._conversations.follow(Sent(seen.label, prompt, seen.at, len(seen.body)))
            if followed is None:
                return
            before = followed.before
            gap = max(0.0, seen.at - before.at)
            divergence = compare(before.prompt, prompt, counter=counter_for(), gap_seconds=gap)  # an estimate: quick
            is_question = followed.relation is Relation.ASKS_ANEW and divergence.cause in _CAUSES_OF_NEW_QUESTIONS
            # Below a provider's minimum nothing was built that could be lost.
            if divergence.lost_tokens > 0 and divergence.cause != "too_short" and not is_question:
                self._record(Break(seen.label, prompt.model, divergence))
        except Exception as error:  # noqa: BLE001 - as above
            self.fault(error)

    def _record(self, found: Break) -> None:
        self.count(found.label, Counters(breaks=1))
        divergence = found.divergence
        # The same cause moves on with the conversation: messages are not told apart.
        path = "" if divergence.path is None else str(divergence.path)
        kind = (found.label, str(divergence.cause), path.partition("[")[0] + "[...]" if "[" in path else path)
        with self._lock:
            self._breaks.append(found)
            is_new = kind not in self._causes
            self._causes[kind] = self._causes.pop(kind, 0) + 1
            if len(self._causes) > _MAX_CAUSES:
                self._causes.popitem(last=False)
        if is_new:
            self._logger.warning(
                "prompt cache broken%s: %s at %s, about %d input tokens are read again. %s",
                f" [{found.label}]" if found.label else "",
                divergence.cause,
                path or "the request",
                divergence.lost_tokens,
                divergence.fix,
            )
        if self._on_break:
            self._on_break(found)


class Call:
    """One request, from being sent to the end of its answer.

    As a context it takes an exception that passes for the end of the request.

    Attributes:
        watcher: counts it.
        label: what it is counted under.
        body: what to send.
    """

    __slots__ = ("_is_done", "_stream", "body", "label", "watcher")

    def __init__(self, watcher: Watcher, label: str, body: Mapping[str, Any]) -> None:
        self.watcher = watcher
        self.label = label
        self.body = body
        self._stream = StreamUsage()
        self._is_done = False

    def __enter__(self) -> None:
        """Nothing is done at the begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self.failed()

    def failed(self) -> None:
        """There will be no answer."""
        self._finish(Counters(failed=1))

    def answered(self, answer: object) -> None:
        """The whole answer is here, as the SDK's object or as JSON."""
        self.fed(answer)
        self.ended()

    def fed(self, event: object, read: Callable[[Any], object] | None = None) -> None:
        """An event of a stream has come.

        Args:
            event: as the SDK gives it.
            read: makes of it what holds its usage.
        """
        try:
            self._stream.feed(read(event) if read else event)
        except Exception as error:  # noqa: BLE001 - a request never fails because it is watched
            self.watcher.fault(error)

    def ended(self) -> None:
        """The answer was read to its end."""
        usage = self._stream.usage
        self._finish(Counters(answered=1, silent=1) if usage is None else Counters(answered=1, usage=usage))

    def _finish(self, counters: Counters) -> None:
        if not self._is_done:  # an answer can be parsed twice, and a stream be asked again after its end
            self._is_done = True
            self.watcher.count(self.label, counters)
