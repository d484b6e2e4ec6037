"""Random inserts, updates, key changes, deletes, truncates and column additions.

Keys are few, so that statements meet rows of others; what a statement does depends on what
is there, and the database alone knows the outcome.
"""

from random import Random

_STATEMENTS = 240
_KEYS = 120
_REGIONS = ("north", "süd", "east")

_COLUMNS = (
    "name", "amount", "ratio", "small", "active", "big", "born", "wakes", "seen", "changed",
    "settings", "photo", "mood", "flags", "since", "note",
)  # fmt: skip
_KEY = {"goods": ("id",), "orders": ("region", "number")}


def statements(random: Random, marker: str) -> str:
    """SQL for MariaDB; at the end a row with the marker in each table."""
    columns = {table: list(_COLUMNS) for table in _KEY}
    lines = []
    additions = {_STATEMENTS // 3: "later", 2 * _STATEMENTS // 3: "latest"}
    for number in range(_STATEMENTS):
        if number in additions:
            for table, known in columns.items():
                lines.append(f"ALTER TABLE {table} ADD COLUMN {additions[number]} int;")
                known.append(additions[number])
        if number in (_STATEMENTS // 4, _STATEMENTS // 2):
            lines.append("TRUNCATE TABLE goods;")
        lines += _transaction(random, columns)
    lines.append(f"INSERT INTO goods (id, name) VALUES (9999, '{marker}');")
    lines.append(f"INSERT INTO orders (region, number, name) VALUES ('', 9999, '{marker}');")
    return "\n".join(lines)


def _transaction(random: Random, columns: dict[str, list[str]]) -> list[str]:
    if random.random() < 0.7:
        return [_statement(random, columns)]
    parts = [_statement(random, columns) for _ in range(random.randint(2, 5))]
    return ["BEGIN;", *parts, random.choice(["COMMIT;", "COMMIT;", "COMMIT;", "ROLLBACK;"])]


def _statement(random: Random, columns: dict[str, list[str]]) -> str:
    table = random.choice(list(columns))
    known = columns[table]
    kind = random.choices(["insert", "replace", "update", "key", "delete"], [5, 2, 5, 2, 2])[0]
    if kind in ("insert", "replace"):
        names = sorted(random.sample(known, random.randint(0, len(known))))
        rows = (
            [*_key(random, table), *(_value(random, name) for name in names)]
            for _ in range(random.randint(1, 6))
        )
        into = "REPLACE INTO" if kind == "replace" else "INSERT IGNORE INTO"
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        return f"{into} {table} ({', '.join([*_KEY[table], *names])}) VALUES {values};"
    if kind == "update":
        names = sorted(random.sample(known, random.randint(1, 4)))
        changes = ", ".join(f"{name} = {_value(random, name)}" for name in names)
        return f"UPDATE {table} SET {changes} WHERE {_some(random, table)};"
    if kind == "key":
        changes = ", ".join(
            f"{name} = {value}"
            for name, value in zip(_KEY[table], _key(random, table), strict=True)
        )
        return f"UPDATE IGNORE {table} SET {changes} WHERE {_one(random, table)};"
    return f"DELETE FROM {table} WHERE {_some(random, table)};"


def _key(random: Random, table: str) -> list[str]:
    number = str(random.randint(1, _KEYS))
    return [number] if table == "goods" else [f"'{random.choice(_REGIONS)}'", number]


def _one(random: Random, table: str) -> str:
    pairs = zip(_KEY[table], _key(random, table), strict=True)
    return " AND ".join(f"{name} = {value}" for name, value in pairs)


def _some(random: Random, table: str) -> str:
    name, first = _KEY[table][-1], random.randint(1, _KEYS)
    return f"{name} BETWEEN {first} AND {first + random.randint(0, 5)}"


def _value(random: Random, name: str) -> str:
    """A value of a column's type, at times NULL."""
    if random.random() < 0.15:
        return "NULL"
    day = f"{random.randint(1971, 2037)}-{random.randint(1, 12):02}-{random.randint(1, 28):02}"
    clock = f"{random.randint(0, 23):02}:{random.randint(0, 59):02}:{random.randint(0, 59):02}"
    second = random.choice(["", ".5", ".125", ".001"])
    numbers = str(random.randint(-(2**31), 2**31 - 1))
    values = {
        "amount": f"{random.randint(-(10**11), 10**11) / 100:.2f}",
        "ratio": repr(random.choice([0.1, -2.5, 1e300, 5e-324, random.random()])),
        "small": random.choice(["0.1", "-2.5", "0", "16777216"]),
        "active": random.choice(["TRUE", "FALSE"]),
        "big": str(random.choice([0, 2**63 - 1, 2**63, 2**64 - 1, random.getrandbits(64)])),
        "born": f"'{day}'",
        "wakes": f"'{clock}{second}'",
        "seen": f"'{day} {clock}{random.choice([second, '.000007'])}'",
        "changed": f"'{day} {clock}{second}'",
        "settings": random.choice(['\'{"b": [1, 2.50], "a": null}\'', "'[]'", "'\"x\"'"]),
        "photo": random.choice(["x'00ff10'", "''", "x'27'"]),
        "mood": random.choice(["'sad'", "'happy'"]),
        "flags": random.choice(["''", "'a'", "'a,c'", "'a,b,c'"]),
        "since": str(random.randint(1901, 2155)),
        "note": random.choice(["'Zoë \"Ünal\" 🌷'", "''", "repeat('long ', 50)"]),
    }
    return values.get(name, f"'{numbers}'" if name == "name" else numbers)
