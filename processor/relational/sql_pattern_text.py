"""The text of MATCH_RECOGNIZE in FROM.

    FROM trades MATCH_RECOGNIZE (
        PARTITION BY symbol ORDER BY placed
        MEASURES FIRST(down.price) AS high, LAST(up.placed) AS until
        PATTERN (down+ up+)
        DEFINE down AS price < PREV(price), up AS price > PREV(price)) AS v

DuckDB does not parse it, so it is replaced by a table name, padded with spaces to its length:
positions in errors stay right.  DuckDB parses the expressions and the order in it one by one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

from ikebana.processor.kernels.row_patterns import PatternError, parsed
from ikebana.processor.linear.bound_query import SqlQueryError, query_tree
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.syntax import Node, tree
from ikebana.processor.linear.tokens import Part, Token, closing, items, replaced, tokens, unquoted
from ikebana.processor.relational.windows import free_names

_WORD = "MATCH_RECOGNIZE"
_FORM = (
    "it is written as MATCH_RECOGNIZE (PARTITION BY a ORDER BY b MEASURES LAST(B.c) AS c "
    "PATTERN (A B+) DEFINE B AS c > PREV(c))"
)
# The clauses in their order, by the words that they begin with.
_CLAUSES = (
    ("PARTITION", "BY"),
    ("ORDER", "BY"),
    ("MEASURES",),
    ("ONE", "ROW", "PER", "MATCH"),
    ("ALL", "ROWS", "PER", "MATCH"),
    ("AFTER", "MATCH", "SKIP"),
    ("PATTERN",),
    ("WITHIN",),
    ("SUBSET",),
    ("DEFINE",),
)
_REFUSED = {
    "ALL": "ALL ROWS PER MATCH is not supported: there is one row for each match",
    "WITHIN": "WITHIN is not supported; compare FIRST and LAST of a match in the query around it",
    "SUBSET": "SUBSET is not supported; name the variables of a measure one by one",
}
# A number has so many bits for variables.
_MOST_VARIABLES = 62


def parsed_call(text: str) -> tuple[str, "MatchRecognize"] | None:
    """The text with its first MATCH_RECOGNIZE replaced by a table name, and what was replaced.

    None if there is none.  Raises: SqlQueryError.
    """
    if (place := _next(text)) is None:
        return None
    name = next(each for each in free_names() if each not in text.lower())
    return _without(text, *place, name)


def _next(text: str) -> tuple[list[Token], int] | None:
    """The tokens of a text, and the index of the first pattern among them."""
    words = tokens(text) if _WORD.lower() in text.lower() else []
    at = next((at for at, each in enumerate(words) if each.text.upper() == _WORD), None)
    return None if at is None else (words, at)


def _without(
    text: str, words: Sequence[Token], at: int, name: str
) -> tuple[str, "MatchRecognize"]:
    """The text with a call and its source replaced by a name, and the call."""
    place = words[at].at
    if at + 1 >= len(words) or words[at + 1].text != "(":
        raise SqlQueryError(_FORM, place)
    end = closing(words, at + 1)
    if end is None:
        raise SqlQueryError("a parenthesis is not closed", words[at + 1].at)
    if at == 0 or words[at - 1].text == ")":
        problem = "is of an input or an operator: make a view of the query, and name it"
        raise SqlQueryError(f"{_WORD} {problem}", place)
    source = words[at - 1]
    clauses = dict(_clauses(text, words[at + 2 : end], words[end].at))
    call = _Parsing(unquoted(source), source.at, place, clauses).call(name)
    return replaced(text, source.at, words[end].end, name), call


def _clauses(text: str, words: Sequence[Token], end: int) -> Iterator[tuple[str, Part]]:
    """The clauses between parentheses, by the first word of each."""
    heads: list[tuple[str, int, int]] = []
    depth = 0
    for at, token in enumerate(words):
        depth += (token.text == "(") - (token.text == ")")
        if depth or (at and words[at - 1].text.upper() in (".", "AS")):
            continue
        for head in _CLAUSES:
            upper = tuple(each.text.upper() for each in words[at : at + len(head)])
            if upper == head:
                heads.append((head[0], token.at, words[at + len(head) - 1].end))
    if words and (not heads or heads[0][1] > words[0].at):
        raise SqlQueryError(_FORM, words[0].at)
    for number, (name, _, begin) in enumerate(heads):
        upto = heads[number + 1][1] if number + 1 < len(heads) else end
        yield name, Part(text[begin:upto], begin)


@dataclass(frozen=True, slots=True)
class LocatedExpression:
    """An expression of a clause, and its place in the query."""

    node: Node
    at: int

    def refuse(self, problem: str) -> NoReturn:
        """Refuse the expression.  Raises: SqlQueryError."""
        raise SqlQueryError(problem, self.at)


@dataclass(frozen=True, slots=True)
class _Parsing:
    """Parses the clauses of a call."""

    source: str
    at: int
    place: int
    clauses: Mapping[str, Part]

    def call(self, name: str) -> "MatchRecognize":
        """The call, which a name replaces.  Raises: SqlQueryError."""
        for clause, problem in _REFUSED.items():
            if clause in self.clauses:
                raise SqlQueryError(problem, self.clauses[clause].at)
        for clause in ("ORDER", "MEASURES", "PATTERN", "DEFINE"):
            if clause not in self.clauses:
                raise SqlQueryError(f"there is no {clause}; {_FORM}", self.place)
        skip = self.clauses.get("AFTER", Part("PAST LAST ROW", self.place))
        if skip.text.upper().split() != ["PAST", "LAST", "ROW"]:
            problem = "matches do not overlap: write AFTER MATCH SKIP PAST LAST ROW"
            raise SqlQueryError(problem, skip.at)
        pattern, variables = self._pattern()
        define = dict(self._named(self.clauses["DEFINE"], is_first=True))
        for variable, each in define.items():
            if variable.lower() not in variables:
                each.refuse(f'the pattern has no variable "{variable}"')
        return MatchRecognize(
            name,
            self.source,
            self.at,
            tuple(self._partition()),
            tuple(self._orders()),
            tuple(self._named(self.clauses["MEASURES"], is_first=False)),
            pattern,
            variables,
            {variable.lower(): each for variable, each in define.items()},
        )

    def _pattern(self) -> tuple[str, tuple[str, ...]]:
        """The pattern, and its variables in lower case."""
        text, at = self.clauses["PATTERN"]
        stripped = text.strip()
        if not (stripped.startswith("(") and stripped.endswith(")")):
            raise SqlQueryError("a pattern stands in parentheses, as in PATTERN (A B+)", at)
        begin = at + text.index("(") + 1
        pattern = stripped[1:-1]
        try:
            variables = parsed(pattern).variables
        except PatternError as error:
            raise SqlQueryError(str(error), begin + error.at) from None
        if len(variables) > _MOST_VARIABLES:
            raise SqlQueryError(f"a pattern has at most {_MOST_VARIABLES} variables", begin)
        return " ".join(pattern.split()), tuple(each.lower() for each in variables)

    def _partition(self) -> Iterator[LocatedExpression]:
        for item in items(self.clauses["PARTITION"]) if "PARTITION" in self.clauses else ():
            expression = _expression(item)
            node = expression.node
            if node["class"] != "COLUMN_REF" or len(node["column_names"]) != 1:
                expression.refuse("a pattern's partitions are by columns")
            yield expression

    def _orders(self) -> Iterator[Node]:
        text, at = self.clauses["ORDER"]
        begin = "SELECT 1 FROM t ORDER BY "
        try:
            (modifier,) = query_tree(f"{begin}{text}\n")["modifiers"]
        except SqlQueryError as error:
            place = None if error.at is None else at + error.at - len(begin)
            raise SqlQueryError(error.problem, place) from None
        yield from modifier["orders"]

    def _named(self, part: Part, *, is_first: bool) -> Iterator[tuple[str, LocatedExpression]]:
        """The expressions of a list such as `x AS name`, or `name AS x` if the name `is_first`."""
        for item in items(part):
            words = tokens(item.text)
            at = 1 if is_first else len(words) - 2
            if len(words) < 3 or words[at].text.upper() != "AS":
                form = "name AS condition" if is_first else "expression AS name"
                raise SqlQueryError(f"this is written as {form}", item.at)
            if is_first:
                yield unquoted(words[0]), _expression(Part(item.text[words[1].end :], item.at))
                continue
            text = item.text[: words[at].at]
            for word, behind in pairwise(words):
                # With one row for each match, both mean the same.
                if word.text.upper() in ("FINAL", "RUNNING") and behind.text not in (".", "AS"):
                    text = replaced(text, word.at, word.end)
            yield unquoted(words[-1]), _expression(Part(text, item.at))


def _expression(part: Part) -> LocatedExpression:
    try:
        return LocatedExpression(tree(part.text.strip()), part.at)
    except ExpressionError as error:
        raise SqlQueryError(str(error), part.at) from None


@dataclass(frozen=True, slots=True)
class MatchRecognize:
    """A MATCH_RECOGNIZE of one collection, and the `name` that replaces it in the text.

    Variables are in lower case.
    """

    name: str
    source: str
    place: int
    partition: tuple[LocatedExpression, ...]
    orders: tuple[Node, ...]
    measures: tuple[tuple[str, LocatedExpression], ...]
    pattern: str
    variables: tuple[str, ...]
    define: Mapping[str, LocatedExpression]
