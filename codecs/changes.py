"""Decode the changes of rows in any form that names its operations, in JSON and in Avro.

A message has its operation in a field, and the row before and after it in two others; if it has
neither of these, the message itself is the row, without the fields that describe the change.  The
options list the words of each operation.  The defaults are those of Debezium, GoldenGate and
Flink: `c`, `r`, `I`, `+I` and `+U` insert, `u` and `U` update, `d`, `D`, `-D` and `-U` delete, `t`
and `T` empty the table.  A pair of -U and +U deletes the old row and inserts the new one,
whatever its key is.

`needs.options` may have:

* `op`: the field of the operation, by default "op"; `op_insert`, `op_update`, `op_delete` and
  `op_truncate`: its words, with commas between them; a whole number is its digits.  `op_ignore`:
  the words of messages that say nothing about a row, such as the watermarks of a source.
* `before`, `after`: the fields of the rows.
* `deleted`: a field that is true for a deleted row; then, without an option `op`, messages need no
  operation, and every other message upserts its row.
* `table`: the field with the full name of the table.
* `sequence`: the fields with the place of a change in the order of its source: see `sequences`.
  A null value, which has no sequence, is ignored then, and a truncate is refused.
* `row_image`: `full`, or `minimal` if updates lack columns that have not changed.  Then columns
  must be declared, and rows have only these.

Dots name fields within others, as in "meta.op".  An update with another key in the row before
moves the row.  The key's columns are those that the input names; without these, the Kafka key
is the key.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ikebana.codecs import canonical
from ikebana.codecs.avro import AvroDecoder, framing_of, keys_in_avro
from ikebana.codecs.avro_schema import Schemas
from ikebana.codecs.canonical import FAULTS, require_readable
from ikebana.codecs.change import Change, Headers, Ignored, Needs
from ikebana.codecs.debezium_rows import keys_in_json
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.keys import KeyDecoder
from ikebana.codecs.row_images import (
    RowImage,
    RowImages,
    Tables,
    are_minimal,
    delete_changes,
    update_changes,
)
from ikebana.codecs.sequences import SourceSequence, at, path_of, require_state
from ikebana.errors import ConfigError

_NAME = "change"
WORDS: Mapping[str, tuple[str, ...]] = {
    "insert": ("c", "r", "I", "+I", "+U"),
    "update": ("u", "U"),
    "delete": ("d", "D", "-D", "-U"),
    "truncate": ("t", "T"),
    "ignore": (),
}
"""The words of each operation, unless the options name others."""
_DELETED = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}
_DELETED |= {"Y": True, "N": False, "": False}
Decode = Callable[[bytes, Headers], Any]


class ChangesCodec:
    """Decodes messages of changes; `decode` gives the JSON data of a value, with all fields.

    Raises:
        ConfigError: options do not go together.
    """

    def __init__(self, needs: Needs, decode: Decode, keys: KeyDecoder) -> None:
        options = needs.options
        self._decode, self._keys, self._needs = decode, keys, needs
        self._op = path_of(options.get("op", "op"))
        self._words = _words(options)
        self._old, self._new = (path_of(options.get(name, name)) for name in ("before", "after"))
        flag, table = options.get("deleted"), options.get("table")
        self._flag = None if flag is None else path_of(flag)
        self._needs_op = flag is None or "op" in options
        self._minimal = are_minimal(needs)
        self._table = None if table is None else path_of(table)
        if needs.tables is not None and table is None:
            raise ConfigError(
                "tables are chosen, and no field has their name",
                hint='Name the field by the option "table".',
            )
        self._tables = Tables(_NAME, needs, table or "")
        self._images = RowImages(_NAME, needs, minimal=self._minimal, exact=False)
        self._sequence = None
        if (fields := options.get("sequence")) is not None:
            self._sequence = SourceSequence(_NAME, fields)
            _require_whole(needs, minimal=self._minimal)
        # In a message that is the row itself, the fields that are no columns.
        places = self._sequence.paths if self._sequence else ()
        paths = (self._op, self._flag, self._table, *places)
        said = {path[0] for path in paths if path}
        self._said = {name for name in said if needs.declared.type_of(name) is None}

    def key(self, key: bytes | None) -> bytes | None:
        return None if self._needs.key else self._keys.of_kafka(key)

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        headers = list(headers) if headers else None
        message: Any = None
        try:
            if value is None:
                return self._gone(key, headers)
            message = self._decode(value, headers)
            if not isinstance(message, dict):
                raise DecodeError(_NAME, "expected an object")
            return self._changes(message, key, headers)
        except FAULTS as error:
            raise self._keys.refused(_NAME, error, self._readable(message), key, headers) from None

    def _gone(self, key: bytes | None, headers: Headers) -> Sequence[Change] | Ignored:
        # Its table and its place in the sequence are unknown.
        if self._sequence is not None or not self._tables.all:
            return Ignored("tombstone")
        # A mark has reported the delete before.
        gone = self._keys.tombstone if self._flag is None else self._keys.repeated
        return gone(key, headers)

    def _changes(
        self, message: RowImage, key: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        word = self._word(message)
        if self._words.get(word) == "ignore":
            return Ignored("message")
        if self._table is not None and not self._tables.has(at(message, self._table)):
            return Ignored("table")
        marked = self._flag is not None and _is_deleted(at(message, self._flag))
        operation = "delete" if marked else self._operation(word)
        if operation == "truncate":
            if self._sequence is not None:
                raise DecodeError(_NAME, "a truncate has no place in a sequence")
            return [Change("truncate")]
        before, after = self._rows(message, is_gone=operation == "delete")
        changes = self._of_rows(operation, before, after, key, headers)
        if marked and not self._needs.diffs:
            # A row may be marked as deleted again and again.
            changes = [change._replace(replaces=False) for change in changes]
        if self._sequence is None:
            return changes
        sequence = self._sequence.of(message, after, before)
        return [change._replace(sequence=sequence) for change in changes]

    def _of_rows(
        self,
        operation: str,
        before: RowImage | None,
        after: RowImage | None,
        key: bytes | None,
        headers: Headers,
    ) -> list[Change]:
        """The changes of an operation on one row."""
        if operation == "delete":
            row = before or {}
            key_alone = self._images.shows_key_alone(row, self._needs.key)
            whole = None if key_alone else self._whole(before, {})
            return [delete_changes(self._key(row, key, headers), whole)]
        if after is None:
            raise DecodeError(_NAME, f"field `{'.'.join(self._new)}` is null or missing")
        absent: tuple[str, ...] = ()
        if self._minimal and operation == "update":
            absent = self._images.declared.absent(after)
        image, row_key = (
            self._images.row(after),
            self._key({**(before or {}), **after}, key, headers),
        )
        if operation == "insert":
            return [Change("upsert", row_key, image)]
        old = row_key if before is None else self._key({**after, **before}, key, headers)
        return update_changes(old, row_key, image, self._whole(before, after), absent)

    def _operation(self, word: str | None) -> str:
        """The operation that a word names: a key of `WORDS`."""
        if word is None and not self._needs_op:
            return "insert"
        if (operation := self._words.get(word)) is None:
            problem = "is missing" if word is None else "is no word of an operation"
            raise DecodeError(_NAME, f"field `{'.'.join(self._op)}` {problem}")
        return operation

    def _word(self, message: RowImage) -> str | None:
        """The word of a message's operation; "" if it is no text and no whole number."""
        word = at(message, self._op)
        if word is None or isinstance(word, str):
            return word
        return str(word) if word.__class__ is int else ""

    def _rows(
        self, message: RowImage, *, is_gone: bool
    ) -> tuple[RowImage | None, RowImage | None]:
        """The rows before and after, converted; of a deleted row, the columns that are there."""
        before, after = at(message, self._old), at(message, self._new, _NOWHERE)
        if after is _NOWHERE and at(message, self._old, _NOWHERE) is _NOWHERE:
            after = {name: value for name, value in message.items() if name not in self._said}
        elif after is _NOWHERE:
            after = None
        if is_gone and before is None:
            # A flag marks the row itself.
            before = after
        for path, image in ((self._old, before), (self._new, after)):
            if image is not None and not isinstance(image, dict):
                raise DecodeError(_NAME, f"field `{'.'.join(path)}` is no object")
        return (
            None if before is None else self._images.converted(before),
            None if after is None or is_gone else self._images.converted(after),
        )

    def _whole(self, before: RowImage | None, after: RowImage) -> bytes | None:
        """The row before, if it is read and has all columns."""
        if not self._needs.before or not before or self._images.declared.absent(before):
            return None
        return self._images.row(before) if after.keys() <= before.keys() else None

    def _key(self, row: RowImage, key: bytes | None, headers: Headers) -> bytes | None:
        columns = self._needs.key
        if columns and all(name in row for name in columns):
            return canonical.key(row, columns)
        return self._keys.needed(key, headers)

    def _readable(self, message: Any) -> Iterator[RowImage]:
        """The row of a message, which may have the row's key although another part has a fault."""
        if isinstance(message, dict):
            before, after = self._rows(message, is_gone=False)
            yield after or before or {}


