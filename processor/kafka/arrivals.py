"""Wait for new records without polling the end offsets of topics.

The brokers hold a fetch at the end of a partition until a record comes.  So waiting with a fetch
reports a record at once, and costs almost nothing until then.
"""

# Decision (an idle source waits in a fetch): Brokers hold a fetch at the end of what was read, so
# a record is heard of as it comes. Looks at the topics are for what a fetch does not show:
# partitions, the end of an aborted transaction, silence.

import time
from collections.abc import Mapping
from enum import Enum

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ikebana.processor.base.offsets import Offsets
from ikebana.processor.kafka import client

# How long brokers hold a fetch, in milliseconds, and the size of the answer: a hint suffices.
_HELD = {"fetch.wait.max.ms": "500", "max.partition.fetch.bytes": "1024"}
# A fetch does not wait for a record that is there already; then this is the pause.
_PAUSE_S = 0.02


class Arrival(Enum):
    """The result of a wait."""

    NONE = "no record has come"
    NEW = "a record has come"
    UNREAD = "a record has come before, which nobody has read yet"


class Arrivals:
    """Waits for the first committed record at or beyond positions; used by one thread."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._consumer: Consumer = client.consumer({**settings, **_HELD})
        self._waited_at: Offsets | None = None
        self._has_come = False

    def wait(self, positions: Offsets, at_most_s: float) -> Arrival:
        """Wait until a record has come, at most for a time.

        Other changes, such as the end of an aborted transaction, do not end the wait; the next
        look at the topics notices them.
        """
        if positions != self._waited_at:
            self._consumer.assign(
                [
                    TopicPartition(topic, partition, offset)
                    for topic, by in positions.items()
                    for partition, offset in by.items()
                ]
            )
            self._waited_at, self._has_come = positions, False
        if self._has_come:
            time.sleep(min(at_most_s, _PAUSE_S))
            return Arrival.UNREAD
        deadline = time.monotonic() + at_most_s
        while (left := deadline - time.monotonic()) > 0:
            event = self._consumer.poll(left)
            if event is None:
                return Arrival.NONE
            error = event.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                continue
            # The caller then reads the end offsets, which raises the error if it lasts.
            self._has_come = True
            self._consumer.unassign()
            return Arrival.NEW
        return Arrival.NONE

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
