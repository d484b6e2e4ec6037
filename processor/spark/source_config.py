"""What the source needs to mint batches and to read them."""

import msgspec

from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.source_offset import Positions, SourceOffset


class SourceConfig(msgspec.Struct, frozen=True):
    """The configuration of the source, passed through a Spark option as JSON.

    `adopted` is the digest of a batch that all shards have committed.  `released` are the parts
    of the state that no operator owns any more.  A run that `finishes` reads nothing, and makes
    batches as long as anything is on its way.  With `exchanges`, there is an exchange topic to
    read.  While the file `stop` exists, no batch is
    minted; the source then writes the file `stop`.ack.  The file `stop`.inputs has the frontiers
    of inputs with times of their own.  Inputs that are read again begin at `begins`.  The file
    `stop`.filled says that what the plan reads again
    has been read; no batch is minted from then on.  The file `stop`.done says that a run that ends
    by itself has nothing left to do.  `own_kafka` reads the topics of the outputs
    in `read_back`, which an edit takes back, with their names by topic.  `interval_s` is the least
    time between two batches, unless the first leaves anything on its way.  Batches read less than
    `max_records` if they would take too large a part of `max_batch_s`.  `rows` is the folder in
    which large rows are left for the owners of shards; it is empty if these may be elsewhere.
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
