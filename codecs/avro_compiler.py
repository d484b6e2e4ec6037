"""Avro schemas, compiled: to conversions of fastavro's values, and to programs of compiled code.

fastavro reads all of a body, without logical types, and fields that are not needed are dropped
unconverted.  A reader schema of the needed fields alone is no faster (14.3 us, against
13.8 us for the whole of a Debezium envelope), and its skipping passes over a cut-off end.

A program writes the canonical bytes of messages without Python data in between, in a tenth of the
time (`compiled._avro_text`).  It covers records, simple types, fixed, enumerations, unions of null
and one type, and arrays of these, and writes the same bytes as `canonical.write` would of the
decoded data.  `Take` says which parts of a message it writes: values, or some of the fields of
records.
"""

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ikebana.codecs import canonical
from ikebana.codecs.avro_schema import (
    CONVERTS,
    SIMPLE,
    SchemaUnknown,
    as_bytes,
    base64,
    composed,
    converted,
    either,
    meaning_of,
    of_items,
    of_record,
    semantics_of,
    unless,
)
from ikebana.codecs.column_encodings import Encoding
from ikebana.codecs.encodings import Convert
from ikebana.codecs.errors import DecodeError

try:
    from ikebana.compiled._avro_text import Program
except ImportError:
    Program = None  # type: ignore[assignment,misc]


class Fields(NamedTuple):
    """The fields of a record to decode, and the encodings of their values.

    * `only`: the fields to decode, None for all, each with the fields of its own record.
    * `encodings`: the encodings of fields, for types that leave the meaning open.
    * `absent`: a test of the values that Avro has; a field that passes becomes UNSET.
    * `converted`: with `absent`, the fields to convert, None for all.  The others are only tested.
    * `judges`: whether a value of a field that contradicts the schema is an error, or stays
      unchanged; None if it is an error in all fields.
    * `tolerant`: whether such values stay unchanged, at any depth.
    """

    only: Mapping[str, "Fields"] | None = None
    encodings: Mapping[str, Encoding] = {}
    absent: Callable[[Any], bool] | None = None
    converted: Collection[str] | None = None
    judges: Callable[[str], bool] | None = None
    tolerant: bool = False

    def within(self, name: str) -> "Fields":
        """The fields to decode within a field."""
        inner = ALL if self.only is None else self.only.get(name, ALL)
        is_judged = self.judges is None or self.judges(name)
        return TOLERANT if inner is ALL and (self.tolerant or not is_judged) else inner


ALL = Fields()
TOLERANT = Fields(tolerant=True)


class CompiledType(NamedTuple):
    """A type, compiled."""

    bare: Any
    """The type without logical types, for fastavro."""
    convert: Convert | None = None
    """Converts the values of fastavro, except null, to JSON data; None if they are JSON data."""
    least: int = 1
    """The least size of a value: 0 if it may take no bytes, else 1."""
    meant: bool = False
    """Whether the schema defines the meaning of the value."""
    kind: str = ""
    """The kind of type; "" for several."""
    name: str | None = None
    """Connect's name of the type."""
    items: "CompiledType | None" = None
    """The items, if values are arrays."""

    def open_to(self, encoding: Encoding | None) -> Convert | None:
        """The conversion of an encoding, if the schema leaves the value's meaning open."""
        if encoding is None or self.meant:
            return None
        if encoding.items is not None:
            return encoding.convert if self.items and self.items.open_to(encoding.items) else None
        return encoding.convert if encoding.fits(self.kind, self.name) else None


