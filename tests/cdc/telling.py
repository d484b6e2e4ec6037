"""A row of MariaDB as each producer can tell it: what it loses is lost, and nothing else is.

It shares no code with ikebana on purpose, and knows just the types of the store.
"""

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

Row = dict[str, Any]


def told(producer: str, row: Row) -> Row:
    """A row of a table as it is read from a producer's messages.

    Columns that are null are left out: those of a column that was added later are in no
    message of a row that nobody has changed since.
    """
    numbers = {name: row[f"{name} number"] for name in ("mood", "flags") if name in row}
    plain = {name: value for name, value in row.items() if not name.endswith(" number")}
    rules = _RULES[producer]
    found = {
        name: rules[name](value) if name in rules else value
        for name, value in plain.items()
        if value is not None
    }
    if producer == "canal":
        # It writes an enum and a set as MariaDB stores them; of a set we have the text.
        texts = {"mood": int, "flags": str}
        found |= {
            name: texts[name](number) for name, number in numbers.items() if number is not None
        }
    return comparable(found)


def comparable(row: Row) -> Row:
    """Floats are compared as floats; what is null is left out."""
    found = {name: value for name, value in row.items() if value is not None}
    for name, of in (("ratio", float), ("small", _single)):
        if name in found:
            found[name] = of(found[name])
    return found


def _single(number: Decimal) -> float:
    value: float = struct.unpack("f", struct.pack("f", number))[0]
    return value


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _without_fraction(text: str) -> str:
    return text.partition(".")[0]


def _instant(text: str) -> str:
    return _without_zeros(text.replace(" ", "T"))


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


_DEBEZIUM: dict[str, Callable[[Any], Any]] = {
    "wakes": _without_zeros,
    "seen": _instant,
    "changed": lambda text: _instant(text) + "Z",
}
_RULES: dict[str, dict[str, Callable[[Any], Any]]] = {
    # By default Debezium makes signed numbers of unsigned ones.
    "json": {**_DEBEZIUM, "big": _signed},
    "headers": {**_DEBEZIUM, "big": _signed},
    "confluent": _DEBEZIUM,
    # This version knows no fractions of MariaDB's seconds.
    "maxwell": {
        "seen": _without_fraction,
        "changed": _without_fraction,
        "wakes": _without_fraction,
        "flags": lambda text: text.split(",") if text else [],
    },
    "canal": {"wakes": _without_zeros, "seen": _instant, "changed": _instant},
}
