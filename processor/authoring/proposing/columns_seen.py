"""Compare the columns of messages with those that an input declares: has the schema drifted?

A column of messages that is not declared is not read.  A declared column that messages lack is
null.  Values that do not fit a declared type need no comparison: they are errors of the run.
"""

from collections import Counter

import msgspec

from ikebana.processor.authoring.proposing.formats import Row
from ikebana.processor.authoring.proposing.look import Look
from ikebana.processor.authoring.proposing.proposal import columns_of
from ikebana.processor.planning.plan import Input


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
