"""Explain operators: as the file has them, the state that they keep, and joins as they run.

An arrangement of joins is a box, or some lines in the box of an upsert if it is the upsert's
state.  A path is one box for all of its stages, which lists the lookups of a change
in order.

Of window functions it is said which other rows a change touches, in words and as a number.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from ikebana.processor.base.texts import counted, printable
from ikebana.processor.explain.words import lines_of, listed, one_line, step_lines, steps_lines
from ikebana.processor.kernels.window_values import (
    End,
    Frame,
    FrameAggregate,
    FrameBound,
    InOwnOrder,
    NumberOrSql,
    Offset,
    Ranking,
    RowPattern,
    WindowFunction,
)
from ikebana.processor.linear.expressions import parse
from ikebana.processor.linear.functions import name_of
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import KEY, VALUE, plain
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning import progress
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.graph import graph_of
from ikebana.processor.planning.joins import stages
from ikebana.processor.planning.joins.binding import Flat, alias_of
from ikebana.processor.planning.joins.paths import (
    ArrangedBy,
    Extend,
    Lookup,
    Path,
    PathStep,
    Planned,
)
from ikebana.processor.planning.joins.query import AsOfJoin, DeltaJoin, Join
from ikebana.processor.planning.joins.stages import Shared, joined
from ikebana.processor.planning.joins.stages import arrangements as arrangements_of
from ikebana.processor.planning.plan import (
    TOTAL_KEY,
    Concat,
    Linear,
    Loop,
    Operator,
    Plan,
    Reduce,
    ReduceRows,
    StateMachine,
    Upsert,
    WindowFunctions,
)
from ikebana.processor.planning.planner import Branch

_NAME = re.compile(r'"([A-Za-z_][A-Za-z0-9_]*)"')
# If joins read a smaller share of the stored columns than this, there is a warning.
_FEW = 0.5
# Longer texts are cut in tables.
_LONG = 60

PARTITION = 100
"""The assumed number of rows of a partition."""
# A row that moves from one place to another passes a third of the others on average.
_MOVED = PARTITION / 3
_BEHIND = PARTITION / 2
# Each row has the value of one other, so a row is that of one on average, here at two places.
_OF_ONE = 2.0
# The assumed number of rows of a match.
_MATCH = 5.0


def written(operator: Operator) -> list[str]:
    """Write an operator in the form of the file, line by line."""
    return _WRITTEN[type(operator)](operator)


def state_of(operator: Operator) -> str:
    """Describe the state that an upsert, a state machine or a reduction keeps of each key."""
    return _TEXTS[type(operator)](operator)


def _machine(operator: StateMachine) -> list[str]:
    lines = [f"state_machine: {operator.input}", f"step: {name_of(operator.step)}"]
    if operator.view is not None:
        lines.append(f"view: {name_of(operator.view)}")
    return [*lines, f"version: {operator.version}"]


def _reduce(operator: Reduce) -> list[str]:
    named = [f"{name}: {one_line(text)}" for name, text in operator.aggregates]
    return [*_by_key(operator), *["total: true"] * operator.total, *named]


def _by_key(operator: Reduce | ReduceRows) -> list[str]:
    by = [] if operator.by is None else [f"by: {one_line(operator.by)}"]
    return [f"reduce: {operator.source}", *by]


def _looped(loop: Loop) -> list[str]:
    kinds = Counter(_WITHIN[type(each)] for each in loop.body)
    body = ", ".join(counted(count, kind) for kind, count in kinds.items())
    return [
        f"loop: {loop.source}",
        f"recursive: {counted(len(loop.variables), 'collection')} over "
        f"{counted(len(loop.columns), 'source')}, in at most {loop.rounds:,} rounds",
        f"  in each round: {body}",
    ]


_WITHIN = {Linear: "step", Concat: "sum", Reduce: "group", DeltaJoin: "join"}


def _loop_state(loop: Loop) -> str:
    where = "all in one shard" if loop.by == TOTAL_KEY else "by key"
    return f"the rows of the recursion by the rounds in which they change, {where}"


class GraphPart(NamedTuple):
    """An arrangement, a path or a join: its box, and the boxes from which it gets data."""

    id: str
    kind: Literal["arrangement", "path", "join"]
    title: str
    lines: tuple[str, ...]
    origins: tuple[str, ...]


def _join_written(join: Join) -> list[str]:
    """Write a join in the form of the pipeline file, without default values."""
    as_of = isinstance(join, AsOfJoin)
    inputs = ", ".join(f"{each.alias}: {each.relation}" for each in join.inputs)
    lines = [f"{'as_of_join' if as_of else 'delta_join'}: {{{inputs}}}"]
    if isinstance(join, AsOfJoin):
        lines += [line for text in join.on for line in lines_of("on", text)]
    else:
        lines += [line for text in join.where for line in lines_of("where", text)]
    lines += step_lines(Sql(key=join.key, select=join.select))
    if isinstance(join, AsOfJoin):
        lines.append(f"at: {join.at}")
        lines += ["outer: true"] if join.outer else []
        lines.append(f"retract: {join.retract}")
        return [*lines, f"locked_by: {', '.join(join.locked_by)}"] if join.locked_by else lines
    lines += [f"orders: {alias}: {', '.join(order)}" for alias, order in join.orders]
    lines += ["cartesian: true"] if join.cartesian else []
    return lines if join.strategy == "auto" else [*lines, f"strategy: {join.strategy}"]


def boxes_of_feeds(plan: Plan) -> Mapping[str, str]:
    """Return the id of the box to which each feed leads."""
    stages = joined(plan).stages
    return {
        feed.name: _path_id(stages[feed.name].join, stages[feed.name].alias)
        if feed.name in stages
        else _arrangement_id(feed.name)
        for feed in joined(plan).feeds
    }


def arranges(plan: Plan) -> Mapping[str, str]:
    """Return the names of steps that only arrange relations for joins, with their titles."""
    return {str(feed.by): title_of(feed.by) for feed in joined(plan).feeds}


def of_branch(plan: Plan, branch: Branch) -> Iterator[str]:
    """Yield the joins that get rows from a branch, or look up its root."""
    joins = joined(plan)
    for name in (*branch.inlets, *branch.exchanges):
        if name in joins.arrangements:
            yield from joins.arrangements[name].joins
        elif name in joins.stages:
            yield joins.stages[name].join
    if not branch.steps and branch.root in joins.arrangements:
        yield from joins.arrangements[branch.root].joins


def of_upsert(plan: Plan, name: str) -> Iterator[str]:
    """Describe an upsert's state as an arrangement, if joins look it up."""
    for each in arrangements_of(plan):
        if each.is_own and each.arrangement.relation == name:
            yield "arranged by key as it is: the upsert's own state"
            yield _readers(each)


