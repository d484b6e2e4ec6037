"""Iceberg's sink and histories with a REST catalog."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc import rest_catalog
from cdc.fetched import Unavailable
from ikebana.processor.planning.plan import History
from ikebana.processor.topics import row_files
from support.lake_targets import NAMESPACE, IcebergTarget
from support.sink_conformance import judge_overtaken, story, tables_of

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

    judge_overtaken(target, tables, told)

    name = f"{NAMESPACE}.{tables[0].name}"
    history = History(iceberg=name, catalog=tuple(target.catalog.items()))
    rows = sum(file.rows for file in row_files.table_files("orders", history))
    assert rows == len(target.rows(tables[0])) > 0
