"""Rows with the windows of time that they are in: tumbling, hopping and session windows.

Each row gets the columns `window_start` (included) and `window_end` (excluded); a row without a
time is in no window.  Tumbling and hopping windows begin at multiples of a length of time since
1970, so a linear step makes them.  Sessions depend on the other rows of their partition: a
reduction lists the times of each, a step cuts the list where nothing happens for the gap, and
a join gives each row its session.  So a row that comes or goes between two sessions makes one
of them, or two of one, at its time.
"""

from collections.abc import Sequence

from ikebana.processor.linear.bound_query import types_of
from ikebana.processor.linear.json_text import INSTANTS, quoted
from ikebana.processor.linear.scope import KEY
from ikebana.processor.linear.steps import Sql
from ikebana.processor.relational.making import Making, MakingError, Relation, struct
from ikebana.processor.relational.rows import distinct

START, END = "window_start", "window_end"


def hopping(making: Making, source: Relation, over: str, every: int, size: int) -> Relation:
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
    start = f"make_timestamp({quoted(window)})"
    end = f"make_timestamp({quoted(window)} + {size})"
    step = Sql(flat_map=(window, starts), select=(*_own(source), (START, start), (END, end)))
    return making.linear(timed, "windows", step)


def sessions(
    making: Making, source: Relation, over: str, gap: int, partition: Sequence[str]
) -> Relation:
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
    conditions += [f"{at} >= {of}.{quoted(START)}", f"{at} < {of}.{quoted(END)}"]
    select = [(name, f"{row}.{quoted(name)}") for name in source.types]
    select += [(name, f"make_timestamp({of}.{quoted(name)})") for name in (START, END)]
    both = (row, timed), (of, found)
    return making.join("windows", both, conditions, select, cartesian=not partition)


def _sessions(
    making: Making, timed: Relation, moment: str, gap: int, partition: Sequence[str]
) -> Relation:
    """The sessions of each partition, in microseconds."""
    times = timed.free_column("times")
    by = [(name, quoted(name), timed.types[name]) for name in partition]
    listed = making.reduce(timed, "times", by, [(times, f"list({quoted(moment)})")])
    ts, session = quoted(times), quoted(timed.free_column("session"))
    own = [(name, quoted(name)) for name in partition]
    starts = f"list_filter({ts}, lambda t_, i_: i_ = 1 OR t_ - {ts}[i_ - 1] >= {gap})"
    ends = f"list_filter({ts}, lambda t_, i_: i_ = len({ts}) OR {ts}[i_ + 1] - t_ >= {gap})"
    cut = making.linear(
        listed,
        "cut",
        Sql(select=(*own, (times, f"CAST({ts} AS BIGINT[])"))),
        Sql(
            flat_map=(timed.free_column("session"), f"list_zip({starts}, {ends})"),
            select=(*own, (START, f"{session}[1]"), (END, f"{session}[2] + {gap}")),
        ),
    )
    # Where one session changes, the others are no news to the join.
    return distinct(making, cut, "sessions")


def _timed(making: Making, source: Relation, over: str, moment: str) -> Relation:
    """The rows that have a time, with it in microseconds."""
    (kind,) = types_of([over], {**source.types, KEY: source.key})
    if kind not in INSTANTS:
        raise MakingError(f"must be a date or a timestamp; is {kind}", "over")
    select = (*_own(source), (moment, f"epoch_us(CAST({over} AS TIMESTAMP))"))
    return making.linear(source, "timed", Sql(where=(f"({over}) IS NOT NULL",), select=select))


def _own(source: Relation) -> list[tuple[str, str]]:
    return [(name, quoted(name)) for name in source.types]


def _require(source: Relation) -> None:
    """Refuse a source that has columns of these names.  Raises: MakingError."""
    for name in (START, END):
        if name in {column.lower() for column in source.types}:
            raise MakingError(f'"{source.name}" has a column "{name}" already')
