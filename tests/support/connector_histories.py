"""Histories of a table, as each connector writes them: in full, in part, before and after a change
of the table's columns.

A table has the columns id (its key), a and big, and from some time on b.  What happens is
drawn as `Happening`s; `FORMS` write them as messages.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hypothesis import strategies as st

from ikebana.codecs.change import Column
from ikebana.codecs.formats import Format
from ikebana.processor.planning.plan import Input, InputMode
from support.avro_messages import KnownSchemas, message

Row = dict[str, Any]
PLACEHOLDER = "__debezium_unavailable_value"
COLUMNS = (
    Column("id", "BIGINT"),
    Column("a", "BIGINT"),
    Column("b", "VARCHAR"),
    Column("big", "VARCHAR"),
)


class Happening(NamedTuple):
    """What happens to a row, and how much of it a message tells.

    `unchanged` are columns of the new row that it need not have, `unknown` those of the old
    one that it lacks; None: it has no old row at all.
    """

    before: Row | None
    after: Row | None
    unchanged: frozenset[str] = frozenset()
    unknown: frozenset[str] | None = frozenset()

    @property
    def op(self) -> str:
        """Debezium's name of it."""
        return "d" if self.after is None else "c" if self.before is None else "u"

    @property
    def key(self) -> Row:
        """The key of the row as it is now, or was last."""
        row = self.after or self.before
        assert row is not None
        return {"id": row["id"]}

    def old(self) -> Row | None:
        """What the message has of the old row."""
        if self.before is None or self.unknown is None:
            return None
        return {name: value for name, value in self.before.items() if name not in self.unknown}

    def new(self) -> Row | None:
        """What the message has of the new row, where it leaves out what has not changed."""
        if self.after is None:
            return None
        return {name: value for name, value in self.after.items() if name not in self.unchanged}


@st.composite
def happenings(draw: st.DrawFn) -> list[Happening]:
    """A history of few rows."""
    current: dict[int, Row] = {}
    found = []
    younger = draw(st.integers(0, 4))
    some = st.frozensets(st.sampled_from(["a", "b", "big"]), max_size=2)
    unknown = st.sampled_from([frozenset[str](), frozenset[str](), None]) | some
    for at in range(draw(st.integers(1, 6))):
        number = draw(st.integers(0, 2))
        before = current.get(number)
        if before is None and draw(st.integers(0, 5)) == 0:
            # A row that was there before anybody listened.
            before = {"id": number, "a": 0, "big": "z"}
        row: Row = {"id": number, "a": draw(st.sampled_from([None, 1, 2, 3]))}
        row["big"] = draw(st.sampled_from([None, "x", "y"]))
        if at >= younger:
            row["b"] = draw(st.sampled_from([None, "p", "q"]))
        if before is not None and draw(st.integers(0, 3)) == 0:
            current.pop(number, None)
            found.append(Happening(before, None, frozenset(), draw(unknown)))
            continue
        left: frozenset[str] = frozenset()
        if before is not None:
            left = draw(some) & row.keys() & before.keys()
            row |= {name: before[name] for name in left}
            if draw(st.integers(0, 5)) == 0:
                row["id"] = 3 - number
                current.pop(number, None)
        current[row["id"]] = row
        found.append(Happening(before, row, left, draw(unknown)))
    return found


class Form(NamedTuple):
    """A format as some connector writes it: the input, and the messages of a happening."""

    format: Format
    write: Callable[[Happening], list[Any]]
    options: Mapping[str, str] = {}
    modes: tuple[InputMode, ...] = ("upsert", "diffs")
    needs_key: bool = False
    needs_columns: bool = False

    def input(self, mode: InputMode, *, declared: bool, keyed: bool) -> Input:
        """An input that reads it, which may declare columns and key."""
        return Input(
            "t",
            ("t",),
            self.format,
            mode=mode,
            columns=COLUMNS if declared or self.needs_columns else (),
            key=("id",) if keyed or (self.needs_key and mode == "upsert") else (),
            options=tuple(self.options.items()),
        )


def _unavailable(happening: Happening) -> Row | None:
    if happening.after is None:
        return None
    return {n: PLACEHOLDER if n in happening.unchanged else v for n, v in happening.after.items()}


def _envelope(happening: Happening) -> Row:
    return {"op": happening.op, "before": happening.old(), "after": _unavailable(happening)}


