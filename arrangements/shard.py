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

# Decision (what has waited is merged away soon): A hold of event times gets all rows of a batch
# and gives them up in the next. So deletes say how many bytes they free (`Store.delete`), and a
# shard whose files are half garbage is merged.

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from msgspec.structs import replace

from ikebana.arrangements import run as runs
from ikebana.arrangements.files import FileStore
from ikebana.arrangements.manifest import FORMAT, Dropped, Manifest, to_merge
from ikebana.arrangements.rocks import LocalDamageError, LocalDatabase, LocalDatabases
from ikebana.arrangements.run import Head, Merge, Paced, RunEntry, in_order, merges_waiting
from ikebana.arrangements.store import Overlay, Store
from ikebana.errors import StateFileError

# A process that keeps the local database open merges runs of this many bytes beside its batches.
LARGE = 1 << 20
# A copy of a shard of this many bytes is rebuilt in less than a second.
_LARGE_TO_REBUILD = 8 << 20
# With this many runs a batch waits for the merge.
_MOST_RUNS = 128

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

        If the local database turns out to be damaged, it is rebuilt and the step runs again, from
        the same state.
        """
        with suppress(LocalDamageError):
            self._overlay = Overlay(self._database)
            return step(self._overlay)
        # After the except clause: the error refers to objects that keep the folder locked.
        self._rebuild()
        self._overlay = Overlay(self._database)
        return step(self._overlay)

    def commit(self, batch: int, retained: int) -> Manifest:
        """Make the changes durable; return the manifest that names their file.

        The manifest takes effect when the caller has committed it.  Files that this manifest or
        one of the last `retained` batches names are kept.
        """
        manifest = self.manifest
        changes = self._overlay.changes
        if not changes:
            return manifest
        line = self._line()
        upper = manifest.version + 1
        head = Head(manifest.checkpoint, manifest.shard, manifest.version, upper, [_new_id()])
        ordered = in_order(changes)
        delta = runs.write(self._files, head, ordered, "delta", self._overlay.gone)
        self._database.recent.follow(manifest.state, delta.state, ordered)
        gone = {run.name for run in manifest.runs} - {run.name for run in line}
        return replace(
            manifest,
            version=upper,
            runs=[*line, delta],
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
                if (versions := runs.bounds(name)) and versions[1] < base and name not in named
            ]
        for name in due:
            self._files.delete(name)
        return len(due)

    def close(self) -> None:
        """Release the local database."""
        self._local.release(self._database)

    def _line(self) -> list[RunEntry]:
        """The runs that make up the version of the manifest, merged if a merge is due."""
        line = list(self.manifest.runs)
        if (merge := self._database.merge) is not None:
            if not merge.is_done and len(line) < _MOST_RUNS:
                return line
            self._database.merge = None
            if (merged := merge.finish(line)) is not None:
                self._flush()
                return merged
            # If the fault persists, it is raised now.
            return self._merged(line)
        count = to_merge(line)
        is_large = sum(run.size for run in line[-count:]) >= LARGE if count else False
        if not is_large or not self._local.keeps_open:
            return self._merged(line)
        self._database.merge = Merge(line[-count:], self._writing(line, count))
        return line

    def _merged(self, line: list[RunEntry]) -> list[RunEntry]:
        """Merge the runs at the end of a line if a merge is due, here and now."""
        count = to_merge(line)
        if not count:
            return line
        if count < len(line):
            return [*line[:-count], self._writing(line, count)(iter)]
        self._flush()
        with suppress(LocalDamageError):
            return [self._writing(line, count)(iter)]
        self._rebuild()
        return [self._writing(line, count)(iter)]

    def _writing(self, line: list[RunEntry], count: int) -> Callable[[Paced], RunEntry]:
        """Prepare to write the last runs of a line as one: all of them as a base.

        A base has the committed version, scanned from the local database.
        """
        manifest, database, files = self.manifest, self._database, self._files
        of = manifest.checkpoint, manifest.shard
        if count == len(line):
            assert manifest.state is not None
            head = Head(*of, 0, manifest.version, [manifest.state])
            entries = database.scan(b"")
            return lambda paced: runs.write(files, head, paced(entries), "base")
        replaced = line[-count:]
        names = [old.name for old in replaced]

        def write(paced: Paced) -> RunEntry:
            states = [state for name in names for state in runs.read(files, name)[0].states]
            head = Head(*of, replaced[0].lower, replaced[-1].upper, states)
            return runs.write(files, head, paced(runs.merge(files, names)), "run")

        return write

    def _flush(self) -> None:
        """Write the local database to disk.

        A base cannot bring an older copy up to date, so a killed process should not leave an older
        copy, unless a rebuild is quick.
        """
        if self.manifest.size < _LARGE_TO_REBUILD:
            return
        try:
            self._database.flush()
        except LocalDamageError:
            self._rebuild()

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
        database = self._local.empty(self.manifest.shard)
        try:
            _apply(self._files, database, self.manifest.runs)
        except BaseException:
            self._local.release(database)
            raise
        return database

    def _missing(self, state: str | None) -> list[RunEntry] | None:
        """Find the runs that bring a copy at `state` up to date; None if no runs do."""
        line = self.manifest.runs
        for at, run in enumerate(line):
            if run.state == state:
                return list(line[at + 1 :])
        if state is None:
            return None
        for at, run in enumerate(line):
            # A base has no deletions, so it cannot bring an older copy up to date.
            if run.lower and state in runs.read(self._files, run.name)[0].states:
                return list(line[at:])
        return None


@contextmanager
def opened(files: FileStore, local: LocalDatabases, manifest: Manifest) -> Iterator[Shard]:
    """Open a shard, and close it again whatever happens."""
    with merges_waiting():
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
    for run in manifest.runs:
        head, blocks = runs.read(files, run.name)
        count = sum(len(block) for block in blocks)
        said = (manifest.checkpoint, manifest.shard, run.lower, run.upper, [run.state])
        actual = (head.checkpoint, head.shard, head.lower, head.upper, head.states[-1:])
        if said != actual or run.lower != version or count != run.entries:
            raise StateFileError(
                f'state file "{run.name}" is not in line with the manifest of shard '
                f"{manifest.shard}: it holds versions {head.lower} to {head.upper} with "
                f"{count} entries"
            )
        version = run.upper


def _apply(files: FileStore, database: LocalDatabase, todo: list[RunEntry]) -> None:
    for run in todo:
        if database.go_on(run.state):
            continue
        _, blocks = runs.read(files, run.name)
        database.apply(blocks, run.state)


def _new_id() -> str:
    return uuid.uuid4().hex
