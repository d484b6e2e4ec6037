"""Rows with their windows of time: tumbling, hopping and session windows.

Each row gets the columns `window_start` (inclusive) and `window_end` (exclusive); a row without a
time is in no window.  Tumbling and hopping windows begin at multiples of a duration since 1970,
perhaps moved by an offset, so a linear step computes them.  Sessions depend on the other rows of
their partition: a reduction lists the times of the partition, a step cuts the list at gaps, and a
join gives each row its session.  So an insertion between two sessions can merge them, and a
deletion can split one.

A row with an infinite time is in a window that begins and ends at infinity, as with `time_bucket`.

A view has windows in FROM: `tumble(t, at, size)`, `hop(t, at, every, size)`, both also with an
offset as the last argument, and `session(…)`.  DuckDB has no such table functions, so a call in
the text is replaced by a table name, padded with spaces to the length of the call: positions in
errors stay right.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from ikebana.processor.linear.bound_query import SqlQueryError, closing, query_tree, types_of
from ikebana.processor.linear.database import rows_of
from ikebana.processor.linear.json_text import INSTANTS, quoted
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import (
    Node,
    columns,
    objects_with,
    replaced,
    text_of,
    tokens,
    tree,
)
from ikebana.processor.relational.making import Making, MakingError, Table, Translate, struct
from ikebana.processor.relational.rows import distinct

START, END = "window_start", "window_end"
# No timestamp has so many microseconds.
_INFINITE = 2**63 - 1


def hopping(
    making: Making, source: Table, over: str, every: int, size: int, offset: int = 0
) -> Table:
    """Each row once for each window that it is in.

    Windows are `size` microseconds long, and one begins every `every` microseconds, one of them
    `offset` microseconds after 1970 began; equal lengths are tumbling windows.  `over` is SQL of a
    date or a timestamp.
    """
    _require(source)
    if every < 1 or size < 1:
        raise MakingError("a window must have a length above zero", "size")
    if every > size:
        raise MakingError(
            "windows that begin less often than they are long leave rows out: make every at most "
            "as long as size",
            "every",
        )
    moment = source.free_column("moment")
    timed = _timed(making, source, over, moment)
    at = quoted(moment)
    # The remainder has the sign of `at`, and the sum has none.
    to_positive = every + -offset % every
    last = f"({at} - (({at} % {every}) + {to_positive}) % {every})"
    first = f"({last} - ((({size - 1} - ({at} - {last})) // {every}) * {every}))"
    window = source.free_column("window")
    starts = f"[{last}]" if every == size else f"range({first}, {last} + 1, {every})"
    starts = f"CASE WHEN abs({at}) = {_INFINITE} THEN [{at}] ELSE {starts} END"
    bounds = (START, _timestamp(quoted(window))), (END, _timestamp(quoted(window), size))
    step = Sql(flat_map=(window, starts), select=(*_column_list(source), *bounds))
    return making.linear(timed, "windows", step)


def sessions(
    making: Making, source: Table, over: str, gap: int, partition: Sequence[str]
) -> Table:
    """Each row with its session.

    Consecutive rows of a partition that are less than `gap` microseconds apart are one session,
    which ends `gap` after its last row.
    """
    _require(source)
    if gap < 1:
        raise MakingError("the gap between sessions must be above zero", "gap")
    for column in partition:
        if column not in source.types:
            raise MakingError(f'there is no column "{column}"', "partition")
    moment = source.free_column("moment")
    timed = _timed(making, source, over, moment)
    spans = _sessions(making, timed, moment, gap, partition)
    row, of = "r", "s"
    # A comparison of structs, in which null equals null.
    one, other = (
        struct((name, f"{alias}.{quoted(name)}") for name in partition) for alias in (row, of)
    )
    at = f"{row}.{quoted(moment)}"
    conditions = [f"{one} = {other}"] if partition else []
    first, last = (f"{of}.{quoted(name)}" for name in (START, END))
    conditions += [f"{at} >= {first}", f"{at} <= {last}"]
    select = [(name, f"{row}.{quoted(name)}") for name in source.types]
    select += [(START, _timestamp(first)), (END, _timestamp(last, gap))]
    both = (row, timed), (of, spans)
    return making.join("windows", both, conditions, select, cartesian=not partition)


def _sessions(
    making: Making, timed: Table, moment: str, gap: int, partition: Sequence[str]
) -> Table:
    """The sessions of each partition: the times of their first and last rows."""
    times = timed.free_column("times")
    by = [(name, quoted(name), timed.types[name]) for name in partition]
    listed = making.reduce(timed, "times", by, [(times, f"list({quoted(moment)})")])
    ts, session = quoted(times), quoted(timed.free_column("session"))
    keys = [(name, quoted(name)) for name in partition]
    after = f"{ts}[i_ + 1]::HUGEINT - t_"
    starts = f"list_filter({ts}, lambda t_, i_: i_ = 1 OR t_::HUGEINT - {ts}[i_ - 1] >= {gap})"
    ends = f"list_filter({ts}, lambda t_, i_: i_ = len({ts}) OR {after} >= {gap})"
    cut = making.linear(
        listed,
        "cut",
        Sql(select=(*keys, (times, f"CAST({ts} AS BIGINT[])"))),
        Sql(
            flat_map=(timed.free_column("session"), f"list_zip({starts}, {ends})"),
            select=(*keys, (START, f"{session}[1]"), (END, f"{session}[2]")),
        ),
    )
    # Distinct sessions let unchanged ones cancel before the join.
    return distinct(making, cut, "sessions")


def _timed(making: Making, source: Table, over: str, moment: str) -> Table:
    """The rows with a time, and a column with it in microseconds; infinity is the greatest."""
    try:
        # Parsing refuses anything but one expression, which is then safe within others.
        over = text_of(tree(over))
    except ExpressionError as error:
        raise MakingError(str(error), "over") from None
    (kind,) = types_of([over], source.keyed())
    if kind not in INSTANTS:
        raise MakingError(f"must be a date or a timestamp; is {kind}", "over")
    at = f"CAST({over} AS TIMESTAMP)"
    micros = f"epoch_us({at})"
    if kind == "TIMESTAMP_NS":
        # A cast rounds, perhaps into the next window.
        nanos = f"epoch_ns({over})"
        micros = f"({nanos} - ({nanos} % 1000 + 1000) % 1000) // 1000"
    infinite = f"CASE WHEN {at} > 'epoch'::TIMESTAMP THEN {_INFINITE} ELSE -{_INFINITE} END"
    select = (*_column_list(source), (moment, f"coalesce({micros}, {infinite})"))
    return making.linear(source, "timed", Sql(where=(f"({over}) IS NOT NULL",), select=select))


def _timestamp(at: str, after: int = 0) -> str:
    """SQL of the timestamp `after` microseconds after `at`, in microseconds since 1970."""
    finite = f"make_timestamp({at} + {after})" if after else f"make_timestamp({at})"
    sign = f"CASE WHEN {at} > 0 THEN 'infinity' ELSE '-infinity' END::TIMESTAMP"
    return f"CASE WHEN abs({at}) = {_INFINITE} THEN {sign} ELSE {finite} END"


def _column_list(source: Table) -> list[tuple[str, str]]:
    return [(name, quoted(name)) for name in source.types]


def _require(source: Table) -> None:
    """Refuse a source with columns called window_start or window_end.  Raises: MakingError."""
    for name in (START, END):
        if name in {column.lower() for column in source.types}:
            raise MakingError(f'"{source.name}" has a column "{name}" already')


_FORMS = {
    "tumble": "tumble(orders, placed, INTERVAL '1 hour')",
    "hop": "hop(orders, placed, INTERVAL '10 minutes', INTERVAL '1 hour')",
    "session": "session(orders, placed, INTERVAL '30 minutes', customer)",
}
# The least and the most intervals: an offset may follow the others.
_LENGTHS = {"tumble": (1, 2), "hop": (2, 3), "session": (1, 1)}


class FromCall(Protocol):
    """What stands in FROM for rows that are computed from those of one collection."""

    @property
    def source(self) -> str:
        """The name of the collection."""

    @property
    def place(self) -> int:
        """Where it stands in the query."""

    def table(self, making: Making, source: Table, translate: Translate) -> Table:
        """The rows, from those of the collection.  Raises: MakingError, SqlQueryError."""


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A call in FROM: function, collection, SQL of the time, microseconds, partition columns.

    `lengths` are those of the function's form, and perhaps an offset.
    """

    function: str
    source: str
    over: str
    lengths: tuple[int, ...]
    partition: tuple[str, ...]
    place: int

    def table(self, making: Making, source: Table, _: Translate) -> Table:
        """The rows of the collection with their windows.  Raises: MakingError."""
        if self.function == "session":
            return sessions(making, source, self.over, self.lengths[0], self.partition)
        # A tumbling window hops by its size.
        every = self.lengths[:1] if self.function == "tumble" else ()
        return hopping(making, source, self.over, *every, *self.lengths)


