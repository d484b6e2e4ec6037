"""Recursive queries: `WITH RECURSIVE`, and `WITH MUTUALLY RECURSIVE`.

`WITH RECURSIVE t AS (base UNION part)`, where the part reads t, is the least collection with the
rows of both.  With UNION ALL a row is there once for each derivation of it.

`WITH MUTUALLY RECURSIVE a (x BIGINT) AS (…), b (…) AS (…)` names collections, with the types of
their columns, and each query may read all of them.  They begin empty, and each round computes all
of them from the round before, until nothing changes.  DuckDB does not parse this, so each query is
cut out of the text and translated alone, over tables with these columns.  Spaces replace the rest
of the text, so positions in errors stay right.

`(ERROR AT RECURSION LIMIT n)` after RECURSIVE limits the number of rounds.

A variable is a collection that is defined by a query that reads it.  Operators over a variable are
made as over any other collection.  Then all operators that depend on variables are moved into the
loop of one reduction.  Operators that depend on none stay outside and are sources of the loop:
they run in parallel, and other views share them.

A recursion may carry a column unchanged: every row that it derives has the same value there as
the rows it is derived from.  Then rows with different values never meet, so the column is a key of
the loop, and shards divide it.  The tenant of a graph is such a column if edges are joined by
tenant.  The start of a path is none, because an edge belongs to many starts.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from ikebana.processor.base.texts import counted
from ikebana.processor.linear.bound_query import SqlQueryError, closing, query_tree
from ikebana.processor.linear.expressions import column_type
from ikebana.processor.linear.json_text import BLOB, quoted
from ikebana.processor.linear.scope import OURS, SHORT, ExpressionError
from ikebana.processor.linear.steps import AnyStep, Negate, Sql
from ikebana.processor.linear.syntax import (
    Node,
    TextPart,
    Token,
    conjuncts,
    equality_sides,
    items,
    replaced,
    text_of,
    tokens,
    tree,
    unquoted,
)
from ikebana.processor.linear.syntax import columns as columns_of
from ikebana.processor.planning.joins.binding import overlapping
from ikebana.processor.planning.joins.query import DeltaJoin
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.loops import OF, ROW, source_name, variable_name, why_not_in_loop
from ikebana.processor.planning.plan import (
    TOTAL_KEY,
    Concat,
    Linear,
    Loop,
    LoopVariable,
    Operator,
    Reduce,
)
from ikebana.processor.planning.relations import derivation_of
from ikebana.processor.relational import rows
from ikebana.processor.relational.making import (
    Making,
    MakingError,
    Table,
    Translate,
    key_of,
    struct,
)
from ikebana.processor.relational.outer_joins import Item

ROUNDS = 1000
"""How many rounds a recursion may take by default."""


class _Recursive(NamedTuple):
    """A variable, and the collection that is its value in the next round."""

    variable: Table
    result: Table


class RecursionLimits(NamedTuple):
    """How many rounds a recursion may take, and whether anything in it may read keys."""

    rounds: int = ROUNDS
    reads_keys: bool = False


def _looped(
    making: Making,
    recursions: Sequence[_Recursive],
    limits: RecursionLimits,
    divided: Mapping[str, str] | None = None,
) -> list[Table]:
    """The fixed points of variables: their collections when a round changes nothing.

    `divided` names a column of each source, such that rows with different values in it never meet.

    Raises: MakingError.
    """
    variables = {each.variable.name for each in recursions}
    operators = making.extract(variables)
    for operator in operators.values():
        if (problem := why_not_in_loop(operator)) is not None:
            raise MakingError(problem)
    read = [name for each in operators.values() for name in kind_of(each).sources(each)]
    read += [each.result.name for each in recursions]
    sources = [name for name in dict.fromkeys(read) if name not in {*operators, *variables}]
    named = {name: source_name(at) for at, name in enumerate(sources)}
    named |= {each.variable.name: variable_name(at) for at, each in enumerate(recursions)}
    named |= {name: f"o{at}" for at, name in enumerate(operators)}
    body = tuple(_renamed(operator, named) for operator in operators.values())
    tables = [making.relation(name) for name in sources]
    shown = [each.result.name for each in recursions]
    columns = [_columns(table, operators.values(), shown) for table in tables]
    by = divided or {}
    rows = [
        _tagged(making, table, at, of, by.get(table.name), reads_keys=limits.reads_keys)
        for at, (table, of) in enumerate(zip(tables, columns, strict=True))
    ]
    together = rows[0] if len(rows) == 1 else making.together("recursive.rows", *rows)
    results = tuple(
        LoopVariable(tuple(v.types.items()), named[result.name]) for v, result in recursions
    )
    key = TOTAL_KEY if divided is None else None
    output = making.loop(
        Loop("recursive", together.name, tuple(columns), results, body, limits.rounds, key)
    )
    return [_result(making, output, at, each) for at, each in enumerate(recursions)]


def _renamed(operator: Operator, named: Mapping[str, str]) -> Operator:
    copy = kind_of(operator).with_sources(operator, lambda name: named[name])
    # Declared keys matter to planners only: a loop needs none.
    more = {"unique": ()} if isinstance(operator, Linear | Concat) else {}
    renamed: Operator = msgspec.structs.replace(copy, name=named[operator.name], **more)
    return renamed


def _columns(
    table: Table, body: Iterable[Operator], shown: Iterable[str]
) -> tuple[tuple[str, str], ...]:
    """The columns of a source that a loop may read: those that its SQL mentions."""
    whole = {name for each in body if isinstance(each, Concat) for name in each.sources}
    if table.name in {*whole, *shown}:
        return tuple(table.types.items())
    readers = [each for each in body if table.name in kind_of(each).sources(each)]
    text = msgspec.json.encode(readers).decode().lower()
    named = [name for name in table.types if not name.isalnum() or name.lower() in text]
    # Rows count even if none of their columns is read, so one column stays.
    return tuple((name, table.types[name]) for name in named or list(table.types)[:1])


def _tagged(
    making: Making,
    table: Table,
    number: int,
    columns: Sequence[tuple[str, str]],
    by: str | None,
    *,
    reads_keys: bool,
) -> Table:
    """The rows of a source with the source's number, keyed by the dividing column if any."""
    if reads_keys and table.key == BLOB:
        raise MakingError(
            f'a recursion reads keys, and those of "{table.name}" are bytes: read a view that '
            "selects decode(key)"
        )
    key = table.key_name if reads_keys else "NULL"
    row = struct((name, quoted(name)) for name, _ in columns)
    select = (OF, str(number)), ("key", key), (ROW, row)
    step = Sql(select=select, key=None if by is None else quoted(by))
    return making.linear(table, "recursive.of", step)


