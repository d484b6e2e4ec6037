"""Split the records of a diff topic into closed batches, by its progress.

Progress has the end offsets of each batch in every partition.  The records of a batch lie
between the ends of the batch before and its own.  A partition that older progress lacks was
added later and begins at 0.  If progress repeats a batch, its first record counts.


If the oldest progress records were deleted, progress begins in the middle.  The updates before
the end of its first batch are then that batch, recognised by its times, and a *history* for
which there are no counts.  This module asks no broker and verifies nothing; `verify` does.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from ikebana.codecs import diff
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import SINGLE_VALUE_FORMATS
from ikebana.codecs.progress import ProgressRecord
from ikebana.errors import SourceError

# Batches are read together up to this number, because each read of a range has a fixed cost.
_MOST_RECORDS = 2_000


class NoDiffError(SourceError):
    """A message has a time but no diff, so its format is not `diff`."""


class PlacedUpdate(NamedTuple):
    """An update (key, value), time, diff, with the partition and offset of its record."""

    key: bytes | None
    value: bytes
    time: int
    diff: int
    partition: int
    offset: int


class ClosedBatch(NamedTuple):
    """A batch and all of its updates, by time, partition and offset."""

    progress: ProgressRecord
    updates: list[PlacedUpdate]


class History(NamedTuple):
    """Some of the updates before the first batch that progress still names."""

    updates: list[PlacedUpdate]


Part = History | ClosedBatch


class Portion(NamedTuple):
    """Consecutive batches that are read together; `starts` has their first offsets."""

    batches: list[ProgressRecord]
    starts: dict[int, int]

    def ends(self) -> dict[int, int]:
        """Return the end offsets of the last batch, by partition."""
        return _advanced(self.starts, *self.batches)


def decode(
    topic: str,
    at: tuple[int, int],
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | str | None]] | None,
) -> PlacedUpdate:
    """Decode a record of a diff topic, which lies at (partition, offset).

    Raises:
        SourceError: the record is no update in the `diff` format.
    """
    try:
        time, change = diff.read_headers(headers)
        if value is None:
            raise DecodeError("diff record", "the value is null")
    except DecodeError as error:
        names = {name for name, _ in headers or ()}
        if "time" in names and "diff" not in names:
            raise NoDiffError(
                f"cannot read {topic}[{at[0]}]@{at[1]} as an update: it has a time and no diff, "
                f"as messages of outputs in {', '.join(SINGLE_VALUE_FORMATS)} have",
                hint="`ikebana follow` and `ikebana snapshot` read them with "
                f"{' or '.join(f'--format {form}' for form in SINGLE_VALUE_FORMATS)}, or with "
                "--pipeline FILE, which tells the format.",
            ) from None
        raise SourceError(
            f"cannot read {topic}[{at[0]}]@{at[1]} as an update: {error.reason}",
            hint="The topic has another format than diff (`ikebana snapshot --format` reads "
            "CDCv2), or something other than ikebana has written to it.",
        ) from None
    return PlacedUpdate(key, value, time, change, *at)


def without_repeats(
    records: Iterable[ProgressRecord], last: ProgressRecord | None
) -> Iterator[ProgressRecord]:
    """Drop each record that repeats its predecessor; `last` is the predecessor of the first.

    A repetition may have other ends, because it was made later.  A record with other facts about
    the same batch is kept, so that `verify` reports it.
    """
    for record in records:
        if last is None or _of(record) != _of(last):
            yield record
        last = record


def portions(
    records: Iterable[ProgressRecord],
    starts: Mapping[int, int],
    most: int,
    *,
    first_alone: bool = False,
) -> Iterator[Portion]:
    """Group batches into portions of about `most` offsets, but of at least one batch."""
    portion = Portion([], dict(starts))
    reached, size, alone = portion.starts, 0, first_alone
    for record in records:
        after = _advanced(reached, record)
        grown = sum(after.values()) - sum(reached.values())
        full = size + grown > most or len(portion.batches) >= _MOST_RECORDS or alone
        if portion.batches and full:
            yield portion
            portion, size, alone = Portion([], reached), 0, False
        portion.batches.append(record)
        reached, size = after, size + grown
    if portion.batches:
        yield portion


def split(portion: Portion, runs: Iterable[Sequence[PlacedUpdate]]) -> list[ClosedBatch]:
    """Assign each update of a portion to its batch.

    A run has updates of one partition, and runs of a partition follow each other, in order of
    offsets.
    """
    bounds: dict[int, list[int]] = {partition: [] for partition in sorted(portion.ends())}
    reached = portion.starts
    for record in portion.batches:
        reached = _advanced(reached, record)
        for partition, ends in bounds.items():
            ends.append(reached.get(partition, 0))
    by_partition: dict[int, list[list[PlacedUpdate]]] = {
        partition: [[] for _ in portion.batches] for partition in bounds
    }
    for run in runs:
        begin = 0
        while begin < len(run):
            first = run[begin]
            ends = bounds[first.partition]
            batch = bisect_right(ends, first.offset)
            end = bisect_left(run, ends[batch], begin, key=_offset)
            by_partition[first.partition][batch] += run[begin:end]
            begin = end
    result = []
    for batch, record in enumerate(portion.batches):
        held = list(chain.from_iterable(pieces[batch] for pieces in by_partition.values()))
        # The sort is stable: updates of a time stay in order of partition and offset.
        held.sort(key=_time)
        result.append(ClosedBatch(record, held))
    return result


def split_history(
    first: ProgressRecord, updates: Iterable[PlacedUpdate]
) -> tuple[History, list[PlacedUpdate]]:
    """Separate the updates before the first batch of a progress from those in the batch."""
    before: list[PlacedUpdate] = []
    within: list[PlacedUpdate] = []
    for update in updates:
        (before if update.time < first.lower else within).append(update)
    return History(before), within


def _advanced(reached: Mapping[int, int], *records: ProgressRecord) -> dict[int, int]:
    """Compute the greatest ends; `verify` reports ends that go back."""
    ends = dict(reached)
    for record in records:
        for partition, end in record.ends.items():
            ends[partition] = max(end, ends.get(partition, 0))
    return ends


def _of(record: ProgressRecord) -> tuple[object, ...]:
    return record.checkpoint, record.batch, record.lower, record.upper, record.count


_time = itemgetter(2)
_offset = itemgetter(5)
