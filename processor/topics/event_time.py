"""Event time: the times of an input's records, and the frontier that follows from them.

The frontier is the greatest time seen in each partition, of these the least, minus the
lateness.  It is computed from earlier batches, because the interval of a batch has to be known
before the batch is read.  Idle partitions do not count, as long as any partition is not idle.

If an input uses all messages of its topics, a partition is idle when it has had nothing to read
for `idle`.  If it uses only some of them, because other inputs read the topic too or `tables`
selects, other messages may come all the time.  Then a partition is idle when, for `idle`, no
message that arrived in it belonged to the input.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ikebana.processor.base.offsets import Offsets, offset_in
from ikebana.processor.base.rows import MOST_NOTED, Judged, TimesReport
from ikebana.processor.planning.plan import EventTime, Input, Plan

if TYPE_CHECKING:
    from ikebana.processor.linear.query import Query


_NULL = "event time is null"
# By topic, by partition.
Greatest = Mapping[str, Mapping[int, int]]
# A partition: its topic and its number.
Where = tuple[str, int]


def merged(greatest: Greatest, seen: Greatest) -> dict[str, dict[int, int]]:
    """Merge greatest times: for each partition the greater of both."""
    result = {topic: dict(by) for topic, by in greatest.items()}
    for topic, by in seen.items():
        of_topic = result.setdefault(topic, {})
        for partition, time in by.items():
            of_topic[partition] = max(time, of_topic.get(partition, time))
    return result


def frontier(
    event: EventTime,
    partitions: Sequence[Where],
    greatest: Greatest,
    idle: Set[Where],
    before: int,
) -> int:
    """Compute the frontier of an input from the greatest times seen.

    `partitions` are all partitions of the input, and `before` is its frontier so far.  The
    frontier stays there if a partition that is not idle has had no time yet, or if no partition
    has had one.
    """
    times = {where: greatest.get(where[0], {}).get(where[1]) for where in partitions}
    active = [time for where, time in times.items() if where not in idle]
    seen_times = [time for time in times.values() if time is not None]
    if not seen_times or None in active:
        return before
    reached = min((time for time in active if time is not None), default=max(seen_times))
    return max(before, reached - event.lateness_ms)


class TimeBounds(NamedTuple):
    """Earlier times than `lower` count there, later ones than `latest` are none."""

    lower: int
    latest: int | None


class Dating(NamedTuple):
    """The bounds of a batch's event times: its lower, and the latest time that it accepts.

    `judged` has other bounds for some offsets of an input that is read again.
    """

    lower: int
    latest: int | None
    judged: Sequence[Judged] = ()

    def of(self, offsets: Sequence[int]) -> list[TimeBounds]:
        """The bounds for each of the messages at these offsets."""
        if not self.judged:
            return [TimeBounds(self.lower, self.latest)] * len(offsets)
        return [self._at(offset) for offset in offsets]

    def _at(self, offset: int) -> TimeBounds:
        place = bisect_right(self.judged, offset, key=attrgetter("first")) - 1
        if place >= 0 and offset <= (judged := self.judged[place]).last:
            return TimeBounds(judged.lower, judged.latest)
        return TimeBounds(self.lower, self.latest)


class Dated(NamedTuple):
    """The time of each row, or the reason that it has none.

    `late` is the number of late rows, `greatest` the greatest event time.  `ahead` are the
    indexes of rows that are too far ahead of the clock, and `latecomers` the last late rows, each
    as its index and how far it lies behind.
    """

    times: list[int | str]
    late: int = 0
    greatest: int | None = None
    ahead: Sequence[int] = ()
    latecomers: Sequence[tuple[int, int]] = ()


class EventTimes:
    """Computes the event times of an input's rows, each from that row alone.

    `query` computes them from the rows; without it they are the timestamps of the messages.
    """

    def __init__(self, query: "Query | None") -> None:
        self._query = query

    @property
    def of_columns(self) -> bool:
        """Whether event times come from columns, so that an undecodable row has none."""
        return self._query is not None

    def of_rows(
        self,
        keys: Sequence[bytes | None],
        rows: Sequence[bytes | None],
        clocks: Sequence[int | None],
        bounds: Sequence[TimeBounds],
    ) -> Dated:
        """Compute the times of rows within their bounds; `clocks` are their messages' timestamps.

        A row is None for a tombstone, which has no columns.  Its time is the timestamp of its
        message, and does not move the frontier.
        """
        stamps: list[int | str | None] = list(clocks)
        counting = [True] * len(rows)
        if self._query is not None:
            which: Sequence[int] = range(len(rows))
            if None in rows:
                which = [at for at, row in enumerate(rows) if row is not None]
                counting = [row is not None for row in rows]
                keys, rows = [keys[at] for at in which], [rows[at] for at in which]
            for at in which:
                stamps[at] = _NULL
            result, failed = self._query.run(keys, rows)  # type: ignore[arg-type]
            for index, begin in zip(result.rows, result.begins or (), strict=True):
                stamps[which[index]] = _NULL if begin is None else begin
            for index, _, reason in failed:
                stamps[which[index]] = f"event time: {reason}"
        return self._placed(stamps, counting, bounds)

    def _placed(
        self,
        stamps: Sequence[int | str | None],
        counting: Sequence[bool],
        bounds: Sequence[TimeBounds],
    ) -> Dated:
        if (all_fine := _all_within(stamps, counting, bounds)) is not None:
            return all_fine
        times: list[int | str] = []
        ahead: list[int] = []
        late, greatest = 0, None
        for at, (time, counts, (lower, latest)) in enumerate(
            zip(stamps, counting, bounds, strict=True)
        ):
            if time is None:
                times.append("event time: the message has none")
            elif isinstance(time, str):
                times.append(time)
            elif counts and latest is not None and time > latest:
                times.append("event time is too far ahead of the clock")
                ahead.append(at)
            else:
                late += time < lower
                times.append(max(time, lower))
                if counts and (greatest is None or time > greatest):
                    greatest = time
        return Dated(times, late, greatest, ahead, _latecomers(stamps, bounds) if late else ())


def _all_within(
    stamps: Sequence[int | str | None], counting: Sequence[bool], bounds: Sequence[TimeBounds]
) -> Dated | None:
    """The times of rows if all are within the same bounds, as in nearly every batch; else None."""
    if not stamps or {*map(type, stamps)} != {int} or not all(counting):
        return None
    lower, latest = bounds[0]
    times: list[int | str] = list(stamps)  # type: ignore[arg-type]
    least, greatest = min(stamps), max(stamps)  # type: ignore[type-var]
    assert isinstance(least, int)
    assert isinstance(greatest, int)
    if least < lower or (latest is not None and greatest > latest):
        return None
    # All messages that are read for the first time have the same bounds.
    if bounds.count(bounds[0]) < len(bounds):
        return None
    return Dated(times, 0, greatest)


def _latecomers(
    stamps: Sequence[int | str | None], bounds: Sequence[TimeBounds]
) -> list[tuple[int, int]]:
    """Find the last rows whose times lie before their lower bounds, and how far."""
    late = (
        (at, bounds[at].lower - time)
        for at in range(len(stamps) - 1, -1, -1)
        if isinstance(time := stamps[at], int) and time < bounds[at].lower
    )
    return list(islice(late, MOST_NOTED))[::-1]


class _Checked(NamedTuple):
    """The end of a partition at a `moment`; all that arrived before `read` has been read."""

    end: int
    moment: float
    read: float | None


class Silence:
    """Remembers since when each partition has been without records; moments are in seconds."""

    def __init__(self, plan: Plan) -> None:
        self._patient = [
            source
            for source in plan.inputs
            if source.event_time is not None and source.event_time.idle_ms is not None
        ]
        self._choosy = {
            source.name
            for source in self._patient
            if source.tables is not None or plan.shares_topics(source)
        }
        self._unchanged: dict[Where, tuple[int, float]] = {}
        self._checked: dict[Where, _Checked] = {}
        self._heard: dict[tuple[str, Where], float] = {}
        self._batch: int | None = None

    def learn(self, batch: int, seen: Iterable[TimesReport], moment: float) -> None:
        """Take the reports of a batch on times; a repeated call for the batch does nothing."""
        if batch == self._batch:
            return
        self._batch = batch
        for one in seen:
            if one.greatest is not None:
                self._heard[one.input, (one.topic, one.partition)] = moment

    def idle(
        self, positions: Offsets, ends: Offsets, moment: float
    ) -> dict[str, frozenset[Where]]:
        """Find the idle partitions of each input.

        Topics end at `ends` at this moment, and have been read up to `positions`.
        """
        for where, end in _partitions(self._patient, ends):
            if where not in self._unchanged or self._unchanged[where][0] != end:
                self._unchanged[where] = end, moment
            at = offset_in(*where, positions)
            self._checked[where] = _checked(self._checked.get(where), at, end, moment)
        return {
            source.name: frozenset(
                where
                for where, end in _partitions([source], ends)
                if self._is_idle(source, where, moment, read=offset_in(*where, positions) >= end)
            )
            for source in self._patient
        }

    def _is_idle(self, source: Input, where: Where, moment: float, *, read: bool) -> bool:
        event = source.event_time
        assert event is not None
        assert event.idle_ms is not None
        until: float | None
        if source.name in self._choosy:
            since = self._heard.setdefault((source.name, where), moment)
            until = self._checked[where].read
        else:
            since = self._unchanged[where][1]
            until = moment if read else None
        return until is not None and (until - since) * 1000 >= event.idle_ms


def _partitions(sources: Iterable[Input], ends: Offsets) -> Iterator[tuple[Where, int]]:
    """Yield each partition of the inputs once, with its end."""
    for topic in dict.fromkeys(topic for source in sources for topic in source.topics):
        for partition, end in ends.get(topic, {}).items():
            yield (topic, partition), end


def _checked(before: _Checked | None, position: int, end: int, moment: float) -> _Checked:
    if position >= end:
        return _Checked(end, moment, moment)
    if before is None:
        return _Checked(end, moment, None)
    # All up to the earlier end has been read, so all that arrived before its moment.
    return _Checked(end, moment, before.moment) if position >= before.end else before
