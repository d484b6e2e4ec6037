"""The column that a recursion carries unchanged, by which it can be divided.

If every row that a recursion derives has the same value in a column as the rows it is derived
from, rows with different values never meet: the column is a key of the loop, and shards divide it.
The tenant of a graph is such a column if edges are joined by tenant.  The start of a path is none,
because an edge belongs to many starts.
"""

from collections.abc import Mapping

from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.steps import AnyStep, Negate, Sql
from ikebana.processor.linear.syntax import Node, tree
from ikebana.processor.linear.trees import conjuncts, equated
from ikebana.processor.planning.joins.binding import reached
from ikebana.processor.planning.joins.query import DeltaJoin
from ikebana.processor.planning.plan import Concat, Linear, Operator
from ikebana.processor.relational.known import Table

Column = tuple[str, str]
"""An alias and a column."""


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
        selected = _column(_tree(dict(join.select).get(column, "")))
        if selected is None:
            return False
        conditions = [each for text in join.where for each in conjuncts(_tree(text))]
        pairs = (equated(each) for each in conditions)
        sides = ([_column(side) for side in pair] for pair in pairs if pair is not None)
        joined = [frozenset(each for each in pair if each) for pair in sides if None not in pair]
        equal = reached({selected}, joined)
        return all(
            any(
                self.meets(each.relation, name)
                for alias, name in sorted(equal)
                if alias == each.alias
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
            node = _tree(dict(select).get(column, ""))
            return node["column_names"][0] if node and _is_plain(node, 1) else None
        case _:
            return None


def _column(node: Node | None) -> Column | None:
    if node is None or not _is_plain(node, 2):
        return None
    alias, name = node["column_names"]
    return alias, name


def _is_plain(node: Node, names: int) -> bool:
    return node["class"] == "COLUMN_REF" and len(node["column_names"]) == names


def _tree(text: str) -> Node | None:
    try:
        return tree(text)
    except ExpressionError:
        return None
