"""Functions as users write them, importable by name as steps of plans."""

from collections.abc import Iterator
from typing import Any

Data = tuple[Any, Any]


def as_it_is(data: Data) -> Data:
    return data


def length(data: Data) -> Data:
    """The key, and how long the value's text is."""
    return data[0], len(data[1])


def doubled(data: Data) -> Data:
    key, value = data
    return key, value | {"n": 2 * value["n"]}


def is_even(data: Data) -> bool:
    return bool(data[1]["n"] % 2 == 0)


def swapped(data: Data) -> Data:
    """The value as the key; the key goes along in the value."""
    key, value = data
    return value["n"], value | {"was": key}


def down_to_one(data: Data) -> Iterator[Data]:
    """n, n - 1, ... 1; fails on the way where n is odd and more than 2."""
    key, value = data
    for n in range(value["n"], 0, -1):
        if value["n"] % 2 and n == 2:
            raise LookupError(value)
        yield key, value | {"n": n}


def inverse(data: Data) -> Data:
    key, value = data
    return key, value | {"n": 12 // value["n"]}


def by_its_number(data: Data) -> list[tuple[Data, int]]:
    """As many as n says, also none and fewer."""
    return [(data, data[1]["n"])]


def from_its_number(data: Data) -> list[tuple[Data, int | None, int]]:
    """From time 3n until 4n, n times; fails on 4."""
    n = data[1]["n"]
    if n == 4:
        raise ValueError(n)
    return [(data, 3 * n, n), (data, 4 * n, -n)]


def spoils_what_it_gets(data: Data) -> Data:
    data[1]["n"] += 1
    return data


def twice(data: Data) -> list[Data]:
    return [data, data]


def a_tuple(data: Data) -> Data:
    return data[0], {"n": 0, "pair": (1, 2.0)}


def is_a_list(data: Data) -> bool:
    return isinstance(data[1]["pair"], list)


def not_a_pair(data: Data) -> Any:
    return [data[0], data[1]]


def not_a_number(data: Data) -> Data:
    return data[0], {"n": float("nan")}


def an_object(data: Data) -> Data:
    return data[0], object()


def half_a_diff(data: Data) -> list[tuple[Data, float]]:
    return [(data, 0.5)]


def nothing_iterable(data: Data) -> Any:
    return None


def raises_the_value(data: Data) -> Data:
    raise RuntimeError(f"secret {data[1]}")


NOT_CALLABLE = 7


def count_char(text: str, char: str) -> int:
    """How often a character is in a text."""
    return text.count(char)
