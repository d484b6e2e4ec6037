"""Messages of an output's own topic, which an edit takes back: negated updates of the output.

They count at the last time that is closed when the edit begins, as all that is taken back, and go
to the shard of their key, where what the new plan has in their place mostly comes to lie, too.
"""

from collections.abc import Iterator, Sequence

from ikebana.arrangements.frontier import Time
from ikebana.arrangements.update import pieces, sums
from ikebana.errors import SourceError
from ikebana.processor.reading.messages import Message
from ikebana.processor.rows.envelope import pack
from ikebana.processor.rows.placing import shard_of
from ikebana.processor.rows.rows import Updates
from ikebana.processor.timing.own_topics import OwnRange
from ikebana.processor.verifying import diff_reader


def taken_back(
    piece: OwnRange, messages: Sequence[Message], shards: int
) -> Iterator[tuple[int, bytes]]:
    """Pack what messages of a range add up to, negated, by shard.

    Raises: SourceError, if a message is no update of a time before the edit's.
    """
    rows = [Updates([piece.output], [], [], [], [], counted=True) for _ in range(shards)]
    found = (_update(piece, message) for message in messages)
    for (key, value, at), total in sums(found).items():
        row = rows[shard_of(value if key is None else key, shards)]
        for diff in pieces(-total):
            row.keys.append(key)
            row.values.append(value)
            row.times.append(at)
            row.diffs.append(diff)
    yield from ((shard, pack(row)) for shard, row in enumerate(rows) if row.keys)


def _update(piece: OwnRange, message: Message) -> tuple[bytes | None, bytes, Time, int]:
    at = piece.partition, message.offset
    found = diff_reader.decode(piece.topic, at, message.key, message.value, message.headers)
    if found.time >= piece.time:
        raise SourceError(
            f"cannot take back {piece.topic}[{at[0]}]@{at[1]}: its time {found.time} is not "
            f"before {piece.time}, at which the edit of the plan begins",
            hint="Something other than this pipeline has written to the topic.",
        )
    return found.key, found.value, piece.time - 1, found.diff
