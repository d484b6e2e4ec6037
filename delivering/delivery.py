"""Follow topics, and apply their closed batches to a sink, until it is stopped.

The loop pulls: while a target is slow or away, nothing is read, and records wait in the topics.
After a target or brokers were away, it begins again at the token of the target, with pauses that
double up to a minute.  It keeps nothing on disk except the spool of a large batch.
"""

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from ikebana.delivering.sink import Batch, Sink, Table
from ikebana.delivering.spool import MOST_BYTES, Spooled, SpoolKeeper
from ikebana.errors import AwayError
from ikebana.processor.base.log_lines import note
from ikebana.processor.base.processes import AttemptFailed, Restarts, persistently
from ikebana.processor.kafka import following, reading_rights
from ikebana.serving.aligned import Aligning, OpenTopic, Span

# A target is tried again however long it is away.
_RESTARTS = 10**9


class Topics(NamedTuple):
    """The topics of a delivery: how one is opened, and the format of each."""

    open: OpenTopic
    formats: Mapping[str, str]
    spool_bytes: int = MOST_BYTES
    """The most bytes of a topic's closed batch in memory; a larger batch goes to a file."""


class Standing(NamedTuple):
    """The progress of a delivery."""

    upper: int | None
    """The frontier of the applied batches; None before the target was asked."""
    updates: int
    """The number of updates applied since the start."""
    batches: int
    caught_up_s: float | None
    """The time since everything closed had been applied."""
    behind: int
    """The number of offsets not read yet, as of the last time everything closed was applied."""
    waits: str
    """The error, while the target or the brokers are away; else empty."""


class _Following(Aligning[Spooled]):
    """Calls the delivery when everything closed was read."""

    def __init__(
        self, topics: Topics, token: str | None, *, wait: bool, idle: Callable[[], None]
    ) -> None:
        self._idle = idle
        keeper = functools.partial(SpoolKeeper, topics.spool_bytes)
        super().__init__(topics.open, topics.formats, keeper, resume=token, wait=wait)

    def caught_up(self) -> None:
        self._idle()


class Delivery:
    """One run of a sink over its topics.

    `run` returns when it is stopped or, unless it waits, when all that is closed now was applied.
    """

    def __init__(
        self,
        sink: Sink,
        tables: Sequence[Table],
        topics: Topics,
        say: Callable[[str], None],
        *,
        wait: bool = True,
    ) -> None:
        self._sink = sink
        self._tables = tables
        self._topics = topics
        self._say = say
        self._wait = wait
        self._stopping = threading.Event()
        self._following: _Following | None = None
        self._upper: int | None = None
        self._updates = self._batches = self._behind = 0
        self._caught_up: float | None = None
        self._waits = ""

    def run(self) -> None:
        """Deliver until `stop`.

        Raises:
            ConfigError: a table of the target does not fit, or the token is of other topics.
            FencedError: a newer instance of the sink has taken over.
            SourceError: a topic cannot be read on, or has values that a table cannot take.
        """
        persistently(self._attempt, Restarts(_RESTARTS), self, self._tell)

    def stop(self) -> None:
        """End after the batch that is being applied; from any thread."""
        self._stopping.set()
        if (following := self._following) is not None:
            following.stop()

    def standing(self) -> Standing:
        """Return the progress; from any thread."""
        age = None if self._caught_up is None else time.monotonic() - self._caught_up
        return Standing(self._upper, self._updates, self._batches, age, self._behind, self._waits)

    def monotonic(self) -> float:
        """The clock of pauses."""
        return time.monotonic()

    def sleep(self, seconds: float, /) -> None:
        """Pause until the time has passed or the delivery is stopped."""
        self._stopping.wait(seconds)

    def _attempt(self) -> None:
        if self._stopping.is_set():
            return
        try:
            self._deliver()
        except AwayError as error:
            raise AttemptFailed from error
        finally:
            with suppress(AwayError):
                self._sink.close()

    def _deliver(self) -> None:
        token = self._sink.open(self._tables)
        with _Following(self._topics, token, wait=self._wait, idle=self._idle) as following:
            self._following = following
            if self._stopping.is_set():
                return
            self._upper, self._waits = following.upper, ""
            for span in following.spans():
                self._apply(span, begins=token is None)
                token = span.token

    def _apply(self, span: Span[Spooled], *, begins: bool) -> None:
        lower, upper, updates, token, times = span
        self._sink.apply(Batch(lower, upper, token, updates, begins=begins, times=times))
        self._upper = upper
        self._batches += 1
        self._updates += sum(each.count() for each in updates.values())

    def _idle(self) -> None:
        self._caught_up = time.monotonic()
        if self._following is not None:
            self._behind = self._following.behind()

    def _tell(self, cause: Exception, pause_s: float) -> None:
        self._waits = str(cause).splitlines()[0]
        self._say(f"{self._waits}; trying again in {pause_s:g} s")


def deliver(
    sink: Sink,
    tables: Sequence[Table],
    *,
    bootstrap_servers: str = "localhost:9092",
    config: Mapping[str, str] | None = None,
    wait: bool = True,
) -> None:
    """Deliver topics in the format `diff` into a sink, until its process ends.

    Unless it waits, it returns when everything that is closed now was delivered.  `config` has
    settings of the Kafka client.

    Raises:
        ConfigError, FencedError, SourceError: as `Delivery.run`.
    """
    formats = dict.fromkeys((table.collection for table in tables), "diff")
    settings = {**(config or {}), "bootstrap.servers": bootstrap_servers}
    reading_rights.reach(settings, formats)
    topics = Topics(functools.partial(following.follow, settings), formats)
    Delivery(sink, tables, topics, note, wait=wait).run()
