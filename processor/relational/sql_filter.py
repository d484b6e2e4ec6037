"""FROM and WHERE of a SQL query: which collections are joined, and by which conditions.

LATERAL queries, which read items to their left, are dependent joins.

Temporal filters are conditions that compare an expression with `ikebana_now()`.  The collection as
of a time has the rows for which the conditions are true at that time.  So each
row counts in an interval, which a linear step has as `valid_from` and `valid_until`.  A condition
over one collection is applied before joins, and a condition over several after their join; the
result is the same at every time.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ikebana.processor.linear.bound_query import PIVOT, SqlQueryError, query_tree, types_of
from ikebana.processor.linear.json_text import INSTANTS, literal, quoted
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import (
    TURNED,
    Node,
    column,
    conjuncts,
    has_subquery,
    own_nodes,
    text_of,
    tree,
    unplaced,
)
from ikebana.processor.relational.making import Table, struct, unused_name
from ikebana.processor.relational.outer_joins import (
    Item,
    QualifiedColumn,
    aliases_of,
    equality,
    without_alias,
)
from ikebana.processor.relational.sql_dependent import (
    OuterNames,
    SubqueryResult,
    is_one_row,
    translate_dependent,
)
from ikebana.processor.relational.sql_joining import (
    HALF,
    OUTER,
    as_of,
    columns_of_using,
    outer,
    refuse_join,
    semi_or_anti,
    using,
)
from ikebana.processor.relational.sql_refusals import bounded_by, is_now, reads_now, refuse_now
from ikebana.processor.relational.sql_scope import (
    Froms,
    Names,
    columns_of,
    relation_item,
)
from ikebana.processor.relational.sql_subqueries import Gathered, Subqueries
from ikebana.processor.relational.sql_whole import (
    GreatestValues,
    QueryTranslation,
    Subquery,
    reads_columns,
    series_of,
    values,
    with_elements,
)
from ikebana.processor.relational.windows import microseconds

_BESIDE = (
    "tables in parentheses that read what stands to their left are not supported; write them as "
    "one query: LATERAL (SELECT … FROM … JOIN …)"
)
_AROUND = (
    "a join ({}) that reads what stands to its left, or a query around it, is not supported; "
    "write {}"
)
_INSTEAD = {
    "SEMI": "WHERE EXISTS (…)",
    "ANTI": "WHERE NOT EXISTS (…)",
    "FULL": "a LEFT JOIN, and by UNION ALL the rows of the other side without a match",
    "ASOF": "LATERAL (SELECT … ORDER BY … LIMIT 1)",
    "INNER": "its columns in ON",
    "LEFT": "its columns in ON",
}


def _around(node: Node) -> SqlQueryError:
    ref, join = node["ref_type"], node["join_type"]
    named = join if ref == "REGULAR" else ref
    instead = _INSTEAD.get(named, "a LEFT JOIN of the other side")
    return SqlQueryError(_AROUND.format(named, instead), node.get("query_location"))


def lateral_query(node: Node, around: Subquery) -> tuple[Subquery, list[Sequence[str]]]:
    """The query of an item of FROM, and other names of its columns.

    Raises: QueryError.
    """
    match node["type"]:
        case "SUBQUERY":
            return around.within(node["subquery"]["node"]), [node["column_name_alias"]]
        case "BASE_TABLE":
            view = around.views[node["table_name"].lower()]
            return view.query, [view.names, node["column_name_alias"]]
    raise SqlQueryError(_BESIDE, node.get("query_location"))


def lateral_join(
    query: QueryTranslation, node: Node, around: Subquery, called: str, left: Froms
) -> Froms:
    """The items to the left joined with the result of the query.  Raises: QueryError."""
    names = Names(left)
    result, columns = _result(query, node, around, called, names, may_be_totals=True)
    if not result.is_total:
        right = replace(result.item, columns=columns)
        conditions = [*names.froms.conditions, *(equality(*pair) for pair in result.on)]
        return Froms([*names.froms.items, right], conditions, names.froms.merged)
    fields = Gathered(query, names).attach(result.item, result.on, result.shown)
    pairs = zip(columns, fields, strict=True)
    columns = tuple((of, name, field) for (of, name, _), field in pairs)
    (item,) = names.froms.items
    return names.froms.of_one(replace(item, columns=(*item.columns, *columns)))


def outer_lateral(
    query: QueryTranslation, node: Node, around: Subquery, called: str, left: Froms
) -> tuple[Froms, Froms, list[Node]]:
    """The left as one collection, the result of the query, and the conditions that join them.

    Raises: QueryError.
    """
    names = Names(query.one(left, "joined"))
    result, columns = _result(query, node, around, called, names, may_be_totals=False)
    right: Item = replace(result.item, columns=columns)
    return names.froms, Froms([right]), [equality(*pair) for pair in result.on]


def _result(
    query: QueryTranslation,
    node: Node,
    around: Subquery,
    called: str,
    names: Names,
    *,
    may_be_totals: bool,
) -> tuple[SubqueryResult, tuple[QualifiedColumn, ...]]:
    """The result of a query for each row to its left, and its columns."""
    within, renames = lateral_query(node, around)
    result = translate_dependent(query, within, names, may_be_totals=may_be_totals)
    shown = [name for name, _ in result.shown]
    for others in renames:
        shown = [*others, *shown[len(others) :]]
    # Columns of totals are still expressions; they get fields in the join.
    fields = shown if result.is_total else [each["column_names"][1] for _, each in result.shown]
    return result, tuple((called, name, each) for name, each in zip(shown, fields, strict=True))


def filtered(query: QueryTranslation, subquery: Subquery, domain: Item | None = None) -> Names:
    """Translate FROM and WHERE of a SELECT; returns the names that its other clauses may use.

    With a domain, the domain is one of the joined collections.
    """
    node = subquery.node
    bounds, others = _time_bounds(node["where_clause"])
    from_clause = _From(query, subquery, others, _bounds(node["where_clause"]))
    names = Names(from_clause.whole(node["from_table"], domain))
    for each in node["select_list"]:
        if each.get("alias") and each["class"] != "STAR":
            names.aliased.setdefault(each["alias"].lower(), each)
    waiting = []
    left = _bounded(query, names, bounds)
    for condition in map(names.unaliased, from_clause.conditions):
        if has_subquery(condition):
            waiting.append(condition)
        else:
            names.froms.conditions.append(names.resolved(condition))
    subqueries = Subqueries(query, subquery, names, conjuncts(node["where_clause"]))
    subqueries.add_all(waiting)
    _bounded_after(query, names, left)
    return names


# The qualifier of a column (may be empty) and its name, both in lower case; and its bound.
_UpperBound = tuple[str, str, int]


def _bounds(where: Node | None) -> list[_UpperBound]:
    """The columns that WHERE bounds from above."""
    bounds = []
    for each in conjuncts(where):
        bound = bounded_by(each)
        if bound is not None and bound[0]["class"] == "COLUMN_REF":
            names = [name.lower() for name in bound[0]["column_names"]]
            if len(names) < 3:
                bounds.append(("" if len(names) == 1 else names[0], names[-1], bound[1]))
    return bounds


class _From:
    """The items of FROM, and the conditions of WHERE that are not tested yet.

    A condition over the preserved side of a LEFT or RIGHT JOIN is tested before the join, so that
    neither the join nor its inputs have rows that WHERE would remove later.
    """

    def __init__(
        self,
        query: QueryTranslation,
        around: Subquery,
        conditions: Sequence[Node],
        bounds: Sequence[_UpperBound],
    ) -> None:
        self._bounds = bounds
        self.conditions = list(conditions)
        self._query = query
        self._around = around
        self._reads = OuterNames(query.tables)
        self._queries = 0

    def whole(self, node: Node, domain: Item | None) -> Froms:
        """The items of FROM, and the domain if there is one."""
        if domain is None:
            return self.froms(node, is_filtered=True)
        before = Froms([domain])
        if node["type"] == "EMPTY":
            return before
        if self._is_read(before, node):
            return self.froms(node, is_filtered=True, before=before)
        froms = self.froms(node, is_filtered=True)
        froms.items.append(domain)
        return froms

    def _is_read(self, froms: Froms, node: Node) -> bool:
        """Whether an item of FROM reads items before it."""
        names = Names(froms)
        read = self._reads.of_from(node, self._around)
        return any(names.meant(each) is not None for each in read)

    def froms(
        self,
        node: Node,
        *,
        is_filtered: bool,
        is_seen: bool = True,
        before: Froms | None = None,
    ) -> Froms:
        """Translate a part of FROM, with the conditions of inner joins.

        `is_filtered`: WHERE decides on the rows of this part, as no outer join adds any.
        `is_seen`: rows that WHERE removes after joins may be missing before.  The result includes
        the items `before` it.
        """
        if node["type"] == "JOIN":
            return self._join(node, is_filtered=is_filtered, is_seen=is_seen, before=before)
        if before is None:
            return self._leaf(node, is_seen=is_seen)
        if node["type"] == "TABLE_FUNCTION" and reads_columns(node):
            before = self._ahead(before, is_filtered=is_filtered)
            return with_elements(self._query, before, series_of(node))
        if self._is_read(before, node):
            called = self._called(node)
            return lateral_join(self._query, node, self._around, called, before)
        items = [*before.items, *self._leaf(node, is_seen=is_seen).items]
        return Froms(items, before.conditions, before.merged)

    def _leaf(self, node: Node, *, is_seen: bool) -> Froms:
        """Translate an item of FROM that reads no other item."""
        place = node.get("query_location")
        if node.get("sample"):
            raise SqlQueryError("a sample depends on chance; write a condition", place)
        match node["type"]:
            case "BASE_TABLE":
                called = self._called(node)
                bounds = self._bounds_of(called, node) if is_seen else {}
                relation = self._query.table(node, self._around, bounds)
            case "SUBQUERY":
                called, inner = self._called(node), node["subquery"]["node"]
                bounds = self._bounds_of(called, node) if is_seen else {}
                relation = self._query.query(self._around.within(inner), bounds)
            case "EMPTY":
                return Froms([Item(self._query.free_alias("one"), self._query.one_row())])
            case "EXPRESSION_LIST":
                called = self._called(node)
                relation = values(self._query, node)
            case "TABLE_FUNCTION":
                return with_elements(self._query, None, series_of(node))
            case "PIVOT" if node["unpivot_names"]:
                source = self.froms(node["source"], is_filtered=False, is_seen=False)
                return Froms([_unpivoted(self._query, node, source)])
            case "PIVOT":
                raise SqlQueryError(PIVOT, place)
            case other:
                named = other.lower().replace("_", " ")
                raise SqlQueryError(f"{named} in FROM is not supported", place)
        names = node.get("column_name_alias", ())
        has_key = (
            node["type"] == "BASE_TABLE" and node["table_name"].lower() not in self._around.views
        )
        alias = self._query.free_alias(called)
        return Froms([relation_item(alias, relation, called, names, has_key=has_key)])

    def _called(self, node: Node) -> str:
        """The qualifier of an item's columns."""
        called: str = node["alias"] or node.get("table_name") or ""
        if called or node["type"] == "EXPRESSION_LIST":
            return called or "valueslist"
        # What DuckDB calls a query in FROM that has no name.
        self._queries += 1
        return f"unnamed_subquery{self._queries if self._queries > 1 else ''}"

    def _bounds_of(self, called: str, node: Node) -> GreatestValues:
        """The bounds that WHERE sets for the columns of a query in FROM."""
        if node["column_name_alias"]:
            return {}
        return {n: most for of, n, most in self._bounds if of in ("", called.lower())}

    def _join(
        self, node: Node, *, is_filtered: bool, is_seen: bool, before: Froms | None
    ) -> Froms:
        refuse_join(node)
        ref, join = node["ref_type"], node["join_type"]
        kind, is_half = OUTER.get(join), join in HALF
        if before is not None and kind not in (None, "left"):
            raise _around(node)
        # The result of a semi-join or an anti-join has the rows of the left.
        keeps = {
            "left": is_filtered and kind in (None, "left"),
            "right": is_filtered and not is_half and kind in (None, "right"),
        }
        left = self.froms(node["left"], is_filtered=keeps["left"], is_seen=is_seen, before=before)
        if node["right"]["type"] == "TABLE_FUNCTION" and reads_columns(node["right"]):
            left = self._ahead(left, is_filtered=keeps["left"])
            return self._with_elements(left, node)
        if self._is_read(left, node["right"]):
            return self._beside(node, left)
        # What these joins choose depends on all rows of the right.
        is_right_seen = is_seen and not is_half and ref != "ASOF"
        right = self.froms(node["right"], is_filtered=keeps["right"], is_seen=is_right_seen)
        if join != "INNER":
            for side, froms in (("left", left), ("right", right)):
                if keeps[side]:
                    self._test(froms)
        if kind is not None or ref == "ASOF":
            left = self._query.one(left, "joined")
        if join != "INNER" or ref == "ASOF":
            right = self._query.one(right, "joined")
        if ref == "ASOF":
            right, conditions = self._as_of(node, left, right)
        else:
            conditions = self._on(node, left, right)
        if is_half:

            def on(one: Froms) -> list[Node]:
                return conditions if one.items == left.items else self._on(node, one, right)

            test = pair_filter(self._query, node, self._around)
            return semi_or_anti(self._query, join, left, right.items[0], on, test)
        return self._joined(node, left, right, conditions)

    def _joined(self, node: Node, left: Froms, right: Froms, conditions: Sequence[Node]) -> Froms:
        """An inner or an outer join by conditions, including those with subqueries."""
        kind, of = OUTER.get(node["join_type"]), columns_of_using(node, left, right)
        if kind is None:
            every = [*left.conditions, *right.conditions, *conditions]
            both = Froms([*left.items, *right.items], every, of)
            return filter_of_subqueries(self._query, node, self._around, both)
        test = pair_filter(self._query, node, self._around)
        (first,), (second,) = left.items, right.items
        item = outer(self._query, kind, first, second, conditions, of, test)
        return Froms([item], [], of)

    def _beside(self, node: Node, left: Froms) -> Froms:
        """A join with a query that reads collections to its left."""
        kind, right = OUTER.get(node["join_type"]), node["right"]
        is_using = node["ref_type"] == "NATURAL" or node["using_columns"]
        is_plain = node["ref_type"] in ("REGULAR", "CROSS", "NATURAL")
        is_beside = right["type"] == "JOIN" and kind is None
        if not is_plain or node["join_type"] not in ("INNER", "LEFT") or (is_using and is_beside):
            raise _around(node)
        if is_beside:
            both = self.froms(right, is_filtered=False, before=left)
            both.conditions += self._on(node, both, Froms())
            return filter_of_subqueries(self._query, node, self._around, both)
        within, _ = lateral_query(right, self._around)
        called = self._called(right)
        if is_using or (kind is not None and not (is_one_row(within.node) and is_always(node))):
            left, others, meets = outer_lateral(self._query, right, self._around, called, left)
            conditions = [*self._on(node, left, others), *meets]
            return self._joined(node, left, others, conditions)
        both = lateral_join(self._query, right, self._around, called, left)
        if kind is None:
            both.conditions += self._on(node, both, Froms())
        return filter_of_subqueries(self._query, node, self._around, both)

    def _with_elements(self, left: Froms, node: Node) -> Froms:
        """A join of rows with the elements of a list in one of their columns."""
        place, conditions = node.get("query_location"), list(conjuncts(node["condition"]))
        is_left = node["join_type"] == "LEFT"
        is_true = all(text_of(each).upper() == "TRUE" for each in conditions)
        is_plain = not node["using_columns"] and node["ref_type"] in ("REGULAR", "CROSS")
        if not is_plain or node["join_type"] not in ("INNER", "LEFT") or (is_left and not is_true):
            raise SqlQueryError(
                "a list of columns is joined by a comma, or by LEFT JOIN … ON true, which keeps "
                "rows without elements; write conditions in WHERE",
                place,
            )
        froms = with_elements(self._query, left, series_of(node["right"], keeps=is_left))
        names = Names(froms)
        froms.conditions += [names.resolved(each) for each in conditions if not is_left]
        return froms

    def _ahead(self, froms: Froms, *, is_filtered: bool) -> Froms:
        """The items before a list of their columns; rows that WHERE removes have no elements."""
        if is_filtered:
            self._test(froms)
        items = []
        for item in froms.items:
            texts = [
                text_of(without_alias(item.alias, each))
                for each in froms.conditions
                if aliases_of(each) == {item.alias}
            ]
            relation = self._query.making.where(item.relation, "where", *texts)
            items.append(replace(item, relation=relation))
        single = [{item.alias} for item in items]
        others = [each for each in froms.conditions if aliases_of(each) not in single]
        return Froms(items, others, froms.merged)

    def _test(self, froms: Froms) -> None:
        """Test the conditions of WHERE that read only these collections."""
        names = Names(froms)
        for condition in list(self.conditions):
            if not has_subquery(condition) and names.have_all(condition):
                froms.conditions.append(names.resolved(condition))
                self.conditions.remove(condition)

    def _on(self, node: Node, left: Froms, right: Froms) -> list[Node]:
        """The conditions of a join without subqueries."""
        both = Names(Froms([*left.items, *right.items], [], left.merged | right.merged))
        of_subqueries = with_subqueries(node)
        if of_subqueries and node["ref_type"] == "ASOF":
            raise SqlQueryError(
                "a subquery in ON of an ASOF JOIN is not supported; write it in WHERE",
                of_subqueries[0].get("query_location"),
            )
        every = conjuncts(node["condition"])
        conditions = [both.resolved(each) for each in every if not has_subquery(each)]
        return [*conditions, *using(node, left, right)]

    def _as_of(self, node: Node, left: Froms, right: Froms) -> tuple[Froms, list[Node]]:
        """The right of an ASOF JOIN, and the conditions that join both sides."""
        conditions = self._on(node, left, right)
        if node["using_columns"]:
            # The last column of USING is the one that is compared by >=.
            conditions[-1] = {**conditions[-1], "type": "COMPARE_GREATERTHANOREQUALTO"}
        (first,), (second,) = left.items, right.items
        keeps_right = OUTER.get(node["join_type"]) in ("right", "full")
        place = node.get("query_location")
        item, meets = as_of(self._query, first, second, conditions, place, keeps_right=keeps_right)
        return right.of_one(item), meets


