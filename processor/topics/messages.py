"""Messages of an input, and the changes that they decode to.

A message that cannot be decoded becomes an error record: under its key if the key can be read,
without a key otherwise.  A message that says nothing about a row of the relation is ignored,
and counted.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from ikebana.codecs.canonical import DEEPEST, any_too_deep, too_deep
from ikebana.codecs.change import Change, Codec, Headers, Ignored, RowCodec
from ikebana.codecs.errors import DecodeError, error_record
from ikebana.codecs.plain import Plain
from ikebana.processor.base import calls
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.linear.scope import KEY, VALUE, Scope, frozen
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.input_rows import scope_of_input
from ikebana.processor.planning.plan import Input, Reading


class Message(NamedTuple):
    """A Kafka message at an offset of its partition."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = None
    timestamp: int | None = None


class MessageOrigin(NamedTuple):
    """A partition whose messages are read; error reasons begin with `reader`."""

    topic: str
    partition: int
    reader: str


class Undecodable(NamedTuple):
    """The error record of a message that cannot be decoded, with its key if that is known."""

    key: bytes | None
    record: bytes


def record_of(reason: str, message: Message, origin: MessageOrigin) -> bytes:
    """The error record of a message."""
    place = origin.topic, origin.partition, message.offset
    return error_record(origin.reader + reason, place, message.key, message.value)


class AppendedRows(NamedTuple):
    """Rows of `mode: append`: the indexes of their messages, and their keys and values."""

    at: Sequence[int]
    keys: list[bytes | None]
    values: list[bytes]

    def changes(self) -> "list[tuple[int, Sequence[Change] | Undecodable]]":
        """The same as `MessageReader.decode` yields them."""
        return [
            (at, (Change("upsert", key, value),)) for at, key, value in zip(*self, strict=True)
        ]


