"""Sinks into tables of an object store, with credentials; and histories from such tables."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.lives import results
from chaos.runs import Unavailable
from deploy import object_store, tools
from deploy.charts import tool
from deploy.object_store import Store
from ikebana.processor.planning.plan import History
from ikebana.processor.topics import row_files
from support.lake_targets import NAMESPACE, DeltaTarget, IcebergTarget
from support.sink_conformance import delivered, judge_overtaken, story, tables_of

pytestmark = pytest.mark.timeout(600)
LakeTarget = IcebergTarget | DeltaTarget


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    tool(tools.versitygw)
    with object_store.serving(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(params=[IcebergTarget, DeltaTarget])
def target(request: pytest.FixtureRequest, tmp_path: Path, store: Store) -> LakeTarget:
    """A target in each format."""
    made: LakeTarget = request.param(tmp_path, store.url)
    return made


def test_tables_in_a_bucket_are_the_collections(target: LakeTarget) -> None:
    """Through deletions and updates; a second instance stops the first."""
    told, tables = story(9, 4), tables_of("current")

    judge_overtaken(target, tables, told)


def test_a_history_is_read_from_a_table_in_a_bucket(
    target: LakeTarget, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the credentials of the environment."""
    told, tables = story(3, 4), tables_of("current")[:1]
    delivered(target.sink(), tables, told.topics())
    if isinstance(target, IcebergTarget):
        # The name of the sink tells the tables of catalogs in SQL apart.
        named = {"name": "lake", **target.catalog}
        plain = tuple((k, v) for k, v in named.items() if "access-key" not in k)
        history = History(iceberg=f"{NAMESPACE}.{tables[0].name}", catalog=plain)
    else:
        history = History(delta=f"{target.place}/{tables[0].name}")
    for name, value in object_store.access(store.url).items():
        monkeypatch.setenv(name, value)

    files = row_files.table_files("orders", history)

    found = [
        message
        for file in files
        for some in row_files.read(file, 0, file.rows, ("id",), bare=False)
        for message in some
    ]
    assert len(found) == len(target.rows(tables[0])) > 0


@pytest.mark.full
@pytest.mark.timeout(900)
def test_an_object_store_and_its_sinks_are_killed(tmp_path: Path) -> None:
    """At every token the tables are the collections."""
    names = [f"{kind}-{what}" for kind in ("iceberg", "delta") for what in ("kill", "kill-target")]
    try:
        for result in results("sink-bucket", tmp_path, range(1), *names):
            assert result.outcome == "exact", result
    except Unavailable as reason:
        pytest.skip(str(reason))
