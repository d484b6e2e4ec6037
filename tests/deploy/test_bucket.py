"""A checkpoint in a bucket: what the store acknowledged is what a pipeline goes on from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyarrow import fs

from deploy import object_store, tools
from deploy.charts import tool
from deploy.object_store import BUCKET, Store
from ikebana.processor.kafka.broker import Broker
from support.output_judge import judge, truth_of
from support.pipeline_processes import Pipeline, create, produce, upserts

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@dataclass(frozen=True)
class InBucket(Pipeline):
    """A pipeline whose checkpoint is in a bucket."""

    store: str = ""

    def document(self) -> dict[str, Any]:
        """The pipeline file."""
        found = super().document()
        found["run"]["checkpoint"] = f"s3a://{BUCKET}/{self.name}"
        found["spark"] = {
            "spark.hadoop.fs.s3a.endpoint": self.store,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            # Without it Hadoop signs for a region of its own choice, whatever AWS_REGION says.
            "spark.hadoop.fs.s3a.endpoint.region": object_store.REGION,
        }
        return found


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An object store, and an environment in which Spark and Arrow find it."""
    tool(tools.versitygw)
    environment = {
        **object_store.USER,
        "AWS_REGION": object_store.REGION,
        "SPARK_DIST_CLASSPATH": f"{object_store.jars()}/*",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with object_store.serving(tmp_path) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        yield running


def test_a_pipeline_goes_on_exactly_when_its_object_store_was_killed(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path, store: Store
) -> None:
    """Store and pipeline end with SIGKILL in the middle of batches; both are started again."""
    servers, source = broker.bootstrap_servers, topic_name("bucket")
    create(servers, source, 2)
    produce(servers, source, upserts(1500, 300, Random(1)))
    pipe = InBucket(
        tmp_path, servers, topic_name("stored"), source, limit=100, store=store.url
    ).but(retained_batches=3)
    with pipe.start() as run:
        pipe.wait_for_batch(3, 300)
        store.kill()
        run.kill()
    written = pipe.progress()[-1].batch
    store.start()

    pipe.drained(timeout_s=280)

    assert pipe.progress()[-1].batch > written
    assert judge(servers, pipe.target, truth_of(servers, source)) == {}
    held = object_store.system(store.url).get_file_info(
        fs.FileSelector(f"{BUCKET}/{pipe.name}", recursive=True)
    )
    names = {info.path.split("/")[2] for info in held}
    assert {"ikebana.json", "offsets", "commits", "shards", "state"} <= names
