"""SQL queries and changes of tables, drawn at random from the grammar that views may have."""

from collections.abc import Sequence
from random import Random
from typing import Any

from support.random_choices import Draws
from support.sql_oracle import Change, Tables

TABLES: Tables = {
    # A DECIMAL with as many places as digits is written without a zero before the point.
    "t": {"a": "BIGINT", "b": "DECIMAL(12,2)", "c": "VARCHAR", "h": "DECIMAL(3,3)"},
    "u": {"a": "BIGINT", "d": "BIGINT", "e": "DATE", "g": "DECIMAL(3,3)"},
}
NUMBERS = {"t": ("a", "b", "h"), "u": ("a", "d", "g")}
COLUMNS = {name: tuple(columns) for name, columns in TABLES.items()}
VALUES: dict[str, tuple[Any, ...]] = {
    "a": (None, 0, 1, 2),
    "b": (None, "0.50", "1.25", "2", "-1"),
    "c": (None, "x", "y"),
    "d": (None, 0, 1, 3),
    "e": (None, "2024-01-01", "2024-02-29"),
    "h": (None, "0.5", "0.999"),
    "g": (None, "0", "0.5", "-0.125", "0.999"),
}


def history(choice: Random, times: int, stay: int = 0) -> dict[str, list[Change]]:
    """Inserts, updates and deletes of few keys; several rows may be equal.

    So many further rows `stay` from the first time on.
    """
    found: dict[str, list[Change]] = {}
    for name, columns in COLUMNS.items():

        def row(columns: Sequence[str] = columns) -> dict[str, Any]:
            return {column: choice.choice(VALUES[column]) for column in columns}

        changes: list[Change] = [(9 + at, row(), 0) for at in range(stay)]
        for time in range(times):
            for key in choice.sample(range(5), choice.randint(0, 3)):
                changes.append((key, None if choice.random() < 0.3 else row(), time))
        found[name] = changes
    return found