def _result(making: Making, loop: Table, number: int, of: _Recursive) -> Table:
    """The rows of a variable; each is its own key."""
    types = of.variable.types
    listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items())
    row = (("r", f"{quoted(ROW)}::STRUCT({listed})"),)
    by = tuple((name, f"r.{quoted(name)}", kind) for name, kind in types.items())
    columns = tuple((name, sql) for name, sql, _ in by)
    steps = (
        Sql(where=(f"{quoted(OF)} = {number}",), select=row),
        Sql(select=columns, key=key_of(by)),
    )
    select = [(name, quoted(name)) for name in of.result.types]
    return making.linear(loop, "recursive.rows", *steps, facts=of.result.selected(select))


def _is_linear(making: Making, variable: Table) -> bool:
    """Whether a recursive part has the same result over all rows as over each round's rows."""
    behind = making.behind({variable.name})
    for operator in behind.values():
        match operator:
            case Reduce():
                return False
            case DeltaJoin(inputs=inputs):
                read = [each.relation for each in inputs]
                if sum(name == variable.name or name in behind for name in read) > 1:
                    return False
    return True


def _of_types(making: Making, source: Table, columns: Mapping[str, str], what: str) -> Table:
    """Rename and cast the columns of a collection to these names and types, in order.

    Raises: MakingError.
    """
    if len(source.types) != len(columns):
        raise MakingError(
            f"{what} has {counted(len(columns), 'column')}, and its query "
            f"{counted(len(source.types), 'column')}: {', '.join(source.types)}"
        )
    if list(source.types.items()) == list(columns.items()):
        return source
    return making.select(source, "recursive.columns", _cast(source.types, columns))


