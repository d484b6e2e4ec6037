"""Programs that write the canonical bytes of Avro messages, for `compiled._avro_text`.

Without Python data in between, a message takes a tenth of the time.  A program covers records,
simple types, fixed, enumerations, unions of null and one type, and arrays of these.  It writes
the same bytes as `canonical.write` would of the decoded data.  `Take` says which parts of a
message it writes: values, or some of the fields of records.
"""

import re
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ikebana.codecs import canonical
from ikebana.codecs.avro_compiler import ALL, Compiler, Fields
from ikebana.codecs.avro_values import CONVERTS, after, meaning_of
from ikebana.codecs.column_encodings import of_name
from ikebana.codecs.encodings import Convert
from ikebana.codecs.errors import DecodeError

try:
    from ikebana.compiled._avro_text import Program
except ImportError:
    Program = None  # type: ignore[assignment,misc]

Parts = Callable[[bytes, int], tuple[bytes | None, ...] | None]
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

    With `names`, only these fields of a record are taken; if `whole`, it must have all of them.
    Without `names`, the value must be a record only if `record` says so.
    """

    path: tuple[str, ...] = ()
    names: Collection[str] | None = None
    whole: bool = False
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
) -> Parts | None:
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
        if take.names is None:
            return at, step.order
        members = tuple(each for each in step.order if self.steps[each].key in take.names)
        if take.whole and len(members) < len(set(take.names)):
            raise _UncoveredError
        return at, members

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
        given_encoding = needs.encodings.get(name)
        encoding = given_encoding and self._compiler.node(field["type"], inner).open_to(
            given_encoding
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
    meaning = meaning_of(schema) if schema else None
    if meaning is None and context.encoding is None:
        return step
    if kind in ("null", "enum", "array") or (kind == "record" and meaning is None):
        raise _UncoveredError
    if meaning is None:
        assert context.encoding is not None
        return step._replace(form="", convert=after(convert, context.encoding))
    return _meant(step._replace(form="", convert=meaning), schema)


def _meant(step: ProgramStep, schema: Mapping[str, Any]) -> ProgramStep:
    """Plan how a value with a meaning is written, if there is a form for it."""
    name, logical = schema.get("connect.name"), schema.get("logicalType")
    kinds, form, scale = _KINDS_OF_FORMS.get(step.kind, ()), "", 0
    utc = False
    parameters = schema.get("connect.parameters")
    if of_name(name, parameters) is not None:
        form, scale = _SEMANTIC.get(name or "", ("", 0))
        if name == _DECIMAL:
            form, scale = "decimal", int((parameters or {})["scale"])
        utc = name == "io.debezium.time.ZonedTimestamp"
    elif logical == "decimal":
        form, scale = "decimal", int(schema.get("scale", 0))
    elif match := _LOGICAL.fullmatch(logical or ""):
        form, scale = match["form"] or "date", _DIGITS[match["unit"]]
        utc = logical is not None and logical.startswith("timestamp")
    if form not in kinds or not 0 <= scale <= _LARGEST_SCALE:
        return step
    return step._replace(form=form, scale=scale, utc=utc)


# Up to here a power of ten is exact as a double.
_LARGEST_SCALE = 22
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_DIGITS = {None: 0, "millis": 3, "micros": 6, "nanos": 9}
_LOGICAL = re.compile(r"date|(?:local-)?(?P<form>timestamp|time)-(?P<unit>millis|micros|nanos)")
_KINDS_OF_FORMS = {
    **dict.fromkeys(("int", "long"), ("date", "time", "timestamp")),
    **dict.fromkeys(("bytes", "fixed"), ("decimal",)),
    "string": ("zoned",),
}
_SEMANTIC = {
    "io.debezium.time.Date": ("date", 0),
    "io.debezium.time.Time": ("time", 3),
    "io.debezium.time.MicroTime": ("time", 6),
    "io.debezium.time.NanoTime": ("time", 9),
    "io.debezium.time.Timestamp": ("timestamp", 3),
    "io.debezium.time.MicroTimestamp": ("timestamp", 6),
    "io.debezium.time.NanoTimestamp": ("timestamp", 9),
    "io.debezium.time.ZonedTimestamp": ("zoned", 0),
    "io.debezium.time.IsoTimestamp": ("zoned", 0),
    "org.apache.kafka.connect.data.Date": ("date", 0),
    "org.apache.kafka.connect.data.Time": ("time", 3),
    "org.apache.kafka.connect.data.Timestamp": ("timestamp", 3),
}
