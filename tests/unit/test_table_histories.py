"""The history of an input may be a table of a lake, as of one version."""

import base64
import json
import string
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from ikebana import Column, Input, Output, Plan, PlanError, Upsert
from ikebana.errors import SourceError
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.engine.testing.run import Run
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import History
from ikebana.processor.topics import row_files

_Z85 = (string.digits + string.ascii_lowercase + string.ascii_uppercase).encode()
_Z85 += b".-:+=^!/*?&<>()[]{}@%$#"
# The alphabet of Python's base 85.
_B85 = (string.digits + string.ascii_uppercase + string.ascii_lowercase).encode()
_B85 += b"!#$%&()*+-;<=>?@^_`{|}~"
COLUMNS = (Column("id", "BIGINT"), Column("v", "BIGINT"), Column("day", "DATE"))
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("day", pa.date32())])


def rows(*ids: int, v: int = 0) -> pa.Table:
    """Rows of days that only some of them have."""
    days = [None if at % 3 == 0 else f"2024-01-0{at % 3}" for at in ids]
    return pa.table(
        [pa.array(ids, pa.int64()), pa.array([v] * len(ids)), pa.array(days).cast(pa.date32())],
        schema=SCHEMA,
    )


class Lake(NamedTuple):
    """A table that a test writes."""

    history: History
    append: Callable[[pa.Table], None]
    delete: Callable[[int], None]
    """Delete the rows with an id, by writing their files anew."""
    version: Callable[[], int]


class MakesLake(Protocol):
    def __call__(self, folder: Path, *, by: str = "") -> Lake: ...


def catalog_in(folder: Path) -> tuple[Catalog, dict[str, str]]:
    settings = {
        "name": "lake",
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }
    return load_catalog(**settings), settings


def iceberg(folder: Path, *, by: str = "") -> Lake:
    """A table of Iceberg, perhaps with partitions by a column."""
    catalog, settings = catalog_in(folder)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.rows", SCHEMA)
    if by:
        with table.update_spec() as update:
            update.add_field(by, IdentityTransform(), f"{by}_part")
    history = History(iceberg="shop.rows", catalog=tuple(settings.items()))

    def version() -> int:
        snapshot = table.current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    return Lake(history, table.append, lambda at: table.delete(f"id = {at}"), version)


def delta(folder: Path, *, by: str = "") -> Lake:
    """A table of Delta, perhaps with partitions by a column."""
    place = str(folder / "rows")

    def delete(at: int) -> None:
        DeltaTable(place).delete(f"id = {at}")

    return Lake(
        History(delta=place),
        lambda new: write_deltalake(place, new, mode="append", partition_by=[by] if by else None),
        delete,
        lambda: DeltaTable(place).version(),
    )


@pytest.fixture(params=[iceberg, delta])
def lake(request: pytest.FixtureRequest) -> MakesLake:
    """A maker of tables in each format."""
    made: MakesLake = request.param
    return made


def plan_of(history: History) -> Plan:
    of_input: Any = {"columns": COLUMNS, "key": ("id",), "history": history}
    source = Input("rows", ("rows",), "debezium-json", **of_input)
    return checked(Plan("p", (source,), (Upsert("now", "rows"),), (Output("out", "now", "out"),)))


def shown(run: Run) -> list[tuple[int, int, str | None]]:
    return sorted((row["id"], row["v"], row.get("day")) for _, row in run.collection("out"))


@pytest.mark.parametrize("by", ["", "day"])
def test_a_table_is_read_as_it_was_at_the_start(lake: MakesLake, tmp_path: Path, by: str) -> None:
    """In portions through restarts, whatever is committed meanwhile."""
    table = lake(tmp_path, by=by)
    table.append(rows(1, 2, 3))
    table.append(rows(4, 5))
    table.delete(2)
    run = Run(plan_of(table.history), shards=2)
    run.send("rows", None, {"op": "u", "before": {"id": 1}, "after": {"id": 1, "v": 7}})

    run.batch(limit=1)
    table.append(rows(6))
    table.delete(4)
    run.restart()
    run.read(limit=1)

    assert shown(run) == [
        (1, 7, None),
        (3, 0, None),
        (4, 0, "2024-01-01"),
        (5, 0, "2024-01-02"),
    ]
    assert run.errors() == []


