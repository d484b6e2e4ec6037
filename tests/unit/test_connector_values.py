"""What a column of a database becomes: the table of `support.connector_values`."""

from typing import Any, NamedTuple, cast

import pytest

from ikebana import Input, Linear, Output, Plan, Upsert
from ikebana.codecs import avro_compiler, canonical, debezium, debezium_rows
from ikebana.codecs.change import Column
from ikebana.codecs.formats import Format, KeyFormat
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.linear.steps import select
from support.avro_messages import KnownSchemas, message
from support.connect_avro import schema_of, value_of
from support.connector_values import BARE, VALUES, Bare, Node, Value, node_of, struct

# So many columns of a table that one statement for all of them is not long to compile.
_AT_ONCE = 12
DATABASES = tuple(dict.fromkeys(value.database for value in VALUES))
LINES = {
    f"{database} {begin // _AT_ONCE + 1}": lines[begin : begin + _AT_ONCE]
    for database in DATABASES
    for lines in [[value for value in VALUES if value.database == database]]
    for begin in range(0, len(lines), _AT_ONCE)
}


class Form(NamedTuple):
    """A format, and what of an event is in its messages."""

    format: Format
    schema: bool = False
    flat: bool = False

    @property
    def avro(self) -> bool:
        """Whether messages have a schema in a registry."""
        return self.format.endswith("avro")


FORMS = {
    "JSON": Form("debezium-json"),
    "JSON with schema": Form("debezium-json", schema=True),
    "flattened": Form("debezium-flat-json", flat=True),
    "flattened with schema": Form("debezium-flat-json", schema=True, flat=True),
    "Avro": Form("debezium-avro", schema=True),
    "flattened Avro": Form("avro", schema=True, flat=True),
}


def record_of(values: list[Value], form: Form) -> tuple[tuple[Any, Any, int], KnownSchemas | None]:
    """A message with a row of these columns, and what the registry knows of it."""
    columns = {f"c{at}": node_of(each.schema) for at, each in enumerate(values)}
    row = struct("Row", id=node_of("int64"), **columns)
    after: dict[str, Any] = {"id": 1, **{f"c{at}": each.json for at, each in enumerate(values)}}
    schema = row if form.flat else struct("Envelope", before=row, after=row, op=node_of("string"))
    event: Any = after if form.flat else {"before": None, "after": after, "op": "c"}
    if form.avro:
        of_key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
        of_value = schema_of(schema)
        framed = message(2, of_value, value_of(schema, event))
        record = message(1, of_key, {"id": 1}), framed, 0
        return record, KnownSchemas({1: of_key, 2: of_value})
    return ({"id": 1}, {"schema": schema, "payload": event} if form.schema else event, 0), None


def plan_of(values: list[Value], form: Form) -> Plan:
    """A plan that shows each column as a text."""

    def encoding(value: Value) -> str | None:
        if form.format == "avro" and value.declared == "JSON" and value.schema == "string":
            # Such a text may be of any writer.
            return "json"
        named = form.schema and _is_named(node_of(value.schema)) and value.encoding != "json"
        return None if named else value.encoding

    columns = tuple(
        Column(f"c{at}", each.declared, encoding(each)) for at, each in enumerate(values)
    )
    key: KeyFormat = "avro" if form.avro else "json"
    columns = (Column("id", "BIGINT"), *columns)
    source = Input("t", ("t",), form.format, key_format=key, columns=columns)
    texts = {f"c{at}": f"c{at}::VARCHAR" for at in range(len(values))}
    return Plan(
        "p",
        (source,),
        (Upsert("now", "t"), Linear("texts", "now", (select(texts),))),
        (Output("out", "texts", "out"),),
    )


def _is_named(node: Node) -> bool:
    return "name" in node or ("items" in node and _is_named(node["items"]))


@pytest.fixture(params=[True, False], ids=["compiled and pushed", "neither"])
def pushed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Decoders with compiled loops and what is pushed into them; and with neither."""
    if not request.param:
        monkeypatch.setattr(avro_compiler, "Program", None)
        monkeypatch.setattr(debezium, "CompiledRows", None)
        monkeypatch.setattr(canonical, "CompiledRows", None)
        monkeypatch.setattr(debezium_rows, "Canonical", None)
    return bool(request.param)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lines", LINES)
def test_a_column_has_the_value_of_its_database(lines: str, form: str, *, pushed: bool) -> None:
    """In each way in which its connector may write it, with a schema beside it and without."""
    values = [value for value in LINES[lines] if value.avro or not FORMS[form].avro]
    record, known = record_of(values, FORMS[form])
    evaluation = Evaluation(plan_of(values, FORMS[form]), optimized=pushed, schemas=known)

    # The second message of an Avro schema is read by a program.
    found = evaluation.advance({"t": [record, record]}, 1_000)

    assert [update.data["reason"] for update in found["errors"]] == []
    (update,) = found["out"]
    _, shown = update.data
    assert {each.name: shown[f"c{at}"] for at, each in enumerate(values)} == {
        each.name: each.sql for each in values
    }


def test_each_line_is_another_column() -> None:
    """By its type, its declared type and the connector's setting."""
    names = [value.name for value in VALUES]

    assert len(set(names)) == len(names)


def message_of(bare: Bare) -> Any:
    """A message with a row that has the value."""
    row = {"id": 1, "c0": bare.json}
    match bare.format:
        case "maxwell":
            return {"type": "insert", "database": "d", "table": "t", "data": row}
        case "goldengate":
            return {"op_type": "I", "table": "d.t", "after": row}
        case "dms":
            return {"metadata": {"record-type": "data", "operation": "insert"}, "data": row}
    canal = {"type": "INSERT", "database": "d", "table": "t", "data": [row]}
    return canal if bare.mysql is None else {**canal, "mysqlType": {"c0": bare.mysql}}


@pytest.mark.parametrize("pushed", [True, False], ids=["pushed", "not pushed"])
@pytest.mark.parametrize("bare", BARE, ids=lambda bare: f"{bare.format}, {bare.type}")
def test_a_column_of_another_connector_has_the_value_of_its_database(
    bare: Bare, *, pushed: bool
) -> None:
    """Its messages have no schema, but for Canal's types of MySQL."""
    columns = (Column("id", "BIGINT"), Column("c0", bare.declared, bare.encoding))
    form = cast(Format, bare.format)
    source = Input("t", ("t",), form, key=("id",), columns=columns)
    plan = Plan(
        "p",
        (source,),
        (Upsert("now", "t"), Linear("texts", "now", (select(c0="c0::VARCHAR"),))),
        (Output("out", "texts", "out"),),
    )

    found = Evaluation(plan, optimized=pushed).advance({"t": [(None, message_of(bare), 0)]}, 1_000)

    assert [update.data["reason"] for update in found["errors"]] == []
    assert [update.data[1] for update in found["out"]] == [{"c0": bare.sql}]
