"""SQL queries in which unique keys come, stay and go: joins, groups, sets, first rows.

Tables have their own keys, as JSON, which the columns `j` and `q` of others may have.
"""

from random import Random

from support.random_choices import Draws
from support.sql_oracle import Change, Tables

TABLES: Tables = {
    "t": {"a": "BIGINT", "b": "BIGINT", "j": "JSON"},
    "u": {"a": "BIGINT", "d": "VARCHAR", "q": "JSON"},
}
_VALUES = {
    "a": (None, 0, 1),
    "b": (0, 1, 2),
    "j": (None, 0, 1, "1"),
    "d": (None, "1", "x"),
    "q": (0, 1, 2),
}


def keyed_history(choice: Random, times: int) -> dict[str, list[Change]]:
    """Inserts, updates and deletes of rows of a few keys, of which two are alike as texts."""
    return {
        name: [
            (key, None if choice.random() < 0.3 else _row(choice, columns), time)
            for time in range(times)
            for key in choice.sample([0, 1, 2, "1"], choice.randint(0, 3))
        ]
        for name, columns in TABLES.items()
    }


def _row(choice: Random, columns: object) -> dict[str, object]:
    assert isinstance(columns, dict)
    return {column: choice.choice(_VALUES[column]) for column in columns}


class KeyedDrawing(Draws):
    """Draws queries, each with the types of its columns."""

    def query(self, depth: int = 2) -> tuple[str, dict[str, str]]:
        """A query and its columns; subqueries are `depth` deep at most."""
        one = [self._group, self._distinct, self._first, self._set, self._anti]
        draw = self.one(*one, *[self._select, self._join] * 2)
        return draw(depth)

    def _source(self, depth: int) -> tuple[str, str, dict[str, str]]:
        """What stands in FROM, its alias, and its columns; a table also has its key."""
        alias = self.alias("s")
        if depth == 0 or self.chance(0.4):
            name = self.one(*TABLES)
            return f"{name} {alias}", alias, {**TABLES[name], "key": "JSON"}
        text, columns = self.query(depth - 1)
        return f"({text}) {alias}", alias, columns

    def _columns(self, sides: list[tuple[str, dict[str, str]]]) -> tuple[str, dict[str, str]]:
        """Some columns of what stands in FROM, under new names, and others made of them."""
        every = [(f"{alias}.{name}", of) for alias, own in sides for name, of in own.items()]
        some = self.choice.sample(every, self.choice.randint(1, min(4, len(every))))
        found = {}
        texts = []
        for text, of in some:
            name = self.alias("c")
            if of == "BIGINT" and self.chance(0.2):
                text = f"{text} % 2"
            texts.append(f"{text} AS {name}")
            found[name] = of
        return ", ".join(texts), found

    def _select(self, depth: int) -> tuple[str, dict[str, str]]:
        source, alias, own = self._source(depth)
        listed, columns = self._columns([(alias, own)])
        where = self._where(alias, own) if self.chance(0.4) else ""
        return f"SELECT {listed} FROM {source}{where}", columns

    def _where(self, alias: str, own: dict[str, str]) -> str:
        name, of = self.one(*own.items())
        return f" WHERE {alias}.{name} {'> 0' if of == 'BIGINT' else 'IS NOT NULL'}"

    def _join(self, depth: int) -> tuple[str, dict[str, str]]:
        left, one, own = self._source(depth)
        right, other, others = self._source(depth)
        kind = self.one("JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
        pairs = [(a, b) for a in own for b in others if own[a] == others[b]]
        if not pairs:
            return self._select(depth)
        count = min(len(pairs), self.one(1, 1, 2))
        on = " AND ".join(f"{one}.{a} = {other}.{b}" for a, b in self.choice.sample(pairs, count))
        listed, columns = self._columns([(one, own), (other, others)])
        return f"SELECT {listed} FROM {left} {kind} {right} ON {on}", columns

    def _anti(self, depth: int) -> tuple[str, dict[str, str]]:
        left, one, own = self._source(depth)
        right, other, others = self._source(depth)
        pairs = [(a, b) for a in own for b in others if own[a] == others[b]]
        if not pairs:
            return self._select(depth)
        a, b = self.one(*pairs)
        listed, columns = self._columns([(one, own)])
        no = self.one("NOT ", "")
        within = f"SELECT 1 FROM {right} WHERE {other}.{b} = {one}.{a}"
        return f"SELECT {listed} FROM {left} WHERE {no}EXISTS ({within})", columns

    def _group(self, depth: int) -> tuple[str, dict[str, str]]:
        source, alias, own = self._source(depth)
        may = [name for name in own if name != "key"]
        groups = self.choice.sample(may, self.choice.randint(1, min(3, len(may))))
        many = self.alias("n")
        named = {f"g{self._count}_{name}": name for name in groups}
        listed = ", ".join(f"{alias}.{name} AS {new}" for new, name in named.items())
        by = ", ".join(f"{alias}.{name}" for name in groups)
        text = f"SELECT {listed}, count(*) AS {many} FROM {source} GROUP BY {by}"
        return text, {**{new: own[name] for new, name in named.items()}, many: "BIGINT"}

    def _distinct(self, depth: int) -> tuple[str, dict[str, str]]:
        source, alias, own = self._source(depth)
        listed, columns = self._columns([(alias, own)])
        return f"SELECT DISTINCT {listed} FROM {source}", columns

    def _first(self, depth: int) -> tuple[str, dict[str, str]]:
        text, columns = self._select(depth)
        first, *rest = columns
        limit = self.one("= 1", "= 1", "<= 2")
        over = f"PARTITION BY {first} ORDER BY {', '.join(rest) or first}"
        source = f"SELECT * FROM ({text}) f{self._count}"
        return f"{source} QUALIFY row_number() OVER ({over}) {limit}", columns

    def _set(self, depth: int) -> tuple[str, dict[str, str]]:
        source, alias, own = self._source(depth)
        numbers = [name for name, of in own.items() if of == "BIGINT"]
        if not numbers:
            return self._select(depth)
        operation = self.one(
            "UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"
        )
        name = self.alias("c")
        one = f"SELECT {alias}.{self.one(*numbers)} AS {name} FROM {source}"
        return f"{one} {operation} SELECT a FROM u", {name: "BIGINT"}
