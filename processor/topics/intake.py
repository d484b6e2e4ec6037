"""Decode the messages of an input into upserts for an operator, or into updates.

This includes the work that the planner has pushed into decoding.  Spark, `ikebana.evaluate`
and `ikebana.testing.Run` all decode here.

Inputs of updates are topics of format `diff`, and CDCv2.  A topic of format `diff` is read by its
progress: a message with a time outside the batch's interval belongs to an earlier or later batch,
and is skipped.  A message that is no update stops the pipeline, because its time could never be
complete without it.  Data are made canonical, so that equal data cancel whoever wrote them; an
update with data that are no JSON becomes an error record.
"""

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import msgspec

from ikebana.arrangements.update import Interval
from ikebana.codecs import canonical
from ikebana.codecs.canonical import projection, without_nulls
from ikebana.codecs.cdcv2 import Progress
from ikebana.codecs.change import Change, Codec, Headers
from ikebana.codecs.diff import pack_times
from ikebana.codecs.encodings import timestamp_of
from ikebana.codecs.errors import DecodeError, error_record
from ikebana.codecs.formats import fact_codec
from ikebana.codecs.plain import Plain
from ikebana.errors import SourceError
from ikebana.processor.base import diff_reader
from ikebana.processor.base.diff_reader import PlacedUpdate
from ikebana.processor.base.rows import (
    NO_KEY,
    NULL_KEY,
    SOME_ROW,
    Facts,
    KeyedUpdate,
    Partial,
    TimesReport,
    add,
    keyed,
)
from ikebana.processor.kernels.order import ordered
from ikebana.processor.linear.chain import Chain, chain
from ikebana.processor.linear.scope import frozen
from ikebana.processor.planning import planner
from ikebana.processor.planning.input_rows import (
    comes_out_of_decoding,
    dating_query,
    scope_of_input,
)
from ikebana.processor.planning.plan import Input, Metadata, Reading
from ikebana.processor.planning.planner import Branch
from ikebana.processor.topics.event_time import Dated, Dating, EventTimes, Where
from ikebana.processor.topics.input_codec import (
    ColumnTypes,
    Wide,
    checked_of,
    codec_of,
    columns_of_rows,
)
from ikebana.processor.topics.messages import (
    Message,
    MessageOrigin,
    MessageReader,
    Undecodable,
    images_of,
    record_of,
)

if TYPE_CHECKING:
    from ikebana.codecs.avro_schema import Schemas


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
    def special(self) -> set[int]:
        """The indexes of the upserts of which more is said than their keys and values."""
        return {*self.bad, *self.failed, *self.partial, *self.before, *self.sequences}

    def add(self, key: bytes, value: bytes | None, offset: int) -> None:
        """Add an upsert."""
        self.keys.append(key)
        self.values.append(value)
        self.offsets.append(offset)

    def refuse(self, at: int, record: bytes) -> None:
        """Replace an upsert by an error under its key."""
        self.bad[at], self.values[at] = record, None
        for of_upserts in (self.partial, self.before, self.sequences):
            of_upserts.pop(at, None)

    def rows(self) -> list[bytes | None]:
        """The rows of the upserts, partial ones as far as they go."""
        partial = self.partial
        return [
            partial[at].value if at in partial else value for at, value in enumerate(self.values)
        ]

    def change_row(self, at: int, change: Callable[[bytes], bytes]) -> None:
        """Change the row of an upsert, if it has one."""
        if (value := self.values[at]) is not None:
            self.values[at] = change(value)
        if (partial := self.partial.get(at)) is not None:
            self.partial[at] = msgspec.structs.replace(partial, value=change(partial.value))


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
        decoded.add(change.key, change.after, message.offset)
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
    decoded.add(NULL_KEY, None, message.offset)


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
    wrong = types.wrong(decoded.rows())
    by_offset = {message.offset: message for message in messages} if wrong else {}
    for at, reason in wrong.items():
        decoded.refuse(at, record_of(reason, by_offset[decoded.offsets[at]], origin))


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


