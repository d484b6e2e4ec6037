"""Ask brokers to move partitions to other brokers, which no client library of Python can.

It speaks Kafka's protocol itself: `AlterPartitionReassignments`, version 0.
"""

import socket
import struct
from collections.abc import Mapping, Sequence

from confluent_kafka.admin import AdminClient

from support.waiting import wait_until

# The replicas of partitions by (topic, partition), the preferred leader first.
Replicas = Mapping[tuple[str, int], Sequence[int]]
_KEY, _VERSION, _ID = 45, 0, 1
_TIMEOUT_S = 30
_MOVES_S = 120.0
# Fields with tags, of which there are none.
_TAGS = b"\0"


class RefusedError(Exception):
    """The brokers did not take it."""


def reassign(servers: str, wanted: Replicas) -> None:
    """Move partitions, and return when their replicas are where they should be.

    Raises:
        RefusedError: the brokers refuse to.
        OSError: no broker answers.
    """
    host, _, port = servers.partition(",")[0].rpartition(":")
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as connection:
        message = request(wanted)
        connection.sendall(struct.pack(">i", len(message)) + message)
        answer = _read(connection, *struct.unpack(">i", _read(connection, 4)))
    # Correlation, tags and throttling come before it.
    (code,) = struct.unpack_from(">h", answer, 9)
    if code:
        raise RefusedError(f"error {code}: {answer!r}")
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    wait_until(lambda: _is_done(admin, wanted), _MOVES_S, "the move of partitions")


def request(wanted: Replicas) -> bytes:
    """The message, without its length.

    >>> request({("t", 0): [2, 3]}).hex(" ", 8)
    '002d00 0000000001ffff00 0000753002027402 0000000003000000 0200000003000000'
    """
    topics: dict[str, dict[int, Sequence[int]]] = {}
    for (topic, partition), replicas in wanted.items():
        topics.setdefault(topic, {})[partition] = replicas
    header = struct.pack(">hhih", _KEY, _VERSION, _ID, -1) + _TAGS
    body = struct.pack(">i", _TIMEOUT_S * 1000) + _count(topics)
    for topic, partitions in topics.items():
        name = topic.encode()
        body += _count(name) + name + _count(partitions)
        for partition, replicas in partitions.items():
            numbers = struct.pack(f">{len(replicas)}i", *replicas)
            body += struct.pack(">i", partition) + _count(replicas) + numbers + _TAGS
        body += _TAGS
    return header + body + _TAGS


def _count(things: Sequence[object] | Mapping[int, object] | Mapping[str, object]) -> bytes:
    """The length of a compact array or string, plus one."""
    number, found = len(things) + 1, bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (part := connection.recv(size - len(found))):
            raise RefusedError("the broker has closed the connection")
        found += part
    return found


def _is_done(admin: AdminClient, wanted: Replicas) -> bool:
    topics = admin.list_topics(timeout=_TIMEOUT_S).topics
    found = {at: topics[at[0]].partitions[at[1]] for at in wanted}
    return all(
        sorted(found[at].replicas) == sorted(replicas) and found[at].leader in replicas
        for at, replicas in wanted.items()
    )
