"""SQL queries with subqueries in all places, drawn at random; DuckDB takes them as well."""

from collections.abc import Callable

from support.random_choices import Draws
from support.random_queries import COLUMNS

Scope = dict[str, str]
"""Tables by the aliases that an expression may name, those of queries around among them."""

NUMBERS = {"t": ("a",), "u": ("a", "d")}
COMPARED = ("=", "<>", "<", "<=", ">", ">=")


class Nesting(Draws):
    """Draws queries; `depth` says how deep subqueries may still be nested."""

    def query(self) -> str:
        """A whole query."""
        shapes = [self._plain, self._plain, self._grouped, self._lateral, self._outer, self._total]
        return self.one(*shapes)(2)

    # Whole queries.

    def _plain(self, depth: int) -> str:
        text, scope = self._from()
        shown = [self._shown(scope, depth) for _ in range(self.choice.randint(1, 2))]
        listed = ", ".join(f"{sql} AS x{at}" for at, sql in enumerate(shown))
        distinct = "DISTINCT " if self.chance(0.2) else ""
        return f"SELECT {distinct}{listed} FROM {text}{self._where(scope, depth)}"

    def _shown(self, scope: Scope, depth: int) -> str:
        return self.one(self.number, self.number, self.boolean)(scope, depth)

    def _grouped(self, depth: int) -> str:
        text, scope = self._from()
        alias = self.one(*list(scope))
        group = f"{alias}.{self.one(*NUMBERS[scope[alias]])}"
        if self.chance(0.2):
            group = self.scalar(scope, depth)
            where = self._where(scope, depth)
            return f"SELECT {group} AS g, count(*) AS n FROM {text}{where} GROUP BY g"
        made = f"{self._aggregate(scope, depth)}"
        # What is grouped by may be read, and so may aggregates.
        column = group.split(".")[1]
        inner = self.alias()
        table = self.one(*"tu")
        own = self._number(inner, table)
        subquery = self.one(
            f"(SELECT max({own}) FROM {table} {inner} WHERE {inner}.a {self._op()} {group})",
            f"(SELECT count(*) FROM {table} {inner} WHERE {inner}.a = {group})",
            f"{group} IN (SELECT {own} FROM {table} {inner})",
            f"count(*) > ALL (SELECT {own} FROM {table} {inner} WHERE {inner}.a = {group})",
            f"EXISTS (SELECT 1 FROM {table} {inner} WHERE {own} > {group})",
        )
        having = self.one(
            "",
            f" HAVING count(*) >= (SELECT min({own}) FROM {table} {inner} "
            f"WHERE {inner}.a = {group})",
            f" HAVING NOT EXISTS (SELECT 1 FROM {table} {inner} WHERE {own} = {group})",
            f" HAVING {group} IN (SELECT {own} FROM {table} {inner}) OR count(*) > 1",
        )
        return (
            f"SELECT {group} AS {column}, {made} AS n, {subquery} AS s FROM {text}"
            f"{self._where(scope, depth)} GROUP BY {group}{having}"
        )

    def _total(self, depth: int) -> str:
        text, scope = self._from()
        made = self._aggregate(scope, depth)
        return f"SELECT {made} AS n, count(*) AS m FROM {text}{self._where(scope, depth)}"

    def _lateral(self, depth: int) -> str:
        text, scope = self._from()
        alias = self.alias()
        inner = self._rows(scope, depth - 1)
        join = self.one(", LATERAL", " CROSS JOIN LATERAL", " JOIN LATERAL")
        on = "" if join != " JOIN LATERAL" else " ON true"
        if self.chance(0.4):
            join, on = " LEFT JOIN LATERAL", " ON true"
            if self.chance(0.3):
                on = f" ON {alias}.v {self._op()} {self.column(scope)}"
        return (
            f"SELECT {self.column(scope)} AS x0, {alias}.v AS x1 FROM {text}{join} "
            f"({inner}) {alias}(v){on}{self._where(scope, depth - 1)}"
        )

    def _outer(self, depth: int) -> str:
        one, other = self.alias(), self.alias()
        first, second = self.one(*"tu"), self.one(*"tu")
        scope = {one: first, other: second}
        kind = self.one("JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
        read = self.one({one: first}, {other: second}, scope, {})
        on = f"{one}.a = {other}.a AND {self._uncorrelated_or(read, depth)}"
        return (
            f"SELECT {self.column({one: first})} AS x0, {self.column({other: second})} AS x1 "
            f"FROM {first} {one} {kind} {second} {other} ON {on}{self._where(scope, 1)}"
        )

    def _uncorrelated_or(self, scope: Scope, depth: int) -> str:
        """A condition with a subquery, which reads what there is, if there is anything."""
        if scope:
            return self.one(self._exists, self._in, self._compared)(scope, depth)
        inner, table = self.alias(), self.one(*"tu")
        return f"EXISTS (SELECT 1 FROM {table} {inner} WHERE {self._number(inner, table)} > 1)"

    # Parts.

    def _from(self) -> tuple[str, Scope]:
        first, one = self.one(*"tu"), self.alias()
        if self.chance(0.6):
            return f"{first} {one}", {one: first}
        second, other = self.one(*"tu"), self.alias()
        join = self.one("JOIN", "LEFT JOIN")
        on = f"{one}.a = {other}.a"
        return f"{first} {one} {join} {second} {other} ON {on}", {one: first, other: second}

    def _where(self, scope: Scope, depth: int) -> str:
        conditions = [self.boolean(scope, depth) for _ in range(self.one(0, 1, 1, 2))]
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def boolean(self, scope: Scope, depth: int) -> str:
        """A condition."""
        plain = f"{self.column(scope)} {self._op()} {self.one(0, 1, 2)}"
        if depth <= 0:
            return self.one(plain, f"{self.column(scope)} IS NULL")
        kinds: list[Callable[[], str]] = [
            lambda: plain,
            lambda: self._exists(scope, depth),
            lambda: self._in(scope, depth),
            lambda: self._quantified(scope, depth),
            lambda: self._rows_in(scope),
            lambda: self._compared(scope, depth),
            lambda: f"({self.boolean(scope, depth - 1)} OR {self.boolean(scope, depth - 1)})",
            lambda: f"({self.boolean(scope, depth - 1)} AND {self._exists(scope, depth)})",
            lambda: f"NOT ({self.boolean(scope, depth - 1)})",
            lambda: f"({self.boolean(scope, depth - 1)}) IS NULL",
            lambda: f"{self.scalar(scope, depth)} IS NOT NULL",
        ]
        return self.one(*kinds)()

    def _exists(self, scope: Scope, depth: int) -> str:
        return f"{self.one('', 'NOT ')}EXISTS ({self._rows(scope, depth - 1)})"

    def _in(self, scope: Scope, depth: int) -> str:
        left = self.column(scope) if self.chance(0.8) else self.number(scope, 0)
        return f"{left} {self.one('', 'NOT ')}IN ({self._rows(scope, depth - 1)})"

    def _rows_in(self, scope: Scope) -> str:
        """Two values in a subquery that reads nothing around it: DuckDB has no others."""
        table, alias = self.one(*"tu"), self.alias()
        own = {alias: table}
        how = self.one("IN", "NOT IN", "= ANY", f"{self._op()} ALL")
        rows = f"SELECT {self.column(own)}, {self.column(own)} FROM {table} {alias}"
        left = f"({self.column(scope)}, {self.column(scope)})"
        return f"{left} {how} ({rows}{self._where(own, 0)})"

    def _quantified(self, scope: Scope, depth: int) -> str:
        how = f"{self._op()} {self.one('ANY', 'ALL')}"
        return f"{self.column(scope)} {how} ({self._rows(scope, depth - 1)})"

    def _compared(self, scope: Scope, depth: int) -> str:
        left, value = self.number(scope, 0), self.scalar(scope, depth)
        if self.chance(0.2):
            return f"{left} BETWEEN {value} AND {self.column(scope)} + 1"
        return f"{left} {self._op()} {value}"

    def number(self, scope: Scope, depth: int) -> str:
        """A whole number."""
        if depth <= 0 or self.chance(0.3):
            column = self.column(scope)
            return self.one(column, column, f"{column} + 1", "1")
        kinds: list[Callable[[], str]] = [
            lambda: self.scalar(scope, depth),
            lambda: self.scalar(scope, depth),
            lambda: f"coalesce({self.scalar(scope, depth)}, -1)",
            lambda: f"{self.column(scope)} + {self.scalar(scope, depth)}",
            lambda: (
                f"CASE WHEN {self.boolean(scope, depth - 1)} THEN {self.number(scope, depth - 1)} "
                f"ELSE {self.column(scope)} END"
            ),
        ]
        return self.one(*kinds)()

    def scalar(self, scope: Scope, depth: int) -> str:
        """A subquery for one value."""
        text, own, inner = self._inner(scope, depth - 1)
        every = {**scope, **own}
        if self.chance(0.25):
            shown = self.column(own)
            return f"(SELECT {shown} FROM {text}{inner} ORDER BY {shown}{self._way()} LIMIT 1)"
        made = self._aggregate(own, 0)
        if self.chance(0.2):
            # Of columns around alone it would be an aggregate of the query around.
            made = f"max({self.column(own)} + {self.column(every)})"
        if self.chance(0.15):
            made = f"{made} + 1"
        having = self.one("", "", "", " HAVING count(*) > 1", " HAVING count(*) < 2")
        return f"(SELECT {made} FROM {text}{inner}{having})"

    def _rows(self, scope: Scope, depth: int) -> str:
        """A subquery with one column."""
        text, own, inner = self._inner(scope, depth)
        every = {**scope, **own}
        shown = self.column(own) if self.chance(0.8) else self.number(every, min(depth, 1))
        kind = self.choice.random()
        if kind < 0.55:
            return f"SELECT {shown} FROM {text}{inner}"
        if kind < 0.65:
            return f"SELECT DISTINCT {shown} FROM {text}{inner}"
        if kind < 0.75:
            group = self.column(own)
            having = self.one("", " HAVING count(*) > 1")
            return f"SELECT {self._aggregate(own, 0)} FROM {text}{inner} GROUP BY {group}{having}"
        if kind < 0.83:
            column = self.column(own)
            limit = self.choice.randint(1, 2)
            return (
                f"SELECT {column} FROM {text}{inner} ORDER BY {column}{self._way()} LIMIT {limit}"
            )
        if kind < 0.93:
            operation = self.one("UNION", "UNION ALL", "EXCEPT", "INTERSECT")
            other, others, where = self._inner(scope, depth)
            return (
                f"SELECT {self.column(own)} FROM {text}{inner} {operation} "
                f"SELECT {self.column(others)} FROM {other}{where}"
            )
        return f"SELECT {self._aggregate(own, 0)} FROM {text}{inner}"

    def _inner(self, scope: Scope, depth: int) -> tuple[str, Scope, str]:
        """FROM of a subquery, its tables, and WHERE."""
        table, alias = self.one(*"tu"), self.alias()
        own = {alias: table}
        text = f"{table} {alias}"
        if self.chance(0.15):
            name = self.alias()
            columns = ", ".join(f"{name}.{column}" for column in COLUMNS[table])
            within = self._correlation({**scope, name: table}, {name: table})
            text = f"(SELECT {columns} FROM {table} {name} WHERE {within}) {alias}"
        elif self.chance(0.15):
            other, second = self.alias(), self.one(*"tu")
            on = f"{alias}.a = {other}.a"
            if self.chance(0.4):
                on += f" AND {self._correlation(scope, {other: second})}"
            text = f"{text} {self.one('JOIN', 'LEFT JOIN')} {second} {other} ON {on}"
            own = {**own, other: second}
        conditions = [self._correlation(scope, own) for _ in range(self.one(0, 1, 1, 2))]
        if depth > 0 and self.chance(0.4):
            conditions.append(self.boolean({**scope, **own}, depth))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return text, own, where

    def _correlation(self, scope: Scope, own: Scope) -> str:
        inner, outer = self.column(own), self.column(scope)
        return self.one(
            f"{inner} = {outer}",
            f"{inner} = {outer}",
            f"{inner} = {outer} + 1",
            f"{inner} {self._op()} {outer}",
            f"{inner} > 0",
            f"({inner} = {outer} OR {inner} IS NULL)",
        )

    def _aggregate(self, scope: Scope, depth: int) -> str:
        number = (
            self.number(scope, depth) if depth > 0 and self.chance(0.4) else self.column(scope)
        )
        name = self.one("min", "max", "sum", "count")
        made = "count(*)" if self.chance(0.2) else f"{name}({number})"
        return made + (f" FILTER (WHERE {self.column(scope)} > 0)" if self.chance(0.1) else "")

    def column(self, scope: Scope) -> str:
        """A column with a whole number."""
        alias = self.one(*list(scope))
        return self._number(alias, scope[alias])

    def _number(self, alias: str, table: str) -> str:
        return f"{alias}.{self.one(*NUMBERS[table])}"

    def _way(self) -> str:
        return self.one("", " DESC", " DESC NULLS FIRST", " NULLS FIRST")

    def _op(self) -> str:
        return self.one(*COMPARED)

    def _is(self, share: float) -> bool:
        return self.chance(share)