class Compiler:
    """Compiles a self-contained schema to nodes; a pinned one keeps its defaults.

    If messages are not resolved by another schema, fastavro's values of a union show their branch
    (`apart`).
    """

    def __init__(self, *, pinned: bool, apart: bool = False) -> None:
        self._pinned, self._apart = pinned, apart
        self._branches = 0
        self.types: dict[str, Any] = {}
        """The schemas of all named types, by name."""
        self._open: list[str] = []
        self._records: dict[tuple[str, int], CompiledType] = {}
        self.recursive = False

    def node(self, schema: Any, needs: Fields = ALL) -> CompiledType:
        """Compile a schema.  Raises: SchemaUnknown, if its values cannot be decoded."""
        if isinstance(schema, list):
            return self._union(schema, needs)
        if isinstance(schema, str):
            if schema in SIMPLE:
                return self._of_kind(schema, {}, needs)
            self.recursive |= schema in self._open
            node = self._records.get((schema, id(needs)))
            return (node or self.node(self.types[schema], needs))._replace(bare=schema)
        node = self._of_kind(schema["type"], schema, needs)
        node = node._replace(name=schema.get("connect.name"))
        meaning = meaning_of(schema)
        if meaning is None:
            return node
        raw = self._pinned and schema["type"] in ("bytes", "fixed")
        convert = composed(as_bytes, meaning) if raw else meaning
        if needs.tolerant:
            convert = either(convert, node.convert)
        node = node._replace(convert=convert, meant=True)
        if schema["type"] == "record":
            # A later reference by name has the same meaning.
            self._records[schema["name"], id(needs)] = node
        return node

    def _of_kind(self, kind: str, schema: Mapping[str, Any], needs: Fields) -> CompiledType:
        match kind:
            case "record":
                return self._record(schema, needs)
            case "array":
                items = self.node(schema["items"], TOLERANT if needs.tolerant else ALL)
                if items.least == 0:
                    # Nine bytes of a message could ask for 2^62 items, which all take memory.
                    raise SchemaUnknown("its schema has an array of items without bytes")
                bare = {"type": kind, "items": items.bare}
                return CompiledType(bare, of_items(items.convert, list), kind=kind, items=items)
            case "map":
                values = self.node(schema["values"], TOLERANT if needs.tolerant else ALL)
                return CompiledType(
                    {"type": kind, "values": values.bare}, of_items(values.convert, dict)
                )
            case "enum" | "fixed":
                self.types[schema["name"]] = schema
                least = min(1, schema["size"]) if kind == "fixed" else 1
                return CompiledType(
                    self._form(schema), base64 if kind == "fixed" else None, least, kind=kind
                )
        return CompiledType(kind, CONVERTS.get(kind), int(kind != "null"), kind=kind)

    def _record(self, schema: Mapping[str, Any], needs: Fields) -> CompiledType:
        name, only = schema["name"], needs.only
        self.types[name] = schema
        # A record within itself gets this node; its conversion is known only at the end.
        late: list[Convert | None] = [None]
        self._records[name, id(needs)] = CompiledType(
            name, lambda value: converted(late[0], value)
        )
        self._open.append(name)
        fields, least, names, converts = [], 0, [], []
        for field in schema["fields"]:
            here = field["name"]
            node = self.node(field["type"], needs.within(here))
            form = self._form(field)
            if "default" in form:
                form["default"] = self._filled(form["default"], field["type"])
            fields.append({**form, "type": node.bare})
            least |= node.least
            if only is not None and here not in only:
                continue
            names.append(here)
            convert = node.convert
            if declared := node.open_to(needs.encodings.get(here)):
                convert = composed(convert, declared)
            if needs.converted is not None and here not in needs.converted:
                convert = None
            if convert:
                converts.append((here, convert))
        self._open.pop()
        bare = {**self._form(schema), "fields": fields}
        if needs.absent:
            absent = needs.absent
            late[0] = of_record(names, [
                (here, unless(absent, dict(converts).get(here))) for here in names
            ])  # fmt: skip
        else:
            late[0] = of_record(names if len(names) < len(fields) else None, converts)
        done = self._records[name, id(needs)] = CompiledType(bare, late[0], least)
        return done

    def _filled(self, default: Any, schema: Any) -> Any:
        """A default with those of the fields that it leaves out."""
        if isinstance(schema, list):
            schema = schema[0]
        schema = self.types.get(schema) if isinstance(schema, str) else schema
        if schema is None:
            return default
        if schema["type"] == "record" and isinstance(default, dict):
            return {
                field["name"]: self._filled(
                    default.get(field["name"], field.get("default")), field["type"]
                )
                for field in schema["fields"]
                if field["name"] in default or "default" in field
            }
        if schema["type"] == "array" and isinstance(default, list):
            return [self._filled(item, schema["items"]) for item in default]
        if schema["type"] == "map" and isinstance(default, dict):
            return {name: self._filled(each, schema["values"]) for name, each in default.items()}
        return default

    def _form(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        # Defaults of writers are not used, and some of them are invalid.
        parts = ("default", *_FORM) if self._pinned else _FORM
        return {part: schema[part] for part in parts if part in schema}

    def _union(self, branches: list[Any], needs: Fields) -> CompiledType:
        nodes = [self.node(branch, needs) for branch in branches]
        bare, others = [node.bare for node in nodes], [n for n in nodes if n.bare != "null"]
        if len(others) == 1:
            return others[0]._replace(bare=bare, least=1)
        meant = any(node.meant for node in others)
        if self._apart:
            return CompiledType(*self._tagged_union(nodes), 1, meant)
        by_type: dict[Any, Convert | None] = {}
        by_fields: dict[frozenset[str], Convert | None] = {}
        for node in others:
            schema = self.types.get(node.bare, {}) if isinstance(node.bare, str) else node.bare
            kind = schema.get("type", node.bare)
            if kind == "record":
                table: dict[Any, Convert | None] = by_fields
                here: Any = frozenset(field["name"] for field in schema["fields"])
            else:
                table, here = by_type, _READ_AS[kind]
            if table.setdefault(here, node.convert) is not node.convert or (
                by_fields and dict in by_type
            ):
                raise SchemaUnknown("its schema has a union whose values cannot be told apart")
        if not any(node.convert for node in others):
            return CompiledType(bare)

        def convert(value: Any) -> Any:
            if by_fields and value.__class__ is dict:
                return converted(by_fields.get(frozenset(value)), value)
            return converted(by_type.get(value.__class__), value)

        return CompiledType(bare, convert, 1, meant)

    def _tagged_union(self, nodes: Sequence[CompiledType]) -> tuple[Any, Convert]:
        """A union with each branch in a record of one field, which takes no more bytes.

        Without it, a float and a double, or two records with the same fields, are the same
        data to fastavro.
        """
        bare: list[Any] = []
        converts: dict[str, Convert | None] = {}
        for node in nodes:
            if node.bare == "null":
                bare.append("null")
                continue
            self._branches += 1
            name = f"branch{self._branches}"
            field = {"name": name, "type": node.bare}
            bare.append({"type": "record", "name": f"ikebana.{name}", "fields": [field]})
            converts[name] = node.convert

        def convert(value: Any) -> Any:
            ((name, inner),) = value.items()
            return converted(converts[name], inner)

        return bare, convert


# The attributes that make up the form of a type or a field.
_FORM = ("type", "name", "aliases", "symbols", "size")
_READ_AS = {
    **{"boolean": bool, "int": int, "long": int, "float": float, "double": float},
    **{"bytes": bytes, "fixed": bytes, "string": str, "enum": str, "array": list, "map": dict},
}


def require_same_meaning(
    writer: Any, reader: Any, types: tuple[dict[str, Any], dict[str, Any]], seen: set[Any]
) -> None:
    """Refuse a reader schema that reads the same digits with another scale, unit or meaning."""
    writer, reader = _one(writer, types[0]), _one(reader, types[1])
    if not isinstance(writer, dict) or not isinstance(reader, dict):
        return
    for inner in ("items", "values"):
        if inner in writer and inner in reader:
            require_same_meaning(writer[inner], reader[inner], types, seen)
    if "fields" in writer and "fields" in reader:
        if (pair := (writer["name"], reader["name"])) in seen:
            return
        seen.add(pair)
        written = {field["name"]: field["type"] for field in writer["fields"]}
        for field in reader["fields"]:
            for name in (field["name"], *field.get("aliases", ())):
                if name in written:
                    require_same_meaning(written[name], field["type"], types, seen)
    senses = [
        (one.get("logicalType"), one.get("scale", 0), one.get("connect.name"))
        for one in (writer, reader)
        if meaning_of(one)
    ]
    if len(senses) == 2 and senses[0] != senses[1]:
        raise SchemaUnknown("its schema and the pinned one differ in what a field means")


def _one(schema: Any, types: Mapping[str, Any]) -> Any:
    """Resolve an optional type to its one branch, and a name to its type."""
    if isinstance(schema, list) and len(others := [s for s in schema if s != "null"]) == 1:
        schema = others[0]
    return types.get(schema, schema) if isinstance(schema, str) else schema


TakeTexts = Callable[[bytes, int], tuple[bytes | None, ...] | None]
"""From a message and the index of its body to the texts of its `Take`s; a text is None for null,
and the whole is None if the message is unusual."""

# The exceptions at an unusual message.
_IRREGULAR = (
    *(ArithmeticError, DecodeError, IndexError, KeyError, MemoryError, OverflowError),
    *(TypeError, ValueError, struct.error),
    *canonical.REFUSALS,
)
_MOST_STEPS = 5_000
_DEEPEST = 20


class Take(NamedTuple):
    """A part of a message to take: the value at a path of fields, which is empty or a name.

    With `names`, only these fields of a record are taken; a record must have the `required` ones.
    Without `names`, the value must be a record only if `record` says so.
    """

    path: tuple[str, ...] = ()
    names: Collection[str] | None = None
    required: Collection[str] = ()
    record: bool = False


class ProgramStep(NamedTuple):
    """A type at its place in a schema, as `compiled._avro_text` takes it.

    `null` is the index of null in a union; `form` says how a value is written, "" if by `convert`
    alone.  A value is skipped unless it is `wanted`.  The fields of a record, and the items of an
    array, are `length` steps from `first` on; `order` has the indexes of the wanted fields in the
    order of their names.  A record is `loose` if it is not needed as one text.
    """

    kind: str
    form: str = "own"
    null: int | None = None
    name: bytes = b""
    key: str = ""
    wanted: bool = True
    scale: int = 0
    utc: bool = False
    size: int = 0
    convert: Convert | None = None
    symbols: tuple[bytes, ...] = ()
    first: int = 0
    length: int = 0
    order: tuple[int, ...] = ()
    loose: bool = False


class _UncoveredError(Exception):
    """A schema that has no program."""


def program_of(
    schema: Any, compiler: Compiler, needs: Fields, takes: Sequence[Take | None]
) -> TakeTexts | None:
    """Make the program of a schema that a compiler has compiled; None if it is not covered."""
    if Program is None or compiler.recursive:
        return None
    # A record with single fields taken does not become one text.
    assert len({bool(take.path) for take in takes if take is not None}) < 2, "whole, or fields"
    planning = _Planning(compiler)
    try:
        planning.place(0, "", schema, _Context(needs))
        parts = [None if take is None else planning.take(take) for take in takes]
        return Program(planning.steps, parts, canonical.write, _IRREGULAR).parts
    except (_UncoveredError, TypeError, *canonical.REFUSALS):
        # A schema may have names and sizes that fastavro accepts, but programs do not.
        return None


class _Context(NamedTuple):
    """The context of a value's type; without `needs` the value is skipped."""

    needs: Fields | None
    encoding: Convert | None = None
    raw: bool = False
    depth: int = 0


class _Planning:
    """The steps of a program; the fields of a record are consecutive steps."""

    def __init__(self, compiler: Compiler) -> None:
        self.steps: list[ProgramStep] = [ProgramStep("null")]
        self._compiler = compiler

    def take(self, take: Take) -> tuple[int, tuple[int, ...] | None]:
        """Find the step of a `Take`, and its fields if it is a record."""
        at = 0
        for name in take.path:
            self._loosen(at)
            at = self._field(self.steps[at], name)
        step = self.steps[at]
        if step.kind != "record" or step.form != "own":
            if take.names is not None or take.record:
                raise _UncoveredError
            return at, None
        self._loosen(at)
        if not {*take.required} <= {self.steps[each].key for each in step.order}:
            raise _UncoveredError
        if take.names is None:
            return at, step.order
        return at, tuple(each for each in step.order if self.steps[each].key in take.names)

    def _loosen(self, at: int) -> None:
        self.steps[at] = self.steps[at]._replace(loose=True)

    def _field(self, step: ProgramStep, name: str) -> int:
        for at in step.order:
            if self.steps[at].key == name:
                return at
        raise _UncoveredError

    def place(self, at: int, name: str, schema: Any, context: _Context) -> None:
        """Plan a value, at the place of its step, with the name of its field."""
        if context.depth > _DEEPEST:
            raise _UncoveredError
        schema = self._resolved(schema)
        null = None
        if isinstance(schema, list):
            if len(schema) != 2 or schema.count("null") != 1:
                raise _UncoveredError
            null = schema.index("null")
            schema = self._resolved(schema[1 - null])
        kind = schema if isinstance(schema, str) else schema["type"]
        form: Mapping[str, Any] = {} if isinstance(schema, str) else schema
        step = _step(kind, form, context)
        self.steps[at] = step._replace(null=null, key=name, wanted=context.needs is not None)
        if kind == "array":
            self._items(at, form["items"], context)
        if kind == "record":
            self._fields(at, form["fields"], context._replace(raw=context.raw or step.form == ""))

    def _fields(self, at: int, fields: Sequence[Mapping[str, Any]], context: _Context) -> None:
        first, count = len(self.steps), len(fields)
        names = [field["name"] for field in fields]
        if first + count > _MOST_STEPS or len(set(names)) < count:
            raise _UncoveredError
        self.steps += [ProgramStep("null")] * count
        fields_read = []
        for place, field in enumerate(fields, first):
            inner = self._context(field, context)
            self.place(place, field["name"], field["type"], inner)
            begin = canonical.write(field["name"]) + b":"
            self.steps[place] = self.steps[place]._replace(name=begin)
            if inner.needs is not None:
                fields_read.append((field["name"], place))
        order = tuple(place for _, place in sorted(fields_read))
        self.steps[at] = self.steps[at]._replace(first=first, length=count, order=order)

    def _items(self, at: int, schema: Any, context: _Context) -> None:
        first = len(self.steps)
        if first >= _MOST_STEPS or context.raw or context.encoding is not None:
            raise _UncoveredError
        self.steps.append(ProgramStep("null"))
        needs = None if context.needs is None else ALL
        self.place(first, "", schema, _Context(needs, depth=context.depth + 1))
        self.steps[at] = self.steps[at]._replace(first=first, length=1)

    def _context(self, field: Mapping[str, Any], context: _Context) -> _Context:
        needs, depth = context.needs, context.depth + 1
        if needs is None:
            return _Context(None, depth=depth)
        if context.raw:
            return _Context(ALL, raw=True, depth=depth)
        if needs.absent is not None or needs.converted is not None:
            raise _UncoveredError
        name = field["name"]
        if needs.only is not None and name not in needs.only:
            return _Context(None, depth=depth)
        inner = ALL if needs.only is None else needs.only[name]
        declared_encoding = needs.encodings.get(name)
        encoding = declared_encoding and self._compiler.node(field["type"], inner).open_to(
            declared_encoding
        )
        return _Context(inner, encoding, depth=depth)

    def _resolved(self, schema: Any) -> Any:
        if isinstance(schema, str):
            return self._compiler.types.get(schema, schema)
        return schema


def _step(kind: str, schema: Mapping[str, Any], context: _Context) -> ProgramStep:
    """Plan how a value is read, and written if it is needed."""
    # A fixed is base64 as bytes are.
    convert = CONVERTS.get("bytes" if kind == "fixed" else kind)
    match kind:
        case "fixed":
            step = ProgramStep(kind, convert=convert, size=int(schema["size"]))
        case "enum":
            symbols = tuple(canonical.write(symbol) for symbol in schema["symbols"])
            step = ProgramStep(kind, symbols=symbols)
        case "null" | "boolean" | "int" | "long" | "float" | "double" | "string" | "bytes":
            step = ProgramStep(kind, convert=convert)
        case "record" | "array":
            step = ProgramStep(kind)
        case _:
            raise _UncoveredError
    if context.needs is None or context.raw:
        return step
    meaning = semantics_of(schema) if schema else None
    meant = None if meaning is None else meaning.convert
    if meant is None and context.encoding is None:
        return step
    if kind in ("null", "enum", "array") or (kind == "record" and meant is None):
        raise _UncoveredError
    if meaning is None or meant is None:
        assert context.encoding is not None
        return step._replace(form="", convert=composed(convert, context.encoding))
    form, digits, utc = meaning.form
    if form not in _FORMS.get(kind, ()) or not 0 <= digits <= _LARGEST_SCALE:
        form, digits, utc = "", 0, False
    return step._replace(form=form, convert=meant, scale=digits, utc=utc)


# Up to here a power of ten is exact as a double.
_LARGEST_SCALE = 22
_FORMS = {
    **dict.fromkeys(("int", "long"), ("date", "time", "timestamp")),
    **dict.fromkeys(("bytes", "fixed"), ("decimal",)),
    "string": ("zoned",),
}
