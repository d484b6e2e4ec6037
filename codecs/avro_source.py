"""Avro readers as Python source, each made for one schema; fastavro looks at it for each value.

A reader goes over the bytes of a message once: it decodes the fields that are wanted, converts
their values, and passes over the others without making objects of them.  It covers records,
simple types, fixed, enumerations, and unions of null and one type; other schemas have no reader.
It raises an exception at whatever is not as usual.  `codecs.avro` then leaves the message to
fastavro, so that the two agree in whatever is accepted, and one of them says what is wrong.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

from ikebana.codecs.avro_compiler import ALL, Compiler, Fields
from ikebana.codecs.avro_values import CONVERTS, meaning_of
from ikebana.codecs.encodings import Convert
from ikebana.codecs.errors import DecodeError

Read = Callable[[bytes, int], Any]
"""From a message and the index of its body to the converted value."""

# Larger schemas would make more code than a message is worth.
_MOST_LINES = 20_000
_DEEPEST = 20
_SIZES = {"float": "<f", "double": "<d"}


class IrregularError(ValueError):
    """A value that the reader leaves to fastavro."""


class _UncoveredError(Exception):
    """A schema that has no reader."""


def reader_of(schema: Any, compiler: Compiler, wanted: Fields) -> Read | None:
    """Make the reader of a schema that a compiler has compiled; None if it is not covered."""
    if compiler.recursive:
        return None
    writing = _Source(compiler)
    try:
        value = writing.read(schema, wanted, 1)
    except _UncoveredError:
        return None
    body = "\n".join(writing.lines)
    source = f"def read(m, i):\n{body}\n if i != len(m): raise irregular\n return {value}\n"
    exec(compile(source, "<avro>", "exec"), writing.names)
    made: Read = writing.names["read"]
    return made


class _Source:
    """The lines of a reader, and the objects that they name.

    In them `m` is the message and `i` the index that has been reached.
    """

    def __init__(self, compiler: Compiler) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "irregular": IrregularError,
            "small": _SMALL,
            "long": _long,
            "skip": _skip,
            "text": _text,
            "double": CONVERTS["double"],
            **{kind: struct.Struct(form).unpack_from for kind, form in _AS_NAMES.items()},
        }
        self._compiler = compiler
        self._values = 0

    def read(self, schema: Any, wanted: Fields, depth: int, *, raw: bool = False) -> str:
        """Write what reads a value, and return the expression for it.

        With `raw`, values stay as they are in Avro, because the conversion is of all of them.
        """
        if depth > _DEEPEST or len(self.lines) > _MOST_LINES:
            raise _UncoveredError
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return self._optional(
                schema, depth, lambda of: self.read(of, wanted, depth + 1, raw=raw)
            )
        kind = schema if isinstance(schema, str) else schema["type"]
        form: Mapping[str, Any] = {} if isinstance(schema, str) else schema
        meaning = None if raw or not form else meaning_of(form)
        if kind == "record":
            value = self._record(form, wanted, depth, raw=raw or meaning is not None)
            return self._converted(value, meaning, depth)
        value = self._new()
        self._simple(kind, form, value, depth)
        if raw:
            return value
        if kind == "double" and meaning is None:
            # Others may be whole numbers, or be written with an exponent.
            self._line(depth, f"if not 1e-3 <= {value} < 1e9 or {value}.is_integer():")
            self._line(depth, f" {value} = double({value})")
            return value
        return self._converted(value, meaning or usual(kind), depth)

    def skip(self, schema: Any, depth: int) -> None:
        """Write what passes over a value."""
        if depth > _DEEPEST or len(self.lines) > _MOST_LINES:
            raise _UncoveredError
        schema = self._resolved(schema)
        if isinstance(schema, list):
            self._optional(schema, depth, lambda of: self.skip(of, depth + 1))
            return
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "record":
                for field in schema["fields"]:
                    self.skip(field["type"], depth)
            case "int" | "long":
                self._line(depth, "if m[i] < 128: i += 1")
                for more in range(1, 4):
                    self._line(depth, f"elif m[i + {more}] < 128: i += {more + 1}")
                self._line(depth, "else: i = skip(m, i)")
            case "float" | "double":
                self._line(depth, f"i += {struct.calcsize(_SIZES[kind])}")
            case "fixed":
                self._line(depth, f"i += {int(schema['size'])}")
            case "string":
                # fastavro finds texts that are not UTF-8 in fields that nobody reads, too.
                self._text(depth)
                self._line(depth, "if not m[i:j].isascii(): m[i:j].decode()")
                self._line(depth, "i = j")
            case "bytes":
                self._text(depth)
                self._line(depth, "i = j")
            case _:
                self._simple(kind, schema, self._new(), depth)

    def _simple(self, kind: str, form: Mapping[str, Any], value: str, depth: int) -> None:
        """Write what reads a simple value into a variable."""
        line = self._line
        match kind:
            case "null":
                line(depth, f"{value} = None")
            case "boolean":
                line(depth, f"{value} = (False, True)[m[i]]; i += 1")
            case "int" | "long":
                line(depth, "b = m[i]; i += 1")
                line(depth, f"if b < 128: {value} = small[b]")
                line(depth, "else:")
                line(depth, " c = m[i]; i += 1")
                line(depth, f" if c < 128: b = b & 127 | c << 7; {value} = b >> 1 ^ -(b & 1)")
                line(depth, f" else: {value}, i = long(m, i - 2)")
            case "float" | "double":
                line(
                    depth, f"{value}, = unpack_{kind}(m, i); i += {struct.calcsize(_SIZES[kind])}"
                )
            case "string" | "bytes":
                self._text(depth)
                decode = ".decode()" if kind == "string" else ""
                line(depth, f"{value} = m[i:j]{decode}; i = j")
            case "fixed":
                line(depth, f"j = i + {int(form['size'])}; {value} = m[i:j]; i = j")
            case "enum":
                symbols = self._object(tuple(form["symbols"]))
                line(depth, "if m[i] & 129: raise irregular")
                line(depth, f"{value} = {symbols}[m[i] >> 1]; i += 1")
            case _:
                raise _UncoveredError

    def _record(self, form: Mapping[str, Any], wanted: Fields, depth: int, *, raw: bool) -> str:
        if not raw and (wanted.absent is not None or wanted.converted is not None):
            raise _UncoveredError
        only = None if raw else wanted.only
        made: dict[str, str] = {}
        for field in form["fields"]:
            name, kind = field["name"], field["type"]
            if only is not None and name not in only:
                self.skip(kind, depth)
                continue
            inner = ALL if only is None else only[name]
            given = None if raw else wanted.encodings.get(name)
            encoding = given and self._compiler.node(kind, inner).open_to(given)
            if encoding is None:
                made[name] = self.read(kind, inner, depth, raw=raw)
                continue
            value = self.read(kind, inner, depth)
            self._line(depth, f"if {value} is not None:")
            made[name] = self._converted(value, encoding, depth + 1)
        return "{" + ", ".join(f"{name!r}: {value}" for name, value in made.items()) + "}"

    def _optional(self, branches: list[Any], depth: int, write: Callable[[Any], Any]) -> str:
        """Write a union of null and one type, whose other branch `write` writes."""
        found = [at for at, branch in enumerate(branches) if branch != "null"]
        if len(branches) != 2 or len(found) != 1:
            raise _UncoveredError
        value, here = self._new(), found[0]
        self._line(depth, f"if m[i] == {2 * here}:")
        self._line(depth + 1, "i += 1")
        made = write(branches[here])
        if made is not None:
            self._line(depth + 1, f"{value} = {made}")
        self._line(depth, f"elif m[i] == {2 - 2 * here}: i += 1; {value} = None")
        self._line(depth, "else: raise irregular")
        return value

    def _converted(self, value: str, convert: Convert | None, depth: int) -> str:
        if convert is None:
            return value
        made = value if value.isidentifier() else self._new()
        self._line(depth, f"{made} = {self._object(convert)}({value})")
        return made

    def _text(self, depth: int) -> None:
        """Write what finds a text: from then on it goes from `i` to `j`."""
        self._line(depth, "n = m[i]")
        self._line(depth, "if n & 129: i, j = text(m, i)")
        self._line(depth, "else: i += 1; j = i + (n >> 1)")

    def _resolved(self, schema: Any) -> Any:
        """Resolve the name of a type, and a simple type in a mapping that says nothing more."""
        if isinstance(schema, str):
            return self._compiler.types.get(schema, schema)
        return schema

    def _new(self) -> str:
        self._values += 1
        return f"v{self._values}"

    def _object(self, of: Any) -> str:
        name = f"o{len(self.names)}"
        self.names[name] = of
        return name

    def _line(self, depth: int, text: str) -> None:
        self.lines.append(" " * depth + text)


def usual(kind: str) -> Convert | None:
    """The conversion of a kind of value that has no meaning of its own."""
    return CONVERTS["bytes"] if kind == "fixed" else CONVERTS.get(kind)


_AS_NAMES = {f"unpack_{kind}": form for kind, form in _SIZES.items()}
_SMALL = tuple(byte >> 1 ^ -(byte & 1) for byte in range(128))
# fastavro's numbers have 64 bits; here all numbers do that have so many bytes.
_LONGEST = 9


def _long(message: bytes, at: int) -> tuple[int, int]:
    """Read a number; return it and the index after it."""
    value = shift = 0
    for index in range(at, at + _LONGEST):
        byte = message[index]
        value |= (byte & 127) << shift
        if byte < 128:
            return value >> 1 ^ -(value & 1), index + 1
        shift += 7
    raise IrregularError


def _skip(message: bytes, at: int) -> int:
    """Return the index after a number."""
    return _long(message, at)[1]


def _text(message: bytes, at: int) -> tuple[int, int]:
    """Return the indexes at which a text begins and ends."""
    size, begin = _long(message, at)
    if size < 0:
        raise IrregularError
    return begin, begin + size


# What a reader raises at what is not as usual.
IRREGULAR = (
    *(ArithmeticError, DecodeError, IndexError, KeyError, MemoryError, OverflowError),
    *(TypeError, ValueError, struct.error),
)
