"""Single value: find keys of an output with several rows, for formats that allow only one.

A key is *right* if it has no row, or one row with the count 1.  Any other key has an error
record, which is retracted when the key becomes right again.  A row without a key is an error
record as long as it exists, as often as its count says.

The store has an entry for each key: the value that readers of the `upsert` topic have, which
is the row of a right key.  Rows of other keys have separate entries with counts, so
that a change reads only the rows that it changes.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from ikebana.arrangements.store import PrefixStore, Store
from ikebana.codecs.errors import error_record
from ikebana.codecs.output_messages import changed
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels.layout import (
    KEY_IS_REST,
    KEY_WITH_LENGTH,
    PartKind,
    StateLayout,
    with_length,
)

NO_KEY_REASON = "there is no key"
MANY_REASON = "the key has more than one value"
COUNT_REASON = "a value of the key is not there once"


class KeyChange(NamedTuple):
    """How the updates of a time change a key.

    `before` and `after` are the values that readers of upserts hold; None is no value.  With
    `empty` the key has no rows any more.
    """

    time: int
    key: bytes
    before: bytes | None
    after: bytes | None
    empty: bool


class KeyChanges(NamedTuple):
    """The changes of keys, in order of time and key, and updates of error records."""

    keys: list[KeyChange]
    errors: list[KeyedUpdate]


def step(
    store: Store, updates: Sequence[KeyedUpdate], output: str, *, keyless: bool = False
) -> KeyChanges:
    """Apply the updates of closed times; those without a key are errors unless `keyless`."""
    keys, rows = PrefixStore(store, _KEY), PrefixStore(store, _ROW)
    changed_keys = list({update.key: None for update in updates if update.key is not None})
    stored = dict(zip(changed_keys, keys.get_many(changed_keys), strict=True))
    entries = {key: _NOTHING if e is None else _entry_of(e) for key, e in stored.items()}
    changes = KeyChanges([], [])
    for time, key, diffs in changed(updates):
        if key is None:
            if not keyless:
                record = _record(output, NO_KEY_REASON, None)
                changes.errors.extend(KeyedUpdate(None, record, time, d) for d in diffs.values())
            continue
        before = entries[key]
        after = entries[key] = _applied(rows, key, before, diffs, output)
        changes.keys.append(KeyChange(time, key, before.value, after.value, after == _NOTHING))
        if before.record != after.record:
            slots = ((before.record, -1), (after.record, 1))
            changes.errors.extend(KeyedUpdate(None, r, time, d) for r, d in slots if r is not None)
    for key, entry in entries.items():
        if entry == _NOTHING:
            if stored[key] is not None:
                keys.delete(key)
        elif (now := _encode(entry)) != stored[key]:
            keys.put(key, now)
    return changes


_KEY, _ROW = b"k", b"r"
PART = PartKind("shown ", StateLayout({_KEY: KEY_IS_REST, _ROW: KEY_WITH_LENGTH}))
# A row's place is length of the key + key + digest of the row, since rows may be long.
_DIGEST_BYTES = 16
# An entry of a row is its count in digits, this, and the row.
_END = b"\n"


class _Entry(msgspec.Struct, array_like=True, frozen=True):
    """The value that readers hold, and the error record of a key that is not right.

    `rows` is the number of different rows that are stored apart; 0 for a right key.  `digests` is
    the exclusive or of their digests: with a single row left, it is the digest of that row.
    """

    value: bytes | None = None
    record: bytes | None = None
    rows: int = 0
    digests: bytes = bytes(_DIGEST_BYTES)


_NOTHING = _Entry()
_encode = msgspec.msgpack.encode
_entry_of = msgspec.msgpack.Decoder(_Entry).decode


def _applied(
    rows: PrefixStore, key: bytes, before: _Entry, diffs: Mapping[bytes, int], output: str
) -> _Entry:
    """The entry of a key after the diffs of one time."""
    start = with_length(key)
    number, digests = before.rows, int.from_bytes(before.digests, "big")
    changes = dict(diffs)
    if before.record is None:
        if before.value is not None:
            changes[before.value] = changes.get(before.value, 0) + 1
        changes = {row: count for row, count in changes.items() if count}
        if not changes:
            return _NOTHING
        if list(changes.values()) == [1]:
            return _Entry(next(iter(changes)))
    by_digest = {_digest(row): row for row in changes}
    stored = rows.get_many([start + digest for digest in by_digest])
    for (digest, row), entry in zip(by_digest.items(), stored, strict=True):
        was = 0 if entry is None else int(entry.partition(_END)[0])
        if count := was + changes[row]:
            rows.put(start + digest, b"%d" % count + _END + row)
        else:
            rows.delete(start + digest)
        if bool(count) != bool(was):
            number += 1 if count else -1
            digests ^= int.from_bytes(digest, "big")
    if number == 0:
        return _NOTHING
    packed = digests.to_bytes(_DIGEST_BYTES, "big")
    if number == 1:
        (entry,) = rows.get_many([start + packed])
        assert entry is not None, "the last row of a key is not there"
        count_of, _, row = entry.partition(_END)
        if count_of == b"1":
            rows.delete(start + packed)
            return _Entry(row)
    reason = MANY_REASON if number > 1 else COUNT_REASON
    return _Entry(before.value, _record(output, reason, key), number, packed)


def _record(output: str, reason: str, key: bytes | None) -> bytes:
    return error_record(f"output {output}: {reason}", None, key, None)


def _digest(row: bytes) -> bytes:
    return blake2b(row, digest_size=_DIGEST_BYTES).digest()
