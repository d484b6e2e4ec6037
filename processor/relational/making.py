"""The collections that relational operators read, and what builds operators over them.

`KnownRelations` has the columns, types and keys of a pipeline's collections.  A `Making` builds
operators one after another, and knows the types and keys of their results.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from ikebana.codecs.sql_type import literal
from ikebana.processor.kernels.window_values import WindowFunction
from ikebana.processor.linear.bound_query import common_type, type_of
from ikebana.processor.linear.json_text import BLOB, quoted
from ikebana.processor.linear.scope import KEY, UNKNOWN, VALUE, ExpressionError, Scope
from ikebana.processor.linear.steps import Negate, Sql, Step
from ikebana.processor.linear.syntax import (
    Node,
    changed,
    columns,
    equality_sides,
    text_of,
    tree,
    unplaced,
)
from ikebana.processor.planning.aggregates import AggregateError
from ikebana.processor.planning.catalog import Catalog
from ikebana.processor.planning.joins.binding import kind_as_data
from ikebana.processor.planning.joins.query import DeltaJoin, JoinInput
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.loops import variable
from ikebana.processor.planning.plan import (
    ALL_READ,
    Concat,
    Input,
    Linear,
    Loop,
    Operator,
    Reduce,
    Unread,
    Upsert,
    WindowFunctions,
)
from ikebana.processor.planning.relations import (
    NOTHING_KNOWN,
    Keyed,
    Keys,
    KnownKeys,
    derivation_of,
)

Types = Mapping[str, str]


class ReportedError(Exception):
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
        origins = {name: derivation_of(sql, names=self.types) for name, sql in columns}
        return self.facts.each(lambda keys: keys.selected(origins))

    def free_column(self, name: str) -> str:
        """A name that no column has: this one, with underscores appended if it is used."""
        used = {column.lower() for column in self.types}
        while name in used:
            name += "_"
        return name


Listed = list[tuple[str, Node]]
"""Expressions by the names of columns."""


class ColumnList:
    """Expressions as the columns of a collection, to which expressions of clauses are added."""

    def __init__(self, listed: Listed, used: Iterable[str] = ()) -> None:
        self.listed: Listed = [*listed]
        self._used = {name.lower() for name in (*used, *(name for name, _ in listed))}

    def unused(self, name: str) -> str:
        """A name that no column has, like this one."""
        return unused_name(name, self._used)

    def of(self, node: Node, name: str = "by") -> str:
        """The column of an expression; adds one if none has it, called as `name_like` says."""
        plain = unplaced(node)
        for column, other in self.listed:
            if unplaced(other) == plain:
                return column
        self.listed.append((self.unused(name_like(node, name)), node))
        return self.listed[-1][0]


def name_like(node: Node, name: str) -> str:
    """The name of a column; this one for any other expression, and for a key."""
    called = node["column_names"][-1] if node["class"] == "COLUMN_REF" else KEY
    return name if called == KEY else called


def unused_name(name: str, used: set[str]) -> str:
    """The name, with a number if it is used already; adds the result to `used`."""
    candidate, number = name, 1
    while candidate.lower() in used:
        number += 1
        candidate = f"{name}_{number}"
    used.add(candidate.lower())
    return candidate


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

    @property
    def names(self) -> Mapping[str, object]:
        """The names of all inputs, operators and pending sections, as keys."""
        return {**self.inputs, **self.operators, **dict.fromkeys(self.pending)}

    def hides(self, name: str) -> bool:
        """Whether a name may be defined in a part of the file that could not be parsed."""
        unread = self._unread
        return unread.may_have("inputs", name) or unread.may_have("operators", name)

    def __contains__(self, name: str) -> bool:
        return name in self.operators or (name in self.inputs and self.inputs[name].is_collection)

    def relation(self, name: str) -> Table:
        """A collection with its types.

        Raises:
            ReportedError: it has a problem of its own, or reads a collection that does not exist.
            MakingError: its columns are not declared.
        """
        if name in self.pending or self.hides(name):
            raise ReportedError
        if name not in self._relations:
            if not self.catalog.is_sound(name):
                raise ReportedError
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
    for unique in (*source.unique, *((source.key,) if source.key and operator else ())):
        meant = [of.column(name) or name for name in unique]
        keys = keys.with_unique(meant, [KEY, *of.types])
    return keys


def table_of(name: str, scope: Scope) -> Table:
    """A collection with the types of its columns.  Raises: ReportedError, MakingError."""
    if UNKNOWN in scope.types.values():
        raise ReportedError
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


# Decision (an anti-join is the left less its semi-join): A semi-join looks up distinct keys, so
# counts of the right do not matter: a reduction and a delta join, no kernel, nothing new in
# checkpoints. `NOT IN` takes three unless nothing is null.


class Making:
    """Builds the operators of one section.

    They get the names `name.what`, and the last one gets `name` itself; see `finished`.
    """

    def __init__(self, pipeline: KnownRelations, name: str) -> None:
        self._pipeline = pipeline
        self._name = name
        self._catalog = pipeline.catalog.copy()
        self._operators: dict[str, Operator] = {}
        self._relations: dict[str, Table] = {}

    def relation(self, name: str) -> Table:
        """A collection of the pipeline, or one of an operator that was built here."""
        return self._relations.get(name) or self._pipeline.relation(name)

    def linear(
        self, source: Table, what: str, *steps: Step, facts: KnownKeys | None = None
    ) -> Table:
        """Steps over a collection; `facts` of the result replace those that steps imply."""
        return self._add(Linear(self._free(what), source.name, steps), facts)

    def select(self, source: Table, what: str, columns: Iterable[tuple[str, str]]) -> Table:
        """A collection of expressions over columns of the source, by name."""
        return self.linear(source, what, Sql(select=tuple(columns)))

    def where(self, source: Table, what: str, *conditions: str) -> Table:
        """The rows of a collection for which conditions are true."""
        return self.linear(source, what, Sql(where=conditions)) if conditions else source

    def vouched(self, table: Table, facts: KnownKeys) -> Table:
        """The same collection with more facts; it must be of linear steps or a sum."""
        operator = self._operators[table.name]
        assert isinstance(operator, Linear | Concat), table.name
        self._operators[table.name] = msgspec.structs.replace(operator, unique=_unique(facts))
        self._relations[table.name] = replace(table, facts=facts)
        return self._relations[table.name]

    def negated(self, source: Table, what: str) -> Table:
        """A collection with negated diffs."""
        return self.linear(source, what, Negate())

    def is_whole(self, source: Table) -> bool:
        """Whether values have exactly the columns of the type, and no others."""
        return source.name in self._operators and not isinstance(
            self._operators[source.name], Upsert
        )

    def may_lack_keys(self, name: str) -> bool:
        """Whether rows may have no key: they are decoded messages, and no step sets a key."""
        operator = self._operators.get(name) or self._pipeline.operators.get(name)
        match operator:
            case None:
                return True
            case Linear():
                makes_keys = any(isinstance(s, Sql) and s.key is not None for s in operator.steps)
                return not makes_keys and self.may_lack_keys(operator.source)
            case Concat():
                return any(map(self.may_lack_keys, operator.sources))
            case _:
                return False

    def together(self, what: str, *sources: Table, facts: KnownKeys | None = None) -> Table:
        """The sum of collections; `facts` are those of the result."""
        operator = Concat(self._free(what), tuple(source.name for source in sources))
        return self._add(operator, facts)

    def collection(self, name: str) -> Table:
        """The collection of a name in the pipeline; of an input of upserts, its rows.

        Raises: MakingError, ReportedError.
        """
        is_there = name in self._pipeline or name in self._pipeline.pending
        return self._pipeline.relation(name) if is_there else self.rows_of(name)

    def rows_of(self, source: str) -> Table:
        """The rows of an input of upserts; reuses an existing upsert of that input."""
        for operator in (*self._pipeline.operators.values(), *self._operators.values()):
            if isinstance(operator, Upsert) and operator.input == source:
                return self.relation(operator.name)
        return self._add(Upsert(f"{source}.rows", source))

    def reduce(
        self,
        source: Table,
        what: str,
        by: Iterable[tuple[str, str, str]],
        aggregates: Iterable[tuple[str, str]],
        then: Sql | None = None,
        *,
        total: bool = False,
        minimal: bool = False,
    ) -> Table:
        """The aggregates of each group, beside the columns that rows are grouped by.

        `by` are triples (column, SQL over the source, its type).  `then` has conditions and a
        diff over aggregates alone; after it only the grouping columns remain.  With `total` there
        is one group, even of no rows.  With `minimal`, grouping columns that others of them
        determine are no part of the key.
        """
        by, listed = tuple(by), tuple(aggregates)
        reduced = self.reduced(source, what, by, listed, total=total)
        values = [(name, quoted(name)) for name, _ in listed] if then is None else []
        begin = then or Sql()
        columns = [name for name, _, _ in by]
        groups = source.selected((name, sql) for name, sql, _ in by)
        few = groups.declared.minimal(columns) if minimal else columns
        every = [KEY, *columns, *(name for name, _ in values)]
        is_several = begin.diff is not None
        facts = groups.each(
            lambda keys: _keys_of_groups(keys, columns, every, few, several=is_several)
        )
        if len(by) < 2:
            of_key = [(name, as_type(reduced.key_name, kind)) for name, _, kind in by]
            step = msgspec.structs.replace(begin, select=(*of_key, *values))
            return self.linear(reduced, f"{what}.rows", step, facts=facts)
        group = "g"
        while group in (name for name, _ in listed):
            group += "_"
        whole = ", ".join(f"{quoted(name)} {kind}" for name, _, kind in by)
        parsed = ((group, f"{reduced.key_name}::STRUCT({whole})"), *values)
        parts = [(name, f"{quoted(group)}.{quoted(name)}") for name in columns]
        key = key_of(tuple((name, sql, "") for name, sql in parts if name in few))
        steps = (
            msgspec.structs.replace(begin, select=parsed),
            Sql(select=(*parts, *values), key=None if len(few) == len(by) else key),
        )
        return self.linear(reduced, f"{what}.rows", *steps, facts=facts)

    def reduced(
        self,
        source: Table,
        what: str,
        by: Iterable[tuple[str, str, str]],
        aggregates: Iterable[tuple[str, str]],
        *,
        total: bool = False,
    ) -> Table:
        """The aggregates of each group alone; the grouping columns are the key."""
        key = None if total else key_of(tuple(by))
        name, listed = self._free(what), tuple(aggregates)
        return self._add(Reduce(name, source.name, listed, key, total=total))

    def variable(self, columns: Mapping[str, str]) -> Table:
        """A variable, the value of which a loop computes; see `extract` and `recursion`."""
        name = f"{self._name}.recursive.{len(self._catalog.inputs)}"
        source = variable(name, tuple(columns.items()))
        self._catalog.inputs = {**self._catalog.inputs, name: source}
        self._relations[name] = table_of(name, self._catalog.relation(name).scope)
        return self._relations[name]

    def behind(self, names: Iterable[str]) -> dict[str, Operator]:
        """The operators built here that depend on some collections, each after its sources."""
        operators: dict[str, Operator] = {}
        begin = set(names)
        for name, operator in self._operators.items():
            if not begin.isdisjoint(kind_of(operator).sources(operator)):
                operators[name] = operator
                begin.add(name)
        return operators

    def extract(self, variables: Iterable[str]) -> dict[str, Operator]:
        """Remove and return the operators that depend on variables."""
        operators = self.behind(variables)
        self._operators = {
            name: of for name, of in self._operators.items() if name not in operators
        }
        return operators

    def loop(self, loop: Loop) -> Table:
        """The rows of a loop's variables."""
        return self._add(msgspec.structs.replace(loop, name=self._free(loop.name)))

    def windowed(
        self,
        source: Table,
        what: str,
        by: Iterable[tuple[str, str, str]],
        functions: tuple[WindowFunction, ...],
        order: str | None,
        *,
        is_descending: bool,
        most: int = 0,
    ) -> Table:
        """The rows of a collection, each with the values of functions over its partition.

        The columns are `row`, a struct of the columns of the source, and `w0`, `w1` and so on.
        """
        row = struct((name, quoted(name)) for name in source.types)
        key, name = key_of(tuple(by)), self._free(what)
        return self._add(
            WindowFunctions(name, source.name, row, functions, key, order, is_descending, most)
        )

    def join(
        self,
        what: str,
        inputs: Iterable[tuple[str, Table]],
        where: Iterable[str],
        select: Iterable[tuple[str, str]],
        *,
        cartesian: bool = False,
    ) -> Table:
        """An inner join: combinations of rows for which all conditions are true.

        Sides of an equality that have different types are cast to one, as SQL does.
        """
        (alias, first), *others = inputs
        tables = {alias: first, **dict(others)}
        every = [_of_one_type(each, tables) for each in where if each != "true"]
        # A condition that reads no column can be tested on the rows of one input.
        constant = [each for each in every if not columns(tree(each))]
        first = self.where(first, f"{what}.rows", *constant)
        joined = tuple(JoinInput(a, each.name) for a, each in ((alias, first), *others))
        conditions = tuple(each for each in every if each not in constant)
        return self._add(
            DeltaJoin(self._free(what), joined, conditions, tuple(select), cartesian=cartesian)
        )

    def finished(self, last: Table, key: str | None = None) -> tuple[Operator, ...]:
        """All operators; the one of `last` gets the section's name."""
        if key is not None:
            last = self.linear(last, "keyed", Sql(key=key))
        if last.name not in self._operators:
            # An existing collection under another name.
            last = self.select(last, "all", [(name, quoted(name)) for name in last.types])

        # What only an attempt that was given up has read goes.
        read = {last.name}
        for name, operator in reversed(self._operators.items()):
            read.update(kind_of(operator).sources(operator) if name in read else ())
        self._operators = {name: of for name, of in self._operators.items() if name in read}
        operators = dict(self._operators)
        # Linear steps over linear steps that have no other reader become one operator.
        for name, operator in self._operators.items():
            before = operators.get(operator.source) if isinstance(operator, Linear) else None
            if isinstance(before, Linear) and self._readers(before.name) == 1:
                assert isinstance(operator, Linear)
                del operators[before.name]
                steps = (*before.steps, *operator.steps)
                unique = _unique(self._relations[name].facts)
                operators[name] = Linear(name, before.source, steps, unique)

        def named(name: str) -> str:
            return self._name if name == last.name else name

        readers = (kind_of(each).with_sources(each, named) for each in operators.values())
        renamed = (msgspec.structs.replace(each, name=named(each.name)) for each in readers)
        # The sort is stable, so all operators stay after their sources.
        in_order = sorted(renamed, key=lambda each: each.name == self._name)
        return tuple(self._unshared(in_order, last))

    def _unshared(self, operators: Iterable[Operator], last: Table) -> Iterator[Operator]:
        """The operators without those that the pipeline has already; readers are redirected."""
        there = {_nameless(each): each.name for each in self._pipeline.operators.values()}
        instead: dict[str, str] = {}
        for operator in operators:
            copy = kind_of(operator).with_sources(operator, lambda name: instead.get(name, name))
            same = there.get(_nameless(copy))
            if same is None or (copy.name == self._name and isinstance(copy, Linear | Concat)):
                yield copy
            elif copy.name != self._name:
                instead[copy.name] = same
            else:
                # The section needs its name, but no second copy of the state.
                select = tuple((name, quoted(name)) for name in last.types)
                yield Linear(copy.name, same, (Sql(select=select),), _unique(last.facts))

    def _readers(self, name: str) -> int:
        return sum(name in kind_of(each).sources(each) for each in self._operators.values())

    def _free(self, what: str) -> str:
        used = {*self._relations, *self._pipeline.operators, *self._pipeline.inputs}
        return next(name for name in _numbered(f"{self._name}.{what}") if name not in used)

    def _add(self, operator: Operator, facts: KnownKeys | None = None) -> Table:
        """Add an operator and infer the types of its result.  Raises: MakingError.

        `facts` of the result replace those that the operator alone implies.
        """
        self._catalog.add((operator,))
        scope = self._catalog.relation(operator.name).scope
        if problem := self._problem(operator):
            raise MakingError(problem)
        called = operator.input if isinstance(operator, Upsert) else operator.name
        table = replace(table_of(called, scope), name=operator.name)
        if facts is None:
            facts = KnownKeys(*(self._keys(operator, table, level) for level in (0, 1)))
        elif isinstance(operator, Linear | Concat):
            operator = msgspec.structs.replace(operator, unique=_unique(facts))
        self._operators[operator.name] = operator
        self._relations[operator.name] = replace(table, facts=facts)
        return self._relations[operator.name]

    def _problem(self, operator: Operator) -> str:
        """The first problem of an operator that has been added; empty if it has none."""
        problems = [problem for _, problem in self._catalog.faults]
        match operator:
            case Linear(steps=steps) if problems:
                return _of_select(steps, *self._catalog.faults[0])
            case DeltaJoin() if parts := self._catalog.examined(operator).problems:
                return "; ".join(problem for _, problem in parts)
            case Reduce():
                try:
                    self._catalog.aggregates(operator)
                except AggregateError as error:
                    of, reasons = (
                        self.relation(operator.source),
                        [each for _, each in error.problems],
                    )
                    if not problems or problems[0] in reasons:
                        return "; ".join(dict.fromkeys(_of_column(of, each) for each in reasons))
            case WindowFunctions() if problems:
                return _of_column(self.relation(operator.source), problems[0])
        return problems[0] if problems else ""

    def _keys(self, operator: Operator, table: Table, level: int) -> Keys:
        """The keys of an operator's result, at a level of facts: sure (0) or declared (1)."""

        def keyed(name: str) -> Keyed:
            of = self.relation(name)
            return Keyed(of.facts[level], {**of.types, KEY: of.key})

        keys = kind_of(operator).keys(operator, keyed, {**table.types, KEY: table.key})
        return declared(keys, self._pipeline.inputs, operator, table) if level else keys


