"""The explanation of a plan as a value, which renderings read."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NamedTuple

from ikebana.errors import PlanError
from ikebana.processor.authoring.settings import Settings, redacted
from ikebana.processor.base.texts import printable
from ikebana.processor.explain import operators, reading
from ikebana.processor.explain.estimates import Work, estimates
from ikebana.processor.explain.graph import Diagram, as_run, as_written
from ikebana.processor.linear import sql_functions
from ikebana.processor.planning import planner, progress
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.graph import graph_of
from ikebana.processor.planning.joins.stages import arrangements
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.plan import Output, Plan
from ikebana.processor.planning.planner import Physical

MEANINGS = {
    "exchange": "a further micro-batch until an update shows",
    "arrangement": "state by key; what a hold keeps waiting is not counted",
    "pass": "one run over a micro-batch's updates, however many operators it fuses",
}

ALL = "in all"
"""The name of the row with the sums."""


class Cost(NamedTuple):
    """The costs of one part of the plan."""

    part: str
    arrangements: int
    exchanges: int
    passes: int

    @classmethod
    def heads(cls) -> tuple[str, ...]:
        """The heads of the columns of numbers."""
        return cls._fields[1:]


def costs(plan: Plan, physical: Physical) -> Iterator[Cost]:
    """Yield the costs of each part, and then their sum."""
    rows = []
    edges = progress.edges(plan)
    kinds = ((operator, kind_of(operator)) for operator in plan.operators)
    labels = {o.name: kind.label for o, kind in kinds if kind.part(o) is not None}
    for source in plan.inputs:
        diffs = source.is_collection
        passes = _passes(physical, source.name) if diffs else 0
        passes += bool(physical.readings[source.name].pushed)
        rows.append(Cost(f"decoding {source.name}", 0, 0, passes))
    for root, edge in edges.items():
        if root in labels:
            part = f"{labels[root]} {root}"
            rows.append(Cost(part, 1, len(edge.exchanges), _passes(physical, root)))
    rows += [Cost(part, 1, 0, 0) for part in operators.join_arrangements(plan)]
    for join in plan.joins:
        passes = _passes(physical, join.name)
        state = int(join.locks)
        rows.append(Cost(f"join {join.name}", state, operators.depth(plan, join), passes))
    rows += [Cost(f"output {name}", 0, 1, 0) for name in planner.gathered(plan)]
    yield from rows
    _, *columns = zip(*rows, strict=True)
    yield Cost(ALL, *(sum(column) for column in columns))


def _passes(physical: Physical, root: str) -> int:
    return sum(1 for branch in physical.branches[root] if branch.steps)


_USER_OF_URI = re.compile(r"(?<=://)[^/@]*(?=@)")
# "user:password", of a schema registry's client.
_USER_INFO = re.compile(r"user\.info", re.IGNORECASE)


def setting_lines(plan: Plan, settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield pairs of a setting and its value."""
    yield "shards", f"{settings.shards}, one task and one transaction each in every micro-batch"
    yield "commit records", f"topic {plan.commits_topic}"
    yield "checkpoint", _shown(settings.checkpoint)
    heartbeat = f"{settings.heartbeat_s:g} s" if settings.heartbeat_s else "none"
    if plan.time == "offset":
        heartbeat = "none in offset time"
    yield (
        "micro-batch",
        f"at most {settings.max_records_per_batch:,} records, heartbeat {heartbeat}",
    )
    for name, mapping in (
        ("kafka", settings.kafka),
        ("source.kafka", settings.source_kafka),
        ("sink.kafka", settings.sink_kafka),
        ("registry", settings.registry),
    ):
        if mapping:
            yield name, _pairs(mapping)


def _pairs(mapping: Mapping[str, str]) -> str:
    return ", ".join(
        f"{printable(key)}={'***' if _USER_INFO.search(key) else _shown(value)}"
        for key, value in redacted(mapping).items()
    )


def _shown(value: str) -> str:
    return printable(_USER_OF_URI.sub("***", value))