def parts(plan: Plan) -> Iterator[GraphPart]:
    """Yield the arrangements for joins, the paths of joins, and the joins."""
    joins = joined(plan)
    for name, each in joins.arrangements.items():
        if not each.is_own:
            lines = tuple(_arrangement_lines(plan, name, each))
            title = title_of(each.arrangement)
            yield GraphPart(_arrangement_id(name), "arrangement", title, lines, ())
    for join in plan.joins:
        planned = catalog_of(plan).join(join.name)
        for path in planned.paths:
            path_id = _path_id(join.name, path.alias)
            lines = tuple(_path_lines(plan, planned, path))
            yield GraphPart(
                path_id, "path", f"{join.name}/{path.alias}", lines, tuple(_origins(plan, path_id))
            )
        paths = tuple(_path_id(join.name, path.alias) for path in planned.paths)
        yield GraphPart(
            join_id(join.name), "join", join.name, tuple(_join_lines(plan, planned)), paths
        )


def join_arrangements(plan: Plan) -> Iterator[str]:
    """Describe the arrangements that exist only for joins, with their conditions."""
    yield from (part_of(each) for each in arrangements_of(plan) if not each.is_own)


def part_of(each: Shared) -> str:
    """Describe an arrangement as a part of the state."""
    where = " and ".join(one_line(plain(text)) for text in each.arrangement.filters)
    return _shortened(
        f"arrangement {title_of(each.arrangement)}{' where ' if where else ''}{where}"
    )


