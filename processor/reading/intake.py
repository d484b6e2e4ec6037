"""Decode the messages of an input into upserts for an upsert, or into updates.

This includes the work that the planner has pushed into decoding.  Spark, `ikebana.evaluate`
and `ikebana.testing.Run` all decode here.

A message that cannot be decoded becomes an error record: under its key if the key can be read,
without a key otherwise.  A message that says nothing about a row of the relation is ignored,
and counted.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

import msgspec

from ikebana.codecs.change import Change, Codec, Headers, Ignored
from ikebana.codecs.error_record import error_record
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.fields import projection
from ikebana.codecs.nesting import DEEPEST, too_deep
from ikebana.codecs.plain import Plain
from ikebana.processor.linear.chain import Chain, chain
from ikebana.processor.linear.scope import KEY, VALUE, Scope, frozen
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning import planner, ways
from ikebana.processor.planning.plan import Input
from ikebana.processor.planning.planner import Branch
from ikebana.processor.reading.column_types import ColumnTypes
from ikebana.processor.reading.vouched import Wide
from ikebana.processor.rows.rows import KeyedUpdate, Partial, keyed
from ikebana.processor.timing.event_time import Dating, EventTimes, Where


class Message(NamedTuple):
    """A Kafka message at an offset of its partition."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = None
    timestamp: int | None = None


@dataclass(slots=True)
class Taken:
    """Upserts in order, each with the offset of its message.

    `keys` to `before` are the same as in `rows.rows.Upserts`.

    * `truncates`: pairs (index of the first upsert after the truncate, offset).
    * `errors`: pairs (offset, error record) of messages whose key cannot be read.
    * `wide`: the indexes of upserts with more columns than are read.
    * `ignored`: the numbers of ignored messages, by kind.
    * `times`, `greatest`: with event time, the times of the upserts and the greatest time seen.
    """

    keys: list[bytes] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    bad: dict[int, bytes] = field(default_factory=dict)
    failed: dict[int, bytes] = field(default_factory=dict)
    partial: dict[int, Partial] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)
    truncates: list[tuple[int, int]] = field(default_factory=list)
    errors: list[tuple[int, bytes]] = field(default_factory=list)
    wide: list[int] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    times: list[int] | None = None
    greatest: int | None = None


class Made(NamedTuple):
    """The updates of an input in `mode: diffs` by branch, and those of its error records.

    `ignored` has the numbers of ignored messages, by kind.  With event time, `greatest` is the
    greatest time seen.
    """

    updates: list[tuple[Branch, list[KeyedUpdate]]]
    errors: list[KeyedUpdate]
    ignored: Counter[str]
    greatest: int | None = None


class _Origin(NamedTuple):
    """A partition whose messages are read; error reasons begin with `reader`."""

    topic: str
    partition: int
    reader: str


class _Bad(NamedTuple):
    """The error record of a message that cannot be decoded, with its key if that is known."""

    key: bytes | None
    record: bytes


