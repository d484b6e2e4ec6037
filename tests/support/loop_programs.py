"""Programs of loops in plain Python, and what they come to: computed again from all rows."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels.loop import (
    GroupNode,
    JoinNode,
    LoopUpdates,
    MapNode,
    NodeLookup,
    Pass,
    Program,
    Steps,
    SumNode,
)

Row = tuple[Any, ...]
Rows = Counter[Row]


class NoEndError(Exception):
    """The rows still change."""


@dataclass(frozen=True)
class Recursion:
    """A program, and a round of it by its definition: of sources and variables to variables."""

    program: Program
    round: Callable[[Sequence[Rows], Sequence[Rows]], list[Rows]]

    def fixpoint(self, sources: Sequence[Rows]) -> list[Rows]:
        """What the variables are when nothing changes.  Raises: NoEndError."""
        now = [Rows() for _ in self.program.variables]
        for _ in range(self.program.rounds + 1):
            after = [nonzero(rows) for rows in self.round(sources, now)]
            if after == now:
                return now
            now = after
        raise NoEndError


def nonzero(rows: Mapping[Row, int]) -> Rows:
    """Rows without those that are not there."""
    return Rows({row: count for row, count in rows.items() if count})


def written(data: Any) -> bytes:
    """Data as canonical bytes."""
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def tagged(of: int, row: Row) -> bytes:
    """A row of a source, as a loop takes it."""
    return written({"of": of, "key": None, "row": row})


def shown(value: bytes) -> tuple[int, Row]:
    """A row of a variable, as a loop gives it."""
    found = json.loads(value)
    return found["of"], tuple(found["row"])


def mapped(function: Callable[[Row], Iterable[Any]], counted: Counter[str] | None = None) -> Steps:
    """Steps that make any number of values of a row; updates are counted."""

    def steps(updates: LoopUpdates) -> Pass:
        if counted is not None:
            counted["updates"] += len(updates)
        return Pass(
            [
                KeyedUpdate(key, written(made), time, diff)
                for key, value, time, diff in updates
                for made in function(json.loads(value))
            ],
            (),
        )

    return steps


def keyed(by: Callable[[Row], Any], counted: Counter[str] | None = None) -> Steps:
    """Steps that make a key of a row."""

    def steps(updates: LoopUpdates) -> Pass:
        if counted is not None:
            counted["updates"] += len(updates)
        return Pass(
            [update._replace(key=written(by(json.loads(update.value)))) for update in updates], ()
        )

    return steps


def reduced(
    function: Callable[[Mapping[Row, int]], Iterable[Row]],
) -> Callable[[LoopUpdates], Pass]:
    """The results of the rows of each key."""

    def results(updates: LoopUpdates) -> Pass:
        groups: defaultdict[tuple[bytes | None, int], Rows] = defaultdict(Rows)
        for key, value, time, diff in updates:
            groups[key, time][tuple(json.loads(value))] += diff
        return Pass(
            [
                KeyedUpdate(key, written(made), time, 1)
                for (key, time), rows in groups.items()
                for made in function(rows)
            ],
            (),
        )

    return results


def joined(
    left: int,
    right: int,
    on: tuple[int, int],
    made: Callable[[Row, Row], Iterable[Row]],
    counted: Counter[str] | None = None,
) -> JoinNode:
    """The join of two collections by a column of each."""

    def side(name: str, at: int) -> Steps:
        return mapped(lambda row: [{f"{name}k": row[at], name: row}], counted)

    results = mapped(lambda row: made(tuple(row["l"]), tuple(row["r"])), counted)  # type: ignore[call-overload]
    paths = (NodeLookup(1, ("lk",), ("rk",)),), (NodeLookup(0, ("rk",), ("lk",)),)
    return JoinNode((left, right), (side("l", on[0]), side("r", on[1])), paths, results)


def distinct(of: int, counted: Counter[str] | None = None) -> GroupNode:
    """Each row once."""
    once = reduced(lambda rows: [row for row, count in rows.items() if count > 0])
    return GroupNode((of,), keyed(tuple, counted), once, mapped(lambda row: [row]))


def _joined_rows(
    left: Rows, right: Rows, on: tuple[int, int], made: Callable[[Row, Row], Iterable[Row]]
) -> Iterator[tuple[Row, int]]:
    for one, n in left.items():
        for other, m in right.items():
            if one[on[0]] == other[on[1]]:
                for row in made(one, other):
                    yield row, n * m


def _sum(*parts: Iterable[tuple[Row, int]]) -> Rows:
    found = Rows()
    for part in parts:
        for row, count in part:
            found[row] += count
    return nonzero(found)


def _ends(x: Row, e: Row) -> list[Row]:
    return [(x[0], e[1])]


def closure(counted: Counter[str] | None = None, rounds: int = 1000) -> Recursion:
    """All pairs of nodes between which there is a path of edges (a, b)."""
    nodes = joined(1, 0, (1, 0), _ends, counted), SumNode((0, 2)), distinct(3, counted)

    def round_(sources: Sequence[Rows], now: Sequence[Rows]) -> list[Rows]:
        found = _sum(sources[0].items(), _joined_rows(now[0], sources[0], (1, 0), _ends))
        return [Rows({row: 1 for row, count in found.items() if count > 0})]

    return Recursion(Program(1, (4,), nodes, rounds), round_)


def parts(rounds: int = 30) -> Recursion:
    """The parts (whole, part, count) of each whole, once for each way: no end in a cycle."""

    def within(x: Row, e: Row) -> list[Row]:
        return [(x[0], e[1], x[2] * e[2])]

    def round_(sources: Sequence[Rows], now: Sequence[Rows]) -> list[Rows]:
        return [_sum(sources[0].items(), _joined_rows(now[0], sources[0], (1, 0), within))]

    nodes = joined(1, 0, (1, 0), within), SumNode((0, 2))
    return Recursion(Program(1, (3,), nodes, rounds), round_)


def nearest(rounds: int = 1000) -> Recursion:
    """The least length (node, length) of paths of edges (a, b, length) from node 0."""

    def further(x: Row, e: Row) -> list[Row]:
        return [(e[1], x[1] + e[2])]

    def begin(row: Row) -> list[Row]:
        return [(0, 0)] if row[0] == 0 else []

    def least(rows: Mapping[Row, int]) -> list[Row]:
        there = [row for row, count in rows.items() if count > 0]
        return [min(there)] if there else []

    nodes = (
        MapNode((0,), mapped(begin)),
        joined(1, 0, (0, 0), further),
        SumNode((2, 3)),
        GroupNode((4,), keyed(lambda row: row[0]), reduced(least), mapped(lambda row: [row])),
    )

    def round_(sources: Sequence[Rows], now: Sequence[Rows]) -> list[Rows]:
        begun = ((made, n) for row, n in sources[0].items() for made in begin(row))
        found = _sum(begun, _joined_rows(now[0], sources[0], (0, 0), further))
        groups: defaultdict[Any, Rows] = defaultdict(Rows)
        for row, count in found.items():
            groups[row[0]][row] = count
        return [Rows(row for rows in groups.values() for row in least(rows))]

    return Recursion(Program(1, (5,), nodes, rounds), round_)


def alternating(rounds: int = 1000) -> Recursion:
    """The ends of paths from node 0 of odd lengths, and of even ones, which name each other."""

    def end(_: Row, e: Row) -> list[Row]:
        return [(e[1],)]

    def begin(row: Row) -> list[Row]:
        return [(row[1],)] if row[0] == 0 else []

    nodes = (
        MapNode((0,), mapped(begin)),
        joined(2, 0, (0, 0), end),
        SumNode((3, 4)),
        distinct(5),
        joined(1, 0, (0, 0), end),
        distinct(7),
    )

    def round_(sources: Sequence[Rows], now: Sequence[Rows]) -> list[Rows]:
        begun = ((made, n) for row, n in sources[0].items() for made in begin(row))
        odd = _sum(begun, _joined_rows(now[1], sources[0], (0, 0), end))
        even = _sum(_joined_rows(now[0], sources[0], (0, 0), end))
        return [Rows({r: 1 for r, count in each.items() if count > 0}) for each in (odd, even)]

    return Recursion(Program(1, (6, 8), nodes, rounds), round_)


def limited(recursion: Recursion, rounds: int) -> Recursion:
    """The same with another limit."""
    return replace(recursion, program=replace(recursion.program, rounds=rounds))
