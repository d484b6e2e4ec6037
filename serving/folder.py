"""Read a folder of `ikebana serve` in another process, while it is written.

Each process has a reader of its own, which sees whole batches only.  It catches up with the
writer between reads, at most every `refresh_s`, and never goes back: a collection that is being
rebuilt can be read again when it has reached its former frontier.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ikebana.arrangements.rocks import LocalDamageError
from ikebana.arrangements.shared_rocks import DatabaseReader
from ikebana.errors import ConfigError
from ikebana.processor.base.processes import OfThreads
from ikebana.serving.layout import Meta
from ikebana.serving.reads import LocalReads, unknown_collection
from ikebana.serving.view import ArrangementView, read_meta, unreadable

# RocksDB's file with the id of a database; a rebuilt database has another id.
_IDENTITY = "IDENTITY"
_ASK_EVERY_S = 0.02


def open(  # noqa: A001 - it is `ikebana.open`
    path: str | Path, *, refresh_s: float = 0.05
) -> LocalReads:
    """Open the folder that `ikebana serve --data` writes, read only.

    Reads see what the writer has committed at most `refresh_s` seconds ago.

    An example::

        with ikebana.open("served") as served:
            newest = served.newest("whereabouts")
            values = served.get("whereabouts", b'"N12345"', as_of=newest)

    `values` has the values of the key with their multiplicities, such as {b'"BOS"': 1}.

    Raises:
        ConfigError: there is no such folder.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise ConfigError(
            f"cannot open {folder}: there is no such folder",
            hint="`ikebana serve --data DIR` makes it.",
        )
    return LocalReads(_Folder(folder, refresh_s))


class _Folder:
    """The collections of a folder as `reads.Views`."""

    def __init__(self, path: Path, refresh_s: float) -> None:
        self._path = path
        self._refresh_s = refresh_s
        # A thread that catches up would change what another one reads.
        self._readers = OfThreads[_Reader]()

    def names(self) -> list[str]:
        return sorted(_written(self._path))

    def view(self, name: str) -> ArrangementView:
        return self._readers.get(name, lambda: self._reader(name)).view()

    def pause(self, seconds: float) -> None:
        threading.Event().wait(min(seconds, _ASK_EVERY_S))

    def close(self) -> None:
        self._readers.close()

    def _reader(self, name: str) -> "_Reader":
        # Only names that are there: a name of a client never becomes a path.
        if name not in (names := self.names()):
            raise unknown_collection(name, names)
        return _Reader(self._path / name, self._refresh_s)


class _Reader:
    """One collection, for one thread."""

    def __init__(self, path: Path, refresh_s: float) -> None:
        self._path = path
        self._refresh_s = refresh_s
        self._identity: bytes | None = None
        self._database: DatabaseReader | None = None
        self._reached: Meta | None = None
        self._view: ArrangementView | None = None
        self._asked = 0.0

    def view(self) -> ArrangementView:
        now = time.monotonic()
        if self._view is None or now - self._asked > self._refresh_s:
            self._refresh()
            self._asked = now
        assert self._view is not None
        return self._view

    def close(self) -> None:
        # It may be closed by its thread, which ends, and by another one at once.
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _refresh(self) -> None:
        name = self._path.name
        try:
            meta = self._caught_up()
        except LocalDamageError:
            # The writer may be replacing it, so the next read opens it again.
            self.close()
            meta = None
        if meta is None or self._database is None:
            self._view = None
            raise unreadable(name, 0, 0, 0)
        if self._reached is not None and meta.upper < self._reached.upper:
            self._view = None
            reached = self._reached.upper
            raise unreadable(name, reached - 1, reached - 1, meta.upper)
        self._reached = meta
        self._view = ArrangementView(self._database, meta)

    def _caught_up(self) -> Meta | None:
        identity = _identity(self._path)
        if self._database is not None and identity == self._identity:
            self._database.catch_up()
        else:
            self.close()
            self._database, self._identity = DatabaseReader(self._path), identity
        return read_meta(self._database)


def _written(path: Path) -> Iterator[str]:
    for folder in path.iterdir():
        if (folder / _IDENTITY).is_file():
            yield folder.name


def _identity(path: Path) -> bytes:
    try:
        return (path / _IDENTITY).read_bytes()
    except OSError as error:
        raise LocalDamageError(f"{path} has no database: {error.strerror}") from error
