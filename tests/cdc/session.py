"""A session of psql that stays open, so that transactions of several can be interleaved."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from cdc.postgres import Postgres

_DONE = "-- done --"


class Session:
    """Runs statements one after the other; a transaction may stay open between them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, statements: str) -> list[str]:
        """The rows of the statements, once the server has answered."""
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        asked.write(f"{statements}\n\\echo {_DONE}\n")
        asked.flush()
        rows: list[str] = []
        for line in answered:
            if line.strip() == _DONE:
                return rows
            rows.append(line.rstrip("\n"))
        raise AssertionError(f"psql has ended: {rows}")

    def begin(self) -> str:
        """Begin a transaction and return its id, which the server gives it now."""
        [txid] = self.run("BEGIN; SELECT pg_current_xact_id();")
        return txid


@contextmanager
def session(database: Postgres) -> Iterator[Session]:
    """A session of its own, which ends with the block; a statement at fault ends it too."""
    command = [str(database.binaries / "psql"), "-h", str(database.folder)]
    command += ["-p", str(database.port), "-U", "postgres", "-XqAt", "-v", "ON_ERROR_STOP=1"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield Session(process)
