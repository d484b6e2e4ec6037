"""Recognise the format of messages, extract their rows, and infer the columns of these."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.change import Headers
from ikebana.codecs.changes import WORDS
from ikebana.codecs.column_encodings import USUAL, Schema, WhenUsual
from ikebana.codecs.debezium_rows import PLACEHOLDER, STRUCT, Unavailable
from ikebana.codecs.encodings import of_extended_json
from ikebana.codecs.formats import FRAMES, OF_COCKROACH, Format, KeyFormat
from ikebana.codecs.maxwell import ROWS, SNAPSHOT
from ikebana.codecs.sequences import at, path_of
from ikebana.errors import ConfigError
from ikebana.processor.authoring.proposing.kinds import (
    ColumnKind,
    common,
    fields_of,
    hint,
    of_mysql,
    of_values,
)
from ikebana.processor.linear.json_text import JSON

Kinds = Mapping[str, ColumnKind]


class Sample(NamedTuple):
    """A message of a topic."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int = 0


class MessageRow(NamedTuple):
    """A row in a message; `kinds` are from its schema, None without one."""

    values: Mapping[str, Any]
    kinds: Kinds | None = None


class MessageEvidence(NamedTuple):
    """The table, key columns and rows of one message, as far as it names them.

    `of_kafka` are the columns in its Kafka key; `keyed`: it has a readable Kafka key;
    `lacks_image`: it is a change without its old image; `options`: those that it needs;
    `places`: its fields with its place in the order of its source.
    """

    table: str = ""
    columns: tuple[str, ...] = ()
    rows: Sequence[MessageRow] = ()
    lacks_image: bool = False
    of_kafka: tuple[str, ...] = ()
    keyed: bool = False
    options: Mapping[str, str] = {}
    partition: int = 0
    places: Sequence[str] = ()


class Evidence(NamedTuple):
    """The tables, keys and rows of messages of one format.

    `keys` counts the key columns that messages name, `kafka_keys` those in Kafka keys.  Of the
    messages with rows, `unnamed` name no key, `keyless` have no readable Kafka key, and
    `imageless` lack the old image of a change.  `options` are those that any message needs.
    The rows are in so many `partitions`; `places` are the fields of any message with its place in
    the order of its source.
    """

    tables: Counter[str]
    keys: Counter[tuple[str, ...]]
    kafka_keys: Counter[tuple[str, ...]]
    rows: list[MessageRow]
    unnamed: int = 0
    keyless: int = 0
    imageless: int = 0
    options: Mapping[str, str] = {}
    partitions: int = 0
    places: Sequence[str] = ()


def collect_evidence(seen: Sequence[MessageEvidence], table: str | None = None) -> Evidence:
    """Collect the evidence of messages, for one table or all."""
    seen = [each for each in seen if table is None or each.table == table]
    rows = [each for each in seen if each.rows]
    tables: Counter[str] = Counter()
    for each in rows:
        tables[each.table] += len(each.rows)
    del tables[""]
    return Evidence(
        tables,
        Counter(each.columns for each in seen if each.columns),
        Counter(each.of_kafka for each in rows if each.of_kafka),
        [row for each in rows for row in each.rows],
        sum(not each.columns for each in rows),
        sum(not each.keyed for each in rows),
        sum(each.lacks_image for each in rows),
        {name: of for each in rows for name, of in each.options.items()},
        len({each.partition for each in rows}),
        tuple(dict.fromkeys(name for each in rows for name in each.places)),
    )


def is_framed(data: bytes) -> bool:
    """Return whether bytes have the prefix of serializers with a schema registry.

    It is a zero byte and an id, which begins at 1: four bytes of Confluent's, eight of Apicurio's.
    So a small number, in the eight bytes of Java, has none.
    """
    wide = not any(data[1:5])
    return data[:1] == b"\0" and len(data) > FRAMES["apicurio" if wide else "confluent"]


def _number(text: str) -> int | float | Decimal:
    """A number with a fraction or an exponent: 12.0 is no integer, since others may be 12.5."""
    number = canonical.number(text)
    return Decimal(number) if isinstance(number, int) else number


_decode = msgspec.json.Decoder(float_hook=_number).decode


