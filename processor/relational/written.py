"""Operators that are written as parts of a query: window functions, and recursions.

Their sections say what a query says in other words, so the query is put together of their parts
and translated as any other.  Each part is parsed alone first, so that it is no more than that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ikebana.processor.linear.bound_query import SqlQueryError, query_tree
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.syntax import Node
from ikebana.processor.linear.trees import bare
from ikebana.processor.planning.plan import Operator
from ikebana.processor.relational.deriving import Derived
from ikebana.processor.relational.known import KnownRelations, MakingError
from ikebana.processor.relational.looping import ROUNDS
from ikebana.processor.relational.making import Making
from ikebana.processor.relational.sections import column_of, source_of
from ikebana.processor.relational.sql import sql_operators, tables_of

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Windowed:
    """The rows of a collection with window functions, all over one window.

    With conditions in `having`, which may read the functions, those alone for which they are true.
    """

    functions: Pairs
    partition: Sequence[str] = ()
    order: Sequence[str] = ()
    frame: str = ""
    having: Sequence[str] = ()

    def query(self, source: str) -> str:
        """The rows of a source as a query.  Raises: MakingError."""
        if not self.functions:
            raise MakingError("at least one is needed, such as {place: rank()}", "functions")
        window = self._window()
        for _, text in self.functions:
            _refuse_more(f"SELECT {text} OVER () FROM t", "select_list", "functions", text)
        listed = [f"{text} OVER ({window}) AS {quoted(name)}" for name, text in self.functions]
        query = f"SELECT *, {', '.join(listed)} FROM {quoted(source)}"
        for text in self.having:
            _refuse_more(f"SELECT 1 FROM t QUALIFY {text}", "qualify", "having", text)
        if not self.having:
            return query
        return f"{query} QUALIFY {' AND '.join(f'({text})' for text in self.having)}"

    def _window(self) -> str:
        """What stands in the parentheses behind OVER."""
        by = ", ".join(map(quoted, self.partition))
        parts = [f"PARTITION BY {by}"] * bool(by)
        for text in self.order:
            _refuse_more(f"SELECT 1 FROM t ORDER BY {text}", "modifiers", "order", text)
        parts += [f"ORDER BY {', '.join(self.order)}"] * bool(self.order)
        if self.frame:
            whole = f"SELECT count(*) OVER (ORDER BY x {self.frame}) FROM t"
            _refuse_more(whole, "select_list", "frame", self.frame)
            parts.append(self.frame)
        return " ".join(parts)


def windowed(name: str, source: str, of: Windowed) -> Derived:
    """A collection with window functions."""

    def make(pipeline: KnownRelations) -> tuple[Operator, ...]:
        try:
            columns = source_of(pipeline, Making(pipeline, name), source)
            for each in of.partition:
                column_of(each, columns, "partition")
            for each, _ in of.functions:
                if each in columns.types:
                    raise MakingError(f'"{source}" has a column "{each}" already', "functions")
            return sql_operators(name, of.query(source), pipeline)
        except SqlQueryError as error:
            raise MakingError(error.problem) from None

    return Derived(name, "window", make, lambda: (source,))


def iterated(name: str, query: str, columns: Pairs, rounds: int = 0) -> Derived:
    """A collection of a query that reads it by its name: what comes of it in the end.

    It begins empty, and is computed again from what it was until nothing changes.
    """
    listed = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns)
    begin = f"WITH MUTUALLY RECURSIVE (ERROR AT RECURSION LIMIT {rounds or ROUNDS}) "
    begin += f"{quoted(name)} ({listed}) AS ("
    text = f"{begin}{query}\n) SELECT * FROM {quoted(name)}"

    def make(pipeline: KnownRelations) -> tuple[Operator, ...]:
        if not columns:
            raise MakingError("are missing, with their types: {a: BIGINT}", "columns")
        try:
            query_tree(query)
            return sql_operators(name, text, pipeline)
        except SqlQueryError as error:
            is_within = error.at is not None and error.at >= len(begin)
            at = error.at - len(begin) if error.at is not None and is_within else error.at
            raise MakingError(SqlQueryError(error.problem, at).with_place(query)) from None

    return Derived(name, "iterate", make, lambda: tables_of(text))


_MEANT = {
    "functions": "one window function without OVER, such as sum(amount)",
    "having": "one condition, such as place <= 3",
    "order": "an order, such as amount DESC",
    "frame": "the frame of a window, such as ROWS BETWEEN 6 PRECEDING AND CURRENT ROW",
}


def _refuse_more(query: str, where: str, part: str, text: str) -> None:
    """Refuse a text that makes more of a query than a part of it.  Raises: MakingError."""
    try:
        node = query_tree(f"{query}\n")
    except SqlQueryError as error:
        raise MakingError(f"{text}: {error.problem}", part) from None
    other: Node = query_tree("SELECT 1 FROM t")
    part_node: Any = node[where]
    is_whole = bare({**node, where: other[where]}) == bare(other)
    if where == "select_list":
        (only, *more) = part_node
        is_whole = is_whole and not more and only["class"] == "WINDOW" and not only["alias"]
        is_whole = is_whole and (part == "frame" or not (only["partitions"] or only["orders"]))
    elif where == "modifiers":
        is_whole = is_whole and len(part_node) == 1 and len(part_node[0].get("orders", ())) == 1
    if not is_whole:
        raise MakingError(f'"{text}" must be {_MEANT[part]}', part)
