"""The files by which a run and the source of its query signal each other."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from ikebana.processor.base.machine import write_whole
from ikebana.processor.topics.batch_selection import InputsState
from ikebana.processor.topics.input_times import ShardReports

_Signal = TypeVar("_Signal", InputsState, ShardReports)
# By what they have, the ends of the names of the files that are written whole.
_ENDS = {InputsState: ".inputs", ShardReports: ".reports"}


@dataclass(frozen=True)
class Signals:
    """The file `stop`, which says that no batch is to be made any more, and those beside it."""

    stop: Path

    @property
    def acknowledgement(self) -> Path:
        """Says that the source has seen `stop`, and makes no batch any more."""
        return self.stop.with_suffix(".ack")

    @property
    def filled(self) -> Path:
        """Says that a backfill has caught up; no batch is made from then on."""
        return self.stop.with_suffix(".filled")

    @property
    def done(self) -> Path:
        """Says that a run which ends by itself has nothing more to do."""
        return self.stop.with_suffix(".done")

    @property
    def hosts(self) -> Path:
        """Has the hosts of shards' owners, if these are on executors."""
        return self.stop.with_suffix(".hosts")

    def write(self, signal: InputsState | ShardReports) -> None:
        """Write the frontiers of dated inputs, or what the shards report of a batch."""
        write_whole(self.stop.with_suffix(_ENDS[type(signal)]), msgspec.json.encode(signal))

    def last(self, kind: type[_Signal]) -> _Signal | None:
        """Read the last frontiers or reports of a run; None before there are any."""
        try:
            content = self.stop.with_suffix(_ENDS[kind]).read_bytes()
        except FileNotFoundError:
            return None
        return msgspec.json.decode(content, type=kind)

    def record_reading_time(self, seconds: float) -> None:
        """Record how long readers took for a batch before Spark runs it."""
        with suppress(OSError):
            self._took.write_text(str(seconds))

    def take_reading_time_s(self) -> float:
        """Take the time of readers for the batch before Spark ran it; 0 if tasks read it."""
        with suppress(OSError, ValueError):
            seconds = float(self._took.read_text())
            self._took.unlink()
            return seconds
        return 0.0

    @property
    def _took(self) -> Path:
        return self.stop.with_suffix(".took")
