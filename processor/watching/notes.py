"""What a run has noted since it began: how many records were late, have drifted or made errors.

Of each kind and input the last records are kept by their places, so the plan bounds the memory.
Beside these are the notices that hold now.
"""

import threading
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from ikebana.processor.base import notice
from ikebana.processor.base.noted import Kind, Noted, NotedRecord, Place

_KEPT = 20


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


class _Kept:
    def __init__(self, now_ms: int) -> None:
        self.count = 0
        self.since_ms = self.last_ms = now_ms
        self.records: deque[tuple[NotedRecord, int]] = deque(maxlen=_KEPT)


class Notes:
    """The notes of all batches of a run; every method is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[Kind, str], _Kept] = {}

    def add(self, noted: Iterable[Noted], now_ms: int) -> None:
        """Take the notes of a batch that was committed now."""
        with self._lock:
            for each in noted:
                notes = self._kept.setdefault((each.kind, each.input), _Kept(now_ms))
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
                for name, notes in sorted(self._kept.items())
            ]

    def has(self, place: Place) -> bool:
        """Whether the record at a place is among those that are kept."""
        with self._lock:
            return any(
                record.place == place
                for notes in self._kept.values()
                for record, _ in notes.records
            )


class NoticeFigures(msgspec.Struct):
    """A notice that holds, and since when it does."""

    kind: notice.Kind
    input: str
    of: str
    words: str
    since_ms: int


class Notices:
    """The notices that hold now, each since when; every method is thread-safe."""

    def __init__(self) -> None:
        self._kept: list[NoticeFigures] = []

    def take(self, notices: Sequence[notice.Notice], now_ms: int) -> None:
        """Take the notices that hold now."""
        since = {(each.kind, each.input, each.of): each.since_ms for each in self._kept}
        # Replaced as a whole, so that nobody reads half of it.
        self._kept = [
            NoticeFigures(*each.name, each.words, since.get(each.name, now_ms)) for each in notices
        ]

    def figures(self) -> list[NoticeFigures]:
        """Return all of them."""
        return self._kept


def _figures(record: NotedRecord, at_ms: int) -> RecordFigures:
    return RecordFigures(*record.place, record.late_by, record.reason, at_ms)
