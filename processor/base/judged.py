"""Records that did not simply get the event times that they have."""

import msgspec


class Judged(msgspec.Struct, array_like=True, frozen=True):
    """The offsets `first` to `last` of a partition, as the batch that read them judged them.

    Records of earlier times than `lower`, and those without a time, counted at `lower`.  Those of
    later times than `latest` were too far ahead of the clock; None: no record was.
    """

    first: int
    last: int
    lower: int
    latest: int | None = None
