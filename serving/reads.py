"""The reads of served collections, which `ikebana.open`, `ikebana.connect` and HTTP answer.

Keys and values are bytes.  Every read is as of one time: `as_of`, or the newest time that can be
read.  To read several collections together, ask `newest` for a time that is closed in all of
them, and pass it as `as_of`.

A read in pages gives tokens: the place at which a scan or a read of changes continues.
"""

import base64
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from ikebana.codecs.diff import Times
from ikebana.errors import IkebanaError
from ikebana.processor.base.processes import Closes
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.texts import hint
from ikebana.serving.layout import CollectionSize, Meta, ValueCounts
from ikebana.serving.view import (
    MOST_PAGE_BYTES,
    ArrangementView,
    Bounds,
    UnknownCollectionError,
    UnreadableTimeError,
    ViewRow,
    common_frontier,
    common_newest,
    kind_of_times,
    no_token,
)

if TYPE_CHECKING:
    import pyarrow as pa


MOST_ROWS = 10_000
# Parts are numbered in 32 bits.
_MOST_PARTS = 2**32 - 1
_KEYS_AT_ONCE = 500
Result = TypeVar("Result")


class WaitedError(IkebanaError):
    """A time was not closed before a deadline."""


class TooLargeError(IkebanaError):
    """A body or an answer is larger than it may be."""


class CollectionInfo(msgspec.Struct, frozen=True):
    """A collection and its size at its newest time.

    It can be read as of `since <= time < upper`; both are None before the first closed time.
    `keys` have a value, `data` (key, value) pairs have a count, `total` is the sum of the counts,
    and `bytes` the length of all keys and values.  The last three are None for readers who see
    some columns only.
    """

    name: str
    format: str
    since: int | None
    upper: int | None
    keys: int
    data: int | None
    total: int | None
    bytes: int | None
    times: Times | None = None
    """`clock`: milliseconds; `offset`: numbers of records, or positions; None: not known yet."""


class KeyState(NamedTuple):
    """The values of a key as of a time, each with its count; none if it has none."""

    as_of: int
    key: bytes
    values: ValueCounts


class KeyStates(NamedTuple):
    """The values of several keys as of one time, in the order of the keys."""

    as_of: int
    rows: list[ViewRow]


class Page(NamedTuple):
    """Rows in the order of the bytes of keys; `page`, if any, asks for those after them."""

    as_of: int
    rows: list[ViewRow]
    page: str | None


class Counted(NamedTuple):
    """How many keys, (key, value) pairs, and pairs with their counts; and their length."""

    as_of: int
    keys: int
    data: int
    total: int
    bytes: int


class ChangesPage(NamedTuple):
    """Updates with `above < time <= upto`; `page`, if any, asks for those after them."""

    above: int
    upto: int
    updates: list[KeyedUpdate]
    page: str | None


class CommonTimes(NamedTuple):
    """The times that several collections can be read at: `since <= time <= newest`."""

    newest: int
    since: int


