"""The local databases of a host, by shard: opened and released, or kept open between batches."""

import shutil
import uuid
from pathlib import Path

from ikebana.arrangements.folders import private_folder
from ikebana.arrangements.open_database import OpenDatabase
from ikebana.arrangements.rocks import LocalDamageError, LocalDatabase, opened, sweep

# Another process may lock or unlock a folder between two attempts.
_TRIES = 3
RECENT_BYTES = 32 << 20
"""The memory for recent entries of all open databases of a process."""


class LocalDatabases:
    """The folders of this host's local databases for one checkpoint.

    If another process has locked a folder, such as a worker that its driver has abandoned, a new
    folder beside it is used, and removed afterwards.  If a killed process left such a folder, it
    is removed when the shard's usual folder is next opened.
    """

    keeps_open = False
    """Whether a released database stays open for the next batch."""
    _kind: type[LocalDatabase] = LocalDatabase

    def __init__(self, root: Path, checkpoint: str) -> None:
        self._folder = root / checkpoint

    def open(self, shard: int) -> LocalDatabase:
        """Open the database of a shard, in whatever state it is."""
        path = self._folder / f"{shard:04d}"
        private_folder(path.parent)
        try:
            database = opened(path)
        except Exception as error:  # noqa: BLE001 - rocksdict raises bare exceptions
            if "/LOCK:" in str(error):
                path = path.with_name(f"{path.name}-{uuid.uuid4().hex[:8]}")
            else:
                shutil.rmtree(path, ignore_errors=True)
            return self._kind(shard, path, opened(path))
        for stand_in in path.parent.glob(f"{path.name}-*"):
            sweep(stand_in)
        return self._kind(shard, path, database)

    def empty(self, shard: int) -> LocalDatabase:
        """Open an empty database of a shard.

        After a database beside the usual folder was discarded, that folder may be unlocked again,
        with a state to which files cannot be applied.

        Raises:
            LocalDamageError: the content of the folder cannot be removed.
        """
        for _ in range(_TRIES):
            database = self.open(shard)
            if database.is_empty:
                return database
            database.discard()
        raise LocalDamageError(f"the folder of shard {shard} in {self._folder} cannot be emptied")

    def release(self, database: LocalDatabase) -> None:
        """Close; keep the folder for the next micro-batch unless it was a temporary one."""
        if "-" in database.path.name:
            database.discard()
            return
        try:
            database.close()
        except LocalDamageError:
            database.discard()


class OpenDatabases(LocalDatabases):
    """Local databases that stay open between batches, up to `most`.

    The state of an open one is compared with a manifest like that of a closed one.  While it is
    open, its folder is locked for all other processes.
    """

    keeps_open = True
    _kind = OpenDatabase

    def __init__(
        self, root: Path, checkpoint: str, most: int, recent_bytes: int = RECENT_BYTES
    ) -> None:
        super().__init__(root, checkpoint)
        self._recent_bytes = recent_bytes
        self._most = most
        # In the order of their last use.
        self._open: dict[int, LocalDatabase] = {}

    def open(self, shard: int) -> LocalDatabase:
        """Return the open database of a shard, or open it."""
        database = self._open.pop(shard, None) or super().open(shard)
        assert isinstance(database, OpenDatabase)
        database.keep_recent(self._recent_bytes // (len(self._open) + 1))
        return database

    def release(self, database: LocalDatabase) -> None:
        """Keep the database open; close the one that was used longest ago if there are many."""
        if database.is_gone:
            # The database that replaced it could not be filled, and is released.
            return
        try:
            database.flush_now_and_then()
        except LocalDamageError:
            database.discard()
            return
        self.close(database.shard)
        self._open[database.shard] = database
        while len(self._open) > self._most:
            super().release(self._open.pop(next(iter(self._open))))

    def close(self, shard: int) -> None:
        """Close the database of a shard, if it is open."""
        if (database := self._open.pop(shard, None)) is not None:
            super().release(database)

    def close_all(self) -> None:
        """Close all databases."""
        for shard in list(self._open):
            self.close(shard)
