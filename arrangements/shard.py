"""A shard: the keys of one state partition, exactly at a committed version.

This protocol makes rollbacks unnecessary:

* The caller passes in the committed manifest, which is authoritative.
* A batch reads the local database at that manifest through an overlay, and writes its changes as
  a delta file, which the *new* manifest names.  It does not write to the database.
* The next batch, which gets the new manifest after that is committed, first applies the delta
  to the database.

So the database is never ahead of the committed state.  A failed attempt leaves only a file that
no manifest names.  A local copy that is missing, behind, foreign, locked or damaged costs time
and nothing else.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from ikebana.arrangements import run as runs
from ikebana.arrangements.files import FileStore
from ikebana.arrangements.manifest import FORMAT, Dropped, Manifest, to_merge
from ikebana.arrangements.rocks import LocalDamageError, LocalDatabase, LocalDatabases
from ikebana.arrangements.run import Change, Head, Run
from ikebana.arrangements.store import Overlay, Store
from ikebana.errors import StateFileError

Result = TypeVar("Result")


class Shard:
    """A shard at the version of a manifest, open for one batch."""

    def __init__(self, files: FileStore, local: LocalDatabases, manifest: Manifest) -> None:
        if manifest.format != FORMAT:
            raise StateFileError(
                f"cannot read shard {manifest.shard} of checkpoint {manifest.checkpoint}: "
                f"its format is {manifest.format}, this version reads {FORMAT}",
                hint="Use the version of ikebana that wrote it.",
            )
        self.manifest = manifest
        self._files = files
        self._local = local
        self._database = self._current()
        self._overlay = Overlay(self._database)

    def attempt(self, step: Callable[[Store], Result]) -> Result:
        """Run `step` on the committed state, and keep its changes for `commit`.

        If the local database turns out to be damaged, it is built again and the step
        runs once more, from the same state.
        """
        with suppress(LocalDamageError):
            self._overlay = Overlay(self._database)
            return step(self._overlay)
        # After the except clause: the error refers to objects that keep the folder locked.
        self._rebuild()
        self._overlay = Overlay(self._database)
        return step(self._overlay)

    def commit(self, batch: int, retained: int) -> Manifest:
        """Make the changes durable; return the manifest that names them.

        The manifest takes effect when the caller has committed it.  Files that this manifest or
        one of the last `retained` batches names are kept.
        """
        manifest = self.manifest
        changes = self._overlay.changes
        if not changes:
            return manifest
        kept, added = self._merged()
        upper = manifest.version + 1
        head = Head(manifest.checkpoint, manifest.shard, manifest.version, upper, [_new_id()])
        delta = runs.write(self._files, head, sorted(changes.items()), "delta")
        gone = {run.name for run in manifest.runs} - {run.name for run in kept}
        return Manifest(
            checkpoint=manifest.checkpoint,
            shard=manifest.shard,
            version=upper,
            runs=[*kept, *added, delta],
            dropped=[
                *(drop for drop in manifest.dropped if drop.batch > batch - retained),
                *(Dropped(batch, name) for name in sorted(gone)),
            ],
        )

    def clean(self, batch: int, retained: int) -> int:
        """Delete files that no restorable manifest names; return their number.

        These are files that were dropped more than `retained` batches ago, and orphans of failed
        attempts that end before the base.  Files of newer attempts, even of a rival instance,
        end later and are kept.
        """
        due = [drop.name for drop in self.manifest.dropped if drop.batch <= batch - retained]
        if due:
            # A restorable manifest names only files of this one, or files dropped since.
            named = {run.name for run in self.manifest.runs}
            named |= {drop.name for drop in self.manifest.dropped}
            base = self.manifest.runs[0].upper
            due += [
                name
                for name in self._files.names()
                if (known := runs.bounds(name)) and known[1] < base and name not in named
            ]
        for name in due:
            self._files.delete(name)
        return len(due)

    def close(self) -> None:
        """Release the local database."""
        self._local.release(self._database)

    def _merged(self) -> tuple[list[Run], list[Run]]:
        """Merge runs if a merge is due; return the runs to keep, and the merged one if any."""
        manifest = self.manifest
        count = to_merge(manifest.runs)
        if not count:
            return list(manifest.runs), []
        kept, replaced = list(manifest.runs[:-count]), manifest.runs[-count:]
        if kept:
            head = Head(
                manifest.checkpoint,
                manifest.shard,
                replaced[0].lower,
                replaced[-1].upper,
                [
                    state
                    for old in replaced
                    for state in runs.read(self._files, old.name)[0].states
                ],
            )
            merged = runs.merge(self._files, [old.name for old in replaced])
            return kept, [runs.write(self._files, head, merged, "run")]
        return [], [self._base()]

    def _base(self) -> Run:
        """Write a base of the committed version, scanned from the local database."""
        manifest = self.manifest
        assert manifest.state is not None
        head = Head(manifest.checkpoint, manifest.shard, 0, manifest.version, [manifest.state])

        def entries() -> Iterator[Change]:
            yield from self._database.scan(b"")

        with suppress(LocalDamageError):
            # A base cannot bring an older copy up to date, so a killed process should leave none.
            self._database.flush()
            return runs.write(self._files, head, entries(), "base")
        self._rebuild()
        return runs.write(self._files, head, entries(), "base")

    def _current(self) -> LocalDatabase:
        """Open the local database, and bring it to the manifest's version."""
        database = self._local.open(self.manifest.shard)
        try:
            todo = self._missing(database.state)
            if todo is not None:
                _apply(self._files, database, todo)
                return database
        except LocalDamageError:
            pass
        except BaseException:
            self._local.release(database)
            raise
        return self._fresh(database)

    def _rebuild(self) -> None:
        self._database = self._fresh(self._database)

    def _fresh(self, database: LocalDatabase) -> LocalDatabase:
        database.discard()
        database = self._local.open(self.manifest.shard)
        try:
            _apply(self._files, database, self.manifest.runs)
        except BaseException:
            self._local.release(database)
            raise
        return database

    def _missing(self, state: str | None) -> list[Run] | None:
        """Find the runs that bring a copy at `state` up to date; None if no runs do."""
        line = self.manifest.runs
        for at, known in enumerate(line):
            if known.state == state:
                return list(line[at + 1 :])
        if state is None:
            return None
        for at, known in enumerate(line):
            # A base has no deletions, so it cannot bring an older copy up to date.
            if known.lower and state in runs.read(self._files, known.name)[0].states:
                return list(line[at:])
        return None