_DATED = "the inputs' own times; a time is closed when all inputs have closed it"
_TIMES = {
    "ingest": "each micro-batch has one time, in milliseconds; its net change shows",
    "offset": "each record has its own time; every change shows",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A plan as written and as run, with the optimisations and costs in between."""

    name: str
    fingerprint: str
    time: str
    written: Diagram
    run: Diagram
    pushed: tuple[str, ...]
    not_pushed: tuple[str, ...]
    costs: tuple[Cost, ...]
    sharing: tuple[str, ...]
    estimates: tuple[Work, ...]
    warnings: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]


def explained(plan: Plan, settings: Settings | None = None) -> Explanation:
    """Explain a plan, with the settings of its run if they are known.

    Raises:
        PlanError: the parts of the plan do not fit.
    """
    physical = planner.physical(checked(plan))
    explanation: Explanation = _with_short_names(_explained(plan, physical, settings))
    return explanation


def _explained(plan: Plan, physical: planner.Physical, settings: Settings | None) -> Explanation:
    return Explanation(
        name=plan.name,
        fingerprint=plan.fingerprint(),
        time=_DATED if plan.is_dated else f"{plan.time}: {_TIMES[plan.time]}",
        written=as_written(plan),
        run=as_run(plan, physical),
        pushed=tuple(s for i in plan.inputs for s in reading.pushed(plan, i, physical)),
        not_pushed=(
            *(s for i in plan.inputs for s in reading.not_pushed(plan, i, physical)),
            *_unused(plan),
            *_local_functions(plan),
        ),
        costs=tuple(costs(plan, physical)),
        sharing=(*operators.shared_arrangements(plan), *added_state(plan)),
        estimates=tuple(estimates(plan, physical)),
        warnings=tuple(operators.warnings(plan)),
        settings=() if settings is None else tuple(setting_lines(plan, settings)),
    )


def _with_short_names(value: Any) -> Any:
    """Replace long names of SQL functions by the names that they have in the pipeline."""
    if isinstance(value, str):
        return sql_functions.as_written(value)
    if isinstance(value, tuple):
        items = tuple(map(_with_short_names, value))
        return value._make(items) if hasattr(value, "_make") else items
    if is_dataclass(value) and not isinstance(value, type):
        of = {each.name: getattr(value, each.name) for each in fields(value)}
        return replace(value, **{name: _with_short_names(each) for name, each in of.items()})
    return value


def _local_functions(plan: Plan) -> Iterator[str]:
    """Warn of functions that workers cannot import, such as those of a notebook's cells."""
    try:
        plan.portable()
    except PlanError as error:
        paths = printable(", ".join(path for path, _ in error.problems))
        yield (
            f"Functions of this notebook or program alone are not run by workers: {paths}; write "
            "them into a module."
        )


def _unused(plan: Plan) -> Iterator[str]:
    """Warn of operators that no output shows; unused upserts keep their state nevertheless."""
    used = {
        name
        for branches in planner.physical(plan, optimized=False).branches.values()
        for branch in branches
        for name in (branch.root, *(name for name, _ in branch.steps))
    }
    for operator in plan.operators:
        if kind_of(operator).steps(operator) and operator.name not in used:
            yield f"Operator {operator.name} runs nowhere: no output shows it."


def added_state(plan: Plan) -> Iterator[str]:
    """Describe the state that each output adds, and the state it shares with earlier outputs.

    Outputs that share nothing but upserts are left out.
    """
    first: dict[str, str] = {}
    for output in plan.outputs:
        parts = _state_behind(plan, output)
        new = [part for part in parts if part not in first]
        shared = [part for part in parts if part in first and not part.startswith("upsert ")]
        if shared:
            adds = ", ".join(new) or "no state"
            with_whom = ", ".join(dict.fromkeys(first[part] for part in shared))
            yield printable(
                f"output {output.name} adds {adds}; it shares {', '.join(shared)} with {with_whom}"
            )
        first |= dict.fromkeys(new, output.name)


def _state_behind(plan: Plan, output: Output) -> list[str]:
    """The parts of the state that an output depends on, by their names in explanations."""
    by_name = {operator.name: operator for operator in plan.operators}
    joins = {join.name for join in plan.joins}
    separate = [each for each in arrangements(plan) if not each.is_own]
    parts: dict[str, None] = {}
    for name in graph_of(plan).behind(output.source):
        operator = by_name.get(name)
        if name in joins:
            parts |= dict.fromkeys(
                operators.part_of(each) for each in separate if name in each.joins
            )
        elif operator is not None and (kind := kind_of(operator)).parts:
            parts[f"{kind.label} {name}"] = None
    return list(parts)
