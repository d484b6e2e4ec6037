"""Follow topics into served arrangements, for any number of readers.

Each topic has one arrangement in a folder of its own, and one thread that follows the topic.
Readers, such as requests and subscriptions, take the view of the last closed batch, and never
wait for the thread.  While the disk is full, they read the last batch before.  A local copy that
is damaged, or of another topic, is rebuilt from the topic's beginning; the log names it.
"""

import gc
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ikebana.arrangements.rocks import LocalDamageError
from ikebana.arrangements.shared_rocks import ClosedError, HeldError, SharedDatabase
from ikebana.arrangements.storage import has_space
from ikebana.errors import AwayError, IkebanaError, SpaceError
from ikebana.processor.base.texts import moment
from ikebana.processor.kafka import following
from ikebana.processor.kafka.diff_topic import PassedError
from ikebana.processor.kafka.following import ClosedTimes, Following, Resume
from ikebana.processor.kafka.topics import NoTopicError
from ikebana.serving import layout
from ikebana.serving.aligned import OpenTopic
from ikebana.serving.arrangement import Closed, Retention, ServedArrangement
from ikebana.serving.reads import unknown_collection
from ikebana.serving.view import ArrangementView, Places

if TYPE_CHECKING:
    from ikebana.processor.watching.guard import Grant

_ASK_EVERY_S = 0.05
_JOIN_S = 30.0
# The longest time that a read, such as a query, may hold a copy.
_READ_S = 60.0
_HELD_S = 0.25
# The time within which the first run of a pipeline has to make a topic.
_FIRST_RUN_S = 120
_LOOK_S = 1.0
Result = TypeVar("Result")


class CopyError(IkebanaError):
    """A local copy cannot be read until it has been opened or built again."""


@contextmanager
def copies_read() -> Iterator[None]:
    """Within a `with` block, raise damage of a local copy as a `CopyError`."""
    try:
        yield
    except (LocalDamageError, ClosedError) as error:
        raise CopyError(
            "a local copy cannot be read now: it is damaged, or is being opened or built again",
            hint="Ask again soon; the log of `ikebana serve` says which copy it is, and why.",
        ) from error


class ServiceOptions(NamedTuple):
    """The topics to serve with their formats, the folder, and the retention of history."""

    formats: Mapping[str, str]
    folder: Path
    retention: Retention
    rebuild: bool = False


class CollectionProgress(NamedTuple):
    """Progress of a collection: counts since the start, and the time since it caught up."""

    updates: int
    batches: int
    caught_up_s: float | None
    size: int


