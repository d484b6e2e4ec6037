"""The source: Kafka topics as a Python data source that yields packed rows.

`latestOffset` runs on the driver, in a process of its own, and mints each batch; Spark logs the
result before the batch runs.  The records that a batch reads, and the tick for every shard,
follow from two logged offsets alone.
"""

# Decision (an idle source watches the lease): The older of two instances stops within a second,
# even when nothing comes in.

# Decision (an idle source seldom looks): The broker holds a fetch until a record comes. Without
# times of inputs, edits and exchanges there is only a new partition or a deleted topic to look
# for: once a second.

import functools
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ikebana.processor.base import calls, processes
from ikebana.processor.base.offsets import Positions
from ikebana.processor.base.rows import Tick, pack
from ikebana.processor.checkpoint.commits import replaced_refusal
from ikebana.processor.kafka import inputs, own_topics, transactions
from ikebana.processor.kafka.inputs import Arrival, Arrivals, Inputs
from ikebana.processor.kafka.reader import Range, RangeReader, connected
from ikebana.processor.planning.backfill import has_caught_up
from ikebana.processor.spark.signals import Signals
from ikebana.processor.spark.source_task import (
    SCHEMA,
    Share,
    SourceConfig,
    is_small,
    one_share,
    packed_rows,
    rows_of,
    shares_of,
    spark_rows,
)
from ikebana.processor.spark.workers import owners
from ikebana.processor.spark.workers.network import Pickled, WorkerAddress
from ikebana.processor.spark.workers.owners import PLACEMENT, HostAddress
from ikebana.processor.topics import reclock, replays
from ikebana.processor.topics.batch_selection import (
    Allowance,
    Beats,
    InputsState,
    MintingState,
    Pace,
    capped,
    reach,
)
from ikebana.processor.topics.input_times import ShardReports
from ikebana.processor.topics.replays import OwnRange, ranges, read_in
from ikebana.processor.topics.slices import Slice, slices
from ikebana.processor.topics.source_offset import SourceOffset, is_settled

NAME = "ikebana"
# Spark hides the values of options whose name has "secret"; these settings have passwords.
OPTION = "secretconfig"
# While no record comes, the topics are checked this often, or less.
_LOOK_EVERY_S = 0.1
# A stop waits for this at most while no record comes.
_STOP_WITHIN_S = 0.1
_ANSWER_AFTER_S = 1.0
# Records that come together are read in one batch: it may begin so much later after a pause.
_GATHER_S = 0.03
# A run with `--once` checks this often whether its inputs have become silent.
_ASK_EVERY_S = 0.02
# While no task runs that would notice a newer instance, the driver checks this often for one.
_ASK_FOR_LEASE_EVERY_S = 1.0


