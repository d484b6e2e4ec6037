"""Files by which the process that watches a query and the source tell each other something.

They lie beside the file `stop`, which says that no batch is to be made any more.
"""

from contextlib import suppress
from pathlib import Path

import msgspec

from ikebana.processor.base.whole_files import write_whole
from ikebana.processor.topics.reach import Standing


def filled_at(stop: Path) -> Path:
    """The file that says that what a plan reads again has been read."""
    return stop.with_suffix(".filled")


def done_at(stop: Path) -> Path:
    """The file that says that a run which ends by itself has come to its end."""
    return stop.with_suffix(".done")


def hosts_at(stop: Path) -> Path:
    """The file that says on which hosts shards have their owners, if these are elsewhere."""
    return stop.with_suffix(".hosts")


def tell_inputs(stop: Path, standing: Standing) -> None:
    """Write the frontiers of the inputs."""
    write_whole(_told_at(stop), msgspec.json.encode(standing))


def inputs_told(stop: Path) -> Standing | None:
    """Read the frontiers of the inputs of a running pipeline; None before they are known."""
    try:
        return msgspec.json.decode(_told_at(stop).read_bytes(), type=Standing)
    except FileNotFoundError:
        return None


def _told_at(stop: Path) -> Path:
    return stop.with_suffix(".inputs")


def tell_reading(stop: Path, seconds: float) -> None:
    """Note how long a batch was read before Spark has run it."""
    with suppress(OSError):
        _took_at(stop).write_text(str(seconds))


def reading_s(stop: Path) -> float:
    """Take how long the batch was read before Spark has run it; 0 if tasks have read it."""
    with suppress(OSError, ValueError):
        seconds = float(_took_at(stop).read_text())
        _took_at(stop).unlink()
        return seconds
    return 0.0


def _took_at(stop: Path) -> Path:
    return stop.with_suffix(".took")
