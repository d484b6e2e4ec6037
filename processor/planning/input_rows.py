"""The rows of an input: the scope of expressions over them, encodings, times and transactions."""

from collections.abc import Iterable
from dataclasses import replace

from ikebana.codecs.change import Column
from ikebana.codecs.column_encodings import full_name, usual_name
from ikebana.errors import ConfigError
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
from ikebana.processor.planning.plan import METADATA_TYPES, Input, Unread


def scope_of_input(source: Input) -> Scope:
    """The scope of expressions over an input's rows.

    Raises:
        ExpressionError: the type of a column does not exist.
    """
    types = {column.name: column_type(column.type) for column in source.columns}
    types |= {name: METADATA_TYPES.get(kind, JSON) for name, kind in source.metadata}
    raw = not source.traits.has_columns
    types[KEY] = BLOB if source.key_format == "bytes" and source.traits.kind == "rows" else JSON
    types[VALUE] = BLOB if raw else JSON
    # If any column is declared, all must be, so that misspelt names are reported.
    declare, hidden = f"inputs.{source.name}.columns", {}
    if prefix := source.traits.added_prefix(dict(source.options)):
        hidden[VALUE] = Hidden(prefix, tuple(types), declare)
    return Scope(types, not raw and not source.columns, declare, hidden)


def rows_of(source: Input, unread: Unread) -> Scope:
    """The scope of an input that may have faults; columns without a type are `UNKNOWN`."""
    if unread.hides_rows(source.name):
        return unknown()
    typed = []
    lost = set(unread.columns(source.name))
    for column in source.columns:
        try:
            column_type(column.type)
        except ExpressionError:
            lost.add(column.name)
        else:
            typed.append(column)
    scope = scope_of_input(replace(source, columns=tuple(typed)))
    is_open = scope.open and not lost
    types = {**scope.types, **dict.fromkeys(lost, UNKNOWN)}
    return replace(scope, types=types, open=is_open)


def comes_out_of_decoding(source: Input) -> bool:
    """Whether decoding an input yields its updates, so that its branches run in the same task.

    This is not so for CDCv2: only the shards know which facts are new.
    """
    return source.is_collection and source.traits.kind != "facts"


def dating_query(source: Input) -> Query | None:
    """The query that computes the event times of an input's rows, as a bound in milliseconds.

    Raises:
        ExpressionError, StepError: the expression is wrong.
    """
    if source.event_time is None or source.event_time.of is None:
        return None
    return compiled((Sql(valid_from=source.event_time.of),), frozen(scope_of_input(source)))


def encodings_of(source: Input) -> dict[str, str]:
    """The encodings of columns by full name, from declarations or from the format."""
    encodings = {}
    for column in source.columns:
        if name := encoding_of(source, column):
            encodings[column.name] = name
    return encodings


def encoding_of(source: Input, column: Column) -> str | None:
    """The full name of a column's encoding; None if values are not encoded.

    Raises: TypeTextError, if the column has no type.
    """
    if column.encoding is not None:
        return full_name(column.type, column.encoding)
    return usual_name(column.type, source.traits.usual_encodings)


_SUFFIX = ".transaction"


def collections_of(topics: Iterable[str], transaction_topic: str) -> frozenset[str]:
    """The collections that have their changes in these topics, as topics spell them.

    Topics are `prefix.collection`, the transaction topic is `prefix.transaction`.

    >>> sorted(collections_of(["shop.public.orders", "shop.public.items"], "shop.transaction"))
    ['public.items', 'public.orders']

    Raises:
        ConfigError: topics have other names.
    """
    prefix = transaction_topic.removesuffix(_SUFFIX) + "."
    if not transaction_topic.endswith(_SUFFIX) or prefix == ".":
        raise ConfigError(
            f'cannot tell whose transactions are in topic "{transaction_topic}": '
            f'its name does not end in "{_SUFFIX}"',
            hint="Leave the connector's topic.transaction at its default.",
        )
    collections = set()
    for topic in topics:
        if not topic.startswith(prefix) or topic == prefix:
            raise ConfigError(
                f'cannot tell which table is in topic "{topic}": '
                f'its name does not begin with "{prefix}"',
                hint="Read the topics as the connector names them, without routing.",
            )
        collections.add(topic.removeprefix(prefix))
    return frozenset(collections)
