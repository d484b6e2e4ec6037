"""The messages between Spark's Python processes and those that own shards, or read batches.

Every connection over a unix socket carries one request: an `Ask` with the rows of a batch behind
it to an owner, or a `Read` to a reader.  If that does not know the job, or the configuration of
the source, it says so and gets it.  Then it sends `Done` or `Passed`, or `Raised`.
"""

import hashlib
import pickle
import socket
from collections.abc import Sequence
from typing import TypeVar

import msgspec

Message = TypeVar("Message")
_LENGTH = 8
# What is shorter is sent in one piece.
_SMALL = 1 << 16


class Ask(msgspec.Struct, frozen=True):
    """A batch of a shard: the digest of the job, the state row, and the sizes of the rows."""

    job: str
    shard: int
    state: bytes | None
    rows: list[int]


class Read(msgspec.Struct, frozen=True, tag=True):
    """A part of a batch to read: the digest of the source's configuration, and a pickled share."""

    config: str
    batch: int
    share: bytes


class Fetch(msgspec.Struct, frozen=True, tag=True):
    """Where a row is that a reader of this host has left."""

    path: str
    start: int
    size: int


class Sealed(msgspec.Struct, frozen=True):
    """A pickled job or configuration, and what functions of a user may read in a Spark worker."""

    content: bytes
    environment: dict[str, str]
    path: list[str]


class Done(msgspec.Struct, frozen=True, tag=True):
    """The state row and the marker after a batch, as JSON."""

    state: bytes
    marker: bytes


class Passed(msgspec.Struct, frozen=True, tag=True):
    """What has been read: packed rows, or their places in files, each with its shard."""

    rows: list[tuple[int, bytes]]


class Row(msgspec.Struct, frozen=True, tag=True):
    """A row that was fetched."""

    content: bytes


class Raised(msgspec.Struct, frozen=True, tag=True):
    """An error: the module and the name of its class, its text, and the whole traceback."""

    module: str
    name: str
    text: str
    traceback: str


class Missing(msgspec.Struct, frozen=True, tag=True):
    """Who is asked wants the job, or the configuration, before it goes on."""


Answer = Done | Passed | Row | Raised | Missing


class ClosedError(ConnectionError):
    """The other end has closed the connection."""


def pickled(content: object) -> tuple[bytes, str]:
    """Pickle a job or a configuration; return it with the digest by which requests name it."""
    found = pickle.dumps(content)
    return found, hashlib.sha256(found).hexdigest()


def send(connection: socket.socket, message: msgspec.Struct, rows: Sequence[bytes] = ()) -> None:
    """Send a message, and rows behind it."""
    content = msgspec.msgpack.encode(message)
    parts = [len(content).to_bytes(_LENGTH, "big"), content, *rows]
    if sum(map(len, parts)) < _SMALL:
        parts = [b"".join(parts)]
    for part in parts:
        connection.sendall(part)


def receive_asked(connection: socket.socket) -> Read | Fetch:
    """Receive what a reader is asked.

    Raises:
        ClosedError: the connection has ended.
    """
    asked: Read | Fetch = msgspec.msgpack.decode(_content(connection), type=Read | Fetch)
    return asked


def receive(connection: socket.socket, kind: type[Message]) -> Message:
    """Receive a message.

    Raises:
        ClosedError: the connection has ended.
    """
    return msgspec.msgpack.decode(_content(connection), type=kind)


def receive_answer(connection: socket.socket) -> Answer:
    """Receive an answer.

    Raises:
        ClosedError: the connection has ended.
    """
    answer: Answer = msgspec.msgpack.decode(_content(connection), type=Answer)
    return answer


def _content(connection: socket.socket) -> bytes:
    return received(connection, int.from_bytes(received(connection, _LENGTH), "big"))


def received(connection: socket.socket, size: int) -> bytes:
    """Receive so many bytes.

    Raises:
        ClosedError: the connection has ended before.
    """
    content = bytearray(size)
    view, at = memoryview(content), 0
    while at < size:
        count = connection.recv_into(view[at:])
        if not count:
            raise ClosedError
        at += count
    return bytes(content)