def join_id(name: str) -> str:
    """Return the id of the box of a join's results."""
    return f"join {name}"


def title_of(arrangement: ArrangedBy) -> str:
    """Write a relation with its key, such as `orders(custkey)`."""
    return printable(f"{arrangement.relation}({', '.join(_keys(arrangement))})")


def exchanges_of(plan: Plan, join: str, alias: str) -> int:
    """Count the exchanges from a change of an input to the output, at most."""
    joins = joined(plan)
    graph = progress.edges(plan)

    def upto(name: str) -> int:
        stage = joins.stages.get(name)
        before = () if stage is None else stage.rows_from
        # A stage without earlier stages gets its rows from a feed.
        return bool(graph[name].exchanges) + max(map(upto, before), default=0)

    ends = [name for name in joins.last[join] if joins.stages[name].alias == alias]
    return max(map(upto, ends))


def shared_arrangements(plan: Plan) -> Iterator[str]:
    """Count the distinct arrangements of all joins, besides state that is kept anyway."""
    if not plan.joins:
        return
    shared = arrangements_of(plan)
    own_states = len(shared) - stages.cost(shared)
    beside = f", {own_states} an upsert's own state" if own_states else ""
    yield (
        f"joins: {counted(len(shared), 'distinct arrangement')} in "
        f"{counted(len(plan.joins), 'join')}{beside}; "
        f"{stages.cost(shared)} beside what is kept anyway"
    )


def warnings(plan: Plan) -> Iterator[str]:
    """Warn of arrangements that could be shared, or smaller."""
    shared = arrangements_of(plan)
    separate = [each for each in shared if not each.is_own]
    for miss in stages.near_misses(separate):
        yield f"{printable(str(miss))}."
    for relation in dict.fromkeys(each.arrangement.relation for each in separate):
        scope = catalog_of(plan).relation(relation).scope
        columns = [name for name in scope.types if name not in (KEY, VALUE)]
        read = _columns_read(plan, relation)
        named = [name for name in columns if name in read]
        if not scope.open and VALUE not in read and len(named) < _FEW * len(columns):
            yield (
                f"Arrangements of {relation} keep whole rows, and joins read "
                f"{len(named)} of {counted(len(columns), 'column')} of them: a linear operator "
                f"with select: [{printable(', '.join(named))}] before the joins keeps less."
            )


def _columns_read(plan: Plan, relation: str) -> frozenset[str]:
    """Return the columns of a relation that joins read, or by which they arrange it."""
    scope = catalog_of(plan).relation(relation).scope
    columns: set[str] = set()
    for join in plan.joins:
        aliases = {each.alias for each in join.inputs if each.relation == relation}
        for name in catalog_of(plan).join(join.name).types:
            if alias_of(name) in aliases:
                columns.add(name.partition(".")[2])
    for each in arrangements_of(plan):
        if each.arrangement.relation == relation:
            for text in (*each.arrangement.keys, *each.arrangement.filters):
                columns |= parse(text, scope).columns
    return frozenset(columns)


def _arrangement_id(name: str) -> str:
    return f"arrangement {name}"


def _path_id(join: str, alias: str) -> str:
    return f"path {join}/{alias}"


def _arrangement_lines(plan: Plan, name: str, shared: Shared) -> Iterator[str]:
    for text in shared.arrangement.filters:
        yield f"where {one_line(plain(text))}"
    yield f"1 arrangement, in the shards, as arrange {name}"
    if progress.edges(plan)[name].exchanges:
        yield f"filled by an exchange, through topic {plan.exchange_topic}"
    yield _readers(shared)


