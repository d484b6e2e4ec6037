"""Translate a SQL query into linear operators, delta joins and reductions.

DuckDB parses the query and binds it over the columns that are known; what is done here is on
its syntax tree.  A SELECT becomes, in this order:

* Windows in FROM (`sql_windows`, `windows`): linear operators, and for sessions a reduction.
* Conditions with `ikebana_now()` (`sql_time`): linear operators with `valid_until`.
* FROM and WHERE (`sql_filter`): one delta join of all that inner joins bring together, with
  every condition; of a single collection, a linear operator.  Outer joins are made before
  (`outer`).  Subqueries are further collections to join (`sql_subqueries`).
* GROUP BY (`sql_groups`): a reduction, filtered by HAVING, and selected from.
* QUALIFY, DISTINCT and LIMIT (`sql_select`): reductions as well (`ranking`, `rows`).

What is not supported is refused with its place in the text.
"""

from ikebana.processor.linear.bound_query import QueryError, query_tree
from ikebana.processor.linear.collations import LOOSE, loose
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.planning.plan import Operator
from ikebana.processor.relational.known import Known, MakingError
from ikebana.processor.relational.making import Making
from ikebana.processor.relational.sql_filter import filtered
from ikebana.processor.relational.sql_refusals import NOW
from ikebana.processor.relational.sql_select import select
from ikebana.processor.relational.sql_whole import Query, named_tables
from ikebana.processor.relational.sql_windows import without_windows


def sql_operators(
    name: str, text: str, known: Known, key: str | None = None
) -> tuple[Operator, ...]:
    """The operators that a query becomes, the last one under the name.

    `key` is SQL over the columns of the result: its key.

    Raises:
        QueryError: the query is refused.
        UnmadeError: what it reads has a problem of its own.
    """
    text, windows = without_windows(text)
    node = query_tree(text)
    making = Making(known, name)
    try:
        query = Query(making, known, node, select, filtered, windows)
        query.bind(text, {NOW: "TIMESTAMP"})
        for each in loose(node):
            raise QueryError(LOOSE, each.get("query_location"))
        return making.finished(query.result(), key)
    except (MakingError, ExpressionError) as error:
        raise QueryError(str(error)) from None
    except RecursionError:
        raise QueryError("it is nested too deeply") from None


def tables_of(text: str) -> list[str]:
    """The collections that a query names in FROM; none if it cannot be parsed."""
    try:
        text, windows = without_windows(text)
        node = query_tree(text)
    except QueryError:
        return []
    named = [each["table_name"] for each in named_tables(node)]
    return [windows[name].source if name in windows else name for name in named]
