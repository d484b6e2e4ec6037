"""From messages of a topic to packed chunks for shards: decode, place, pack.

The shard of a key is the CRC-32 of its canonical bytes modulo the number of shards;
`ikebana rescale` relies on it.  Messages that cannot be used become error records
here: with a readable key in the key's place, else addressed to shard 0.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

from ikebana.codecs.plain import decode_error, decode_part
from ikebana.processor.envelope import pack
from ikebana.processor.plan import Input
from ikebana.processor.rows import Errors, Symbols

_CHUNK_RECORDS = 5_000
_CHUNK_BYTES = 1 << 20
# (offset, key, value)
Message = tuple[int, bytes | None, bytes | None]


def shard_of(key: bytes, shards: int) -> int:
    """The shard that keeps `key`."""
    return crc32(key) % shards


@dataclass(frozen=True, slots=True)
class Place:
    """Where messages come from, and how their times follow from it.

    `base` is the time of all messages, or with `each` the time of the one at offset
    `start`, each further offset being one later.
    """

    topic: str
    partition: int
    order: int
    start: int
    base: int
    each: bool


class Decoding:
    """Decodes the messages of one partition, in order, into chunks for each shard."""

    def __init__(self, source: Input, place: Place, shards: int) -> None:
        self._source = source
        self._place = place
        self._shards = [self._empty() for _ in range(shards)]
        self._errors = Errors([], [])
        self._held = 0
        self._size = 0

    def add(self, messages: Sequence[Message]) -> Iterator[tuple[int, bytes]]:
        """Take messages; yield (shard, packed chunk) whenever enough have gathered."""
        usable = self._decoded(messages)
        shards, count = self._shards, len(self._shards)
        base, start, each = self._place.base, self._place.start, self._place.each
        size = 0
        for offset, key, value, record in usable:
            shard = shards[crc32(key) % count]
            if record is not None:
                shard.bad[len(shard.keys)] = record
                size += len(record)
            shard.keys.append(key)
            shard.values.append(value)
            shard.offsets.append(offset)
            if each:
                shard.times.append(base + offset - start)  # type: ignore[union-attr]
            size += len(key) + (len(value) if value else 0)
        self._held += len(messages)
        self._size += size
        if self._held >= _CHUNK_RECORDS * count or self._size >= _CHUNK_BYTES * count:
            yield from self.flush()

    def flush(self) -> Iterator[tuple[int, bytes]]:
        """Yield what is held."""
        for at, shard in enumerate(self._shards):
            if shard.keys:
                yield at, pack(shard)
                self._shards[at] = self._empty()
        if self._errors.records:
            yield 0, pack(self._errors)
            self._errors = Errors([], [])
        self._held = self._size = 0

    def _decoded(
        self, messages: Sequence[Message]
    ) -> Iterable[tuple[int, bytes, bytes | None, bytes | None]]:
        """Usable messages as (offset, key, value, error record or None)."""
        source = self._source
        plain = source.key_format == source.value_format == "bytes"
        for offset, raw_key, raw_value in messages:
            if plain and raw_key is not None:
                yield offset, raw_key, raw_value, None
                continue
            key, reason = decode_part("key", source.key_format, raw_key)
            if key is None:
                self._refuse(reason or "the key is null", offset, raw_key, raw_value)
                continue
            value, reason = decode_part("value", source.value_format, raw_value)
            record = None if reason is None else self._error(reason, offset, raw_key, raw_value)
            yield offset, key, value, record

    def _refuse(self, reason: str, offset: int, key: bytes | None, value: bytes | None) -> None:
        place = self._place
        record = self._error(reason, offset, key, value)
        self._errors.records.append(record)
        self._size += len(record)
        assert isinstance(self._errors.times, list)
        self._errors.times.append(place.base + (offset - place.start) * place.each)

    def _error(self, reason: str, offset: int, key: bytes | None, value: bytes | None) -> bytes:
        return decode_error(reason, (self._place.topic, self._place.partition, offset), key, value)

    def _empty(self) -> Symbols:
        place = self._place
        times: int | list[int] = [] if place.each else place.base
        return Symbols(self._source.name, place.order, place.partition, times, [], [], [])
