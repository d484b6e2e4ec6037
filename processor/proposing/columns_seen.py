"""Compare the columns of messages with those that an input declares: has the schema drifted?

A column that comes and is not declared is not read.  One that is declared and does not come is
null.  Values that do not fit a declared type need no comparison: they are errors of the run.
"""

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from ikebana.processor.planning.plan import Input
from ikebana.processor.proposing.formats import LOOKS, Sample, told
from ikebana.processor.proposing.proposal import columns_of


class UndeclaredColumn(msgspec.Struct):
    """A column that comes and is not declared: a type for its values, and in how many rows."""

    name: str
    type: str
    rows: int


class ColumnsSeen(msgspec.Struct):
    """The columns of some rows of an input that differ from those declared.

    `absent` are declared columns that no row has; `why` is the reason if nothing was compared.
    """

    input: str
    rows: int = 0
    undeclared: list[UndeclaredColumn] = []
    absent: list[str] = []
    why: str = ""


def columns_seen(source: Input, samples: Sequence[Sample]) -> ColumnsSeen:
    """Compare the columns of messages with those that an input declares.

    >>> from ikebana.processor.planning.plan import Column
    >>> declared = (Column("n", "BIGINT"), Column("of", "JSON"))
    >>> source = Input("orders", ("orders",), columns=declared)
    >>> found = columns_seen(source, [Sample(b"1", b'{"n": 1, "gift": true}')])
    >>> found.undeclared, found.absent
    ([UndeclaredColumn(name='gift', type='BOOLEAN', rows=1)], ['of'])
    """
    form = source.value_format
    if not source.columns:
        return ColumnsSeen(source.name, why="it declares no columns")
    if source.traits.is_updates or (form != "json" and form not in LOOKS):
        return ColumnsSeen(source.name, why=f"messages of {form} do not name their columns")
    rows = [
        row for sample in samples if _is_read(source, sample) for row in told(form, [sample]).rows
    ]
    if not rows:
        return ColumnsSeen(source.name, why="there is no row among the newest messages")
    declared = {column.name for column in source.columns}
    counts = Counter(name for row in rows for name in row.values)
    columns, _ = columns_of(rows)
    undeclared = [
        UndeclaredColumn(column.name, column.type, counts[column.name])
        for column in columns
        if column.name not in declared and column.name not in source.key
    ]
    absent = sorted(declared - counts.keys())
    return ColumnsSeen(source.name, len(rows), undeclared, absent)


def _is_read(source: Input, sample: Sample) -> bool:
    """Whether a message is of a table that the input reads."""
    tables = told(source.value_format, [sample]).tables
    if source.tables is None or not tables:
        return True
    return any(re.fullmatch(source.tables, table) for table in tables)
