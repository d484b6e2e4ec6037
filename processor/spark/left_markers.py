"""The markers of a batch, which its task leaves in a file where all processes are on one machine.

To collect rows Spark plans a second query and reads its own classes to see what its functions
refer to, a quarter of the time of its query's thread.  So the batch is run by the plainest
action there is, one that counts rows, and the driver reads the markers from a file.
"""

import os
from pathlib import Path
from typing import Any

import msgspec
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from ikebana.processor.deciding.commits import Marker

_NAME = "markers"


def leave(folder: str, markers: list[bytes]) -> None:
    """Write the markers of all shards for the driver, at once."""
    path = Path(folder, _NAME)
    unfinished = path.with_name(f"{_NAME}.{os.getpid()}")
    unfinished.write_bytes(msgspec.msgpack.encode(markers))
    unfinished.replace(path)


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
        found = msgspec.msgpack.decode(path.read_bytes(), type=list[bytes])
        path.unlink()
    return [msgspec.json.decode(each, type=Marker) for each in found]


def _rdd_of(frame: DataFrame) -> Any:
    """What `foreachBatch` has made its frame of; None if that is no RDD in this Spark."""
    try:
        return frame._jdf.queryExecution().logical().rdd()
    except Py4JError:
        return None
