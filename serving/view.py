"""Read an arrangement as of any time that it still has, from one fixed state of its database.

The state at the newest time is stored; each older state is that state with later updates undone,
the newest first.  So a read of the newest time is one lookup, and a read as of an earlier time
costs as much as the undo records after it.

A time can be read if `since <= time < upper`: history before `since` has been deleted, and times
from `upper` on are not closed.  All other times are refused.
"""

import struct
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import msgspec

from ikebana.arrangements.rocks import LocalDamageError, prefix_end
from ikebana.arrangements.shared_rocks import DatabaseView, EntryIterator
from ikebana.codecs.diff import Times
from ikebana.errors import ConfigError, IkebanaError
from ikebana.processor.base.diff_reader import kind_of, refuse_mixed
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.texts import moment
from ikebana.serving import layout
from ikebana.serving.layout import CollectionSize, Meta, ValueCounts

# A page ends early after this many bytes of keys and values.
MOST_PAGE_BYTES = 16 << 20
_CURRENT_END = b"d"
_HISTORY_END = b"i"
_TIMES_END = b"u"
_decode_part = msgspec.msgpack.Decoder(layout.TimePart).decode
_decode_meta = msgspec.msgpack.Decoder(Meta).decode
_subject = itemgetter(0)
_MOST_PLACES = 10_000
_KEYLESS = layout.subject(None)
_number = struct.Struct(">Q")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class UnknownCollectionError(IkebanaError):
    """There is no collection of this name."""


class UnreadableTimeError(IkebanaError):
    """A collection cannot be read as of a time; `since` and `upper` bound its readable times.

    They are None if no time is readable yet.  `is_past`: the history of the time has been deleted;
    otherwise the time is not closed yet.
    """

    def __init__(
        self,
        message: str,
        hint: str | None,
        since: int | None,
        upper: int | None,
        *,
        is_past: bool,
    ) -> None:
        super().__init__(message, hint=hint)
        self.since = since
        self.upper = upper
        self.is_past = is_past


def unreadable(
    collection: str, time: int, since: int, upper: int, progress: str = ""
) -> UnreadableTimeError:
    """Make the error for a time that is not readable.

    `progress` describes the progress with the topic, if no time is closed yet.
    """
    asked = f" as of {moment(time)}"
    if upper == since:
        # A read of the newest time has no time to name.
        message = f'cannot read "{collection}": no time of it is closed yet'
        hint = "Wait until the collection has caught up with its topic."
        message += f"; {progress}" if progress else ""
        return UnreadableTimeError(message, hint, None, None, is_past=False)
    if upper < since:
        has = f"it can be read from time {moment(since)} on, and only times before "
        has += f"{moment(upper)} are closed yet"
        hint = "Wait until the collection has caught up with its topic."
    else:
        has = f"it has the times from {moment(since)} to {moment(upper - 1)}"
        hint = (
            "Ask for a time in between. `--retain` says how long history is kept."
            if time < since
            else "Ask for a time in between, or wait until the time is closed."
        )
    message = f'cannot read "{collection}"{asked}: {has}'
    return UnreadableTimeError(message, hint, since, upper, is_past=time < since < upper)


class Bounds(NamedTuple):
    """Keys with `start <= key < end` and this prefix, in the order of bytes; None: no bound.

    Without bounds, they include the whole collection, with values that have no key.
    """

    start: bytes | None = None
    end: bytes | None = None
    prefix: bytes | None = None

    def subjects(self) -> tuple[bytes, bytes | None]:
        """Return the range of subjects: the least one, and the exclusive end."""
        if self == Bounds():
            return b"", None
        lower = layout.subject(self.prefix or b"")
        upper = prefix_end(lower)
        if self.start is not None:
            lower = max(lower, layout.subject(self.start))
        if self.end is not None:
            end = layout.subject(self.end)
            upper = end if upper is None else min(upper, end)
        return lower, upper


class ViewRow(NamedTuple):
    """A key and its values, each with its count; a value without a key is a row of its own."""

    key: bytes | None
    values: ValueCounts


class RowPage(NamedTuple):
    """Consecutive rows; `then` is the subject after them, None after the last page."""

    rows: list[ViewRow]
    then: bytes | None


class UpdatePage(NamedTuple):
    """Consecutive updates; `then` is the (time, part) after them, None after the last page."""

    updates: list[KeyedUpdate]
    then: tuple[int, int] | None