class MessageReader:
    """Decodes the messages of one input to changes, each by itself.

    Conditions on keys that the planner has pushed down drop messages before they are decoded.
    """

    def __init__(self, source: Input, codec: Codec, reading: Reading) -> None:
        self._codec = codec
        self._called = f"input {source.name}: decoding messages"
        self.plain = codec if isinstance(codec, Plain) else None
        """The codec, if each of its messages is exactly one upsert."""
        # Only JSON can nest too deep: the depth of an Avro value is that of its schema.
        self._nests = source.traits.encoding == "json"
        self._keys_nest = source.key_format == "json"
        self._passes = _key_test(source, reading, scope_of_input(source))
        self.selects = self._passes is not None
        """Whether conditions drop messages by their keys."""
        self._by_images = source.mode == "diffs"
        self._appends = source.mode == "append"
        self._read_one = self._appended if self._appends else codec.changes

    def rows_at_once(
        self, messages: Sequence[Message], ignored: Counter[str]
    ) -> AppendedRows | None:
        """Decode plain rows of `mode: append` at once, as `decode` would; None if it cannot."""
        plain = self.plain
        if plain is None or not self._appends or self._passes is not None:
            return None
        if self.any_too_deep(messages):
            return None
        which: Sequence[int] = range(len(messages))
        values = [message.value for message in messages]
        keys = [message.key for message in messages]
        if None in values:
            which = [at for at in which if values[at] is not None]
            keys, values = [keys[at] for at in which], [values[at] for at in which]
        try:
            decoded_keys = iter(plain.keys([key for key in keys if key is not None]))
            values = plain.values(values)
        except DecodeError:
            return None
        if len(which) < len(messages):
            ignored["tombstone"] += len(messages) - len(which)
        decoded = [None if key is None else next(decoded_keys) for key in keys]
        # There are no tombstones among them.
        return AppendedRows(which, decoded, values)  # type: ignore[arg-type]

    def decode(
        self, messages: Sequence[Message], origin: MessageOrigin, ignored: Counter[str]
    ) -> Iterator[tuple[int, Sequence[Change] | Undecodable]]:
        """Yield the index of each message that passes, with its changes or its error."""
        if self._passes is None:
            yield from self._read(messages, origin, range(len(messages)), ignored)
            return
        keys = [self.kafka_key(message) for message in messages]
        with_key = [at for at, key in enumerate(keys) if key is not None]
        passing = self._passes([keys[at] for at in with_key])
        dropped = {at for at, passes in zip(with_key, passing, strict=True) if not passes}
        left = [at for at in range(len(messages)) if at not in dropped]
        decoded = list(self._read(messages, origin, left, ignored))
        # Keys that are in the value, not in the Kafka key, are known only after decoding.
        later = [
            change.key
            for at, changes in decoded
            if keys[at] is None and not isinstance(changes, Undecodable)
            for change in changes
            if change.key is not None
        ]
        passing_keys = {k for k, passes in zip(later, self._passes(later), strict=True) if passes}
        for at, changes in decoded:
            if keys[at] is None and not isinstance(changes, Undecodable):
                changes = self._chosen(changes, passing_keys)
            yield at, changes

    def _chosen(self, changes: Sequence[Change], passing: Collection[bytes]) -> Sequence[Change]:
        """Choose the changes of a message whose keys pass.

        If an image is missing or lacks columns, the message is used as a whole or not at all.
        """
        chosen = [c for c in changes if c.key is None or c.key in passing]
        if (
            self._by_images
            and 0 < len(chosen) < len(changes)
            and any(map(incomplete_image, changes))
        ):
            return changes
        return chosen

    def _read(
        self,
        messages: Sequence[Message],
        origin: MessageOrigin,
        which: Iterable[int],
        ignored: Counter[str],
    ) -> Iterator[tuple[int, Sequence[Change] | Undecodable]]:
        # A pattern of the user's (`tables`) is matched with names in messages, which may hang.
        calls.begin(("", self._called, None))
        try:
            yield from self._each(messages, origin, which, ignored)
        except calls.CallStopped:
            raise calls.stuck() from None
        finally:
            calls.end()

    def _each(
        self,
        messages: Sequence[Message],
        origin: MessageOrigin,
        which: Iterable[int],
        ignored: Counter[str],
    ) -> Iterator[tuple[int, Sequence[Change] | Undecodable]]:
        decode = self._read_one
        # A check of all messages at once is faster, and hardly ever is one too deep.
        keys_nest, nests = self._nested(messages)
        for at in which:
            _, key, value, headers, _ = messages[at]
            if keys_nest and key is not None and too_deep(key):
                yield at, Undecodable(None, record_of(_DEEP.format("key"), messages[at], origin))
                continue
            if nests and value is not None and too_deep(value):
                kafka_key = self.kafka_key(messages[at])
                yield (
                    at,
                    Undecodable(kafka_key, record_of(_DEEP.format("value"), messages[at], origin)),
                )
                continue
            try:
                decoded = decode(key, value, headers)
            except DecodeError as error:
                yield at, Undecodable(error.key, record_of(str(error), messages[at], origin))
            else:
                if isinstance(decoded, Ignored):
                    ignored[decoded.what] += 1
                else:
                    yield at, decoded

    def _appended(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        """Decode a message of `mode: append`: a row that replaces no other, and needs no key."""
        if value is None:
            return Ignored("tombstone")
        if key is not None:
            return self._codec.changes(key, value, headers)
        codec: RowCodec = self._codec  # type: ignore[assignment]
        return [codec.row(value, headers)]

    def any_too_deep(self, messages: Sequence[Message]) -> bool:
        """Whether a message nests too deep."""
        return any(self._nested(messages))

    def _nested(self, messages: Sequence[Message]) -> tuple[bool, bool]:
        """Whether any key nests too deep, and whether any value does."""
        return (
            self._keys_nest and any_too_deep([message.key for message in messages]),
            self._nests and any_too_deep([message.value for message in messages]),
        )

    def kafka_key(self, message: Message) -> bytes | None:
        """The row's key in the Kafka key; None if that lacks it, or is unreadable."""
        try:
            return self._codec.key(message.key)
        except DecodeError:
            return None


_DEEP = f"could not decode {{}} as JSON: it is nested more than {DEEPEST} deep"


def _key_test(
    source: Input, reading: Reading, scope: Scope
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
            result, failed = query.run(keys, [key or b"" for key in keys])
            passing.update(result.rows)
            passing.update(row for row, _, _ in failed)
        return [at in passing for at in range(len(keys))]

    return passes


def images_of(change: Change, time: int) -> Iterator[KeyedUpdate]:
    """Yield the updates that follow from the images of a change alone.

    Raises: DecodeError, if an image that is needed is missing or lacks columns.
    """
    if missing := incomplete_image(change):
        raise DecodeError(*missing)
    key, after, before = change.key, change.after, change.before
    if before is not None and before == after:
        return  # nothing has changed in the columns that are read
    if before is not None:
        yield KeyedUpdate(key, before, time, -1)
    if after is not None:
        yield KeyedUpdate(key, after, time, 1)


def incomplete_image(change: Change) -> tuple[str, str] | None:
    """Name the missing part of a change's images, and the reason; None if they are complete."""
    if change.kind == "truncate":
        return "truncate", "without state there is nothing to tell what is gone"
    if change.replaces and change.before is None:
        reason = "it is missing, or lacks columns, and without state nothing else tells it"
        return "old image", reason
    if change.absent:
        return "new image", f"it lacks {len(change.absent)} columns"
    return None
