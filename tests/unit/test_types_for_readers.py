"""Readers of an output get the types that the pipeline knows: tables, SQL, Arrow and Parquet."""

import datetime
import io
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from pyspark.sql.types import (
    DateType,
    DecimalType,
    FloatType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ikebana import Column, Input, Output, Plan, Upsert
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.planning.catalog import output_types
from ikebana.processor.spark.topic_source import RowMaker, schema_of
from ikebana.serving.arrangement import Closed, ServedArrangement
from ikebana.serving.sql import run, table_of
from ikebana.serving.view import ArrangementView
from ikebana.serving.wire import flat_for_csv, rows_of
from support.served_collections import arrangement
from support.sql_oracle import plan_of

TABLES = {"t": {"id": "BIGINT", "amount": "DECIMAL(10,2)", "m": "TIMESTAMPTZ", "n": "BIGINT"}}
TYPES = {
    "n": "DECIMAL(38,2)",
    "h": "HUGEINT",
    "d": "DATE",
    "z": "TIMESTAMP WITH TIME ZONE",
    "w": "TIME",
    "l": "DECIMAL(5,2)[]",
    "r": 'STRUCT(a BIGINT, "B c" DATE)',
    "p": "MAP(VARCHAR, BIGINT)",
    "b": "BLOB",
    "f": "FLOAT",
    "s": "VARCHAR",
    "never": "DATE",
}
VALUE = (
    b'{"n":12345678901234567890.25,"h":170141183460469231731687303715884105727,'
    b'"d":"2024-02-29","z":"2024-02-29T12:00:00Z","w":"12:00:00","l":[1.25,2],'
    b'"r":{"a":1,"B c":"2024-01-01"},"p":{"k":1},"b":"AAE=","f":0.1,"s":"007"}'
)
DAY = datetime.date(2024, 2, 29)
EXPECTED = {
    "n": (pa.decimal128(38, 2), Decimal("12345678901234567890.25")),
    "d": (pa.date32(), DAY),
    "z": (pa.timestamp("us", "UTC"), datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)),
    "w": (pa.time64("us"), datetime.time(12)),
    "b": (pa.binary(), b"\x00\x01"),
    "f": (pa.float32(), 0.1),
    "s": (pa.string(), "007"),
    "p": (pa.map_(pa.string(), pa.int64()), {"k": 1}),
    "r": (None, {"a": 1, "B c": datetime.date(2024, 1, 1)}),
    "l": (None, [Decimal("1.25"), Decimal("2.00")]),
    "h": (pa.decimal128(38, 0), Decimal(2**127 - 1)),
    "never": (pa.date32(), None),
    "count": (pa.int64(), 1),
}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT id, amount, m, sum(n) AS s, avg(n) AS a FROM t GROUP BY id, amount, m",
            {
                "id": "BIGINT",
                "amount": "DECIMAL(10,2)",
                "m": "TIMESTAMP WITH TIME ZONE",
                "s": "HUGEINT",
                "a": "DOUBLE",
            },
        ),
        ("SELECT [amount] AS l, {'x': m::DATE} AS r FROM t", None),
        # What has no type, or none that tables of other programs have.
        ("SELECT NULL AS x, to_json(id) AS j, INTERVAL 1 DAY AS i, [NULL] AS l FROM t", {}),
    ],
)
def test_the_plan_tells_the_types_of_its_outputs(query: str, expected: Any) -> None:
    """Those that it knows; of JSON, readers see what it is."""
    plan = plan_of(TABLES, {"view": query})
    (output,) = plan.outputs

    told = dict(output_types(plan, output))

    assert told == (
        {"l": "DECIMAL(10,2)[]", "r": "STRUCT(x DATE)"} if expected is None else expected
    )


def test_undeclared_columns_and_errors_have_no_types() -> None:
    """They are as they come."""
    columns = (Column("d", "date"), Column("j", "JSON"))
    plan = Plan(
        "p",
        (Input("t", ("t",), columns=columns), Input("u", ("u",))),
        (Upsert("a", "t"), Upsert("b", "u")),
        (Output("a", "a", "a"), Output("b", "b", "b"), Output("errors", "", "p.errors")),
    )

    assert [dict(output_types(plan, each)) for each in plan.outputs] == [{"d": "DATE"}, {}, {}]


def test_a_table_has_the_types_that_are_told_and_every_digit() -> None:
    """Also of columns that no row has yet; a key's column has the type of the value's."""
    table = table_of([(b'{"d":"2024-02-29"}', VALUE, 1), (b'{"d":null}', b'{"n":null}', 2)], TYPES)

    first, second = (dict(zip(table.column_names, row, strict=True)) for row in rows_of(table))
    assert first == {name: value for name, (_, value) in EXPECTED.items()}
    assert second == {**dict.fromkeys(EXPECTED), "count": 2}
    for name, (kind, _) in EXPECTED.items():
        assert kind is None or table.schema.field(name).type == kind, name