def _unpivoted(query: QueryTranslation, node: Node, source: Froms) -> Item:
    """The rows of UNPIVOT: one for each of some columns, with its name and its value.

    Raises: QueryError.
    """
    (item,) = query.one(source, "joined").items
    names = Names(source.of_one(item))
    (pivot,) = node["pivots"]
    values = [each for entry in pivot["entries"] for each in _unpivot(entry, names)]
    gone = [unplaced(each) for _, parts in values for each in parts]
    (star,) = query_tree("SELECT *")["select_list"]
    rest = [each for each in columns_of(star, names) if unplaced(each[1]) not in gone]

    def sql(node: Node) -> str:
        return text_of(without_alias(item.alias, node))

    fields = [f"v{at}" for at, _ in enumerate(node["unpivot_names"])]
    element = item.relation.free_column("element")
    shown = [f"{quoted(element)}.{field}" for field in fields]
    rows = ", ".join(
        struct([("n", literal(name)), *zip(fields, map(sql, parts), strict=True)])
        for name, parts in values
    )
    used: set[str] = set()
    listed = [
        *((name, sql(each)) for name, each in rest),
        (pivot["unpivot_names"][0], f"{quoted(element)}.n"),
        *zip(node["unpivot_names"], shown, strict=True),
    ]
    step = Sql(
        flat_map=(element, f"[{rows}]"),
        where=() if node["include_nulls"] else tuple(f"{each} IS NOT NULL" for each in shown),
        select=tuple((unused_name(name, used), text) for name, text in listed),
    )
    table = query.making.linear(item.relation, "unpivot", step)
    called = node["alias"] or "__unnamed_pivot"
    return relation_item(query.free_alias(called), table, called, node["column_name_alias"])


