"""Rights by their names in Kafka's ACLs, and the command that grants a missing one."""

import shlex
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from confluent_kafka.admin import AclOperation

Operations: TypeAlias = set[AclOperation]

# The name of each right, and the consequence of its lack, for messages.
_RIGHTS = {
    AclOperation.DESCRIBE: ("Describe", "may not be seen"),
    AclOperation.READ: ("Read", "may not be read"),
    AclOperation.WRITE: ("Write", "may not be written"),
    AclOperation.CREATE: ("Create", "may not be made"),
    AclOperation.ALTER: ("Alter", "may not get the partitions of new shards"),
    AclOperation.DELETE: ("Delete", "may not be trimmed"),
    AclOperation.DESCRIBE_CONFIGS: ("DescribeConfigs", "may not be asked for its settings"),
}
# Each of these rights implies Describe, unless a rule denies it.
_SEEING = {AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER, AclOperation.DELETE}


def ordered(operations: Iterable[AclOperation]) -> list[AclOperation]:
    """Sort operations in the order in which messages name them."""
    chosen = set(operations)
    return [each for each in _RIGHTS if each in chosen]


def missing_right(operation: AclOperation) -> str:
    """Describe what a client without this right cannot do."""
    return _RIGHTS[operation][1]


def grant(
    settings: Mapping[str, str], operations: Operations, *resource: str, whom: str = ""
) -> str:
    """Write the command of Kafka that grants missing rights to the user of these settings.

    `resource` are the options of the command that name the resource.

    >>> ann = {"bootstrap.servers": "kafka:9093", "sasl.username": "ann"}
    >>> grant(ann, {AclOperation.READ}, "--topic", "orders")
    'Grant Read: kafka-acls --bootstrap-server kafka:9093 --add --allow-principal User:ann \
--operation Read --topic orders'
    """
    if operations & _SEEING:
        operations = operations - {AclOperation.DESCRIBE}
    named = [_RIGHTS[each][0] for each in ordered(operations)]
    user = settings.get("sasl.username")
    command = ["kafka-acls", "--bootstrap-server", settings["bootstrap.servers"], "--add"]
    command += ["--allow-principal", f"User:{user or 'NAME'}"]
    command += [part for each in named for part in ("--operation", each)]
    whose = "" if user else ", where NAME is whom the brokers take this client for"
    return f"Grant {' and '.join(named)}{whom}: {shlex.join([*command, *resource])}{whose}"
