"""Write a served arrangement: closed batches in, history in and out, all at once.

A closed batch is one atomic write: the states, their history, `since`, `upper`, and the place in
the topic at which reading goes on.  So an arrangement has whole batches only, and a restart goes
on where it stopped.

`since` is the frontier less the retention, and never goes back.  The history before it is deleted
in the order of times, some with each batch, so that no batch takes long.  While an arrangement
catches up with its topic, `horizon` is the frontier that it will reach, and history that would
be deleted by then is not written at all; until then it cannot be read.
"""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec

from ikebana.arrangements.rocks import LocalDamageError
from ikebana.arrangements.shared_rocks import SharedDatabase
from ikebana.processor.rows.rows import KeyedUpdate
from ikebana.serving import layout
from ikebana.serving.layout import Meta, State, TimePart, Totals, Update
from ikebana.serving.retention import Retention
from ikebana.serving.view import ArrangementView, read_meta

# An undo is the whole state up to this number of values, else the diffs.
_MOST_WHOLE = 4
_PART = 1_000
# The history that is deleted with a batch, in updates: so many, or as many as come if more do.
_LEAST_EXPIRED = 20_000

_encode = msgspec.msgpack.Encoder().encode
_decode_part = msgspec.msgpack.Decoder(TimePart).decode
_by_time = attrgetter("time")

Change = tuple[bytes, bytes | None]


class Closed(NamedTuple):
    """All updates of a topic that `upper` closes and the batch before did not.

    Nothing can be read as of a time before the first `lower`.  `position` is the place in the
    topic behind the batch, and not empty.
    """

    lower: int
    upper: int
    updates: list[KeyedUpdate]
    position: bytes


class ServedArrangement:
    """The arrangement of one topic in a database of its own.

    Raises:
        LocalDamageError: the database has something else, or cannot be read.
    """

    def __init__(
        self, database: SharedDatabase, topic: str, form: str, retention: Retention
    ) -> None:
        self._database = database
        self._retention = retention
        found = read_meta(database.view())
        if found is None:
            least = layout.LEAST_TIME
            found = Meta(topic, form, least, least, least, least, Totals(), b"")
        elif (found.topic, found.form) != (topic, form):
            raise LocalDamageError(f'it has "{found.topic}" in the format {found.form}')
        elif found.version != layout.VERSION:
            raise LocalDamageError(f"its layout is version {found.version}")
        self._meta = found
        self._view = ArrangementView(database.view(), found)

    @property
    def position(self) -> bytes:
        """The place in the topic behind the last batch; empty before the first."""
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
        known = max(batch.upper, horizon or batch.upper)
        since = max(meta.since, self._retention.since(known, meta.topic))
        if not meta.position:
            since = max(since, batch.lower)
        work = _Work(meta.totals, since)
        self._load(work, batch.updates)
        updates = sorted(batch.updates, key=_by_time)
        last = meta.last
        for time, found in groupby(updates, _by_time):
            assert meta.upper <= time < batch.upper, f"time {time} is not of this batch"
            if work.add(time, found):
                last = time
        changes = work.changes()
        most = max(_LEAST_EXPIRED, 2 * len(updates))
        expired = self._expire(changes, meta.expired, since, most)
        self._meta = msgspec.structs.replace(
            meta,
            since=since,
            upper=batch.upper,
            last=last,
            expired=expired,
            totals=work.totals,
            position=batch.position,
        )
        changes.append((layout.META, _encode(self._meta)))
        self._database.write(changes)
        self._view = ArrangementView(self._database.view(), self._meta)

    def size(self) -> int:
        """Estimate the bytes on disk."""
        return self._database.size()

    def close(self) -> None:
        """Close the database; views cannot be read afterwards."""
        self._database.close()

    def _load(self, work: "_Work", updates: Iterable[KeyedUpdate]) -> None:
        subjects = list({layout.subject(update.key, update.value) for update in updates})
        found = self._database.get_many([layout.CURRENT + subject for subject in subjects])
        for subject, packed in zip(subjects, found, strict=True):
            work.states[subject] = layout.decode_state(packed)

    def _expire(self, changes: list[Change], expired: int, since: int, most: int) -> int:
        """Delete history that `since` has passed; return the time up to which none is left."""
        taken = 0
        reached = since
        view = self._view.database
        for key, packed in view.scan(layout.at_time(expired + 1), layout.at_time(since + 1)):
            time, part = layout.time_and_part(key)
            if taken >= most and part == 0:
                reached = time - 1
                break
            changes.append((key, None))
            stamp = layout.pack_time(time)
            updates = _decode_part(packed).updates
            for update in updates:
                prefix = layout.history_of(layout.subject(update.key, update.value))
                changes.append((prefix + stamp, None))
            taken += len(updates)
        return max(expired, reached)


class _Work:
    """The states of the subjects of a batch while its updates are added, time by time."""

    def __init__(self, totals: Totals, since: int) -> None:
        self.totals = totals
        self.states: dict[bytes, State] = {}
        self._since = since
        self._changed: set[bytes] = set()
        self._history: list[Change] = []

    def add(self, time: int, updates: Iterable[KeyedUpdate]) -> bool:
        """Add all updates of a time; return whether anything has changed."""
        by_subject: dict[bytes, State] = {}
        for key, value, _, diff in updates:
            subject = layout.subject(key, value)
            diffs = by_subject.setdefault(subject, {})
            diffs[value] = diffs.get(value, 0) + diff
        before = self.totals
        keys, data, total, size = before.keys, before.data, before.total, before.bytes
        kept: list[Update] = []
        # Who reads as of `since` has to take this back.
        is_history = time > self._since
        stamp = layout.pack_time(time)
        changed = False
        for subject in sorted(by_subject):
            diffs = {value: diff for value, diff in by_subject[subject].items() if diff}
            if not diffs:
                continue
            changed = True
            state = self.states[subject]
            if is_history:
                undo = (
                    layout.encode_state(state)
                    if len(state) <= _MOST_WHOLE
                    else layout.encode_diffs(diffs)
                )
                self._history.append((layout.history_of(subject) + stamp, undo))
                key = layout.key_of(subject)
                kept += (Update(key, value, diffs[value]) for value in sorted(diffs))
            had = bool(state)
            for value, diff in diffs.items():
                count = state.get(value, 0)
                if not count:
                    data += 1
                    size += len(value)
                if count + diff:
                    state[value] = count + diff
                else:
                    del state[value]
                    data -= 1
                    size -= len(value)
                total += diff
            if bool(state) != had:
                one = 1 if state else -1
                keys += one
                size += one * layout.key_size(subject)
            self._changed.add(subject)
        self.totals = Totals(keys, data, total, size)
        for part, begin in enumerate(range(0, len(kept), _PART)):
            found = TimePart(before, kept[begin : begin + _PART])
            self._history.append((layout.at_time(time, part), _encode(found)))
        return changed

    def changes(self) -> list[Change]:
        """Return the history, and the new state of each subject that has changed."""
        changes: list[Change] = self._history
        for subject in self._changed:
            state = self.states[subject]
            changes.append(
                (layout.CURRENT + subject, layout.encode_state(state) if state else None)
            )
        return changes