def _of_one_type(condition: str, tables: Mapping[str, Table]) -> str:
    """SQL of a condition; an equality of two tables with both sides cast to one type."""
    if (sides := equality_sides(tree(condition))) is None:
        return condition
    texts = compared_texts(sides, tables)
    return condition if texts is None else " = ".join(f"({text})" for text in texts)


def compared_texts(sides: tuple[Node, Node], tables: Mapping[str, Table]) -> list[str] | None:
    """SQL of both sides of an equality, with casts to the type in which SQL compares them.

    None if they are compared as they are.  Raises: ExpressionError.
    """
    kinds = [kind_in(side, tables) for side in sides]
    kind = None if None in kinds else compared_as(*map(str, kinds))
    if kind is None:
        return None
    return [
        text_of(side) if of == kind else f"CAST({text_of(side)} AS {kind})"
        for side, of in zip(sides, kinds, strict=True)
    ]


def kind_in(node: Node, tables: Mapping[str, Table]) -> str | None:
    """The type of an expression over one of the tables, by alias; None if it reads no single one.

    Raises: ExpressionError.
    """
    read = {names[0] for names in columns(node)}
    if len(read) != 1 or not read <= tables.keys():
        return None
    return type_of(changed(node, _unqualified), tables[read.pop()].keyed())