def _without_op(happening: Happening) -> list[Any]:
    envelope = _envelope(happening)
    del envelope["op"]
    return [envelope]


def _flat(happening: Happening) -> list[Any]:
    row = _unavailable(happening)
    if row is None:
        return [{**(happening.old() or happening.key), "__deleted": "true"}, None]
    return [{**row, "__deleted": "false", "__op": happening.op}]


def _changed(happening: Happening) -> Row:
    """What the columns that have changed had before, as far as the message tells."""
    old, new = happening.old() or {}, happening.after or {}
    return {name: value for name, value in old.items() if new.get(name, ...) != value}


def _maxwell(happening: Happening, *, minimal: bool = False, nulls: bool = True) -> list[Any]:
    row = happening.new() if minimal else happening.after
    if row is None:
        row = happening.key if minimal else happening.before or {}
    if not nulls:
        row = {name: value for name, value in row.items() if value is not None}
    kind = {"c": "insert", "u": "update", "d": "delete"}[happening.op]
    message = {"database": "d", "table": "t", "type": kind, "primary_key_columns": ["id"]}
    return [{**message, "data": row, "old": _changed(happening) if kind == "update" else None}]


def _canal(happening: Happening, *, minimal: bool = False, typed: bool = True) -> list[Any]:
    (message,) = _maxwell(happening, minimal=minimal)
    texts = [
        row and {name: None if value is None else str(value) for name, value in row.items()}
        for row in (message["data"], message["old"])
    ]
    types = {"id": "int", "a": "bigint", "b": "text", "big": "text"}
    return [
        {
            "database": "d",
            "table": "t",
            "type": message["type"].upper(),
            "pkNames": ["id"],
            "isDdl": False,
            "data": texts[:1],
            "old": texts[1:] if texts[1] else None,
            "mysqlType": types if typed else None,
        }
    ]


def _goldengate(happening: Happening, *, minimal: bool = True, marked: bool = False) -> list[Any]:
    after = happening.new() if minimal else happening.after
    before = happening.old()
    if happening.op == "d" and before is None:
        before = happening.key
    if marked and after is not None:
        missing = {n: n not in after for n in ("id", "a", "b", "big")}
        after = {**after, **{f"{name}_isMissing": gone for name, gone in missing.items()}}
    operation = {"c": "I", "u": "U", "d": "D"}[happening.op]
    message = {"table": "D.T", "op_type": operation, "primary_keys": ["id"]}
    return [{**message, "before": before, "after": after}]


def _dms(happening: Happening, *, prefix: str = "", everything: bool = False) -> list[Any]:
    operation = {"c": "insert", "u": "update", "d": "delete"}[happening.op]
    old = happening.before if everything else happening.old()
    row = happening.after or (happening.before if happening.unknown is not None else happening.key)
    data, before = (
        {name: value for name, value in (image or {}).items() if value is not None}
        for image in (row, old)
    )
    metadata = {"record-type": "data", "operation": operation}
    message: Row = {
        "metadata": {**metadata, "schema-name": "d", "table-name": "t"},
        "data": {
            **data,
            **({prefix + name: value for name, value in before.items()} if prefix else {}),
        },
    }
    return [message if prefix else {**message, "before-image": before or None}]


def _images(happening: Happening, *, minimal: bool = False) -> list[Any]:
    after = happening.new() if minimal else happening.after
    operation = {"c": "I", "u": "U", "d": "D"}[happening.op]
    return [{"op": operation, "before": happening.old(), "after": after}]


def _retracting(happening: Happening) -> list[Any]:
    """Flink's pairs: the old row goes, and the new one comes."""
    old, new, is_update = happening.before, happening.after, happening.op == "u"
    gone = [{**old, "op": "-U" if is_update else "-D"}] if old else []
    return [*gone, *([{**new, "op": "+U" if is_update else "+I"}] if new else [])]


def _flagged(happening: Happening) -> list[Any]:
    row = happening.after or happening.before or {}
    return [{**row, "gone": happening.after is None}]


def _images_in_avro(happening: Happening) -> list[Any]:
    younger = any("b" in (row or {}) for row in (happening.old(), happening.after))
    old = happening.old()
    if old is not None:
        old = {**dict.fromkeys(happening.before or ()), **old}
    event = {"before": old, "after": happening.after, "op": happening.op}
    return [in_avro(3 if younger else 2, event)]


