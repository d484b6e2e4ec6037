"""Which offsets a batch reads, how many and when, and up to which time it goes.

There are three ways to make times; `timed` has the first two, `dated` the third.

* ingest: all records of a batch have the time `upper - 1`, in milliseconds.  A batch lasts at
  least one millisecond, and time never goes back with the clock.
* offset: a record's time is `lower` + its rank in the batch by (input, partition, offset), so
  every change is visible; `upper` is `lower` + the number of offsets.  A record that several
  inputs read has one time in all of them, and is ranked as a record of the first.
* dated: used if any input has times of its own.  `upper` is the least frontier of these inputs
  (`reach`).  An input is silent if all of its partitions are idle; a silent input does not count
  as long as another input is not silent.  When all are silent, everything that has been read is
  closed: the frontier lies just beyond the greatest time seen.  A collection that is closed for
  ever does not count either, and does not make others wait.  Inputs with event times are read
  as records arrive, and updates at or beyond `upper` are held in the shards.  Records of all other
  inputs have the time `upper - 1`, and are not read while the interval is empty.

A diff topic is read up to the time that its progress has closed.  Several diff topics are read
up to the least of their frontiers, so that our batch has, of each, exactly the updates of its
own interval.  If our frontier lies within a batch of a topic, two of our batches read that
batch, and each keeps the updates of its own interval.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from ikebana.codecs.diff import ProgressRecord
from ikebana.processor.base.offsets import Offsets, Positions, count_between, offset_in, portion
from ikebana.processor.base.transition import NOTHING_REPLAYED, ReadBackSpan, Replayed
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.input_times import InputTimes, key_of
from ikebana.processor.topics.source_offset import SourceOffset, is_settled

LAST_TIME = (1 << 63) - 1

# The time from which other inputs go on when the dated ones are closed for ever.
_AFTER_ALL = 1 << 62


class ClosedProgress(NamedTuple):
    """A progress record, and the offset after it in its topic."""

    record: ProgressRecord
    after: int


class DiffSpan(NamedTuple):
    """The offsets that a batch reads of a diff topic: from its own positions up to `reads`.

    The next batch begins to read updates at `positions`, and progress at `progress_at`; both
    are None if the batch does not move them.
    """

    reads: dict[int, int]
    positions: dict[int, int] | None
    progress_at: int | None


class InputsState(msgspec.Struct, frozen=True):
    """The state of the inputs when times before `upper` are closed, for metrics and the display.

    * `frontiers`: the frontiers of inputs; that of a silent input is just beyond the greatest
      time seen, and one without any time is absent.
    * `silent`: the silent inputs.
    * `held_by`: the inputs that hold the frontier back.
    * `ahead`: whether times were seen that are not closed yet.
    """

    upper: int
    frontiers: dict[str, int]
    silent: list[str]
    held_by: list[str]
    ahead: bool


class InputFrontiers(NamedTuple):
    """The frontiers of the inputs with times of their own, by name.

    `awaited` has the frontiers of inputs that are not silent, `silent` the greatest time of each
    silent one, None if it never had any.  `greatest` is the greatest time of all inputs.
    """

    awaited: dict[str, int]
    silent: dict[str, int | None]
    greatest: int | None

    @property
    def all_silent(self) -> bool:
        """Whether all inputs that are not closed for ever are silent."""
        return bool(self.silent) and not self._open

    @property
    def is_over(self) -> bool:
        """Whether all inputs are closed for ever."""
        return not self.silent and not self._open

    @property
    def upper(self) -> int:
        """The frontier: times before it are closed."""
        if not self.all_silent:
            return min([*self.awaited.values(), LAST_TIME])
        seen = [time for time in self.silent.values() if time is not None]
        return min(max(seen, default=-1) + 1, LAST_TIME)

    @property
    def held_by(self) -> list[str]:
        """The inputs with the least frontier, which hold back the batch's."""
        least = min(self._open, default=None)
        return [name for name, at in self.awaited.items() if at == least]

    def state(self, upper: int) -> InputsState:
        """Describe this for people, in a pipeline that has closed all times before `upper`."""
        behind = {name: at + 1 for name, at in self.silent.items() if at is not None}
        return InputsState(
            upper,
            {name: min(at, LAST_TIME) for name, at in self.awaited.items()} | behind,
            sorted(self.silent),
            self.held_by,
            self.greatest is not None and self.greatest >= upper,
        )

    @property
    def _open(self) -> list[int]:
        return [at for at in self.awaited.values() if at < LAST_TIME]