def in_json(needs: Needs) -> ChangesCodec:
    """The codec of messages in JSON."""
    read = canonical.decoder(Any)

    def decode(value: bytes, _: Headers) -> Any:
        require_readable(value)
        return read(value)

    return ChangesCodec(needs, decode, keys_in_json(_NAME, needs))


def in_avro(schemas: Schemas, needs: Needs) -> ChangesCodec:
    """The codec of messages in Avro, keys too.

    Raises: ConfigError, also for options of Avro: see `avro`.
    """
    values = AvroDecoder(schemas, needs.options.get("reader_schema"), framing_of(needs))
    keys = KeyDecoder(_NAME, needs, keys_in_avro(schemas, needs))
    return ChangesCodec(needs, values.decode, keys)


def _require_whole(needs: Needs, *, minimal: bool) -> None:
    """Refuse a sequence if leaving out a message would lose more than the row that it replaces."""
    if minimal:
        raise ConfigError(
            'option "sequence" needs whole rows, and option "row_image" is "minimal"',
            hint="A message that is outdated may have a column that no other has.",
        )
    require_state(needs)


_NOWHERE = object()


def _words(options: Mapping[str, str]) -> dict[str | None, str]:
    """The operations by their words.  Raises: ConfigError, if two operations share a word."""
    operations: dict[str | None, str] = {}
    overrides = {name: options.get(f"op_{name}") for name in WORDS}
    for name, words in overrides.items():
        for word in WORDS[name] if words is None else map(str.strip, words.split(",")):
            if word in operations and overrides[operations[word]] is None:
                # A word in an option overrides its default operation.
                del operations[word]
            if word in operations and words is None:
                continue
            if word in operations or not word:
                raise ConfigError(f'option "op_{name}" has "{word}", which is no word of its own')
            operations[word] = name
    return operations


def _is_deleted(mark: Any) -> bool:
    if mark is None:
        return False
    if mark.__class__ in (bool, int, str) and mark in _DELETED:
        return _DELETED[mark]
    raise DecodeError(_NAME, "the field of deleted rows is neither true nor false")