def _cast(types: Mapping[str, str], columns: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for (name, kind), (other, of_other) in zip(columns.items(), types.items(), strict=True):
        yield name, quoted(other) if kind == of_other else f"CAST({quoted(other)} AS {kind})"


_FORM = "write WITH MUTUALLY RECURSIVE name (column TYPE, …) AS (SELECT …), … SELECT …"
_LIMIT = ("AT", "RECURSION", "LIMIT")
_KEYS = re.compile(rf"\b({OURS})?key\b", re.IGNORECASE)


def limits_of(text: str) -> tuple[str, RecursionLimits]:
    """The text without the limit of rounds, and the limits.  Raises: QueryError."""
    limits = RecursionLimits(reads_keys=_KEYS.search(text) is not None)
    lexemes = tokens(text) if "recursion" in text.lower() else []
    for at in range(1, len(lexemes) - len(_LIMIT) - 3):
        before, begin, kind, *words = (token.text.upper() for token in lexemes[at - 1 : at + 5])
        if (before, begin, *words) != ("RECURSIVE", "(", *_LIMIT):
            continue
        if kind != "ERROR":
            problem = "a recursion has no result before its end"
            remedy = "count rounds in a column, and end them by a condition on it"
            raise SqlQueryError(f"{problem}; {remedy}", lexemes[at].at)
        number, end = lexemes[at + 5], lexemes[at + 6]
        if not number.text.isdigit() or not int(number.text) or end.text != ")":
            raise SqlQueryError(
                "a limit is a number, as in (ERROR AT RECURSION LIMIT 100)", number.at
            )
        return replaced(text, lexemes[at].at, end.end), limits._replace(rounds=int(number.text))
    return text, limits


def recursive(
    query: Any, view: Any, name: str, limits: RecursionLimits, domain: Item | None = None
) -> Table:
    """The collection of a recursive view.  Raises: QueryError.

    With a domain, the domain's columns are the last ones of the result.
    """
    making, node, within = query.making, view.query.node, view.query.within
    try:
        base = query.query(within(node["left"]), domain=domain)
        shown = len(base.types) - (0 if domain is None else len(domain.relation.types))
        names = [*view.names, *list(base.types)[len(view.names) : shown]]
        if len({each.lower() for each in names}) < shown:
            raise SqlQueryError(f'"{name}" names a column twice')
        for each in list(base.types)[shown:]:
            names.append(each + "_" * any(each.lower() == other.lower() for other in names))
        columns = dict(zip(names, base.types.values(), strict=True))
        base = _of_types(making, base, columns, f'"{name}"')
        rounds = _Rounds(query, view, name, base, domain)
        if domain is not None or node["key_targets"] or rounds.reads_all():
            return rounds.result(limits)
        variable = making.variable(columns)
        inner_view = replace(view, relation=variable)
        right = node["right"] if node["union_all"] else _once(node["right"])
        part = query.query(within(right, {name.lower(): inner_view}))
        part = _of_types(making, part, columns, f'"{name}"')
        if not _is_linear(making, variable):
            making.extract({variable.name})
            return rounds.result(limits)
        table = rows.union_all(making, [base, part])
        divided = carried(making.behind({variable.name}), variable, table)
        if not node["union_all"]:
            table = rows.distinct(making, table)
        (result,) = _looped(making, [_Recursive(variable, table)], limits, divided)
    except MakingError as error:
        raise SqlQueryError(f'WITH RECURSIVE "{name}": {error}') from None
    return result


# The qualifiers of the rows of all rounds, and of the number of a round.
_ROWS, _ROUND = "recurring.rows", "recurring.round"


class _Rounds:
    """A recursion by rounds: its part reads the rows of the round before alone, as SQL has it.

    Each row has the number of its round.  The part is translated as a subquery that reads this
    number from a query around it, for the first round and each that has rows; its results are
    rows of the next round.  Without ALL, a row belongs to the first round that has it.

    With USING KEY, the result has one row of each key: the values of the last round that has the
    key, or aggregates over all rounds.  `recurring.t` is that result up to a round.  Without ALL,
    the part reads rows of this result that the last round has changed.

    The last columns of the base are those of the domain.
    """

    def __init__(self, query: Any, view: Any, name: str, base: Table, domain: Item | None) -> None:
        self._query, self._view, self._name, self._base = query, view, name, base
        self._making: Making = query.making
        self._domain = domain
        self._number = base.free_column("round")
        self._outer = [] if domain is None else list(base.types)[-len(domain.relation.types) :]
        self._shown = [each for each in base.types if each not in self._outer]

    def reads_all(self) -> bool:
        """Whether the part reads `recurring.t`, the rows of all rounds before."""
        name = recurring(self._name)
        return f'"{name}"' in msgspec.json.encode(self._view.query.node["right"]).decode().lower()

    def result(self, limits: RecursionLimits) -> Table:
        """The collection; its last columns are those of the domain.  Raises: SqlQueryError."""
        making, node, number = self._making, self._view.query.node, self._number
        base = self._base
        variable = making.variable({**base.types, number: "BIGINT"})
        every = [(each, quoted(each)) for each in base.types]
        within = self._view.query.within(node["right"], self._views(variable))
        part = self._query.query(within, domain=self._rounds(variable))
        renamed = zip(variable.types, map(quoted, part.types), strict=True)
        part = making.select(part, "next", renamed)
        part = making.select(part, "next", [*every, (number, f"{quoted(number)} + 1")])
        part = _of_types(making, part, variable.types, f'"{self._name}"')
        first = making.select(base, "first", [*every, (number, "0::BIGINT")])
        table = rows.union_all(making, [first, part])
        if not node["union_all"] and not node["key_targets"]:
            by = [(each, quoted(each), kind) for each, kind in base.types.items()]
            table = making.reduce(table, "once", by, [(number, f"min({quoted(number)})")])
        (result,) = _looped(making, [_Recursive(variable, table)], limits)
        if not node["key_targets"]:
            return making.select(result, "recursive.all", every)
        views = {_ROWS: replace(self._view, relation=result)}
        whole = query_tree(self._of(None, self._outer))
        last: Table = self._query.query(self._view.query.within(whole, views))
        return last

    def _views(self, variable: Table) -> Mapping[str, Any]:
        """The views that the part may read beside those of the query: its own and all rows."""
        node, view = self._view.query.node, self._view
        last = self._of("<=")
        if not node["key_targets"]:
            last = self._of("=")
        elif node["union_all"]:
            listed = ", ".join(map(quoted, self._shown))
            last = f"SELECT {listed} FROM {quoted(_ROWS)} WHERE {self._met('=')}"
        else:
            last = f"{last} EXCEPT {self._of('<')}"
        of_rows = {_ROWS: replace(view, relation=variable)}
        views = dict(of_rows)
        for name, text in ((self._name.lower(), last), (recurring(self._name), self._of("<="))):
            query = view.query.within(query_tree(text), of_rows)
            views[name] = replace(view, query=query, names=())
        return views

    def _of(self, sign: str | None, more: Sequence[str] = ()) -> str:
        """SQL of the rows of the rounds up to one, those of the last round of each key."""
        where = "" if sign is None else f" WHERE {self._met(sign)}"
        targets = self._view.query.node["key_targets"]
        if not targets:
            return f"SELECT {', '.join(map(quoted, self._shown))} FROM {quoted(_ROWS)}{where}"
        listed = {
            each: f"arg_max_null({quoted(each)}, {quoted(self._number)})" for each in self._shown
        }
        keys = [quoted(each) for each in more]
        for each in targets:
            names = [names[-1] for names in columns_of(each)]
            to = each["alias"] or names[0]
            name = next(name for name in self._shown if name.lower() == to.lower())
            listed[name] = text_of({**each, "alias": ""})
            keys += [quoted(name)] * (each["class"] == "COLUMN_REF")
        select = [f"{sql} AS {quoted(name)}" for name, sql in listed.items()]
        shown = ", ".join([*select, *map(quoted, more)])
        return f"SELECT {shown} FROM {quoted(_ROWS)}{where} GROUP BY {', '.join(keys)}"

    def _met(self, sign: str) -> str:
        outer = [
            f"{quoted(_ROWS)}.{each} IS NOT DISTINCT FROM {quoted(_ROUND)}.{each}"
            for each in map(quoted, self._outer)
        ]
        number = quoted(self._number)
        return " AND ".join([*outer, f"{quoted(_ROWS)}.{number} {sign} {quoted(_ROUND)}.{number}"])

    def _rounds(self, variable: Table) -> Item:
        """The numbers of rounds that have rows, with the values of the domain."""
        making, domain, fields = self._making, self._domain, [*self._outer, self._number]
        rounds = making.select(variable, "round", [(each, quoted(each)) for each in fields])
        if not self._view.query.node["key_targets"]:
            rounds = rows.union_all(making, [rounds, self._empty()])
        hidden = [(_ROUND, each, each) for each in fields]
        if domain is not None:
            of = dict(zip(domain.relation.types, self._outer, strict=True))
            hidden += [(by, name, of[field]) for by, name, field in domain.hidden]
        numbers = rows.distinct(making, rounds, "rounds")
        return Item(self._query.free_alias("d"), numbers, (), tuple(hidden))

    def _empty(self) -> Table:
        """Round 0 where the base has no rows: DuckDB evaluates the part once even then.

        It must not come from the variable: a round is computed only when its rows are final.
        """
        making, base, first = self._making, self._base, (self._number, "0::BIGINT")
        if self._domain is None:
            count = making.reduced(base, "base", (), [("n", "count(*)")], total=True)
            return making.linear(count, "empty", Sql(where=('"n" = 0',), select=(first,)))
        fields = list(zip(self._outer, map(quoted, self._domain.relation.types), strict=True))
        values = making.select(self._domain.relation, "outer", fields)
        there = making.select(base, "outer", [(each, quoted(each)) for each in self._outer])
        left = rows.set_operation(making, "except", [values, there], every=False)
        return making.select(left, "empty", [*((e, quoted(e)) for e in self._outer), first])


def recurring(name: str) -> str:
    """The name of the rows of all rounds of a recursion, in the part of it."""
    return f"recurring.{name.lower()}"


def _once(node: Node) -> Node:
    """A query without its DISTINCT, as UNION makes rows distinct anyway."""
    modifiers = node.get("modifiers") or []
    if [each["type"] for each in modifiers] != ["DISTINCT_MODIFIER"]:
        return node
    if modifiers[0].get("distinct_on_targets"):
        return node
    return {**node, "modifiers": []}


class _Named(NamedTuple):
    """A named query with its declared columns, and its position in the text."""

    name: str
    columns: Mapping[str, str]
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Mutual:
    """Queries that read each other, and the last one, which is the result."""

    queries: tuple[_Named, ...]
    last: str

    def result(self, making: Making, translate: Translate, limits: RecursionLimits) -> Table:
        """The collection of the last query; `translate` translates a query over tables.

        Raises: QueryError.
        """
        variables = {each.name: making.variable(each.columns) for each in self.queries}
        recursions = []
        for each in self.queries:
            try:
                part = translate(each.text, variables)
                table = _of_types(making, part, each.columns, f'"{each.name}"')
            except MakingError as error:
                raise SqlQueryError(str(error), each.at) from None
            recursions.append(_Recursive(variables[each.name], table))
        try:
            results = _looped(making, recursions, limits)
        except MakingError as error:
            raise SqlQueryError(f"WITH MUTUALLY RECURSIVE: {error}") from None
        return translate(self.last, dict(zip(variables, results, strict=True)))

    def tables(self, named: Callable[[str], list[str]]) -> list[str]:
        """The collections outside that they read; `named` lists the names in a query's FROM."""
        names = {each.name.lower() for each in self.queries}
        texts = (*(each.text for each in self.queries), self.last)
        return [name for text in texts for name in named(text) if name.lower() not in names]


def mutual(text: str) -> Mutual | None:
    """The parts of a query that begins WITH MUTUALLY RECURSIVE.  Raises: QueryError."""
    lexemes = tokens(text)
    words = [token.text.upper() for token in lexemes[:3]]
    if words != ["WITH", "MUTUALLY", "RECURSIVE"]:
        return None
    queries: list[_Named] = []
    at = 3
    while True:
        name, columns, at = _head(text, lexemes, at)
        if any(name.lower() == each.name.lower() for each in queries):
            raise SqlQueryError(f'"{name}" is named twice', lexemes[at].at)
        end = closing(lexemes, at)
        query = _only(text, lexemes[at].end, lexemes[end].at)
        queries.append(_Named(name, columns, query, lexemes[at].end))
        at = end + 1
        if at >= len(lexemes) or lexemes[at].text != ",":
            break
        at += 1
    if at >= len(lexemes):
        raise SqlQueryError("there is no SELECT behind the queries", len(text))
    return Mutual(tuple(queries), _only(text, lexemes[at].at, len(text)))


def _head(text: str, lexemes: Sequence[Token], at: int) -> tuple[str, Mapping[str, str], int]:
    """The name and columns of a query, and the index of the parenthesis that opens it."""
    begin = at + 1
    if begin >= len(lexemes) or lexemes[begin].text != "(":
        place = lexemes[min(at, len(lexemes) - 1)].at
        raise SqlQueryError(f"the columns with their types are missing; {_FORM}", place)
    end = closing(lexemes, begin)
    begins = lexemes[begin].end
    columns = dict(_types_of_columns(TextPart(text[begins : lexemes[end].at], begins)))
    after = [token.text.upper() for token in lexemes[end + 1 : end + 3]]
    if after != ["AS", "("]:
        place = lexemes[min(end + 1, len(lexemes) - 1)].at
        raise SqlQueryError(f"AS ( is missing; {_FORM}", place)
    return unquoted(lexemes[at]), columns, end + 2


def _types_of_columns(listed: TextPart) -> Iterator[tuple[str, str]]:
    for item in items(listed):
        words = tokens(item.text)
        if len(words) < 2:
            raise SqlQueryError(f"a column needs a name and a type; {_FORM}", item.at)
        try:
            yield unquoted(words[0]), column_type(item.text[words[1].at : words[-1].end])
        except ExpressionError as error:
            raise SqlQueryError(str(error), item.at + words[1].at) from None


def _only(text: str, begin: int, end: int) -> str:
    """The text with everything outside of a part replaced by spaces."""
    return replaced(replaced(text, end, len(text)), 0, begin)


def carried(
    operators: Mapping[str, Operator], variable: Table, union: Table
) -> Mapping[str, str] | None:
    """The column of each source by which the recursion can be divided; None if there is none.

    `operators` compute `union`, the next round, from the sources and the `variable`.
    """
    for column in variable.types:
        needs = _Needs(operators, variable.name, column)
        if needs.meets(union.name, column):
            return needs.sources
    return None


class _Needs:
    """Traces one column of the variable back to a column of each source."""

    def __init__(self, operators: Mapping[str, Operator], variable: str, column: str) -> None:
        self.sources: dict[str, str] = {}
        self._operators = operators
        self._variable, self._column = variable, column

    def meets(self, name: str, column: str) -> bool:
        """Whether a column equals the variable's in each row; notes the columns of sources."""
        if name == self._variable:
            return column == self._column
        match self._operators.get(name):
            case None:
                return self.sources.setdefault(name, column) == column
            case Linear(source=source, steps=steps):
                before: str | None = column
                for step in reversed(steps):
                    before = None if before is None else _before(step, before)
                return before is not None and self.meets(source, before)
            case Concat(sources=sources):
                return all(self.meets(each, column) for each in sources)
            case DeltaJoin() as join:
                return self._of_join(join, column)
            case _:
                return False

    def _of_join(self, join: DeltaJoin, column: str) -> bool:
        """Whether each input of a join has a column that equals this column of its result."""
        shorts = [f"{each.alias}.{name}" for each in join.inputs for name in SHORT]
        selected = _copied(dict(join.select).get(column, ""), 2, shorts)
        if selected is None:
            return False
        conditions = [each for text in join.where for each in conjuncts(tree(text))]
        pairs = [equality_sides(each) or () for each in conditions]
        sides = [[_copied(text_of(side), 2, shorts) for side in pair] for pair in pairs]
        joined = [frozenset(each for each in pair if each) for pair in sides if None not in pair]
        equal = overlapping({selected}, joined)
        return all(
            any(
                self.meets(each.relation, name.removeprefix(f"{each.alias}."))
                for name in sorted(equal)
                if name.startswith(f"{each.alias}.")
            )
            for each in join.inputs
        )


def _before(step: AnyStep, column: str) -> str | None:
    """The input column of a step that an output column copies; None if it copies none."""
    match step:
        case Negate():
            return column
        case Sql(flat_map=None, select=None):
            return column
        case Sql(flat_map=None, select=select) if select is not None:
            return _copied(dict(select).get(column, ""))
        case _:
            return None


def _copied(text: str, parts: int = 1, shorts: Collection[str] = SHORT) -> str | None:
    """The column that an expression is, behind its alias if it has two `parts`; else None.

    Columns may be called as in `shorts`, which are names of whole keys and values elsewhere.
    """
    of = derivation_of(text, parts, names=shorts)
    return next(iter(of.of)) if of.is_same else None
