"""The notes of a run since it began: how many records were late, drifted or made errors.

For each kind and input the places of the last records are kept, so the plan bounds the memory.
The present notices are here, too.
"""

import threading
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from ikebana.processor.base import notice
from ikebana.processor.base.noted import Kind, Noted, NotedRecord, Place

_RECORDS = 20


class RecordFigures(msgspec.Struct):
    """A record by its place; `at_ms` is the clock when its batch was committed."""

    topic: str
    partition: int
    offset: int
    late_by: int | None
    reason: str
    at_ms: int


class NotedFigures(msgspec.Struct):
    """The records of a kind and input since the run began, the last of them first."""

    kind: Kind
    input: str
    count: int
    since_ms: int
    last_ms: int
    records: list[RecordFigures]


class _Notes:
    def __init__(self, now_ms: int) -> None:
        self.count = 0
        self.since_ms = self.last_ms = now_ms
        self.records: deque[tuple[NotedRecord, int]] = deque(maxlen=_RECORDS)


class Notes:
    """The notes of all batches of a run; every method is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes: dict[tuple[Kind, str], _Notes] = {}

    def add(self, noted: Iterable[Noted], now_ms: int) -> None:
        """Take the notes of a batch that was committed now."""
        with self._lock:
            for each in noted:
                notes = self._notes.setdefault((each.kind, each.input), _Notes(now_ms))
                notes.count += each.count
                notes.last_ms = now_ms
                notes.records.extend((record, now_ms) for record in each.records)

    def figures(self) -> list[NotedFigures]:
        """Return all notes, by kind and input."""
        with self._lock:
            return [
                NotedFigures(
                    *name,
                    notes.count,
                    notes.since_ms,
                    notes.last_ms,
                    [_figures(*each) for each in reversed(notes.records)],
                )
                for name, notes in sorted(self._notes.items())
            ]

    def has(self, place: Place) -> bool:
        """Whether the record at a place is among those that are kept."""
        with self._lock:
            return any(
                record.place == place
                for notes in self._notes.values()
                for record, _ in notes.records
            )


class NoticeFigures(msgspec.Struct):
    """A present notice, and since when it holds."""

    kind: notice.Kind
    input: str
    of: str
    words: str
    since_ms: int


class Notices:
    """The present notices, and since when each holds; every method is thread-safe."""

    def __init__(self) -> None:
        self._figures: list[NoticeFigures] = []

    def take(self, notices: Sequence[notice.Notice], now_ms: int) -> None:
        """Replace the present notices."""
        since = {(each.kind, each.input, each.of): each.since_ms for each in self._figures}
        # The list is replaced as a whole, so that no thread sees a part of it.
        self._figures = [
            NoticeFigures(*each.name, each.words, since.get(each.name, now_ms)) for each in notices
        ]

    def figures(self) -> list[NoticeFigures]:
        """Return all of them."""
        return self._figures


def _figures(record: NotedRecord, at_ms: int) -> RecordFigures:
    return RecordFigures(*record.place, record.late_by, record.reason, at_ms)
