"""Merges of runs beside the batches of a shard.

A merge rewrites up to the whole state of a shard, which takes seconds for millions of entries.
Its inputs do not change: files of runs, or the local database as of one version.  So a process
that keeps the database open merges in a thread, and a later batch names the result.  The threads
run between batches only: while a batch of the process runs, they wait.
"""

# Decision (merges between batches): A thread of the shard's process merges what no batch changes;
# the batch that finds it done names its result. An owner is idle between batches, so no further
# process is needed.

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from ikebana.arrangements.run import Run
from ikebana.arrangements.transposed import Change

# After this many entries, which take some milliseconds, a thread checks whether a batch has begun.
_CHUNK = 2_000

Paced = Callable[[Iterable[Change]], Iterator[Change]]
"""Yields changes, the first one at once, and waits while batches run."""

_changed = threading.Condition()
_batches = 0


@contextmanager
def batch() -> Iterator[None]:
    """Let the merges of this process wait while a batch runs."""
    global _batches
    with _changed:
        _batches += 1
    try:
        yield
    finally:
        with _changed:
            _batches -= 1
            _changed.notify_all()


class StoppedError(Exception):
    """The merge was stopped."""


class Merge:
    """One merge of adjoining runs in a thread; `write` reads and writes at a pace.

    When the constructor returns, `write` has begun to read.
    """

    def __init__(self, replaced: Sequence[Run], write: Callable[[Paced], Run]) -> None:
        self._replaced = [run.name for run in replaced]
        self._write = write
        self._begun, self._done = threading.Event(), threading.Event()
        self._hurries = self._stops = False
        self._merged: Run | None = None
        self._thread = threading.Thread(target=self._run, name="ikebana-merge", daemon=True)
        self._thread.start()
        self._begun.wait()

    @property
    def is_done(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self._done.is_set()

    def finish(self, line: Sequence[Run]) -> list[Run] | None:
        """Wait for the end, and return a line of runs with the merged one in its place.

        None if the merge has failed, or merged other runs.
        """
        with _changed:
            self._hurries = True
            _changed.notify_all()
        self._thread.join()
        names = [run.name for run in line]
        count, first = len(self._replaced), self._replaced[0]
        at = names.index(first) if first in names else 0
        if self._merged is None or names[at : at + count] != self._replaced:
            return None
        return [*line[:at], self._merged, *line[at + count :]]

    def stop(self) -> None:
        """Stop the merge; nothing that was opened for it stays open."""
        with _changed:
            self._stops = True
            _changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._merged = self._write(self._paced)
        except Exception:  # noqa: BLE001 - whoever needs it merges again, and raises what is wrong
            self._merged = None
        finally:
            # It refers to its inputs: while an iterator lives, RocksDB locks its folder.
            del self._write
            self._begun.set()
            self._done.set()

    def _paced(self, changes: Iterable[Change]) -> Iterator[Change]:
        rest = iter(changes)
        while chunk := list(islice(rest, _CHUNK)):
            self._begun.set()
            with _changed:
                _changed.wait_for(lambda: self._stops or self._hurries or not _batches)
            if self._stops:
                raise StoppedError
            yield from chunk