def _readers(shared: Shared) -> str:
    """Describe which paths of which joins look an arrangement up."""
    by_join = {
        join: dict.fromkeys(reader.path for reader in shared.readers if reader.join == join)
        for join in shared.joins
    }
    return f"asked by {listed(f'{join}/{path}' for join, of in by_join.items() for path in of)}"


def _origins(plan: Plan, path: str) -> Iterator[str]:
    """Yield the ids of the boxes from which a path gets rows, or which it looks up."""
    joins = joined(plan)
    for stage in joins.stages.values():
        if _path_id(stage.join, stage.alias) == path:
            asked = joins.arrangements[stage.looks_up]
            for name in stage.rows_from:
                if name not in joins.stages:
                    yield _arrangement_id(name)
            state_id = f"state {asked.arrangement.relation}"
            yield state_id if asked.is_own else _arrangement_id(stage.looks_up)


def _path_lines(plan: Plan, planned: Planned, path: Path) -> Iterator[str]:
    join = planned.join
    exchanges = exchanges_of(plan, join.name, path.alias)
    yield f"a change of {path.alias}, {counted(exchanges, 'exchange')}"
    for text in path.filters:
        yield f"where {one_line(plain(text))}"
    variables: dict[str, str] = {}
    for number, step in enumerate(path.steps, 1):
        mark = f"{number}. "
        indent = " " * len(mark)
        if isinstance(step, Extend):
            variables[step.variable] = _words(step.candidates[0].value, variables)
        first, *rest = _step_lines(step, variables)
        yield mark + first
        yield from (indent + line for line in rest)
        for predicate in step.predicates:
            yield f"{indent}where {_words(predicate, variables)}"
    if isinstance(join, AsOfJoin):
        seen = "with" if join.at == "alt" else "without"
        yield f"as of the change's own time, {seen} changes of that very time"


def _step_lines(step: PathStep, variables: Mapping[str, str]) -> list[str]:
    if isinstance(step, Lookup):
        return [f"look up {step.alias} {_by(step.arrangement, step.key, variables)}"]
    lines = [f"bind {' = '.join(_words(each.value, variables) for each in step.candidates)}"]
    lines += [f"{each.alias} {_by(each.values, each.key, variables)}" for each in step.candidates]
    return [*lines, "fewest first; the others say which they have"]


def _by(arrangement: ArrangedBy, key: Iterable[Flat], variables: Mapping[str, str]) -> str:
    """Write the condition of a lookup in an arrangement."""
    asked = [
        f"{column} = {_words(value, variables)}"
        for column, value in zip(_keys(arrangement), key, strict=True)
    ]
    return f"by {' and '.join(asked)}" if asked else "as a whole"


def _join_lines(plan: Plan, planned: Planned) -> Iterator[str]:
    join = planned.join
    if isinstance(join, AsOfJoin):
        if join.outer:
            yield "a change that meets nothing shows with null"
        if join.locks:
            yield "remembers what was emitted: 1 arrangement, in the shards"
            if join.locked_by:
                columns = ", ".join(f"{join.left.alias}.{column}" for column in join.locked_by)
                yield f"an update that leaves {columns} keeps what the row has met"
        else:
            yield "keeps no result"
    else:
        yield f"the results of {counted(len(planned.paths), 'path')}; keeps none of them"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def _keys(arrangement: ArrangedBy) -> list[str]:
    return [
        printable(match[1] if (match := _NAME.fullmatch(key)) else one_line(key))
        for key in map(plain, arrangement.keys)
    ]


def _words(flat: Flat, variables: Mapping[str, str]) -> str:
    """Write an expression over inputs, with each variable replaced by its definition."""
    text = flat.shown
    for name in flat.reads:
        text = text.replace(quoted(name), variables.get(name, name))
    return one_line(plain(text))


