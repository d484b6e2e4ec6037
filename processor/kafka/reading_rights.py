"""Check the rights that a command needs to read output topics, before it reads any.

Brokers do not reveal whether a topic exists to a client that may not see it.  So the topic of
snapshots, which a diff topic may have, is checked, too.

This imports little, so that commands that only read start quickly.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic

from ikebana.codecs.diff import topic_of
from ikebana.codecs.formats import FACT_FORMATS
from ikebana.errors import AccessError
from ikebana.processor.base.offsets import TopicInfo, progress_topic
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.client import (
    REQUEST_S,
    Operations,
    grant,
    missing_right,
    ordered,
    patiently,
)


def reach(
    settings: Mapping[str, str],
    formats: Mapping[str, str],
    *,
    compacts: bool = False,
    deletes: bool = False,
) -> None:
    """Connect, and check that these topics may be read; `formats` has the format of each.

    A command that `compacts` writes snapshots as well; one that `deletes` also deletes the
    updates that snapshots replace.

    Raises:
        ConfigError, AwayError: as `client.reach`.
        AccessError: the brokers refuse the user, or rights are missing; it names all of them.
    """
    client.reach(settings)
    needs = needs_of(formats, compacts=compacts, deletes=deletes)
    reasons: list[str] = []
    remedies: list[str] = []

    def lacks(what: str, how: list[str], operations: Operations, *resource: str) -> None:
        reasons.append(f"{what} {', '.join(how)}")
        remedies.append(grant(settings, operations, *resource))

    admin = client.admin(settings)
    for topic, state in described(admin, needs).items():
        needed = needs[topic]
        if state is None:
            if AclOperation.WRITE in needed and not _may_create(settings, topic):
                how = ["does not exist and may not be made"]
                lacks(f'topic "{topic}"', how, {AclOperation.CREATE}, "--topic", topic)
        elif isinstance(state, KafkaError):
            lacks(f'topic "{topic}"', ["may not be seen"], needed, "--topic", topic)
        elif state.allowed is not None and (missing := needed - state.allowed):
            how = [missing_right(each) for each in ordered(missing)]
            lacks(f'topic "{topic}"', how, missing, "--topic", topic)
    group = f'group "{client.GROUP}"'
    if not may_name_group(settings, group):
        named = ("--group", client.GROUP)
        lacks(group, ["may not be seen"], {AclOperation.DESCRIBE}, *named)
    if reasons:
        raise AccessError(
            f"cannot read {', '.join(formats)}: {'; '.join(reasons)}", hint="\n".join(remedies)
        )


def needs_of(
    formats: Mapping[str, str], *, compacts: bool = False, deletes: bool = False
) -> dict[str, Operations]:
    """Return the rights that are needed on each topic; each of them implies Describe."""
    needs: dict[str, Operations] = defaultdict(set)
    for topic, form in formats.items():
        needs[topic].add(AclOperation.READ)
        if form not in FACT_FORMATS:
            needs[progress_topic(topic)].add(AclOperation.READ)
        if form != "diff":
            continue
        needs[topic_of(topic)].add(AclOperation.READ)
        if compacts:
            # Old snapshots are deleted: only the newest are kept.
            needs[topic_of(topic)] |= {AclOperation.WRITE, AclOperation.DELETE}
        if deletes:
            needs[topic].add(AclOperation.DELETE)
            needs[progress_topic(topic)].add(AclOperation.DELETE)
    return dict(needs)


def _may_create(settings: Mapping[str, str], topic: str) -> bool:
    admin = client.admin(settings)
    new = NewTopic(topic, 1, -1)

    def ask() -> None:
        admin.create_topics([new], request_timeout=REQUEST_S, validate_only=True)[topic].result()

    try:
        patiently(ask, f'topic "{topic}"')
    except KafkaException as error:
        # Whoever creates the topic reports any other error.
        return error.args[0].code() not in FORBIDDEN
    return True


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


def may_name_group(settings: Mapping[str, str], what: str) -> bool:
    """Whether a client may name the group of all readers; messages call it `what`."""
    admin = client.admin(settings)

    def ask() -> None:
        asked = admin.describe_consumer_groups([client.GROUP], request_timeout=REQUEST_S)
        try:
            asked[client.GROUP].result()
        except KafkaException as error:
            # The group has never had a member.
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise

    try:
        patiently(ask, what)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise
        return False
    return True


def described(admin: AdminClient, names: Iterable[str]) -> dict[str, State]:
    """Describe each topic with our rights on it: the topic, an error, or None if it is missing."""
    names = list(names)
    asked = topics.collection_of(names)

    def ask() -> dict[str, State]:
        states: dict[str, State] = dict.fromkeys(names)
        answers = admin.describe_topics(
            asked, include_authorized_operations=True, request_timeout=REQUEST_S
        )
        for name, answer in answers.items():
            try:
                description = answer.result()
            except KafkaException as error:
                cause = error.args[0]
                if cause.code() in FORBIDDEN:
                    states[name] = cause
                elif cause.code() not in topics.NO_TOPIC:
                    raise
                continue
            topic = TopicInfo(str(description.topic_id), len(description.partitions))
            # A client that can describe a topic has the right Describe, so this is never empty.
            allowed = description.authorized_operations
            states[name] = TopicRights(topic, frozenset(allowed) if allowed else None)
        return states

    return patiently(ask, "the brokers")
