"""A checkpoint in a bucket: what the store acknowledged is what a pipeline goes on from."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyarrow import fs

from deploy import object_store, tools
from deploy.charts import tool
from deploy.object_store import BUCKET, InBucket, Store
from support.pipeline_processes import PipelineOver, upserts

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
    pipeline_over: PipelineOver, store: Store
) -> None:
    """Store and pipeline end with SIGKILL in the middle of batches; both are started again."""
    plain = pipeline_over(2, upserts(1500, 300, Random(1)), limit=100)
    pipe = InBucket(**vars(plain), store=store.url, kept=store.folder).but(retained_batches=3)
    with pipe.start() as run:
        pipe.wait_for_batch(3, 300)
        store.kill()
        run.kill()
    written = pipe.progress()[-1].batch
    store.start()

    pipe.drained(timeout_s=280)

    assert pipe.progress()[-1].batch > written
    assert pipe.judged() == {}
    held = object_store.system(store.url).get_file_info(
        fs.FileSelector(f"{BUCKET}/{pipe.name}", recursive=True)
    )
    names = {info.path.split("/")[2] for info in held}
    assert {"ikebana.json", "offsets", "commits", "shards", "state"} <= names
