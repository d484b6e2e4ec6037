"""Window functions by their definition: over all rows of a partition in order, one by one."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ikebana.codecs import canonical
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.kernels.window_functions import Window
from ikebana.processor.kernels.window_values import (
    End,
    Frame,
    FrameAggregate,
    InOwnOrder,
    Offset,
    Ranking,
    WindowFunction,
)

Row = Mapping[str, Any]


def row_of(window: Window, row: Row) -> bytes:
    """A row with its arguments as a window reads them."""
    arguments = {f"a{at}": row.get(name) for name, at in window.fields.items()}
    return canonical.encode({"o": row["o"], "r": row["r"], **arguments})


class Sorted:
    """Rows in order: a partition as the definition has it, each copy by itself."""

    def __init__(self, rows: Iterable[Row], window: Window) -> None:
        self.descending = window.is_descending
        named = [
            {**row, **{name: row.get(f"a{at}") for name, at in window.fields.items()}}
            for row in rows
        ]
        self.rows = sorted(named, key=_place, reverse=self.descending)

    def value(self, function: WindowFunction, at: int) -> Any:
        """The value of a function at a position."""
        match function:
            case InOwnOrder():
                return self._within(function, at)
            case Ranking():
                return self._rank(function, at)
            case Offset():
                return self._other(function, at)
            case End():
                seen = [self.rows[p].get(function.argument) for p in self.seen(function.frame, at)]
                return self._end(function, seen, at)
            case FrameAggregate(aggregate=aggregate):
                seen = [self.rows[p].get(aggregate.field) for p in self.seen(function.frame, at)]
                return _aggregate(aggregate, seen)
        raise AssertionError(function)

    def _rank(self, function: Ranking, at: int) -> Any:
        rows = self.rows
        ranks = [_rank(row) for row in rows]
        peers = [p for p, rank in enumerate(ranks) if rank == ranks[at]]
        match function.name:
            case "row_number":
                return at + 1
            case "rank":
                return peers[0] + 1
            case "dense_rank":
                return len(set(ranks[: peers[0]])) + 1
            case "percent_rank":
                return peers[0] / (len(rows) - 1) if len(rows) > 1 else 0
            case "cume_dist":
                return (peers[-1] + 1) / len(rows)
        number = self._number(function, at)
        return number and _tile(number, at, len(rows))

    def _end(self, function: End, seen: Sequence[Any], at: int) -> Any:
        if function.ignores_nulls:
            seen = [value for value in seen if value is not None]
        if function.name == "last_value":
            return seen[-1] if seen else None
        number = self._number(function, at)
        return seen[number - 1] if number and 0 < number <= len(seen) else None

    def seen(self, frame: Frame, at: int) -> list[int]:
        """The positions that a row's function sees."""
        rows = self.rows
        groups: list[list[int]] = []
        for p, row in enumerate(rows):
            if groups and _rank(rows[groups[-1][0]]) == _rank(row):
                groups[-1].append(p)
            else:
                groups.append([p])
        own = next(n for n, group in enumerate(groups) if at in group)
        found = [
            p
            for n, group in enumerate(groups)
            for p in group
            if self._is_within(frame, at, p, n - own)
        ]
        peers = set(groups[own])
        left_out = {"": set(), "row": {at}, "group": peers, "ties": peers - {at}}
        return [p for p in found if p not in left_out[frame.exclude]]

    def _is_within(self, frame: Frame, at: int, p: int, groups_behind: int) -> bool:
        steps = p - at if frame.unit == "rows" else groups_behind
        for bound, is_start in ((frame.start, True), (frame.end, False)):
            sign = 1 if is_start else -1
            if bound.side == "all":
                continue
            if frame.unit == "range" and bound.side != "current":
                limit, own = self.rows[at][str(bound.away)], self.rows[p]["o"]
                one, other = _rank({"o": own}), _rank({"o": limit})
                behind = (one > other) - (one < other)
                behind = -behind if self.descending else behind
                if behind * sign < 0:
                    return False
                continue
            away = self.rows[at][bound.away] if isinstance(bound.away, str) else bound.away
            away = -away if bound.side == "preceding" else away
            if (steps - away) * sign < 0:
                return False
        return True

    def _number(self, function: Ranking | Offset | End, at: int) -> int | None:
        of = function.number
        return self.rows[at].get(of) if isinstance(of, str) else of

    def _within(self, function: InOwnOrder, at: int) -> Any:
        """The value over the rows of the frame, by an order of the call."""
        rows, of = self.rows, function.function
        if (number := self._number(of, at)) is None:
            return None

        def place(p: int) -> tuple[bool, Any]:
            value = rows[p][function.by]["o0"]
            return value is None, value

        # Ties stay in the order of the window.
        sign = function.is_descending
        seen = sorted(self.seen(function.frame, at), key=place, reverse=sign)
        before = [p for p in seen if place(p) != place(at) and (place(p) > place(at)) == sign]
        ties = [p for p in seen if place(p) == place(at)]
        own = len(before) + sum(p < at for p in ties)
        match of.name:
            case "row_number":
                return own + 1
            case "rank":
                return len(before) + 1
            case "dense_rank":
                return len({place(p) for p in before}) + 1
            case "percent_rank":
                return len(before) / (len(seen) - 1) if len(seen) > 1 else 0
            case "cume_dist":
                return (len(before) + len(ties)) / len(seen) if seen else 0
            case "ntile":
                return _tile(number, min(own, len(seen) - 1), len(seen)) if seen else None
        if isinstance(of, Offset):
            other = own + (number if of.name == "lead" else -number)
            if 0 <= other < len(seen):
                return rows[seen[other]].get(of.argument)
            return rows[at].get(of.default) if of.default else None
        assert isinstance(of, End), "it is no rank"
        return self._end(of, [rows[p].get(of.argument) for p in seen], at)

    def _other(self, function: Offset, at: int) -> Any:
        rows, name, number = self.rows, function.argument, self._number(function, at)
        if number is None:
            return None
        is_back = (function.name == "lag") == (number >= 0)
        number = abs(number)
        others = rows[:at][::-1] if is_back else rows[at + 1 :]
        values = [row.get(name) for row in others]
        if function.ignores_nulls:
            values = [value for value in values if value is not None]
        if number == 0:
            return rows[at].get(name)
        if number <= len(values):
            return values[number - 1]
        return rows[at].get(function.default) if function.default else None