def _unqualified(node: Node) -> Node | None:
    if node["class"] != "COLUMN_REF" or len(node["column_names"]) < 2:
        return None
    return {**node, "column_names": node["column_names"][1:]}


def compared_as(one: str, other: str) -> str | None:
    """The type in which SQL compares two types; None if both are alike, or have no such type."""
    if kind_as_data(one) == kind_as_data(other) or {one, other} & {"JSON", BLOB}:
        return None
    if "VARCHAR" in (one, other):
        return other if one == "VARCHAR" else one
    try:
        return common_type((one, other))
    except ExpressionError:
        return None


def _unique(facts: KnownKeys) -> tuple[tuple[str, ...], ...]:
    """The sets of columns that are surely unique, in the form of `Linear.unique`."""
    keys = facts.sure
    by_key = {(KEY,)} if keys.is_unique([KEY]) else set()
    return tuple(sorted(by_key | {tuple(sorted(key)) for key in keys.unique}))


def _of_select(steps: Iterable[Step], path: str, problem: str) -> str:
    """Reword a problem of an expression, which may be made here, as one of the column it makes."""
    for step in steps:
        for name, sql in step.select or () if isinstance(step, Sql) else ():
            written = next(
                (each for each in (sql, sql.replace('"row"(', "(")) if problem.startswith(each)),
                None,
            )
            if written is not None and path.endswith(f".{name}"):
                return f'"{name}": {problem.removeprefix(f"{written}: ")}'
    return problem


