"""Windows of time in FROM: `tumble(t, at, size)`, `hop(t, at, every, size)` and `session(…)`.

SQL has no such functions, so a call is taken out of the text, and the name of a table stands in
its place: as long as the call, so that all places in the text stay.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from ikebana.processor.linear.bound_query import QueryError, query_tree, types_of
from ikebana.processor.linear.database import asked
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.syntax import Node, text_of
from ikebana.processor.linear.tokens import tokens
from ikebana.processor.linear.trees import columns
from ikebana.processor.relational.known import Table
from ikebana.processor.relational.making import Making
from ikebana.processor.relational.windows import hopping, sessions

_FORMS = {
    "tumble": "tumble(orders, placed, INTERVAL '1 hour')",
    "hop": "hop(orders, placed, INTERVAL '10 minutes', INTERVAL '1 hour')",
    "session": "session(orders, placed, INTERVAL '30 minutes', customer)",
}


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A call: the function, the collection, SQL of the time, lengths in microseconds, columns."""

    function: str
    source: str
    over: str
    lengths: tuple[int, ...]
    partition: tuple[str, ...]
    place: int

    def made(self, making: Making, source: Table) -> Table:
        """The rows of the collection with their windows.  Raises: MakingError."""
        if self.function == "session":
            return sessions(making, source, self.over, self.lengths[0], self.partition)
        return hopping(making, source, self.over, self.lengths[0], self.lengths[-1])


def without_windows(text: str) -> tuple[str, Mapping[str, WindowCall]]:
    """The text with names in place of calls, and the calls by these names.

    Raises: QueryError.
    """
    found: dict[str, WindowCall] = {}
    if not any(f"{name}(" in text.lower().replace(" ", "") for name in _FORMS):
        return text, found
    whole = text.encode()
    for node in _calls(query_tree(text)):
        place = len(whole[: node["query_location"]].decode())
        name = next(each for each in _names() if each not in text.lower())
        found[name] = _call(node["function"], place)
        text = _replaced(text, place, name)
    return text, found


def _names() -> Iterator[str]:
    return (f"w{number}_" for number in count())


def _calls(value: object) -> list[Node]:
    """The calls of window functions in FROM, wherever they stand."""
    if isinstance(value, list):
        return [node for each in value for node in _calls(each)]
    if not isinstance(value, dict):
        return []
    if value.get("type") == "TABLE_FUNCTION":
        return [value] if value["function"]["function_name"].lower() in _FORMS else []
    return [node for each in value.values() for node in _calls(each)]


def _replaced(text: str, place: int, name: str) -> str:
    """The text with a name in place of the call that begins there."""
    depth, end = 0, len(text)
    for token in tokens(text):
        if token.at <= place:
            continue
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0 and token.text == ")":
            end = token.end
            break
    rest = "".join("\n" if each == "\n" else " " for each in text[place + len(name) : end])
    return text[:place] + name + rest + text[end:]


def _call(node: Node, place: int) -> WindowCall:
    name = node["function_name"].lower()
    arguments = [each["expression"] for each in node["arguments"]]
    lengths = 2 if name == "hop" else 1
    fixed = len(arguments) == 2 + lengths
    if not fixed and (name != "session" or len(arguments) < 3):
        raise QueryError(f"{name}() is written as {_FORMS[name]}", place)
    source, over, *rest = arguments
    if source["class"] != "COLUMN_REF":
        raise QueryError(
            "windows are of an input or an operator: make a view of the query, and name it", place
        )
    partition = []
    for each in rest[lengths:]:
        if each["class"] != "COLUMN_REF" or len(each["column_names"]) != 1:
            raise QueryError("sessions are by columns", each.get("query_location", place))
        partition.append(each["column_names"][0])
    return WindowCall(
        name,
        ".".join(source["column_names"]),
        text_of(over),
        tuple(_microseconds(each, name, place) for each in rest[:lengths]),
        tuple(partition),
        place,
    )


def _microseconds(node: Node, name: str, place: int) -> int:
    """A length of time, which must always be the same one."""
    text = text_of(node)
    problem = f"must be an INTERVAL without months, as in {_FORMS[name]}"
    try:
        (kind,) = types_of([text], {})
    except ExpressionError as error:
        raise QueryError(f"{problem}: {error}", place) from None
    if columns(node) or kind != "INTERVAL":
        raise QueryError(problem, place)
    parts = f"datepart('month', {text}), datepart('year', {text}), epoch_us({text})"
    ((months, years, found),) = asked(f"SELECT {parts}")
    if months or years:
        raise QueryError(problem, place)
    return int(found)
