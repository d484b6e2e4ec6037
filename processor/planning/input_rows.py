"""The rows of an input: what expressions over them may name, their encodings and their times."""

from dataclasses import replace

from ikebana.codecs.change import Column
from ikebana.codecs.column_encodings import full_name, usual_name
from ikebana.processor.linear.expressions import column_type
from ikebana.processor.linear.json_text import BLOB, JSON
from ikebana.processor.linear.query import Query, compiled
from ikebana.processor.linear.scope import (
    KEY,
    UNKNOWN,
    VALUE,
    ExpressionError,
    Hidden,
    Scope,
    frozen,
    unknown,
)
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.plan import METADATA_TYPES, Input
from ikebana.processor.planning.unread import Unread


def scope_of_input(source: Input) -> Scope:
    """What expressions over an input's rows may name.

    Raises:
        ExpressionError: a column has a type that there is not.
    """
    types = {column.name: column_type(column.type) for column in source.columns}
    types |= {name: METADATA_TYPES.get(kind, JSON) for name, kind in source.metadata}
    raw = not source.traits.has_columns
    types[KEY] = BLOB if source.key_format == "bytes" and source.traits.kind == "rows" else JSON
    types[VALUE] = BLOB if raw else JSON
    # If any column is declared, all must be, so that misspelt names are found.
    declare, hidden = f"inputs.{source.name}.columns", {}
    if prefix := source.traits.added_prefix(dict(source.options)):
        hidden[VALUE] = Hidden(prefix, tuple(types), declare)
    return Scope(types, not raw and not source.columns, declare, hidden)


def rows_of(source: Input, unread: Unread) -> Scope:
    """The same of an input with faults: of a column without a type, only that it is there."""
    if unread.hides_rows(source.name):
        return unknown()
    known = []
    lost = set(unread.columns(source.name))
    for column in source.columns:
        try:
            column_type(column.type)
        except ExpressionError:
            lost.add(column.name)
        else:
            known.append(column)
    scope = scope_of_input(replace(source, columns=tuple(known)))
    is_open = scope.open and not lost
    types = {**scope.types, **dict.fromkeys(lost, UNKNOWN)}
    return replace(scope, types=types, open=is_open)


def comes_out_of_decoding(source: Input) -> bool:
    """Whether an input's own updates are known where it is decoded, and its branches run there.

    Which facts of CDCv2 are new is known only in the shards.
    """
    return source.is_collection and source.traits.kind != "facts"


def dating_query(source: Input) -> Query | None:
    """What makes the event times of an input's rows, as a bound in milliseconds.

    Raises:
        ExpressionError, StepError: the expression is none.
    """
    if source.event_time is None or source.event_time.of is None:
        return None
    return compiled((Sql(valid_from=source.event_time.of),), frozen(scope_of_input(source)))


def encodings_of(source: Input) -> dict[str, str]:
    """The encodings of columns by their full names: the declared ones, and those of the format."""
    found = {}
    for column in source.columns:
        if name := encoding_of(source, column):
            found[column.name] = name
    return found


def encoding_of(source: Input, column: Column) -> str | None:
    """The encoding of a column by its full name; None if values are as they are.

    Raises: TypeTextError, if it has no type.
    """
    if column.encoding is not None:
        return full_name(column.type, column.encoding)
    return usual_name(column.type, source.traits.usual_encodings)
