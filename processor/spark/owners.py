"""Pass batches of shards on to the processes that own them."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ikebana.errors import LostError
from ikebana.processor.spark import owner_messages
from ikebana.processor.spark.owner_messages import (
    Ask,
    ClosedError,
    Done,
    JobIsMissing,
    Raised,
    SealedJob,
)
from ikebana.processor.spark.stand_in import short


class Owners(NamedTuple):
    """The sockets of a run's owners: shard i belongs to owner i modulo their number.

    In the folder `rows`, if there is one, source tasks leave rows for them (`left_rows.py`).
    """

    folder: str
    processes: int
    rows: str = ""

    def address(self, number: int) -> str:
        """Return the path of an owner's socket."""
        return f"{self.folder}/owner-{number}"

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

        if len(by_owner) == 1:
            return run_all([*rows])
        with ThreadPoolExecutor(len(by_owner)) as pool:
            running = [pool.submit(run_all, shards) for shards in by_owner.values()]
        return {shard: done for each in running for shard, done in each.result().items()}

    def _run(
        self, job: bytes, digest: str, shard: int, state: bytes | None, rows: list[bytes]
    ) -> Done | None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connection.connect(short(self.address(shard % self.processes)))
            except OSError:
                return None
            ask = Ask(digest, shard, state, [len(row) for row in rows])
            try:
                owner_messages.send(connection, ask, rows)
                rows.clear()
                answer = owner_messages.receive_answer(connection)
                if isinstance(answer, JobIsMissing):
                    sealed = SealedJob(job, dict(os.environ), sys.path)
                    owner_messages.send(connection, sealed)
                    answer = owner_messages.receive_answer(connection)
            except (ClosedError, OSError) as error:
                raise LostError(f"the process that owns shard {shard} was lost") from error
        if isinstance(answer, Raised):
            raise _raised(answer) from OwnerTraceback(answer.traceback)
        assert isinstance(answer, Done), answer
        return answer


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