def _unpivot(entry: Node, names: Names) -> Iterator[tuple[str, list[Node]]]:
    """The names behind IN of an UNPIVOT, each with the columns of its values."""
    node = entry["star_expr"]
    if node["class"] == "STAR":
        yield from ((name, [each]) for name, each in columns_of(node, names))
        return
    is_row = node.get("function_name") == "row"
    parts = [each["expression"] for each in node["arguments"]] if is_row else [node]
    for part in parts:
        if part["class"] != "COLUMN_REF":
            problem = "UNPIVOT is of columns; compute one in a query in FROM"
            raise SqlQueryError(problem, part.get("query_location"))
    yield (
        entry["alias"] or "_".join(map(names.called, parts)),
        [names.resolved({**part, "alias": ""}) for part in parts],
    )


def with_subqueries(node: Node) -> list[Node]:
    """The conditions of a join that have subqueries."""
    return [each for each in conjuncts(node["condition"]) if has_subquery(each)]


def is_always(node: Node) -> bool:
    """Whether a join has no condition other than true."""
    is_true = unplaced(tree("true"))
    return all(unplaced(each) == is_true for each in conjuncts(node["condition"]))


def filter_of_subqueries(
    query: QueryTranslation, node: Node, around: Subquery, both: Froms
) -> Froms:
    """An inner join, filtered by the conditions that have subqueries."""
    names = Names(both)
    subqueries = Subqueries(query, around, names)
    subqueries.add_all(with_subqueries(node))
    return names.froms