def test_a_version_can_be_named(lake: MakesLake, tmp_path: Path) -> None:
    """The id of a snapshot, or a number."""
    table = lake(tmp_path)
    table.append(rows(1))
    first = table.version()
    table.append(rows(2))

    whole, older = (
        Run(plan_of(replace_version(table.history, version)), shards=1)
        for version in (None, first)
    )
    for run in (whole, older):
        run.read()

    assert [row[0] for row in shown(whole)] == [1, 2]
    assert [row[0] for row in shown(older)] == [1]
    with pytest.raises(SourceError, match=r'history of input "rows": .* table'):
        row_files.table_files("rows", replace_version(table.history, first + 17))


def replace_version(history: History, version: int | None) -> History:
    return History(
        iceberg=history.iceberg, delta=history.delta, catalog=history.catalog, version=version
    )


def test_a_table_without_rows_is_refused(lake: MakesLake, tmp_path: Path) -> None:
    """And one that is not there."""
    table = lake(tmp_path)
    with pytest.raises(SourceError, match='cannot read the history of input "rows"'):
        row_files.table_files("rows", table.history)
    table.append(rows(1).slice(1))

    with pytest.raises(SourceError, match="has no rows"):
        row_files.table_files("rows", table.history)


def test_renamed_columns_of_iceberg_are_refused(tmp_path: Path) -> None:
    """Until the files have the names of the table."""
    table = iceberg(tmp_path)
    table.append(rows(1))
    catalog, _ = catalog_in(tmp_path)
    changed = catalog.load_table("shop.rows")
    with changed.update_schema() as update:
        update.rename_column("v", "w")
    with pytest.raises(SourceError, match='has the column "w" under the name "v"'):
        row_files.table_files("rows", table.history)
    with changed.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("w")
        update.add_column("v", StringType())
    with pytest.raises(SourceError, match='has another column "v"'):
        row_files.table_files("rows", table.history)
    changed.refresh()
    changed.overwrite(pa.table({"id": [2], "v": ["a"], "day": pa.nulls(1, pa.date32())}))

    [file] = row_files.table_files("rows", table.history)

    assert file.rows == 1


def test_deletion_vectors_are_refused(tmp_path: Path) -> None:
    """A reader of files alone would see the deleted rows."""
    table = delta(tmp_path)
    table.append(rows(1, 2))
    log = tmp_path / "rows" / "_delta_log"
    [added] = [
        json.loads(line)["add"]
        for line in (log / f"{0:020d}.json").read_text().splitlines()
        if "add" in json.loads(line)
    ]
    # A bitmap of 64 bits with the first row.
    bitmap = struct.pack("<iqi iiHHIH 2x", 1681511377, 1, 0, 12346, 1, 0, 0, 16, 0)
    text = base64.b85encode(bitmap).translate(bytes.maketrans(_B85, _Z85)).decode()
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": 34, "cardinality": 1}
    features = ["deletionVectors"]
    actions = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        },
        {"remove": {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**added, "deletionVector": vector}},
    ]
    (log / f"{1:020d}.json").write_text("".join(f"{json.dumps(each)}\n" for each in actions))

    with pytest.raises(SourceError, match="deletion vectors"):
        row_files.table_files("rows", table.history)


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        (History(), "has to have one of files, iceberg and delta; it has none"),
        (History(("a.jsonl",), delta="/x"), "it has files, delta"),
        (History(("a.jsonl",), version=3), "is of a table, and files have none"),
        (History(iceberg="orders"), "'orders' has no namespace"),
        (History(delta="/x", catalog=(("uri", "x"),)), "is of an Iceberg table"),
        (History(iceberg="a.b", catalog=(("s3.secret-access-key", "x"),)), "has a secret"),
        (History(iceberg="a.b", catalog=(("uri", "postgresql://u:p@db/x"),)), "has a secret"),
    ],
)
def test_tables_that_cannot_be_are_refused(history: History, problem: str) -> None:
    """With the plan."""
    with pytest.raises(PlanError, match=problem):
        plan_of(history)


def test_a_file_names_a_table() -> None:
    """In YAML."""
    text = """
pipeline: p
inputs:
  rows:
    topic: rows
    format: debezium-json
    key: id
    columns: {id: BIGINT, v: BIGINT}
    history: {iceberg: shop.orders, version: 12, catalog: {type: rest, uri: "http://c"}}
operators: {now: {upsert: rows}}
outputs: {out: {from: now, topic: out}}
kafka: {bootstrap.servers: "b:9092"}
run: {checkpoint: c}
"""
    found = parse(text, "p.yaml", environ={}).plan.inputs[0].history

    expected = (("type", "rest"), ("uri", "http://c"))
    assert found == History(iceberg="shop.orders", version=12, catalog=expected)
    assert found.names == ("Iceberg table shop.orders at 12",)
