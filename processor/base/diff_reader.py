"""Read outputs back, as diffs or as CDCv2, in batches whose times are complete.

Progress of a diff topic has the end offsets of each batch in every partition.  The records of a
batch lie between the ends of the batch before and its own.  A partition that older progress lacks
was added later and begins at 0.  If progress repeats a batch, its first record counts.  If the
oldest progress records were deleted, progress begins in the middle.  The updates before the end of
its first batch are then that batch, recognised by its times, and a *history* for which there are
no counts.  Nothing here asks a broker or verifies; `verify` does.

Facts of CDCv2 come repeatedly and in any order.  A time is published when progress reaches beyond
it without a gap and all counted updates of it and of all earlier times have come.  The published
updates depend on the facts alone, never on their order.  Memory is bounded by the unpublished
facts: the reader forgets the facts of published times, and recognises their repetitions by the
frontier.  So it ignores contradictions that come too late; two facts that contradict each other
are an error only while one of them is still known.

Times are of the clock, in milliseconds, or offsets: numbers of records (`time: offset`) and
positions in a source's log.  Times of both kinds have no order that means anything, so nothing can
be read as of a time of both.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from ikebana.codecs import diff
from ikebana.codecs.cdcv2 import Cdcv2Message, Fact, Progress, UpdateFacts
from ikebana.codecs.diff import ProgressRecord, Times
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import SINGLE_VALUE_FORMATS
from ikebana.errors import IkebanaError, SourceError
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.texts import EPOCH_MS

# A clock says less than this in the first three years after 1970 only.
_OFFSETS = range(1, 10**11)
_HINT = (
    "Read the ones and the others by themselves. Pipelines with the same `time` (ingest or "
    "offset) have times of one kind."
)


class ContradictionError(IkebanaError):
    """Facts of a CDCv2 topic contradict each other."""

    def __init__(self, time: int, problem: str) -> None:
        super().__init__(
            f"cannot read CDCv2 updates of time {time}: {problem}",
            hint="More than one pipeline, or something else, has written to the topic.",
        )
        self.time = time


class Published(NamedTuple):
    """All updates of the times from the previous `upper` (included) to `upper` (excluded)."""

    upper: int
    updates: list[KeyedUpdate]


class Cdcv2Reader:
    """Publishes complete times from `lower` on, and ignores all facts about earlier times.

    It cannot be used after a `ContradictionError`.
    """

    def __init__(self, lower: int = 0) -> None:
        # _published <= _covered.  All times before _published have been published, and the
        # counts of all times before _covered are known.
        self._published = lower
        self._covered = lower
        self._held: dict[int, dict[tuple[bytes | None, bytes], int]] = {}
        # Times of held updates whose counts are not known yet.
        self._uncounted: list[int] = []
        # Counts of covered times that are not published yet; _times has its keys in order.
        self._counts: dict[int, int] = {}
        self._times: list[int] = []
        # Statements that begin beyond a gap, and a heap of their intervals.
        self._early: dict[tuple[int, int], Progress] = {}
        self._intervals: list[tuple[int, int]] = []

    @property
    def upper(self) -> int:
        """The frontier of the published times; a new reader may continue from it."""
        return self._published

    @property
    def is_level(self) -> bool:
        """Whether nothing is held back: all facts that it was fed are published."""
        return not (self._held or self._early or self._times) and self._published == self._covered

    def feed(self, message: Cdcv2Message) -> None:
        """Add the facts of a message.

        Raises:
            ContradictionError: they contradict other facts.
        """
        match message:
            case UpdateFacts(updates):
                for update in updates:
                    self._hold(update)
            case Progress():
                self._queue(message)
                while self._intervals and self._intervals[0][0] <= self._covered:
                    self._accept(self._early.pop(heappop(self._intervals)))

    def take(self) -> list[Published]:
        """Publish the complete times, in order, each time with updates separately.

        Updates of a time are in order of key and value.  The last `upper` is the frontier;
        the result is empty if the frontier has not moved.
        """
        done = 0
        for time in self._times:
            if len(self._held.get(time, ())) < self._counts[time]:
                break
            done += 1
        frontier = self._times[done] if done < len(self._times) else self._covered
        if frontier == self._published:
            return []
        published = [self._forget(time) for time in self._times[:done]]
        del self._times[:done]
        self._published = frontier
        if not published:
            return [Published(frontier, [])]
        # No more updates can come between the last time and the frontier.
        return [*published[:-1], published[-1]._replace(upper=frontier)]

    def _hold(self, update: Fact) -> None:
        key, value, time, diff = update
        if time < self._published:
            return
        held = self._held.get(time)
        if held is None:
            held = self._held[time] = {}
            if time >= self._covered:
                heappush(self._uncounted, time)
        if held.setdefault((key, value), diff) != diff:
            raise ContradictionError(time, "one of them comes with two diffs")
        if time < self._covered:
            self._check(time, held)

    def _queue(self, progress: Progress) -> None:
        lower, upper = interval = progress.lower, progress.upper
        if (earlier := self._early.get(interval)) is not None:
            self._compare(progress, earlier, lower, upper)
            return
        self._early[interval] = progress
        heappush(self._intervals, interval)

    def _accept(self, progress: Progress) -> None:
        """Add the counts of a statement that begins within the covered times."""
        covered, upper, counts = self._covered, progress.upper, progress.counts
        self._compare_to_covered(progress)
        if upper <= covered:
            return
        times = sorted(time for time in counts if time >= covered)
        self._times += times
        self._counts.update((time, counts[time]) for time in times)
        self._covered = upper
        while self._uncounted and self._uncounted[0] < upper:
            time = heappop(self._uncounted)
            self._check(time, self._held[time])

    def _compare_to_covered(self, progress: Progress) -> None:
        lower = max(progress.lower, self._published)
        upper = min(progress.upper, self._covered)
        begin, end = bisect_left(self._times, lower), bisect_left(self._times, upper)
        counts = {time: self._counts[time] for time in self._times[begin:end]}
        self._compare(progress, Progress(lower, upper, counts), lower, upper)

    def _compare(self, one: Progress, other: Progress, lower: int, upper: int) -> None:
        for time in one.counts.keys() | other.counts.keys():
            if lower <= time < upper and one.counts.get(time, 0) != other.counts.get(time, 0):
                raise ContradictionError(time, "progress gives two counts of them")

    def _check(self, time: int, held: dict[tuple[bytes | None, bytes], int]) -> None:
        counted = self._counts.get(time, 0)
        if len(held) > counted:
            raise ContradictionError(time, f"there are {len(held)}, and progress counts {counted}")

    def _forget(self, time: int) -> Published:
        held = self._held.pop(time)
        del self._counts[time]
        updates = [KeyedUpdate(key, value, time, diff) for (key, value), diff in held.items()]
        return Published(time + 1, sorted(updates, key=_by_data))


def _by_data(update: KeyedUpdate) -> tuple[bool, bytes, bytes]:
    return update.key is not None, update.key or b"", update.value


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


class EarlierUpdates(NamedTuple):
    """Some of the updates before the first batch that progress still names."""

    updates: list[PlacedUpdate]


TopicPart = EarlierUpdates | ClosedBatch


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
) -> tuple[EarlierUpdates, list[PlacedUpdate]]:
    """Separate the updates before the first batch of a progress from those in the batch."""
    before: list[PlacedUpdate] = []
    within: list[PlacedUpdate] = []
    for update in updates:
        (before if update.time < first.lower else within).append(update)
    return EarlierUpdates(before), within


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


class MixedTimesError(IkebanaError):
    """Collections with times of different kinds are to be read together."""


def kind_of(recorded: Times | None, upper: int) -> Times | None:
    """The kind of a collection's times, as recorded, else by its frontier; None if unknown.

    Versions that recorded nothing leave only the frontier's magnitude.

    >>> kind_of("offset", 10**12), kind_of(None, 1_700_000_000_500), kind_of(None, 3)
    ('offset', 'clock', 'offset')
    """
    if recorded is not None:
        return recorded
    return "clock" if upper in EPOCH_MS else "offset" if upper in _OFFSETS else None


def mixed(kinds: Mapping[str, Times | None]) -> str | None:
    """Say why collections cannot be read together, by their names; None if they can.

    >>> mixed({"cities": "clock", "places": "offset", "empty": None})
    'times of offset and of clock cannot be read together: offset of "places", clock of "cities"'
    """
    offsets, clocks = (
        " and ".join(f'"{name}"' for name, kind in kinds.items() if kind == times)
        for times in ("offset", "clock")
    )
    if not offsets or not clocks:
        return None
    return (
        "times of offset and of clock cannot be read together: "
        f"offset of {offsets}, clock of {clocks}"
    )


def refuse_mixed(kinds: Mapping[str, Times | None]) -> None:
    """Refuse to read collections together.  Raises: MixedTimesError."""
    if (words := mixed(kinds)) is not None:
        raise MixedTimesError(words, hint=_HINT)
