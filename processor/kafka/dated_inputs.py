"""Inputs with times of their own, as the source sees them before it mints a batch.

Of diff topics: what their progress has closed.  Of all others: what the last batch has
seen of them, which its markers tell, and which partitions have fallen silent.
"""

import time
from collections.abc import Mapping

import msgspec
from confluent_kafka.admin import AdminClient

from ikebana.arrangements.errors import SourceError
from ikebana.processor.kafka import markers, topics
from ikebana.processor.kafka.markers import Marker
from ikebana.processor.kafka.progress_record import progress_record
from ikebana.processor.kafka.reader import Range, Reader
from ikebana.processor.kafka.topics import Positions
from ikebana.processor.planning.plan import UPDATE_FORMATS, Input, Plan
from ikebana.processor.timing import input_times
from ikebana.processor.timing.diff_input import Closed
from ikebana.processor.timing.event_time import Where
from ikebana.processor.timing.input_times import InputTimes, Learned
from ikebana.processor.timing.reclock import SourceOffset


class DatedInputs:
    """Remembers, between two batches, what changes and what was silent."""

    def __init__(self, plan: Plan, admin: AdminClient, settings: Mapping[str, str]) -> None:
        self._plan = plan
        self._admin = admin
        self._settings = settings
        self._closed: dict[str, list[Closed]] = {}
        self._read_to: dict[str, int] = {}
        self._frozen = False
        self._silent_since: dict[Where, tuple[int, float]] = {}
        self._news_of: tuple[int, Learned] | None = None
        # What is known after a batch, with the topics at these ends, by what is idle.
        self._learned_at: tuple[int, Positions] | None = None
        self._learned: dict[frozenset[Where], dict[str, InputTimes]] = {}
        self._made: Reader | None = None
        self._shards_ever: int | None = None

    def freeze(self) -> None:
        """Take no more batches of diff topics than are closed by now."""
        self._progress_of({})
        self._frozen = True

    def known(
        self, last: SourceOffset, ends: Positions
    ) -> tuple[dict[str, InputTimes], dict[str, list[Closed]]]:
        """What is known of the inputs' times after `last`, and what diff topics have closed.

        Raises:
            SourceError: the progress of a diff topic is of another checkpoint than before.
        """
        found = dict(last.known)
        if any(source.tells_later for source in self._plan.inputs):
            found = dict(self._after(last, ends, self._idle(last, ends)))
        return found, self._progress_of(found)

    def known_if_silent(self, last: SourceOffset, ends: Positions) -> dict[str, InputTimes] | None:
        """What would be known if all that is read up to its end were idle.

        None if there is no input that falls idle.
        """
        patient = [
            source
            for source in self._plan.inputs
            if source.event_time is not None
            and source.event_time.idle_ms is not None
            # Of transactions it is told what is to come.
            and source.transaction_topic is None
        ]
        if not patient:
            return None
        done = frozenset(
            (topic, p)
            for source in patient
            for topic in source.topics
            for p, end in ends.get(topic, {}).items()
            if last.positions.get(topic, {}).get(p, 0) >= end
        )
        return self._after(last, ends, done)

    def _after(
        self, last: SourceOffset, ends: Positions, idle: frozenset[Where]
    ) -> dict[str, InputTimes]:
        """What is known after a batch; while nothing comes in that is asked for all the time."""
        if self._learned_at != (last.batch, ends):
            self._learned_at, self._learned = (last.batch, ends), {}
        if idle not in self._learned:
            news = self._news(last)
            self._learned[idle] = input_times.learned(
                self._plan, last.known, news, last.positions, ends, idle
            )
        return self._learned[idle]

    def _idle(self, last: SourceOffset, ends: Positions) -> frozenset[Where]:
        """The partitions that have had nothing to read for as long as their input says."""
        moment = time.monotonic()
        idle = set()
        for source in self._plan.inputs:
            event = source.event_time
            if event is None or event.idle_ms is None:
                continue
            for topic in source.topics:
                for partition, end in ends.get(topic, {}).items():
                    where = topic, partition
                    known = self._silent_since.get(where)
                    if known is None or known[0] != end:
                        known = self._silent_since[where] = end, moment
                    read = last.positions.get(topic, {}).get(partition, 0) >= end
                    if read and (moment - known[1]) * 1000 >= event.idle_ms:
                        idle.add(where)
        return frozenset(idle)

    def _news(self, last: SourceOffset) -> Learned:
        """What the markers of the last batch tell.

        If the checkpoint was rescaled after it, they are those of the shards of then.
        """
        if self._news_of is None or self._news_of[0] != last.batch:
            found = [marker for marker in self._last_markers() if marker.batch == last.batch]
            self._news_of = (
                last.batch,
                Learned(
                    [seen for marker in found for seen in marker.seen],
                    [marker.facts for marker in found],
                ),
            )
        return self._news_of[1]

    def _last_markers(self) -> list[Marker]:
        topic = self._plan.markers_topic
        if self._shards_ever is None:
            described = topics.describe(self._admin, [topic])[topic]
            self._shards_ever = markers.shards_of(described.partitions)
        return markers.last_markers(self._reader, topic, self._shards_ever)

    def _progress_of(self, known: dict[str, InputTimes]) -> dict[str, list[Closed]]:
        """The closed batches of each diff topic that were not read whole yet."""
        diffs = [source for source in self._plan.inputs if source.value_format == "diff"]
        if not diffs:
            return {}
        ends = None
        if not self._frozen:
            ends = topics.ends(self._admin, {s.topics[0] + ".progress": 1 for s in diffs})
        for source in diffs:
            times = known.get(source.name, InputTimes())
            kept = [c for c in self._closed.get(source.name, ()) if c.after > times.progress_at]
            if ends is not None:
                # The end of a transaction takes an offset, too: what was read is remembered.
                start = max(times.progress_at, self._read_to.get(source.name, 0))
                end = ends[source.topics[0] + ".progress"][0]
                kept += self._read(source, start, end)
                self._read_to[source.name] = max(start, end)
            self._closed[source.name] = kept
            known[source.name] = msgspec.structs.replace(
                times, checkpoint=_one_checkpoint(source, times.checkpoint, kept)
            )
        return dict(self._closed)

    def _read(self, source: Input, start: int, end: int) -> list[Closed]:
        topic = source.topics[0] + ".progress"
        return [
            Closed(progress_record(message, SourceError), message.offset() + 1)
            for _, messages in self._reader.read([Range(topic, 0, start, end)])
            for message in messages
        ]

    @property
    def _reader(self) -> Reader:
        if self._made is None:
            self._made = Reader(self._settings)
        return self._made


