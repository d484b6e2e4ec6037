"""A process that owns some of a run's shards: it computes and commits all of their batches.


Spark gives the task of a shard to any idle Python worker, so a database that a worker keeps open
would be in the wrong process half of the time.  If a run has a host, a worker passes the batch on
to the process that owns the shard (`owners.py`), which keeps resources open for the next batch
(`processor/engine/task.py`).

A shard never has two batches at a time, since an owner serves one request after the other: if
Spark repeats a task after its worker was killed, the request waits until the first one has ended,
and then adopts its committed batch.
"""

# Decision (shards have owners): Spark gives a task to any idle worker, so a worker that kept a
# shard's database and producer would often be the wrong one. A lock that workers hand over would
# open and fence in half of the batches (not tried).

import socket
from collections import deque
from collections.abc import Iterator

import msgspec

from ikebana.processor.engine.task import Job, OpenShards, encode_state
from ikebana.processor.spark.workers import left_rows, messages, serving
from ikebana.processor.spark.workers.messages import Ask, Done

PROCESS_NAME = "ikebana-owner"


def serve(listener: socket.socket, lifeline: int) -> None:
    """Serve the requests of workers until the descriptor `lifeline` is at its end."""
    shards, jobs = OpenShards(), serving.CachedContent[Job]()

    def answer(connection: socket.socket) -> None:
        ask = messages.receive(connection, Ask)
        rows = deque(messages.received(connection, size) for size in ask.rows)

        def run(job: Job) -> Done:
            marker = shards.run(job, ask.shard, ask.state, left_rows.resolve(_drained(rows)))
            return Done(encode_state(marker.manifest), msgspec.json.encode(marker))

        jobs.answer(connection, ask.job, run)

    serving.serve(PROCESS_NAME, listener, lifeline, answer, shards.close)


def _drained(rows: deque[bytes]) -> Iterator[bytes]:
    """Yield the rows, and drop each so that its memory is freed after unpacking."""
    while rows:
        yield rows.popleft()
