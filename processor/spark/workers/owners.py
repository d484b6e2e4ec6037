"""Have batches read by the readers of a host, and pass them on to the owners of shards."""

import os
import pickle
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Self, TypeVar

from ikebana.errors import LostError
from ikebana.processor.spark.workers import messages
from ikebana.processor.spark.workers.messages import (
    Answer,
    Ask,
    ClosedError,
    Done,
    Missing,
    Passed,
    Raised,
    Read,
    Sealed,
)
from ikebana.processor.spark.workers.stand_in import FORKS, VARIABLE, short

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")
_BACKLOG = 64


class Owners(NamedTuple):
    """The sockets of a host, in a folder: of its owners of shards, and of its readers of batches.

    They are found by an environment variable, so no address is in jobs: a shard that moves to
    another executor is served by the owners there.
    """

    folder: str
    processes: int
    readers: int = 0

    @classmethod
    def here(cls) -> Self | None:
        """Return those of the host that the environment names; None if it names none."""
        if not (told := os.environ.get(VARIABLE)):
            return None
        processes, readers, folder = told.split(" ", 2)
        return cls(folder, int(processes), int(readers))

    @property
    def variable(self) -> dict[str, str]:
        """The environment that names them."""
        return {VARIABLE: f"{self.processes} {self.readers} {self.folder}"}

    @property
    def forks(self) -> str:
        """The path of the socket at which the host forks what Spark runs."""
        return f"{self.folder}/{FORKS}"

    def address(self, number: int) -> str:
        """Return the path of an owner's socket."""
        return f"{self.folder}/owner-{number}"

    def reader(self, number: int) -> str:
        """Return the path of a reader's socket."""
        return f"{self.folder}/reader-{number}"

    def are_there(self) -> bool:
        """Whether the host of a driver has owners, and runs."""
        if not self.processes:
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connection.connect(short(self.forks))
            except OSError:
                return False
        return True

    def listening(self, *, forks: bool) -> "dict[socket.socket, str]":
        """Open the sockets of a host; return the kind of each, for `host.Host`.

        Whoever connects before the host is ready waits.
        """
        kinds = {self.forks: FORKS} if forks else {}
        kinds |= {self.address(number): "owner" for number in range(self.processes)}
        kinds |= {self.reader(number): "reader" for number in range(self.readers)}
        return {_listening(address): kind for address, kind in kinds.items()}

    def run(
        self,
        job: bytes,
        digest: str,
        states: Mapping[int, bytes | None],
        rows: Mapping[int, list[bytes]],
    ) -> dict[int, Done | None]:
        """Have the owners of a group's shards run their batches; None for each that is not there.

        Owners work side by side; one that owns several shards runs them one after the other.
        Shards follow one another in turn, and groups begin with different owners.  `job` is
        pickled, and `digest` is that of its bytes.  `states` and `rows` are by shard; the rows of
        a shard are emptied when they are sent.

        Raises, when all owners have answered:
            LostError: an owner ended before it answered; the batch may be committed.
            Exception: an owner's error, by a class of the same name and with the same text.
        """
        by_owner: dict[int, list[int]] = {}
        for at, shard in enumerate(sorted(rows), min(rows)):
            by_owner.setdefault(at % self.processes, []).append(shard)

        def run_all(owner: int) -> dict[int, Done | None]:
            return {
                shard: self._run(job, digest, owner, shard, states[shard], rows[shard])
                for shard in by_owner[owner]
            }

        found: dict[int, Done | None] = {}
        for each in _side_by_side(run_all, list(by_owner)):
            found |= each
        return found

    def read(
        self, config: bytes, digest: str, shares: Sequence[object]
    ) -> list[tuple[int, bytes]] | None:
        """Have readers read the shares of a batch, side by side; None if they cannot be reached.

        `config` is the pickled configuration of the source, and `digest` that of its bytes.
        Returns packed rows, or their places, each with its shard.

        Raises, when all readers have answered:
            LostError: a reader ended before it answered.
            Exception: a reader's error, as `run` raises an owner's.
        """
        if not self.readers:
            return None

        def read_one(at: int) -> Passed | None:
            ask = Read(digest, pickle.dumps(shares[at]))
            answer = _answered(self.reader(at % self.readers), "reads", ask, [], config)
            assert answer is None or isinstance(answer, Passed), answer
            return answer

        found = _side_by_side(read_one, range(len(shares)))
        if any(each is None for each in found):
            return None
        return [row for each in found if each is not None for row in each.rows]

    def _run(
        self,
        job: bytes,
        digest: str,
        owner: int,
        shard: int,
        state: bytes | None,
        rows: list[bytes],
    ) -> Done | None:
        ask = Ask(digest, shard, state, [len(row) for row in rows])
        answer = _answered(self.address(owner), f"owns shard {shard}", ask, rows, job)
        assert answer is None or isinstance(answer, Done), answer
        return answer


def _listening(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(short(address))
    listener.listen(_BACKLOG)
    return listener


def _answered(
    address: str, does: str, request: Ask | Read, rows: list[bytes], content: bytes
) -> Answer | None:
    """Ask the process that `does` something; give it `content` if it does not know it.

    Returns None if it is not there.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(short(address))
        except OSError:
            return None
        try:
            messages.send(connection, request, rows)
            rows.clear()
            answer = messages.receive_answer(connection)
            if isinstance(answer, Missing):
                sealed = Sealed(content, dict(os.environ), sys.path)
                messages.send(connection, sealed)
                answer = messages.receive_answer(connection)
        except (ClosedError, OSError) as error:
            raise LostError(f"the process that {does} was lost") from error
    if isinstance(answer, Raised):
        raise _raised(answer) from OwnerTraceback(answer.traceback)
    return answer


def _side_by_side(ask: Callable[[Asked], Answered], of: Sequence[Asked]) -> list[Answered]:
    """Ask for each of several at the same time; an error is raised when all have answered."""
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
    """Make an exception that is printed as the owner's.

    Spark passes on nothing but the text, and not every error can be pickled.
    """
    kind = type(answer.name, (Exception,), {"__module__": answer.module})
    made: Exception = kind(answer.text)
    return made
