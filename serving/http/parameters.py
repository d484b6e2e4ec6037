"""The parameters of requests and the bodies of answers, as types.

From these types requests are checked, and the OpenAPI document is made.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ikebana.errors import ConfigError
from ikebana.processor.ground import moments
from ikebana.serving.http.wire import Change, Encoding, KeyValues, unbased
from ikebana.serving.reads import MOST_ROWS, CollectionInfo
from ikebana.serving.view import Bounds

MOST_KEYS = 10_000

Time = Annotated[
    str, Meta(description="A whole number, or, where times are milliseconds, a date.")
]
AsOf = Annotated[str, Meta(description="The time of the read. Default: the newest closed one.")]
Limit = Annotated[int, Meta(ge=1, le=MOST_ROWS)]
Token = Annotated[str, Meta(description="`page` of the answer before.")]
KeyText = Annotated[str, Meta(description="A key as JSON, in any form, or as other text.")]
KeyBase64 = Annotated[str, Meta(description="A key as base64 of its bytes.")]
Names = Annotated[
    list[str], Meta(description="Collections; may be repeated. Default: all there are.")
]


class Read(msgspec.Struct, kw_only=True):
    """What every read takes."""

    as_of: AsOf | None = None
    encoding: Encoding = "json"


class Get(Read, kw_only=True):
    """A read of one key."""

    key: KeyText | None = None
    key_base64: KeyBase64 | None = None


class GetMany(Read, kw_only=True):
    """A read of several keys, in the body."""

    keys: Annotated[list[Any], Meta(max_length=MOST_KEYS)] = []
    keys_base64: Annotated[list[str], Meta(max_length=MOST_KEYS)] = []


class Within(Read, kw_only=True):
    """Bounds of keys, by their bytes; each can be base64 instead."""

    prefix: Annotated[str, Meta(description="The beginning of the bytes of a key.")] | None = None
    start: Annotated[str, Meta(description="The first key.")] | None = None
    end: Annotated[str, Meta(description="Keys lie before this one.")] | None = None
    prefix_base64: str | None = None
    start_base64: str | None = None
    end_base64: str | None = None


class Scan(Within, kw_only=True):
    """A scan."""

    limit: Limit = 1_000
    page: Token | None = None


class Changes(msgspec.Struct, kw_only=True):
    """A read of updates."""

    above: Time | None = None
    upto: Time | None = None
    limit: Limit = 1_000
    page: Token | None = None
    encoding: Encoding = "json"


class Collections(msgspec.Struct, kw_only=True):
    """Some collections."""

    collection: Names = []


class Wait(Collections, kw_only=True):
    """A time to wait for."""

    time: Time
    timeout: Annotated[float, Meta(ge=0, le=60, description="Seconds.")] = 30.0


class Subscribe(Collections, kw_only=True):
    """What to follow, and from where."""

    as_of: AsOf | None = None
    resume: Annotated[str, Meta(description="The `id` of the last event.")] | None = None
    snapshot: Annotated[bool, Meta(description="Begin with the collection as of a time.")] = True
    encoding: Encoding = "json"


class Sql(msgspec.Struct, kw_only=True):
    """A query, in the body."""

    query: Annotated[str, Meta(max_length=100_000, description="One SELECT.")]
    as_of: AsOf | None = None


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


class GetAnswer(msgspec.Struct):
    """The values of a key as of a time; none if it has none."""

    as_of: int
    key: Any
    values: list[Any]


class GetManyAnswer(msgspec.Struct):
    """The values of several keys as of one time, in the order of the keys."""

    as_of: int
    rows: list[KeyValues]


class ScanAnswer(msgspec.Struct):
    """Rows in the order of the bytes of keys; `page` asks for those after them."""

    as_of: int
    rows: list[KeyValues]
    page: str | None


class CountAnswer(msgspec.Struct):
    """How many keys, (key, value) pairs, and pairs with their counts; and their length."""

    as_of: int
    keys: int
    data: int
    total: int
    bytes: int


class ChangesAnswer(msgspec.Struct):
    """Updates with `above < time <= upto` in the order of time, key and value."""

    above: int
    upto: int
    updates: list[Change]
    page: str | None


class NewestAnswer(msgspec.Struct):
    """The times that all of the collections can be read at."""

    newest: int
    since: int


class Problem(msgspec.Struct, omit_defaults=True):
    """Why there is no answer, and what to do; the bounds of the times that can be read."""

    error: str
    hint: str | None = None
    since: int | None = None
    upper: int | None = None


def time_of(text: str | None, what: str) -> int | None:
    """Read a time.  Raises: ConfigError, naming `what`."""
    if text is None:
        return None
    try:
        return moments.parsed(text)
    except ValueError as error:
        raise ConfigError(
            f'cannot read {what}: "{text}" is no time',
            hint="Give a whole number, or a date like 2024-02-29T12:30:00Z.",
        ) from error


def bounds_of(given: Within) -> Bounds:
    """Read the bounds of a scan."""
    return Bounds(
        _bound(given.start, given.start_base64, "start"),
        _bound(given.end, given.end_base64, "end"),
        _bound(given.prefix, given.prefix_base64, "prefix"),
    )


def _bound(text: str | None, in_base64: str | None, what: str) -> bytes | None:
    if in_base64 is not None:
        return unbased(in_base64, f"{what}_base64")
    return None if text is None else text.encode()