def reach(
    plan: Plan,
    knowledge: Mapping[str, InputTimes],
    closed: Mapping[str, Sequence[ClosedProgress]],
    positions: Offsets,
    lower: int,
    limit: int | None,
) -> InputFrontiers:
    """Compute the reach of a batch that begins at `lower` and reads about `limit` records."""
    awaited: dict[str, int] = {}
    silent: dict[str, int | None] = {}
    greatest: list[int] = []
    for source in plan.inputs:
        if source.traits.kind == "updates":
            (topic,) = source.topics
            positions_of_topic = positions.get(topic, {})
            records = closed.get(source.name, ())
            awaited[source.name] = reach_of_topic(records, positions_of_topic, lower, limit)
        elif source.is_dated and source.name not in plan.backfills:
            times = knowledge.get(key_of(source), InputTimes())
            seen = [time for by in times.greatest.values() for time in by.values()]
            greatest += seen
            if times.idle:
                silent[source.name] = max(seen, default=None)
            else:
                awaited[source.name] = times.frontier
    return InputFrontiers(awaited, silent, max(greatest, default=None))


def reach_of_topic(
    closed: Sequence[ClosedProgress], positions: Mapping[int, int], lower: int, limit: int | None
) -> int:
    """Compute the frontier up to which a batch that begins at `lower` can read a topic.

    The batch reads at most about `limit` offsets, or one batch of the topic if that is more.
    """
    frontier = lower
    for record, _ in closed:
        if record.upper <= lower:
            continue
        size = sum(max(0, end - positions.get(p, 0)) for p, end in record.ends.items())
        if frontier > lower and limit is not None and size > limit:
            break
        frontier = record.upper
    return frontier


def span(closed: Iterable[ClosedProgress], upper: int, lower: int) -> DiffSpan:
    """Compute what a batch [lower, upper) reads of a topic that is closed up to `upper`."""
    reads: dict[int, int] = {}
    positions, progress_at = None, None
    for record, after in closed:
        if record.upper <= upper:
            positions, progress_at = dict(record.ends), after
        if record.upper > lower and upper > lower:
            reads = dict(record.ends)
            if record.upper >= upper:
                break
    return DiffSpan(reads, positions, progress_at)


class MintingState(NamedTuple):
    """The state of the topics, and of the last batch, when the next one is minted.

    * `ends`, `begins`: the last and the first offsets of the input topics; `begins` at least of
      the partitions that the last batch does not know.
    * `exchanges`: the end offsets of the exchange topic, by shard.
    * `input_times`: the knowledge about inputs with times of their own.
    * `closed`: the progress records of diff topics, by input.
    * `replayed`: what shards report of the transition in the last batch.
    * `read_back`: the offsets of outputs' topics that an edit about to begin reads.
    """

    ends: Positions
    begins: Positions
    exchanges: Mapping[int, int] = {}
    input_times: Mapping[str, InputTimes] = {}
    closed: Mapping[str, Sequence[ClosedProgress]] = {}
    replayed: Replayed = NOTHING_REPLAYED
    read_back: Mapping[str, Mapping[int, ReadBackSpan]] = {}


class BatchSelection(NamedTuple):
    """The offsets that a batch reads, from `starts` up to `ends`, and its upper.

    `behind` is the number of offsets for later batches, `input_times` the updated knowledge about
    inputs.
    """

    starts: Positions
    ends: Positions
    upper: int
    behind: int
    input_times: dict[str, InputTimes]

    @property
    def reads(self) -> bool:
        return any(end > self.starts[t][p] for t, by in self.ends.items() for p, end in by.items())


