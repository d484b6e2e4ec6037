"""A local as-of join: followed batches, joined with a served collection.

Each update of the left is joined with the values of its key in the collection at the update's
own time, as by an `as_of_join` of a pipeline with `retract: current`: a later retraction is
joined with the values of its own time.  The right is looked up, so a service needs no state but
its token.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from ikebana.serving.aligned import AlignedBatch, TopicUpdate
from ikebana.serving.reads import Reads


class JoinedUpdate(NamedTuple):
    """An update of the left with a value of the right; `right` is None if there was none.

    Its diff is the product of the update's and the value's count.
    """

    left: TopicUpdate
    right: bytes | None
    diff: int


class JoinedBatch(NamedTuple):
    """The join of an aligned batch; `token` resumes after it."""

    lower: int
    upper: int
    updates: list[JoinedUpdate]
    token: str


def as_of_join(
    left: Iterable[AlignedBatch],
    served: Reads,
    collection: str,
    on: Callable[[TopicUpdate], bytes],
    *,
    at: str = "alt",
    outer: bool = False,
    timeout: float = 60.0,
) -> Iterator[JoinedBatch]:
    """Join followed batches with a collection, by the key that `on` returns.

    With `at="alt"` an update sees values of its own time, with `"neu"` only earlier ones.  An
    `outer` join has the updates without a value, too.  A batch waits for at most `timeout` seconds
    until its times are closed in the collection.

    Raises:
        WaitedError: they were not closed by then.
        UnreadableTimeError: the history of a time is gone: let the server retain more.
    """
    assert at in ("alt", "neu"), f"at is alt or neu, and not {at}"
    back = 0 if at == "alt" else 1
    for batch in left:
        joined: list[JoinedUpdate] = []
        if batch.updates:
            served.wait(batch.updates[-1].time - back, collection, timeout=timeout)
            for time, updates in groupby(batch.updates, _time):
                joined += _joined(list(updates), served, collection, on, time - back, outer=outer)
        yield JoinedBatch(batch.lower, batch.upper, joined, batch.token)


def _joined(
    updates: Sequence[TopicUpdate],
    served: Reads,
    collection: str,
    on: Callable[[TopicUpdate], bytes],
    as_of: int,
    *,
    outer: bool,
) -> Iterator[JoinedUpdate]:
    keys = [on(update) for update in updates]
    distinct = list(dict.fromkeys(keys))
    states = dict(zip(distinct, served.get_many(collection, distinct, as_of=as_of), strict=True))
    for update, key in zip(updates, keys, strict=True):
        values = states[key]
        if not values and outer:
            yield JoinedUpdate(update, None, update.diff)
        for value, count in values.items():
            yield JoinedUpdate(update, value, update.diff * count)


_time = attrgetter("time")
