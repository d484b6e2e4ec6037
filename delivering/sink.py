"""The interface of sinks: targets, such as databases, that apply each closed batch exactly once.

A batch has all updates of all tables with times in `[lower, upper)`, and a token, which is the
position in the topics after it.  A sink writes the changes and the token in *one transaction of
the target*.  So a restart, which asks the target for its token, continues exactly after the last
applied batch, whenever a process was killed.

A sink is one object with three methods::

    class Printing:
        name = "printing"

        def open(self, tables):
            self._tables = tables
            return None  # the token of the last batch that was applied

        def apply(self, batch):
            for table in self._tables:
                for rows in batch.updates(table):  # a pyarrow.RecordBatch
                    print(table.name, rows.to_pylist())

        def close(self):
            pass

| mode | columns beside those of the collection |
|---|---|
| `current` with a key | none |
| `current` | `ID`, `COUNT` |
| `changes` | `TIME`, `DIFF` |
| `history` with a key | `VALID_FROM`, `VALID_TO` |
| `history` | `ID`, `COUNT`, `VALID_FROM`, `VALID_TO` |

`delivery.Delivery` follows the topics, calls these methods in one thread, and tries again while a
target is away.  `tests/support/sink_conformance.py` has the tests for every sink.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, get_args

import pyarrow as pa

from ikebana.codecs.diff import Times
from ikebana.delivering.columns import TargetColumn, Typing
from ikebana.delivering.spool import Spooled
from ikebana.errors import AwayError, ConfigError
from ikebana.processor.authoring.deliver_section import Mode

MODES: tuple[Mode, ...] = get_args(Mode)

ID, TIME, DIFF, COUNT = "ikebana_id", "ikebana_time", "ikebana_diff", "ikebana_count"
"""Columns that a table has beside those of the collection, by its mode and key."""
VALID_FROM, VALID_TO = "valid_from", "valid_to"
"""The columns of a history: the first time of a row, and the first time without it, or null."""

_RESERVED = "ikebana_"
"""The begin of the names that tables and statements of sinks have beside the collection's."""


class TargetAwayError(AwayError):
    """A target does not answer now, and may answer later.

    The batch that was being applied may be in the target or not: `Sink.open` finds out.
    """


@dataclass(frozen=True)
class TargetTable:
    """A table of a target, with the rows of one collection.

    With a `key`, no two rows of the collection have equal values in its columns at one time, and
    the target has one row for each key.  Without a key, equal rows are one row of the target with
    their number in `COUNT`, and `ID` identifies it.

    `added` names the columns beside those of the collection, by mode and key.

    Raises: ConfigError, if columns are missing or have the same name.
    """

    collection: str
    """The topic."""
    name: str
    """The name of the table in the target."""
    mode: Mode
    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if not names:
            raise ConfigError(
                f'table "{self.name}" has no columns',
                hint=f'Topic "{self.collection}" tells none: list them under `columns`.',
            )
        used: set[str] = set()
        for name in names:
            if name.lower().startswith(_RESERVED):
                raise ConfigError(
                    f'table "{self.name}" cannot have a column "{name}": names that begin with '
                    f"{_RESERVED} are reserved",
                    hint="List the columns, and give this one another name with `field`.",
                )
        for name in (*names, *self.added):
            # Most targets do not distinguish names by case.
            if name.lower() in used:
                raise ConfigError(
                    f'table "{self.name}" has two columns "{name}"',
                    hint="List the columns, and give one another name with `field`.",
                )
            used |= {name.lower()}
        for name in self.key:
            if name not in names:
                raise ConfigError(f'the key of table "{self.name}" has "{name}", no column of it')

    @property
    def counted(self) -> bool:
        """Whether rows have an id and a count."""
        return self.mode != "changes" and not self.key

    @property
    def added(self) -> tuple[str, ...]:
        """The names of the columns beside those of the collection."""
        if self.mode == "changes":
            return TIME, DIFF
        counted = (ID, COUNT) if self.counted else ()
        return (*counted, *((VALID_FROM, VALID_TO) if self.mode == "history" else ()))

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a row in the target, except in the mode `changes`."""
        return self.key or (ID,)

    @cached_property
    def stored(self) -> pa.Schema:
        """The columns in the target: the collection's, then the added ones."""
        added = {name: pa.binary(16) if name == ID else pa.int64() for name in self.added}
        fields = [pa.field(column.name, column.arrow) for column in self.columns]
        return pa.schema([*fields, *(pa.field(name, of) for name, of in added.items())])

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of its updates: the collection's, then ID, TIME and DIFF.

        ID has 16 bytes, which are equal exactly if rows are equal; the mode `changes` has no ID.
        TIME and DIFF are int64.
        """
        return self.typing.schema

    @cached_property
    def typing(self) -> Typing:
        """The conversion of updates to rows."""
        return Typing(
            self.collection, self.columns, None if self.mode == "changes" else ID, (TIME, DIFF)
        )


class Batch:
    """All updates of all tables with times in `[lower, upper)`, and the token after them.

    The batch that `is_first` has all times before `upper`, nothing was applied before it, and a
    target without transactions deletes remains of an earlier attempt.  `times` is the kind of
    times (milliseconds of a clock, or offsets), if the topics have it.
    """

    def __init__(
        self,
        lower: int,
        upper: int,
        token: str,
        updates: Mapping[str, Spooled],
        *,
        is_first: bool,
        times: Times | None = None,
    ) -> None:
        self.lower = lower
        self.upper = upper
        self.token = token
        self.is_first = is_first
        self.times = times
        self._updates = updates

    def count(self, table: TargetTable) -> int:
        """Count the updates of a table."""
        return self._updates[table.collection].count()

    def updates(self, table: TargetTable) -> Iterator[pa.RecordBatch]:
        """Yield the updates of a table in chunks of `table.schema`; may be called repeatedly.

        They are in no order, and not consolidated: a row may be inserted and deleted within the
        batch, even at one time.  A chunk has some ten thousand rows, so memory is bounded.

        Raises:
            SourceError: a value does not fit the type of its column.
        """
        for chunk in self._updates[table.collection].chunks():
            yield table.typing.rows(chunk)


class Sink(Protocol):
    """A target that applies batches exactly once.  All calls come from one thread."""

    name: str
    """Identifies the sink's token among those of other sinks in the same target."""

    def open(self, tables: Sequence[TargetTable]) -> str | None:
        """Connect, take over from other instances, and check the tables or create them.

        Returns the token of the last applied batch, or None if there was none.  From now on the
        target refuses transactions of all instances that were opened before.  Nothing is written
        except missing tables.  It is called again after a `TargetAwayError`.

        Raises:
            ConfigError: an existing table does not fit; it names the table and the column.
            TargetAwayError: the target does not answer.
        """
        ...

    def apply(self, batch: Batch) -> None:
        """Write a batch and its token in one transaction.

        After an error nothing of the batch is in the target; only after a `TargetAwayError` all
        of it may be there.

        Raises:
            FencedError: a newer instance has taken over.
            TargetAwayError: the target does not answer.
            SourceError: the updates contradict the table's key or types.
        """
        ...

    def close(self) -> None:
        """Release connections; may follow any error, and may be called more than once."""
        ...
