"""What a sink is: a target, such as a database, that applies closed batches, each exactly once.

A batch has all updates of all tables with times in `[lower, upper)`, and a token, which says where
the topics go on behind it.  A sink writes the changes and the token in *one transaction of the
target*.  So a restart, which asks the target for its token, goes on exactly behind what was
applied, whatever was killed when.

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
target is away.  `tests/support/sink_conformance.py` has what every sink has to pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol, get_args

import pyarrow as pa

from ikebana.codecs.progress import Times
from ikebana.delivering.columns import Column, Typing
from ikebana.delivering.spool import Spooled
from ikebana.errors import AwayError, ConfigError

# current: the rows of the collection.  changes: its updates, which are only added.
# history: its rows with the times from which and up to which they were there.
Mode = Literal["current", "changes", "history"]
MODES: tuple[Mode, ...] = get_args(Mode)

ID, TIME, DIFF, COUNT = "ikebana_id", "ikebana_time", "ikebana_diff", "ikebana_count"
"""Columns that a table has beside those of the collection, by its mode and key."""
VALID_FROM, VALID_TO = "valid_from", "valid_to"
"""The columns of a history: the time at which a row came, and at which it was gone, or null."""


class TargetAwayError(AwayError):
    """A target could not answer now; asked again later, it may.

    Whether the batch that was being applied is in the target is not known: `Sink.open` tells it.
    """


@dataclass(frozen=True)
class Table:
    """What a target keeps of one collection.

    With a `key`, no two rows of the collection have equal values in its columns at one time, and
    the target keeps one row of each key.  Without, equal rows are one row of the target with
    their number in `COUNT`, and `ID` tells different rows apart.

    `added` names the columns that it has beside those of the collection, by mode and key.

    Raises: ConfigError, if columns are missing or have the same name.
    """

    collection: str
    """The topic."""
    name: str
    """The name of the table in the target."""
    mode: Mode
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if not names:
            raise ConfigError(
                f'table "{self.name}" has no columns',
                hint=f'Topic "{self.collection}" tells none: list them under `columns`.',
            )
        used: set[str] = set()
        for name in (*names, *self.added):
            # Most targets do not tell capital letters from small ones.
            if name.lower() in used:
                raise ConfigError(
                    f'table "{self.name}" has two columns "{name}"',
                    hint="List the columns, and give one another name with `field`.",
                )
            used.add(name.lower())
        for name in self.key:
            if name not in names:
                raise ConfigError(f'the key of table "{self.name}" has "{name}", no column of it')

    @property
    def counted(self) -> bool:
        """Whether rows have an id and a count."""
        return self.mode != "changes" and not self.key

    @property
    def added(self) -> tuple[str, ...]:
        """The names of the columns of the target beside those of the collection."""
        if self.mode == "changes":
            return TIME, DIFF
        counted = (ID, COUNT) if self.counted else ()
        return (*counted, *((VALID_FROM, VALID_TO) if self.mode == "history" else ()))

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of its updates: those of the collection, then ID, TIME and DIFF.

        ID has 16 bytes, which are equal if and only if rows are; `changes` has none.  The others
        are int64.
        """
        return self.typing.schema

    @cached_property
    def typing(self) -> Typing:
        """What makes rows of updates."""
        return Typing(
            self.collection, self.columns, None if self.mode == "changes" else ID, (TIME, DIFF)
        )


class Batch:
    """All updates of all tables with times in `[lower, upper)`, and the token behind them.

    The first batch `begins`: it has all times before `upper`, nothing was applied before it, and
    what a target without transactions may have left of an earlier attempt is to be deleted.
    `times` says whether times are milliseconds of a clock or offsets, if the topics tell it.
    """

    def __init__(
        self,
        lower: int,
        upper: int,
        token: str,
        updates: Mapping[str, Spooled],
        *,
        begins: bool,
        times: Times | None = None,
    ) -> None:
        self.lower = lower
        self.upper = upper
        self.token = token
        self.begins = begins
        self.times = times
        self._updates = updates

    def count(self, table: Table) -> int:
        """Count the updates of a table."""
        return self._updates[table.collection].count()

    def updates(self, table: Table) -> Iterator[pa.RecordBatch]:
        """Yield the updates of a table, in chunks of `table.schema`, as often as it is called.

        They are in no order, and not consolidated: a row may come and go within the batch, at
        one time, too.  A chunk has some ten thousand rows, so memory is bounded.

        Raises:
            SourceError: a value has not the type of its column.
        """
        for chunk in self._updates[table.collection].chunks():
            yield table.typing.rows(chunk)


class Sink(Protocol):
    """A target that applies batches exactly once.  All calls come from one thread."""

    name: str
    """Tells the sink's token from those of other sinks in the same target."""

    def open(self, tables: Sequence[Table]) -> str | None:
        """Connect, take over from other instances, check tables or make them.

        Returns the token of the last batch that was applied, and None if there was none.  From
        now on no other instance that was opened before can apply anything: the target refuses
        its transactions.  Nothing is written but the tables that are missing.  It is called again
        after a `TargetAwayError`.

        Raises:
            ConfigError: a table is there and does not fit; it names the table and the column.
            TargetAwayError: the target does not answer.
        """
        ...

    def apply(self, batch: Batch) -> None:
        """Write a batch and its token in one transaction.

        After any error nothing of the batch is in the target, but for a `TargetAwayError`, after
        which all of it may be.

        Raises:
            FencedError: a newer instance has taken over.
            TargetAwayError: the target does not answer.
            SourceError: the updates are not what the table's key or type says.
        """
        ...

    def close(self) -> None:
        """Release connections; after any error, and more than once."""
        ...
