"""The reads over HTTP: their routes, the types of their parameters and of their answers.

From these types requests are checked, and the OpenAPI document is made.  The parameters of a read
give its `arguments`, as `serving.reads` has them, and an answer has the parts of its result;
`request_parameters` and `read_answer` are the other way.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec
from msgspec import Meta

from ikebana.codecs.canonical import canonical
from ikebana.errors import ConfigError
from ikebana.processor.base import texts
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.serving import reads
from ikebana.serving.layout import ValueCounts
from ikebana.serving.reads import MOST_ROWS, CollectionInfo
from ikebana.serving.view import Bounds, ViewRow
from ikebana.serving.wire import (
    ByteEncoding,
    CountChange,
    KeyValues,
    Value,
    change,
    encode,
    from_base64,
    from_own_base64,
    key_bytes,
    key_values,
    to_base64,
)

MOST_KEYS = 10_000

TimeText = Annotated[
    str, Meta(description="A whole number, or, where times are milliseconds, a date.")
]
AsOfText = Annotated[
    str, Meta(description="The time of the read. Default: the newest closed one.")
]
RowLimit = Annotated[int, Meta(ge=1, le=MOST_ROWS)]
PageToken = Annotated[str, Meta(description="`page` of the answer before.")]
KeyText = Annotated[str, Meta(description="A key as JSON, in any form, or as other text.")]
KeyBase64 = Annotated[str, Meta(description="A key as base64 of its bytes.")]
CollectionNames = Annotated[
    list[str], Meta(description="Collections; may be repeated. Default: all there are.")
]


class Nothing(msgspec.Struct):
    """No parameters."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the read.  Raises: ConfigError, naming the parameter."""
        return {}


class Read(Nothing, kw_only=True):
    """What every read takes."""

    as_of: AsOfText | None = None
    encoding: ByteEncoding = "json"

    def arguments(self) -> dict[str, Any]:
        return {"as_of": time_of(self.as_of, "as_of")}


class Get(Read, kw_only=True):
    """A read of one key."""

    key: KeyText | None = None
    key_base64: KeyBase64 | None = None

    def arguments(self) -> dict[str, Any]:
        if self.key_base64 is not None:
            key = from_base64(self.key_base64, "key_base64")
        elif self.key is not None:
            key = key_bytes(self.key)
        else:
            raise ConfigError("cannot read a key: give `key` or `key_base64`")
        return {"key": key, **Read.arguments(self)}


class GetMany(Read, kw_only=True):
    """A read of several keys, in the body."""

    keys: Annotated[list[Any], Meta(max_length=MOST_KEYS)] = []
    keys_base64: Annotated[list[str], Meta(max_length=MOST_KEYS)] = []

    def arguments(self) -> dict[str, Any]:
        keys = [canonical(encode(key)) for key in self.keys]
        keys += [from_base64(key, "keys_base64") for key in self.keys_base64]
        return {"keys": keys, **Read.arguments(self)}


class Within(Read, kw_only=True):
    """Bounds of keys, by their bytes; each can be base64 instead."""

    prefix: Annotated[str, Meta(description="The beginning of the bytes of a key.")] | None = None
    start: Annotated[str, Meta(description="The first key.")] | None = None
    end: Annotated[str, Meta(description="Keys lie before this one.")] | None = None
    prefix_base64: str | None = None
    start_base64: str | None = None
    end_base64: str | None = None

    def arguments(self) -> dict[str, Any]:
        bounds = Bounds(
            _bound(self.start, self.start_base64, "start"),
            _bound(self.end, self.end_base64, "end"),
            _bound(self.prefix, self.prefix_base64, "prefix"),
        )
        return {"bounds": bounds, **Read.arguments(self)}


class Scan(Within, kw_only=True):
    """A scan."""

    limit: RowLimit = 1_000
    page: PageToken | None = None

    def arguments(self) -> dict[str, Any]:
        return {"limit": self.limit, "page": self.page, **Within.arguments(self)}


class ChangesRead(Nothing, kw_only=True):
    """A read of updates."""

    above: TimeText | None = None
    upto: TimeText | None = None
    limit: RowLimit = 1_000
    page: PageToken | None = None
    encoding: ByteEncoding = "json"

    def arguments(self) -> dict[str, Any]:
        above, upto = time_of(self.above, "above"), time_of(self.upto, "upto")
        if above is None and self.page is None:
            raise ConfigError("cannot read changes: give `above`, the time after which they are")
        return {"above": above or 0, "upto": upto, "limit": self.limit, "page": self.page}


class Collections(Nothing, kw_only=True):
    """Some collections."""

    collection: CollectionNames = []

    def arguments(self) -> dict[str, Any]:
        return {"collection": self.collection}


class Wait(Collections, kw_only=True):
    """A time to wait for."""

    time: TimeText
    timeout: Annotated[float, Meta(ge=0, le=60, description="Seconds.")] = 30.0


class Subscribe(Collections, kw_only=True):
    """What to follow, and from where."""

    as_of: AsOfText | None = None
    resume: Annotated[str, Meta(description="The `id` of the last event.")] | None = None
    snapshot: Annotated[bool, Meta(description="Begin with the collection as of a time.")] = True
    encoding: ByteEncoding = "json"


class SqlQuery(Nothing, kw_only=True):
    """A query, in the body."""

    query: Annotated[str, Meta(max_length=100_000, description="One SELECT.")]
    as_of: AsOfText | None = None


class SqlColumn(msgspec.Struct):
    """A column of a result, and its type in Arrow."""

    name: str
    type: str


class SqlAnswer(msgspec.Struct):
    """The rows of a query, and the time at which all of its collections were read."""

    as_of: int | None
    columns: list[SqlColumn]
    rows: list[list[Any]]


