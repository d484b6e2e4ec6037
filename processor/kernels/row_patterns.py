"""Row patterns, such as `A B* (C | D)+`: which rows of an ordered partition are a match.

A row may stand for the variables whose conditions are true of it.  From the first row on, a match
is sought that begins with the row; behind its last row, or if there is none behind this row, the
next one is sought.  Of several matches the preferred one is taken: an earlier alternative before a
later one, more repetitions before fewer, and with `?` behind a repetition fewer before more.

All preferences are followed side by side, in their order (R. Pike, and K. Thompson, Regular
Expression Search Algorithm, 1968), so a row is read once for each match that may begin before it.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

MOST_STEPS = 2_000
"""How many steps a pattern may have when its repetitions are written out."""
_TOKEN = re.compile(r'\s*("(?:[^"]|"")+"|\w+|\{[\d\s,]*\}|\S)', re.ASCII)
_WORD = re.compile(r'"(?:[^"]|"")+"|[^\W\d]\w*')
_COUNTS = re.compile(r"\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}")
_REPEATED = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class PatternError(Exception):
    """A text is no pattern; `at` is the place of the fault."""

    def __init__(self, problem: str, at: int) -> None:
        super().__init__(problem)
        self.at = at


class _Step(NamedTuple):
    """A step of a pattern: it takes a row of a variable, or goes on at the places of `to`."""

    variable: int | None = None
    to: tuple[int, ...] = ()


MatchPath = tuple["MatchPath | None", int]
"""The variables of the rows so far: those of the rows before, and that of the last row."""


class Pattern(NamedTuple):
    """A pattern: its variables in the order of the text, and its steps; behind them is a match."""

    variables: tuple[str, ...]
    steps: tuple[_Step, ...]

    def follow(
        self, at: int, path: MatchPath | None, threads: dict[int, MatchPath | None]
    ) -> bool:
        """Add the steps that take a row from a place on; return whether a match ends there.

        What is less preferred than a match, or leads to a step that another thread has, is not
        added.
        """
        waiting, seen = [at], set[int]()
        while waiting:
            at = waiting.pop()
            if at == len(self.steps):
                return True
            step = self.steps[at]
            if step.variable is not None:
                threads.setdefault(at, path)
            elif at not in seen:
                seen.add(at)
                waiting.extend(reversed(step.to))
        return False


class _Attempt:
    """The search for a match that begins with one row."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._threads: dict[int, MatchPath | None] = {}
        self.match: MatchPath | None = None
        pattern.follow(0, None, self._threads)

    def take(self, row: int) -> bool:
        """Read the next row; return whether no further row can change the match."""
        threads: dict[int, MatchPath | None] = {}
        for at, path in self._threads.items():
            variable = self._pattern.steps[at].variable
            assert variable is not None, "a thread waits for a row"
            if row >> variable & 1:
                longer = (path, variable)
                if self._pattern.follow(at + 1, longer, threads):
                    self.match = longer
                    break
        self._threads = threads
        return not threads


class Search:
    """The search for matches along rows; each row is a number with a bit for each variable.

    >>> search = Search(parsed("A B+"))
    >>> [list(search.take(row)) for row in (1, 2, 2, 1, 1, 2)], list(search.end())
    ([[], [], [], [(0, 1, 1)], [()], []], [(0, 1)])
    """

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._rows: list[int] = []
        self._attempt = _Attempt(pattern)

    @property
    def pending(self) -> int:
        """How many rows the match that is sought may have so far."""
        return len(self._rows)

    def take(self, row: int) -> Iterator[tuple[int, ...]]:
        """Read a row; yield the variables of each match that ends, empty for a row without one."""
        self._rows.append(row)
        is_decided = self._attempt.take(row)
        while is_decided:
            yield self._decision()
            is_decided = any(map(self._attempt.take, self._rows))

    def end(self) -> Iterator[tuple[int, ...]]:
        """The same for the rows that are pending where no further row comes."""
        while self._rows:
            yield self._decision()
            any(map(self._attempt.take, self._rows))

    def _decision(self) -> tuple[int, ...]:
        variables = tuple(_variables(self._attempt.match))[::-1]
        del self._rows[: len(variables) or 1]
        self._attempt = _Attempt(self._pattern)
        return variables


def _variables(path: MatchPath | None) -> Iterator[int]:
    while path is not None:
        path, variable = path
        yield variable