def pair_filter(
    query: QueryTranslation, node: Node, around: Subquery
) -> Callable[[Item], Item] | None:
    """A filter of an outer join's pairs by conditions with subqueries; None if it has none."""
    conditions = with_subqueries(node)

    def test(pairs: Item) -> Item:
        names = Names(Froms([pairs]))
        subqueries = Subqueries(query, around, names, are_resolved=True)
        subqueries.add_all(map(names.resolved, conditions))
        listed = [(name, column(pairs.alias, name)) for name in pairs.relation.types]
        return Item(pairs.alias, query.selected(names.froms, listed, "on"))

    return test if conditions else None


@dataclass(frozen=True, slots=True)
class _Bound:
    """A time from which (inclusive) or until which (`is_upper`, exclusive) a row counts.

    With `is_after` the bound is the first moment after the expression's value.
    """

    node: Node
    is_upper: bool
    is_after: bool
    place: int | None


def _time_bounds(where: Node | None) -> tuple[list[_Bound], list[Node]]:
    """Split the conditions of a WHERE into bounds in time and other conditions.

    Raises: QueryError.
    """
    bounds: list[_Bound] = []
    others: list[Node] = []
    for condition in (part for each in conjuncts(where) for part in _comparisons(each)):
        if reads_now(condition):
            bounds.append(_bound(condition))
        else:
            others.append(condition)
    return bounds, others


