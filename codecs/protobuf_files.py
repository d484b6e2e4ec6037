"""The files of a schema in Protobuf, and the messages that they describe.

A schema is a list of files, each a path and a serialized `FileDescriptorProto`, after the files
that it imports; the main file is the last one.  A registry does not return well-known files:
`google/protobuf/*.proto` are in the library, and a few others for types of SQL are here.

After the id of its schema, a message has the place of its type: the number of indexes, and the
indexes, each of a message within the one before.  A zero alone is the first message of the file.

Form: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

from ikebana.codecs.avro_schema import SchemaUnknown
from ikebana.codecs.errors import DecodeError
from ikebana.errors import ConfigError

DATE, TIME_OF_DAY = "google/type/date.proto", "google/type/timeofday.proto"
DECIMAL, TIMESTAMP = "confluent/type/decimal.proto", "google/protobuf/timestamp.proto"
# By path: the package, and its only message with its fields, which are numbered from 1.
_FILES: dict[str, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    DATE: ("google.type", "Date", (("year", "INT32"), ("month", "INT32"), ("day", "INT32"))),
    TIME_OF_DAY: (
        "google.type",
        "TimeOfDay",
        tuple((name, "INT32") for name in ("hours", "minutes", "seconds", "nanos")),
    ),
    DECIMAL: (
        "confluent.type",
        "Decimal",
        (("value", "BYTES"), ("precision", "UINT32"), ("scale", "INT32")),
    ),
}
_MOST_INDEXES = 100


File = tuple[str, bytes]


class Descriptions(Protocol):
    """A source of schemas in Protobuf, such as a registry."""

    def described(self, id: int | str) -> Sequence[File]:  # noqa: A002 -- as registries call it
        """The files of an id's schema.

        Raises:
            SchemaUnknown: the id has no schema, or one that is not in Protobuf.
        """
        ...


def library() -> Any:
    """The package `google.protobuf`, with the parts that are used.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        package = import_module("google.protobuf")
        for name in ("descriptor_pb2", "descriptor_pool", "message", "message_factory"):
            import_module(f"google.protobuf.{name}")
    except ImportError as error:
        raise ConfigError(
            f"cannot read or write Protobuf: {error.name} is not installed",
            hint='Install it: pip install "ikebana[protobuf]".',
        ) from error
    return package


def pool_of(files: Sequence[File]) -> Any:
    """A pool with the files and everything that they import.

    Raises:
        SchemaUnknown: a file is invalid, or imports a file that is missing.
    """
    of = library()
    pool = of.descriptor_pool.DescriptorPool()
    parsed = []
    try:
        for path, file in files:
            parsed.append(of.descriptor_pb2.FileDescriptorProto.FromString(file))
            parsed[-1].name = path
        for each in parsed:
            for path in each.dependency:
                _add_known(pool, path, others={other.name for other in parsed})
            pool.Add(each)
        pool.FindFileByName(parsed[-1].name)
    except (of.message.DecodeError, KeyError, TypeError, IndexError):
        raise SchemaUnknown("its schema cannot be read with") from None
    return pool


def _add_known(pool: Any, path: str, others: set[str]) -> None:
    """Add a well-known file that schemas import, unless it is there.

    Raises: SchemaUnknown, if it is none of the well-known files.
    """
    if path in others or _has(pool, path):
        return
    if path in _FILES:
        pool.Add(known_file(path))
        return
    package, _, file = path.rpartition("/")
    if package != "google/protobuf" or not file.removesuffix(".proto").isidentifier():
        raise SchemaUnknown(f'its schema imports "{path}", which the registry does not give')
    try:
        module = import_module(f"google.protobuf.{file.removesuffix('.proto')}_pb2")
    except ImportError:
        raise SchemaUnknown(f'its schema imports "{path}", which is not known') from None
    for other in module.DESCRIPTOR.dependencies:
        _add_known(pool, other.name, others)
    pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def _has(pool: Any, path: str) -> bool:
    try:
        pool.FindFileByName(path)
    except KeyError:
        return False
    return True


def known_file(path: str) -> Any:
    """One of the well-known files for types of SQL."""
    of = library().descriptor_pb2
    package, name, fields = _FILES[path]
    file = of.FileDescriptorProto(name=path, package=package, syntax="proto3")
    message = file.message_type.add(name=name)
    optional = of.FieldDescriptorProto.LABEL_OPTIONAL
    for number, (field, kind) in enumerate(fields, 1):
        kind_of = of.FieldDescriptorProto.Type.Value(f"TYPE_{kind}")
        message.field.add(name=field, number=number, label=optional, type=kind_of)
    return file


def entry_of(field: str) -> str:
    """The name that Protobuf gives to the entries of a map."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


def message_at(pool: Any, file: str, indexes: Sequence[int]) -> Any:
    """The class of the messages at a place of a file.

    Raises:
        DecodeError: the file has no message there.
    """
    file_descriptor = pool.FindFileByName(file)
    types = [*file_descriptor.message_types_by_name.values()]
    descriptor = None
    for index in indexes:
        if not 0 <= index < len(types):
            raise DecodeError("Protobuf", "its schema has no message at the place that it names")
        descriptor = types[index]
        types = [*descriptor.nested_types]
    assert descriptor is not None, "a place without a number"
    return library().message_factory.GetMessageClass(descriptor)


def indexes_of(message: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """The place of a message's type, and where the message itself begins.

    >>> indexes_of(bytes([0, 7]), 0), indexes_of(bytes([4, 2, 0, 7]), 0)
    (((0,), 1), ((1, 0), 3))

    Raises:
        DecodeError: the message has no valid place.
    """
    count, at = _number(message, start)
    if not count:
        return (0,), at
    if not 0 < count <= _MOST_INDEXES:
        raise DecodeError("Protobuf", "it does not say of which message of its schema it is")
    indexes = []
    for _ in range(count):
        number, at = _number(message, at)
        indexes.append(number)
    return tuple(indexes), at


def _number(message: bytes, at: int) -> tuple[int, int]:
    """Read a signed number in the form of Protobuf; return it and its end."""
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7
    raise DecodeError("Protobuf", "it is too short for the place of its type")
