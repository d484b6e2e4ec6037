"""Have batches read by the processes of a run for that, and pass them on to the shards' owners."""

import os
import pickle
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from ikebana.errors import LostError
from ikebana.processor.spark import owner_messages
from ikebana.processor.spark.owner_messages import (
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
from ikebana.processor.spark.stand_in import short

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


class Owners(NamedTuple):
    """The sockets of a run's owners: shard i belongs to owner i modulo their number.

    `readers` is the number of processes that read batches, and `rows` the folder in which these
    leave rows for the owners (`left_rows.py`), if there are any.
    """

    folder: str
    processes: int
    readers: int = 0
    rows: str = ""

    def address(self, number: int) -> str:
        """Return the path of an owner's socket."""
        return f"{self.folder}/owner-{number}"

    def reader(self, number: int) -> str:
        """Return the path of a reader's socket."""
        return f"{self.folder}/reader-{number}"

    def run(
        self,
        job: bytes,
        digest: str,
        states: Mapping[int, bytes | None],
        rows: Mapping[int, list[bytes]],
    ) -> dict[int, Done | None]:
        """Have the owners of shards run their batches; None for each that cannot be reached.

        Owners work side by side; one that owns several shards runs them one after the other.
        `job` is pickled, and `digest` is that of its bytes.  `states` and `rows` are by shard; the
        rows of a shard are emptied when they are sent.

        Raises, when all owners have answered:
            LostError: an owner ended before it answered; the batch may be committed.
            Exception: an owner's error, by a class of the same name and with the same text.
        """
        by_owner: dict[int, list[int]] = {}
        for shard in rows:
            by_owner.setdefault(shard % self.processes, []).append(shard)

        def run_all(shards: Sequence[int]) -> dict[int, Done | None]:
            return {
                shard: self._run(job, digest, shard, states[shard], rows[shard])
                for shard in shards
            }

        found: dict[int, Done | None] = {}
        for each in _side_by_side(run_all, list(by_owner.values())):
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
        self, job: bytes, digest: str, shard: int, state: bytes | None, rows: list[bytes]
    ) -> Done | None:
        ask = Ask(digest, shard, state, [len(row) for row in rows])
        address = self.address(shard % self.processes)
        answer = _answered(address, f"owns shard {shard}", ask, rows, job)
        assert answer is None or isinstance(answer, Done), answer
        return answer


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
            owner_messages.send(connection, request, rows)
            rows.clear()
            answer = owner_messages.receive_answer(connection)
            if isinstance(answer, Missing):
                sealed = Sealed(content, dict(os.environ), sys.path)
                owner_messages.send(connection, sealed)
                answer = owner_messages.receive_answer(connection)
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
