"""Compare the columns of messages with those that an input declares: has the schema drifted?

A column of messages that is not declared is not read.  A declared column that messages lack is
null.  Values that do not fit a declared type need no comparison: they are errors of the run.
For columns that are not declared yet, `later_columns` has declarations.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ikebana.codecs.sql_type import JSON
from ikebana.errors import ConfigError
from ikebana.processor.authoring.proposing.formats import Row, Sample, parsed, schema_of
from ikebana.processor.authoring.proposing.look import Look, look
from ikebana.processor.authoring.proposing.proposal import columns_of, propose
from ikebana.processor.planning.plan import Input
from ikebana.processor.topics.messages import Message

if TYPE_CHECKING:
    from ikebana.codecs.avro_schema import Schemas


class UndeclaredColumn(msgspec.Struct):
    """A column of messages that is not declared: a type for its values, and its rows."""

    name: str
    type: str
    rows: int


class ColumnsSeen(msgspec.Struct):
    """The differences between the columns of some rows and the declared ones.

    `absent` are declared columns that no row has; `why` is the reason if nothing was compared.
    """

    input: str
    rows: int = 0
    undeclared: list[UndeclaredColumn] = []
    absent: list[str] = []
    why: str = ""


def columns_seen(source: Input, seen: Look) -> ColumnsSeen:
    """Compare the columns of messages with those that an input declares.

    >>> from ikebana.processor.planning.plan import Column
    >>> from ikebana.processor.authoring.proposing.look import look
    >>> from ikebana.processor.topics.messages import Message
    >>> declared = (Column("n", "BIGINT"), Column("of", "JSON"))
    >>> source = Input("orders", ("orders",), columns=declared)
    >>> found = columns_seen(source, look(source, [Message(0, b"1", b'{"n": 1, "gift": true}')]))
    >>> found.undeclared, found.absent
    ([UndeclaredColumn(name='gift', type='BOOLEAN', rows=1)], ['of'])
    """
    if not source.columns:
        return ColumnsSeen(source.name, why="it declares no columns")
    if source.traits.kind == "facts":
        return ColumnsSeen(source.name, why=f"messages of {source.value_format} are not looked at")
    rows = seen.rows
    if not rows:
        return ColumnsSeen(source.name, why="there is no row among the newest messages")
    declared = {column.name for column in source.columns}
    counts = Counter(name for row in rows for name in row)
    columns, _ = columns_of([Row(row) for row in rows])
    undeclared = [
        UndeclaredColumn(column.name, column.type, counts[column.name])
        for column in columns
        if column.name not in declared and column.name not in source.key
    ]
    # Columns of the key may be in the Kafka key alone.
    absent = sorted(declared - counts.keys() - {*source.key})
    return ColumnsSeen(source.name, len(rows), undeclared, absent)


Declarations = Mapping[str, str | Mapping[str, str]]
"""Values of `columns` in a pipeline file: a type, or a type and an encoding."""


def later_columns(
    source: Input,
    messages: Sequence[Message],
    schemas: "Schemas | None" = None,
    *,
    takes_all: bool = False,
) -> Declarations:
    """Find the columns of messages that an input does not declare, with declarations for them.

    Types come from schemas in the messages or in the registry.  Without schemas they fit the
    values seen, or with `takes_all` any value: JSON as it is.  An input without declared columns
    reads all columns, so the result is empty.

    >>> from ikebana.processor.planning.plan import Column
    >>> source = Input("orders", ("orders",), columns=(Column("n", "BIGINT"),))
    >>> later_columns(source, [Message(0, b"1", b'{"n": 1, "gift": true}')])
    {'gift': 'BOOLEAN'}
    """
    new = {
        each.name: each.type
        for each in columns_seen(source, look(source, messages, schemas)).undeclared
    }
    if not new:
        return {}
    if takes_all and not source.traits.in_registry and not any(map(_has_schema, messages)):
        any_value: str | Mapping[str, str] = str(JSON)
        if source.traits.usual_encodings == "always":
            # Otherwise a text would have to hold JSON.
            any_value = {"type": str(JSON), "encoding": "plain"}
        return dict.fromkeys(new, any_value)
    samples = [Sample(m.key, m.value, tuple(m.headers or ())) for m in messages]
    # The columns above are of the input's own table, if the topic has several.
    try:
        proposal = propose(source.topics[0], samples, schemas)
    except ConfigError:
        return new
    by_name = {column.name: column for column in proposal.columns}
    declarations: dict[str, str | Mapping[str, str]] = {}
    for name, kind in new.items():
        column = by_name.get(name) if proposal.value == source.value_format else None
        if column is None:
            declarations[name] = kind
        elif column.encoding is None:
            declarations[name] = column.type
        else:
            declarations[name] = {"type": column.type, "encoding": column.encoding}
    return declarations


def _has_schema(message: Message) -> bool:
    return schema_of(parsed(message.value)) is not None
