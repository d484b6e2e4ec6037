"""Topics that are read for long: a recreated topic of the same name is not accepted."""

import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ikebana.errors import SourceError
from ikebana.processor.base.offsets import Positions
from ikebana.processor.checkpoint.inputs import TopicInfo
from ikebana.processor.kafka import topics

Ask = Callable[[AdminClient, Mapping[str, int]], Positions]
"""A question for offsets, such as `topics.ends`."""

# How long to ask again for a topic that existed: a broker may not have heard of it yet.
_GONE_S = 5.0
_PAUSE_S = 0.5


class ReadTopics:
    """A topic that is read, with its progress and snapshots; `topic_id` is its id, if known."""

    def __init__(self, admin: AdminClient, topic: str, topic_id: str | None = None) -> None:
        self._admin, self._topic = admin, topic
        self._ids: dict[str, str] = {} if topic_id is None else {topic: topic_id}

    def described(self, *names: str) -> dict[str, TopicInfo]:
        """Describe the topics that exist.

        Raises:
            SourceError: a topic that was seen before was deleted.
        """
        deadline = time.monotonic() + _GONE_S
        while True:
            existing = topics.describe(self._admin, names)
            ids = {name: topic.id for name, topic in existing.items()}
            gone = [name for name in names if self._ids.get(name) not in (None, ids.get(name))]
            if not gone:
                self._ids |= ids
                return existing
            if time.monotonic() >= deadline:
                raise self._deleted(gone[0], anew=gone[0] in existing)
            time.sleep(_PAUSE_S)

    def offsets(self, ask: Ask, name: str, partitions: int | None = None) -> dict[int, int]:
        """Ask for offsets of the partitions of a topic, by default of all of them.

        Raises:
            SourceError: the topic, or another one that was seen before, was deleted.
        """
        if partitions is None:
            partitions = self.described(name)[name].partitions
        try:
            return ask(self._admin, {name: partitions})[name]
        except KafkaException:
            # This finds out whether a topic is gone or the brokers are away.
            self.described(*self._ids)
            raise

    def _deleted(self, gone: str, *, anew: bool) -> SourceError:
        message = f'cannot go on reading "{self._topic}": topic "{gone}" was deleted'
        if anew:
            return SourceError(
                f"{message} and created again",
                hint="Read it from its beginning: begin again, and leave a token out.",
            )
        return SourceError(
            message,
            hint="Its updates cannot be written again: start its pipeline with a new checkpoint "
            "and new output topics, and read those.",
        )
