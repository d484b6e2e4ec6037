"""Iceberg's sink and histories with a REST catalog."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc import rest_catalog
from cdc.fetched import Unavailable
from ikebana.delivering.sink import Batch
from ikebana.errors import FencedError
from ikebana.processor.planning.plan import History
from ikebana.processor.topics import row_files
from support.lake_targets import NAMESPACE, IcebergTarget
from support.sink_conformance import Crashing, delivered, judge, story, tables_of

pytestmark = [pytest.mark.cdc, pytest.mark.timeout(600)]


@pytest.fixture
def target(tmp_path: Path) -> Iterator[IcebergTarget]:
    try:
        with rest_catalog.running(tmp_path / "warehouse") as catalog:
            yield IcebergTarget(tmp_path, catalog=catalog)
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_tables_of_a_rest_catalog_are_the_collections(target: IcebergTarget) -> None:
    """A second instance stops the first; a table is the history of an input."""
    told, tables = story(9, 4), tables_of("current")
    second = target.sink()

    class Overtaken(Crashing):
        def apply(self, batch: Batch) -> None:
            second.open(tables)
            super().apply(batch)

    with pytest.raises(FencedError, match="newer instance"):
        delivered(Overtaken(target.sink(), None), tables, told.topics())
    second.close()
    judge(target, tables, told)

    delivered(target.sink(), tables, told.topics())

    assert judge(target, tables, told) == told.upper
    name = f"{NAMESPACE}.{tables[0].name}"
    history = History(iceberg=name, catalog=tuple(target.catalog.items()))
    rows = sum(file.rows for file in row_files.table_files("orders", history))
    assert rows == len(target.rows(tables[0])) > 0