def _optional(name: str, kind: str) -> Row:
    return {"name": name, "type": ["null", kind], "default": None}


def _schema(*, younger: bool) -> Row:
    fields = [{"name": "id", "type": "long"}, _optional("a", "long"), _optional("big", "string")]
    value = {
        "type": "record",
        "name": "Value",
        "fields": [*fields, _optional("b", "string")] if younger else fields,
    }
    return {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", value]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ],
    }


KEY_SCHEMA = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
SCHEMAS: dict[int | str, Any] = {
    1: KEY_SCHEMA,
    2: _schema(younger=False),
    3: _schema(younger=True),
}
KNOWN = KnownSchemas(SCHEMAS)


def in_avro(number: int, data: Any) -> bytes:
    """Data as a message of a schema."""
    return message(number, SCHEMAS[number], data)


def _avro(happening: Happening) -> list[Any]:
    # A text may be unavailable; of an old row, all that it does not know is null.
    unavailable = {"b", "big"} & happening.unchanged
    after = happening._replace(unchanged=frozenset(unavailable))
    old = happening.old()
    if old is not None:
        old = {**dict.fromkeys(happening.before or ()), **old}
    envelope = {**_envelope(after), "before": old}
    younger = any("b" in (row or {}) for row in (old, envelope["after"]))
    return [in_avro(3 if younger else 2, envelope)]


def _bare(happening: Happening) -> list[Any]:
    envelope = _envelope(happening)
    return [envelope] if happening.after else [envelope, None]


FORMS: dict[str, Form] = {
    "debezium-json": Form("debezium-json", _bare),
    "debezium-json, payload": Form("debezium-json", lambda h: [{"payload": _envelope(h)}]),
    "debezium-json, no op": Form("debezium-json", _without_op),
    "debezium-avro": Form("debezium-avro", _avro),
    "debezium-flat-json": Form("debezium-flat-json", _flat, modes=("upsert",)),
    "maxwell": Form("maxwell", _maxwell),
    "maxwell, minimal": Form(
        "maxwell", lambda h: _maxwell(h, minimal=True), {"row_image": "minimal"}
    ),
    "maxwell, no nulls": Form(
        "maxwell", lambda h: _maxwell(h, nulls=False), {"output_nulls": "false"}
    ),
    "canal": Form("canal", _canal),
    "canal, untyped": Form("canal", lambda h: _canal(h, typed=False), needs_columns=True),
    "canal, minimal": Form("canal", lambda h: _canal(h, minimal=True), {"row_image": "minimal"}),
    "goldengate": Form("goldengate", _goldengate),
    "goldengate, marked": Form("goldengate", lambda h: _goldengate(h, marked=True)),
    "goldengate, full": Form(
        "goldengate", lambda h: _goldengate(h, minimal=False), {"row_image": "full"}
    ),
    "dms": Form("dms", _dms, needs_key=True),
    "dms, all": Form(
        "dms", lambda h: _dms(h, everything=True), {"before_filter": "all"}, needs_key=True
    ),
    "dms, prefix": Form(
        "dms", lambda h: _dms(h, prefix="BI_"), {"before_prefix": "BI_"}, needs_key=True
    ),
    "changes": Form("changes", _images),
    "changes, minimal": Form(
        "changes",
        lambda h: _images(h, minimal=True),
        {"row_image": "minimal"},
        needs_columns=True,
    ),
    "changes, retracting": Form("changes", _retracting),
    "changes, flagged": Form("changes", _flagged, {"deleted": "gone"}, modes=("upsert",)),
    "changes-avro": Form("changes-avro", _images_in_avro),
}


def messages(form: Form, history: list[Happening], *, keyed: bool) -> list[tuple[Any, Any, int]]:
    """The messages of a history, with or without Kafka keys, each at a time of its own."""
    found: list[tuple[Any, Any, int]] = []
    for happening in history:
        for value in form.write(happening):
            key: Any = happening.key if keyed else None
            if form.format.endswith("-avro") and key is not None:
                key = in_avro(1, key)
            elif key is not None:
                key = json.dumps(key, separators=(",", ":")).encode()
            found.append((key, value, len(found)))
    return found