def parsed(data: bytes | None) -> Any:
    """Parse bytes as JSON, with all digits of numbers; return `...` if they are no JSON."""
    try:
        return ... if data is None else _decode(data)
    except canonical.REFUSALS:
        return ...


def key_in_json(data: bytes | None) -> Any:
    """Parse a key as JSON; return `...` if it is none, or if other keys would be the same.

    As numbers, 1.1 and 1.10 are equal, and texts such as these are keys of different rows.
    """
    key = parsed(data)
    if isinstance(key, int | float | Decimal) and data != canonical.write(key):
        return ...
    return key


def names_schema(sample: Sample, part: str) -> bool:
    """Whether a header names the schema of a message's key or value."""
    names = (f"__{part}_schema_id", f"apicurio.{part}.contentId", f"apicurio.{part}.globalId")
    return any(name in names for name, _ in sample.headers or ())


def key_format(samples: Sequence[Sample], values: Format) -> KeyFormat:
    """Choose the format of keys: Avro beside values in it, JSON if all are JSON, else bytes."""
    keyed = [(s.key, names_schema(s, "key")) for s in samples if s.key is not None]
    if keyed and values == "avro" and all(named or is_framed(key) for key, named in keyed):
        return "avro"
    return "json" if all(key_in_json(key) is not ... for key, _ in keyed) else "bytes"


# Heartbeats and schema changes of a connector look like rows without an envelope.
_LAST: tuple[Format, ...] = ("debezium-flat-json",)
_PLAIN: tuple[Format, ...] = ("json", "bytes")


def value_format(samples: Sequence[Sample]) -> Format:
    """Choose the most frequent format of values; `json` if there are no values."""
    votes = Counter(_format_of(s, s.value) for s in samples if s.value)
    # A topic of changes may also have other messages, such as heartbeats and plain JSON.
    by_votes: list[Format] = [form for form, _ in votes.most_common()]
    later = (_PLAIN, _LAST)
    by_votes.sort(key=lambda form: sum(form in forms for forms in later) + (form in _PLAIN))
    return (by_votes or ["json"])[0]


def _format_of(sample: Sample, data: bytes) -> Format:
    if is_framed(data) or names_schema(sample, "value"):
        return "avro"
    if {"time", "diff"} <= {name for name, _ in sample.headers or ()}:
        return "diff"
    value = parsed(data)
    if value is ...:
        return "bytes"
    return of_object(value) if isinstance(value, dict) else "json"


def of_object(value: dict[str, Any]) -> Format:
    """Recognise the format of a message by the fields of its value."""
    return next((form for form, its in LOOKS.items() if its.looks_so(value)), "json")


def payload(value: dict[str, Any]) -> dict[str, Any]:
    """Return the payload of a message of Kafka Connect, which may have a schema."""
    inner = value.get("payload")
    return inner if isinstance(inner, dict) and value.keys() <= _WRAPPER else value


_WRAPPER = {"schema", "payload"}


@lru_cache(maxsize=256)
def _schema_of(text: bytes) -> Schema | None:
    try:
        return msgspec.json.decode(text, type=Schema)
    except canonical.REFUSALS:
        return None


def schema_of(value: Any) -> Schema | None:
    """The schema in a message of Kafka Connect; None if it has none."""
    if not isinstance(value, dict) or not isinstance(value.get("schema"), dict):
        return None
    return _schema_of(msgspec.json.encode(value["schema"]))


_OF_DEBEZIUM = ("source.lsn", "source.file log", "source.pos", "source.row")
# The fields that may have the place of a change in the order of its source, by format.
_PLACES: Mapping[Format, Sequence[str]] = {
    "debezium-json": _OF_DEBEZIUM,
    "debezium-avro": _OF_DEBEZIUM,
    "maxwell": ("position log", "xoffset"),
    # In TiCDC's extension; Canal itself has no such field.
    "canal": ("_tidb.commitTs",),
    "goldengate": ("pos log",),
    "dms": ("metadata.stream-position log", "metadata.transaction-record-id"),
}


def places_of(form: Format, message: dict[str, Any]) -> list[str]:
    """The fields of a message that have its place in the order of its source."""
    return [
        each
        for each in _PLACES.get(form, ())
        if at(message, path_of(each.removesuffix(" log"))) is not None
    ]


