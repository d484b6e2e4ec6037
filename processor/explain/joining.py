"""Joins in an explanation: as the file has them, and their arrangements and paths as they run.

An arrangement is a box, or a few lines of the box of the upsert whose own state it is.  A path
is one box however many stages it has: what matters is what a change looks up, in which order.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from ikebana.processor.explain.words import lines_of, listed, one_line, step_lines
from ikebana.processor.ground.counting import counted
from ikebana.processor.ground.printable import printable
from ikebana.processor.joins import arrangements
from ikebana.processor.joins.arrangements import Shared
from ikebana.processor.joins.paths import Planned
from ikebana.processor.joins.qualified import Flat, alias_of
from ikebana.processor.joins.query import AsOfJoin, Join
from ikebana.processor.joins.steps import ArrangedBy, Extend, Lookup, Path, PathStep
from ikebana.processor.linear.expressions import parse
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import KEY, VALUE
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning import progress, ways
from ikebana.processor.planning.joined import arrangements as arrangements_of
from ikebana.processor.planning.joined import is_gathered, joined
from ikebana.processor.planning.plan import Plan
from ikebana.processor.planning.planner import Branch

_NAME = re.compile(r'"([A-Za-z_][A-Za-z0-9_]*)"')
# If joins read less than this of the columns that are kept, it is worth telling.
_FEW = 0.5
# What is longer does not stand in a table.
_LONG = 60


class Part(NamedTuple):
    """An arrangement, a path or a join: its box, and the boxes that data come from."""

    id: str
    kind: Literal["arrangement", "path", "join"]
    title: str
    lines: tuple[str, ...]
    origins: tuple[str, ...]


def written(join: Join) -> list[str]:
    """A join in the words of the pipeline file; what is as by default is left out."""
    as_of = isinstance(join, AsOfJoin)
    inputs = ", ".join(f"{each.alias}: {each.relation}" for each in join.inputs)
    found = [f"{'as_of_join' if as_of else 'delta_join'}: {{{inputs}}}"]
    if isinstance(join, AsOfJoin):
        found += [line for text in join.on for line in lines_of("on", text)]
    else:
        found += [line for text in join.where for line in lines_of("where", text)]
    found += step_lines(Sql(key=join.key, select=join.select))
    if isinstance(join, AsOfJoin):
        found.append(f"at: {join.at}")
        found += ["outer: true"] if join.outer else []
        return [*found, f"retract: {join.retract}"]
    found += [f"orders: {alias}: {', '.join(order)}" for alias, order in join.orders]
    found += ["cartesian: true"] if join.cartesian else []
    return found if join.strategy == "auto" else [*found, f"strategy: {join.strategy}"]


def fed(plan: Plan) -> Mapping[str, str]:
    """The box that each feed leads to."""
    stages = joined(plan).stages
    return {
        feed.name: _path_id(stages[feed.name].join, stages[feed.name].alias)
        if feed.name in stages
        else _arrangement_id(feed.name)
        for feed in joined(plan).feeds
    }


def arranges(plan: Plan) -> Mapping[str, str]:
    """The names of steps that only arrange what a join asks for, each with its title."""
    return {str(feed.by): title_of(feed.by) for feed in joined(plan).feeds}


def of_branch(plan: Plan, branch: Branch) -> Iterator[str]:
    """The joins that a branch gives rows to, or that look up its root."""
    found = joined(plan)
    for name in (*branch.inlets, *branch.hops):
        if name in found.kept:
            yield from found.kept[name].joins
        elif name in found.stages:
            yield found.stages[name].join
    if not branch.steps and branch.root in found.kept:
        yield from found.kept[branch.root].joins


def of_upsert(plan: Plan, name: str) -> Iterator[str]:
    """What there is to say of an upsert's state if joins look it up."""
    for each in arrangements_of(plan):
        if each.is_own and each.arrangement.relation == name:
            yield "arranged by key as it is: the upsert's own state"
            yield _readers(each)


def parts(plan: Plan) -> Iterator[Part]:
    """The arrangements that joins make, their paths, and the joins."""
    found = joined(plan)
    for name, each in found.kept.items():
        if not each.is_own:
            lines = tuple(_arrangement_lines(plan, name, each))
            title = title_of(each.arrangement)
            yield Part(_arrangement_id(name), "arrangement", title, lines, ())
    for join in plan.joins:
        planned = ways.join_of(plan, join.name)
        for path in planned.paths:
            own = _path_id(join.name, path.alias)
            lines = tuple(_path_lines(plan, planned, path))
            yield Part(own, "path", f"{join.name}/{path.alias}", lines, tuple(_origins(plan, own)))
        paths = tuple(_path_id(join.name, path.alias) for path in planned.paths)
        yield Part(join_id(join.name), "join", join.name, tuple(_join_lines(plan, planned)), paths)


def made(plan: Plan) -> Iterator[str]:
    """The arrangements that are there for joins alone, each with its conditions."""
    for each in arrangements_of(plan):
        if not each.is_own:
            where = " and ".join(map(one_line, each.arrangement.filters))
            yield _shortened(
                f"arrangement {title_of(each.arrangement)}{' where ' if where else ''}{where}"
            )


def remembers(join: Join) -> bool:
    """Whether it keeps what it has emitted."""
    return join.locks


def join_id(name: str) -> str:
    """The box of a join's results."""
    return f"join {name}"


def title_of(arrangement: ArrangedBy) -> str:
    """A relation with its key, as in `orders(custkey)`."""
    return printable(f"{arrangement.relation}({', '.join(_keys(arrangement))})")