def timed(
    plan: Plan,
    last: SourceOffset,
    look: MintingState,
    limit: int | None,
    now_ms: int,
    *,
    moves: bool,
) -> BatchSelection:
    """Choose the offsets and the upper with ingest or offset times.

    With `moves`, time advances even if nothing is read.
    """
    starts, until, left = _share(last, look.begins, look.ends, limit)
    count = count_between(starts, until)
    again, again_to, again_left = _again(plan, last, look, until, limit)
    moves = moves or count_between(again, again_to) > 0
    upper = last.upper
    if plan.time == "offset":
        upper += count or moves
    elif count or moves:
        upper = max(now_ms, last.upper) + 1
    return BatchSelection({**starts, **again}, {**until, **again_to}, upper, left + again_left, {})


def _again(
    plan: Plan, last: SourceOffset, look: MintingState, until: Positions, limit: int | None
) -> tuple[Positions, Positions, int]:
    """Choose the offsets of inputs that are read again: at most up to those of the first reading.

    The result is as in `_share`, with the keys of these positions.
    """
    ends = {
        plan.position_key(source, topic): {**last.positions.get(topic, {}), **until.get(topic, {})}
        for source in map(plan.input, plan.backfills)
        for topic in source.topics
    }
    return _share(last, look.begins, ends, limit)


def dated(plan: Plan, last: SourceOffset, look: MintingState, limit: int | None) -> BatchSelection:
    """Choose the offsets and the upper if any input has times of its own.

    Records of other inputs get the last time of the interval.  While more of them wait than fit
    into a batch, or all dated inputs are silent or closed for ever, time advances by 1 a batch.
    """
    closed = {
        s.name: look.closed.get(s.name, ()) for s in plan.inputs if s.traits.kind == "updates"
    }
    reached = reach(plan, look.input_times, closed, last.positions, last.upper, limit)
    undated = [source for source in plan.inputs if not source.is_dated]
    stamped = {topic for s in undated for topic in (s.history_topic, *s.topics)}
    waiting = {topic: by for topic, by in look.ends.items() if topic in stamped}
    _, _, stamps = _share(last, look.begins, waiting, 0)
    upper = _upper(last, reached, has_stamped=bool(stamped), waits=stamps > 0)
    moves = upper > last.upper
    unread = {plan.input(name).topics[0] for name in closed} | (set() if moves else stamped)
    ends = {topic: by for topic, by in look.ends.items() if topic not in unread}
    starts, until, left = _share(last, look.begins, ends, limit)
    if moves and any(until[topic] != ends[topic] for topic in stamped & ends.keys()):
        # Records that exceed the limit also belong before this frontier.
        upper = last.upper + 1
    if not moves:
        left += stamps
    again, again_to, again_left = _again(plan, last, look, until, limit)
    times = {}
    for name, records in closed.items():
        (topic,) = plan.input(name).topics
        before_it = read_up_to(last, name)
        if upper == last.upper and before_it < upper:
            # The past of a new input is read by the first batch in which time advances.
            continue
        part = span(records, upper, before_it)
        before = look.input_times.get(name, InputTimes())
        times[name] = msgspec.structs.replace(
            before,
            frontier=max(before.frontier, upper),
            reads=part.reads,
            base=before.unread_base,
            progress_at=before.progress_at if part.progress_at is None else part.progress_at,
        )
        if part.positions is not None:
            positions = last.positions.get(topic, {})
            starts[topic] = {p: positions.get(p, 0) for p in part.positions}
            until[topic] = part.positions
    return BatchSelection(
        {**starts, **again}, {**until, **again_to}, upper, left + again_left, times
    )


def _upper(last: SourceOffset, reached: InputFrontiers, *, has_stamped: bool, waits: bool) -> int:
    """Choose the upper of a batch.

    With `has_stamped`, some inputs have records without times; with `waits`, any of these wait.
    """
    upper = max(last.upper, reached.upper)
    if has_stamped and reached.is_over:
        # These get times after all others, so there have to be times left for them.
        upper = max(last.upper, _AFTER_ALL)
    if (reached.all_silent or reached.is_over) and waits and upper == last.upper:
        # No other input advances time for these records.
        upper += 1
    return upper