class IkebanaSource(DataSource):  # type: ignore[misc]
    """The data source as Spark registers it."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> "StreamReader":
        return StreamReader(msgspec.json.decode(self.options[OPTION], type=SourceConfig))


class StreamReader(_SimpleStreamReaderWrapper, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Mints batches on the driver, and has them read by reader processes or in tasks.

    From a reader of this private class Spark takes rows along with the partitions, and then needs
    no Python worker to read them.  All methods of the class that Spark uses are overridden.
    """

    def __init__(self, config: SourceConfig) -> None:
        super().__init__(self)
        self._config = config
        self._signals = Signals(Path(config.stop))
        self._read: list[tuple[int, bytes]] | None = None
        self._target: Positions | None = None
        self._asked_for_lease = 0.0
        self._looked: MintingState | None = None
        self._reported: InputsState | None = None
        self._last_reports: ShardReports | None = None
        self._beats = Beats(config.heartbeat_s)
        self._pace = Pace(config.interval_s, time.monotonic)
        limits = config.max_records, reclock.MOST_EXCHANGES
        self._allowance = Allowance(config.plan, config.max_batch_s, *limits, time.monotonic)

    def initialOffset(self) -> dict[str, Any]:
        return self._config.start.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._config.max_records)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._inputs.look({}).ends
        if self._inputs.dated is not None:
            self._inputs.dated.freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        last = SourceOffset.from_json(start)
        # Spark always runs a first batch, even if it should stop.
        first = last.batch == self._config.start.batch
        until = time.monotonic() + _ANSWER_AFTER_S
        self._allowance.done(last, self._reports(last).size)
        while first or not self._signals.stop.exists():
            if self._has_filled(last):
                self._signals.filled.touch()
                return start
            self._check_lease()
            early_s = 0.0 if self._target is not None else self._pace.early_s(last)
            minted = None if early_s > 0.0 else self._minted(last, limit, first=first)
            if minted is not None:
                self._pace.begin()
                self._allowance.minted(last, minted)
                return minted.to_json()
            if self._target is not None and not self._waits_for_silence(last):
                self._signals.done.touch()
                return start
            if self._target is None and time.monotonic() > until:
                return start
            if early_s > 0.0:
                time.sleep(min(early_s, _LOOK_EVERY_S))
            elif self._target is None:
                self._wait_for_records(last, until)
            else:
                time.sleep(_ASK_EVERY_S)
        self._signals.acknowledgement.touch()
        return start

    def _wait_for_records(self, last: SourceOffset, until: float) -> None:
        """Wait for records, or until the topics have to be looked at again."""
        read = {t: by for t, by in last.positions.items() if t in self._config.plan.topics}
        until = min(until, time.monotonic() + self._look_every_s(last))
        while (arrival := self._arrivals.wait(read, _STOP_WITHIN_S)) is Arrival.NONE:
            if time.monotonic() >= until or self._signals.stop.exists():
                return
        if arrival is Arrival.NEW:
            self._inputs.wait_for_pause(_GATHER_S)

    def _look_every_s(self, last: SourceOffset) -> float:
        """How often the topics are looked at while no record comes."""
        config = self._config
        if (
            self._inputs.dated is None
            and not last.transition.is_behind(config.edited.edits)
            and is_settled(last)
        ):
            # The wait notices records, and only a heartbeat makes a batch without them.
            return max(_LOOK_EVERY_S, config.heartbeat_s / 10 or _ANSWER_AFTER_S)
        return _LOOK_EVERY_S

    def _minted(self, last: SourceOffset, limit: ReadLimit, *, first: bool) -> SourceOffset | None:
        config = self._config
        seen, look = self._look(last)
        self._looked = look
        self._tell(last, look)
        now_ms = time.time_ns() // 1_000_000
        beats = self._beats.is_due(last.batch, last.upper, now_ms, time.monotonic())
        most = (
            min(limit.max_rows, self._allowance.records)
            if isinstance(limit, ReadMaxRows)
            else None
        )
        minted = reclock.mint(
            config.plan,
            msgspec.structs.replace(last, topic_ids=seen.ids),
            look,
            reclock.BatchTrigger(
                now_ms, most, self._target is None and beats, first, self._allowance.exchanges
            ),
            config.edited,
        )
        return minted if minted.batch != last.batch else None

    def _has_filled(self, last: SourceOffset) -> bool:
        """Whether the backfill has caught up, so that the next plan can take over."""
        config = self._config
        return (
            bool(config.plan.backfills)
            and not last.transition.is_behind(config.edited.edits)
            and is_settled(last)
            and has_caught_up(config.plan, last.positions)
        )

    def _tell(self, last: SourceOffset, look: MintingState) -> None:
        """Write the frontiers of the inputs for the process that watches the query."""
        if self._inputs.dated is None:
            return
        reached = reach(
            self._config.plan,
            look.input_times,
            look.closed,
            last.positions,
            last.upper,
            limit=None,
        )
        state = reached.state(last.upper)
        if state != self._reported:
            self._signals.write(state)
            self._reported = state

    def _look(self, last: SourceOffset) -> tuple[inputs.InputOffsets, MintingState]:
        """Look at the topics, and collect the input of `mint` for a batch after `last`."""
        config = self._config
        seen = self._inputs.look(last.positions, last.topic_ids)
        ends = seen.ends if self._target is None else capped(self._target, last.positions)
        shards = config.shards
        exchanges = self._inputs.exchanges(last.batch, shards) if config.exchanges else {}
        look = MintingState(
            ends, replays.with_begins(seen.begins, config.begins), exchanges=exchanges
        )
        if self._inputs.dated is not None:
            times, closed = self._inputs.dated.knowledge(last, ends, self._reports(last))
            look = look._replace(input_times=times, closed=closed)
        if last.transition.is_behind(config.edited.edits):
            look = look._replace(
                read_back=own_topics.begun(
                    config.kafka, config.edited.read_back, config.plan.error_topic
                )
            )
        if last.transition.asks_shards:
            look = look._replace(replayed=self._reports(last).replayed)
        return seen, look

    def _reports(self, last: SourceOffset) -> ShardReports:
        """What the shards report of the last batch."""
        if self._last_reports is None or self._last_reports.batch != last.batch:
            reports = self._signals.last(ShardReports)
            assert reports is not None, "no reports on any batch"
            assert reports.batch == last.batch, f"no reports on batch {last.batch}"
            self._last_reports = reports
        return self._last_reports

    def _waits_for_silence(self, last: SourceOffset) -> bool:
        """Return whether there would be a batch if all partitions read to their ends were idle."""
        dated, look = self._inputs.dated, self._looked
        if dated is None or look is None or self._config.edited.finishes:
            return False
        times = dated.knowledge_if_silent(last, look.ends, self._reports(last))
        if times is None:
            return False
        look = look._replace(input_times={**look.input_times, **times})
        following = reclock.mint(self._config.plan, last, look, reclock.BatchTrigger(0))
        return following.batch != last.batch

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Share]:
        config = self._config
        before, after = SourceOffset.from_json(start), SourceOffset.from_json(end)
        adopted = after.digest() == config.adopted
        pieces: list[Slice] = []
        exchanges: list[Range] = []
        read_back: list[OwnRange] = []
        if not adopted:
            moving = after.transition
            read_back = list(ranges(read_in(config.plan, config.edited.read_back, moving), moving))
            pieces = list(slices(config.plan, before, after))
            exchanges = [
                Range(config.plan.exchange_topic, shard, before.exchanges.get(shard, 0), end)
                for shard, end in after.exchanges.items()
                if end > before.exchanges.get(shard, 0)
            ]
        shares = shares_of(pieces, exchanges, config.readers, read_back)
        tick = _tick(config, before, after, adopted=adopted)
        shares[0].ticks = [(shard, tick) for shard in range(config.shards)]
        placed = owners.placement_in(self._signals.hosts)
        if placed is not None:
            shares[0].ticks.append((PLACEMENT, placed))
        self._read = self._read_beforehand(after.batch, shares, placed)
        # Rows that come along belong to one partition.  If Spark loses them, a task reads it.
        return shares if self._read is None else [one_share(shares)]

    def getCache(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Iterator[pa.RecordBatch] | None:
        """Return the rows of the last planned batch, if readers have read it already."""
        rows, self._read = self._read, None
        if rows is None:
            return None
        return iter([rows_of(rows, self._config.groups)] if rows else [])

    def _read_beforehand(
        self, batch: int, shares: Sequence[Share], placed: bytes | None
    ) -> list[tuple[int, bytes]] | None:
        """Have a batch read by readers, if there are any.

        A small batch is read by the readers of the driver's host, and a large one where the owners
        are: on this machine, or by the readers of all hosts, so that the driver need not pass on
        its rows.  After a failure tasks read the batch, where errors are handled.
        """
        here = HostAddress.here()
        readers: list[WorkerAddress] = []
        if here is not None and (self._config.rows_folder or is_small(shares)):
            readers = [here.reader(at) for at in range(here.readers)]
        elif placed is not None:
            readers = owners.readers_of(placed)
        begun = time.monotonic()
        try:
            rows = owners.read(readers, self._pickled, batch, shares)
        except Exception:  # noqa: BLE001 -- the tasks meet it again
            print("could not read a batch before Spark runs it", file=sys.stderr)
            traceback.print_exc()
            return None
        if rows is not None:
            self._signals.record_reading_time(time.monotonic() - begun)
        return rows

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's log says which offsets are read."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        processes.exempt_objects()
        calls.arm()
        packed = packed_rows(self._config, partition, self._connected())
        return spark_rows(packed, self._config.groups, self._config.rows_folder)

    def _check_lease(self) -> None:
        """Stop if there is a newer instance, since a batch logged now would disturb it."""
        config = self._config
        if time.monotonic() - self._asked_for_lease < _ASK_FOR_LEASE_EVERY_S:
            return
        reader = self._connected()
        lease = transactions.last_lease(reader, config.plan.commits_topic)
        if lease is not None and lease.incarnation > config.incarnation:
            refusal = replaced_refusal(config.plan.name, config.incarnation, lease.incarnation)
            raise refusal.error()
        self._asked_for_lease = time.monotonic()

    def _connected(self) -> RangeReader:
        return connected(self._config.reading_kafka)

    @functools.cached_property
    def _pickled(self) -> Pickled:
        return Pickled.of(self._config)

    @functools.cached_property
    def _arrivals(self) -> Arrivals:
        return Arrivals(self._config.reading_kafka)

    @functools.cached_property
    def _inputs(self) -> Inputs:
        return Inputs(self._config.plan, self._config.reading_kafka)


def _tick(
    config: SourceConfig, before: SourceOffset, after: SourceOffset, *, adopted: bool
) -> bytes:
    """Pack the tick of a batch, which is the same for all shards."""
    return pack(
        Tick(
            batch=after.batch,
            lower=after.lower,
            upper=after.upper,
            offset=after.digest(),
            plan=after.plan,
            intervals={
                name: (interval.lower, interval.upper)
                for name, interval in replays.intervals(config.plan, before, after).items()
            },
            behind=after.behind,
            adopted=adopted,
            exchanges_from=before.exchanges,
            # An edit still reads these parts while it fills.
            released=() if after.transition.fills else config.edited.released,
            transition=after.transition.for_shards(),
        )
    )