def hops_of(plan: Plan, join: str, alias: str) -> int:
    """The most hops that a change of an input takes until it shows."""
    found = joined(plan)
    graph = progress.edges(plan)

    def upto(name: str) -> int:
        stage = found.stages.get(name)
        before = () if stage is None else stage.rows_from
        # What is not behind a stage is fed.
        return bool(graph[name].hops) + max(map(upto, before), default=0)

    ends = [name for name in found.last[join] if found.stages[name].alias == alias]
    return max(map(upto, ends)) + is_gathered(plan, join)


def sharing(plan: Plan) -> Iterator[str]:
    """What joins cost together: distinct arrangements, beside what is kept anyway."""
    if not plan.joins:
        return
    found = arrangements_of(plan)
    own = len(found) - arrangements.cost(found)
    beside = f", {own} an upsert's own state" if own else ""
    yield (
        f"joins: {counted(len(found), 'distinct arrangement')} in "
        f"{counted(len(plan.joins), 'join')}{beside}; "
        f"{arrangements.cost(found)} beside what is kept anyway"
    )


def warnings(plan: Plan) -> Iterator[str]:
    """What could be kept once, or smaller."""
    found = arrangements_of(plan)
    made = [each for each in found if not each.is_own]
    for miss in arrangements.near_misses(made):
        yield f"{printable(str(miss))}."
    for relation in dict.fromkeys(each.arrangement.relation for each in made):
        scope = ways.scope_of(plan, relation)
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
    """The columns of a relation that joins read of it, or arrange it by."""
    scope = ways.scope_of(plan, relation)
    found: set[str] = set()
    for join in plan.joins:
        aliases = {each.alias for each in join.inputs if each.relation == relation}
        for name in ways.join_of(plan, join.name).types():
            if alias_of(name) in aliases:
                found.add(name.partition(".")[2])
    for each in arrangements_of(plan):
        if each.arrangement.relation == relation:
            for text in (*each.arrangement.keys, *each.arrangement.filters):
                found |= parse(text, scope).columns
    return frozenset(found)


def _arrangement_id(name: str) -> str:
    return f"arrangement {name}"


def _path_id(join: str, alias: str) -> str:
    return f"path {join}/{alias}"


def _arrangement_lines(plan: Plan, name: str, shared: Shared) -> Iterator[str]:
    for text in shared.arrangement.filters:
        yield f"where {one_line(text)}"
    yield f"1 arrangement, in the shards, as arrange {name}"
    if progress.edges(plan)[name].hops:
        yield f"filled by a hop, through topic {plan.loopback_topic}"
    yield _readers(shared)


def _readers(shared: Shared) -> str:
    """Who asks: the paths of each join."""
    by_join = {
        join: dict.fromkeys(reader.path for reader in shared.readers if reader.join == join)
        for join in shared.joins
    }
    return f"asked by {listed(f'{join}/{path}' for join, of in by_join.items() for path in of)}"


def _origins(plan: Plan, path: str) -> Iterator[str]:
    """What a path gets rows from, or asks."""
    found = joined(plan)
    for stage in found.stages.values():
        if _path_id(stage.join, stage.alias) == path:
            asked = found.kept[stage.looks_up]
            for name in stage.rows_from:
                if name not in found.stages:
                    yield _arrangement_id(name)
            own = f"state {asked.arrangement.relation}"
            yield own if asked.is_own else _arrangement_id(stage.looks_up)


def _path_lines(plan: Plan, planned: Planned, path: Path) -> Iterator[str]:
    join = planned.join
    hops = hops_of(plan, join.name, path.alias)
    yield f"a change of {path.alias}, {counted(hops, 'hop')}"
    for text in path.filters:
        yield f"where {one_line(text)}"
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
    found = [f"bind {' = '.join(_words(each.value, variables) for each in step.candidates)}"]
    found += [f"{each.alias} {_by(each.values, each.key, variables)}" for each in step.candidates]
    return [*found, "fewest first; the others say which they have"]


def _by(arrangement: ArrangedBy, key: Iterable[Flat], variables: Mapping[str, str]) -> str:
    """The condition by which an arrangement is asked."""
    asked = [
        f"{own} = {_words(value, variables)}"
        for own, value in zip(_keys(arrangement), key, strict=True)
    ]
    return f"by {' and '.join(asked)}" if asked else "as a whole"


def _join_lines(plan: Plan, planned: Planned) -> Iterator[str]:
    join = planned.join
    if isinstance(join, AsOfJoin):
        if join.outer:
            yield "a change that meets nothing shows with null"
        if remembers(join):
            yield "remembers what was emitted: 1 arrangement, in the shards"
        else:
            yield "keeps no result"
    else:
        yield f"the results of {counted(len(planned.paths), 'path')}; keeps none of them"
    if is_gathered(plan, join.name):
        yield f"gathered by key, by a hop through topic {plan.loopback_topic}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def _keys(arrangement: ArrangedBy) -> list[str]:
    return [
        printable(match[1] if (match := _NAME.fullmatch(key)) else one_line(key))
        for key in arrangement.keys
    ]


def _words(flat: Flat, variables: Mapping[str, str]) -> str:
    """An expression over inputs as it may be written; a variable by what it is equal to."""
    text = flat.sql
    for name in flat.reads:
        text = text.replace(quoted(name), variables.get(name, name))
    return one_line(text)


def depth(plan: Plan, join: Join) -> int:
    """By how many hops a join is further from its inputs' topics than what it reads."""
    depths = progress.depths(progress.edges(plan))
    roots = {
        path.root
        for source in ways.sources_of(plan, join.name)
        for path in ways.paths(plan, source)
    }
    return depths[join.name] - max(depths[root] for root in roots)