def evidence_of(form: Format, samples: Sequence[Sample], table: str | None = None) -> Evidence:
    """Extract the rows of the messages in a format, of one table or of all."""
    seen = []
    for sample in samples:
        value = parsed(sample.value)
        if isinstance(value, dict) and (form == "json" or of_object(value) == form):
            its = (
                LOOKS[form].tells(value)
                if form in LOOKS
                else MessageEvidence(rows=[MessageRow(value)])
            )
            key = key_in_json(sample.key)
            keyed = key is not ... and key is not None
            seen.append(
                its._replace(
                    of_kafka=names_of_key(sample.key),
                    keyed=keyed,
                    partition=sample.partition,
                    places=places_of(form, payload(value)),
                )
            )
    return collect_evidence(seen, table)


_IN_STRUCT = re.compile(rb"[{,](\w+)=").findall


def names_of_key(key: bytes | None) -> tuple[str, ...]:
    """The columns that a key names: in JSON, or in the text that a StringConverter makes of it.

    >>> names_of_key(b'["shop", "orders", [{"id": 1}, {"line": 2}]]')
    ('id', 'line')
    >>> names_of_key(b'{"database": "shop", "table": "orders", "pk.id": 1}')
    ('id',)
    >>> names_of_key(b"Struct{id=1,line=2}")
    ('id', 'line')
    """
    names: Any = parsed(key)
    match key if names is ... else names:
        case bytes(text) if text.startswith(STRUCT):
            return tuple(name.decode() for name in _IN_STRUCT(text))
        # Maxwell has two forms of keys.
        case [str(), str(), [*columns]] if all(isinstance(each, dict) for each in columns):
            return tuple(name for each in columns for name in each)
        case {"database": _, "table": _}:
            return tuple(name[3:] for name in names if name.startswith("pk."))
        case dict():
            return tuple(payload(names))
    return ()


class _Looks(NamedTuple):
    """A test that recognises messages of a format, and a function that extracts their rows."""

    looks_so: Callable[[dict[str, Any]], bool]
    tells: Callable[[dict[str, Any]], MessageEvidence]


def _rows(images: Sequence[Any], kinds: Kinds | None = None) -> list[MessageRow]:
    return [
        MessageRow(_without_unavailable(image), kinds)
        for image in images
        if isinstance(image, dict)
    ]


_is_unavailable = Unavailable(PLACEHOLDER).is_one


def _without_unavailable(image: Mapping[str, Any]) -> dict[str, Any]:
    """A row with null for values that the connector marks as unavailable."""
    return {name: None if _is_unavailable(of) else of for name, of in image.items()}


_OF_COCKROACH = {"after", "before", "updated", "mvcc_timestamp", "key", "topic"}


def is_envelope(names: Mapping[str, Any]) -> bool:
    """Whether field names are those of an event of Debezium, or of a CockroachDB changefeed."""
    if "op" in names and names.keys() & {"source", "ts_ns"}:
        return bool(names.keys() & {"before", "after"})
    return "after" in names and names.keys() <= _OF_COCKROACH


def _is_debezium(value: dict[str, Any]) -> bool:
    names = payload(value)
    return is_envelope(names) and ("op" in names or isinstance(names["after"], dict | None))


def _debezium(value: dict[str, Any]) -> MessageEvidence:
    schema = schema_of(value)
    if schema is None:
        return event(payload(value), None)
    images = {field.field: field for field in schema.fields or ()}
    kinds = fields_of(images.get("after") or images.get("before"))
    return event(payload(value), kinds or None)


def event(envelope: Mapping[str, Any], kinds: Kinds | None) -> MessageEvidence:
    """The table and the rows of a Debezium event; `kinds` are those of its rows."""
    its = envelope.get("source")
    source = its if isinstance(its, dict) else {}
    if source.get("connector") == "cassandra":
        raise ConfigError(
            "Debezium's events of Cassandra cannot be read as rows: they have cells, and a null "
            "for each column that did not change",
            hint='Write rows from them by a program, and read these as "changes" with '
            "row_image: minimal.",
        )
    parts = (source.get(name) for name in ("db", "schema", "table", "collection"))
    table = ".".join(part for part in parts if isinstance(part, str))
    images = [envelope.get(name) for name in ("before", "after")]
    # MongoDB's documents are texts.
    rows = [of_extended_json(parsed(of.encode())) if isinstance(of, str) else of for of in images]
    lacks_image = envelope.get("op") in ("u", "d", None) and images[0] is None
    return MessageEvidence(table, rows=_rows(rows, kinds), lacks_image=lacks_image)


