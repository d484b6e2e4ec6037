"""What the messages of an input of updates come to: its own updates, or facts of CDCv2.

A topic of format `diff` is read by its progress, so a message of a time outside the
batch's interval belongs to a batch before or behind it, and is left to that.  What is no
update there ends the pipeline: without it no time would be complete.  Data become canonical,
so that equal data cancel whoever wrote them; an update of data that are no JSON is an
error record.
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
from ikebana.processor.planning import planner
from ikebana.processor.planning.plan import Input
from ikebana.processor.reading.codec_of import codec_of
from ikebana.processor.reading.intake import Intake, Made, Message, branches_in_decoding, through
from ikebana.processor.rows.rows import Facts, KeyedUpdate, Seen, add
from ikebana.processor.timing.event_time import Where
from ikebana.processor.verifying import diff_reader
from ikebana.processor.verifying.diff_reader import PlacedUpdate

if TYPE_CHECKING:
    from ikebana.codecs.avro import Schemas


class UpdateIntake:
    """Reads the messages of one input of updates."""

    def __init__(self, source: Input, physical: planner.Physical) -> None:
        self._source = source
        self._branches = branches_in_decoding(source, physical)

    def updates(
        self,
        messages: Sequence[Message],
        where: Where,
        interval: Interval,
        since: int | None = None,
    ) -> Made:
        """The updates of the interval, through every branch; also those from `since` on before it.

        Those count at its lower.

        Raises:
            SourceError: a message is no update.
        """
        topic, partition = where
        updates, bad = [], []
        for offset, key, value, headers, _ in messages:
            at = (partition, offset)
            found = diff_reader.decode(topic, at, key, value, headers)
            _require_time(found.time, where, offset)
            if since is not None and since <= found.time < interval.lower:
                found = found._replace(time=interval.lower)
            if found.time not in interval:
                continue
            try:
                updates.append(_canonical(found))
            except DecodeError as error:
                # Nothing keeps state here, so the error stands for ever.
                record = error_record(str(error), (*where, offset), key, value)
                bad.append(KeyedUpdate(None, record, found.time, 1))
        by_branch, failed = through(self._branches, updates)
        return Made(by_branch, bad + failed, Counter())

    def facts(self, messages: Sequence[Message], where: Where) -> tuple[Facts, Seen]:
        """The facts in messages: updates, and statements of progress.

        Raises:
            SourceError: a message is no CDCv2.
        """
        name, (topic, partition) = self._source.name, where
        decode = fact_codec(self._source.value_format).decode
        facts, seen = Facts(name, [], [], [], []), Seen(name, topic, partition)
        for message in messages:
            try:
                found = decode(message.value)
            except DecodeError as error:
                raise SourceError(
                    f"cannot read {topic}[{partition}]@{message.offset}: {error.reason}",
                    hint=f"Is it a topic of {self._source.value_format}?",
                ) from None
            if isinstance(found, Progress):
                seen.statements.append((found.lower, found.upper, pack_times(dict(found.counts))))
                continue
            for fact in found.updates:
                update = KeyedUpdate(*fact)
                _require_time(update.time, where, message.offset)
                add(facts, update)
        return facts, seen


def _canonical(update: PlacedUpdate) -> KeyedUpdate:
    """An update with its data as canonical bytes.  Raises: DecodeError, for the part at fault."""
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
    """What reads the messages of an input; `schemas` is the registry, where one is needed.

    Errors say whose they are, with `named`: others read the same messages.
    """
    if source.traits.is_updates:
        return UpdateIntake(source, physical)
    codec = codec_of(source, physical.readings[source.name], schemas)
    return Intake(source, codec, physical, named=named)