class Places:
    """Subjects at which recent pages of rows without keys ended, by (topic, time, number)."""

    def __init__(self) -> None:
        self._subjects: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, place: tuple[str, int, int]) -> bytes | None:
        """Return the subject at a place, if it is still remembered."""
        with self._lock:
            return self._subjects.get(place)

    def put(self, place: tuple[str, int, int], subject: bytes) -> None:
        """Remember a subject, and forget the oldest."""
        with self._lock:
            self._subjects[place] = subject
            while len(self._subjects) > _MOST_PLACES:
                self._subjects.popitem(last=False)


def read_meta(view: DatabaseView) -> Meta | None:
    """Read the metadata of a database; None if it has no arrangement yet."""
    packed = view.get(layout.META)
    if packed is None:
        return None
    try:
        meta = _decode_meta(packed)
    except msgspec.MsgspecError as error:
        raise LocalDamageError(f"its metadata cannot be read: {error}") from error
    if meta.version != layout.VERSION:
        raise LocalDamageError(f"its layout is version {meta.version}")
    return meta


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ArrangementView:
    """One arrangement as of the moment at which the view was made: whole, or some columns of it.

    While the view is used, the arrangement keeps the history that it can read.  So a scan over a
    later state of the database works too: it also undoes the later updates.

    In a view of some columns, a value that is a JSON object has these fields only, and any other
    value is `{}`.  Values that look the same then are merged, with the sum of their counts.  Page
    tokens show no other column: rows without a key are stored under their values, so a token among
    them has their number, counted from the first.  `places` save a scan for the next page.
    """

    database: DatabaseView
    meta: Meta
    """The metadata, in a view of some columns without sizes, which would reveal the others."""
    progress: str = ""
    """The progress with its topic in words, as long as no time is closed."""
    columns: frozenset[str] | None = None
    """The columns of values that are shown; None: all of every value."""
    places: Places | None = None
    whole: "ArrangementView | None" = None
    """The view of all columns, whose history is kept while there is a reference to it."""

    def of_columns(self, columns: frozenset[str], places: Places) -> "ArrangementView":
        """Return a view of some columns of the values; keys are shown whole."""
        whole = self.meta
        meta = msgspec.structs.replace(
            whole,
            totals=layout.StoredTotals(keys=whole.totals.keys),
            shape=layout.Shape(whole.shape.keys, whole.shape.values.only(columns)),
            columns={name: kind for name, kind in whole.columns.items() if name in columns},
        )
        return replace(self, meta=meta, columns=columns, places=places, whole=self)

    def check(self, time: int) -> None:
        """Refuse a time that cannot be read.

        Raises:
            UnreadableTimeError: it lies before `since`, or is not closed.
        """
        if not self.meta.since <= time < self.meta.upper:
            meta = self.meta
            raise unreadable(meta.topic, time, meta.since, meta.upper, self.progress)

    def newest(self) -> int:
        """Return the greatest time that can be read.

        Raises:
            UnreadableTimeError: there is none yet.
        """
        self.check(self.meta.upper - 1)
        return self.meta.upper - 1

    def get(self, key: bytes, time: int) -> ValueCounts:
        """Read the values of a key as of a time that `check` allows."""
        if time >= self.meta.last:
            state = layout.decode_state(self.database.get(layout.CURRENT_OF_KEY + key))
        else:
            state = self._as_of(layout.subject(key), time)
        return _shown(state, self.columns)

    def get_many(self, keys: Sequence[bytes], time: int) -> list[ValueCounts]:
        """Read the values of several keys as of a time that `check` allows."""
        if time >= self.meta.last:
            entries = [layout.CURRENT_OF_KEY + key for key in keys]
            states = [layout.decode_state(packed) for packed in self.database.get_many(entries)]
        else:
            states = [self._as_of(layout.subject(key), time) for key in keys]
        return [_shown(state, self.columns) for state in states]

    def rows(self, bounds: Bounds, time: int) -> Iterator[ViewRow]:
        """Yield the rows within bounds as of an allowed time."""
        for subject, state in self._states(bounds, time, None):
            if shown := _shown(state, self.columns):
                yield ViewRow(layout.key_of(subject), shown)

    def page(self, bounds: Bounds, time: int, begin: bytes | None, most: int) -> RowPage:
        """Read at most `most` rows within bounds, from `begin`, a page's `then`, on.

        Fewer come if they have more than `MOST_PAGE_BYTES`.
        """
        rows: list[ViewRow] = []
        size = 0
        number, start = self._place(time, begin)
        for at, (subject, state) in enumerate(self._states(bounds, time, start)):
            key = layout.key_of(subject)
            is_numbered = key is None and self.columns is not None
            if is_numbered and start is None and at < number:
                continue
            if len(rows) >= most or size >= MOST_PAGE_BYTES:
                return RowPage(rows, self._then(time, number, subject) if is_numbered else subject)
            number += is_numbered
            if shown := _shown(state, self.columns):
                rows.append(ViewRow(key, shown))
                size += len(subject) + sum(map(len, shown))
        return RowPage(rows, None)

    def count(self, bounds: Bounds, time: int) -> CollectionSize:
        """Count keys and values within bounds; of all bounds and columns this needs no scan."""
        if bounds == Bounds() and self.columns is None:
            return self._totals(time)
        keys = data = total = size = 0
        for key, state in self.rows(bounds, time):
            keys += 1
            data += len(state)
            total += sum(state.values())
            size += len(key or b"") + sum(map(len, state))
        return CollectionSize(keys, data, total, size)

    def changes(
        self,
        above: int,
        upto: int,
        begin: tuple[int, int] | None,
        most: int,
        most_bytes: int | None = None,
    ) -> UpdatePage:
        """Read the updates with `above < time <= upto`, in order of time, key and value.

        A page has about `most` updates, and about `most_bytes` at most.  Both times have to be
        allowed by `check`.
        """
        lower = layout.at_time(above + 1) if begin is None else layout.at_time(*begin)
        updates: list[KeyedUpdate] = []
        size = 0
        then = None
        for key, packed in self.database.scan(lower, layout.at_time(upto + 1)):
            time, part = layout.time_and_part(key)
            if len(updates) >= most or (most_bytes is not None and size >= most_bytes):
                then = time, part
                break
            size += len(packed)
            part_updates = _decode_part(packed).updates
            updates += (KeyedUpdate(key, value, time, diff) for key, value, diff in part_updates)
        return UpdatePage(_shown_updates(updates, self.columns), then)

    def _place(self, time: int, begin: bytes | None) -> tuple[int, bytes | None]:
        """Return the number of numbered rows before a page, and its first subject if known."""
        if begin is None or self.columns is None or not begin.startswith(_KEYLESS):
            return 0, begin
        try:
            (number,) = _number.unpack(begin[len(_KEYLESS) :])
        except struct.error as error:
            raise no_token() from error
        assert self.places is not None
        return number, self.places.get((self.meta.topic, time, number))

    def _then(self, time: int, number: int, subject: bytes) -> bytes:
        assert self.places is not None
        self.places.put((self.meta.topic, time, number), subject)
        return _KEYLESS + _number.pack(number)

    def _totals(self, time: int) -> CollectionSize:
        if time < self.meta.last:
            for _, packed in self.database.scan(layout.at_time(time + 1), _TIMES_END):
                return _decode_part(packed).before.read()
        return self.meta.totals.read()

    def _as_of(self, subject: bytes, time: int) -> ValueCounts:
        prefix = layout.history_of(subject)
        # The database may have undo records of later batches, which are none of this view.
        lower, upper = (prefix + layout.pack_time(each) for each in (time + 1, self.meta.upper))
        undos = (packed for _, packed in self.database.scan(lower, upper))
        return _undone(undos, lambda: self.database.get(layout.CURRENT + subject))

    def _states(
        self, bounds: Bounds, time: int, begin: bytes | None
    ) -> Iterator[tuple[bytes, ValueCounts]]:
        """Yield subjects within bounds, from `begin` on, with their values as of a time."""
        lower, upper = bounds.subjects()
        if begin is not None:
            lower = max(lower, begin)
        if upper is not None and lower >= upper:
            return
        moved, (current, history) = self.database.scans(
            (layout.CURRENT + lower, _CURRENT_END if upper is None else layout.CURRENT + upper),
            (layout.history_bound(lower), _end_of_history(upper)),
        )
        if time >= self.meta.last and not moved:
            for subject, packed in current:
                yield subject[1:], layout.decode_state(packed)
            return
        # Subjects with later updates are computed from the history; all others are unchanged.
        now = next(current, None)
        for subject, undos in _later(history, time):
            while now is not None and now[0][1:] < subject:
                yield now[0][1:], layout.decode_state(now[1])
                now = next(current, None)
            is_now = now is not None and now[0][1:] == subject
            if state := _undone(undos, partial(_packed, now if is_now else None)):
                yield subject, state
            if is_now:
                now = next(current, None)
        while now is not None:
            yield now[0][1:], layout.decode_state(now[1])
            now = next(current, None)