_OPERATIONS = ("c", "u", "r", "d", "t", "m")


def _is_flat(value: dict[str, Any]) -> bool:
    """Whether a message is a row alone, with fields of Debezium or with its schema."""
    row = payload(value)
    if row.get("__op") in _OPERATIONS or row.get("__deleted") in (True, False, "true", "false"):
        return True
    if OF_COCKROACH in row:
        return True
    schema = value.get("schema")
    is_struct = schema is None or (isinstance(schema, dict) and schema.get("type") == "struct")
    return row is not value and len(value) == 2 and is_struct


def _flat(value: dict[str, Any]) -> MessageEvidence:
    schema, row = schema_of(value), payload(value)
    kinds = None if schema is None else _without_added(fields_of(schema))
    image = _without_added(row)
    return MessageEvidence(rows=_rows([image] if image else [], kinds))


def _without_added(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: of for name, of in fields.items() if not name.startswith("__")}


def _is_canal(value: dict[str, Any]) -> bool:
    """Whether a message is Canal's, or Flink's in this form, which may have only rows and type."""
    if value.get("type") in ("INSERT", "UPDATE", "DELETE") and isinstance(value.get("data"), list):
        return True
    return {"isDdl", "data", "table"} <= value.keys()


def _canal(value: dict[str, Any]) -> MessageEvidence:
    if value.get("isDdl") or not isinstance(value["data"], list):
        return MessageEvidence()
    parts, types = (value.get("database"), value.get("table")), value.get("mysqlType")
    table = ".".join(str(part) for part in parts) if any(parts) else ""
    kinds = None
    if isinstance(types, dict):
        names = {name: None for row in value["data"] if isinstance(row, dict) for name in row}
        kinds = {name: of_mysql(str(types.get(name))) for name in names}
    return MessageEvidence(table, _names(value.get("pkNames")), _rows(value["data"], kinds))


# The fields that all messages of GoldenGate have.
_IN_GOLDENGATE = {"op_type", "op_ts", "table"}
# The fields of GoldenGate's messages beside rows, or beside the columns of one.
_OF_GOLDENGATE = ("table", "op_type", "op_ts", "current_ts", "pos", "primary_keys", "tokens")

# What Confluent's connector of Oracle adds to these.
_OF_ORACLE = ("scn", "row_id", "username")


def _is_goldengate(value: dict[str, Any]) -> bool:
    return value.keys() >= _IN_GOLDENGATE and not _is_row_modelled(value)


def _is_row_modelled(value: dict[str, Any]) -> bool:
    """Whether a message is GoldenGate's with one row, whose columns are its own fields."""
    has_columns = bool(value.keys() - {*_OF_GOLDENGATE})
    images = value.keys() & {"before", "after"}
    return has_columns and not images and value.keys() >= _IN_GOLDENGATE


_MARK = re.compile(".*_isMissing").fullmatch


def _goldengate(value: dict[str, Any]) -> MessageEvidence:
    rows = [
        {name: of for name, of in row.items() if not _MARK(name)}
        for row in (value.get("before"), value.get("after"))
        if isinstance(row, dict)
    ]
    # Its images are not whole by default.
    return MessageEvidence(
        str(value["table"]), _names(value.get("primary_keys")), _rows(rows), lacks_image=True
    )


def _is_dms(value: dict[str, Any]) -> bool:
    metadata = value.get("metadata")
    return isinstance(metadata, dict) and {"operation", "record-type"} <= metadata.keys()


def _dms(value: dict[str, Any]) -> MessageEvidence:
    metadata = value["metadata"]
    parts = (metadata.get(name) for name in ("schema-name", "table-name"))
    table = ".".join(map(str, parts))
    if metadata["record-type"] == "data":
        row, options = value.get("data"), {}
        if metadata["operation"] in ("update", "delete") and isinstance(row, dict):
            new = {name: of for name, of in row.items() if not _is_old(name, row)}
            options = {"before_prefix": _OLD} if len(new) < len(row) else {}
            row = new
        return MessageEvidence(table, rows=_rows([row]), options=options)
    control = value.get("control")
    table_def = control.get("table-def") if isinstance(control, dict) else None
    return MessageEvidence(
        table, _names(table_def.get("primary-key")) if isinstance(table_def, dict) else ()
    )