@lru_cache(maxsize=64)
def parsed(text: str) -> Pattern:
    """Parse a pattern.

    >>> parsed("A B*").variables
    ('A', 'B')

    Raises: PatternError.
    """
    reading = _Reading(text)
    steps = reading.alternatives()
    reading.refuse_more()
    pattern = Pattern(tuple(reading.variables), steps)
    if pattern.follow(0, None, {}):
        raise PatternError("the pattern also matches no row; let one variable match at least", 0)
    return pattern


_Steps = tuple[_Step, ...]


class _Reading:
    """Reads the text of a pattern; steps within go on at places that count from their begin."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(each[1], each.start(1)) for each in _TOKEN.finditer(text)]
        self._at = 0
        self.variables: list[str] = []

    def alternatives(self) -> _Steps:
        """One sequence, or several with `|` between them."""
        every = [self._sequence()]
        while self._next() == "|":
            self._at += 1
            every.append(self._sequence())
        steps = every.pop()
        for each in reversed(every):
            steps = _either(each, steps)
        return self._limited(steps)

    def refuse_more(self) -> None:
        """Refuse text behind the pattern.  Raises: PatternError."""
        if self._next():
            raise self._error("is not expected here")

    def _sequence(self) -> _Steps:
        steps: _Steps = ()
        while (token := self._next()) and token not in ("|", ")"):
            steps = _joined(steps, self._repeated(self._one(token)))
        if not steps:
            raise self._error("stands where a variable is expected")
        return steps

    def _one(self, token: str) -> _Steps:
        self._at += 1
        if token == "(":
            steps = self.alternatives()
            if self._next() != ")":
                raise self._error("stands where a parenthesis is to be closed")
            self._at += 1
            return steps
        if not _WORD.fullmatch(token) or token.upper() == "PERMUTE":
            self._at -= 1
            raise self._error("is not supported: a pattern has variables, |, (), *, +, ?, {n,m}")
        name = token[1:-1].replace('""', '"') if token[0] == '"' else token
        same = [at for at, each in enumerate(self.variables) if each.lower() == name.lower()]
        if not same:
            self.variables.append(name)
        return (_Step(same[0] if same else len(self.variables) - 1),)

    def _repeated(self, steps: _Steps) -> _Steps:
        """Steps with the repetition that stands behind them."""
        token = self._next()
        if token in _REPEATED:
            least, most = _REPEATED[token]
        elif (counts := _COUNTS.fullmatch(token)) and (counts[1] or counts[3]):
            least = int(counts[1] or 0)
            most = (int(counts[3]) if counts[3] else None) if counts[2] else least
        else:
            return steps
        if most == 0 or (most is not None and most < least):
            raise self._error("repeats nothing")
        if max(least, most or 0) * len(steps) > MOST_STEPS:
            raise self._error("repeats too often")
        self._at += 1
        is_reluctant = self._next() == "?"
        self._at += is_reluctant
        return self._limited(_times(steps, least, most, is_reluctant=is_reluctant))

    def _limited(self, steps: _Steps) -> _Steps:
        if len(steps) > MOST_STEPS:
            raise self._error("ends a pattern of too many steps")
        return steps

    def _next(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _error(self, problem: str) -> PatternError:
        if self._at < len(self._tokens):
            token, at = self._tokens[self._at]
            return PatternError(f'"{token}" {problem}', at)
        return PatternError(f"the end of the pattern {problem}", len(self._text))


def _moved(steps: Iterable[_Step], by: int) -> _Steps:
    return tuple(_Step(each.variable, tuple(at + by for at in each.to)) for each in steps)


def _joined(one: _Steps, other: _Steps) -> _Steps:
    return (*one, *_moved(other, len(one)))


def _either(one: _Steps, other: _Steps) -> _Steps:
    """The first steps, or else the others."""
    second = len(one) + 2
    end = second + len(other)
    return (_Step(to=(1, second)), *_moved(one, 1), _Step(to=(end,)), *_moved(other, second))


def _times(steps: _Steps, least: int, most: int | None, *, is_reluctant: bool) -> _Steps:
    """Steps as often as they may be repeated."""

    def choice(one: int, other: int) -> _Step:
        return _Step(to=(other, one) if is_reluctant else (one, other))

    result: _Steps = ()
    for _ in range(least):
        result = _joined(result, steps)
    if most is None:
        back = _Step(to=(0,))
        loop = (choice(1, len(steps) + 2), *_moved(steps, 1), back)
        return _joined(result, loop)
    maybe: _Steps = ()
    for _ in range(most - least):
        inner = (*steps, *_moved(maybe, len(steps)))
        maybe = (choice(1, len(inner) + 1), *_moved(inner, 1))
    return _joined(result, maybe)