def check_beginnings(plan: Plan, admin: AdminClient) -> None:
    """Refuse inputs of which something is missing that will be waited for.

    Raises:
        SourceError: records at a topic's beginning were deleted, or it has no progress, or
            transactions are told in several partitions.
    """
    for topic in plan.transaction_topics:
        partitions = topics.describe(admin, [topic])[topic].partitions
        if partitions != 1:
            raise SourceError(
                f'cannot read transactions from "{topic}": it has {partitions} partitions, '
                "so its records have no order",
                hint="Make the topic with one partition, before the connector does.",
            )
    for source in plan.inputs:
        whole = source.value_format in UPDATE_FORMATS or source.transaction_topic is not None
        if not whole:
            continue
        for topic in (*source.topics, *filter(None, [source.transaction_topic])):
            wanted = [topic, topic + ".progress"] if source.value_format == "diff" else [topic]
            found = topics.describe(admin, wanted)
            for name in wanted:
                if name not in found:
                    raise SourceError(
                        f'cannot read "{topic}" as {source.value_format}: topic "{name}" does '
                        "not exist",
                        hint="Start the pipeline that writes it, or mend the name.",
                    )
            begins = topics.beginnings(admin, {n: t.partitions for n, t in found.items()})
            for name, by in begins.items():
                for partition, begin in sorted(by.items()):
                    if begin > 0:
                        raise SourceError(
                            f'cannot read "{topic}": the beginning of {name}[{partition}] '
                            "was deleted, and what was there would be waited for",
                            hint="Such topics need retention.ms=-1 and retention.bytes=-1.",
                        )


def _one_checkpoint(source: Input, known: str, closed: list[Closed]) -> str:
    for record, _ in closed:
        if known and record.checkpoint != known:
            raise SourceError(
                f'topic "{source.topics[0]}" was written by checkpoint {known}, and is now '
                f"by {record.checkpoint}: its updates begin anew",
                hint="Start with a new checkpoint and new output topics.",
            )
        known = record.checkpoint
    return known