# The prefix of old columns in AWS's documentation.
_OLD = "BI_"


def _is_old(name: str, row: Mapping[str, Any]) -> bool:
    return name.startswith(_OLD) and name.removeprefix(_OLD) in row


_OF_MAXWELL = ROWS | SNAPSHOT


def _is_maxwell(value: dict[str, Any]) -> bool:
    return {"database", "table", "data"} <= value.keys() and value.get("type") in _OF_MAXWELL


def _maxwell(value: dict[str, Any]) -> MessageEvidence:
    if value["type"] not in ROWS:
        return MessageEvidence()
    table = f"{value['database']}.{value['table']}"
    return MessageEvidence(table, _names(value.get("primary_key_columns")), _rows([value["data"]]))


def _envelope(fields: str, places: str, **options: str) -> tuple[set[str], Mapping[str, str]]:
    """The fields that messages have, and the options: places and others.

    The places are the fields of the operation, of the rows before and after, and of the table.
    """
    names = ("op", "before", "after", "table")
    return {*fields.split()}, {**dict(zip(names, places.split(), strict=False)), **options}


_OF_SQL = {"op_insert": "INSERT", "op_update": "UPDATE", "op_delete": "DELETE"}
_OF_QLIK = {**_OF_SQL, "op_insert": "INSERT, REFRESH"}
# Of producers that `changes` reads.
_ENVELOPES: Sequence[tuple[set[str], Mapping[str, str]]] = (
    # Debezium's events in CloudEvents.
    _envelope("specversion data", "iodebeziumop data.before data.after iodebeziumtable"),
    # TiCDC's simple protocol.
    _envelope(
        "commitTs type",
        "type old data table",
        **_OF_SQL,
        op_truncate="TRUNCATE",
        op_ignore="WATERMARK, BOOTSTRAP, CREATE, ALTER, RENAME, ERASE, QUERY",
    ),
    # MongoDB's own connector.
    _envelope(
        "operationType ns",
        "operationType documentKey fullDocument ns.coll",
        op_insert="insert",
        op_update="update, replace",
        op_delete="delete",
        op_ignore="create, drop, dropDatabase, invalidate, modify, rename",
    ),
    # DynamoDB, whose changes may come again and in another order by way of Kinesis.
    _envelope(
        "eventName dynamodb",
        "eventName dynamodb.Keys dynamodb.NewImage tableName",
        op_insert="INSERT",
        op_update="MODIFY",
        op_delete="REMOVE",
        sequence="dynamodb.ApproximateCreationDateTime",
    ),
    # Qlik Replicate, with its envelope and without.
    _envelope(
        "magic message", "message.headers.operation message.beforeData message.data", **_OF_QLIK
    ),
    _envelope("headers data", "headers.operation beforeData data", **_OF_QLIK),
    # Striim.
    _envelope("metadata data", "metadata.OperationName before data metadata.TableName", **_OF_SQL),
    _envelope("", ""),
)
# Old images that are the key alone.
_KEYS_ALONE = ("documentKey", "dynamodb.Keys")
# GoldenGate's updates have only the changed columns by default.
_OF_ROWS = {"op": "op_type", "table": "table", "row_image": "minimal"}
_ROW_MODELLED: Sequence[tuple[set[str], Mapping[str, str]]] = (
    # Confluent's connector of Oracle; R is a row of a snapshot.
    ({*_OF_ORACLE}, {**_OF_ROWS, "op_insert": "R, I"}),
    (_IN_GOLDENGATE, _OF_ROWS),
)
_WORDS = {f"op_{name}": ", ".join(words) for name, words in WORDS.items()}


def options_of(value: dict[str, Any]) -> Mapping[str, str] | None:
    """The options that read a message as a change; None if no field has an operation."""
    for fields, options in _ROW_MODELLED if _is_row_modelled(value) else _ENVELOPES:
        words = ", ".join({**_WORDS, **options}[name] for name in _WORDS).split(", ")
        op = at(value, path_of(options.get("op", "op")))
        if op and fields <= value.keys() and op in words:
            return options
    return None


