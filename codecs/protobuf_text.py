"""Parse the text of a `.proto` file: some registries, such as Apicurio's, have no other form.

What describes no message is left out: options, services, extensions, reserved numbers.  The pool
finds the types of fields by their names.  Groups and editions are not read.
"""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from ikebana.codecs.avro_schema import SchemaUnknown
from ikebana.codecs.protobuf_files import entry_of, library

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<token> "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' | \.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*
        | [-+]?\.?\d[\w.]* | . )""",
    re.VERBOSE | re.DOTALL,
)
_SCALARS = frozenset(
    [
        *("double", "float", "bool", "string", "bytes", "int32", "int64", "uint32", "uint64"),
        *("sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64"),
    ]
)
_OPEN, _CLOSE = "{[(<", "}])>"


def parsed_text(path: str, text: str) -> Any:
    """The description of a file.

    Raises:
        ConfigError: the library is not installed.
        SchemaUnknown: the text is none of a file, or has what is not read.
    """
    file = library().descriptor_pb2.FileDescriptorProto(name=path, syntax="proto2")
    try:
        _Reader(text).file(file)
    except ValueError:
        raise SchemaUnknown("the text of its schema cannot be read") from None
    return file


class _Reader:
    """Reads tokens from the first to the last one.  It raises: ValueError."""

    def __init__(self, text: str) -> None:
        matches = _TOKEN.finditer(text)
        self._tokens: Iterator[str] = (m["token"] for m in matches if m["token"] is not None)
        self._next = next(self._tokens, "")

    def file(self, file: Any) -> None:
        """Everything."""
        while self._next:
            match self._take():
                case "syntax":
                    self._expect("=")
                    file.syntax = self._quoted()
                    self._expect(";")
                case "package":
                    file.package = self._take()
                    self._expect(";")
                case "import":
                    if self._next == "public":
                        file.public_dependency.append(len(file.dependency))
                    if self._next in ("public", "weak"):
                        self._take()
                    file.dependency.append(self._quoted())
                    self._expect(";")
                case "message":
                    self._message(file.message_type.add(), is_new=file.syntax == "proto3")
                case "enum":
                    self._enum(file.enum_type.add())
                case "option" | "service" | "extend":
                    self._skip()
                case ";":
                    pass
                case _:
                    raise ValueError

    def _message(self, message: Any, *, is_new: bool) -> None:
        message.name = self._take()
        # The choices of proto3 between a value and none follow the others.
        optional: list[Any] = []

        def part(word: str) -> None:
            match word:
                case "message":
                    self._message(message.nested_type.add(), is_new=is_new)
                case "enum":
                    self._enum(message.enum_type.add())
                case "option" | "reserved" | "extensions" | "extend":
                    self._skip()
                case "oneof":
                    message.oneof_decl.add(name=self._take())
                    self._choice(message)
                case "map" if self._next == "<":
                    self._map(message)
                case "repeated" | "required" | "optional":
                    field = self._field(message, self._take(), word)
                    if is_new and word == "optional":
                        optional.append(field)
                case ";":
                    pass
                case _:
                    self._field(message, word)

        self._block(part)
        for field in optional:
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _choice(self, message: Any) -> None:
        index = len(message.oneof_decl) - 1

        def part(word: str) -> None:
            if word == "option":
                self._skip()
            elif word != ";":
                self._field(message, word).oneof_index = index

        self._block(part)

    def _map(self, message: Any) -> None:
        self._expect("<")
        key = self._take()
        self._expect(",")
        value = self._take()
        self._expect(">")
        entry = message.nested_type.add(name=entry_of(self._next))
        entry.options.map_entry = True
        for number, (name, kind) in enumerate([("key", key), ("value", value)], 1):
            _typed(entry.field.add(name=name, number=number), kind, "optional")
        self._field(message, entry.name, "repeated")

    def _field(self, message: Any, kind: str, label: str = "optional") -> Any:
        if kind == "group":
            raise ValueError
        field = message.field.add(name=self._take())
        _typed(field, kind, label)
        self._expect("=")
        field.number = int(self._take(), 0)
        options = self._skip()
        for at, pair in enumerate(pairwise(options)):
            if pair == ("default", "="):
                field.default_value = _default(options[at + 2 :], field)
        return field

    def _enum(self, enum: Any) -> None:
        enum.name = self._take()

        def part(word: str) -> None:
            if word in ("option", "reserved"):
                self._skip()
            elif word != ";":
                self._expect("=")
                enum.value.add(name=word, number=int(self._take(), 0))
                self._skip()

        self._block(part)

    def _block(self, part: Callable[[str], None]) -> None:
        """Read the parts in braces, each from its first word on."""
        self._expect("{")
        while self._next != "}":
            part(self._take())
        self._take()

    def _skip(self) -> list[str]:
        """Skip up to a semicolon, or over the braces that end a part; return the tokens."""
        depth = 0
        tokens = []
        while True:
            tokens.append(token := self._take())
            depth += (token in _OPEN) - (token in _CLOSE)
            if not depth and (token == ";" or (token == "}" and self._next != ";")):
                return tokens

    def _quoted(self) -> str:
        text = self._take()
        if text[:1] not in ('"', "'"):
            raise ValueError
        return text[1:-1]

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise ValueError

    def _take(self) -> str:
        if not (token := self._next):
            raise ValueError
        self._next = next(self._tokens, "")
        return token


def _typed(field: Any, kind: str, label: str) -> None:
    field.label = field.Label.Value(f"LABEL_{label.upper()}")
    if kind in _SCALARS:
        field.type = field.Type.Value(f"TYPE_{kind.upper()}")
    else:
        field.type_name = kind


def _default(tokens: list[str], field: Any) -> str:
    """The default that tokens begin with, as descriptions have it: bytes stay escaped."""
    token = tokens[0]
    if token == "-":
        return token + tokens[1]
    if token[0] not in ('"', "'"):
        return token
    escaped = field.type == field.Type.Value("TYPE_STRING") and "\\" in token
    # Escapes are of the bytes of UTF-8.
    bare = token.encode().decode("unicode_escape").encode("latin-1").decode() if escaped else token
    return bare[1:-1]
