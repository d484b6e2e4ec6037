"""How the processes of a run talk: connections, and the messages over them.

Connections go over socket files on one machine, else over TCP.  Each carries one request of one
of Spark's Python processes: an `Ask`, followed by the rows of a batch, to an owner of shards, or a
`ReadRequest` to a reader of batches.  If the receiver does not have the job, or the configuration
of the source, it answers `MissingContent` and gets it.  Then it sends `Done`, `ReadRows` or
`Raised`.

Over TCP both ends prove that they know the secret of the run, before anything is unpickled, by
digests of random bytes from each of them (HMAC, as in `multiprocessing.connection`).  The secret
is a random text.  Where Spark encrypts what it sends, so do they, by TLS: the secret is then a
private key with a certificate of its own, which no authority has signed.  All processes of the run
have both, and trust nothing else.
"""

import base64
import datetime
import functools
import hashlib
import hmac
import os
import pickle
import secrets
import socket
import ssl
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Self, TypeVar

import msgspec

from ikebana.processor.spark.workers.stand_in import short

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
    """The state row and the commit record after a batch, as JSON."""

    state: bytes
    commit: bytes


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


class Pickled(NamedTuple):
    """A pickled job or configuration, and the digest of its bytes, by which requests name it."""

    content: bytes
    digest: str

    @classmethod
    def of(cls, value: object) -> Self:
        """Pickle a job or a configuration."""
        content = pickle.dumps(value)
        return cls(content, hashlib.sha256(content).hexdigest())


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


WorkerAddress = str | tuple[str, int]
"""The path of a socket file, or host and port."""
VARIABLE = "IKEBANA_SECRET"
"""The environment variable with the secret; Spark hides the values of such names."""
_BACKLOG = 64
_SIZE = 32
_CONNECTS_WITHIN_S = 5.0
# How long to wait for the proof of a client that has connected.
_PROVES_WITHIN_S = 10.0

_ENCRYPTS = "tls:"
_NAME = "ikebana"
# A run may go on for years, and clocks of machines differ.
_LASTS = datetime.timedelta(days=3_650)
_CLOCKS_DIFFER_BY = datetime.timedelta(days=1)


class StrangerError(OSError):
    """The other end of a connection does not know the secret of the run."""


def listening(address: WorkerAddress) -> socket.socket:
    """Listen at an address; for port 0 the system chooses one.

    Without a host name, it listens at all addresses of the machine, also of IPv6 if it has that.
    """
    if isinstance(address, str):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(short(address))
        listener.listen(_BACKLOG)
        return listener
    if not address[0] and socket.has_dualstack_ipv6():
        with suppress(OSError):
            family = socket.AF_INET6
            return socket.create_server(
                address, family=family, backlog=_BACKLOG, dualstack_ipv6=True
            )
    return socket.create_server(address, backlog=_BACKLOG)


def connected(address: WorkerAddress) -> socket.socket:
    """Connect to an address.

    Raises:
        OSError: no process listens there, or it is a stranger.
    """
    if isinstance(address, str):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(short(address))
        except OSError:
            connection.close()
            raise
        return connection
    connection = socket.create_connection(address, _CONNECTS_WITHIN_S)
    try:
        # An owner that serves another request accepts when it is done.
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _protected(connection, is_server=False)
        theirs, ours = _challenge(connection), secrets.token_bytes(_SIZE)
        connection.sendall(ours + _proof(b"client", theirs, ours))
        if not hmac.compare_digest(_challenge(connection), _proof(b"server", theirs, ours)):
            raise StrangerError("it does not know the secret of this run")
    except BaseException:
        connection.close()
        raise
    return connection


def is_heard(address: WorkerAddress) -> bool:
    """Whether a process listens at an address, busy or not."""
    assert not isinstance(address, str), "a file says nothing of who listens"
    with suppress(OSError), socket.create_connection(address, _CONNECTS_WITHIN_S):
        return True
    return False


def accepted(listener: socket.socket) -> socket.socket:
    """Accept a connection.

    Raises:
        OSError: the connection has ended, or comes from a stranger.
    """
    connection, _ = listener.accept()
    if listener.family == socket.AF_UNIX:
        return connection
    try:
        connection.settimeout(_PROVES_WITHIN_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _protected(connection, is_server=True)
        ours = secrets.token_bytes(_SIZE)
        connection.sendall(ours)
        theirs = _challenge(connection)
        if not hmac.compare_digest(_challenge(connection), _proof(b"client", ours, theirs)):
            raise StrangerError("it does not know the secret of this run")
        connection.sendall(_proof(b"server", ours, theirs))
    except BaseException:
        connection.close()
        raise
    return connection


def _protected(connection: socket.socket, *, is_server: bool) -> socket.socket:
    """Encrypt a connection, if the secret of the run does so."""
    secret = os.environ[VARIABLE]
    if not encrypts(secret):
        return connection
    server, client = _contexts(secret)
    try:
        return (server if is_server else client).wrap_socket(connection, server_side=is_server)
    except ssl.SSLError as error:
        raise StrangerError("it does not know the certificate of this run") from error


def _proof(role: bytes, servers: bytes, clients: bytes) -> bytes:
    return hmac.digest(os.environ[VARIABLE].encode(), role + servers + clients, "sha256")


def _challenge(connection: socket.socket) -> bytes:
    try:
        return received(connection, _SIZE)
    except DisconnectedError as error:
        raise StrangerError("it has hung up") from error


def new_secret(*, encrypts: bool) -> str:
    """Return a new secret, in one line; with it, connections are encrypted if `encrypts`."""
    return _ENCRYPTS + base64.b64encode(_pem()).decode() if encrypts else secrets.token_hex(32)


def encrypts(secret: str) -> bool:
    """Whether connections between processes that know this secret are encrypted."""
    return secret.startswith(_ENCRYPTS)


@functools.lru_cache(maxsize=1)
def _contexts(secret: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the TLS contexts of servers and of clients, for a secret that encrypts."""
    pem = base64.b64decode(secret.removeprefix(_ENCRYPTS))
    server, client = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    # A server waits for the end of a connection: nothing that the client has to read comes first.
    server.num_tickets = 0
    # OpenSSL reads keys from files only.  This one is readable for its owner, and goes at once.
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(pem)
        file.flush()
        server.load_cert_chain(file.name)
        client.load_verify_locations(file.name)
    # Executors come and go at any address; what they prove is the key of the run.
    client.check_hostname = False
    return server, client


def _pem() -> bytes:
    # Imported here, because only runs that encrypt need it.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER_BY)
        .not_valid_after(now + _LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(pem, form, plain) + certificate.public_bytes(pem)