def _packed(entry: tuple[bytes, bytes] | None) -> bytes | None:
    return None if entry is None else entry[1]


def _end_of_history(upper: bytes | None) -> bytes:
    return _HISTORY_END if upper is None else layout.history_bound(upper)


def _later(history: EntryIterator, time: int) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield the subjects with updates after a time, each with its undo records in order."""
    entries = ((*layout.subject_of_history(key), packed) for key, packed in history)
    later = (entry for entry in entries if entry[1] > time)
    for subject, undos in groupby(later, _subject):
        yield subject, [packed for _, _, packed in undos]


def _undone(undos: Iterable[bytes], current: Callable[[], bytes | None]) -> ValueCounts:
    """Undo all updates after a time, by their undo records in order."""
    undone: list[ValueCounts] = []
    for packed in undos:
        content, whole = layout.decode_undo(packed)
        if whole:
            state = content
            break
        undone.append(content)
    else:
        state = layout.decode_state(current())
    for diffs in undone:
        for value, diff in diffs.items():
            count = state.get(value, 0) - diff
            if count:
                state[value] = count
            else:
                state.pop(value, None)
    return state


def _shown(state: ValueCounts, columns: frozenset[str] | None) -> ValueCounts:
    if columns is None:
        return state
    counts: ValueCounts = {}
    for value, count in state.items():
        visible = permitted_fields(value, columns)
        counts[visible] = counts.get(visible, 0) + count
    return {value: count for value, count in counts.items() if count}


def _shown_updates(
    updates: list[KeyedUpdate], columns: frozenset[str] | None
) -> list[KeyedUpdate]:
    if columns is None:
        return updates
    diffs: Counter[tuple[int, bytes | None, bytes]] = Counter()
    for key, value, time, diff in updates:
        diffs[time, key, permitted_fields(value, columns)] += diff
    shown = [
        KeyedUpdate(key, value, time, diff) for (time, key, value), diff in diffs.items() if diff
    ]
    shown.sort(key=lambda update: (update.time, update.key is not None, update[:2]))
    return shown


def permitted_fields(value: bytes, columns: frozenset[str]) -> bytes:
    """Return a value with some fields only; `{}` if it is no JSON object.

    >>> permitted_fields(b'{"id":1,"name":"x","pay":1.50}', frozenset({"id", "pay"}))
    b'{"id":1,"pay":1.50}'
    >>> permitted_fields(b'"a name"', frozenset({"id"}))
    b'{}'
    """
    try:
        fields = _fields(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b"{}"
    visible = (
        b"%b:%b" % (_encode(name), text) for name, text in fields.items() if name in columns
    )
    return b"{" + b",".join(visible) + b"}"


def no_token() -> ConfigError:
    """Make the error for a text that is no token."""
    return ConfigError("cannot read a page: its token is none that was given out")


def common_frontier(views: Sequence[ArrangementView]) -> int:
    """Return the frontier of all views together.

    Raises:
        MixedTimesError: their times are of different kinds.
        UnknownCollectionError: there are none.
    """
    if not views:
        raise UnknownCollectionError(
            "there is no collection here", hint="`ikebana serve` makes them, one for each topic."
        )
    check_kinds(views)
    return min(view.meta.upper for view in views)


def check_kinds(views: Sequence[ArrangementView]) -> None:
    """Refuse to read views with different kinds of times together.

    Raises: MixedTimesError.
    """
    refuse_mixed({view.meta.topic: kind_of_times(view) for view in views})


def kind_of_times(view: ArrangementView) -> Times | None:
    """Return the kind of a view's times; None if it is not known."""
    return kind_of(view.meta.times, view.meta.upper)


def common_newest(views: Sequence[ArrangementView]) -> int:
    """Return the newest time that can be read of all views.

    Raises:
        MixedTimesError: their times are of different kinds.
        UnknownCollectionError: there are none.
        UnreadableTimeError: there is none.
    """
    time = common_frontier(views) - 1
    for view in views:
        view.check(time)
    return time
