"""Have batches read by the readers of a host, and pass them on to the owners of shards.

If a run has several hosts, its shards are placed on them: evenly, and with few moves.  A move
costs a shard one batch that fences, looks and catches up.  Correctness does not depend on the
placement: if two owners have a shard at once, the later one has fenced the other.
"""

import os
import pickle
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import msgspec

from ikebana.errors import LostError
from ikebana.processor.base.machine import write_whole
from ikebana.processor.spark.workers import network
from ikebana.processor.spark.workers.network import (
    Ask,
    Done,
    Fetch,
    FetchedRow,
    MissingContent,
    Pickled,
    Raised,
    ReadRequest,
    ReadRows,
    Sealed,
    WorkerAddress,
    WorkerAnswer,
)
from ikebana.processor.spark.workers.stand_in import FORKS, VARIABLE

Question = TypeVar("Question")
Answered = TypeVar("Answered")
EXECUTOR_VARIABLE = "IKEBANA_EXECUTOR"
"""The environment variable with the id of the executor of a host."""


class HostAddress(NamedTuple):
    """The sockets of a host, with the numbers of its owners of shards and readers of batches.

    They are files in the folder `place`, or, on an executor, `ports` of the machine `place` that
    other machines reach: first those of owners.  The processes of a machine find them by an
    environment variable.
    """

    place: str
    owners: int
    readers: int = 0
    ports: tuple[int, ...] = ()

    @classmethod
    def here(cls) -> Self | None:
        """Return the sockets of the host in the environment; None if there is none."""
        text = os.environ.get(VARIABLE)
        return cls.read_from(text) if text else None

    @classmethod
    def read_from(cls, text: str) -> Self:
        """Parse the form of `text`."""
        owners, readers, place = text.split(" ", 2)
        if place.startswith("/"):
            return cls(place, int(owners), int(readers))
        machine, _, ports = place.rpartition(":")
        return cls(machine, int(owners), int(readers), tuple(map(int, ports.split(","))))

    @property
    def text(self) -> str:
        """The host in one line."""
        ports = f":{','.join(map(str, self.ports))}" if self.ports else ""
        return f"{self.owners} {self.readers} {self.place}{ports}"

    @property
    def variable(self) -> dict[str, str]:
        """The environment variable with these sockets."""
        return {VARIABLE: self.text}

    @property
    def forks(self) -> str:
        """The path of the socket at which the host forks Spark's Pythons."""
        return f"{self.place}/{FORKS}"

    def address(self, number: int) -> WorkerAddress:
        """Return the address of an owner."""
        if self.ports:
            return self.place, self.ports[number]
        return f"{self.place}/owner-{number}"

    def reader(self, number: int) -> WorkerAddress:
        """Return the address of a reader."""
        if self.ports:
            return self.place, self.ports[self.owners + number]
        return f"{self.place}/reader-{number}"

    def are_there(self) -> bool:
        """Whether the host of a driver has owners, and runs."""
        if not self.owners:
            return False
        with suppress(OSError), network.connected(self.forks):
            return True
        return False

    def listening(self, *, forks: bool) -> dict[socket.socket, str]:
        """Open the sockets of a host; return the kind of each, for `host.Host`.

        A client that connects before the host is ready waits.
        """
        kinds: dict[WorkerAddress, str] = {self.forks: FORKS} if forks else {}
        kinds |= {self.address(number): "owner" for number in range(self.owners)}
        kinds |= {self.reader(number): "reader" for number in range(self.readers)}
        return {network.listening(address): kind for address, kind in kinds.items()}


def run(
    hosts: Mapping[int, HostAddress],
    job: Pickled,
    states: Mapping[int, bytes | None],
    rows: Mapping[int, list[bytes]],
) -> dict[int, Done | None]:
    """Have the owners of shards run their batches; None for each owner that is not reached.

    Owners work side by side; one with several shards runs them one after the other.  The shards of
    a host are assigned to its owners in turn, beginning at the number of the first shard, so that
    groups begin with different owners.  `hosts`, `states` and `rows` are by shard; the rows of a
    shard are emptied when they are sent.

    Raises, when all owners have answered:
        LostError: an owner ended before it answered; the batch may be committed.
        Exception: an owner's error, by a class of the same name and with the same text.
    """
    of_host: dict[HostAddress, list[int]] = {}
    for shard in sorted(rows):
        of_host.setdefault(hosts[shard], []).append(shard)
    by_owner: dict[WorkerAddress, list[int]] = {}
    for host, shards in of_host.items():
        for at, shard in enumerate(shards, shards[0]):
            by_owner.setdefault(host.address(at % host.owners), []).append(shard)

    def run_all(owner: WorkerAddress) -> dict[int, Done | None]:
        return {
            shard: _run(owner, job, shard, states[shard], rows[shard]) for shard in by_owner[owner]
        }

    results: dict[int, Done | None] = {}
    for each in _side_by_side(run_all, list(by_owner)):
        results |= each
    return results


def read(
    readers: Sequence[WorkerAddress],
    config: Pickled,
    batch: int,
    shares: Sequence[object],
) -> list[tuple[int, bytes]] | None:
    """Have readers read the shares of a batch, side by side; None if they cannot be reached.

    `config` is the configuration of the source.  Returns packed rows, or their places, each with
    its shard.

    Raises, when all readers have answered:
        LostError: a reader ended before it answered.
        Exception: a reader's error, as in `run`.
    """
    if not readers:
        return None

    def read_one(at: int) -> ReadRows | None:
        ask = ReadRequest(config.digest, batch, pickle.dumps(shares[at]))
        answer = _answered(readers[at % len(readers)], "reads", ask, [], config.content)
        assert answer is None or isinstance(answer, ReadRows), answer
        return answer

    answers = _side_by_side(read_one, range(len(shares)))
    if any(each is None for each in answers):
        return None
    return [row for each in answers if each is not None for row in each.rows]


