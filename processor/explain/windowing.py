"""Window functions in explanations: how they are written, and which rows a change touches."""

from collections.abc import Iterator

from ikebana.processor.base.texts import printable
from ikebana.processor.explain.words import listed, one_line
from ikebana.processor.kernels.window_values import (
    OFFSETS,
    PATTERN,
    RANKS,
    SIZED,
    Frame,
    FrameBound,
    WindowFunction,
)
from ikebana.processor.planning.plan import TOTAL_KEY, WindowFunctions

PARTITION = 100
"""The assumed number of rows of a partition."""
# A row that moves from one place to another passes a third of the others on average.
_MOVED = PARTITION / 3
_BEHIND = PARTITION / 2
# Each row has the value of one other, so a row is that of one on average, here at two places.
_OF_ONE = 2.0
# The assumed number of rows of a match.
_MATCH = 5.0


def written(operator: WindowFunctions) -> list[str]:
    """Write an operator in the form of SQL, line by line."""
    by = [] if operator.by == TOTAL_KEY else [f"PARTITION BY {one_line(operator.by)}"]
    order = [] if operator.order is None else [f"ORDER BY {one_line(operator.order)}"]
    order = [f"{each} DESC" * operator.is_descending or each for each in order]
    most = [f"only up to {operator.most}"] * bool(operator.most)
    functions = [f"w{at}: {_call(each)}" for at, each in enumerate(operator.functions)]
    return [f"window functions of {printable(operator.source)}", *by, *order, *functions, *most]


def state_of(operator: WindowFunctions) -> str:
    """Describe the state, and which other rows are updated when one row changes."""
    groups: dict[str, list[str]] = {}
    for function in operator.functions:
        words, _ = _touched(function)
        groups.setdefault(words, []).append(function.kind)
    said = "; ".join(
        f"{words} ({listed(dict.fromkeys(kinds))})" for words, kinds in groups.items()
    )
    up_to = f", of the first {operator.most} alone" if operator.most else ""
    return f"the rows of each partition in order; a change touches {said}{up_to}"


def shown(operator: WindowFunctions) -> float:
    """The approximate share of rows that show, with `PARTITION` rows."""
    return min(1.0, operator.most / PARTITION) if operator.most else 1.0


def touched(operator: WindowFunctions) -> float:
    """The approximate number of other rows that a change updates, with `PARTITION` rows."""
    most = max((rows for _, rows in map(_touched, operator.functions)), default=0.0)
    # Few changes are among the first rows.  They touch the half of these rows that is behind them,
    # and one that comes to be among them, or no longer is; all that at two places.
    return min(most, (operator.most + 2) * shown(operator)) if operator.most else most


def _touched(function: WindowFunction) -> tuple[str, float]:
    frame, kind = function.frame, function.kind
    if function.is_of_row and (function.is_of_frame or kind in OFFSETS):
        return _of_row(function)
    if kind in SIZED:
        is_tile = kind == "ntile" and not function.number_by
        borders = function.number - 1 if is_tile else PARTITION
        return "all rows if their number changes", min(_MOVED, borders / 3)
    if kind in RANKS:
        return "the rows between its old place and its new one, or up to the end", _MOVED
    if kind in OFFSETS:
        # At the old place and at the new one.
        return f"{function.number} beside it", 2.0 * function.number
    if kind == PATTERN:
        return "the rows of the matches around it", 2 * _MATCH
    is_of_one = function.aggregate is None or kind in ("min", "max")
    if frame.is_whole:
        return "all rows if the value changes", _OF_ONE if is_of_one else PARTITION
    if frame.is_prefix or frame.is_suffix:
        return _of_open_end(function)
    return (_IN_FRAMES, _OF_ONE) if is_of_one else (_IN_FRAMES, _of_frames(frame))


_IN_FRAMES = "the rows whose frames have it"


def _of_frames(frame: Frame) -> float:
    """How many frames that reach to no end of the partition have a row."""
    if frame.unit == "range":
        return _BEHIND / 5
    rows = _distance(frame.start, is_start=True) + _distance(frame.end, is_start=False)
    return 2.0 * max(rows, 0)


def _of_row(function: WindowFunction) -> tuple[str, float]:
    """Which rows change, and how many, if rows with one frame have values of their own."""
    frame = function.frame
    is_open = frame.is_prefix or frame.is_suffix
    if not function.is_of_frame or frame.is_whole or frame.is_of_row:
        words = "all rows"
    elif is_open:
        words = f"the rows {'behind' if frame.is_prefix else 'before'} it"
    else:
        words = _IN_FRAMES
    if function.aggregate is not None:
        return words, _BEHIND / 5
    if function.kind not in RANKS:
        return words, _OF_ONE
    # Half of the others are behind a row in the order of the call.
    return words, _MOVED if is_open else _of_frames(frame) / 2


def _of_open_end(function: WindowFunction) -> tuple[str, float]:
    """Which rows change, and how many, for frames that reach to one end of the partition."""
    frame = function.frame
    if function.aggregate is None:
        near = frame.end if function.kind == "last_value" else frame.start
        return "those whose value it is", 0.0 if near.side == "current" else _OF_ONE
    side = "behind" if frame.is_prefix else "before"
    if function.kind in ("min", "max"):
        return f"the rows {side} it up to one with the same value", _OF_ONE
    return f"the rows {side} it", _BEHIND


def _distance(bound: FrameBound, *, is_start: bool) -> int:
    away = bound.offset if bound.side == "following" else -bound.offset
    return -away if is_start else away


def _call(function: WindowFunction) -> str:
    number = str(function.number) if function.kind in (*OFFSETS, "nth_value", "ntile") else ""
    number = one_line(function.number_by) or number
    arguments = [one_line(function.argument), number, one_line(function.default)]
    arguments.append(one_line(function.pattern))
    way = " DESC" * function.is_descending
    order = f" ORDER BY {one_line(function.within)}{way}" if function.within else ""
    nulls = " IGNORE NULLS" * function.ignores_nulls
    call = f"{function.kind}({', '.join(filter(None, arguments))}{order}{nulls})"
    return " ".join([call, *_frame(function.frame)])


def _frame(frame: Frame) -> Iterator[str]:
    if frame == Frame():
        return
    bounds = [_bound(frame.start, "PRECEDING"), _bound(frame.end, "FOLLOWING")]
    yield f"{frame.unit.upper()} BETWEEN {' AND '.join(bounds)}"
    if frame.exclude:
        yield f"EXCLUDE {'CURRENT ROW' if frame.exclude == 'row' else frame.exclude.upper()}"


def _bound(bound: FrameBound, to: str) -> str:
    if bound.side == "all":
        return f"UNBOUNDED {to}"
    if bound.side == "current":
        return "CURRENT ROW"
    return f"{one_line(bound.at) if bound.at else bound.offset} {bound.side.upper()}"
