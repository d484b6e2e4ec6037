"""A process that reads parts of batches for a run on this machine, in place of Spark's tasks.

A task costs Spark and its Python workers some 20 ms of CPU time in every micro-batch, and as much
again to pass on what it has read.  So the driver has batches read before Spark runs them
(`source.py`), and Spark passes on where the rows are (`left_rows.py`).
"""

import pickle
import socket

from ikebana.processor.spark.source_config import SourceConfig
from ikebana.processor.spark.source_task import connected, packed_rows
from ikebana.processor.spark.workers import left_rows, messages, serving
from ikebana.processor.spark.workers.messages import Passed, Read

PROCESS_NAME = "ikebana-reader"


def serve(listener: socket.socket, lifeline: int) -> None:
    """Serve the requests of the driver until the descriptor `lifeline` is at its end."""
    configs = serving.Known[SourceConfig]()

    def answer(connection: socket.socket) -> None:
        asked = messages.receive(connection, Read)

        def read(config: SourceConfig) -> Passed:
            packed = packed_rows(config, pickle.loads(asked.share), connected(config.kafka))
            return Passed(left_rows.passed_on(packed, config.rows))

        configs.answer(connection, asked.config, read)

    serving.serve(PROCESS_NAME, listener, lifeline, answer, lambda: None)
