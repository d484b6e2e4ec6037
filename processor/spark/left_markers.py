"""The markers of a batch, which its task leaves in a file where all processes are on one machine.

To collect rows Spark plans a second query and reads its own classes to see what its functions
refer to, a quarter of the time of its query's thread.  So the batch is run by the plainest
action there is, one that counts rows, and the driver reads the markers from a file.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from ikebana.errors import LostError
from ikebana.processor.deciding.commits import Marker
from ikebana.processor.ground.whole_files import write_whole
from ikebana.processor.spark.left_rows import REMEDY

_NAME = "markers"


def markers_folder(rows: str, labels: Sequence[int]) -> str:
    """Where markers are left: in the folder for rows, if all shards have the same label.

    Then they are one group, which is one task.
    """
    return rows if len({*labels}) == 1 else ""


def leave(folder: str, markers: list[bytes]) -> None:
    """Write the markers of all shards for the driver, at once.

    Raises:
        LostError: the folder is gone, or cannot be written to.
    """
    try:
        write_whole(Path(folder, _NAME), msgspec.msgpack.encode(markers))
    except OSError as error:
        what = f"could not leave the results of a batch in {folder}: {error.strerror}"
        raise LostError(what, hint=REMEDY) from error


def markers_of(frame: DataFrame, folder: str) -> list[Marker]:
    """Run a batch, by one action, and return its markers.

    `folder` is where the batch's task leaves them, empty if it does not.
    """
    rdd = _rdd_of(frame) if folder else None
    if rdd is None:
        found = [bytes(row[0]) for row in frame.collect()]
    else:
        rdd.toJavaRDD().countAsync().get()
        path = Path(folder, _NAME)
        try:
            found = msgspec.msgpack.decode(path.read_bytes(), type=list[bytes])
        except OSError as error:
            what = f"the results of a batch are gone: {path}: {error.strerror}"
            raise LostError(what, hint=REMEDY) from error
        path.unlink()
    return [msgspec.json.decode(each, type=Marker) for each in found]


def _rdd_of(frame: DataFrame) -> Any:
    """What `foreachBatch` has made its frame of; None if that is no RDD in this Spark."""
    try:
        return frame._jdf.queryExecution().logical().rdd()
    except Py4JError:
        return None
