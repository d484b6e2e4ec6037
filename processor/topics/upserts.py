"""The upserts of messages, as columns: how they are dated and checked, and the pushed steps."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ikebana.codecs.change import Change
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.plain import Plain
from ikebana.processor.base.rows import NO_KEY, NULL_KEY, KeyedUpdate, Partial
from ikebana.processor.linear.chain import Chain
from ikebana.processor.topics.column_types import ColumnTypes
from ikebana.processor.topics.event_time import Dating, EventTimes
from ikebana.processor.topics.messages import Message, MessageOrigin, record_of


@dataclass(slots=True)
class DecodedUpserts:
    """Upserts in order, each with the offset of its message.

    `keys` to `sequences` are the same as in `base.rows.Upserts`.

    * `truncates`: pairs (index of the first upsert after the truncate, offset).
    * `errors`: pairs (offset, error record) of messages with an unreadable key other than null.
    * `wide`: the indexes of upserts with more columns than are read.
    * `ignored`: the numbers of ignored messages, by kind.
    * `latecomers`: the last late messages, each as its offset and how far it lies behind.
    * `times`, `greatest`: with event time, the times of the upserts and the greatest time seen.
    * `judged`: the first and the last offset of upserts that do not count at their own times, and
      whether one of them was too far ahead of the clock.
    """

    keys: list[bytes] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    bad: dict[int, bytes] = field(default_factory=dict)
    failed: dict[int, bytes] = field(default_factory=dict)
    partial: dict[int, Partial] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, bytes] = field(default_factory=dict)
    truncates: list[tuple[int, int]] = field(default_factory=list)
    errors: list[tuple[int, bytes]] = field(default_factory=list)
    wide: list[int] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    latecomers: list[tuple[int, int]] = field(default_factory=list)
    times: list[int] | None = None
    greatest: int | None = None
    judged: tuple[int, int, bool] | None = None

    @property
    def has_special(self) -> bool:
        """Whether anything but keys and values is said of any upsert."""
        return bool(self.bad or self.failed or self.partial or self.before or self.sequences)


def plain_upserts(
    codec: Plain, messages: Sequence[Message], origin: MessageOrigin
) -> DecodedUpserts:
    """Decode plain messages all at once: each of them is exactly one upsert."""
    decoded = DecodedUpserts()
    if not messages:
        return decoded
    offsets, keys, values, *_ = map(list, zip(*messages, strict=True))
    try:
        decoded.keys, decoded.values = codec.keys(keys), codec.values(values)
    except DecodeError:
        pass
    else:
        decoded.offsets = offsets
        return decoded
    for message in messages:
        try:
            (change,) = codec.changes(message.key, message.value, None)
        except DecodeError as error:
            record = record_of(str(error), message, origin)
            if error.key is None:
                add_unreadable(decoded, message, record)
                continue
            decoded.bad[len(decoded.keys)] = record
            change = Change("upsert", error.key)
        assert change.key is not None
        decoded.keys.append(change.key)
        decoded.values.append(change.after)
        decoded.offsets.append(message.offset)
    return decoded


def add_unreadable(decoded: DecodedUpserts, message: Message, record: bytes) -> None:
    """Add a message with an unreadable Kafka key, where that is the row's key.

    Messages with a null key share one error slot, which a message without a value empties.  Any
    other error is never retracted, since its row is not known.
    """
    if message.key is not None:
        decoded.errors.append((message.offset, record))
        return
    if message.value is not None:
        decoded.bad[len(decoded.keys)] = record
    decoded.keys.append(NULL_KEY)
    decoded.values.append(None)
    decoded.offsets.append(message.offset)


def add_truncate(
    decoded: DecodedUpserts, message: Message, origin: MessageOrigin, partitions: int
) -> None:
    """Add a truncate, or an error if several partitions leave it without a place in the order."""
    if partitions == 1:
        decoded.truncates.append((len(decoded.keys), message.offset))
        return
    reason = f"a truncate has no place in the order of the input's {partitions} partitions"
    decoded.errors.append((message.offset, record_of(reason, message, origin)))


def refuse_strange(
    decoded: DecodedUpserts, types: ColumnTypes, messages: Sequence[Message], origin: MessageOrigin
) -> None:
    """Replace upserts in which a column is not of its type by errors under their keys."""
    rows = [
        decoded.partial[at].value if at in decoded.partial else value
        for at, value in enumerate(decoded.values)
    ]
    wrong = types.wrong(rows)
    by_offset = {message.offset: message for message in messages} if wrong else {}
    for at, reason in wrong.items():
        decoded.bad[at] = record_of(reason, by_offset[decoded.offsets[at]], origin)
        decoded.values[at] = None
        decoded.partial.pop(at, None)
        decoded.before.pop(at, None)
        decoded.sequences.pop(at, None)


def make_values(decoded: DecodedUpserts, pushed: Chain) -> None:
    """Replace each value by the result of the pushed steps."""
    rows = [index for index, value in enumerate(decoded.values) if value is not None]
    result = pushed.apply(
        # The time carries the index, because these steps never change times.
        [
            KeyedUpdate(decoded.keys[index], decoded.values[index] or b"", index, 1)
            for index in rows
        ]
    )
    for index in rows:
        decoded.values[index] = None
    for _, value, index, _ in result.updates:
        decoded.values[index] = value
    for _, record, index, _ in result.errors:
        decoded.failed[index] = record


def date(
    decoded: DecodedUpserts,
    event: EventTimes,
    messages: Sequence[Message],
    origin: MessageOrigin,
    dating: Dating,
) -> None:
    """Give upserts their event times; one without a time becomes an error under its key."""
    by_offset = {message.offset: message for message in messages}
    for _, offset in decoded.truncates:
        record = record_of("a truncate has no event time", by_offset[offset], origin)
        decoded.errors.append((offset, record))
    decoded.truncates.clear()
    rows = [
        decoded.partial[at].value if at in decoded.partial else value
        for at, value in enumerate(decoded.values)
    ]
    clocks = [by_offset[offset].timestamp for offset in decoded.offsets]
    bounds = dating.of(decoded.offsets)
    keys = decoded.keys
    if NULL_KEY in keys:
        keys = [NO_KEY if key == NULL_KEY else key for key in keys]
    dated = event.of_rows(keys, rows, clocks, bounds)
    times = decoded.times = []
    placed: list[int] = []
    for at, time in enumerate(dated.times):
        if at in decoded.bad and (event.of_columns or isinstance(time, str)):
            # A value that cannot be decoded has no known event time.
            times.append(bounds[at].lower)
            placed.append(at)
        elif isinstance(time, str):
            times.append(bounds[at].lower)
            placed.append(at)
            decoded.bad[at] = record_of(time, by_offset[decoded.offsets[at]], origin)
            decoded.values[at] = None
            decoded.partial.pop(at, None)
            decoded.before.pop(at, None)
            decoded.sequences.pop(at, None)
        else:
            times.append(time)
            if dated.late and time == bounds[at].lower:
                placed.append(at)
    if placed:
        first, last = (decoded.offsets[at] for at in (placed[0], placed[-1]))
        decoded.judged = first, last, bool(dated.ahead)
    decoded.ignored += Counter({"late": dated.late})
    decoded.latecomers += [(decoded.offsets[at], by) for at, by in dated.latecomers]
    decoded.greatest = dated.greatest