def fetch(reader: WorkerAddress, path: str, start: int, size: int) -> bytes | None:
    """Fetch a row that a reader has left on another machine; None if it is not reached.

    Raises:
        LostError: the file is missing, or not whole, or the reader was lost.
    """
    answer = _answered(reader, "has left rows", Fetch(path, start, size), [], b"")
    assert answer is None or isinstance(answer, FetchedRow), answer
    return None if answer is None else answer.content


def _run(
    owner: WorkerAddress,
    job: Pickled,
    shard: int,
    state: bytes | None,
    rows: list[bytes],
) -> Done | None:
    ask = Ask(job.digest, shard, state, [len(row) for row in rows])
    answer = _answered(owner, f"owns shard {shard}", ask, rows, job.content)
    assert answer is None or isinstance(answer, Done), answer
    return answer


def _answered(
    address: WorkerAddress,
    does: str,
    request: Ask | ReadRequest | Fetch,
    rows: list[bytes],
    content: bytes,
) -> WorkerAnswer | None:
    """Send a request to a process, and its `content` if the process does not have it yet.

    `does` describes the process in errors.  Returns None if no process listens there.
    """
    try:
        connection = network.connected(address)
    except OSError:
        return None
    with connection:
        try:
            network.send(connection, request, rows)
            rows.clear()
            answer = network.receive_answer(connection)
            if isinstance(answer, MissingContent):
                sealed = Sealed(content, dict(os.environ), sys.path)
                network.send(connection, sealed)
                answer = network.receive_answer(connection)
        except OSError as error:
            raise LostError(f"the process that {does} was lost") from error
    if isinstance(answer, Raised):
        raise _raised(answer) from OwnerTraceback(answer.traceback)
    return answer


def _side_by_side(ask: Callable[[Question], Answered], of: Sequence[Question]) -> list[Answered]:
    """Call a function for several items at the same time; raise an error when all have ended."""
    if len(of) == 1:
        return [ask(of[0])]
    with ThreadPoolExecutor(len(of)) as pool:
        running = [pool.submit(ask, each) for each in of]
    return [each.result() for each in running]


class OwnerTraceback(Exception):
    """The traceback of an error in an owner, as the cause of the error in the worker."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _raised(answer: Raised) -> Exception:
    """Make an exception that is printed like the owner's.

    Spark passes on only the text, and not every error can be pickled.
    """
    kind = type(answer.name, (Exception,), {"__module__": answer.module})
    error: Exception = kind(answer.text)
    return error


PLACEMENT = -1
"""In place of a shard's number: the row is the placement of shards on hosts."""


class Placement(msgspec.Struct, frozen=True, array_like=True):
    """The hosts by the ids of their executors, as `HostAddress.text`; the host of each shard."""

    hosts: dict[str, str]
    shards: list[str]


def place_shards(
    shards: int, hosts: Mapping[str, str], before: Placement | None = None
) -> Placement:
    """Place shards on hosts, so that numbers of shards differ by one at most.

    >>> place_shards(4, {"1": "a", "2": "b"}, Placement({"2": "b"}, ["2", "2", "2", "2"])).shards
    ['2', '2', '1', '1']
    """
    if not hosts:
        return Placement({}, [])
    former = before.shards if before is not None and len(before.shards) == shards else []
    least, more = divmod(shards, len(hosts))
    counts = dict.fromkeys(sorted(hosts), 0)
    by_shard: dict[int, str] = {}
    for shard, name in enumerate(former):
        if name not in counts or counts[name] > least or (counts[name] == least and not more):
            continue
        # `more` counts the hosts that may still have one shard more than the others.
        more -= counts[name] == least
        by_shard[shard] = name
        counts[name] += 1
    for shard in range(shards):
        if shard not in by_shard:
            by_shard[shard] = min(counts, key=lambda name: counts[name])
            counts[by_shard[shard]] += 1
    return Placement(dict(hosts), [by_shard[shard] for shard in range(shards)])


def hosts_of(raw: bytes) -> dict[int, HostAddress]:
    """Return the host of each shard, as far as it has one."""
    placement = msgspec.msgpack.decode(raw, type=Placement)
    hosts = {name: HostAddress.read_from(text) for name, text in placement.hosts.items()}
    return {shard: hosts[name] for shard, name in enumerate(placement.shards)}


def readers_of(raw: bytes) -> list[WorkerAddress]:
    """Return the readers of all hosts, alternating between hosts."""
    placement = msgspec.msgpack.decode(raw, type=Placement)
    hosts = [HostAddress.read_from(placement.hosts[name]) for name in sorted(placement.hosts)]
    most = max((host.readers for host in hosts), default=0)
    return [host.reader(at) for at in range(most) for host in hosts if at < host.readers]


def encoded(placement: Placement) -> bytes:
    """Encode a placement, as batches carry it."""
    return msgspec.msgpack.encode(placement)


def write_placement(path: Path, placement: Placement) -> None:
    """Write a placement for the source of a query."""
    write_whole(path, encoded(placement))


def placement_in(path: Path) -> bytes | None:
    """Read an encoded placement that `write_placement` has written; None if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