def read_up_to(last: SourceOffset, name: str) -> int:
    """The time up to which the updates of a topic have been read; 0 for a new one."""
    return min(last.upper, last.input_times[name].frontier if name in last.input_times else 0)


def capped(target: Positions, positions: Offsets) -> Positions:
    """Limit reading to the target, or to the positions where they are beyond it already."""
    return {
        topic: {p: max(end, offset_in(topic, p, positions)) for p, end in by.items()}
        for topic, by in target.items()
    }


def _share(
    last: SourceOffset, begins: Positions, ends: Positions, limit: int | None
) -> tuple[Positions, Positions, int]:
    """Compute the starts and ends of a batch of about `limit` records, and the offsets left."""
    starts = {
        topic: {p: offset_in(topic, p, last.positions, begins) for p in by}
        for topic, by in ends.items()
    }
    until = portion(starts, ends, limit)
    return starts, until, count_between(until, ends)


# Decision (the size of batches): What a record costs is not known before it runs, so a run begins
# small and grows by four, by what batches took. A limit in bytes is not possible: Kafka tells
# offsets, not sizes, before records are read.

FIRST = 25_000
"""The number of records that the first batch of a run may read."""
FIRST_JOINED = 5_000
"""The same for plans with joins, where a record may have many results."""
MOST_BYTES = 256 << 20
"""About the most bytes of records in a batch, packed for the shards."""
_OF_MAX_BATCH = 0.1
_GROWTH = 4.0
# A batch of at most this many messages shows how long a batch takes without records.
_NEXT_TO_NOTHING = 16
# That time may grow by at most this factor from one such batch to the next.
_SLOWER = 1.25
# If it exceeds the target, batches grow by this factor, as long as they would take less than this
# part of `run.max_batch` if all of the time were due to records.
_CAREFUL_GROWTH = 2.0
_MOST_OF_MAX_BATCH = 0.5
_LAST = 4
# Batches of fewer records do not measure the size of a record.
_FEW = 5_000


@dataclass(frozen=True, slots=True)
class _Minted:
    """A batch, the time when it was minted, and which shares of the most it reads.

    With `is_start`, it is the first of a run and reads less than it may: its time is the time of
    a start, and does not count.
    """

    batch: int
    begun: float
    records: int
    exchanges: int
    of_records: float
    of_exchanges: float
    is_start: bool