class Service:
    """Follows topics in threads until it is closed; `reads.Views` of their arrangements."""

    def __init__(
        self, options: ServiceOptions, open_topic: OpenTopic, say: Callable[[str], None]
    ) -> None:
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._listeners: list[Callable[[], None]] = []
        self._followed = {
            topic: _Followed(topic, form, options, open_topic, say)
            for topic, form in options.formats.items()
        }
        self._threads = [
            threading.Thread(target=self._run, args=(each,), name=f"ikebana-{topic}", daemon=True)
            for topic, each in self._followed.items()
        ]

    def start(self) -> None:
        """Start the threads, once; earlier local copies can be read before."""
        for thread in self._threads:
            if thread.ident is None:
                thread.start()

    @property
    def failure(self) -> BaseException | None:
        """The error that has ended a thread; the service should then be closed."""
        return self._failure

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` in some thread whenever a collection has changed, or failed."""
        self._listeners.append(listener)

    def names(self) -> list[str]:
        return sorted(self._followed)

    def view(self, name: str) -> ArrangementView:
        followed = self._followed.get(name)
        if followed is None:
            raise unknown_collection(name, self.names())
        return followed.view()

    def progress(self, name: str) -> CollectionProgress:
        """Return the progress of a collection."""
        return self._followed[name].progress()

    def pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait(seconds)

    def close(self) -> None:
        """Stop the threads and close the databases."""
        self._stopping.set()
        self._tell()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(_JOIN_S)
        for each in self._followed.values():
            each.close()

    def _run(self, followed: "_Followed") -> None:
        try:
            while not self._stopping.is_set():
                if not self._step(followed):
                    self._stopping.wait(_ASK_EVERY_S)
        except BaseException as error:  # noqa: BLE001 - who waits for the service raises it
            self._failure = error
        self._tell()

    def _step(self, followed: "_Followed") -> bool:
        """Apply all batches that are closed now; return whether there were any."""
        some = False
        try:
            if (damage := followed.damage) is not None:
                raise LocalDamageError(damage)
            for _ in followed.batches():
                some = True
                self._tell()
                if self._stopping.is_set() or followed.damage is not None:
                    break
        except AwayError:
            # Reads go on meanwhile, and `/ready` says how long the topic was not read.
            followed.reopen()
        except NoTopicError as error:
            followed.wait_for_topic(error)
            self._stopping.wait(_LOOK_S)
        except SpaceError as error:
            followed.wait_for_space(error)
        except LocalDamageError as error:
            followed.rebuild(f"is damaged: {error}")
        return some

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()
        for listener in self._listeners:
            listener()


class _Followed:
    """One topic and its arrangement; written by one thread, read by any."""

    def __init__(
        self,
        topic: str,
        form: str,
        options: ServiceOptions,
        open_topic: OpenTopic,
        say: Callable[[str], None],
    ) -> None:
        self._topic = topic
        self._form = form
        self._path = options.folder / topic
        self._retention = options.retention
        self._open_topic = open_topic
        self._say = say
        self._following: Following | None = None
        self._horizon: int | None = None
        self._full = False
        self._awaited: float | None = None
        self._updates = self._batches = 0
        self._caught_up: float | None = None
        self._size = 0
        if options.rebuild or not following.can_go_on(form):
            _discarded(self._path)
        self._arrangement = self._opened()

    def view(self) -> ArrangementView:
        view = self._arrangement.view()
        if view.meta.upper > layout.LEAST_TIME:
            return view
        return replace(view, progress=self._words())

    def _words(self) -> str:
        """The progress with the topic before the first closed time, in words."""
        if self._caught_up is not None:
            return "all of its topic was read, and none is closed there: does its pipeline run?"
        upto = "" if self._horizon is None else f", up to time {moment(self._horizon)}"
        return f"catching up: it is being read from its topic{upto}"

    @property
    def damage(self) -> str | None:
        """The damage that a read met in the local copy; None if none, or if the disk is full."""
        # Without space nothing can be rebuilt; with space again, the copy is opened first.
        return None if self._full else self._database.damage

    def progress(self) -> CollectionProgress:
        caught_up = self._caught_up
        # While a copy is being replaced, the size is that of the former one.
        with suppress(LocalDamageError, ClosedError):
            self._size = self._arrangement.size()
        return CollectionProgress(
            self._updates,
            self._batches,
            None if caught_up is None else time.monotonic() - caught_up,
            self._size,
        )

    def batches(self) -> Iterator[None]:
        """Apply the batches that are closed now, one at a time."""
        if self._full and not self._goes_on():
            return
        if self._following is None:
            self._following = self._open()
            self._horizon = self._following.horizon()
        for batch in self._following.closed():
            self._apply(batch)
            yield
        self._caught_up = time.monotonic()

    def reopen(self) -> None:
        """Disconnect; reading resumes after the last batch."""
        if self._following is not None:
            self._following.close()
            self._following = None

    def wait_for_topic(self, error: NoTopicError) -> None:
        """Wait for the pipeline's first run; after some time, raise the error."""
        if self._awaited is None:
            self._awaited = time.monotonic()
            self._say(
                f'waiting up to {_FIRST_RUN_S} s for topic "{self._topic}", '
                "which the first run of its pipeline makes"
            )
        elif time.monotonic() - self._awaited > _FIRST_RUN_S:
            raise error

    def wait_for_space(self, error: SpaceError) -> None:
        """Stop following while the disk is full; the last batch stays readable."""
        self.reopen()
        self._full = True
        self._say(f'the local copy of "{self._topic}" waits: {error.message}')

    def _goes_on(self) -> bool:
        """Whether there is space again; if so, open the local copy again."""
        if not has_space(self._path):
            return False
        self._let_go()
        self._arrangement = _unheld(self._opened)
        self._full = False
        return True

    def rebuild(self, reason: str) -> None:
        """Delete the local copy, and read the topic from its beginning."""
        self._say(f'the local copy of "{self._topic}" {reason}; it is built again from its topic')
        self.reopen()
        self._let_go()
        _unheld(lambda: _discarded(self._path))
        self._caught_up = None
        self._arrangement = _unheld(self._opened)

    def close(self) -> None:
        self.reopen()
        self._let_go()

    def _let_go(self) -> None:
        """Close the local copy, as it is."""
        # After an error RocksDB writes nothing more, and says so again when it is closed.
        with suppress(LocalDamageError, SpaceError):
            self._arrangement.close()

    def _apply(self, batch: ClosedTimes) -> None:
        place = batch.place.encode()
        closed = Closed(batch.lower, batch.upper, batch.updates, place, batch.times, batch.columns)
        self._arrangement.apply(closed, self._horizon)
        self._updates += len(batch.updates)
        self._batches += 1

    def _opened(self) -> ServedArrangement:
        try:
            return self._open_copy()
        except LocalDamageError as error:
            self._say(
                f'the local copy of "{self._topic}" in {self._path} cannot be used: {error}; it '
                "is built again from its topic"
            )
            _discarded(self._path)
            self._caught_up = None
            return self._open_copy()

    def _open_copy(self) -> ServedArrangement:
        database = SharedDatabase(self._path)
        try:
            arrangement = ServedArrangement(database, self._topic, self._form, self._retention)
        except BaseException:
            database.close()
            raise
        self._database = database
        return arrangement

    def _open(self) -> Following:
        position = self._arrangement.position.decode()
        if not position:
            return self._open_topic(self._topic, self._form, None)
        resume = Resume(position, self._arrangement.view().meta.upper)
        try:
            return self._open_topic(self._topic, self._form, resume)
        except following.AnotherTopicError:
            self.rebuild("is of an earlier topic of this name")
            return self._open_topic(self._topic, self._form, None)
        except PassedError:
            self.rebuild("is older than what was left of it when it was compacted")
            return self._open_topic(self._topic, self._form, None)


def _unheld(open_: Callable[[], Result]) -> Result:
    """Open a closed copy again, as soon as no read of this process holds its folder."""
    deadline = time.monotonic() + _READ_S
    while True:
        try:
            return open_()
        except HeldError:
            if time.monotonic() > deadline:
                raise
            # An error in a reference cycle may keep a reader's scan open until collected.
            gc.collect()
            time.sleep(_HELD_S)


def _discarded(path: Path) -> None:
    if path.exists():
        try:
            SharedDatabase(path).discard()
        except LocalDamageError:
            shutil.rmtree(path, ignore_errors=True)


# Decision (what a token may see is a service): A reader is answered from a view in which other
# collections have no name and other columns no values, so no read has to remember to ask. Row
# conditions by token were left out: a view of the pipeline says them better.


class Permitted:
    """A service as one reader may see it: the collections and columns that its grant names.

    It is a `reads.Views` that lacks everything else: a hidden collection has no name there, and a
    hidden column no values.  So no read needs checks of its own.  Keys are shown whole: a reader
    who may not see keys may not see the collection.
    """

    def __init__(self, service: Service, grant: "Grant") -> None:
        self._service = service
        self._grant = grant
        self._places = Places()

    def names(self) -> list[str]:
        return [name for name in self._service.names() if self._grant.sees(name)]

    def view(self, name: str) -> ArrangementView:
        if not self._grant.sees(name):
            raise unknown_collection(name, self.names())
        whole = self._service.view(name)
        columns = self._grant.columns(name)
        return whole if columns is None else whole.of_columns(columns, self._places)

    def progress(self, name: str) -> CollectionProgress:
        """Return the progress of a collection that the reader may see."""
        if not self._grant.sees(name):
            raise unknown_collection(name, self.names())
        return self._service.progress(name)

    def pause(self, seconds: float) -> None:
        self._service.pause(seconds)

    def close(self) -> None:
        """Do nothing: the service stays open for other readers."""
