"""A real PostgreSQL for the length of a `with` block, with logical replication.

It listens on 127.0.0.1 and on a socket in its temporary folder, trusts everybody there
and syncs nothing to disk.  Where we are root it runs as `postgres` or `nobody`, since
PostgreSQL refuses root.
"""

import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from signal import SIGQUIT
from typing import Any

from cdc import child
from cdc.fetched import Unavailable
from ikebana.processor.kafka.broker import free_port
from support.waiting import patient, wait_until

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "wal_level": "logical",
    "fsync": "off",
    "shared_buffers": "16MB",
    "max_connections": "20",
    "timezone": "UTC",
}


@dataclass(frozen=True)
class Postgres:
    """A server that is ready; its only user is `postgres`, its database `postgres`."""

    binaries: Path
    folder: Path
    port: int

    @property
    def pid(self) -> int:
        """The process of the server."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def run(self, statements: str) -> str:
        """Run SQL statements, each in a transaction of its own, and return the rows."""
        command = [str(self.binaries / "psql"), "-h", str(self.folder), "-p", str(self.port)]
        command += ["-U", "postgres", "-XqAt", "-v", "ON_ERROR_STOP=1", "-f", "-"]
        done = subprocess.run(
            command,
            input=statements,
            capture_output=True,
            text=True,
            timeout=patient(60),
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def rows(self, query: str) -> list[Any]:
        """The rows of a query of one JSON column; fractions are not made floats."""
        return [json.loads(row, parse_float=Decimal) for row in self.run(query).splitlines()]


@contextmanager
def running() -> Iterator[Postgres]:
    """Run a new PostgreSQL; everything of it is removed at the end.

    Raises:
        Unavailable: it is not installed, or there is no user to run it as.
    """
    binaries, user = installed(), _user()
    with child.temporary_folder("postgres") as folder:
        if user is not None:
            os.chown(folder, pwd.getpwnam(user[0]).pw_uid, user[1])
        server = Postgres(binaries, folder, free_port())
        _make(server, user)
        with started(server):
            yield server


@contextmanager
def started(server: Postgres) -> Iterator[None]:
    """Run a server over the files that it has, which may be those of one that was killed."""
    folder, user = server.folder, _user()
    settings = {**_SETTINGS, "port": server.port, "unix_socket_directories": folder}
    command = [str(server.binaries / "postgres"), "-D", str(folder / "data")]
    command += [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
    # SIGQUIT is the immediate shutdown, also of the server's own children.
    with child.running("PostgreSQL", command, folder, end_by=SIGQUIT, user=user) as process:

        def ready() -> bool:
            process.check()
            place = ["-h", str(folder), "-p", str(server.port)]
            asked = subprocess.run([server.binaries / "pg_isready", "-q", *place], timeout=10)
            return asked.returncode == 0

        wait_until(ready, 60, "PostgreSQL is ready")
        yield


def _make(server: Postgres, user: tuple[str, int] | None) -> None:
    command = [str(server.binaries / "initdb"), "-D", str(server.folder / "data")]
    command += ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
    command += ["--no-sync", "--no-instructions"]
    done = subprocess.run(
        command,
        cwd=server.folder,
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
        user=user and user[0],
        group=user and user[1],
        extra_groups=[] if user else None,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def installed() -> Path:
    """The folder of the newest PostgreSQL.  Raises: Unavailable."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    if found := shutil.which("initdb"):
        places.append(Path(found).resolve().parent)
    for place in places:
        if all((place / name).exists() for name in ("initdb", "postgres", "psql", "pg_isready")):
            return place
    raise Unavailable("PostgreSQL is not installed: no initdb in /usr/lib/postgresql or on PATH")


def _version(place: Path) -> int:
    name = place.parent.name
    return int(name) if name.isdigit() else 0


def _user() -> tuple[str, int] | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return name, pwd.getpwnam(name).pw_gid
        except KeyError:
            continue
    raise Unavailable("PostgreSQL refuses to run as root, and there is no other user")
