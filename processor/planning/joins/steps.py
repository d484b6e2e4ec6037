"""The steps of a delta path as values, and the arrangements that they read."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from ikebana.processor.planning.joins.qualified import Flat


@dataclass(frozen=True, slots=True)
class ArrangedBy:
    """An arrangement: a relation after filters, indexed by key; equal ones are shared.

    `filters` and `keys` are SQL over the relation's own data.  Data of which a key is null
    are not in it.  Without keys, all data have one key.
    """

    relation: str
    filters: tuple[str, ...]
    keys: tuple[str, ...]

    def __str__(self) -> str:
        where = f" where {' and '.join(self.filters)}" if self.filters else ""
        return f"{self.relation}({', '.join(self.keys)}){where}"

    @property
    def of(self) -> tuple[str, tuple[str, ...]]:
        """What is arranged: the relation, and the filters before it."""
        return self.relation, self.filters

    @property
    def id(self) -> str:
        """Its name among operators, and in the state: without spaces, whatever the SQL."""
        digest = hashlib.blake2b(str(self).encode(), digest_size=5).hexdigest()
        return f"{self.relation}:{digest}"


@dataclass(frozen=True, slots=True)
class Lookup:
    """Look up one input: all data of a key, as of the row's time.

    `key` is what the arrangement is asked for, of the row's columns.  `sees_equal` says
    whether updates of the row's very time are seen.  `predicates` are tested then, and
    `carries` are the columns that go on.  Without a `hop`, which is an exchange, the step is
    made where the one before was, since its key is the same.
    """

    alias: str
    arrangement: ArrangedBy
    key: tuple[Flat, ...]
    sees_equal: bool
    hop: bool
    predicates: tuple[Flat, ...] = ()
    carries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """An input that restricts the values of a variable.

    `values` is the arrangement keyed by the variables already bound, looked up by `key` of the
    row: it counts, and proposes `value`, over the input's columns.  `data` is keyed by the
    variable too, and looked up by `data_key`.  With `completes`, nothing else is to be known of
    the input: its data of a value join the row.  Else it only says whether there are any.
    """

    alias: str
    values: ArrangedBy
    key: tuple[Flat, ...]
    value: Flat
    data: ArrangedBy
    data_key: tuple[Flat, ...]
    sees_equal: bool
    completes: bool


@dataclass(frozen=True, slots=True)
class Extend:
    """Bind a variable: the candidate with the fewest values proposes, the others validate.

    The value becomes the column `variable`, of the type `type`.
    """

    variable: str
    type: str
    candidates: tuple[Candidate, ...]
    predicates: tuple[Flat, ...] = ()
    carries: tuple[str, ...] = ()


PathStep = Lookup | Extend


@dataclass(frozen=True, slots=True)
class Path:
    """A delta path: the steps for changes of one input, after its filters.

    `keys` are what the first step asks for, as SQL over the relation's own data.
    """

    alias: str
    relation: str
    filters: tuple[str, ...]
    keys: tuple[str, ...]
    carries: tuple[str, ...]
    steps: tuple[PathStep, ...]

    @property
    def hops(self) -> int:
        """Between how many shards a change goes at most, from where it comes out on.

        A row goes once to every candidate to be counted, and once more to be proposed and
        validated.
        """
        return sum(
            2 * len(step.candidates) if isinstance(step, Extend) else step.hop
            for step in self.steps
        )

    @property
    def arrangement(self) -> ArrangedBy:
        """What its changes would be arranged as for the first step's key."""
        return ArrangedBy(self.relation, self.filters, self.keys)

    def reads(self) -> Iterator[tuple[str, ArrangedBy]]:
        """The arrangements that it asks, with the input that each is asked for."""
        for step in self.steps:
            if isinstance(step, Lookup):
                yield step.alias, step.arrangement
                continue
            for each in step.candidates:
                yield each.alias, each.values
                yield each.alias, each.data
