"""Retract the contents of an output's own topic: read its messages as negated updates.

An edit or a rebuild does this.  The updates go to the shard of their key, where their
replacements from the new plan mostly are, too.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from ikebana.arrangements.update import pieces, sums
from ikebana.codecs.cdcv2 import Progress
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import FactCodec
from ikebana.errors import SourceError
from ikebana.processor.base import diff_reader
from ikebana.processor.base.envelope import pack
from ikebana.processor.base.placing import shard_of
from ikebana.processor.base.rows import KeyedUpdate, Updates
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.own_topics import OwnRange


def taken_back(
    plan: Plan, piece: OwnRange, messages: Sequence[Message], shards: int
) -> Iterator[tuple[int, bytes]]:
    """Pack the negated sums of a range of messages, by shard.

    Raises: SourceError, if a message has no updates of times before the edit's.
    """
    facts = next(o.traits.facts for o in plan.published if o.name == piece.output)
    read = _update if facts is None else partial(_facts, facts())
    rows = [Updates([piece.output], [], [], [], [], counted=True) for _ in range(shards)]
    updates = (update for message in messages for update in read(piece, message))
    for (key, value, time), total in sums(_as_of(piece, updates)).items():
        row = rows[shard_of(value if key is None else key, shards)]
        for diff in pieces(-total):
            row.keys.append(key)
            row.values.append(value)
            row.times.append(time)
            row.diffs.append(diff)
    yield from ((shard, pack(row)) for shard, row in enumerate(rows) if row.keys)


def _as_of(piece: OwnRange, updates: Iterable[KeyedUpdate]) -> Iterator[KeyedUpdate]:
    """Updates with the time at which they are retracted."""
    for update in updates:
        if update.time >= piece.time:
            raise SourceError(
                f"cannot take back {piece.topic}[{piece.partition}]: its time {update.time} is "
                f"not before {piece.time}, where all that the pipeline has written ends",
                hint="Something other than this pipeline has written to the topic.",
            )
        yield update if update.time >= piece.open else update._replace(time=piece.at)


def _update(piece: OwnRange, message: Message) -> list[KeyedUpdate]:
    at = piece.partition, message.offset
    update = diff_reader.decode(piece.topic, at, message.key, message.value, message.headers)
    return [KeyedUpdate(update.key, update.value, update.time, update.diff)]


def _facts(codec: FactCodec, piece: OwnRange, message: Message) -> list[KeyedUpdate]:
    try:
        content = codec.decode(message.value)
    except DecodeError as error:
        raise SourceError(
            f"cannot take back {piece.topic}[{piece.partition}]@{message.offset}: {error.reason}",
            hint="Something other than this pipeline has written to the topic.",
        ) from None
    return (
        [] if isinstance(content, Progress) else [KeyedUpdate(*fact) for fact in content.updates]
    )
