"""The configuration of the source, for minting and reading batches."""

import msgspec

from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.source_offset import Positions, SourceOffset


class SourceConfig(msgspec.Struct, frozen=True):
    """The configuration of the source, passed through a Spark option as JSON.

    * `adopted`: the digest of a batch that all shards have committed.
    * `released`: the parts of the state that no operator owns any more.
    * `finishes`: the run reads nothing, and makes batches as long as work is unfinished.
    * `exchanges`: there is an exchange topic to read.
    * `stop`: while this file exists, no batch is minted; the source then writes the file
      `stop`.ack.  The file `stop`.inputs has the frontiers of dated inputs.  The file
      `stop`.filled says that a backfill has caught up; no batch is minted from then on.  The file
      `stop`.done says that a run that ends by itself has nothing more to do.
    * `begins`: the offsets at which inputs that are read again begin.
    * `own_kafka`: the client that reads the topics in `read_back`.
    * `read_back`: the outputs that an edit retracts, by topic.
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
    released: tuple[str, ...] = ()
    edits: int = 0
    standing: tuple[str, ...] = ()
    finishes: bool = False
    exchanges: bool = True
    begins: Positions = {}
    own_kafka: dict[str, str] = {}
    read_back: dict[str, str] = {}
    interval_s: float = 0.0
    max_batch_s: float = 300.0
    rows: str = ""
