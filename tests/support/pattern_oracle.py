"""Matches of row patterns by their definition: all ways to match in the order of preference."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

Row = frozenset[str]
"""The variables that a row may stand for."""
Way = tuple[int, tuple[str, ...]]
"""A position behind a match, and the variables of its rows."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One row."""

    name: str

    def __str__(self) -> str:
        return self.name

    def ways(self, rows: Sequence[Row], at: int) -> Iterator[Way]:
        if at < len(rows) and self.name in rows[at]:
            yield at + 1, (self.name,)


@dataclass(frozen=True, slots=True)
class Sequenced:
    """One part behind the other."""

    parts: tuple["Pattern", ...]

    def __str__(self) -> str:
        return f"({' '.join(map(str, self.parts))})"

    def ways(self, rows: Sequence[Row], at: int) -> Iterator[Way]:
        if not self.parts:
            yield at, ()
            return
        first, *others = self.parts
        for middle, variables in first.ways(rows, at):
            for end, more in Sequenced(tuple(others)).ways(rows, middle):
                yield end, (*variables, *more)


@dataclass(frozen=True, slots=True)
class Either:
    """One of several parts; the first ones are preferred."""

    parts: tuple["Pattern", ...]

    def __str__(self) -> str:
        return f"({' | '.join(map(str, self.parts))})"

    def ways(self, rows: Sequence[Row], at: int) -> Iterator[Way]:
        for part in self.parts:
            yield from part.ways(rows, at)


@dataclass(frozen=True, slots=True)
class Repeated:
    """A part several times; a repetition beyond the least number has a row."""

    part: "Pattern"
    least: int
    most: int | None
    is_reluctant: bool = False

    def __str__(self) -> str:
        usual = {(0, None): "*", (1, None): "+", (0, 1): "?"}
        most = "" if self.most is None else self.most
        counts = usual.get((self.least, self.most), f"{{{self.least},{most}}}")
        return f"({self.part}){counts}{'?' * self.is_reluctant}"

    def ways(self, rows: Sequence[Row], at: int) -> Iterator[Way]:
        if self.least == 0 and self.is_reluctant:
            yield at, ()
        if self.most != 0:
            most = None if self.most is None else self.most - 1
            fewer = Repeated(self.part, max(self.least - 1, 0), most, self.is_reluctant)
            for middle, variables in self.part.ways(rows, at):
                if self.least or middle > at:
                    for end, more in fewer.ways(rows, middle):
                        yield end, (*variables, *more)
        if self.least == 0 and not self.is_reluctant:
            yield at, ()


Pattern = Variable | Sequenced | Either | Repeated


def matches(pattern: Pattern, rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The variables of the rows of each match, one after the other; empty for a row in none."""
    found: list[tuple[str, ...]] = []
    at = 0
    while at < len(rows):
        at, variables = next(pattern.ways(rows, at), (at + 1, ()))
        found.append(variables)
    return found


def repeated(part: st.SearchStrategy[Pattern]) -> st.SearchStrategy[Pattern]:
    """Repetitions, as often as `*`, `+`, `?` and numbers say."""
    counts = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3), (2, None)])
    return st.builds(
        lambda part, counts, is_reluctant: Repeated(part, counts[0], counts[1], is_reluctant),
        part,
        counts,
        st.booleans(),
    )


patterns: st.SearchStrategy[Pattern] = st.recursive(
    st.sampled_from("ABC").map(Variable),
    lambda part: st.one_of(
        st.lists(part, min_size=2, max_size=3).map(lambda parts: Sequenced(tuple(parts))),
        st.lists(part, min_size=2, max_size=3).map(lambda parts: Either(tuple(parts))),
        repeated(part),
    ),
    max_leaves=5,
)
