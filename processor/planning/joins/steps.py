"""The steps of a delta path as values, and the arrangements that they read."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from ikebana.processor.planning.joins.qualified import Flat


@dataclass(frozen=True, slots=True)
class ArrangedBy:
    """An arrangement: a relation after filters, indexed by key; equal ones are shared.

    `filters` and `keys` are SQL over the relation's data.  It lacks data with a null key.
    Without keys, all data have one key.
    """

    relation: str
    filters: tuple[str, ...]
    keys: tuple[str, ...]

    def __str__(self) -> str:
        where = f" where {' and '.join(self.filters)}" if self.filters else ""
        return f"{self.relation}({', '.join(self.keys)}){where}"

    @property
    def of(self) -> tuple[str, tuple[str, ...]]:
        """The relation that it arranges, and the filters before it."""
        return self.relation, self.filters

    @property
    def id(self) -> str:
        """Its name among operators, and in the state: without spaces, whatever the SQL."""
        digest = hashlib.blake2b(str(self).encode(), digest_size=5).hexdigest()
        return f"{self.relation}:{digest}"


@dataclass(frozen=True, slots=True)
class Lookup:
    """Look up one input: all data of a key, as of the row's time.

    `key` has the expressions over the row that are looked up in the arrangement.  `sees_equal`
    says whether updates of the row's time are seen.  `predicates` are tested on the results, and
    `carries` has the columns that later steps need.  Without a `hop`, which is an exchange, the
    step runs in the shard of the step before, since its key is the same.
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

    `values` is the arrangement keyed by the variables already bound, looked up by `key`: used to
    count and to propose `value`, an expression over the input's columns.  `data` is keyed by the
    variable too, and looked up by `data_key`, to validate.  With `completes`, all variables of the
    input are bound then: its data join the row.  Otherwise it only tests whether there are any.
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

    The value becomes the column `variable` with the type `type`.
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

    `keys` has the expressions that the first step looks up, as SQL over the relation's data.
    """

    alias: str
    relation: str
    filters: tuple[str, ...]
    keys: tuple[str, ...]
    carries: tuple[str, ...]
    steps: tuple[PathStep, ...]

    @property
    def hops(self) -> int:
        """The greatest number of exchanges for a change.

        A row goes to every candidate to be counted, and again to be proposed and validated.
        """
        return sum(
            2 * len(step.candidates) if isinstance(step, Extend) else step.hop
            for step in self.steps
        )

    @property
    def arrangement(self) -> ArrangedBy:
        """The arrangement of its input by the first step's key."""
        return ArrangedBy(self.relation, self.filters, self.keys)

    def reads(self) -> Iterator[tuple[str, ArrangedBy]]:
        """The arrangements that it looks up, with the alias of each one's input."""
        for step in self.steps:
            if isinstance(step, Lookup):
                yield step.alias, step.arrangement
                continue
            for each in step.candidates:
                yield each.alias, each.values
                yield each.alias, each.data
