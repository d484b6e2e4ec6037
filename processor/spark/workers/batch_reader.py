"""A process that reads parts of batches for a run on this machine, in place of Spark's tasks.


A task costs Spark and its Python workers some 20 ms of CPU time in every micro-batch, and passing
on its rows costs as much again.  So the driver has batches read before Spark runs them
(`source.py`), and Spark passes on only the places of the rows (`left_rows.py`).
"""

# Decision (batches are read before Spark runs them): `partitions` is called when a batch is
# logged, so processes of the run read it side by side. What fails is left to Spark's tasks. Not
# the owners: a batch's records displaced what a batch had left warm in their memory.

import os
import pickle
import socket

from ikebana.processor.spark.source_config import SourceConfig
from ikebana.processor.spark.source_task import connected, packed_rows
from ikebana.processor.spark.workers import left_rows, messages, serving
from ikebana.processor.spark.workers.messages import Fetch, FetchedRow, ReadRows
from ikebana.processor.spark.workers.owners import Owners

PROCESS_NAME = "ikebana-reader"


def serve(listener: socket.socket, lifeline: int) -> None:
    """Serve the requests of the driver until the descriptor `lifeline` is at its end."""
    configs = serving.CachedContent[SourceConfig]()
    # Where other machines fetch rows of this host; empty if there are no others.
    host = Owners.here()
    port = listener.getsockname()[1] if listener.family != socket.AF_UNIX else 0
    address = f"{host.folder}:{port}" if host is not None and port else ""

    def answer(connection: socket.socket) -> None:
        asked = messages.receive_asked(connection)
        if isinstance(asked, Fetch):
            serving.answer(
                connection, lambda: FetchedRow(left_rows.read(asked.path, asked.start, asked.size))
            )
            return

        def read(config: SourceConfig) -> ReadRows:
            packed = packed_rows(config, pickle.loads(asked.share), connected(config.kafka))
            folder = config.rows or os.environ.get(left_rows.VARIABLE, "")
            left_rows.forget_before(folder, asked.batch)
            return ReadRows(left_rows.passed_on(packed, folder, asked.batch, address))

        configs.answer(connection, asked.config, read)

    serving.serve(PROCESS_NAME, listener, lifeline, answer, lambda: None)