class Views(Protocol):
    """Where arrangements are: a folder that another process writes, or this process."""

    def names(self) -> list[str]:
        """List the collections."""
        ...

    def view(self, name: str) -> ArrangementView:
        """Return the present view of a collection.  Raises: UnknownCollectionError."""
        ...

    def pause(self, seconds: float) -> None:
        """Wait until a collection may have changed, at most so long."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


# The reads as functions over views.  `Reads` has a method for each, and
# `serving.parameters.READS` its route.


def get(views: Views, name: str, key: bytes, as_of: int | None) -> KeyState:
    """Read the values of a key."""
    view = views.view(name)
    time = _time(view, as_of)
    return KeyState(time, key, view.get(key, time))


def get_many(views: Views, name: str, keys: Sequence[bytes], as_of: int | None) -> KeyStates:
    """Read the values of several keys as of one time.

    Raises:
        TooLargeError: the values have more bytes than a page may have.
    """
    view = views.view(name)
    time = _time(view, as_of)
    states: list[ValueCounts] = []
    size = 0
    for begin in range(0, len(keys), _KEYS_AT_ONCE):
        states += view.get_many(keys[begin : begin + _KEYS_AT_ONCE], time)
        size += sum(len(value) for state in states[begin:] for value in state)
        if size > MOST_PAGE_BYTES:
            raise TooLargeError(
                f"the values of these keys have more than {MOST_PAGE_BYTES:,} bytes",
                hint="Ask for fewer keys.",
            )
    return KeyStates(time, [ViewRow(*row) for row in zip(keys, states, strict=True)])


def scan(
    views: Views, name: str, bounds: Bounds, as_of: int | None, limit: int, page: str | None
) -> Page:
    """Read rows in the order of the bytes of keys, page by page at one time."""
    view = views.view(name)
    begin = None
    if page is not None:
        place = _place(page)
        same_topic(view, place.topic)
        as_of, begin, bounds = place.times[0], place.subject, Bounds(*place.bounds)
    time = _time(view, as_of)
    some = view.page(bounds, time, begin, max(1, min(limit, MOST_ROWS)))
    token = None
    if some.then is not None:
        within = bounds.start, bounds.end, bounds.prefix
        place = Place((time, time), within, some.then, topic=topic_id(view.meta))
        token = token_of(place)
    return Page(time, some.rows, token)


def count(views: Views, name: str, bounds: Bounds, as_of: int | None) -> Counted:
    """Count keys and data; within bounds this reads all of them."""
    view = views.view(name)
    time = _time(view, as_of)
    return Counted(time, *view.count(bounds, time))


def changes(
    views: Views, name: str, above: int, upto: int | None, limit: int, page: str | None
) -> ChangesPage:
    """Read the consolidated updates between two times."""
    view = views.view(name)
    begin = None
    if page is not None:
        place = _place(page)
        same_topic(view, place.topic)
        (above, upto), begin = place.times, place.part
        if not (above < begin[0] <= upto and 0 <= begin[1] <= _MOST_PARTS):
            raise no_token()
    view.check(above)
    upto = _time(view, upto)
    updates = view.changes(above, upto, begin, max(1, min(limit, MOST_ROWS)), MOST_PAGE_BYTES)
    token = None
    if updates.then is not None:
        place = Place(
            (above, upto),
            (None, None, None),
            part=updates.then,
            topic=topic_id(view.meta),
        )
        token = token_of(place)
    return ChangesPage(above, upto, updates.updates, token)


def newest(views: Views, collection: Sequence[str]) -> CommonTimes:
    """Return the newest time that can be read of all these collections."""
    every = [views.view(name) for name in collection or views.names()]
    return CommonTimes(common_newest(every), max(view.meta.since for view in every))


class Reads(Closes):
    """Reads of served collections; `since` and `upper` of each bound the times."""

    @abstractmethod
    def _read(self, read: Callable[..., Result], /, **arguments: Any) -> Result:
        """Answer one of the read functions above with these arguments."""

    @abstractmethod
    def collections(self) -> list[CollectionInfo]:
        """List the collections, by name."""

    def newest(self, *names: str) -> int:
        """Return the newest time that can be read of all these collections, or of all there are.

        Raises:
            UnreadableTimeError: there is none.
        """
        return self._read(newest, collection=names).newest

    def get(self, name: str, key: bytes, *, as_of: int | None = None) -> ValueCounts:
        """Read the values of a key, each with its count; empty if it has none."""
        return self._read(get, name=name, key=key, as_of=as_of).values

    def get_many(
        self, name: str, keys: Sequence[bytes], *, as_of: int | None = None
    ) -> list[ValueCounts]:
        """Read the values of several keys as of one time, in the order of the keys."""
        states = self._read(get_many, name=name, keys=keys, as_of=as_of)
        return [row.values for row in states.rows]

    def page(
        self,
        name: str,
        bounds: Bounds = Bounds(),  # noqa: B008 - immutable
        *,
        as_of: int | None = None,
        limit: int = 1_000,
        page: str | None = None,
    ) -> Page:
        """Read some rows in the order of the bytes of keys; later pages stay at one time."""
        return self._read(scan, name=name, bounds=bounds, as_of=as_of, limit=limit, page=page)

    def count(
        self,
        name: str,
        bounds: Bounds = Bounds(),  # noqa: B008 - immutable
        *,
        as_of: int | None = None,
    ) -> CollectionSize:
        """Count keys, data, and their bytes; within bounds this reads all of them."""
        _, *size = self._read(count, name=name, bounds=bounds, as_of=as_of)
        return CollectionSize(*size)

    def changes(
        self,
        name: str,
        above: int,
        upto: int | None = None,
        *,
        limit: int = 1_000,
        page: str | None = None,
    ) -> ChangesPage:
        """Read the consolidated updates with `above < time <= upto`, in the order of times."""
        return self._read(changes, name=name, above=above, upto=upto, limit=limit, page=page)

    @abstractmethod
    def sql(self, query: str, *, as_of: int | None = None) -> "pa.Table":
        """Run one SELECT over the collections that it names, all as of one time.

        Raises:
            IkebanaError: it is refused, fails, or exceeds a limit.
        """

    @abstractmethod
    def wait(self, time: int, *names: str, timeout: float) -> int:
        """Wait until a time is closed in all these collections; return their newest one.

        Raises:
            WaitedError: it was not, within `timeout` seconds.
        """


def rows(
    reads: Reads,
    name: str,
    bounds: Bounds = Bounds(),  # noqa: B008 - immutable
    *,
    as_of: int | None = None,
    limit: int = 1_000,
) -> Iterator[ViewRow]:
    """Yield all rows within bounds as of one time, page by page."""
    some = reads.page(name, bounds, as_of=as_of, limit=limit)
    yield from some.rows
    while some.page is not None:
        some = reads.page(name, bounds, limit=limit, page=some.page)
        yield from some.rows


class LocalReads(Reads):
    """`Reads` of arrangements in this process or in a folder."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def _read(self, read: Callable[..., Result], /, **arguments: Any) -> Result:
        return read(self._views, **arguments)

    # Reads of keys take a microsecond or two, to which `_read` would add a third; and reads
    # within this process have no limit of size.

    def get(self, name: str, key: bytes, *, as_of: int | None = None) -> ValueCounts:
        view = self._views.view(name)
        return view.get(key, _time(view, as_of))

    def get_many(
        self, name: str, keys: Sequence[bytes], *, as_of: int | None = None
    ) -> list[ValueCounts]:
        view = self._views.view(name)
        return view.get_many(keys, _time(view, as_of))

    def collections(self) -> list[CollectionInfo]:
        return [info(self._views.view(name)) for name in self._views.names()]

    def sql(self, query: str, *, as_of: int | None = None) -> "pa.Table":
        # Imported here: readers of keys wait for no database.
        from ikebana.serving.sql import run

        return run(query, self._views.view, as_of).table

    def wait(self, time: int, *names: str, timeout: float) -> int:
        deadline = monotonic() + timeout
        while True:
            views = [self._views.view(name) for name in names or self._views.names()]
            upper = common_frontier(views)
            if upper > time:
                return common_newest(views)
            if (left := deadline - monotonic()) <= 0:
                raise not_closed_in_time(time, timeout, upper)
            self._views.pause(left)

    def close(self) -> None:
        self._views.close()