def depth(plan: Plan, join: Join) -> int:
    """Count the exchanges between the collections that a join reads and its results."""
    depths = progress.depths(progress.edges(plan))
    roots = {
        path.root
        for source in graph_of(plan).nodes[join.name].sources
        for path in graph_of(plan).ways(source)
    }
    return depths[join.name] - max(depths[root] for root in roots)


def _windows_written(operator: WindowFunctions) -> list[str]:
    """Write an operator in the form of SQL, line by line."""
    by = [] if operator.by == TOTAL_KEY else [f"PARTITION BY {one_line(operator.by)}"]
    order = [] if operator.order is None else [f"ORDER BY {one_line(operator.order)}"]
    order = [f"{each} DESC" * operator.is_descending or each for each in order]
    most = [f"only up to {operator.most}"] * bool(operator.most)
    functions = [f"w{at}: {_call(each)}" for at, each in enumerate(operator.functions)]
    return [f"window functions of {printable(operator.source)}", *by, *order, *functions, *most]


def _windows_state(operator: WindowFunctions) -> str:
    """Describe the state, and which other rows are updated when one row changes."""
    groups: dict[str, list[str]] = {}
    for function in operator.functions:
        words, _ = _touched(function)
        groups.setdefault(words, []).append(_name_of(function))
    said = "; ".join(
        f"{words} ({listed(dict.fromkeys(kinds))})" for words, kinds in groups.items()
    )
    up_to = f", of the first {operator.most} alone" if operator.most else ""
    return f"the rows of each partition in order; a change touches {said}{up_to}"


def rows_shown(operator: WindowFunctions) -> float:
    """The approximate share of rows that show, with `PARTITION` rows."""
    return min(1.0, operator.most / PARTITION) if operator.most else 1.0


def rows_touched(operator: WindowFunctions) -> float:
    """The approximate number of other rows that a change updates, with `PARTITION` rows."""
    most = max((rows for _, rows in map(_touched, operator.functions)), default=0.0)
    # Few changes are among the first rows.  They touch the half of these rows that is behind them,
    # and one that comes to be among them, or no longer is; all that at two places.
    return min(most, (operator.most + 2) * rows_shown(operator)) if operator.most else most


def _touched(function: WindowFunction) -> tuple[str, float]:
    match function:
        case Ranking(kind=kind, number=number) if kind.is_of_size:
            is_tile = function.name == "ntile" and isinstance(number, int)
            borders = int(number) - 1 if is_tile else PARTITION
            return "all rows if their number changes", min(_MOVED, borders / 3)
        case Ranking():
            return "the rows between its old place and its new one, or up to the end", _MOVED
        case Offset(number=int(number)):
            # At the old place and at the new one.
            return f"{number} beside it", 2.0 * number
        case Offset():
            return "all rows", _OF_ONE
        case RowPattern():
            return "the rows of the matches around it", 2 * _MATCH
        case _ if function.is_of_row:
            return _of_row(function)
    frame = function.frame
    is_of_one = not isinstance(function, FrameAggregate) or function.kind.is_extreme
    if frame.is_whole:
        return "all rows if the value changes", _OF_ONE if is_of_one else PARTITION
    if frame.is_prefix or frame.is_suffix:
        return _of_open_end(function)
    if not isinstance(function, FrameAggregate) and frame.unit != "range":
        # A row that comes or goes moves the place that the value is taken from.
        return _IN_FRAMES, max(_OF_ONE, _of_frames(frame))
    return (_IN_FRAMES, _OF_ONE) if is_of_one else (_IN_FRAMES, _of_frames(frame))


_IN_FRAMES = "the rows whose frames have it"


def _of_frames(frame: Frame) -> float:
    """How many frames that reach to no end of the partition have a row."""
    if frame.unit == "range":
        return _BEHIND / 5
    rows = _distance(frame.start, is_start=True) + _distance(frame.end, is_start=False)
    return 2.0 * max(rows, 0)