class Allowance:
    """How many records a batch reads, and how many messages of the exchange, by earlier batches.

    `source.max_records_per_batch` is a bound for usual records.  The cost of a record is known
    only after a batch: one that joins with 100,000 rows takes seconds, and 250,000 records of
    10 kB are 2.5 GB.  So the first batch of a run reads a little, and each further one so much
    that it takes about a tenth of `run.max_batch`, and not too many bytes.  The time of a nearly
    empty batch, which may be long on a busy machine, is not due to records: it is subtracted
    before the next size is chosen.

    This only changes when records are read, not their results: a batch is what was logged.
    """

    def __init__(
        self,
        plan: Plan,
        max_batch_s: float,
        most: int,
        most_exchanges: int,
        clock: Callable[[], float],
    ) -> None:
        """Begin with a little; `most` and `most_exchanges` are what a batch may read."""
        first = FIRST_JOINED if plan.joins else FIRST
        self._target_s = max_batch_s * _OF_MAX_BATCH
        self._most_s = max_batch_s * _MOST_OF_MAX_BATCH
        # How long a batch takes without records, once it is known.
        self._least_s = 0.0
        # The shares that would have met the target in each of the last batches.
        self._fair: tuple[deque[float], deque[float]] = deque(maxlen=_LAST), deque(maxlen=_LAST)
        self._most, self._most_exchanges = most, most_exchanges
        self._clock = clock
        self._records, self._exchanges = min(1.0, first / most), 1.0
        # The bytes of a record, as measured in this run.
        self._each: float | None = None
        self._running: _Minted | None = None
        self._starts = True

    @property
    def records(self) -> int:
        """The number of records that the next batch may read."""
        by_size = self._most if self._each is None else int(MOST_BYTES / self._each)
        return max(1, min(by_size, round(self._most * self._records)))

    @property
    def exchanges(self) -> int:
        """The number of messages of the exchange topic that the next batch may read."""
        return max(1, round(self._most_exchanges * self._exchanges))

    def minted(self, before: SourceOffset, batch: SourceOffset) -> None:
        """A batch has been minted, and is run now."""
        records = batch.records_since(before)
        exchanges = sum(batch.exchanges.values()) - sum(before.exchanges.values())
        shares = min(1.0, records / self._most), min(1.0, exchanges / self._most_exchanges)
        is_start = self._starts and records < self.records
        self._running = _Minted(batch.batch, self._clock(), records, exchanges, *shares, is_start)
        self._starts = False

    def done(self, last: SourceOffset, size: int) -> None:
        """The batch `last` is done, in which the shards got so many bytes."""
        run, self._running = self._running, None
        if run is None or run.batch != last.batch or run.is_start:
            return
        took_s = self._clock() - run.begun
        if max(run.records, run.exchanges) <= _NEXT_TO_NOTHING:
            self._least_s = min(took_s, self._least_s * _SLOWER or took_s)
        records, exchanges = self._fair
        self._records = self._next(self._records, run.of_records, took_s, self._most, records)
        self._exchanges = self._next(
            self._exchanges, run.of_exchanges, took_s, self._most_exchanges, exchanges
        )
        if run.records >= _FEW:
            self._each = max(1.0, size / run.records)

    def _next(
        self, share: float, used: float, took_s: float, most: int, fair: deque[float]
    ) -> float:
        """The share after a batch that has used so much of the most."""
        if used <= 0:
            # It says nothing about the time of the next records: earlier ones may have been slow.
            return share
        grown = min(1.0, max(share, 1.0 / most) * _GROWTH)
        of_it_s = max(took_s - self._least_s, self._target_s / _CAREFUL_GROWTH)
        fair.append(used * self._target_s / of_it_s)
        if took_s <= self._target_s / _GROWTH:
            return grown
        if took_s <= self._target_s:
            return min(grown, used * self._target_s / min(took_s, of_it_s))
        # A single record would stay one, if it grew by less than half of another one.
        safe = used * self._most_s / took_s + 0.5 / most
        # Other work on the machine makes a batch longer, and never shorter.
        return min(grown, safe, max(fair))


# Decision (the source keeps the interval): Ticks of Spark's trigger would hold up the first
# record after a pause, and each exchange between operators. Without an interval few records would
# keep a core busy.


class Pace:
    """Says how long the next batch has to wait.

    Updates between operators never wait, nor does the first record after a pause.
    """

    def __init__(self, interval_s: float, clock: Callable[[], float]) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._begun = -math.inf

    def begin(self) -> None:
        """A batch begins now."""
        self._begun = self._clock()

    def early_s(self, last: SourceOffset) -> float:
        """The seconds until the batch after `last` may begin; 0 or less if it may now."""
        if not is_settled(last):
            return 0.0
        return self._begun + self._interval_s - self._clock()


class Beats:
    """Whether a heartbeat is due, `every_s` seconds after the last batch; never if that is 0.

    The time since the last batch is measured by the wall clock, also over restarts, and by a
    monotonic clock in case the wall clock is set back; the longer one counts.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._seen: tuple[int, float] | None = None

    def is_due(self, batch: int, upper_ms: int, now_ms: int, passed_s: float) -> bool:
        """Whether one is due after the last batch, which ended at the time `upper_ms`.

        `now_ms` is the wall clock, and `passed_s` a clock that is never set.
        """
        if self._seen is None or self._seen[0] != batch:
            self._seen = batch, passed_s
        silent_s = max((now_ms - upper_ms) / 1000, passed_s - self._seen[1])
        return 0 < self._every_s <= silent_s