_NEGATED = {
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHAN",
}


def _comparisons(node: Node) -> list[Node]:
    """The comparisons with the time that AND joins in a condition; any other condition alone.

    One that OR joins with conditions that do not read the time is the last of these.
    """
    if not reads_now(node):
        return [node]
    match node["type"]:
        case "COMPARE_BETWEEN":
            place = {"query_location": node.get("query_location")}
            return [
                {**tree(f"x {sign} y"), **place, "left": node["input"], "right": node[bound]}
                for sign, bound in ((">=", "lower"), ("<=", "upper"))
            ]
        case "OPERATOR_NOT" if (inner := node["children"][0])["type"] in _NEGATED:
            return [{**inner, "type": _NEGATED[inner["type"]]}]
        case "CONJUNCTION_OR":
            others = [each for each in node["children"] if not reads_now(each)]
            timed = [each for each in node["children"] if reads_now(each)]
            if len(timed) > 1 or has_subquery(others):
                refuse_now(node)
            (only,) = timed
            return [{**node, "children": [*others, each]} for each in _comparisons(only)]
    return [node]


def _bound(node: Node) -> _Bound:
    """The bound that a comparison with the time is.  Raises: QueryError."""
    *others, compared = node["children"] if node["type"] == "CONJUNCTION_OR" else [node]
    if compared["type"] in TURNED and reads_now(compared["left"]) != reads_now(compared["right"]):
        comparison, time, other = compared["type"], compared["right"], compared["left"]
        if reads_now(other):
            comparison, time, other = TURNED[comparison], other, time
        place = next(filter(is_now, own_nodes(time))).get("query_location")
        while (moved := _moved(time, other)) is not None:
            time, other, has_turned = moved
            comparison = TURNED[comparison] if has_turned else comparison
        if is_now(time):
            is_upper = comparison.startswith("COMPARE_GREATERTHAN")
            is_after = comparison in ("COMPARE_GREATERTHANOREQUALTO", "COMPARE_LESSTHAN")
            if others:
                # Where another condition is true, no time bounds the row.
                always = "infinity" if is_upper else "-infinity"
                case = tree(f"CASE WHEN false OR false THEN '{always}'::TIMESTAMP ELSE x END")
                (check,) = case["case_checks"]
                either = {**check["when_expr"], "children": [tree("false"), *others]}
                checks = [{**check, "when_expr": either}]
                other = {**case, "case_checks": checks, "else_expr": other}
            return _Bound(other, is_upper, is_after, place)
    refuse_now(node)
    raise AssertionError("a condition that reads the time has no call of it")