class Served(msgspec.Struct):
    """A collection, and how it is followed.

    `caught_up_s`: so many seconds ago all of its topic was read; null: not since the start.
    `lag_s`: so many seconds lie between its newest time and now, if times are milliseconds.
    `updates`: so many were followed since the start of the server.
    `disk_bytes`: null for readers who see some columns only.
    """

    collection: CollectionInfo
    caught_up_s: float | None
    lag_s: float | None
    disk_bytes: int | None
    updates: int


class CollectionsAnswer(msgspec.Struct):
    """The collections; `newest` is the greatest time that all of them can be read at.

    `why` says why there is none.
    """

    newest: int | None
    collections: list[Served]
    why: str | None = None


def time_of(text: str | None, what: str) -> int | None:
    """Read a time.  Raises: ConfigError, naming `what`."""
    if text is None:
        return None
    try:
        return texts.parse_moment(text)
    except ValueError as error:
        raise ConfigError(
            f'cannot read {what}: "{text}" is no time',
            hint="Give a whole number, or a date like 2024-02-29T12:30:00Z.",
        ) from error


def request_parameters(takes: type[Nothing], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a request for a read with these arguments, in base64."""
    fields: dict[str, Any] = {}
    for name, value in arguments.items():
        match value:
            case None:
                continue
            case Bounds():
                bounds = {each: at for each, at in value._asdict().items() if at is not None}
                fields |= {f"{each}_base64": to_base64(at) for each, at in bounds.items()}
            case bytes():
                fields[f"{name}_base64"] = to_base64(value)
            case [bytes(), *_]:
                fields[f"{name}_base64"] = [*map(to_base64, value)]
            case int():
                fields[name] = str(value)
            case _:
                fields[name] = value
    if "encoding" in takes.__struct_fields__:
        fields["encoding"] = "base64"
    return fields


def answer_part(result: Any, write: Callable[[bytes], Any]) -> Any:
    """Write what was read, or a part of it, as answers have it."""
    match result:
        case bytes():
            return write(result)
        case ViewRow():
            return key_values(result, write)
        case KeyedUpdate():
            return change(result, write)
        case dict():
            return [Value(write(value), count) for value, count in result.items()]
        case list():
            return [answer_part(each, write) for each in result]
        case _:
            return result


class Operation(NamedTuple):
    """A read over HTTP: its route, what it takes, and what it answers.

    `is_short` says of the arguments whether it is quicker than a change of threads.
    """

    name: str
    summary: str
    method: str
    path: str
    takes: type[Nothing]
    answers: type[Any]
    streams: bool = False
    """Whether it answers in Arrow, too."""
    is_short: Callable[[Mapping[str, Any]], bool] = lambda _: True


V1 = "/v1"
_ONE = f"{V1}/collections/{{name}}"
# A scan of fewer rows is quicker than a change of threads.
_FEW = 50
# The types of what was read, as answers have them.
_ANSWERED: Mapping[Any, Any] = {
    bytes: Any,
    ValueCounts: list[Value],
    list[ViewRow]: list[KeyValues],
    list[KeyedUpdate]: list[CountChange],
}


@functools.cache
def _parts(read: Callable[..., Any]) -> Mapping[str, Any]:
    """The parts of the result of a read, with their types."""
    return get_type_hints(get_type_hints(read)["return"])


def _operation(
    read: Callable[..., Any], method: str, path: str, takes: type[Nothing], **how: Any
) -> tuple[Callable[..., Any], Operation]:
    name, summary = read.__name__, (read.__doc__ or "").partition("\n")[0]
    answers = msgspec.defstruct(
        f"{name.title().replace('_', '')}Answer",
        [(part, _ANSWERED.get(kind, kind)) for part, kind in _parts(read).items()],
        namespace={"__doc__": get_type_hints(read)["return"].__doc__},
    )
    return read, Operation(name, summary, method, path, takes, answers, **how)


def read_answer(read: Callable[..., Any], body: bytes) -> Any:
    """Return the result of a read from an answer that was asked for in base64."""
    answer = msgspec.json.decode(body, type=READS[read].answers)
    parts = (_decoded(kind, getattr(answer, part)) for part, kind in _parts(read).items())
    return get_type_hints(read)["return"](*parts)


def _decoded(kind: Any, answered: Any) -> Any:
    if kind is bytes:
        return from_own_base64(answered)
    if kind == ValueCounts:
        return {from_own_base64(each.value): each.count for each in answered}
    if kind == list[ViewRow]:
        return [each.row() for each in answered]
    return [each.update() for each in answered] if kind == list[KeyedUpdate] else answered


def _has_few(arguments: Mapping[str, Any]) -> bool:
    return int(arguments["limit"]) <= _FEW


def _names_few(arguments: Mapping[str, Any]) -> bool:
    return len(arguments["keys"]) <= _FEW


# The routes of what `serving.reads` has, by its functions.
READS: Mapping[Callable[..., Any], Operation] = dict(
    (
        _operation(reads.get, "GET", f"{_ONE}/get", Get, streams=True),
        _operation(
            reads.get_many, "POST", f"{_ONE}/get", GetMany, streams=True, is_short=_names_few
        ),
        _operation(reads.scan, "GET", f"{_ONE}/scan", Scan, streams=True, is_short=_has_few),
        _operation(reads.count, "GET", f"{_ONE}/count", Within, is_short=lambda _: False),
        _operation(
            reads.changes, "GET", f"{_ONE}/changes", ChangesRead, streams=True, is_short=_has_few
        ),
        _operation(reads.newest, "GET", f"{V1}/newest", Collections),
    )
)


def _bound(text: str | None, in_base64: str | None, what: str) -> bytes | None:
    if in_base64 is not None:
        return from_base64(in_base64, f"{what}_base64")
    return None if text is None else text.encode()
