"""Window functions by their definition: over all rows of a partition in order, one by one."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from ikebana.codecs import canonical
from ikebana.processor.kernels.frames import Frame
from ikebana.processor.kernels.window_values import WindowFunction

Row = Mapping[str, Any]


class Sorted:
    """Rows in order: a partition as the definition has it, each copy by itself."""

    def __init__(self, rows: Sequence[Row], *, descending: bool) -> None:
        self.descending = descending
        self.rows = sorted(rows, key=_place, reverse=descending)

    def value(self, function: WindowFunction, at: int) -> Any:
        """The value of a function at a position."""
        rows, kind = self.rows, function.kind
        ranks = [_rank(row) for row in rows]
        peers = [p for p, rank in enumerate(ranks) if rank == ranks[at]]
        match kind:
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
            case "ntile":
                return self._tiles(function.number)[at]
            case "lag" | "lead":
                return self._other(function, at)
        seen = [rows[p].get(function.argument) for p in self.seen(function.frame, at)]
        if function.ignores_nulls:
            seen = [value for value in seen if value is not None]
        match kind:
            case "first_value":
                return seen[0] if seen else None
            case "last_value":
                return seen[-1] if seen else None
            case "nth_value":
                return seen[function.number - 1] if len(seen) >= function.number else None
        return _aggregate(function, seen)

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
                limit, own = self.rows[at][bound.at], self.rows[p]["o"]
                one, other = _rank({"o": own}), _rank({"o": limit})
                behind = (one > other) - (one < other)
                behind = -behind if self.descending else behind
                if behind * sign < 0:
                    return False
                continue
            away = -bound.offset if bound.side == "preceding" else bound.offset
            if (steps - away) * sign < 0:
                return False
        return True

    def _tiles(self, number: int) -> list[int]:
        small, large = divmod(len(self.rows), number)
        sizes = [small + (n < large) for n in range(number)]
        return [n + 1 for n, size in enumerate(sizes) for _ in range(size)]

    def _other(self, function: WindowFunction, at: int) -> Any:
        rows, name, number = self.rows, function.argument, function.number
        others = rows[:at][::-1] if function.kind == "lag" else rows[at + 1 :]
        values = [row.get(name) for row in others]
        if function.ignores_nulls:
            values = [value for value in values if value is not None]
        if number == 0:
            return rows[at].get(name)
        if number <= len(values):
            return values[number - 1]
        return rows[at].get(function.default) if function.default else None


def _place(row: Row) -> tuple[Any, bytes]:
    return _rank(row), canonical.encode(row["r"])


def _rank(row: Row) -> tuple[bool, Any]:
    value = row["o"]["o0"]
    return (value is None, value)


def _aggregate(function: WindowFunction, seen: Sequence[Any]) -> Any:
    there = [value for value in seen if value is not None]
    match function.kind:
        case "count":
            return len(there) if function.argument else len(seen)
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
            return sorted(there, reverse=True)[: function.number]
        case "distinct":
            return len(set(there))
    raise AssertionError(function.kind)
