"""Accumulate an error topic to the errors that currently exist."""

import base64
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from ikebana.processor.base.diff_reader import Part, PlacedUpdate


class CurrentError(NamedTuple):
    """An error record that is not retracted, its count, and the time of its last addition."""

    record: dict[str, Any]
    number: int
    time: int

    @property
    def key(self) -> bytes | None:
        """The raw key of the record that failed."""
        return _raw(self.record.get("key"))

    @property
    def value(self) -> bytes | None:
        """The raw value of that record, if the error record has it."""
        return _raw(self.record.get("value"))

    @property
    def place(self) -> tuple[str, int, int] | None:
        """The topic, partition and offset of that record, if they are known."""
        topic, partition, offset = (
            self.record.get(part) for part in ("topic", "partition", "offset")
        )
        if topic is None or partition is None or offset is None:
            return None
        return topic, partition, offset


def standing(parts: Iterable[Part]) -> list[CurrentError]:
    """Accumulate the parts of an error topic to the current errors, the newest last.

    A repeated error has the time of its last addition.
    """
    counts: dict[bytes, int] = {}
    since: dict[bytes, int] = {}
    for part in parts:
        for update in part.updates:
            _add(counts, since, update)
    errors = [
        CurrentError(msgspec.json.decode(record, type=dict[str, Any]), count, since[record])
        for record, count in counts.items()
    ]
    return sorted(errors, key=lambda error: error.time)


def _add(counts: dict[bytes, int], since: dict[bytes, int], update: PlacedUpdate) -> None:
    record = update.value
    if count := counts.get(record, 0) + update.diff:
        counts[record] = count
        if update.diff > 0 or record not in since:
            since[record] = max(update.time, since.get(record, 0))
    else:
        counts.pop(record, None)
        since.pop(record, None)


def _raw(text: Any) -> bytes | None:
    return None if text is None else base64.b64decode(text)
