"""Signal files between the driver and the source process: stop, stopped, done, filled.

They are beside the file `stop`, which says that no batch is to be made any more.
"""

from contextlib import suppress
from pathlib import Path

import msgspec

from ikebana.processor.base.files import write_whole
from ikebana.processor.topics.reach import InputsState


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