class Drawing(Draws):
    """Draws queries; each is text that DuckDB takes as well."""

    def query(self) -> str:
        """A whole query."""
        kind = self.choice.random()
        if kind < 0.2:
            operation = self.one(
                "UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"
            )
            return f"{self._of_two()} {operation} {self._of_two()}"
        if kind < 0.3:
            inner = self._of_two()
            return f"WITH v AS ({inner}) SELECT n, count(*) AS many, max(s) AS m FROM v GROUP BY n"
        if kind < 0.6:
            return self._grouped()
        return self._plain()

    def _from(self) -> tuple[str, dict[str, str]]:
        """FROM, and the tables by their aliases."""
        first, second = self.one(*"tu"), self.one(*"tu")
        one, other = self.alias(), self.alias()
        kind = self.one(
            "", "", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", ",", "NATURAL JOIN", "ASOF"
        )
        if not kind:
            return f"{first} {one}", {one: first}
        left = f"{first} {one}"
        if self.chance(0.2):
            columns = ", ".join(COLUMNS[first])
            left = f"(SELECT {columns} FROM {first} WHERE a IS NOT NULL) {one}"
        on = f"{one}.a = {other}.a"
        if kind == "NATURAL JOIN":
            way = self.one("", "LEFT ", "FULL ")
            rows = f"(SELECT a, {COLUMNS[second][1]} AS z FROM {second}) {other}"
            return f"{left} NATURAL {way}JOIN {rows}", {one: first}
        if kind == "ASOF":
            # Of rows that are equal in the order DuckDB takes any, so there is one of each.
            way, order = (
                self.one("", "LEFT "),
                self.one(">=", ">", "<=", "<"),
            )
            number = self._number(one, first)
            rows = f"(SELECT a, max(b) AS b FROM t GROUP BY a, b) {other}"
            on = f"{one}.a = {other}.a AND {number} {order} {other}.b"
            return f"{left} ASOF {way}JOIN {rows} ON {on}", {one: first}
        if kind == ",":
            return f"{left} JOIN {second} {other} USING (a)", {one: first, other: second}
        if self.chance(0.3):
            number = self._number(other, second)
            on += f" AND {number} {self._comparison()} {self._number(one, first)}"
        elif self.chance(0.3):
            on += f" AND {self._number(self.one(one), first)} > 0"
        return f"{left} {kind} {second} {other} ON {on}", {one: first, other: second}

    def _comparison(self) -> str:
        return self.one("<", "<=", ">", ">=", "<>")

    def _number(self, alias: str, table: str) -> str:
        return f"{alias}.{self.one(*NUMBERS[table])}"

    def _any_column(self, tables: dict[str, str]) -> tuple[str, str]:
        alias = self.one(*list(tables))
        column = self.one(*COLUMNS[tables[alias]])
        return f"{alias}.{column}", column

    def _where(self, tables: dict[str, str], most: int = 2) -> str:
        conditions = [self._condition(tables) for _ in range(self.choice.randint(0, most))]
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def _condition(self, tables: dict[str, str]) -> str:
        alias = self.one(*list(tables))
        number = self._number(alias, tables[alias])
        inner, table = self.alias(), self.one(*"tu")
        column = self.one(*NUMBERS[table])
        correlated = f"{inner}.a = {alias}.a"
        further = f" AND {inner}.{column} {self._comparison()} {number}"
        further = further if self.chance(0.3) else ""
        aggregate = self.one("min", "max", "sum")
        where = f" WHERE {correlated}" if self.chance(0.5) else ""
        own = self.one("", f" WHERE {inner}.a > 0", f" WHERE {inner}.a IS NOT NULL")
        if self.chance(0.15):
            return self._temporal(alias)
        return self.one(
            f"{number} {self._comparison()} 1",
            f"{number} IS {self.one('', 'NOT ')}NULL",
            f"({number} > 1 OR {alias}.a IS NULL)",
            f"EXISTS (SELECT 1 FROM {table} {inner} WHERE {correlated}{further})",
            f"NOT EXISTS (SELECT 1 FROM {table} {inner} WHERE {correlated}{further})",
            f"{alias}.a IN (SELECT {inner}.a FROM {table} {inner}{own})",
            f"{alias}.a NOT IN (SELECT {inner}.a FROM {table} {inner}{own})",
            f"{alias}.a IN (SELECT a FROM {table} GROUP BY a HAVING count(*) > 1)",
            f"{number} {self._comparison()} (SELECT count(*) FROM {table} {inner}{own})",
            f"{number} {self._comparison()} "
            f"(SELECT {aggregate}({inner}.{column}) FROM {table} {inner}{where})",
        )

    def _temporal(self, alias: str) -> str:
        """A condition that is true for a while; the half of a millisecond counts."""
        moment = f"make_timestamp({alias}.a * 1000 + {self.one(0, 500, 1000, 1500)})"
        return self.one(
            f"{moment} {self.one('<', '<=', '>', '>=')} ikebana_now()",
            f"ikebana_now() {self.one('<', '<=', '>', '>=')} {moment}",
            f"ikebana_now() BETWEEN make_timestamp_ms({alias}.a) AND {moment}",
        )

    def _plain(self) -> str:
        text, tables = self._from()
        listed = [self._any_column(tables)[0] for _ in range(self.choice.randint(1, 3))]
        columns = ", ".join(f"{sql} AS x{at}" for at, sql in enumerate(listed))
        distinct = "DISTINCT " if self.chance(0.3) else ""
        if self.chance(0.35):
            return self._over(text, tables, listed, columns)
        made = f"SELECT {distinct}{columns} FROM {text}{self._where(tables)}"
        if not distinct and self.chance(0.3):
            # By all that is shown, so that only equal rows are tied.
            way = self.one("", " DESC", " DESC NULLS FIRST", " NULLS FIRST")
            orders = ", ".join(f"{sql}{way}" for sql in listed)
            limit = self.choice.randint(1, 2)
            if self.chance(0.5):
                return f"{made} ORDER BY {orders} LIMIT {limit}"
            partition = listed[0]
            window = f"row_number() OVER (PARTITION BY {partition} ORDER BY {orders})"
            return f"{made} QUALIFY {window} <= {limit}"
        return made

    def _over(self, text: str, tables: dict[str, str], listed: list[str], columns: str) -> str:
        """Window functions of all that is shown, so that rows that are tied are equal."""
        ways = [self.one("", " DESC", " NULLS FIRST") for _ in listed]
        if len(set(ways)) > 1:
            # Not every type can be turned around beside others.
            ways = ["" for _ in listed]
        orders = ", ".join(f"{sql}{way}" for sql, way in zip(listed, ways, strict=True))
        partition = self.one("", f"PARTITION BY {listed[0]} ")
        window = f"{partition}ORDER BY {orders}"
        functions = ", ".join(
            f"{self._window_function(self.one(*listed))} OVER ({window}{frame}) AS w{at}"
            for at in range(self.choice.randint(1, 3))
            for frame in (self._frame(),)
        )
        made = f"SELECT {columns}, {functions} FROM {text}{self._where(tables, 1)}"
        rank = self.one("row_number", "rank", "dense_rank")
        number = f"{rank}() OVER ({window})"
        test = self.one("<= 2", "= 1", "= 2", "BETWEEN 1 AND 2", "> 1")
        kind = self.choice.random()
        if kind < 0.3:
            return f"{made} QUALIFY {number} {test}"
        if kind < 0.6:
            inner = f"SELECT {columns}, {number} AS n FROM {text}{self._where(tables, 1)}"
            return f"SELECT * FROM ({inner}) q WHERE n {test}"
        return made

    def _frame(self) -> str:
        """The frame of a window, or none."""
        bounds = self.one(
            "UNBOUNDED PRECEDING AND CURRENT ROW",
            "CURRENT ROW AND UNBOUNDED FOLLOWING",
            "UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
            "1 PRECEDING AND 1 FOLLOWING",
            "2 PRECEDING AND 1 PRECEDING",
            "CURRENT ROW AND 2 FOLLOWING",
        )
        unit = self.one("ROWS", "GROUPS", "RANGE")
        if unit == "RANGE" and any(each.isdigit() for each in bounds):
            return ""
        exclude = self.one("", "", " EXCLUDE CURRENT ROW", " EXCLUDE TIES")
        return self.one("", f" {unit} BETWEEN {bounds}{exclude}")

    def _window_function(self, column: str) -> str:
        return self.one(
            "row_number()",
            "rank()",
            "dense_rank()",
            "percent_rank()",
            "cume_dist()",
            "ntile(2)",
            f"lag({column})",
            f"lead({column}, 2)",
            f"lag({column} IGNORE NULLS)",
            f"first_value({column})",
            f"last_value({column} IGNORE NULLS)",
            f"nth_value({column}, 2)",
            "count(*)",
            f"count({column})",
            f"count(DISTINCT {column})",
            f"min({column})",
            f"max({column})",
            f"list({column})",
        )

    def _aggregate(self, tables: dict[str, str]) -> str:
        alias = self.one(*list(tables))
        number = self._number(alias, tables[alias])
        column, _ = self._any_column(tables)
        made = self.one(
            "count(*)",
            f"count({column})",
            f"count(DISTINCT {column})",
            f"sum({number})",
            f"avg({number})",
            f"min({column})",
            f"max({column})",
            f"bool_or({number} > 0)",
            f"var_pop({number})",
            f"stddev({number})",
            f"median({number})",
            f"list({column} ORDER BY {column} DESC NULLS FIRST)",
            f"string_agg({column}, '-' ORDER BY {column})",
            f"max({number})",
        )
        return made + (f" FILTER (WHERE {number} >= 0)" if self.chance(0.2) else "")

    def _grouped(self) -> str:
        text, tables = self._from()
        if self.chance(0.25):
            return self._total(text, tables)
        group, _ = self._any_column(tables)
        second, _ = self._any_column(tables)
        groups = [group] if self.chance(0.6) else [group, second]
        having = self.one("", "", " HAVING count(*) > 1", f" HAVING {group} IS NOT NULL")
        shown = [f"{sql} AS g{at}" for at, sql in enumerate(groups)]
        shown += [f"{self._aggregate(tables)} AS x{at}" for at in range(self.choice.randint(1, 2))]
        where = self._where(tables, 1)
        return f"SELECT {', '.join(shown)} FROM {text}{where} GROUP BY {', '.join(groups)}{having}"

    def _total(self, text: str, tables: dict[str, str]) -> str:
        """Aggregates of all rows, which have one row where there are none."""
        shown = [f"{self._aggregate(tables)} AS x{at}" for at in range(self.choice.randint(1, 3))]
        having = self.one("", "", " HAVING count(*) < 2")
        return f"SELECT {', '.join(shown)} FROM {text}{self._where(tables)}{having}"

    def _of_two(self) -> str:
        """A query with a number n and a text s."""
        if self.chance(0.5):
            return f"SELECT a AS n, c AS s FROM t{self._where({'t': 't'}, 1)}"
        where = self._where({"u": "u"}, 1)
        return f"SELECT d AS n, CASE WHEN a > 0 THEN 'x' END AS s FROM u{where}"
