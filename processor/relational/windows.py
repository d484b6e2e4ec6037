"""Rows with the windows of time that they are in: tumbling, hopping and session windows.

Each row gets the columns `window_start` (included) and `window_end` (excluded); a row without a
time is in no window.  Tumbling and hopping windows begin at multiples of a length of time since
1970, so a linear step makes them.  Sessions depend on the other rows of their partition: a
reduction lists the times of each, a step cuts the list where nothing happens for the gap, and
a join gives each row its session.  So a row that comes or goes between two sessions makes one
of them, or two of one, at its time.

A row of which the time is infinite is in a window that begins and ends there, as SQL's
`time_bucket` has it.
"""

from collections.abc import Sequence

from ikebana.processor.linear.bound_query import types_of
from ikebana.processor.linear.json_text import INSTANTS, quoted
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import text_of, tree
from ikebana.processor.relational.known import MakingError, Table
from ikebana.processor.relational.making import Making, struct
from ikebana.processor.relational.rows import distinct

START, END = "window_start", "window_end"
# No timestamp has so many microseconds.
_INFINITE = 2**63 - 1


def hopping(making: Making, source: Table, over: str, every: int, size: int) -> Table:
    """Each row once for each window that it is in.

    Windows have `size` microseconds, and one begins every `every`; where both are the same, they
    are tumbling.  `over` is SQL of a date or a timestamp.
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
    last = f"({at} - (({at} % {every}) + {every}) % {every})"
    first = f"({last} - ((({size - 1} - ({at} - {last})) // {every}) * {every}))"
    window = source.free_column("window")
    starts = f"[{last}]" if every == size else f"range({first}, {last} + 1, {every})"
    starts = f"CASE WHEN abs({at}) = {_INFINITE} THEN [{at}] ELSE {starts} END"
    bounds = (START, _timestamp(quoted(window))), (END, _timestamp(quoted(window), size))
    step = Sql(flat_map=(window, starts), select=(*_own(source), *bounds))
    return making.linear(timed, "windows", step)


def sessions(
    making: Making, source: Table, over: str, gap: int, partition: Sequence[str]
) -> Table:
    """Each row with its session: rows of a partition of which each is less than `gap` after
    another one, in microseconds.  A session ends `gap` after its last row.
    """
    _require(source)
    if gap < 1:
        raise MakingError("the gap between sessions must be above zero", "gap")
    for column in partition:
        if column not in source.types:
            raise MakingError(f'there is no column "{column}"', "partition")
    moment = source.free_column("moment")
    timed = _timed(making, source, over, moment)
    found = _sessions(making, timed, moment, gap, partition)
    row, of = "r", "s"
    # Structs, for which a null is equal to a null.
    one, other = (
        struct((name, f"{alias}.{quoted(name)}") for name in partition) for alias in (row, of)
    )
    at = f"{row}.{quoted(moment)}"
    conditions = [f"{one} = {other}"] if partition else []
    first, last = (f"{of}.{quoted(name)}" for name in (START, END))
    conditions += [f"{at} >= {first}", f"{at} <= {last}"]
    select = [(name, f"{row}.{quoted(name)}") for name in source.types]
    select += [(START, _timestamp(first)), (END, _timestamp(last, gap))]
    both = (row, timed), (of, found)
    return making.join("windows", both, conditions, select, cartesian=not partition)


def _sessions(
    making: Making, timed: Table, moment: str, gap: int, partition: Sequence[str]
) -> Table:
    """The sessions of each partition: the times of their first and last rows."""
    times = timed.free_column("times")
    by = [(name, quoted(name), timed.types[name]) for name in partition]
    listed = making.reduce(timed, "times", by, [(times, f"list({quoted(moment)})")])
    ts, session = quoted(times), quoted(timed.free_column("session"))
    own = [(name, quoted(name)) for name in partition]
    after = f"{ts}[i_ + 1]::HUGEINT - t_"
    starts = f"list_filter({ts}, lambda t_, i_: i_ = 1 OR t_::HUGEINT - {ts}[i_ - 1] >= {gap})"
    ends = f"list_filter({ts}, lambda t_, i_: i_ = len({ts}) OR {after} >= {gap})"
    cut = making.linear(
        listed,
        "cut",
        Sql(select=(*own, (times, f"CAST({ts} AS BIGINT[])"))),
        Sql(
            flat_map=(timed.free_column("session"), f"list_zip({starts}, {ends})"),
            select=(*own, (START, f"{session}[1]"), (END, f"{session}[2]")),
        ),
    )
    # Where one session changes, the others are no news to the join.
    return distinct(making, cut, "sessions")


def _timed(making: Making, source: Table, over: str, moment: str) -> Table:
    """The rows that have a time, with it in microseconds; infinity is beyond all others."""
    try:
        # One expression, which may stand within others.
        over = text_of(tree(over))
    except ExpressionError as error:
        raise MakingError(str(error), "over") from None
    (kind,) = types_of([over], source.keyed())
    if kind not in INSTANTS:
        raise MakingError(f"must be a date or a timestamp; is {kind}", "over")
    at = f"CAST({over} AS TIMESTAMP)"
    infinite = f"CASE WHEN {at} > 'epoch'::TIMESTAMP THEN {_INFINITE} ELSE -{_INFINITE} END"
    select = (*_own(source), (moment, f"coalesce(epoch_us({at}), {infinite})"))
    return making.linear(source, "timed", Sql(where=(f"({over}) IS NOT NULL",), select=select))


def _timestamp(at: str, after: int = 0) -> str:
    """SQL of the timestamp some time after microseconds since 1970, infinity among them."""
    finite = f"make_timestamp({at} + {after})" if after else f"make_timestamp({at})"
    sign = f"CASE WHEN {at} > 0 THEN 'infinity' ELSE '-infinity' END::TIMESTAMP"
    return f"CASE WHEN abs({at}) = {_INFINITE} THEN {sign} ELSE {finite} END"


def _own(source: Table) -> list[tuple[str, str]]:
    return [(name, quoted(name)) for name in source.types]


def _require(source: Table) -> None:
    """Refuse a source that has columns of these names.  Raises: MakingError."""
    for name in (START, END):
        if name in {column.lower() for column in source.types}:
            raise MakingError(f'"{source.name}" has a column "{name}" already')
