"""Write a served arrangement: each closed batch in one write, with its history.

A closed batch is one atomic write: the states, their history, `since`, `upper`, and the position
in the topic.  So an arrangement always has whole batches, and a restart continues at the position.

`since` is the frontier minus the retention, and never decreases.  History before it is deleted in
order of time, a part with each batch, so that no batch takes long; history that a view in use can
read is deleted later.  While an arrangement catches up with its topic, `horizon` is the frontier
that it will reach, and history that would be deleted by then is not written; until then it cannot
be read.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple
from weakref import WeakSet

import msgspec

from ikebana.arrangements.rocks import LocalDamageError
from ikebana.arrangements.run import EntryChange
from ikebana.arrangements.shared_rocks import SharedDatabase
from ikebana.arrangements.update import pieces
from ikebana.codecs.diff import Times
from ikebana.errors import ConfigError
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.texts import EPOCH_MS
from ikebana.serving import layout
from ikebana.serving.layout import (
    CollectionSize,
    Meta,
    Shape,
    ShapeLearner,
    StoredTotals,
    StoredUpdate,
    TimePart,
    ValueCounts,
)
from ikebana.serving.view import ArrangementView, read_meta

_MS = {"ms": 1, "s": 1_000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Retention(NamedTuple):
    """How much history to keep: milliseconds if it was written with a unit, else times.

    `otherwise` is the number of times to keep of collections without milliseconds as times.
    """

    length: int
    is_duration: bool
    otherwise: int | None = None

    def since(self, upper: int, collection: str) -> int:
        """Return the earliest time to keep if all times before `upper` are closed.

        Raises:
            ConfigError: it is a duration, and the times of the collection are not milliseconds.
        """
        # The frontier is 0 if the topic has no closed time yet.
        if self.is_duration and upper and upper not in EPOCH_MS:
            if self.otherwise is not None:
                return upper - 1 - self.otherwise
            raise ConfigError(
                f'cannot keep a duration of "{collection}": its times are not milliseconds, '
                f"its frontier is {upper}",
                hint="Give --retain a number of times, such as --retain 100000.",
            )
        return upper - 1 - self.length


# An hour; for offset times about an hour of some hundred records a second.
USUAL = Retention(3_600_000, is_duration=True, otherwise=1_000_000)

EVERYTHING = Retention(2**62, is_duration=False)


def parsed_retention(text: str) -> Retention:
    """Read a duration such as `90s`, `30m`, `1h` or `7d`, or a number of times.

    >>> parsed_retention("1h").length, parsed_retention("7").is_duration
    (3600000, False)

    Raises:
        ValueError: the text is neither.
    """
    match = re.fullmatch(r"(\d+)\s*(ms|s|min|m|h|d)?", text.strip())
    if match is None:
        raise ValueError(text)
    unit = match[2]
    return Retention(int(match[1]) * (_MS[unit] if unit else 1), unit is not None)


# Decision (scans are of no snapshot): rocksdict has no iterators of snapshots (0.3.29). A scan
# sees the state that is there, under the writers' lock, and undoes the updates after its view by
# the history. Locking for a whole scan would hold up batches.

# An undo is the whole state up to this number of values, else the diffs.
_MOST_WHOLE = 4
_PART = 1_000
# The least number of updates of history that a batch deletes; large batches delete more.
_LEAST_EXPIRED = 20_000

_decode_part = msgspec.msgpack.Decoder(TimePart).decode
_by_time = attrgetter("time")


class Closed(NamedTuple):
    """All updates of a topic from the frontier of the batch before up to `upper`.

    Nothing can be read as of a time before the first `lower`.  `position` is the place in the
    topic after the batch, and not empty.
    """

    lower: int
    upper: int
    updates: list[KeyedUpdate]
    position: bytes
    times: Times | None = None
    columns: Mapping[str, str] = MappingProxyType({})


class ServedArrangement:
    """The arrangement of one topic in a database of its own.

    Raises:
        LocalDamageError: the database is of another topic or format, or cannot be read.
    """

    def __init__(
        self, database: SharedDatabase, topic: str, form: str, retention: Retention
    ) -> None:
        self._database = database
        self._retention = retention
        meta = read_meta(database.view())
        if meta is None:
            least = layout.LEAST_TIME
            meta = Meta(topic, form, least, least, least, least, StoredTotals(), b"")
        elif (meta.topic, meta.form) != (topic, form):
            raise LocalDamageError(f'it has "{meta.topic}" in the format {meta.form}')
        self._meta = meta
        self._keys = ShapeLearner(meta.shape.keys, exact=True)
        self._values = ShapeLearner(meta.shape.values)
        self._views: WeakSet[ArrangementView] = WeakSet()
        self._view = self._fixed()

    @property
    def position(self) -> bytes:
        """The place in the topic after the last batch; empty before the first."""
        return self._meta.position

    def view(self) -> ArrangementView:
        """Return the arrangement after its last batch; later batches do not change the view."""
        return self._view

    def apply(self, batch: Closed, horizon: int | None = None) -> None:
        """Add a closed batch, and delete history that is too old.

        `horizon` is the greatest frontier of the topic that is known.
        """
        meta = self._meta
        assert batch.upper >= meta.upper, f"frontier goes back: {meta.upper}, {batch.upper}"
        frontier = max(batch.upper, horizon or batch.upper)
        since = max(meta.since, self._retention.since(frontier, meta.topic))
        if not meta.position:
            since = max(since, batch.lower)
        keep_from = self._keep_from(since)
        work = _Work(meta.totals.read(), keep_from)
        self._load(work, batch.updates)
        updates = sorted(batch.updates, key=_by_time)
        last = meta.last
        for time, of_time in groupby(updates, _by_time):
            assert meta.upper <= time < batch.upper, f"time {time} is not of this batch"
            if work.add(time, of_time):
                last = time
        changes = work.changes()
        most = max(_LEAST_EXPIRED, 2 * len(updates))
        expired = self._expire(changes, meta.expired, keep_from, most)
        self._meta = msgspec.structs.replace(
            meta,
            since=since,
            upper=batch.upper,
            last=last,
            expired=expired,
            totals=StoredTotals.of(work.totals),
            position=batch.position,
            shape=Shape(self._keys.side, self._values.side),
            times=batch.times or meta.times,
            columns=dict(batch.columns),
        )
        changes.append((layout.META, layout.encode(self._meta)))
        self._database.write(changes)
        self._view = self._fixed()

    def size(self) -> int:
        """Estimate the bytes on disk."""
        return self._database.size()

    def close(self) -> None:
        """Close the database; views cannot be read afterwards."""
        self._database.close()

    def _fixed(self) -> ArrangementView:
        view = ArrangementView(self._database.view(), self._meta)
        self._views.add(view)
        return view

    def _keep_from(self, since: int) -> int:
        """Return the time from which on history is kept, for `since` and views in use."""
        metas = [view.meta for view in self._views]
        return min([since, *(meta.since for meta in metas if meta.since < meta.upper)])

    def _load(self, work: "_Work", updates: Sequence[KeyedUpdate]) -> None:
        subjects = list({layout.subject(key, value) for key, value, _, _ in updates})
        states = self._database.get_many([layout.CURRENT + subject for subject in subjects])
        for subject, packed in zip(subjects, states, strict=True):
            work.load(subject, packed)
            if packed is None and (key := layout.key_of(subject)) is not None:
                self._keys.add(key)
        # A retracted value was inserted before, so it is known already.
        learn = self._values.add
        for _, value, _, diff in updates:
            if diff > 0:
                learn(value)

    def _expire(self, changes: list[EntryChange], expired: int, keep_from: int, most: int) -> int:
        """Delete history up to `keep_from`, in parts; return the time up to which it is gone."""
        count = 0
        reached = keep_from
        view = self._view.database
        for key, packed in view.scan(layout.at_time(expired + 1), layout.at_time(keep_from + 1)):
            time, part = layout.time_and_part(key)
            if count >= most and part == 0:
                reached = time - 1
                break
            changes.append((key, None))
            stamp = layout.pack_time(time)
            updates = _decode_part(packed).updates
            for update in updates:
                prefix = layout.history_of(layout.subject(update.key, update.value))
                changes.append((prefix + stamp, None))
            count += len(updates)
        return max(expired, reached)


class _Work:
    """The states of the subjects of a batch while its updates are added, time by time."""

    def __init__(self, totals: CollectionSize, keep_from: int) -> None:
        self._keys, self._data = totals.keys, totals.data
        self._total, self._size = totals.total, totals.bytes
        self._keep_from = keep_from
        self._states: dict[bytes, ValueCounts] = {}
        # Each state in its encoded form, before and after a change.
        self._packed: dict[bytes, bytes] = {}
        self._changed: set[bytes] = set()
        self._history: list[EntryChange] = []

    @property
    def totals(self) -> CollectionSize:
        """The totals after the updates so far."""
        return CollectionSize(self._keys, self._data, self._total, self._size)

    def load(self, subject: bytes, packed: bytes | None) -> None:
        """Take the state of a subject before the batch."""
        self._packed[subject] = layout.EMPTY if packed is None else packed
        self._states[subject] = layout.decode_state(packed)

    def add(self, time: int, updates: Iterable[KeyedUpdate]) -> bool:
        """Add all updates of a time; return whether anything has changed."""
        by_subject: dict[bytes, ValueCounts] = {}
        for key, value, _, diff in updates:
            subject = layout.subject(key, value)
            diffs = by_subject.get(subject)
            if diffs is None:
                by_subject[subject] = {value: diff}
            else:
                diffs[value] = diffs.get(value, 0) + diff
        before = StoredTotals.of(self.totals)
        history: list[StoredUpdate] = []
        # Reads as of an earlier time undo these updates.
        is_history = time > self._keep_from
        stamp = layout.pack_time(time)
        changed = False
        for subject in sorted(by_subject):
            diffs = by_subject[subject]
            if 0 in diffs.values():
                diffs = {value: diff for value, diff in diffs.items() if diff}
                if not diffs:
                    continue
            changed = True
            if is_history:
                self._history.append(
                    (layout.history_of(subject) + stamp, self._undo(subject, diffs))
                )
                key = layout.key_of(subject)
                history += [
                    StoredUpdate(key, value, piece)
                    for value in sorted(diffs)
                    for piece in pieces(diffs[value])
                ]
            self._change(subject, diffs)
        for part, begin in enumerate(range(0, len(history), _PART)):
            entry = TimePart(before, history[begin : begin + _PART])
            self._history.append((layout.at_time(time, part), layout.encode(entry)))
        return changed

    def changes(self) -> list[EntryChange]:
        """Return the history, and the new state of each subject that has changed."""
        changes: list[EntryChange] = self._history
        for subject in self._changed:
            packed = self._packed[subject]
            changes.append((layout.CURRENT + subject, None if packed == layout.EMPTY else packed))
        return changes

    def _undo(self, subject: bytes, diffs: ValueCounts) -> bytes:
        """Encode the undo record of a state for diffs that are about to be applied."""
        is_whole = len(self._states[subject]) <= _MOST_WHOLE
        return self._packed[subject] if is_whole else layout.encode_diffs(diffs)

    def _change(self, subject: bytes, diffs: ValueCounts) -> None:
        """Add diffs, none of them 0, to the state of a subject, and to the totals."""
        state = self._states[subject]
        had = bool(state)
        for value, diff in diffs.items():
            count = state.get(value, 0)
            if not count:
                self._data += 1
                self._size += len(value)
            if count + diff:
                state[value] = count + diff
            else:
                del state[value]
                self._data -= 1
                self._size -= len(value)
            self._total += diff
        if bool(state) != had:
            one = 1 if state else -1
            self._keys += one
            self._size += one * layout.key_size(subject)
        self._packed[subject] = layout.encode_state(state)
        self._changed.add(subject)