def _tile(number: int, at: int, size: int) -> int:
    small, large = divmod(size, number)
    sizes = [small + (n < large) for n in range(number)]
    return [n + 1 for n, each in enumerate(sizes) for _ in range(each)][at]


def _place(row: Row) -> tuple[Any, bytes]:
    return _rank(row), canonical.encode(row["r"])


def _rank(row: Row) -> tuple[bool, Any]:
    value = row["o"]["o0"]
    return (value is None, value)


def _aggregate(aggregate: Aggregate, seen: Sequence[Any]) -> Any:
    there = [value for value in seen if value is not None]
    if aggregate.is_distinct:
        there = sorted(set(there))
    match aggregate.kind:
        case "count":
            return len(there) if aggregate.field else len(seen)
        case "sum":
            return sum(there) if there else None
        case "avg":
            return float(Fraction(sum(there), len(there))) if there else None
        case "var_pop":
            if not there:
                return None
            mean = Fraction(sum(there), len(there))
            return float(sum((value - mean) ** 2 for value in there) / len(there))
        case "min":
            return min(there, default=None)
        case "max":
            return max(there, default=None)
        case "list":
            return sorted(there)
        case "top":
            return sorted(there, reverse=True)[: aggregate.limit]
        case "distinct":
            return len(set(there))
    raise AssertionError(aggregate.kind)
