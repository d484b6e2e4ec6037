"""Queries over columns of every type, drawn at random from the grammar of SQL expressions."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from support.random_choices import Draws
from support.sql_oracle import Change, Tables

TABLES: Tables = {
    "t": {
        "i": "INTEGER",
        "b": "BIGINT",
        "h": "HUGEINT",
        "n": "DECIMAL(9,2)",
        "f": "FLOAT",
        "d": "DOUBLE",
        "s": "VARCHAR",
        "o": "BOOLEAN",
        "y": "DATE",
        "m": "TIMESTAMP",
        "z": "TIMESTAMP WITH TIME ZONE",
        "w": "TIME",
        "x": "BLOB",
        "g": "UUID",
        "l": "BIGINT[]",
        "q": "DECIMAL(5,1)[]",
        "r": 'STRUCT(a BIGINT, "B c" VARCHAR)',
        "p": "MAP(VARCHAR, INTEGER)",
        "j": "JSON",
    },
    "u": {"b": "BIGINT", "s": "VARCHAR", "n": "DECIMAL(5,2)", "f": "FLOAT"},
}
VALUES: dict[str, tuple[Any, ...]] = {
    "i": (None, 0, 3, -7),
    "b": (None, 0, 1, 5),
    "h": (None, 1, 2**70),
    "n": (None, 1.25, -3, 0),
    "f": (None, 0.1, 38083.53, -2.5),
    "d": (None, 0.1, 1.5, -4.25),
    "s": (None, "", "x", "007", "1.50", "null"),
    "o": (None, True, False),
    "y": (None, "2024-02-29", "1969-12-31"),
    "m": (None, "2024-02-29T12:00:00", "1969-12-31T23:59:59.25"),
    "z": (None, "2024-02-29T12:00:00Z"),
    "w": (None, "12:00:00"),
    "x": (None, "AAE="),
    "g": (None, "00000000-0000-0000-0000-000000000001"),
    "l": (None, [], [1, None, 2]),
    "q": (None, [1.5, 2]),
    "r": (None, {"a": 1, "B c": "x"}, {"a": None, "B c": None}),
    "p": (None, {}, {"k": 1}),
    "j": (None, 1, "x", [1, 2], {"a": 1}),
}
NUMBERS = ("i", "b", "h", "n", "f", "d")
TYPES = {
    "number": (
        "INTEGER",
        "bigint",
        "HUGEINT",
        "DECIMAL(12,2)",
        "numeric(20,3)",
        "DOUBLE",
        "float",
    ),
    "text": ("VARCHAR", "text"),
    "truth": ("BOOLEAN",),
    "day": ("DATE",),
    "moment": ("TIMESTAMP", "timestamptz"),
}
KINDS = ("number", "number", "text", "truth", "day", "moment", "list", "struct", "any", "null")


def rows(choice: Random) -> dict[str, list[Change]]:
    """A few rows of each table."""
    return {
        name: [
            (key, {column: choice.choice(VALUES[column]) for column in columns}, 0)
            for key in range(choice.randint(1, 4))
        ]
        for name, columns in TABLES.items()
    }


class Expressions(Draws):
    """Draws expressions and queries; each is text that DuckDB may take."""

    def query(self) -> str:
        """A whole query over `t`, and perhaps `u`."""
        one = self.one
        form = self.choice.random()
        if form < 0.35:
            return f"SELECT {self._listed()} FROM t{self._where()}"
        if form < 0.45:
            return f"SELECT DISTINCT {self._listed()} FROM t"
        if form < 0.6:
            operation = one("UNION ALL", "UNION", "EXCEPT", "INTERSECT", "EXCEPT ALL")
            many = self.choice.randint(1, 2)
            kinds = [one(*KINDS) for _ in range(many)]
            # Often of one kind, so that there is a common type.
            others = [kind if self.chance(0.7) else "null" for kind in kinds]
            return f"SELECT {self._of(kinds)} FROM t {operation} SELECT {self._of(others)} FROM t"
        if form < 0.75:
            inner = f"SELECT {self._listed(2)} FROM t"
            outer = one("v0, v1", "v0, v0 IS NULL AS n", "coalesce(v0, v1) AS c", "count(v0) AS c")
            if self.chance(0.5):
                return f"WITH v AS ({inner}) SELECT {outer} FROM v"
            return f"SELECT {outer} FROM ({inner}) v"
        if form < 0.9:
            by = self.expression(one(*KINDS), 2)
            return f"SELECT {by} AS k, {self._aggregates()} FROM t GROUP BY {self._respelt(by)}"
        kind = one("", "LEFT ", "FULL ")
        column = one("u.b", "u.s", "u.n", "u.f", "coalesce(u.n, t.n)", "coalesce(u.f, 1)")
        on = one("t.b = u.b", "t.s = u.s", "t.b = u.b AND u.n > 1")
        return f"SELECT t.i, t.n AS v0, {column} AS c FROM t {kind}JOIN u ON {on}"

    def _respelt(self, text: str) -> str:
        """The same expression, with the names of types in another case."""
        for name in ("DATE", "VARCHAR", "BOOLEAN", "TIMESTAMP", "INTEGER"):
            if self.chance(0.5):
                text = text.replace(f" AS {name})", f" AS {name.lower()})")
        return text

    def _listed(self, many: int = 0) -> str:
        many = many or self.choice.randint(1, 3)
        return self._of([self.one(*KINDS) for _ in range(many)])

    def _of(self, kinds: list[str]) -> str:
        return ", ".join(f"{self.expression(kind)} AS v{at}" for at, kind in enumerate(kinds))

    def _where(self) -> str:
        return f" WHERE {self.expression('truth', 2)}" if self.chance(0.4) else ""

    def _aggregates(self) -> str:
        one = self.one
        calls = [
            one(
                "count(*)",
                f"count({self.expression('any', 1)})",
                f"sum({self.expression('number', 1)})",
                f"avg({one(*NUMBERS)})",
                f"min({self.expression(one('number', 'text', 'day', 'moment'), 1)})",
                f"max({one(*NUMBERS, 's', 'y', 'm', 'o', 'l', 'NULL')})",
                f"bool_or({self.expression('truth', 1)})",
                "list({0} ORDER BY {0})".format(one(*NUMBERS, "s", "y", "NULL")),
                "any_value({0} ORDER BY {0})".format(one(*NUMBERS, "NULL")),
                f"sum({one(*NUMBERS)}) + 1",
            )
            for _ in range(self.choice.randint(1, 2))
        ]
        return ", ".join(f"{call} AS a{at}" for at, call in enumerate(calls))

    def expression(self, kind: str, depth: int = 3) -> str:
        """An expression of a kind, nested up to a depth."""
        one, deeper = self.one, depth - 1
        if kind == "any":
            kind = one(*[each for each in KINDS if each != "any"])
        if kind == "null":
            return one("NULL", "NULL", "CAST(NULL AS INTEGER)", "CASE WHEN o THEN NULL END")
        if depth <= 0:
            return self._leaf(kind)
        general = [
            lambda: self._leaf(kind),
            lambda: (
                f"CASE WHEN {self.expression('truth', deeper)} THEN "
                f"{self.expression(kind, deeper)} "
                f"ELSE {self.expression(one(kind, 'null'), 0)} END"
            ),
            lambda: f"coalesce({self.expression(kind, deeper)}, {self.expression(kind, deeper)})",
            lambda: f"nullif({self.expression(kind, deeper)}, {self.expression(kind, 0)})",
        ]
        return one(*general, *self._special(kind, deeper))()

    def _leaf(self, kind: str) -> str:
        one = self.one
        return {
            "number": lambda: one(*NUMBERS, "1", "2.50", "1e1", "-3", "5000000000"),
            "text": lambda: one("s", "'x'", "''", "'1.50'"),
            "truth": lambda: one("o", "true", "b > 1"),
            "day": lambda: one("y", "DATE '2024-01-01'"),
            "moment": lambda: one("m", "z", "TIMESTAMP '2024-01-01 00:00:00'"),
            "list": lambda: one("l", "q", "[1, 2]", "[]", "['x']"),
            "struct": lambda: one("r", "{'a': b}", "{'a': NULL}", "p", "MAP {'k': i}"),
        }[kind]()

    def _special(self, kind: str, depth: int) -> list[Callable[[], str]]:
        one = self.one
        number = partial(self.expression, "number", depth)
        text = partial(self.expression, "text", depth)
        match kind:
            case "number":
                return [
                    lambda: f"({number()} {one(*'+-*')} {number()})",
                    lambda: f"({number()} {one('%', '//', '/')} {one(*'247')})",
                    lambda: f"-({number()})",
                    lambda: f"abs({number()})",
                    lambda: f"round({number()}, 1)",
                    lambda: f"{one('greatest', 'least')}({number()}, {number()})",
                    lambda: f"length({text()})",
                    lambda: f"{one('CAST', 'TRY_CAST')}({number()} AS {one(*TYPES['number'])})",
                    lambda: f"extract({one('year', 'day')} FROM {self.expression('day', depth)})",
                    lambda: f"len({self.expression('list', depth)})",
                    lambda: one("l[1]", "q[1]", "r.a", "p['k']", "list_sum(l)", "list_sum(q)"),
                    lambda: "j->'a'" if one(0, 1) else "CAST(j->>'a' AS BIGINT)",
                ]
            case "text":
                return [
                    lambda: f"({text()} || {text()})",
                    lambda: f"{one('upper', 'trim', 'reverse')}({text()})",
                    lambda: f"CAST({self.expression('any', depth)} AS {one(*TYPES['text'])})",
                    lambda: one('r."B c"', "j->>'a'", "CAST(x AS VARCHAR)", "CAST(g AS VARCHAR)"),
                    lambda: f"substr({text()}, 1, 2)",
                    lambda: f"concat({text()}, {number()})",
                ]
            case "truth":
                return [
                    lambda: f"({number()} {one('<', '=', '<>', '>=')} {number()})",
                    lambda: f"({text()} {one('<', '=', 'LIKE')} {text()})",
                    lambda: f"(NOT {self.expression('truth', depth)})",
                    lambda: (
                        f"({self.expression('truth', depth)} {one('AND', 'OR')} "
                        f"{self.expression('truth', depth)})"
                    ),
                    lambda: f"({self.expression('any', depth)} IS {one('', 'NOT ')}NULL)",
                    lambda: f"({number()} IN ({number()}, 1, NULL))",
                    lambda: f"({number()} BETWEEN {number()} AND {number()})",
                    lambda: f"({number()} IS DISTINCT FROM {number()})",
                    lambda: f"(NULL {one('=', '<')} {number()})",
                ]
            case "day":
                return [
                    lambda: f"CAST({self.expression('moment', depth)} AS DATE)",
                    lambda: f"({self.expression('day', depth)} + {one('1', 'i')})",
                    lambda: f"last_day({self.expression('day', depth)})",
                ]
            case "moment":
                return [
                    lambda: f"CAST({self.expression('day', depth)} AS TIMESTAMP)",
                    lambda: f"date_trunc('month', {self.expression('moment', depth)})",
                    lambda: f"({self.expression('moment', depth)} + INTERVAL 1 DAY)",
                ]
            case "list":
                return [
                    lambda: f"[{number()}, {number()}]",
                    lambda: f"[{text()}, NULL]",
                    lambda: f"list_transform({one(*'lq')}, lambda e: e + {number()})",
                    lambda: "list_concat(l, [3])",
                    lambda: "map_keys(p)",
                ]
            case _:
                return [
                    lambda: f"{{'a': {self.expression('any', depth)}, 'B c': {text()}}}",
                    lambda: f"MAP {{'k': {number()}}}",
                ]