def without_windows(text: str) -> tuple[str, Mapping[str, WindowCall]]:
    """Replace calls in FROM by table names; returns the text, and the calls by name.

    Raises: QueryError.
    """
    calls: dict[str, WindowCall] = {}
    if not any(f"{name}(" in text.lower().replace(" ", "") for name in _FORMS):
        return text, calls
    for node in objects_with(query_tree(text), "function"):
        if node["function"].get("function_name", "").lower() not in _FORMS:
            continue
        place = node["query_location"]
        name = next(each for each in free_names() if each not in text.lower())
        calls[name] = _call(node["function"], place)
        words = tokens(text)
        begin = next(
            at for at, token in enumerate(words) if token.at > place and token.text == "("
        )
        text = replaced(text, place, words[closing(words, begin)].end, name)
    return text, calls


def free_names() -> Iterator[str]:
    """Names for what calls are replaced by."""
    return (f"w{number}_" for number in count())


def _call(node: Node, place: int) -> WindowCall:
    name = node["function_name"].lower()
    arguments = [each["expression"] for each in node["arguments"]]
    fewest, most = _LENGTHS[name]
    lengths, others = arguments[2 : 2 + most], arguments[2 + most :]
    if len(lengths) < fewest or (others and name != "session"):
        raise SqlQueryError(f"{name}() is written as {_FORMS[name]}", place)
    source, over = arguments[:2]
    if source["class"] != "COLUMN_REF":
        raise SqlQueryError(
            "windows are of an input or an operator: make a view of the query, and name it", place
        )
    partition = []
    for each in others:
        if each["class"] != "COLUMN_REF" or len(each["column_names"]) != 1:
            raise SqlQueryError("sessions are by columns", each.get("query_location", place))
        partition.append(each["column_names"][0])
    return WindowCall(
        name,
        ".".join(source["column_names"]),
        text_of(over),
        tuple(_microseconds(each, name, place) for each in lengths),
        tuple(partition),
        place,
    )


def _microseconds(node: Node, name: str, place: int) -> int:
    """The microseconds of a constant INTERVAL.  Raises: QueryError."""
    length = microseconds(node)
    if length is None:
        problem = f"must be an INTERVAL without months, as in {_FORMS[name]}"
        raise SqlQueryError(problem, place)
    return length


def microseconds(node: Node, *, with_months: bool = False) -> int | None:
    """The microseconds of a constant INTERVAL; None of anything else.

    Months have 30 days, as where SQL compares intervals; without `with_months` there may be none.
    """
    text = text_of(node)
    with suppress(ExpressionError):
        if not columns(node) and types_of([text], {}) == ["INTERVAL"]:
            parts = f"datepart('month', {text}), datepart('year', {text}), epoch_us({text})"
            ((months, years, length),) = rows_of(f"SELECT {parts}")
            has_months = (months or years) and not with_months
            return None if has_months or length is None else int(length)
    return None