def test_a_table_can_be_written_in_every_form() -> None:
    """Lists, structs and maps are JSON in CSV, which has none."""
    table = table_of([(b"1", VALUE, 1)], TYPES)
    text, binary = io.BytesIO(), io.BytesIO()

    csv.write_csv(flat_for_csv(table), text)
    parquet.write_table(table, binary)

    assert b'"[1.25,2.00]"' in text.getvalue()
    assert parquet.read_table(binary).schema.field("n").type == pa.decimal128(38, 2)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("DATE", "infinity"),
        ("TIMESTAMP WITH TIME ZONE", "-infinity"),
        ("TIMESTAMP", "-0043-03-15T00:00:00"),
        ("TIME", "24:00:00"),
        ("TIME WITH TIME ZONE", "12:00:00+05:30"),
        ("INTERVAL", "1 month"),
        ("BLOB", "/wA="),
        ("STRUCT(a DATE)", '{"a":"infinity"}'),
    ],
)
def test_csv_has_the_texts_of_json(kind: str, text: str) -> None:
    """Of values that CSV has not, or that Arrow writes otherwise."""
    value = text if text.startswith("{") else f'"{text}"'
    table = table_of([(b"1", b'{"c":%s}' % value.encode(), 1)], {"c": kind})
    written = io.BytesIO()

    csv.write_csv(flat_for_csv(table.select(["c"])), written)

    quoted = text.replace('"', '""')
    assert written.getvalue().decode() == f'"c"\n"{quoted}"\n'


@pytest.mark.parametrize("value", [b'{"d":5}', b'{"d":"soon"}', b'{"d":{"a":1}}'])
def test_values_of_another_type_are_shown_as_they_are(value: bytes) -> None:
    """As those of before an edit may be; no other column suffers."""
    table = table_of([(b"1", b'{"d":"2024-02-29"}', 1), (b"2", value, 1)], {"d": "DATE"})

    assert (
        table.column("d").to_pylist()
        == table_of([(b"1", b'{"d":"2024-02-29"}', 1), (b"2", value, 1)]).column("d").to_pylist()
    )


@pytest.fixture
def view(tmp_path: Path) -> Callable[[str], ArrangementView]:
    """A served collection with types, whose keys are days."""
    opened = arrangement(tmp_path / "things")
    row = b'{"amount":12.50,"day":"2024-02-29","n":%d}'
    updates = [KeyedUpdate(b'{"day":"2024-02-%02d"}' % day, row % day, 0, 1) for day in (1, 29)]
    types = {"day": "DATE", "amount": "DECIMAL(10,2)", "n": "HUGEINT"}
    _apply(opened, updates, 0, types)
    return lambda _: opened.view()


def _apply(
    opened: ServedArrangement, updates: list[KeyedUpdate], lower: int, types: Mapping[str, str]
) -> None:
    opened.apply(Closed(lower, lower + 1, updates, b"place", None, types))


def test_sql_over_served_collections_has_types(view: Callable[[str], ArrangementView]) -> None:
    """A sum of whole numbers is a number of JSON, too."""
    query = "SELECT max(amount) AS m, sum(n) AS s, max(day) AS d FROM things"

    table = run(query, view).table

    encode = msgspec.json.Encoder(decimal_format="number").encode
    assert encode(rows_of(table)) == b'[[12.50,30,"2024-02-29"]]'
    assert table.schema.field("m").type == pa.decimal128(10, 2)


@pytest.mark.parametrize("day", ["'2024-02-01'", "'2024-2-1'", "DATE '2024-02-01'"])
def test_a_key_is_found_by_its_value_and_not_by_its_text(
    view: Callable[[str], ArrangementView], day: str
) -> None:
    """A lookup gives what a scan would."""
    table = run(f"SELECT n FROM things WHERE day = {day}", view).table

    assert [int(n) for (n,) in rows_of(table)] == [1]


def test_types_are_those_of_the_last_batch_and_are_kept(tmp_path: Path) -> None:
    """After a restart, too."""
    opened = arrangement(tmp_path / "things")
    _apply(opened, [KeyedUpdate(b"1", b'{"n":1}', 0, 1)], 0, {"n": "BIGINT"})
    _apply(opened, [KeyedUpdate(b"1", b'{"n":1.5}', 1, 1)], 1, {"n": "DOUBLE"})
    opened.close()

    again = arrangement(tmp_path / "things")

    assert again.view().meta.columns == {"n": "DOUBLE"}
    again.close()


def test_rows_of_spark_have_the_columns_that_are_told() -> None:
    """With every digit of decimals; types that Spark's columns cannot have are texts."""
    told = {name: TYPES[name] for name in ("n", "d", "z", "l", "s", "f", "never")}
    assert schema_of(told) == (
        "`n` DECIMAL(38,2), `d` DATE, `z` TIMESTAMP, `l` STRING, `s` STRING, `f` FLOAT, "
        "`never` DATE, time BIGINT, diff BIGINT"
    )
    kinds = {
        **{"n": DecimalType(38, 2), "d": DateType(), "z": TimestampType(), "l": StringType()},
        **{"s": StringType(), "f": FloatType(), "never": DateType()},
        **{"time": LongType(), "diff": LongType()},
    }
    schema = StructType([StructField(name, kind) for name, kind in kinds.items()])

    (batch,) = RowMaker("t", schema).batches([KeyedUpdate(b"1", VALUE, 7, 2)])

    assert batch.to_pylist() == [
        {
            "n": Decimal("12345678901234567890.25"),
            "d": DAY,
            "z": datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC),
            "l": "[1.25,2]",
            "s": "007",
            "f": pytest.approx(0.1),
            "never": None,
            "time": 7,
            "diff": 2,
        }
    ]
