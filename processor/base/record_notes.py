"""The places of a few records that a batch has counted, so that people can look at the records.

Records of four kinds are noted: `late` records, `drift` (an old image that differs from the
state), records that are `outdated` by their sequence, and records that made an `error`.  A note
has places in Kafka, and no data of records.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

MOST = 5
"""The number of records of a kind and input that a batch notes."""
_REASON = 200

NotedKind = Literal["late", "drift", "outdated", "error"]
# A topic, a partition and an offset.
MessagePlace = tuple[str, int, int]


class NotedRecord(msgspec.Struct, array_like=True, frozen=True):
    """A record by its place.

    `late_by` is how far its time is behind the frontier, in units of time; None if it is not late.
    `reason` is the reason of an error, without any of the record's data.
    """

    topic: str
    partition: int
    offset: int
    late_by: int | None = None
    reason: str = ""

    @property
    def place(self) -> MessagePlace:
        """The place of the record."""
        return self.topic, self.partition, self.offset


class Noted(msgspec.Struct, array_like=True, frozen=True):
    """How many records of a kind a batch has read of an input, and the last of them.

    `input` is empty for errors: their records have the input themselves.
    """

    kind: NotedKind
    input: str
    count: int
    records: tuple[NotedRecord, ...] = ()


def merged(noted: Iterable[Noted]) -> list[Noted]:
    """Add up the notes of each kind and input, and keep the last records of each.

    >>> one = Noted("late", "orders", 2, (NotedRecord("o", 0, 7, 40),))
    >>> [both] = merged([one, Noted("late", "orders", 1)])
    >>> both.count, [record.offset for record in both.records]
    (3, [7])
    """
    by_kind: dict[tuple[NotedKind, str], Noted] = {}
    for each in noted:
        name = each.kind, each.input
        before = by_kind.get(name, Noted(*name, 0))
        records = (*before.records, *each.records)[-MOST:]
        by_kind[name] = Noted(*name, before.count + each.count, records)
    return list(by_kind.values())


def errors_noted(count: int, last: Sequence[tuple[MessagePlace | None, str]]) -> Noted:
    """Note errors; `last` has the places of the last ones, if they are known, and reasons."""
    records = tuple(
        NotedRecord(*place, reason=reason[:_REASON]) for place, reason in last if place is not None
    )
    return Noted("error", "", count, records)
