"""Read single records by their places, as people ask for them."""

import threading
from collections.abc import Mapping
from typing import NamedTuple

from ikebana.errors import SourceError
from ikebana.processor.base.noted import Place
from ikebana.processor.kafka.reader import Range, RangeReader

# A record may have been deleted, so the wait for it is short.
_PATIENCE_S = 10.0


class Record(NamedTuple):
    """The key and the value of a record, as they are in Kafka."""

    key: bytes | None
    value: bytes | None


def record_at(reader: RangeReader, place: Place) -> Record | None:
    """Read the record at a place; None if it, or its topic, has been deleted."""
    topic, partition, offset = place
    try:
        low, high = reader.watermarks(topic, partition)
        if not low <= offset < high:
            return None
        single = Range(topic, partition, offset, offset + 1)
        for _, messages in reader.read([single], _PATIENCE_S):
            for message in messages:
                return Record(message.key(), message.value())
    except SourceError:
        return None
    return None


class Records:
    """Reads records for several threads, one after the other, with one consumer."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._reader: RangeReader | None = None
        self._lock = threading.Lock()

    def at(self, place: Place) -> Record | None:
        """Read the record at a place; None if it has been deleted.

        Raises: AwayError, if the brokers do not answer.
        """
        with self._lock:
            if self._reader is None:
                self._reader = RangeReader(self._settings)
            return record_at(self._reader, place)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
