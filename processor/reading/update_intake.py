"""What the messages of an input of updates come to: its own updates, or facts of CDCv2.

A topic of format `diff` is read by its progress, so a message of a time outside the
batch's interval belongs to a batch before or behind it, and is left to that.  What is no
update there ends the pipeline: without it no time would be complete.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ikebana.arrangements.errors import SourceError
from ikebana.arrangements.frontier import Interval
from ikebana.codecs import cdcv2, cdcv2_avro
from ikebana.codecs.cdcv2 import Progress
from ikebana.codecs.errors import DecodeError
from ikebana.processor.batch.formatting import pack_times
from ikebana.processor.batch.rows import Facts, KeyedUpdate, Seen
from ikebana.processor.linear.chain import chain
from ikebana.processor.linear.scope import frozen
from ikebana.processor.planning import planner
from ikebana.processor.planning.plan import UPDATE_FORMATS, Input
from ikebana.processor.planning.planner import Branch
from ikebana.processor.reading.codec_of import codec_of
from ikebana.processor.reading.intake import Intake, Made, Message, Where, through
from ikebana.processor.verifying import diff_reader

if TYPE_CHECKING:
    from ikebana.codecs.avro import Schemas

_CDCV2 = {"cdcv2-json": cdcv2.decode, "cdcv2-avro": cdcv2_avro.decode}


class UpdateIntake:
    """Reads the messages of one input of updates."""

    def __init__(self, source: Input, physical: planner.Physical) -> None:
        self._source = source
        scope = planner.scope_of_input(source)
        branches: Sequence[Branch] = physical.branches.get(source.name, ())
        if branches and not physical.fused:
            branches = (Branch(source.name, (), ()),)
        self._branches = [(branch, chain(branch.steps, frozen(scope))) for branch in branches]

    def updates(self, messages: Sequence[Message], where: Where, interval: Interval) -> Made:
        """The updates of the interval, through every branch.

        Raises:
            SourceError: a message is no update.
        """
        topic, partition = where
        updates = []
        for offset, key, value, headers, _ in messages:
            at = (partition, offset)
            found = diff_reader.decode(topic, at, key, value, headers)
            _require_time(found.time, where, offset)
            if found.time in interval:
                updates.append(KeyedUpdate(*found[:4]))
        by_branch, failed = through(self._branches, updates)
        return Made(by_branch, failed, Counter())

    def facts(self, messages: Sequence[Message], where: Where) -> tuple[Facts, Seen]:
        """The facts in messages: updates, and statements of progress.

        Raises:
            SourceError: a message is no CDCv2.
        """
        name, (topic, partition) = self._source.name, where
        decode = _CDCV2[self._source.value_format]
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
            for key, value, time, diff in found.updates:
                _require_time(time, where, message.offset)
                facts.keys.append(key)
                facts.values.append(value)
                facts.times.append(time)
                facts.diffs.append(diff)
        return facts, seen


def _require_time(time: int, where: Where, offset: int) -> None:
    if time < 0:
        raise SourceError(
            f"cannot read {where[0]}[{where[1]}]@{offset}: time {time} is negative",
            hint="Times are whole numbers from 0 on.",
        )


def intake_of(
    source: Input, physical: planner.Physical, schemas: "Schemas | None"
) -> Intake | UpdateIntake:
    """What reads the messages of an input; `schemas` is the registry, where one is needed."""
    if source.value_format in UPDATE_FORMATS:
        return UpdateIntake(source, physical)
    codec = codec_of(source, physical.readings[source.name], schemas)
    return Intake(source, codec, physical)
