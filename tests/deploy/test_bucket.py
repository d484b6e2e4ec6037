"""A checkpoint in a bucket: what the store acknowledged is what a pipeline goes on from."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from pyarrow import fs

from deploy import object_store, tools
from deploy.charts import tool
from deploy.object_store import BUCKET, InBucket, Store
from ikebana.processor.kafka.broker import Broker
from support.output_judge import judge, truth_of
from support.pipeline_processes import create, produce, upserts

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An object store, and an environment in which Spark and Arrow find it."""
    tool(tools.versitygw)
    with object_store.serving(tmp_path) as running:
        for name, value in object_store.environment(running.url).items():
            monkeypatch.setenv(name, value)
        yield running


def test_a_pipeline_goes_on_exactly_when_its_object_store_was_killed(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path, store: Store
) -> None:
    """Store and pipeline end with SIGKILL in the middle of batches; both are started again."""
    servers, source = broker.bootstrap_servers, topic_name("bucket")
    create(servers, source, 2)
    produce(servers, source, upserts(1500, 300, Random(1)))
    pipe = InBucket(
        tmp_path,
        servers,
        topic_name("stored"),
        source,
        limit=100,
        store=store.url,
        kept=store.folder,
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
