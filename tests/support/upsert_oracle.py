"""What the outputs are by definition: one plain fold over all upserts, with no batches.

A history is a list of upserts in their order: of two upserts with one time, the one
that comes later in the list counts as later.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NamedTuple


class BadValue(NamedTuple):
    """What could not be decoded, as its error record."""

    record: bytes


class FailedValue(NamedTuple):
    """What was decoded, but nothing can be made of it, as its error record."""

    record: bytes


class PartialValue(NamedTuple):
    """A value that leaves the columns `absent` as they are; the record is for no row."""

    columns: bytes
    absent: tuple[str, ...]
    record: bytes


class Everything(Enum):
    """What a truncate is about."""

    GONE = "gone"


GONE: Literal[Everything.GONE] = Everything.GONE


class Unseen(Enum):
    """An old value of which a message says only that there was one."""

    ANY = "any"


ANY: Literal[Unseen.ANY] = Unseen.ANY


# What has no key; no key is this.
NULL = b"no key"


class KeyedUpsert(NamedTuple):
    """What `key` is from `time` on: a value, nothing (None), or something unreadable.

    A key of None could not be read itself; all that is left of it is an error record.
    `before` is what the upsert claims that the value was.
    """

    key: bytes | None
    value: bytes | BadValue | FailedValue | PartialValue | Everything | None
    time: int
    before: bytes | Unseen | None = None


@dataclass
class Folded:
    """What a history has come to."""

    values: dict[bytes, bytes] = field(default_factory=dict)
    slots: dict[bytes, bytes] = field(default_factory=dict)
    keyless: Counter[bytes] = field(default_factory=Counter)
    drift: int = 0


def folded(upserts: Sequence[KeyedUpsert], as_of: int) -> Folded:
    """Every upsert up to a time, one after the other."""
    found = Folded()
    # sorted() is stable: upserts of one time stay in order.
    for upsert in sorted((s for s in upserts if s.time <= as_of), key=lambda s: s.time):
        _take(found, upsert)
    return found


def collection(upserts: Sequence[KeyedUpsert], as_of: int) -> Counter[tuple[bytes, bytes]]:
    """Each key with its value."""
    return Counter(folded(upserts, as_of).values.items())


def errors(upserts: Sequence[KeyedUpsert], as_of: int) -> Counter[bytes]:
    """The record of each key whose last upsert could not be used, and of unreadable keys."""
    found = folded(upserts, as_of)
    return found.keyless + Counter(found.slots.values())


def drift(upserts: Sequence[KeyedUpsert], as_of: int) -> int:
    """How many upserts claim an old value that was another one, or none."""
    return folded(upserts, as_of).drift


def times(upserts: Iterable[KeyedUpsert]) -> range:
    """Every time at which there is something to compare, and one on either side."""
    found = [upsert.time for upsert in upserts]
    return range(min(found, default=0) - 1, max(found, default=0) + 2)


def _take(found: Folded, upsert: KeyedUpsert) -> None:
    key, value, _, before = upsert
    if key is None:
        if isinstance(value, BadValue):
            found.keyless[value.record] += 1
        else:
            assert value is GONE
            found.values.clear()
            found.slots.clear()
        return
    current = found.values.get(key)
    if before is ANY:
        found.drift += current is None
    elif before is not None:
        found.drift += before not in (current, _with_nulls(current, value))
    found.slots.pop(key, None)
    match value:
        case BadValue(record):
            found.slots[key] = record
        case FailedValue(record):
            found.slots[key] = record
            found.values.pop(key, None)
        case PartialValue(_, _, record) if current is None:
            found.slots[key] = record
        case PartialValue(columns, absent, _):
            assert current is not None
            found.values[key] = _completed(columns, absent, current)
        case None:
            found.values.pop(key, None)
        case bytes():
            found.values[key] = value
        case _:
            raise AssertionError("only what has no key is everything")


def _with_nulls(current: bytes | None, value: object) -> bytes | None:
    """A row with nulls for the columns that only its next value has, which were added later.

    Without a next value that shows these, nulls do not count.
    """
    if current is None or current[:1] != b"{":
        return current
    row = json.loads(current)
    if not isinstance(value, bytes):
        row = {name: of for name, of in row.items() if of is not None}
    elif value[:1] == b"{":
        row = dict.fromkeys(json.loads(value)) | row
    return json.dumps(row, sort_keys=True, separators=(",", ":")).encode()


def _completed(columns: bytes, absent: Sequence[str], current: bytes) -> bytes:
    new, old = json.loads(columns), json.loads(current)
    known = old if isinstance(old, dict) else {}
    row = {**new, **{name: known[name] for name in absent if name in known}}
    return json.dumps(row, sort_keys=True, separators=(",", ":")).encode()
