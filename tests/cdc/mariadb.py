"""A real MariaDB for the length of a `with` block, with a binary log of rows.

It listens on 127.0.0.1 and on a socket in its temporary folder, trusts everybody there
and syncs nothing to disk.  Where we are root it runs as `mysql` or `nobody`.
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
from typing import Any

from cdc import child
from cdc.fetched import Unavailable
from ikebana.processor.kafka.broker import free_port
from support.waiting import wait_until

_SETTINGS = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "ON",
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "8M",
    "innodb-flush-log-at-trx-commit": "0",
    "performance-schema": "OFF",
    "sync-binlog": "0",
    "log-bin": "binlog",
    "server-id": "1",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    # With FULL Maxwell cannot read what it is told of some tables, and goes on without their rows.
    "binlog-row-metadata": "NO_LOG",
    # Else Maxwell warns of every transaction.
    "binlog-annotate-row-events": "OFF",
    # Else character sets are named utf8mb3, which Maxwell doesn't know.
    "old-mode": "",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
}
_BINARIES = ("mariadbd", "mariadb", "mariadb-install-db")


@dataclass(frozen=True)
class MariaDb:
    """A server that is ready; its user `root` has no password."""

    client: Path
    folder: Path
    port: int

    def run(self, statements: str) -> str:
        """Run SQL statements, each in a transaction of its own, and return the rows."""
        command = [str(self.client), "--no-defaults", "--socket", str(self.folder / "socket")]
        command += ["--user=root", "--batch", "--raw", "--skip-column-names"]
        command += ["--default-character-set=utf8mb4"]
        done = subprocess.run(
            command, input=statements, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def rows(self, query: str) -> list[Any]:
        """The rows of a query of one JSON column; fractions are not made floats."""
        return [json.loads(row, parse_float=Decimal) for row in self.run(query).splitlines()]


@contextmanager
def running() -> Iterator[MariaDb]:
    """Run a new MariaDB; everything of it is removed at the end.

    Raises:
        Unavailable: it is not installed, or there is no user to run it as.
    """
    server_binary, client, install = installed()
    user = _user()
    with child.temporary_folder("mariadb") as folder:
        if user is not None:
            os.chown(folder, pwd.getpwnam(user[0]).pw_uid, user[1])
        _make(install, folder, user)
        server = MariaDb(client, folder, free_port())
        command = [str(server_binary), "--no-defaults", f"--datadir={folder / 'data'}"]
        command += [f"--socket={folder / 'socket'}", f"--port={server.port}"]
        command += [f"--{key}={value}" for key, value in _SETTINGS.items()]
        with child.running("MariaDB", command, folder, user=user) as started:

            def ready() -> bool:
                started.check()
                ask = [str(client), "--no-defaults", "--socket", str(folder / "socket")]
                asked = subprocess.run(
                    [*ask, "--user=root", "-e", "SELECT 1"], capture_output=True, timeout=60
                )
                return asked.returncode == 0

            wait_until(ready, 300, "MariaDB is ready")
            yield server


def _make(install: Path, folder: Path, user: tuple[str, int] | None) -> None:
    command = [str(install), "--no-defaults", f"--datadir={folder / 'data'}"]
    command += ["--auth-root-authentication-method=normal", "--skip-test-db"]
    command += ["--skip-name-resolve", "--innodb-log-file-size=8M"]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        user=user and user[0],
        group=user and user[1],
        extra_groups=[] if user else None,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def installed() -> tuple[Path, Path, Path]:
    """Server, client and what makes a data folder.  Raises: Unavailable."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    found = [shutil.which(name, path=path) for name in _BINARIES]
    places = [Path(place) for place in found if place is not None]
    if len(places) < len(_BINARIES):
        lacking = [name for name, place in zip(_BINARIES, found, strict=True) if place is None]
        raise Unavailable(f"MariaDB is not installed: no {', '.join(lacking)}")
    server, client, install = places
    return server, client, install


def _user() -> tuple[str, int] | None:
    if os.geteuid() != 0:
        return None
    for name in ("mysql", "nobody"):
        try:
            return name, pwd.getpwnam(name).pw_gid
        except KeyError:
            continue
    raise Unavailable("MariaDB is not run as root here, and there is no other user")