def info(view: ArrangementView) -> CollectionInfo:
    """Describe a collection at its newest time."""
    meta = view.meta
    total = meta.totals.read()
    data, sums, size = (
        (total.data, total.total, total.bytes) if view.columns is None else (None, None, None)
    )
    since, upper = meta.bounds
    return CollectionInfo(
        meta.topic, meta.form, since, upper, total.keys, data, sums, size, kind_of_times(view)
    )


def not_closed_in_time(time: int, timeout: float, upper: int) -> WaitedError:
    """Make the error for a time that was not closed in time."""
    return WaitedError(
        f"waited {timeout:g} s for time {time} to be closed: the frontier is {upper}",
        hint="Is the pipeline running, and its `ikebana serve`?",
    )


def unknown_collection(
    name: str, names: Mapping[str, object] | Sequence[str]
) -> UnknownCollectionError:
    """Make the error for a name that no collection has."""
    return UnknownCollectionError(
        f'there is no collection "{name}"{hint(name, list(names))}',
        hint=f"There are: {', '.join(sorted(names))}." if names else None,
    )


def _time(view: ArrangementView, as_of: int | None) -> int:
    if as_of is None:
        return view.newest()
    view.check(as_of)
    return as_of


Token = TypeVar("Token", bound=msgspec.Struct)


class Place(msgspec.Struct, array_like=True, frozen=True):
    """A place in a scan or in changes, as page tokens have it."""

    times: tuple[int, int]
    bounds: tuple[bytes | None, bytes | None, bytes | None]
    subject: bytes = b""
    part: tuple[int, int] = (0, 0)
    topic: str | None = None
    """The id of the topic that is read; None if it was not known."""


class _OfTopic(msgspec.Struct):
    """The part of an arrangement's position that is read here: the topic's id."""

    topic_id: str | None = None


_pack = msgspec.msgpack.Encoder().encode
_of_topic = msgspec.json.Decoder(_OfTopic).decode


def token_of(token: msgspec.Struct) -> str:
    """Write a token as text that a URL may have."""
    return base64.urlsafe_b64encode(_pack(token)).decode().rstrip("=")


def read_token(text: str, kind: type[Token]) -> Token:
    """Read a token.

    Raises:
        ValueError: it is none of this kind.
    """
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


def _place(text: str) -> Place:
    """Read the place of a token.

    Raises:
        ConfigError: it is no token.
    """
    try:
        return read_token(text, Place)
    except ValueError as error:
        raise no_token() from error


def topic_id(meta: Meta) -> str | None:
    """Return the id of the topic that a collection is read from; None if it is not known yet."""
    try:
        return _of_topic(meta.position).topic_id
    except msgspec.MsgspecError:
        return None


def same_topic(view: ArrangementView, topic: str | None) -> None:
    """Refuse to continue in another topic than the token's, if both ids are known.

    Raises:
        UnreadableTimeError: the topic was deleted and created again, so its times are others.
    """
    meta = view.meta
    if topic is None or (now := topic_id(meta)) is None or now == topic:
        return
    raise UnreadableTimeError(
        f'cannot go on reading "{meta.topic}": the topic was deleted and created again since',
        "Begin again, without the token.",
        meta.since,
        meta.upper,
        is_past=True,
    )
