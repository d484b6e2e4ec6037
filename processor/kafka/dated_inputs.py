"""Collect the knowledge about inputs with times of their own before a batch is minted.


For diff topics this is the progress of their closed batches.  For all others it is the report of
the last batch, from its commit records (markers), and which partitions are idle.
"""

import time
from collections.abc import Collection, Mapping

import msgspec
from confluent_kafka.admin import AdminClient

from ikebana.errors import SourceError
from ikebana.processor.checkpoint.commits import Marker
from ikebana.processor.checkpoint.inputs import beginnings_refusal, read_whole, writer_of
from ikebana.processor.checkpoint.refusal import Refusal
from ikebana.processor.kafka import markers, topics
from ikebana.processor.kafka.progress_record import progress_record
from ikebana.processor.kafka.reader import Range, RangeReader
from ikebana.processor.kafka.topics import Positions
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics import input_times
from ikebana.processor.topics.diff_input import ClosedProgress
from ikebana.processor.topics.event_time import Where
from ikebana.processor.topics.input_times import InputTimes, Learned
from ikebana.processor.topics.silence import Silence
from ikebana.processor.topics.source_offset import SourceOffset


class DatedInputs:
    """Keeps, from batch to batch, the progress that was read and the idle partitions."""

    def __init__(self, plan: Plan, admin: AdminClient, settings: Mapping[str, str]) -> None:
        self._plan = plan
        self._admin = admin
        self._settings = settings
        self._closed: dict[str, list[ClosedProgress]] = {}
        self._read_to: dict[str, int] = {}
        self._frozen: Positions | None = None
        self._silence = Silence(plan)
        self._news_of: tuple[int, Learned] | None = None
        # A cache of the knowledge after a batch, for these ends, by the idle partitions.
        self._learned_at: tuple[int, Positions] | None = None
        self._learned: dict[frozenset[tuple[str, frozenset[Where]]], dict[str, InputTimes]] = {}
        self._open_reader: RangeReader | None = None
        self._shards_ever: int | None = None

    def freeze(self) -> None:
        """Ignore batches of diff topics that are closed after this call."""
        self._frozen = self._progress_ends()

    def knowledge(
        self, last: SourceOffset, ends: Positions
    ) -> tuple[dict[str, InputTimes], dict[str, list[ClosedProgress]]]:
        """Compute the knowledge about inputs after `last`, and the closed batches to read.

        Raises:
            SourceError: another checkpoint than before writes the progress of a diff topic.
        """
        times = dict(last.input_times)
        if any(source.tells_later for source in self._plan.inputs):
            moment = time.monotonic()
            self._silence.learn(last.batch, self._news(last).seen, moment)
            idle = self._silence.idle(last.positions, ends, moment)
            times = dict(self._after(last, ends, idle))
        return times, self._progress_of(times)

    def knowledge_if_silent(
        self, last: SourceOffset, ends: Positions
    ) -> dict[str, InputTimes] | None:
        """Compute the knowledge as if all partitions that are read to their ends were idle.

        Return None if no input can become idle.
        """
        patient = [
            source
            for source in self._plan.inputs
            if source.event_time is not None
            and source.event_time.idle_ms is not None
            # A topic of transactions announces the changes that are still to come.
            and source.transaction_topic is None
        ]
        if not patient:
            return None
        done = {
            source.name: frozenset(
                (topic, p)
                for topic in source.topics
                for p, end in ends.get(topic, {}).items()
                if last.positions.get(topic, {}).get(p, 0) >= end
            )
            for source in patient
        }
        return self._after(last, ends, done)

    def _after(
        self, last: SourceOffset, ends: Positions, idle: Mapping[str, frozenset[Where]]
    ) -> dict[str, InputTimes]:
        """Compute the knowledge after a batch, or take it from the cache if nothing came in."""
        if self._learned_at != (last.batch, ends):
            self._learned_at, self._learned = (last.batch, ends), {}
        which = frozenset(idle.items())
        if which not in self._learned:
            news = self._news(last)
            self._learned[which] = input_times.learned(
                self._plan, last.input_times, news, last.positions, ends, idle
            )
        return self._learned[which]

    def _news(self, last: SourceOffset) -> Learned:
        """Read the reports of the shards from the markers of the last batch.

        If the checkpoint was rescaled after it, these are the shards before the rescaling.
        """
        if self._news_of is None or self._news_of[0] != last.batch:
            reports = [marker for marker in self._last_markers() if marker.batch == last.batch]
            self._news_of = (
                last.batch,
                Learned(
                    [seen for marker in reports for seen in marker.seen],
                    [marker.facts for marker in reports],
                ),
            )
        return self._news_of[1]

    def _last_markers(self) -> list[Marker]:
        topic = self._plan.markers_topic
        if self._shards_ever is None:
            described = topics.describe(self._admin, [topic])[topic]
            self._shards_ever = markers.shards_of(described.partitions)
        return markers.last_markers(self._reader, topic, self._shards_ever)

    def _progress_of(self, knowledge: dict[str, InputTimes]) -> dict[str, list[ClosedProgress]]:
        """Return the closed batches of each diff topic that are not completely read yet."""
        diffs = [source for source in self._plan.inputs if source.traits.kind == "updates"]
        if not diffs:
            return {}
        ends = self._progress_ends() if self._frozen is None else self._frozen
        for source in diffs:
            times = knowledge.get(source.name, InputTimes())
            closed = [c for c in self._closed.get(source.name, ()) if c.after > times.progress_at]
            # Ends of transactions take offsets without records, so the position is kept.
            start = max(times.progress_at, self._read_to.get(source.name, 0))
            end = ends[source.topics[0] + ".progress"][0]
            closed += self._read(source, start, end)
            self._read_to[source.name] = max(start, end)
            self._closed[source.name] = closed
            writer = writer_of(source.topics[0], times.checkpoint, closed)
            if isinstance(writer, Refusal):
                raise writer.error()
            knowledge[source.name] = msgspec.structs.replace(times, checkpoint=writer)
        return dict(self._closed)

    def _progress_ends(self) -> Positions:
        diffs = [source for source in self._plan.inputs if source.traits.kind == "updates"]
        return topics.ends(self._admin, {s.topics[0] + ".progress": 1 for s in diffs})

    def _read(self, source: Input, start: int, end: int) -> list[ClosedProgress]:
        topic = source.topics[0] + ".progress"
        return [
            ClosedProgress(progress_record(message, SourceError), message.offset() + 1)
            for _, messages in self._reader.read([Range(topic, 0, start, end)])
            for message in messages
        ]

    @property
    def _reader(self) -> RangeReader:
        if self._open_reader is None:
            self._open_reader = RangeReader(self._settings)
        return self._open_reader


def check_beginnings(plan: Plan, admin: AdminClient, compacted: Collection[str]) -> None:
    """Refuse inputs that lack records for which the pipeline would wait for ever.

    The `compacted` topics are read from snapshots.

    Raises:
        SourceError: records at a topic's beginning were deleted, or it has no progress, or
            a topic of transactions has several partitions.
    """
    whole = read_whole(plan).items()
    needed = {name for topic, names in whole if topic not in compacted for name in names}
    needed.update(plan.transaction_topics)
    if not needed:
        return
    described = topics.describe(admin, sorted(needed))
    begins = topics.beginnings(
        admin, {name: topic.partitions for name, topic in described.items()}
    )
    if (refusal := beginnings_refusal(plan, described, begins, compacted)) is not None:
        raise refusal.error()
