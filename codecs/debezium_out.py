"""Encode updates as Debezium's envelopes in JSON: one for each change of a row, without a schema.

The updates of a time and key are consolidated, and written so:

* one row retracted and one inserted: an update (`u`) with both;
* otherwise a delete (`d`) for each retraction, then a create (`c`) for each insertion.  A row
  that is inserted three times is three messages, and rows without a key are never paired.

So a changed key is a `d` of the old key and a `c` of the new one.  Messages are ordered by time,
key, and row.  After the last `d` of a key without rows a tombstone may follow, for compacted
topics.  Rows must be JSON objects: updates of a key with any other value are a violation.  So
are more than `MOST_MESSAGES` changes of a key at a time, because a diff may be any number of 64
bits.

No clock is read: `ts_ms` and `source.ts_ms` are the logical time, which is in
milliseconds in the `ingest` domain and a count in the `offset` domain.

Form: https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-create-events
"""

from collections.abc import Callable, Container, Iterable, Iterator
from typing import NamedTuple

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.cdcv2 import Fact
from ikebana.codecs.diff import time_header
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.output_messages import OutputMessage, Violation, changed

CONNECTOR = "ikebana"
MOST_MESSAGES = 10_000
"""The greatest number of messages for a time and key; a transaction has to carry them."""


class EnvelopeOrigin(NamedTuple):
    """The contents of `source` in every message, and whether tombstones follow deletes.

    `name` (in Debezium, the topic prefix) and `db` are the pipeline; `table` is the output.
    """

    pipeline: str
    output: str
    tombstones: bool = True


def to_envelopes(
    updates: Iterable[Fact],
    origin: EnvelopeOrigin,
    empty: Container[tuple[int, bytes]] | None = None,
) -> tuple[list[OutputMessage], list[Violation]]:
    """Write the updates of closed times as envelopes, in order of time and key.

    All updates of a time and key must come in one call.  `empty` has the (time, key) pairs after
    which the key has no rows.  If it is None, a key has at most one row, and the updates alone
    show this.

    >>> messages, _ = to_envelopes([(b'{"id":1}', b'{"n":2}', 7, 1)], EnvelopeOrigin("p", "o"))
    >>> messages[0].value
    b'{"before":null,"after":{"n":2},"source":{"connector":"ikebana","name":"p","ts_ms":7,"db":"p","table":"o"},"op":"c","ts_ms":7}'
    """
    messages: list[OutputMessage] = []
    violations: list[Violation] = []
    name, table = canonical.encode(origin.pipeline), canonical.encode(origin.output)
    for time, key, diffs in changed(updates):
        # The first byte of the canonical bytes shows whether this is an object.
        if not all(row.startswith(b"{") for row in diffs):
            violations.append(Violation(key, time, "a value is no JSON object"))
            continue
        if sum(map(abs, diffs.values())) > MOST_MESSAGES:
            violations.append(Violation(key, time, _TOO_MANY))
            continue
        tail = _TAIL % (CONNECTOR.encode(), name, time, name, table)
        headers = [time_header(time)]
        for before, after, op in _changes(key, diffs):
            value = _ENVELOPE % (before or b"null", after or b"null", tail, op, time)
            messages.append(OutputMessage(key, value, headers))
        if key is None or not origin.tombstones:
            continue
        if max(diffs.values()) < 0 if empty is None else (time, key) in empty:
            messages.append(OutputMessage(key, None, headers))
    return messages, violations


write = to_envelopes


def reader() -> Callable[[bytes | None, bytes | None], list[tuple[bytes, int]]]:
    """Read envelopes back: each has the retracted and the inserted row."""
    return _rows_of


def _rows_of(_: bytes | None, value: bytes | None) -> list[tuple[bytes, int]]:
    if value is None:
        # A tombstone repeats the delete before it.
        return []
    try:
        envelope = _decode(value)
    except msgspec.MsgspecError:
        raise DecodeError("envelope", "it is no envelope of Debezium's") from None
    sides = (envelope.before, -1), (envelope.after, 1)
    return [
        (canonical.canonical(bytes(row)), count) for row, count in sides if bytes(row) != b"null"
    ]


class _Envelope(msgspec.Struct):
    op: str
    before: msgspec.Raw = msgspec.Raw(b"null")
    after: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(_Envelope).decode
_TOO_MANY = f"rows come and go more than {MOST_MESSAGES} times at once; a diff topic has counts"
_TAIL = b'{"connector":"%b","name":%b,"ts_ms":%d,"db":%b,"table":%b}'
_ENVELOPE = b'{"before":%b,"after":%b,"source":%b,"op":"%b","ts_ms":%d}'


def _changes(
    key: bytes | None, diffs: dict[bytes, int]
) -> Iterator[tuple[bytes | None, bytes | None, bytes]]:
    """Yield `before`, `after` and `op` of each message."""
    rows = sorted(diffs)
    gone = [row for row in rows for _ in range(-diffs[row])]
    come = [row for row in rows for _ in range(diffs[row])]
    if key is not None and len(gone) == len(come) == 1:
        yield gone[0], come[0], b"u"
        return
    for row in gone:
        yield row, None, b"d"
    for row in come:
        yield None, row, b"c"
