"""The messages between Spark's Python processes and owners of shards or readers of batches.

Every connection over a unix socket carries one request: an `Ask`, followed by the rows of a batch,
to an owner, or a `ReadRequest` to a reader.  If the receiver does not have the job, or the
configuration of the source, it answers `MissingContent` and gets it.  Then it sends `Done`,
`ReadRows` or `Raised`.
"""

import hashlib
import pickle
import socket
from collections.abc import Sequence
from typing import TypeVar

import msgspec

Message = TypeVar("Message")
_LENGTH = 8
# A shorter message is sent in one piece.
_SMALL = 1 << 16


class Ask(msgspec.Struct, frozen=True):
    """A batch of a shard: the digest of the job, the state row, and the sizes of the rows."""

    job: str
    shard: int
    state: bytes | None
    rows: list[int]


class ReadRequest(msgspec.Struct, frozen=True, tag=True):
    """A part of a batch to read: the digest of the source's configuration, and a pickled share."""

    config: str
    batch: int
    share: bytes


class Fetch(msgspec.Struct, frozen=True, tag=True):
    """A request for a row that a reader of this host has left, by its place."""

    path: str
    start: int
    size: int


class Sealed(msgspec.Struct, frozen=True):
    """A pickled job or configuration, with the environment and module path of the Spark worker.

    Functions of users may depend on both.
    """

    content: bytes
    environment: dict[str, str]
    path: list[str]


class Done(msgspec.Struct, frozen=True, tag=True):
    """The state row and the marker after a batch, as JSON."""

    state: bytes
    marker: bytes


class ReadRows(msgspec.Struct, frozen=True, tag=True):
    """The rows of a read: packed rows, or their places in files, each with its shard."""

    rows: list[tuple[int, bytes]]


class FetchedRow(msgspec.Struct, frozen=True, tag=True):
    """A row that was fetched."""

    content: bytes


class Raised(msgspec.Struct, frozen=True, tag=True):
    """An error: the module and the name of its class, its text, and the whole traceback."""

    module: str
    name: str
    text: str
    traceback: str


class MissingContent(msgspec.Struct, frozen=True, tag=True):
    """The receiver needs the job, or the configuration, before it goes on."""


WorkerAnswer = Done | ReadRows | FetchedRow | Raised | MissingContent


class DisconnectedError(ConnectionError):
    """The other end has closed the connection."""


def pickled(content: object) -> tuple[bytes, str]:
    """Pickle a job or a configuration; return the bytes and their digest, which requests name."""
    encoded = pickle.dumps(content)
    return encoded, hashlib.sha256(encoded).hexdigest()


def send(connection: socket.socket, message: msgspec.Struct, rows: Sequence[bytes] = ()) -> None:
    """Send a message, followed by rows."""
    content = msgspec.msgpack.encode(message)
    parts = [len(content).to_bytes(_LENGTH, "big"), content, *rows]
    if sum(map(len, parts)) < _SMALL:
        parts = [b"".join(parts)]
    for part in parts:
        connection.sendall(part)


def receive_asked(connection: socket.socket) -> ReadRequest | Fetch:
    """Receive a request to a reader.

    Raises:
        DisconnectedError: the connection has ended.
    """
    asked: ReadRequest | Fetch = msgspec.msgpack.decode(
        _content(connection), type=ReadRequest | Fetch
    )
    return asked


def receive(connection: socket.socket, kind: type[Message]) -> Message:
    """Receive a message.

    Raises:
        DisconnectedError: the connection has ended.
    """
    return msgspec.msgpack.decode(_content(connection), type=kind)


def receive_answer(connection: socket.socket) -> WorkerAnswer:
    """Receive an answer.

    Raises:
        DisconnectedError: the connection has ended.
    """
    answer: WorkerAnswer = msgspec.msgpack.decode(_content(connection), type=WorkerAnswer)
    return answer


def _content(connection: socket.socket) -> bytes:
    return received(connection, int.from_bytes(received(connection, _LENGTH), "big"))


def received(connection: socket.socket, size: int) -> bytes:
    """Receive `size` bytes.

    Raises:
        DisconnectedError: the connection has ended before.
    """
    content = bytearray(size)
    view, at = memoryview(content), 0
    while at < size:
        count = connection.recv_into(view[at:])
        if not count:
            raise DisconnectedError
        at += count
    return bytes(content)
