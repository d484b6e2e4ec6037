"""Ask brokers what a client may do with topics and with the group of all readers.

It imports little, so that commands that only read start quickly.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from ikebana.processor.checkpoint.topic import TopicInfo
from ikebana.processor.kafka import client
from ikebana.processor.kafka.client import patiently

_REQUEST_S = 10.0
FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


class TopicRights(NamedTuple):
    """A topic as the brokers describe it, and the rights of a client on it."""

    topic: TopicInfo
    allowed: frozenset[AclOperation] | None
    """None if the brokers do not report rights, as some other implementations of Kafka don't."""


# An existing topic, the error of describing it, or None if it does not exist.
State: TypeAlias = TopicRights | KafkaError | None


def ask_for_group(admin: AdminClient) -> None:
    """Describe the group of all readers.  Raises: KafkaException."""
    asked = admin.describe_consumer_groups([client.GROUP], request_timeout=_REQUEST_S)
    try:
        asked[client.GROUP].result()
    except KafkaException as error:
        # The group has never had a member.
        if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise


def described(admin: AdminClient, names: Iterable[str]) -> dict[str, State]:
    """Describe each topic with our rights on it: the topic, an error, or None if it is missing."""
    asked = TopicCollection(list(names))

    def ask() -> dict[str, State]:
        states: dict[str, State] = {}
        answers = admin.describe_topics(
            asked, include_authorized_operations=True, request_timeout=_REQUEST_S
        )
        for name, answer in answers.items():
            try:
                description = answer.result()
            except KafkaException as error:
                cause = error.args[0]
                if cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    states[name] = None
                elif cause.code() in FORBIDDEN:
                    states[name] = cause
                else:
                    raise
                continue
            topic = TopicInfo(str(description.topic_id), len(description.partitions))
            # A client that can describe a topic has the right Describe, so this is never empty.
            allowed = description.authorized_operations
            states[name] = TopicRights(topic, frozenset(allowed) if allowed else None)
        return states

    return patiently(ask, "the brokers")
