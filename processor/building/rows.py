"""Rows as Python types: the columns that a TypedDict declares.

Rows are JSON objects, so Python functions get dicts; a TypedDict says which keys they have,
and a type checker then knows the columns that a function reads.
"""

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Union

from ikebana.codecs.change import Column
from ikebana.errors import ConfigError

_SQL = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}
# Types that are JSON, whatever their arguments.
_JSON = (dict, list, object)


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The SQL type of a column, where its Python type does not say enough.

    `encoding` says how a message without a schema writes the column; see
    docs/change-data.md.

    >>> from typing import Annotated, TypedDict
    >>> class Order(TypedDict):
    ...     product: str
    ...     amount: Annotated[float, "DECIMAL(12,2)"]
    ...     placed: Annotated[str, ColumnType("TIMESTAMP", encoding="timestamp-micros")]
    >>> [column.type for column in columns_of(Order)]
    ['VARCHAR', 'DECIMAL(12,2)', 'TIMESTAMP']
    """

    type: str
    encoding: str | None = None


def columns_of(row: type) -> tuple[Column, ...]:
    """Return the columns of a TypedDict, in its order.

    `str`, `int`, `float` and `bool` are VARCHAR, BIGINT, DOUBLE and BOOLEAN; `list[...]`,
    `dict[...]`, `Any` and TypedDicts are JSON; `Annotated[type, "SQL TYPE"]` has that SQL type.
    `X | None` is X: in SQL every column may be null.

    Raises:
        ConfigError: it is no TypedDict, or a field has a type without an SQL type.
    """
    if not typing.is_typeddict(row):
        name = getattr(row, "__name__", repr(row))
        raise ConfigError(
            f"cannot read rows as {name}: it is no TypedDict",
            hint=f"Write `class {name}(TypedDict)`: functions get rows as dicts.",
        )
    try:
        hints = typing.get_type_hints(row, include_extras=True)
    except NameError as error:
        raise ConfigError(f"cannot read rows as {row.__name__}: {error}") from error
    return tuple(_column(row.__name__, name, kind) for name, kind in hints.items())


def _column(row: str, name: str, kind: Any) -> Column:
    said = list(_said(kind))
    if said:
        return Column(name, said[0].type, said[0].encoding)
    bare = _bare(kind)
    if bare in _SQL:
        return Column(name, _SQL[bare])
    outer = typing.get_origin(bare) or bare
    if outer is Any or outer in _JSON or typing.is_typeddict(outer):
        return Column(name, "JSON")
    shown = getattr(bare, "__name__", str(bare))
    raise ConfigError(
        f"cannot read rows as {row}: column {name} is of type {shown}, which is no type of JSON",
        hint="Functions get what JSON has. Write the type of that with the SQL type behind it, "
        'such as Annotated[str, "TIMESTAMP"] or Annotated[float, "DECIMAL(12,2)"].',
    )


def _said(kind: Any) -> Iterator[ColumnType]:
    """Yield the SQL types in annotations, from the outermost inwards."""
    if typing.get_origin(kind) is Annotated:
        bare, *notes = typing.get_args(kind)
        for note in notes:
            if isinstance(note, ColumnType):
                yield note
            elif isinstance(note, str):
                yield ColumnType(note)
        yield from _said(bare)
    elif typing.get_origin(kind) in (typing.Required, typing.NotRequired, *_UNIONS):
        for each in typing.get_args(kind):
            yield from _said(each)


_UNIONS = (Union, types.UnionType)


def _bare(kind: Any) -> Any:
    """Return a type without its annotations and without None."""
    origin = typing.get_origin(kind)
    if origin in (Annotated, typing.Required, typing.NotRequired):
        return _bare(typing.get_args(kind)[0])
    if origin in _UNIONS:
        others = [each for each in typing.get_args(kind) if each is not type(None)]
        return _bare(others[0]) if len(others) == 1 else kind
    return kind
