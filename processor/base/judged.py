"""Offsets of records that were late or too far ahead, and the time they got instead."""

import msgspec


class Judged(msgspec.Struct, array_like=True, frozen=True):
    """The bounds by which a batch judged the offsets `first` to `last` of a partition.

    Records with earlier times than `lower`, and records without a time, counted at `lower`.
    Records with later times than `latest` were too far ahead of the clock; None: no record was.
    """

    first: int
    last: int
    lower: int
    latest: int | None = None
