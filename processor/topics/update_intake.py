"""Decode the messages of an input of updates: topics of format `diff`, and CDCv2.


A topic of format `diff` is read by its progress: a message with a time outside the batch's
interval belongs to an earlier or later batch, and is skipped.  A message that is no update stops
the pipeline, because its time could never be complete without it.  Data are made canonical, so
that equal data cancel whoever wrote them; an update with data that are no JSON becomes an error
record.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ikebana.arrangements.frontier import Interval
from ikebana.codecs import canonical
from ikebana.codecs.cdcv2 import Progress
from ikebana.codecs.error_record import error_record
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import fact_codec
from ikebana.codecs.progress import pack_times
from ikebana.errors import SourceError
from ikebana.processor.base import diff_reader
from ikebana.processor.base.diff_reader import PlacedUpdate
from ikebana.processor.base.rows import Facts, KeyedUpdate, Seen, add
from ikebana.processor.planning import planner
from ikebana.processor.planning.plan import Input
from ikebana.processor.topics.codec_of import codec_of
from ikebana.processor.topics.event_time import Where
from ikebana.processor.topics.intake import DecodedUpdates, Intake, branches_in_decoding, through
from ikebana.processor.topics.messages import Message

if TYPE_CHECKING:
    from ikebana.codecs.avro_schema import Schemas


class UpdateIntake:
    """Reads the messages of one input of updates."""

    def __init__(self, source: Input, physical: planner.Physical) -> None:
        self._source = source
        self._branches = branches_in_decoding(source, physical)
        self.expands = any(steps.expands for _, steps in self._branches)
        """Whether a message may become any number of updates."""

    def updates(
        self,
        messages: Sequence[Message],
        where: Where,
        interval: Interval,
        since: int | None = None,
    ) -> DecodedUpdates:
        """Decode the updates of the interval, and apply every branch to them.

        Updates before the interval, from the time `since` on, count at its lower.

        Raises:
            SourceError: a message is no update.
        """
        topic, partition = where
        updates, bad = [], []
        for offset, key, value, headers, _ in messages:
            at = (partition, offset)
            update = diff_reader.decode(topic, at, key, value, headers)
            _require_time(update.time, where, offset)
            if since is not None and since <= update.time < interval.lower:
                update = update._replace(time=interval.lower)
            if update.time not in interval:
                continue
            try:
                updates.append(_canonical(update))
            except DecodeError as error:
                # No state is kept here, so the error is never retracted.
                record = error_record(str(error), (*where, offset), key, value)
                bad.append(KeyedUpdate(None, record, update.time, 1))
        by_branch, failed = through(self._branches, updates)
        return DecodedUpdates(by_branch, bad + failed, Counter())

    def facts(self, messages: Sequence[Message], where: Where) -> tuple[Facts, Seen]:
        """Decode messages of CDCv2 into updates, and statements of progress.

        Raises:
            SourceError: a message is no CDCv2.
        """
        name, (topic, partition) = self._source.name, where
        decode = fact_codec(self._source.value_format).decode
        facts, seen = Facts(name, [], [], [], []), Seen(name, topic, partition)
        for message in messages:
            try:
                content = decode(message.value)
            except DecodeError as error:
                raise SourceError(
                    f"cannot read {topic}[{partition}]@{message.offset}: {error.reason}",
                    hint=f"Is it a topic of {self._source.value_format}?",
                ) from None
            if isinstance(content, Progress):
                seen.statements.append(
                    (content.lower, content.upper, pack_times(dict(content.counts)))
                )
                continue
            for fact in content.updates:
                update = KeyedUpdate(*fact)
                _require_time(update.time, where, message.offset)
                add(facts, update)
        return facts, seen


def _canonical(update: PlacedUpdate) -> KeyedUpdate:
    """Make the data of an update canonical.  Raises: DecodeError, which names key or value."""
    key, value, time, diff, *_ = update
    try:
        key = None if key is None else canonical.canonical(key)
    except DecodeError as error:
        raise DecodeError("key as JSON", error.reason) from None
    try:
        return KeyedUpdate(key, canonical.canonical(value), time, diff)
    except DecodeError as error:
        raise DecodeError("value as JSON", error.reason) from None


def _require_time(time: int, where: Where, offset: int) -> None:
    if time < 0:
        raise SourceError(
            f"cannot read {where[0]}[{where[1]}]@{offset}: time {time} is negative",
            hint="Times are whole numbers from 0 on.",
        )


def intake_of(
    source: Input, physical: planner.Physical, schemas: "Schemas | None", *, named: bool = False
) -> Intake | UpdateIntake:
    """Make the intake of an input; `schemas` is the registry, if one is needed.

    With `named`, errors name the input, because other inputs read the same messages.
    """
    if source.traits.is_updates:
        return UpdateIntake(source, physical)
    codec = codec_of(source, physical.readings[source.name], schemas)
    return Intake(source, codec, physical, named=named)