def set_event_times(
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
    clocks = [by_offset[offset].timestamp for offset in decoded.offsets]
    bounds = dating.of(decoded.offsets)
    keys = decoded.keys
    if NULL_KEY in keys:
        keys = [NO_KEY if key == NULL_KEY else key for key in keys]
    dated = event.of_rows(keys, decoded.rows(), clocks, bounds)
    times = decoded.times = []
    placed: list[int] = []
    for at, time in enumerate(dated.times):
        is_bad = at in decoded.bad
        if isinstance(time, str) and not is_bad:
            decoded.refuse(at, record_of(time, by_offset[decoded.offsets[at]], origin))
        if isinstance(time, str) or (is_bad and event.of_columns):
            # A value that cannot be decoded has no known event time.
            times.append(bounds[at].lower)
            placed.append(at)
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


# The index of each message that passes, with its changes or its error.
DecodedMessages = Sequence[tuple[int, Sequence[Change] | Undecodable]]


class DecodedUpdates(NamedTuple):
    """The updates of an input in `mode: diffs` by branch, and those of its error records.

    `ignored` has the numbers of ignored messages, by kind.  With event time, `greatest` is the
    greatest time seen, and `latecomers` are the last late messages, each as its offset and how
    far it lies behind.
    """

    updates: list[tuple[Branch, list[KeyedUpdate]]]
    errors: list[KeyedUpdate]
    ignored: Counter[str]
    greatest: int | None = None
    latecomers: Sequence[tuple[int, int]] = ()


class Intake:
    """Makes upserts or updates of the messages of one input, each for itself.

    With `named`, error reasons name the input, because other inputs read the same messages.
    """

    def __init__(
        self, source: Input, codec: Codec, physical: planner.Physical, *, named: bool = False
    ) -> None:
        self._reader = f"input {source.name}: " if named else ""
        reading = physical.readings[source.name]
        self._messages = MessageReader(source, codec, reading)
        scope = frozen(scope_of_input(source))
        self._pushed = chain(reading.pushed, scope) if reading.pushed else None
        self._event = None
        if source.event_time is not None:
            self._event = EventTimes(dating_query(source))
        as_is = source.key_format == source.traits.encoding == "bytes" and source.mode == "upsert"
        alters = self._messages.selects or self._pushed is not None or self._event is not None
        self.takes_as_is = as_is and not alters
        """Whether the key and the value of a message are those of its upsert, undecoded."""
        self._branches = branches_in_decoding(source, physical)
        self.expands = any(steps.expands for _, steps in self._branches)
        """Whether a message may become any number of updates."""
        self._appends = source.mode == "append"
        self._compares = source.drift
        self._expects_rows = source.drift and bool(source.key)
        in_rows = source.traits.kind != "rows" or (
            bool(source.key) and self._messages.plain is None
        )
        self._kafka_keyed = not in_rows
        self._types = ColumnTypes(source)
        self._metadata = MetadataColumns(source, reading)
        of_rows = columns_of_rows(source, reading)
        self._narrowed = projection(of_rows or ())
        # All plain messages have more columns than are read; other decoders report which do.
        self._checks_more = of_rows is not None and checked_of(source, reading) != of_rows
        self._name = source.name

    def upserts(
        self,
        messages: Sequence[Message],
        where: Where,
        partitions: int = 1,
        dating: Dating | None = None,
    ) -> DecodedUpserts:
        """Decode messages into upserts; `partitions` is the number of partitions of the input.

        `dating` is required if the input has event time.
        """
        origin = MessageOrigin(*where, self._reader)
        plain, selects = self._messages.plain, self._messages.selects
        if plain is not None and not selects and not self._messages.any_too_deep(messages):
            decoded = plain_upserts(plain, messages, origin)
        else:
            decoded = self._upserts(messages, origin, partitions)
        if self._types.checks:
            refuse_strange(decoded, self._types, messages, origin)
        if plain is not None and self._checks_more:
            decoded.wide = [*range(len(decoded.keys))]
        for at in decoded.wide:
            # These columns were decoded only to be checked.
            decoded.change_row(at, self._narrowed)
        if self._metadata:
            self._metadata.add(decoded, messages, origin)
            # The old image in a message has no metadata, so it shows only that there was a row.
            decoded.before = dict.fromkeys(decoded.before, SOME_ROW)
        if self._event is not None:
            assert dating is not None, "event time without a batch"
            set_event_times(decoded, self._event, messages, origin, dating)
        if self._pushed is not None:
            make_values(decoded, self._pushed)
        return decoded

    def _upserts(
        self, messages: Sequence[Message], origin: MessageOrigin, partitions: int
    ) -> DecodedUpserts:
        decoded = DecodedUpserts()
        keys, values, offsets = decoded.keys, decoded.values, decoded.offsets
        for at, outcome in self._messages.decode(messages, origin, decoded.ignored):
            message = messages[at]
            if isinstance(outcome, Undecodable):
                if outcome.key is None and self._kafka_keyed:
                    add_unreadable(decoded, message, outcome.record)
                elif outcome.key is None:
                    decoded.errors.append((message.offset, outcome.record))
                else:
                    decoded.bad[len(keys)] = outcome.record
                    decoded.add(outcome.key, None, message.offset)
                continue
            for change in outcome:
                kind, key, after, before, absent, replaces, sequence = change
                if isinstance(change, Wide):
                    # The old image is compared with the state, which has only read columns.
                    before = None if before is None else self._narrowed(before)
                    decoded.wide.append(len(keys))
                if kind == "truncate":
                    add_truncate(decoded, message, origin, partitions)
                    continue
                assert key is not None, "only a truncate has no key"
                index = len(keys)
                if sequence:
                    # Its message may have overtaken the one with its old row.
                    parts = (ordered(part, descending=False) for part in sequence)
                    decoded.sequences[index] = b"".join(parts)
                elif before is not None and kind == "upsert":
                    decoded.before[index] = crc32(before)
                elif before is not None and outcome[-1].kind == "upsert":
                    # After a delete by a changed key, no row shows which columns are new.
                    decoded.before[index] = crc32(without_nulls(before))
                elif replaces and (
                    self._compares if kind == "delete" else self._may_have_moved(message)
                ):
                    # Postgres fills images of deleted rows: they prove only that one was there.
                    decoded.before[index] = SOME_ROW
                if absent:
                    assert after is not None, "a partial image is one"
                    record = record_of(_NOTHING_TO_LEAVE, message, origin)
                    decoded.partial[index] = Partial(after, absent, record)
                    after = None
                keys.append(key)
                values.append(after)
                offsets.append(message.offset)
        return decoded

    def _may_have_moved(self, message: Message) -> bool:
        """Whether an update without an old image may have changed the row's key.

        If the Kafka key has the key's columns, that would be a delete and an insert.
        """
        return self._expects_rows and self._messages.kafka_key(message) is None

    def updates(
        self,
        messages: Sequence[Message],
        where: Where,
        times: Sequence[int],
        dating: Dating | None = None,
    ) -> DecodedUpdates:
        """Decode messages into updates by their old and new images, and apply every branch.

        `times` are the times of the messages.  With event time, they are the times of messages
        without an event time, and `dating` is required.
        """
        origin = MessageOrigin(*where, self._reader)
        ignored: Counter[str] = Counter()
        rows = self._messages.rows_at_once(messages, ignored)
        changes: DecodedMessages
        which: Sequence[int]
        if rows is not None and self._metadata:
            both = zip(rows.at, rows.values, strict=True)
            own_rows = [self._metadata.row(row, messages[at], origin) for at, row in both]
            rows = rows._replace(values=own_rows)
        if rows is None:
            changes = list(self._with_metadata(messages, origin, ignored))
            which = [at for at, _ in changes]
            dated = self._dated(which, *_rows_to_date(changes), messages, times, dating)
        else:
            which = rows.at
            values = [value or None for value in rows.values]
            dated = self._dated(which, rows.keys, values, messages, times, dating)
        ignored += Counter({"late": dated.late})
        if rows is None or str in set(map(type, dated.times)):
            changes = changes if rows is None else rows.changes()
            updates, origins, errors = self._of_images(
                changes, dated.times, messages, times, origin
            )
        else:
            all_updates = map(KeyedUpdate, rows.keys, rows.values, dated.times, repeat(1))  # type: ignore[arg-type]
            updates, origins, errors = list(all_updates), [*which], []
        updates, strange = self._without_strange(updates, origins, messages, origin)
        by_branch, failed = apply_branches(self._branches, updates)
        latecomers = [(messages[which[at]].offset, by) for at, by in dated.latecomers]
        errors += strange + failed
        return DecodedUpdates(by_branch, errors, ignored, dated.greatest, latecomers)

    def _with_metadata(
        self, messages: Sequence[Message], origin: MessageOrigin, ignored: Counter[str]
    ) -> Iterator[tuple[int, Sequence[Change] | Undecodable]]:
        """The changes of messages, with the metadata that is read."""
        for at, changes in self._messages.decode(messages, origin, ignored):
            if self._metadata and not isinstance(changes, Undecodable):
                message = messages[at]
                changes = [
                    c._replace(after=c.after and self._metadata.row(c.after, message, origin))
                    for c in changes
                ]
            yield at, changes

    def _of_images(
        self,
        decoded: DecodedMessages,
        dated: Sequence[int | str],
        messages: Sequence[Message],
        times: Sequence[int],
        origin: MessageOrigin,
    ) -> tuple[list[KeyedUpdate], list[int], list[KeyedUpdate]]:
        """The updates of changes by their images, the index of each one's message, and errors."""
        updates: list[KeyedUpdate] = []
        origins: list[int] = []
        errors: list[KeyedUpdate] = []
        of_columns = self._event is not None and self._event.of_columns
        for (at, changes), time in zip(decoded, dated, strict=True):
            record: bytes | None = None
            if isinstance(changes, Undecodable):
                record = changes.record
            elif isinstance(time, str):
                record = record_of(time, messages[at], origin)
            else:
                try:
                    new = [u for change in changes for u in images_of(change, time)]
                except DecodeError as error:
                    record = record_of(str(error), messages[at], origin)
                else:
                    updates += new
                    origins += [at] * len(new)
            if record is not None:
                # No state is kept here, so the error is never retracted.
                unread = isinstance(changes, Undecodable) and of_columns
                placed = times[at] if isinstance(time, str) or unread else time
                errors.append(KeyedUpdate(None, record, placed, 1))
        return updates, origins, errors

    def _dated(
        self,
        which: Sequence[int],
        keys: Sequence[bytes | None],
        rows: Sequence[bytes | None],
        messages: Sequence[Message],
        times: Sequence[int],
        dating: Dating | None,
    ) -> Dated:
        """The event times of the messages that count, or their own `times` without event time."""
        if self._event is None:
            return Dated([times[at] for at in which])
        assert dating is not None, "event time without a batch"
        bounds = dating.of([messages[at].offset for at in which])
        clocks = [messages[at].timestamp for at in which]
        return self._event.of_rows(keys, rows, clocks, bounds)

    def _without_strange(
        self,
        updates: list[KeyedUpdate],
        origins: Sequence[int],
        messages: Sequence[Message],
        origin: MessageOrigin,
    ) -> tuple[list[KeyedUpdate], list[KeyedUpdate]]:
        """Split updates into those with columns that fit their types, and errors for the others.

        `origins` has the index of each update's message.  An error is retracted together with
        its row, by a later message.  So the error record of an image names no offset: only then
        do insertion and retraction cancel.
        """
        if not self._types.checks:
            return updates, []
        if not (wrong := self._types.wrong([update.value for update in updates])):
            return updates, []
        errors = []
        for index, reason in wrong.items():
            key, _, time, diff = updates[index]
            if self._appends:
                record = record_of(reason, messages[origins[index]], origin)
            else:
                record = error_record(f"input {self._name}: {reason}", None, key, None)
            errors.append(KeyedUpdate(None, record, time, diff))
        return [u for index, u in enumerate(updates) if index not in wrong], errors


def branches_in_decoding(source: Input, physical: planner.Physical) -> list[tuple[Branch, Chain]]:
    """List the branches of an input's updates that run in the task that decodes these."""
    if not comes_out_of_decoding(source):
        return []
    branches = physical.branches.get(source.name, ())
    if branches and not physical.fused:
        # The branches run in the shards, which get the input's updates as they are.
        branches = (Branch(source.name, (), ()),)
    scope = frozen(scope_of_input(source))
    return [(branch, chain(branch.steps, scope)) for branch in branches]


def apply_branches(
    branches: Sequence[tuple[Branch, Chain]], updates: Sequence[KeyedUpdate]
) -> tuple[list[tuple[Branch, list[KeyedUpdate]]], list[KeyedUpdate]]:
    """Apply each branch to updates; return the results by branch, and error records."""
    by_branch, errors = [], []
    for branch, steps in branches:
        passed = steps.apply(updates, branch.silent)
        results = passed.updates
        by_branch.append((branch, keyed(results) if branch.inlets else results))
        errors += passed.errors
    return by_branch, errors


def _rows_to_date(decoded: DecodedMessages) -> tuple[list[bytes | None], list[bytes | None]]:
    """Give for each message the key and the row that determine its time."""
    keys: list[bytes | None] = []
    rows: list[bytes | None] = []
    for _, changes in decoded:
        last = changes[-1] if not isinstance(changes, Undecodable) and changes else None
        keys.append(None if last is None else last.key)
        rows.append(None if last is None else last.after or last.before)
    return keys, rows


_NOTHING_TO_LEAVE = "the message leaves columns as they are, of a row that is not there"

# Of metadata, only the columns that are read are added.  They belong to the message that set the
# row: an upsert with an equal value has other metadata, and so is another row.

_moment = timestamp_of(3)
_fields_of = canonical.decoder(dict[str, Any])


def _headers(headers: Headers) -> dict[str, str | None]:
    """Headers by name, their values in base64; of several with one name the last."""
    result: dict[str, str | None] = {}
    for name, value in headers or ():
        raw = value.encode() if isinstance(value, str) else value
        result[name] = None if raw is None else b64encode(raw).decode()
    return result


_VALUES: Mapping[Metadata, Callable[[Message, MessageOrigin], Any]] = {
    "timestamp": lambda message, _: _moment(message.timestamp),
    "partition": lambda _, origin: origin.partition,
    "offset": lambda message, _: message.offset,
    "headers": lambda message, _: _headers(message.headers),
    "topic": lambda _, origin: origin.topic,
}


class MetadataColumns:
    """Adds metadata of messages to the rows of an input, as far as it is read."""

    def __init__(self, source: Input, reading: Reading) -> None:
        self._columns = [
            (name, _VALUES[kind])
            for name, kind in source.metadata
            if reading.columns is None or name in reading.columns
        ]

    def __bool__(self) -> bool:
        return bool(self._columns)

    def row(self, row: bytes, message: Message, origin: MessageOrigin) -> bytes:
        """A row with metadata; a value that is no object has no columns, and stays."""
        if row[:1] != b"{":
            return row
        columns = {name: value(message, origin) for name, value in self._columns}
        return canonical.write({**_fields_of(row), **columns})

    def add(
        self, decoded: DecodedUpserts, messages: Sequence[Message], origin: MessageOrigin
    ) -> None:
        """Add metadata to the values of upserts."""
        by_offset = {message.offset: message for message in messages}
        for at, offset in enumerate(decoded.offsets):
            message = by_offset[offset]
            decoded.change_row(at, partial(self.row, message=message, origin=origin))


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
        by_branch, failed = apply_branches(self._branches, updates)
        return DecodedUpdates(by_branch, bad + failed, Counter())

    def facts(self, messages: Sequence[Message], where: Where) -> tuple[Facts, TimesReport]:
        """Decode messages of CDCv2 into updates, and statements of progress.

        Raises:
            SourceError: a message is no CDCv2.
        """
        name, (topic, partition) = self._source.name, where
        decode = fact_codec(self._source.value_format).decode
        facts, seen = Facts(name, [], [], [], []), TimesReport(name, topic, partition)
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
