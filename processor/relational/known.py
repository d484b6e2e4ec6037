"""The collections of a pipeline that relational operators read: their columns, types and keys."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ikebana.processor.linear.json_text import BLOB
from ikebana.processor.linear.scope import KEY, UNKNOWN, VALUE, Scope
from ikebana.processor.planning.catalog import Catalog
from ikebana.processor.planning.plan import ALL_READ, Input, Operator, Unread, Upsert
from ikebana.processor.planning.relations import NOTHING_KNOWN, Keys, KnownKeys, made_of

Types = Mapping[str, str]


class UnmadeError(Exception):
    """A source has a mistake of its own, which is reported there; so nothing is said here."""


class MakingError(Exception):
    """A section cannot be translated; `part` is its key that has the mistake, if one has."""

    def __init__(self, problem: str, part: str = "") -> None:
        super().__init__(problem)
        self.part = part


@dataclass(frozen=True, slots=True)
class Table:
    """A relation with a name and the types of all its columns, as SQL needs it."""

    name: str
    types: Types
    key: str = "JSON"
    """The type of its key."""
    facts: KnownKeys = NOTHING_KNOWN
    """Which sets of its columns are unique."""

    def type_of(self, column: str) -> str:
        """The type of a column, or of the key."""
        return self.types.get(column, self.key)

    def column(self, name: str) -> str | None:
        """Resolve a name to a column or to the key; None if it is neither."""
        if name in self.types:
            return name
        return self.key_name if name in (KEY, self.key_name) else None

    @property
    def key_name(self) -> str:
        """The name of its key in SQL: `key` unless a column has that name."""
        return "key" if self.free_column("key") == "key" else KEY

    def keyed(self) -> dict[str, str]:
        """The types of its columns and of its key, by their names in SQL."""
        return {**self.types, KEY: self.key, self.key_name: self.key}

    def alike(self) -> Mapping[str, tuple[str, ...]]:
        """Columns with names that differ in case alone, by their name in lower case."""
        by_name: dict[str, tuple[str, ...]] = {}
        for name in self.types:
            by_name[name.lower()] = (*by_name.get(name.lower(), ()), name)
        return {lower: names for lower, names in by_name.items() if len(names) > 1}

    def selected(self, columns: Iterable[tuple[str, str]]) -> KnownKeys:
        """The facts of a selection from its columns, without the key."""
        origins = {name: made_of(sql, names=self.types) for name, sql in columns}
        return self.facts.each(lambda keys: keys.selected(origins))

    def free_column(self, name: str) -> str:
        """A name that no column has: this one, with underscores appended if it is used."""
        used = {column.lower() for column in self.types}
        while name in used:
            name += "_"
        return name


Translate = Callable[[str, Mapping[str, Table]], Table]
"""Translates a query over the pipeline and over further tables, by their names."""


class KnownRelations:
    """The inputs and operators of a pipeline that a section may read.

    `pending` are names of sections that are not translated yet.  `unread` are parts of the file
    that could not be parsed, where more names may be.
    """

    def __init__(
        self,
        inputs: Iterable[Input],
        operators: Iterable[Operator],
        pending: Iterable[str] = (),
        unread: Unread = ALL_READ,
    ) -> None:
        self.pending = set(pending)
        self._unread = unread
        self.catalog = Catalog(inputs, operators, unread)
        self._relations: dict[str, Table] = {}

    @property
    def inputs(self) -> Mapping[str, Input]:
        """The inputs by name."""
        return self.catalog.inputs

    @property
    def operators(self) -> Mapping[str, Operator]:
        """The operators by name."""
        return self.catalog.operators

    def hides(self, name: str) -> bool:
        """Whether a name may be defined in a part of the file that could not be parsed."""
        unread = self._unread
        return unread.may_have("inputs", name) or unread.may_have("operators", name)

    def __contains__(self, name: str) -> bool:
        return name in self.operators or (name in self.inputs and self.inputs[name].is_collection)

    def relation(self, name: str) -> Table:
        """A collection with its types.

        Raises:
            UnmadeError: it has a problem of its own, or reads a collection that does not exist.
            MakingError: its columns are not declared.
        """
        if name in self.pending or self.hides(name):
            raise UnmadeError
        if name not in self._relations:
            if not self.catalog.is_sound(name):
                raise UnmadeError
            table = table_of(name, self.catalog.relation(name).scope)
            keys = self.catalog.keyed(name).keys
            facts = KnownKeys(keys, declared(keys, self.inputs, self.operators.get(name), table))
            self._relations[name] = replace(table, facts=facts)
        return self._relations[name]


def declared(
    keys: Keys, inputs: Mapping[str, Input], operator: Operator | None, of: Table
) -> Keys:
    """The keys of a collection, with the unique columns that its input declares, if it has one."""
    name = operator.input if isinstance(operator, Upsert) else of.name
    if name not in inputs or not (operator is None or isinstance(operator, Upsert)):
        return keys
    source = inputs[name]
    for columns in (*source.unique, *((source.key,) if source.key and operator else ())):
        meant = [of.column(name) or name for name in columns]
        keys = keys.with_unique(meant, [KEY, *of.types])
    return keys


def table_of(name: str, scope: Scope) -> Table:
    """A collection with the types of its columns.  Raises: UnmadeError, MakingError."""
    if UNKNOWN in scope.types.values():
        raise UnmadeError
    if scope.open:
        where = (
            f"declare them under {scope.declare}"
            if scope.declare
            else (
                "read a linear operator with a select of casts, such as {amount: amount::BIGINT}"
            )
        )
        raise MakingError(f'the columns of "{name}" are not known; {where}')
    if scope.types[VALUE] == BLOB:
        raise MakingError(f'"{name}" has bytes for values; they must be JSON')
    types = {column: kind for column, kind in scope.types.items() if column not in (KEY, VALUE)}
    return Table(name, types, scope.types[KEY])
