"""Check the rights that a command needs to read output topics, before it reads any.

Who may not see a topic is not told whether it is there.  So the topic of the snapshots that a diff
topic may have is asked for, too.
"""

from collections import defaultdict
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, NewTopic

from ikebana.codecs.formats import FACT_FORMATS
from ikebana.codecs.snapshot_record import topic_of
from ikebana.errors import AccessError
from ikebana.processor.kafka import client
from ikebana.processor.kafka.acl import Operations, grant, missing_right, ordered
from ikebana.processor.kafka.client import patiently
from ikebana.processor.kafka.told_rights import FORBIDDEN, ask_for_group, described

_REQUEST_S = 10.0


def reach(
    settings: Mapping[str, str],
    formats: Mapping[str, str],
    *,
    compacts: bool = False,
    deletes: bool = False,
) -> None:
    """Connect, and see that these topics may be read; `formats` has the format of each.

    Who `compacts` writes snapshots as well, and who `deletes` deletes what is in them.

    Raises:
        ConfigError, AwayError: as `client.reach`.
        AccessError: the brokers refuse the user, or rights are missing; it names all of them.
    """
    client.reach(settings)
    needs = needs_of(formats, compacts=compacts, deletes=deletes)
    told: list[str] = []
    remedies: list[str] = []

    def lacks(what: str, how: list[str], operations: Operations, *resource: str) -> None:
        told.append(f"{what} {', '.join(how)}")
        remedies.append(grant(settings, operations, *resource))

    admin = client.admin(settings)
    for topic, state in described(admin, needs).items():
        wanted = needs[topic]
        if state is None:
            if AclOperation.WRITE in wanted and not _may_be_made(settings, topic):
                how = ["does not exist and may not be made"]
                lacks(f'topic "{topic}"', how, {AclOperation.CREATE}, "--topic", topic)
        elif isinstance(state, KafkaError):
            lacks(f'topic "{topic}"', ["may not be seen"], wanted, "--topic", topic)
        elif state.allowed is not None and (missing := wanted - state.allowed):
            how = [missing_right(each) for each in ordered(missing)]
            lacks(f'topic "{topic}"', how, missing, "--topic", topic)
    if not _may_name_group(settings):
        named = ("--group", client.GROUP)
        lacks(f'group "{client.GROUP}"', ["may not be seen"], {AclOperation.DESCRIBE}, *named)
    if told:
        raise AccessError(
            f"cannot read {', '.join(formats)}: {'; '.join(told)}", hint="\n".join(remedies)
        )


def needs_of(
    formats: Mapping[str, str], *, compacts: bool = False, deletes: bool = False
) -> dict[str, Operations]:
    """Return the rights on each topic; each of them has Describe with it."""
    found: dict[str, Operations] = defaultdict(set)
    for topic, form in formats.items():
        found[topic].add(AclOperation.READ)
        if form not in FACT_FORMATS:
            found[topic + ".progress"].add(AclOperation.READ)
        if form != "diff":
            continue
        found[topic_of(topic)].add(AclOperation.READ)
        if compacts:
            # Snapshots of before are deleted, so that some are kept.
            found[topic_of(topic)] |= {AclOperation.WRITE, AclOperation.DELETE}
        if deletes:
            found[topic].add(AclOperation.DELETE)
            found[topic + ".progress"].add(AclOperation.DELETE)
    return dict(found)


def _may_be_made(settings: Mapping[str, str], topic: str) -> bool:
    admin = client.admin(settings)
    new = NewTopic(topic, 1, -1)

    def ask() -> None:
        admin.create_topics([new], request_timeout=_REQUEST_S, validate_only=True)[topic].result()

    try:
        patiently(ask, f'topic "{topic}"')
    except KafkaException as error:
        # Anything else is told by who makes it.
        return error.args[0].code() not in FORBIDDEN
    return True


def _may_name_group(settings: Mapping[str, str]) -> bool:
    admin = client.admin(settings)
    try:
        patiently(lambda: ask_for_group(admin), f'group "{client.GROUP}"')
    except KafkaException as error:
        if error.args[0].code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise
        return False
    return True