def _moved(time: Node, other: Node) -> tuple[Node, Node, bool] | None:
    """Both sides with a part of the side with the time moved to the other; whether they turned.

    `now - i < t` is `now < t + i`, `now - t < i` is `now < t + i`, and `t - now < i` is
    `now > t - i`.  None if nothing can be moved.  In the first form, lengths of months depend on
    where they begin, so such an interval `i` stays; to compare lengths, a month is 30 days.
    """
    sign = {"-": "+", "+": "-"}.get(time.get("function_name", ""))
    if sign is None or len(time["arguments"]) != 2:
        return None
    first, second = (each["expression"] for each in time["arguments"])
    if reads_now(second) and sign == "-":
        first, second = second, first
    is_of_now = reads_now(first) and not reads_now(second)
    if is_of_now and microseconds(second) is not None:
        return first, _sum(other, sign, second), False
    length = microseconds(other, with_months=True)
    if time["function_name"] != "-" or length is None:
        return None
    interval = tree(f"to_microseconds({length})")
    if is_of_now:
        return first, _sum(second, "+", interval), False
    return (second, _sum(first, "-", interval), True) if reads_now(second) else None


def _sum(one: Node, sign: str, other: Node) -> Node:
    arguments = [{"name": "", "expression": each} for each in (one, other)]
    return {**tree(f"x {sign} y"), "arguments": arguments}


