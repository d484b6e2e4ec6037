"""Messages of outputs in `upsert` and `debezium-json` read back as updates.

A message of `upsert` says what a key has from then on: what it had before is known of the
messages before it, which lie in the same partition.  A message of `debezium-json` has
both itself.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from ikebana.codecs import diff
from ikebana.codecs.canonical import canonical
from ikebana.codecs.errors import DecodeError
from ikebana.errors import SourceError
from ikebana.processor.verifying.diff_reader import PlacedUpdate

Headers = Iterable[tuple[str, bytes | str | None]] | None


class Read(NamedTuple):
    """A message: its key, its value, and the time of its updates."""

    key: bytes | None
    value: bytes | None
    time: int


class OutputReader:
    """Reads the messages of one topic, each partition in its order."""

    def __init__(self, topic: str, form: str) -> None:
        self._topic = topic
        self._form = form
        self._values: dict[bytes | None, bytes] = {}
        ways: dict[str, Callable[[Read], list[tuple[bytes, int]]]] = {
            "upsert": self._upserted,
            "debezium-json": _enveloped,
        }
        self._changes = ways[form]

    def read(
        self, at: tuple[int, int], key: bytes | None, value: bytes | None, headers: Headers
    ) -> list[PlacedUpdate]:
        """The updates that a message at (partition, offset) makes.

        Raises:
            SourceError: it is no message of this format.
        """
        try:
            time = diff.read_time(headers)
            changes = self._changes(Read(key, value, time))
        except DecodeError as error:
            raise SourceError(
                f"cannot read {self._topic}[{at[0]}]@{at[1]} as {self._form}: {error.reason}",
                hint="--format says how the topic is written.",
            ) from None
        return [PlacedUpdate(key, changed, time, count, *at) for changed, count in changes]

    def _upserted(self, message: Read) -> list[tuple[bytes, int]]:
        before = self._values.pop(message.key, None)
        changes = [] if before is None else [(before, -1)]
        if message.value is not None:
            self._values[message.key] = message.value
            changes.append((message.value, 1))
        return changes


_NULL = msgspec.Raw(b"null")


class _Envelope(msgspec.Struct):
    op: str
    before: msgspec.Raw = _NULL
    after: msgspec.Raw = _NULL


_decode = msgspec.json.Decoder(_Envelope).decode


def _enveloped(message: Read) -> list[tuple[bytes, int]]:
    if message.value is None:
        # The tombstone behind a delete, which has been told.
        return []
    try:
        envelope = _decode(message.value)
    except msgspec.MsgspecError:
        raise DecodeError("envelope", "it is no envelope of Debezium's") from None
    sides = (envelope.before, -1), (envelope.after, 1)
    return [(canonical(bytes(row)), count) for row, count in sides if bytes(row) != b"null"]