def _of_column(source: Table, problem: str) -> str:
    """Reword a problem of a type as a problem of the column of that type."""
    if not problem.startswith("is of "):
        return problem
    # The longest type is the whole one, if others are parts of it.
    candidates = [(len(kind), name) for name, kind in source.types.items() if kind in problem]
    return f'"{max(candidates)[1]}" {problem}' if candidates else f"a value {problem}"


def _nameless(operator: Operator) -> Operator:
    return msgspec.structs.replace(operator, name="")


def _keys_of_groups(
    keys: Keys, columns: Sequence[str], every: Sequence[str], few: Iterable[str], *, several: bool
) -> Keys:
    """The keys of groups by `columns`; the columns `few` are the key of a row.

    `every` lists all columns of the result; with `several`, a group may have several rows.
    """
    key = frozenset(few)
    groups = (
        keys.several()
        if several
        else Keys((), keys.determines).with_unique(keys.minimal(columns), every)
    )
    return groups.with_dependencies([(frozenset((KEY,)), key), (key, frozenset((KEY,)))])


def key_of(by: tuple[tuple[str, str, str], ...]) -> str:
    """SQL of a group's key; `by` are triples (column, SQL, its type)."""
    if not by:
        return "0"
    if len(by) == 1:
        return by[0][1]
    return struct((name, sql) for name, sql, _ in by)


def struct(fields: Iterable[tuple[str, str]]) -> str:
    """SQL of a struct of named expressions."""
    return "{" + ", ".join(f"{literal(name)}: {sql}" for name, sql in fields) + "}"


def as_type(sql: str, kind: str) -> str:
    """SQL of a JSON value cast to a type."""
    return sql if kind == "JSON" else f"{sql}::{kind}"


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}{number}"
        number += 1