def _bounded(query: QueryTranslation, names: Names, bounds: Sequence[_Bound]) -> list[_Bound]:
    """Apply bounds over one collection to this collection, before joins.

    Returns the bounds over several collections.  Raises: QueryError.
    """
    left = list(bounds)
    for at, item in enumerate(names.froms.items):
        of_item = [each for each in bounds if _aliases(names, each) == {item.alias}]
        if of_item:
            relation = _valid(query, names, item.alias, item.relation, of_item)
            names.froms.items[at] = replace(item, relation=relation)
            left = [each for each in left if each not in of_item]
    return left


def _bounded_after(query: QueryTranslation, names: Names, bounds: Sequence[_Bound]) -> None:
    """Apply the other bounds to the join of all collections.

    Raises: QueryError.
    """
    if not bounds:
        return
    names.froms = query.one(names.froms, "where")
    (item,) = names.froms.items
    for each in bounds:
        if _aliases(names, each) != {item.alias}:
            raise SqlQueryError(
                "a time to compare ikebana_now() with is an expression over columns of FROM",
                each.place,
            )
    relation = _valid(query, names, item.alias, item.relation, bounds)
    names.froms.items[0] = replace(item, relation=relation)


def _aliases(names: Names, each: _Bound) -> set[str]:
    return aliases_of(names.resolved(each.node))


def _valid(
    query: QueryTranslation, names: Names, alias: str, source: Table, bounds: Iterable[_Bound]
) -> Table:
    lower: list[str] = []
    upper: list[str] = []
    for each in bounds:
        text = text_of(without_alias(alias, names.resolved(each.node)))
        (kind,) = types_of([text], source.keyed())
        if kind not in INSTANTS:
            raise SqlQueryError(
                f"ikebana_now() is compared with {kind}; make a timestamp of it, as in "
                "make_timestamp_ms(x)",
                each.place,
            )
        if each.is_after:
            if kind == "TIMESTAMP_NS":
                problem = "cast TIMESTAMP_NS to TIMESTAMP to compare it with ikebana_now()"
                raise SqlQueryError(problem, each.place)
            # In whole microseconds, t <= x is t < x + 1.
            text = f"{text} + INTERVAL 1 MICROSECOND"
        (upper if each.is_upper else lower).append(text)
    steps = [Sql(valid_from=text) for text in lower] + [Sql(valid_until=text) for text in upper]
    if len(lower) == len(upper) == 1:
        steps = [Sql(valid_from=lower[0], valid_until=upper[0])]
    if not query.making.is_whole(source):
        steps.append(Sql(select=tuple((name, quoted(name)) for name in source.types)))
    return query.making.linear(source, "valid", *steps)
