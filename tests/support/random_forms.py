"""Queries of the further forms that docs/sql.md lists, drawn at random; DuckDB takes them as well.

Where an order decides what is shown, it is by all that is shown, so that only equal rows are tied.
"""

from support.random_choices import Draws
from support.random_queries import COLUMNS, NUMBERS

WAYS = ("", " DESC", " DESC NULLS FIRST", " NULLS FIRST")
COMPARED = ("=", "<", "<=", ">", ">=", "<>")
FRAMES = (
    *("ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", "GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING"),
    *("RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING", "RANGE BETWEEN CURRENT ROW AND 2 FOLLOWING"),
    *("ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING EXCLUDE GROUP", "GROUPS 2 PRECEDING"),
    *("ROWS BETWEEN coalesce(a, 0) PRECEDING AND coalesce(d, 1) FOLLOWING", "GROUPS a PRECEDING"),
    "RANGE BETWEEN CURRENT ROW AND a FOLLOWING",
)


class Forms(Draws):
    """Draws queries, each of one form."""

    def query(self) -> str:
        """A whole query."""
        of = self.one(
            *(self._grouping_sets, self._first_of_each, self._part_of_all, self._row_values),
            *(self._half_join, self._elements, self._recursion, self._values, self._stars),
            *(self._by_name, self._any_pair, self._named_window, self._ordered_calls),
            *(self._lateral, self._aggregates_around, self._of_lists, self._natural),
        )
        return of()

    def _one(self, *of: str) -> str:
        return self.one(*of)

    def _table(self) -> tuple[str, str, str]:
        """A table, and two of its columns, of which the first is a number."""
        table = self.one("t", "u")
        return table, self.one(*NUMBERS[table]), self.one(*COLUMNS[table])

    def _where(self, alias: str = "") -> str:
        dot = f"{alias}." if alias else ""
        return self.one("", "", f" WHERE {dot}a > 0", f" WHERE {dot}a IS NOT NULL")

    def _grouping_sets(self) -> str:
        by = self.one(
            *("ROLLUP (a, c)", "CUBE (a, c)", "GROUPING SETS ((a), (c), ())", "a, ROLLUP (c)"),
            *("GROUPING SETS ((a, c), (a))", "ROLLUP (a), CUBE (c)", "ALL"),
        )
        shown = "a, c" if by == "ALL" else f"a, c, grouping({self.one('a', 'c', 'a, c')}) AS g"
        having = self.one("", " HAVING count(*) > 1")
        made = f"{self.one('sum(b)', 'count(*)', 'max(c)', 'count(DISTINCT b)')} AS n"
        return f"SELECT {shown}, {made} FROM t{self._where()} GROUP BY {by}{having}"

    def _first_of_each(self) -> str:
        table, number, column = self._table()
        every = ", ".join(COLUMNS[table])
        order = f" ORDER BY {number}, {every}"
        limit = self.one("", " LIMIT 2")
        on = f"DISTINCT ON ({self.one(number, f'{number}, {column}')})"
        return f"SELECT {on} {every} FROM {table}{self._where()}{order}{limit}"

    def _part_of_all(self) -> str:
        table, _, _ = self._table()
        every = ", ".join(COLUMNS[table])
        cut = self.one("LIMIT 2 OFFSET 1", "OFFSET 2", "LIMIT 40%", "LIMIT 1 + 1", "LIMIT 3")
        made = f"SELECT {every} FROM {table}{self._where()} ORDER BY {every} {cut}"
        if self.chance(0.3):
            return f"({made}) UNION ALL SELECT {every} FROM {table}{self._where()}"
        return made

    def _row_values(self) -> str:
        one, other = self.one("a", "d"), self.one("a", "d")
        where = self.one("", " WHERE x.a IS NOT NULL AND x.d > 0")
        test = self.one(
            f"(a, d) {self.one('IN', 'NOT IN')} (SELECT {one}, x.{other} FROM u x{where})",
            f"(a, {other}) {self.one(*COMPARED)} ANY (SELECT x.d, x.a FROM u x{where})",
            f"(d, a) {self.one('=', '<>')} (1, {self.one('0', 'NULL', 'a')})",
        )
        # Where DuckDB filters by `<> ANY` of rows, it takes a row of nulls for another row.
        filters = ("a, d",) if "<> ANY" not in test else ()
        shown = self.one(f"a, d, {test} AS is", *filters)
        return f"SELECT {shown} FROM u" + ("" if "AS is" in shown else f" WHERE {test}")

    def _half_join(self) -> str:
        word = self.one("SEMI", "ANTI")
        further = self.one("", "", " AND y.d > x.b", " AND y.a > 0")
        on = self.one("USING (a)", f"ON x.a = y.a{further}", "ON x.b < y.d")
        return f"SELECT x.a, x.c FROM t x {word} JOIN u y {on}{self._where('x')}"

    def _elements(self) -> str:
        join = self.one(
            *(
                ", generate_series(0, x.a) s(i)",
                ", range(x.a + 1) s(i)",
                ", unnest([x.a, 7]) s(i)",
            ),
            " LEFT JOIN range(x.a) s(i) ON true",
        )
        numbered = " LEFT JOIN unnest([x.a, 9]) WITH ORDINALITY AS s(i, n) ON true"
        return self.one(
            f"SELECT x.c, i FROM t x{join}{self._where('x')}",
            f"SELECT x.c, i, n FROM t x{numbered}",
            f"SELECT a, unnest([a, d]) AS y, unnest({self.one('[1]', '[d, d, 3]')}) AS z FROM u",
        )

    def _recursion(self) -> str:
        every = self.one("UNION", "UNION ALL")
        most = self.one("2", "4")
        return self.one(
            f"WITH RECURSIVE r(n, c) AS (SELECT a, c FROM t{self._where()} {every} "
            f"SELECT n + 1, c FROM r WHERE n < {most}) SELECT n, c, count(*) AS k FROM r "
            "GROUP BY n, c",
            "WITH RECURSIVE r(a, d) AS (SELECT a, d FROM u UNION SELECT r.a, y.d FROM r "
            f"JOIN u y ON r.d = y.a) SELECT * FROM r{self._where()}",
            f"WITH RECURSIVE r(a, n) AS (SELECT a, 0 FROM u {every} SELECT y.d, n + 1 FROM r "
            f"JOIN u y ON r.a = y.a WHERE n < {most}) SELECT a, max(n) AS n FROM r GROUP BY a",
        )

    def _values(self) -> str:
        rows = "(VALUES (0, 'x'), (1, NULL), (NULL, 'y')) v(k, s)"
        return self.one(
            f"SELECT k, s, x.a, x.c FROM {rows} {self.one('LEFT ', 'FULL ', '')}JOIN t x "
            "ON x.a = v.k",
            f"SELECT k, count(x.a) AS n FROM {rows} LEFT JOIN u x ON x.d > k GROUP BY k",
            "SELECT 1 AS one, (SELECT count(*) FROM t) AS n",
            f"SELECT s FROM {rows} WHERE EXISTS (SELECT 1 FROM u WHERE a = k)",
        )

    def _stars(self) -> str:
        return self.one(
            "SELECT * EXCLUDE (b), a + 1 AS more FROM t",
            "SELECT * REPLACE (a * 2 AS a) RENAME (c AS z) FROM t",
            f"SELECT {self.one('max', 'min', 'count')}(COLUMNS(*)) FROM u{self._where()}",
            "SELECT COLUMNS('a|d') FROM u",
            f"SELECT x.*, y.d AS yd FROM t x {self.one('', 'LEFT ')}JOIN u y USING (a)",
            "SELECT coalesce(*COLUMNS(['a', 'd'])) AS z FROM u",
        )

    def _by_name(self) -> str:
        word = self.one("UNION BY NAME", "UNION ALL BY NAME")
        return f"SELECT a, c FROM t{self._where()} {word} SELECT d, a FROM u{self._where()}"

    def _any_pair(self) -> str:
        join = self.one("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
        on = self.one(
            *("x.b < y.d", "x.a + 1 = y.d", "x.a <> y.a", "x.a = y.a OR x.b = y.d", "false"),
            "x.a IS NOT DISTINCT FROM y.a",
        )
        shown = "x.a, x.c, y.a AS ya, y.d"
        return self.one(
            f"SELECT {shown} FROM t x {join} u y ON {on}",
            f"SELECT {shown} FROM t x CROSS JOIN u y{self._where('x')}",
        )

    def _named_window(self) -> str:
        frame = self.one(*FRAMES)
        way = "" if frame.startswith("RANGE") else self.one(*WAYS)
        partition = self.one("", "PARTITION BY a ")
        order = "d" if frame.startswith("RANGE") else f"d{way}, a{way}, e{way}"
        made = self.one(
            *("sum(d)", "count(a)", "max(d)", "avg(d)", "count(*) FILTER (WHERE a > 0)"),
            *("min(DISTINCT d)", "sum(a) FILTER (WHERE d > 0)", "bool_or(a > 1)"),
        )
        other = self.one("rank() OVER w", "dense_rank() OVER w", "count(*) OVER w")
        window = f"WINDOW w AS ({partition}ORDER BY {order})"
        shown = f"a, d, e, {made} OVER (w {frame}) AS x, {other} AS y"
        return f"SELECT {shown} FROM u{self._where()} {window}"

    def _ordered_calls(self) -> str:
        """Window functions with an order in the call, and with numbers by row."""
        partition = self.one("", "PARTITION BY a ")
        way, rows = self.one(*WAYS), self.one("d", "a", "d, e")
        unique = f"{rows}{way}, a, d, e"
        within = self.one(
            *(f"rank(ORDER BY {rows}{way})", f"percent_rank(ORDER BY {rows}{way})"),
            *(f"cume_dist(ORDER BY {rows}{way})", f"row_number(ORDER BY {unique})"),
            *(f"ntile(2 ORDER BY {unique})", f"ntile(abs(d) + 1 ORDER BY {unique})"),
            *(f"lag(d ORDER BY {unique})", f"lead(e, 2, DATE '2024-01-01' ORDER BY {unique})"),
            *(f"first_value(d ORDER BY {unique})", f"nth_value(e, 2 ORDER BY {unique})"),
            f"last_value(d ORDER BY {unique} IGNORE NULLS)",
        )
        by_row = self.one(
            *(
                "lag(d, a)",
                "lead(e, d, DATE '2024-01-01')",
                "nth_value(d, a)",
                "ntile(abs(a) + 1)",
            ),
            "lag(d, a IGNORE NULLS)",
        )
        order, frame = "ORDER BY d, a, e", self.one("", *FRAMES)
        if frame.startswith("RANGE"):
            order, by_row = "ORDER BY d", f"count(*) FILTER (WHERE {self.one('a', 'd')} > 0)"
        is_ranked = not within.startswith(("first", "last", "nth"))
        if is_ranked and "EXCLUDE" in frame:
            frame = ""
        of_all = "" if within.startswith("row_number") and not partition else f"OVER ({partition})"
        own = self.one(of_all, "") or f"OVER ({partition}{order} {frame})"
        shown = f"a, d, e, {within} {own} AS x, {by_row} OVER ({partition}{order} {frame}) AS y"
        # Two windows may put equal rows in two orders.
        return f"SELECT {shown} FROM (SELECT DISTINCT a, d, e FROM u{self._where()}) z"

    def _lateral(self) -> str:
        inner = self.one(
            f"SELECT y.d FROM u y WHERE y.a {self.one(*COMPARED)} x.a ORDER BY y.d LIMIT 1",
            "SELECT sum(y.d) AS d FROM u y WHERE y.a = x.a",
            "SELECT DISTINCT y.d FROM u y WHERE y.a = x.a AND y.d < x.b",
        )
        join = self.one(
            ", LATERAL ({}) z", " LEFT JOIN LATERAL ({}) z ON true", " CROSS JOIN LATERAL ({}) z"
        )
        return f"SELECT x.a, x.c, z.d FROM t x{join.format(inner)}"

    def _aggregates_around(self) -> str:
        """Aggregates in subqueries that are those of the query around them."""
        made = self.one("sum(x.b)", "count(x.a)", "max(x.b)")
        inner = self.one(
            f"(SELECT {made})",
            f"(SELECT {made} + count(*) FROM u y)",
            f"EXISTS (SELECT 1 FROM u y HAVING {made} > count(*))",
            f"(SELECT max(y.d) FROM u y HAVING {made} > 1)",
        )
        return self.one(
            f"SELECT x.a, {inner} AS v FROM t x GROUP BY x.a",
            f"SELECT {inner} AS v FROM t x{self._where('x')}",
        )

    def _of_lists(self) -> str:
        """Lists of rows that are compared, joined and grouped by."""
        return self.one(
            "SELECT x.a, y.d FROM t x JOIN u y ON [x.a, 1] = [y.d, y.a]",
            "SELECT [a, d] AS l, count(*) AS n FROM u GROUP BY l",
            "SELECT x.c FROM t x WHERE [x.a::INTEGER] IN (SELECT [d] FROM u)",
            "SELECT x.c, y.e FROM t x JOIN u y ON {'k': x.a} = {'k': y.d::SMALLINT}",
        )

    def _natural(self) -> str:
        way = self.one("", "LEFT ", "RIGHT ", "FULL ")
        return f"SELECT * FROM (SELECT a, c FROM t) x NATURAL {way}JOIN (SELECT a, d FROM u) y"