class Intake:
    """Decodes the messages of one input; what a message becomes depends on that message alone.

    With `named`, error reasons name the input, because other inputs read the same messages.
    """

    def __init__(
        self, source: Input, codec: Codec, physical: planner.Physical, *, named: bool = False
    ) -> None:
        self._reader = f"input {source.name}: " if named else ""
        self._codec = codec
        self._plain = codec if isinstance(codec, Plain) else None
        # Only JSON can nest too deep: the depth of an Avro value is that of its schema.
        self._nests = source.traits.encoding == "json"
        self._keys_nest = source.key_format == "json"
        reading = physical.readings[source.name]
        scope = ways.scope_of_input(source)
        self._passes = _key_test(source, reading, scope)
        self._pushed = chain(reading.pushed, frozen(scope)) if reading.pushed else None
        self._event = None
        if source.event_time is not None:
            self._event = EventTimes(ways.dating_query(source))
        as_is = source.key_format == source.traits.encoding == "bytes" and source.mode == "upsert"
        self.takes_as_is = (
            as_is and self._passes is None and self._pushed is None and self._event is None
        )
        """Whether the key and the value of a message are those of its upsert, undecoded."""
        self._branches = branches_in_decoding(source, physical)
        self._by_images = source.mode == "diffs"
        self._appends = source.mode == "append"
        self._read_one = self._appended if self._appends else codec.changes
        self._types = ColumnTypes(source)
        self._narrowed = projection(reading.columns or ())
        self._name = source.name

    def upserts(
        self,
        messages: Sequence[Message],
        where: Where,
        partitions: int = 1,
        dating: Dating | None = None,
    ) -> Taken:
        """Decode messages into upserts; `partitions` is the number of partitions of the input.

        `dating` is required if the input has event time.
        """
        origin = _Origin(*where, self._reader)
        if self._plain is not None and self._passes is None and not self._any_too_deep(messages):
            taken = _plain_upserts(self._plain, messages, origin)
        else:
            taken = self._upserts(messages, origin, partitions)
        if self._types.checks:
            _refuse_strange(taken, self._types, messages, origin)
        self._narrow(taken)
        if self._event is not None:
            assert dating is not None, "event time without a batch"
            _date(taken, self._event, messages, origin, dating)
        if self._pushed is not None:
            _make_values(taken, self._pushed)
        return taken

    def _narrow(self, taken: Taken) -> None:
        """Drop the columns of upserts that were decoded only to be checked."""
        for at in taken.wide:
            if (value := taken.values[at]) is not None:
                taken.values[at] = self._narrowed(value)
            if at in taken.partial:
                partial = taken.partial[at]
                taken.partial[at] = msgspec.structs.replace(
                    partial, value=self._narrowed(partial.value)
                )

    def _upserts(self, messages: Sequence[Message], origin: _Origin, partitions: int) -> Taken:
        taken = Taken()
        keys, values, offsets = taken.keys, taken.values, taken.offsets
        for at, found in self._found(messages, origin, taken.ignored):
            message = messages[at]
            if isinstance(found, _Bad):
                if found.key is None:
                    taken.errors.append((message.offset, found.record))
                else:
                    taken.bad[len(keys)] = found.record
                    keys.append(found.key)
                    values.append(None)
                    offsets.append(message.offset)
                continue
            for change in found:
                kind, key, after, before, absent, _ = change
                if isinstance(change, Wide):
                    # The old image is compared with the state, which has only read columns.
                    before = None if before is None else self._narrowed(before)
                    taken.wide.append(len(keys))
                if kind == "truncate":
                    _truncate(taken, message, origin, partitions)
                    continue
                assert key is not None, "only a truncate has no key"
                index = len(keys)
                # Postgres fills unknown columns of a deleted row, so its image proves nothing.
                if before is not None and kind == "upsert":
                    taken.before[index] = crc32(before)
                if absent:
                    assert after is not None, "a partial image is one"
                    record = _record(_NOTHING_TO_LEAVE, message, origin)
                    taken.partial[index] = Partial(after, absent, record)
                    after = None
                keys.append(key)
                values.append(after)
                offsets.append(message.offset)
        return taken

    def updates(
        self,
        messages: Sequence[Message],
        where: Where,
        times: Sequence[int],
        dating: Dating | None = None,
    ) -> Made:
        """Decode messages into updates by their old and new images, and apply every branch.

        `times` are the times of the messages.  With event time, they are the times of messages
        without an event time, and `dating` is required.
        """
        origin = _Origin(*where, self._reader)
        ignored: Counter[str] = Counter()
        updates: list[KeyedUpdate] = []
        origins: list[int] = []
        errors: list[KeyedUpdate] = []
        found = self._rows_at_once(messages, ignored)
        if found is None:
            found = list(self._found(messages, origin, ignored))
        dates: Sequence[int | str] = [times[at] for at, _ in found]
        greatest, of_columns = None, False
        if self._event is not None:
            of_columns = self._event.of_columns
            assert dating is not None, "event time without a batch"
            dated = self._event.of_rows(*_rows_to_date(found, messages), dating)
            dates, greatest = dated.times, dated.greatest
            ignored += Counter({"late": dated.late})
        for (at, changes), time in zip(found, dates, strict=True):
            record: bytes | None = None
            if isinstance(changes, _Bad):
                record = changes.record
            elif isinstance(time, str):
                record = _record(time, messages[at], origin)
            else:
                try:
                    made = [u for change in changes for u in _images(change, time)]
                except DecodeError as error:
                    record = _record(str(error), messages[at], origin)
                else:
                    updates += made
                    origins += [at] * len(made)
            if record is not None:
                # No state is kept here, so the error is never retracted.
                unread = isinstance(changes, _Bad) and of_columns
                placed = times[at] if isinstance(time, str) or unread else time
                errors.append(KeyedUpdate(None, record, placed, 1))
        strange: list[KeyedUpdate] = []
        if self._types.checks:
            updates, strange = self._without_strange(updates, origins, messages, origin)
        by_branch, failed = through(self._branches, updates)
        return Made(by_branch, errors + strange + failed, ignored, greatest)

    def _without_strange(
        self,
        updates: list[KeyedUpdate],
        origins: Sequence[int],
        messages: Sequence[Message],
        origin: _Origin,
    ) -> tuple[list[KeyedUpdate], list[KeyedUpdate]]:
        """Split updates into those whose columns fit their types, and errors for the others.

        `origins` has the index of each update's message.  An error is retracted together with
        its row, by another message than the one that brought it.  So the error record of an
        image names no offset: only then do insertion and retraction cancel.
        """
        wrong = self._types.wrong([update.value for update in updates])
        if not wrong:
            return updates, []
        errors = []
        for index, reason in wrong.items():
            key, _, time, diff = updates[index]
            if self._appends:
                record = _record(reason, messages[origins[index]], origin)
            else:
                record = error_record(f"input {self._name}: {reason}", None, key, None)
            errors.append(KeyedUpdate(None, record, time, diff))
        return [u for index, u in enumerate(updates) if index not in wrong], errors

    def _rows_at_once(
        self, messages: Sequence[Message], ignored: Counter[str]
    ) -> list[tuple[int, Sequence[Change] | _Bad]] | None:
        """Decode plain rows of `mode: append` at once, as `_found` would; None if it cannot."""
        plain = self._plain
        if plain is None or not self._appends or self._passes is not None:
            return None
        if self._any_too_deep(messages):
            return None
        kept = [at for at, message in enumerate(messages) if message.value is not None]
        keyed_at = [at for at in kept if messages[at].key is not None]
        keys: list[bytes | None] = [None] * len(messages)
        try:
            known = plain.keys([messages[at].key for at in keyed_at])
            values = plain.values([messages[at].value for at in kept])
        except DecodeError:
            return None
        for at, key in zip(keyed_at, known, strict=True):
            keys[at] = key
        if len(kept) < len(messages):
            ignored["tombstone"] += len(messages) - len(kept)
        return [
            (at, (Change("upsert", keys[at], value),))
            for at, value in zip(kept, values, strict=True)
        ]

    def _found(
        self, messages: Sequence[Message], origin: _Origin, ignored: Counter[str]
    ) -> Iterator[tuple[int, Sequence[Change] | _Bad]]:
        """Yield the index of each message that passes, with its changes or its error."""
        if self._passes is None:
            yield from self._read(messages, origin, range(len(messages)), ignored)
            return
        keys = [self._kafka_key(message) for message in messages]
        known = [at for at, key in enumerate(keys) if key is not None]
        passing = self._passes([keys[at] for at in known])
        dropped = {at for at, passes in zip(known, passing, strict=True) if not passes}
        left = [at for at in range(len(messages)) if at not in dropped]
        found = list(self._read(messages, origin, left, ignored))
        # Keys that are in the value, not in the Kafka key, are known only after decoding.
        later = [
            change.key
            for at, changes in found
            if keys[at] is None and not isinstance(changes, _Bad)
            for change in changes
            if change.key is not None
        ]
        wanted = {k for k, passes in zip(later, self._passes(later), strict=True) if passes}
        for at, changes in found:
            if keys[at] is None and not isinstance(changes, _Bad):
                changes = self._chosen(changes, wanted)
            yield at, changes

    def _chosen(self, changes: Sequence[Change], wanted: Collection[bytes]) -> Sequence[Change]:
        """Choose the changes of a message whose keys pass.

        If an image is missing or lacks columns, the message is used as a whole or not at all.
        """
        chosen = [c for c in changes if c.key is None or c.key in wanted]
        if self._by_images and 0 < len(chosen) < len(changes) and any(map(_untold, changes)):
            return changes
        return chosen

    def _read(
        self,
        messages: Sequence[Message],
        origin: _Origin,
        which: Iterable[int],
        ignored: Counter[str],
    ) -> Iterator[tuple[int, Sequence[Change] | _Bad]]:
        decode = self._read_one
        for at in which:
            _, key, value, headers, _ = messages[at]
            if key is not None and self._keys_nest and too_deep(key):
                yield at, _Bad(None, _record(_DEEP.format("key"), messages[at], origin))
                continue
            if value is not None and self._nests and too_deep(value):
                own = self._kafka_key(messages[at])
                yield at, _Bad(own, _record(_DEEP.format("value"), messages[at], origin))
                continue
            try:
                found = decode(key, value, headers)
            except DecodeError as error:
                yield at, _Bad(error.key, _record(str(error), messages[at], origin))
            else:
                if isinstance(found, Ignored):
                    ignored[found.what] += 1
                else:
                    yield at, found

    def _appended(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        """Decode a message of `mode: append`: a row that replaces no other, and needs no key."""
        if value is None:
            return Ignored("tombstone")
        if key is not None or self._plain is None:
            return self._codec.changes(key, value, headers)
        (change,) = self._plain.changes(_NO_KEY, value, headers)
        return [change._replace(key=None)]

    def _any_too_deep(self, messages: Sequence[Message]) -> bool:
        values = [m.value for m in messages if m.value is not None] if self._nests else []
        keys = [m.key for m in messages if m.key is not None] if self._keys_nest else []
        return any(map(too_deep, values)) or any(map(too_deep, keys))

    def _kafka_key(self, message: Message) -> bytes | None:
        try:
            return self._codec.key(message.key)
        except DecodeError:
            return None


def branches_in_decoding(source: Input, physical: planner.Physical) -> list[tuple[Branch, Chain]]:
    """List the branches of an input's updates that run in the task that decodes these."""
    if not ways.comes_out_of_decoding(source):
        return []
    branches = physical.branches.get(source.name, ())
    if branches and not physical.fused:
        # The branches run in the shards, which get the input's updates as they are.
        branches = (Branch(source.name, (), ()),)
    scope = frozen(ways.scope_of_input(source))
    return [(branch, chain(branch.steps, scope)) for branch in branches]


def through(
    branches: Sequence[tuple[Branch, Chain]], updates: Sequence[KeyedUpdate]
) -> tuple[list[tuple[Branch, list[KeyedUpdate]]], list[KeyedUpdate]]:
    """Apply each branch to updates; return the results by branch, and error records."""
    by_branch, errors = [], []
    for branch, steps in branches:
        passed = steps.apply(updates, branch.silent)
        made = passed.updates
        by_branch.append((branch, keyed(made) if branch.inlets else made))
        errors += passed.errors
    return by_branch, errors


def _date(
    taken: Taken, event: EventTimes, messages: Sequence[Message], origin: _Origin, dating: Dating
) -> None:
    """Give upserts their event times; one without a time becomes an error under its key."""
    by_offset = {message.offset: message for message in messages}
    for _, offset in taken.truncates:
        record = _record("a truncate has no event time", by_offset[offset], origin)
        taken.errors.append((offset, record))
    taken.truncates.clear()
    rows = [
        taken.partial[at].value if at in taken.partial else value
        for at, value in enumerate(taken.values)
    ]
    clocks = [by_offset[offset].timestamp for offset in taken.offsets]
    dated = event.of_rows(taken.keys, rows, clocks, dating)
    times = taken.times = []
    for at, time in enumerate(dated.times):
        if at in taken.bad and (event.of_columns or isinstance(time, str)):
            # A value that cannot be decoded has no known event time.
            times.append(dating.lower)
        elif isinstance(time, str):
            times.append(dating.lower)
            taken.bad[at] = _record(time, by_offset[taken.offsets[at]], origin)
            taken.values[at] = None
            taken.partial.pop(at, None)
            taken.before.pop(at, None)
        else:
            times.append(time)
    taken.ignored += Counter({"late": dated.late})
    taken.greatest = dated.greatest


def _rows_to_date(
    found: Sequence[tuple[int, Sequence[Change] | _Bad]], messages: Sequence[Message]
) -> tuple[list[bytes | None], list[bytes | None], list[int | None]]:
    """Give for each message the key and the row that determine its time, and its timestamp."""
    keys: list[bytes | None] = []
    rows: list[bytes | None] = []
    for _, changes in found:
        last = changes[-1] if not isinstance(changes, _Bad) and changes else None
        keys.append(None if last is None else last.key)
        rows.append(None if last is None else last.after or last.before)
    return keys, rows, [messages[at].timestamp for at, _ in found]


def _plain_upserts(codec: Plain, messages: Sequence[Message], origin: _Origin) -> Taken:
    """Decode plain messages all at once: each of them is exactly one upsert."""
    taken = Taken()
    if not messages:
        return taken
    offsets, keys, values, *_ = map(list, zip(*messages, strict=True))
    try:
        taken.keys, taken.values = codec.keys(keys), codec.values(values)
    except DecodeError:
        pass
    else:
        taken.offsets = offsets
        return taken
    for message in messages:
        try:
            (change,) = codec.changes(message.key, message.value, None)
        except DecodeError as error:
            record = _record(str(error), message, origin)
            if error.key is None:
                taken.errors.append((message.offset, record))
                continue
            taken.bad[len(taken.keys)] = record
            change = Change("upsert", error.key)
        assert change.key is not None
        taken.keys.append(change.key)
        taken.values.append(change.after)
        taken.offsets.append(message.offset)
    return taken


_DEEP = f"could not decode {{}} as JSON: it is nested more than {DEEPEST} deep"
# Every plain format can decode this as a key.
_NO_KEY = b"0"
_NOTHING_TO_LEAVE = "the message leaves columns as they are, of a row that is not there"


def _key_test(
    source: Input, reading: planner.Reading, scope: Scope
) -> Callable[[Sequence[bytes | None]], list[bool]] | None:
    """Make a test of many keys at once; a key on which a condition fails passes."""
    if not reading.key_filters:
        return None
    # The key's columns are the fields of the key, so the query reads it in the value's place.
    types = {name: kind for name, kind in scope.types.items() if name in source.key}
    of_key = Scope({**types, KEY: scope.types[KEY], VALUE: scope.types[VALUE]}, open=scope.open)
    from ikebana.processor.linear.query import compiled

    queries = [
        compiled((Sql(where=conditions),), frozen(of_key)) for conditions in reading.key_filters
    ]

    def passes(keys: Sequence[bytes | None]) -> list[bool]:
        passing: set[int] = set()
        for query in queries:
            made, failed = query.run(keys, [key or b"" for key in keys])
            passing.update(made.rows)
            passing.update(row for row, _, _ in failed)
        return [at in passing for at in range(len(keys))]

    return passes


def _truncate(taken: Taken, message: Message, origin: _Origin, partitions: int) -> None:
    if partitions == 1:
        taken.truncates.append((len(taken.keys), message.offset))
        return
    reason = f"a truncate has no place in the order of the input's {partitions} partitions"
    taken.errors.append((message.offset, _record(reason, message, origin)))


def _refuse_strange(
    taken: Taken, types: ColumnTypes, messages: Sequence[Message], origin: _Origin
) -> None:
    """Replace upserts in which a column is not of its type by errors under their keys."""
    rows = [
        taken.partial[at].value if at in taken.partial else value
        for at, value in enumerate(taken.values)
    ]
    wrong = types.wrong(rows)
    by_offset = {message.offset: message for message in messages} if wrong else {}
    for at, reason in wrong.items():
        taken.bad[at] = _record(reason, by_offset[taken.offsets[at]], origin)
        taken.values[at] = None
        taken.partial.pop(at, None)
        taken.before.pop(at, None)


def _make_values(taken: Taken, pushed: Chain) -> None:
    """Replace each value by the result of the pushed steps."""
    rows = [index for index, value in enumerate(taken.values) if value is not None]
    found = pushed.apply(
        # The time carries the index, because these steps never change times.
        [KeyedUpdate(taken.keys[index], taken.values[index] or b"", index, 1) for index in rows]
    )
    for index in rows:
        taken.values[index] = None
    for _, value, index, _ in found.updates:
        taken.values[index] = value
    for _, record, index, _ in found.errors:
        taken.failed[index] = record


def _images(change: Change, time: int) -> Iterator[KeyedUpdate]:
    """Yield the updates that follow from the images of a change alone.

    Raises: DecodeError, if an image that is needed is missing or lacks columns.
    """
    if untold := _untold(change):
        raise DecodeError(*untold)
    key, after, before = change.key, change.after, change.before
    if before is not None and before == after:
        return  # nothing has changed in the columns that are read
    if before is not None:
        yield KeyedUpdate(key, before, time, -1)
    if after is not None:
        yield KeyedUpdate(key, after, time, 1)


def _untold(change: Change) -> tuple[str, str] | None:
    """Name what the images of a change do not say, and the reason; None if they say all."""
    if change.kind == "truncate":
        return "truncate", "without state there is nothing to tell what is gone"
    if change.replaces and change.before is None:
        reason = "it is missing, or lacks columns, and without state nothing else tells it"
        return "old image", reason
    if change.absent:
        return "new image", f"it lacks {len(change.absent)} columns"
    return None


def _record(reason: str, message: Message, origin: _Origin) -> bytes:
    place = origin.topic, origin.partition, message.offset
    return error_record(origin.reader + reason, place, message.key, message.value)