def _is_change(value: dict[str, Any]) -> bool:
    """Whether a field has an operation by its default word, or in an envelope of a producer."""
    return options_of(value) is not None


def change_of(value: dict[str, Any]) -> MessageEvidence:
    """The table, the key and the rows of a message that `changes` reads, and its options."""
    options = options_of(value) or {}
    table = str(at(value, path_of(options["table"]), "")) if "table" in options else ""
    if _is_row_modelled(value):
        added = (*_OF_GOLDENGATE, *(_OF_ORACLE if "op_insert" in options else ()))
        row = {name: of for name, of in value.items() if name not in added}
        key = _names(value.get("primary_keys"))
        return MessageEvidence(table, key, _rows([row]), lacks_image=True, options=options)
    row = {name: of for name, of in value.items() if name != "op"}
    paths = (path_of(options.get(name, name)) for name in ("before", "after"))
    before, after = (at(value, path, ...) for path in paths)
    images = [image for image in (before, after) if image is not ...]
    if options and not images:
        return MessageEvidence()
    inserts = options.get("op_insert", ", ".join(WORDS["insert"])).split(", ")
    is_insert = at(value, path_of(options.get("op", "op"))) in inserts
    lacks_image = not is_insert and not isinstance(before, dict)
    alone = options.get("before") in _KEYS_ALONE and isinstance(before, dict)
    key = tuple(before) if alone else ()
    return MessageEvidence(table, key, _rows(images or [row]), lacks_image, options=options)


def _is_cdcv2(value: dict[str, Any]) -> bool:
    return bool(value) and value.keys() <= {"updates", "progress"}


# Tried in this order, because a message of Canal has all fields of one of Maxwell.
LOOKS: Mapping[Format, _Looks] = {
    "debezium-json": _Looks(_is_debezium, _debezium),
    "debezium-flat-json": _Looks(_is_flat, _flat),
    "canal": _Looks(_is_canal, _canal),
    "goldengate": _Looks(_is_goldengate, _goldengate),
    "dms": _Looks(_is_dms, _dms),
    "maxwell": _Looks(_is_maxwell, _maxwell),
    "changes": _Looks(_is_change, change_of),
    "cdcv2-json": _Looks(_is_cdcv2, lambda value: MessageEvidence()),
}


def _names(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


class ProposedColumn(NamedTuple):
    """A column to declare, with a comment on what its values do not show."""

    name: str
    type: str
    encoding: str | None = None
    comment: str = ""


def columns_of(
    rows: Sequence[MessageRow], *, hints: bool = False, usual: WhenUsual = "never"
) -> tuple[tuple[ProposedColumn, ...], list[str]]:
    """Infer the columns of rows, in order; also list those that are always null.

    A column has the type that schemas give it, else one that takes its values.  `usual` is when
    the format has the usual encodings: always, so that JSON without one has to say that it is no
    text of a document; or never, so that they are declared where a schema names them.
    """
    kinds: dict[str, dict[ColumnKind, None]] = {}
    values: dict[str, list[Any]] = {}
    for row in rows:
        for name in row.values if row.kinds is None else {**row.kinds, **row.values}:
            kinds.setdefault(name, {})
            values.setdefault(name, [])
            if row.kinds is None:
                values[name].append(row.values.get(name))
            elif name in row.kinds:
                # The newest kind is the last.
                kinds[name].pop(row.kinds[name], None)
                kinds[name][row.kinds[name]] = None
    bare = any(row.kinds is None for row in rows)
    columns, unknown = [], []
    for name, of_schema in kinds.items():
        if of_schema:
            kind = common(tuple(of_schema))
            is_declared = bare or (usual == "never" and kind.encoding in USUAL.values())
            columns.append(ProposedColumn(name, kind.type, kind.encoding if is_declared else None))
            continue
        seen = of_values(values[name])
        if seen is None:
            unknown.append(name)
        comment = hint(values[name]) if hints else ""
        inferred = (seen or ColumnKind(JSON)).type
        plain = "plain" if usual == "always" and inferred == JSON else None
        columns.append(ProposedColumn(name, inferred, plain, comment))
    return tuple(columns), unknown