def _of_row(function: InOwnOrder | End | FrameAggregate) -> tuple[str, float]:
    """Which rows change, and how many, if rows with one frame have values of their own."""
    frame = function.frame
    is_open = frame.is_prefix or frame.is_suffix
    if frame.is_whole or frame.is_of_row:
        words = "all rows"
    elif is_open:
        words = f"the rows {'behind' if frame.is_prefix else 'before'} it"
    else:
        words = _IN_FRAMES
    match function:
        case FrameAggregate():
            return words, _BEHIND / 5
        case InOwnOrder(function=Ranking()):
            # Half of the others are behind a row in the order of the call.
            return words, _MOVED if is_open else _of_frames(frame) / 2
    return words, _OF_ONE


def _of_open_end(function: InOwnOrder | End | FrameAggregate) -> tuple[str, float]:
    """Which rows change, and how many, for frames that reach to one end of the partition."""
    frame = function.frame
    if not isinstance(function, FrameAggregate):
        near = frame.end if _name_of(function) == "last_value" else frame.start
        return "those whose value it is", 0.0 if near.side == "current" else _OF_ONE
    side = "behind" if frame.is_prefix else "before"
    if function.kind.is_extreme:
        return f"the rows {side} it up to one with the same value", _OF_ONE
    return f"the rows {side} it", _BEHIND


def _distance(bound: FrameBound, *, is_start: bool) -> int:
    away = bound.away if isinstance(bound.away, int) else 0
    return -away if (bound.side == "following") == is_start else away


def _name_of(function: WindowFunction) -> str:
    """The name of what is called."""
    match function:
        case InOwnOrder():
            return function.function.name
        case FrameAggregate():
            return function.aggregate.kind
        case RowPattern():
            return "pattern"
    return function.name


def _call(function: WindowFunction) -> str:
    inner, order, frame = function, "", Frame()
    if isinstance(function, InOwnOrder | End | FrameAggregate):
        frame = function.frame
    if isinstance(function, InOwnOrder):
        inner = function.function
        order = f" ORDER BY {one_line(function.by)}{' DESC' * function.is_descending}"
    arguments = ", ".join(one_line(str(each)) for each in _arguments(inner) if each != "")
    nulls = " IGNORE NULLS" * (isinstance(inner, Offset | End) and inner.ignores_nulls)
    return " ".join([f"{_name_of(inner)}({arguments}{order}{nulls})", *_frame(frame)])


def _arguments(function: WindowFunction) -> tuple[NumberOrSql, ...]:
    match function:
        case Ranking("ntile", number):
            return (number,)
        case Offset():
            return function.argument, function.number, function.default
        case End("nth_value"):
            return function.argument, function.number
        case End():
            return (function.argument,)
        case FrameAggregate(aggregate=aggregate):
            return (aggregate.field,)
        case RowPattern():
            return function.argument, function.pattern
    return ()


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
    return f"{one_line(str(bound.away))} {bound.side.upper()}"


_WRITTEN: Mapping[type, Callable[[Any], list[str]]] = {
    Upsert: lambda operator: [f"upsert: {operator.input}"],
    Linear: lambda operator: [f"linear: {operator.source}", *steps_lines(operator.steps)],
    Concat: lambda operator: [f"concat: {', '.join(operator.sources)}"],
    StateMachine: _machine,
    Reduce: _reduce,
    ReduceRows: lambda o: [*_by_key(o), f"function: {printable(name_of(o.function))}"],
    Loop: _looped,
    WindowFunctions: _windows_written,
    DeltaJoin: _join_written,
    AsOfJoin: _join_written,
}
_TEXTS: Mapping[type, Callable[[Any], str]] = {
    Upsert: lambda _: "the current value of each key",
    StateMachine: lambda _: "the states of each key's machine",
    Reduce: lambda _: "the results of each key, and what they need",
    ReduceRows: lambda _: "all rows of each key, and what its function gives of them",
    Loop: _loop_state,
    WindowFunctions: _windows_state,
}