@contextmanager
def opened(files: FileStore, local: LocalDatabases, manifest: Manifest) -> Iterator[Shard]:
    """Open a shard, and close it again whatever happens."""
    shard = Shard(files, local, manifest)
    try:
        yield shard
    finally:
        shard.close()


def entries(files: FileStore, manifest: Manifest) -> Iterator[tuple[bytes, bytes]]:
    """Yield every entry of a shard at its version, in key order, without a local database."""
    for key, value in runs.merge(files, [run.name for run in manifest.runs]):
        if value is not None:
            yield key, value


def verify(files: FileStore, manifest: Manifest) -> None:
    """Read every file that a manifest names, and check that they follow one another.

    Raises:
        StateFileError: a file is missing, damaged, or does not fit the manifest.
    """
    version = 0
    for known in manifest.runs:
        head, blocks = runs.read(files, known.name)
        entries_found = sum(len(block) for block in blocks)
        said = (manifest.checkpoint, manifest.shard, known.lower, known.upper, [known.state])
        found = (head.checkpoint, head.shard, head.lower, head.upper, head.states[-1:])
        if said != found or known.lower != version or entries_found != known.entries:
            raise StateFileError(
                f'state file "{known.name}" is not in line with the manifest of shard '
                f"{manifest.shard}: it holds versions {head.lower} to {head.upper} with "
                f"{entries_found} entries"
            )
        version = known.upper


def _apply(files: FileStore, database: LocalDatabase, todo: list[Run]) -> None:
    for known in todo:
        _, blocks = runs.read(files, known.name)
        database.apply(blocks, known.state)


def _new_id() -> str:
    return uuid.uuid4().hex
