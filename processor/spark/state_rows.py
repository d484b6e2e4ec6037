"""Read the manifests of a checkpoint from Spark's state store; the query need not run.

Spark's state rows are the single source of truth.
"""

from ikebana.arrangements.manifest import Manifest
from ikebana.errors import CheckpointError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.checkpoint.checkpoint import Birth, Checkpoint
from ikebana.processor.engine.task import decode_state
from ikebana.processor.spark import keyed_operator
from ikebana.processor.spark.session import Spark


def manifests(checkpoint: Checkpoint, birth: Birth, batch: int | None = None) -> list[Manifest]:
    """Read the manifest of every shard after `batch`, by default the last committed batch.

    A shard without a state row has its seed as the manifest, or an empty one.

    Raises:
        CheckpointError: no batch is committed, or Spark no longer has the state of that batch.
    """
    committed = checkpoint.layout(birth).logged().committed
    chosen = committed if batch is None else batch
    by_shard = {
        shard: birth.seeds.get(shard, Manifest(birth.id, shard)) for shard in range(birth.shards)
    }
    if committed < birth.first_batch:
        return list(by_shard.values())
    if not birth.first_batch <= chosen <= committed:
        raise CheckpointError(
            f"batch {chosen} is not among the committed ones of this checkpoint: "
            f"{birth.first_batch} to {committed}"
        )
    settings = Settings(
        checkpoint=checkpoint.data(birth),
        kafka={"bootstrap.servers": "unused"},
        shards=birth.shards,
        master="local[1]",
    )
    with Spark(settings, "ikebana state") as spark:
        reading = spark.session().read.format("statestore")
        try:
            rows = (
                reading.option("batchId", chosen - birth.first_batch)
                .load(checkpoint.data(birth))
                .selectExpr("value.groupState.manifest AS manifest")
                .collect()
            )
        except Exception as error:
            raise CheckpointError(
                f"cannot read the state after batch {chosen}: {str(error).splitlines()[0]}",
                hint="Spark keeps the last run.retained_batches batches.",
            ) from error
    for row in rows:
        for state in keyed_operator.parted(bytes(row.manifest)):
            manifest = decode_state(state)
            by_shard[manifest.shard] = manifest
    return list(by_shard.values())
