"""The configuration of the source, and the files by which it and the driver signal each other.

The files are beside the file `stop`, which says that no batch is to be made any more.
"""

from contextlib import suppress
from pathlib import Path

import msgspec

from ikebana.processor.base.machine import write_whole
from ikebana.processor.base.offsets import Positions
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.reach import InputsState
from ikebana.processor.topics.reclock import NOT_EDITED, Edited
from ikebana.processor.topics.source_offset import SourceOffset


class SourceConfig(msgspec.Struct, frozen=True):
    """The configuration of the source, passed through a Spark option as JSON.

    * `adopted`: the digest of a batch that all shards have committed.
    * `edited`: the last edit of the plan, as far as minting needs it.
    * `exchanges`: there is an exchange topic to read.
    * `stop`: while this file exists, no batch is minted; the source then writes the file
      `stop`.ack.  The file `stop`.inputs has the frontiers of dated inputs.  The file
      `stop`.filled says that a backfill has caught up; no batch is minted from then on.  The file
      `stop`.done says that a run that ends by itself has nothing more to do.
    * `begins`: the offsets at which inputs that are read again begin.
    * `own_kafka`: the client that reads the topics of outputs that are retracted.
    * `interval_s`: the least time between two batches, unless the first leaves unfinished work.
    * `max_records`: the most records of a batch; fewer are read if they would take too large a
      part of `max_batch_s`.
    * `rows`: the folder for large rows that owners of shards read; empty if owners may be on
      other machines.
    """

    plan: Plan
    kafka: dict[str, str]
    start: SourceOffset
    labels: list[int]
    readers: int
    max_records: int
    heartbeat_s: float
    stop: str
    incarnation: int
    registry: dict[str, str] = {}
    adopted: str | None = None
    edited: Edited = NOT_EDITED
    exchanges: bool = True
    begins: Positions = {}
    own_kafka: dict[str, str] = {}
    interval_s: float = 0.0
    max_batch_s: float = 300.0
    rows: str = ""


def filled_at(stop: Path) -> Path:
    """The file that says that a backfill has caught up."""
    return stop.with_suffix(".filled")


def done_at(stop: Path) -> Path:
    """The file that says that a run which ends by itself has nothing more to do."""
    return stop.with_suffix(".done")


def hosts_at(stop: Path) -> Path:
    """The file with the hosts of shards' owners, if these are on executors."""
    return stop.with_suffix(".hosts")


def tell_inputs(stop: Path, standing: InputsState) -> None:
    """Write the frontiers of the inputs."""
    write_whole(_told_at(stop), msgspec.json.encode(standing))


def inputs_told(stop: Path) -> InputsState | None:
    """Read the frontiers of the inputs of a running pipeline; None before they are known."""
    try:
        return msgspec.json.decode(_told_at(stop).read_bytes(), type=InputsState)
    except FileNotFoundError:
        return None


def _told_at(stop: Path) -> Path:
    return stop.with_suffix(".inputs")


def tell_reading(stop: Path, seconds: float) -> None:
    """Record how long readers took for a batch before Spark runs it."""
    with suppress(OSError):
        _took_at(stop).write_text(str(seconds))


def reading_s(stop: Path) -> float:
    """Take the time that readers took for the batch before Spark ran it; 0 if tasks read it."""
    with suppress(OSError, ValueError):
        seconds = float(_took_at(stop).read_text())
        _took_at(stop).unlink()
        return seconds
    return 0.0


def _took_at(stop: Path) -> Path:
    return stop.with_suffix(".took")
