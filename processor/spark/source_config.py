"""The configuration of the source, for minting and reading batches."""

import msgspec

from ikebana.processor.base.offsets import Positions
from ikebana.processor.planning.plan import Plan
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
