"""Subscriptions: a collection as of a time, then each closed batch, as server-sent events.

| event | data |
|---|---|
| `snapshot` | rows of a collection as of a time; `last`: no more come of any collection |
| `batch` | all updates of all collections with `lower <= time < upper` |
| `error` | why the subscription ends, such as history that is gone since |

The `id` of an event is a token: a subscription that resumes with it gets the events after it.
A slow subscriber is sent nothing until it has read; then it gets the missed batches as one, from
the history of the arrangements.  An event for several subscribers is encoded once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from ikebana.errors import ConfigError, IkebanaError
from ikebana.processor.base.listening import Problem
from ikebana.serving import parameters, reads, wire
from ikebana.serving.parameters import time_of
from ikebana.serving.service import Permitted, copies_read
from ikebana.serving.view import (
    MOST_PAGE_BYTES,
    ArrangementView,
    Bounds,
    check_kinds,
    common_frontier,
    common_newest,
)

_ROWS = 1_000
_UPDATES = 10_000
_MOST_ENCODED = 64 << 20
_MOST_CUTS = 1_000
_HEARTBEAT_S = 15.0
_HEARTBEAT = b": nothing new\n\n"


class Bell:
    """Rung from any thread, heard by all that wait at that moment in one event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake all that wait."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def next(self) -> asyncio.Event:
        """Return an event that is set at the next ring after this call.

        Whoever checks a condition calls this before, so that no change is missed between.
        """
        self._loop = asyncio.get_running_loop()
        return self._event

    def _wake(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()


class Position(msgspec.Struct, array_like=True, frozen=True):
    """The progress of a subscription: all up to `as_of` was sent, or a part of its snapshot."""

    names: list[str]
    as_of: int
    number: int
    """The index of the collection in the snapshot; the number of collections after it."""
    subject: bytes | None = None
    topics: list[str | None] | None = None
    """The ids of the topics of the collections; None in tokens of versions without ids."""

    @property
    def in_snapshot(self) -> bool:
        """Whether a part of the snapshot has not been sent yet."""
        return self.number < len(self.names)

    def token(self) -> str:
        """Encode the position as text."""
        return reads.token_of(self)


def position_of(token: str) -> Position:
    """Decode the position that an event's id has.  Raises: ConfigError."""
    try:
        position = reads.read_token(token, Position)
    except ValueError as error:
        raise _none_of_an_event() from error
    topics = position.names if position.topics is None else position.topics
    if position.number < 0 or len(topics) != len(position.names):
        raise _none_of_an_event()
    return position


def _none_of_an_event() -> ConfigError:
    return ConfigError("cannot resume: the token is none of an event")


class Subscriptions:
    """Sends events to any number of subscribers that may see the same."""

    def __init__(self, views: Permitted, bell: Bell, encoded: "Encoded") -> None:
        self._permitted = views
        self._bell = bell
        self._encoded = encoded
        self._ended = False
        self.open = 0

    def end(self) -> None:
        """End all subscriptions soon."""
        self._ended = True
        self._bell.ring()

    def begin(self, asked: parameters.Subscribe) -> Position:
        """Return the position at which a subscription begins, or refuse it before any event.

        Raises:
            UnreadableTimeError: the time, or that of the token, cannot be read.
            MixedTimesError: the times of the collections are of different kinds.
        """
        if asked.resume is not None:
            position = position_of(asked.resume)
            if not position.names:
                raise ConfigError("cannot resume: the token names no collection")
            views = self._views(position)
            for view in views:
                view.check(position.as_of)
            # A token of a version without topic ids continues with the present topics.
            return msgspec.structs.replace(position, topics=_topics(views))
        names = asked.collection or self._permitted.names()
        views = [self._permitted.view(name) for name in names]
        as_of = time_of(asked.as_of, "as_of")
        check_kinds(views)
        if as_of is None or not views:
            as_of = common_newest(views)
        for view in views:
            view.check(as_of)
        return Position(names, as_of, 0 if asked.snapshot else len(names), topics=_topics(views))

    async def events(
        self, position: Position, encoding: wire.ByteEncoding
    ) -> AsyncIterator[bytes]:
        """Yield events from a position on, until the server ends."""
        self.open += 1
        try:
            with copies_read():
                while position.in_snapshot and not self._ended:
                    position, event = await asyncio.to_thread(self._snapshot, position, encoding)
                    yield event
                while not self._ended:
                    change = self._bell.next()
                    views = self._views(position)
                    upto = common_frontier(views) - 1
                    if upto <= position.as_of:
                        try:
                            await asyncio.wait_for(change.wait(), _HEARTBEAT_S)
                        except TimeoutError:
                            yield _HEARTBEAT
                        continue
                    position, event = self._batch(views, position, upto, encoding)
                    yield event
        except IkebanaError as error:
            yield _event("error", None, wire.encode(Problem(error.message, error.hint)))
        finally:
            self.open -= 1

    def _views(self, position: Position) -> list[ArrangementView]:
        return [self._view(position, number) for number in range(len(position.names))]

    def _view(self, position: Position, number: int) -> ArrangementView:
        view = self._permitted.view(position.names[number])
        if position.topics is not None:
            reads.same_topic(view, position.topics[number])
        return view

    def _snapshot(self, position: Position, encoding: wire.ByteEncoding) -> tuple[Position, bytes]:
        names, as_of, number, begin, topics = msgspec.structs.astuple(position)
        view = self._view(position, number)
        view.check(as_of)
        page = view.page(Bounds(), as_of, begin, _ROWS)
        if page.then is None:
            then = Position(names, as_of, number + 1, topics=topics)
        else:
            then = Position(names, as_of, number, page.then, topics)
        write = wire.writer(encoding)
        rows = [wire.key_values(row, write) for row in page.rows]
        last = not then.in_snapshot
        event = {"collection": names[number], "as_of": as_of, "rows": rows, "last": last}
        return then, _event("snapshot", then.token(), wire.encode(event))

    def _batch(
        self,
        views: Sequence[ArrangementView],
        position: Position,
        upto: int,
        encoding: wire.ByteEncoding,
    ) -> tuple[Position, bytes]:
        above = position.as_of
        for view in views:
            view.check(above)
        topics = _topics(views)
        names = [view.meta.topic for view in views]
        seen = tuple(zip(names, topics, (view.columns for view in views), strict=True))

        def find_cut() -> int:
            return min(_cut(view, above, upto) for view in views)

        cut = self._encoded.cut((seen, above, upto), find_cut)
        key = (seen, encoding, above, cut)
        then = Position(position.names, cut, len(position.names), topics=topics)

        def encoded() -> bytes:
            write = wire.writer(encoding)
            updates = {
                view.meta.topic: [
                    wire.change(update, write)
                    for update in view.changes(above, cut, None, 2**62).updates
                ]
                for view in views
            }
            event = {"lower": above + 1, "upper": cut + 1, "updates": updates}
            return _event("batch", then.token(), wire.encode(event))

        return then, self._encoded.get(key, encoded)


class Encoded:
    """A cache of the last events for other subscribers, and of the times at which they end."""

    def __init__(self) -> None:
        self._events: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()
        self._cuts: OrderedDict[tuple[Any, ...], int] = OrderedDict()
        self._size = 0

    def cut(self, key: tuple[Any, ...], find: Callable[[], int]) -> int:
        """Return the last time of an event from the cache, or find it."""
        if key not in self._cuts:
            self._cuts[key] = find()
            if len(self._cuts) > _MOST_CUTS:
                self._cuts.popitem(last=False)
        return self._cuts[key]

    def get(self, key: tuple[Any, ...], make: Callable[[], bytes]) -> bytes:
        """Return an event from the cache, or make it."""
        if (event := self._events.get(key)) is not None:
            self._events.move_to_end(key)
            return event
        event = self._events[key] = make()
        self._size += len(event)
        while self._size > _MOST_ENCODED and len(self._events) > 1:
            self._size -= len(self._events.popitem(last=False)[1])
        return event


def _topics(views: Sequence[ArrangementView]) -> list[str | None]:
    return [reads.topic_id(view.meta) for view in views]


def _cut(view: ArrangementView, above: int, upto: int) -> int:
    """Return the last time of an event that has whole times and about `_UPDATES` updates."""
    then = view.changes(above, upto, None, _UPDATES, MOST_PAGE_BYTES).then
    if then is None:
        return upto
    # A time with more updates than that is sent whole all the same.
    return then[0] - 1 if then[0] - 1 > above else then[0]


def _event(name: str, token: str | None, data: bytes) -> bytes:
    # JSON that is encoded without spaces has no line breaks, but JSON that was read may.
    lines = b"".join(b"data: %b\n" % line for line in data.splitlines())
    head = f"event: {name}\n" + ("" if token is None else f"id: {token}\n")
    return head.encode() + lines + b"\n"
