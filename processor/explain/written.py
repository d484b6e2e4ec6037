"""Describe operators in the form of the pipeline file, and their state in the shards."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ikebana.processor.base.counting import counted
from ikebana.processor.base.printable import printable
from ikebana.processor.explain import joining, windowing
from ikebana.processor.explain.words import one_line, steps_lines
from ikebana.processor.linear.functions import name_of
from ikebana.processor.planning.joins.query import AsOfJoin, DeltaJoin
from ikebana.processor.planning.plan import (
    TOTAL_KEY,
    Concat,
    Linear,
    Loop,
    Operator,
    Reduce,
    StateMachine,
    Upsert,
    WindowFunctions,
)


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
    by = [] if operator.by is None else [f"by: {one_line(operator.by)}"]
    by += ["total: true"] * operator.total
    named = [f"{name}: {one_line(text)}" for name, text in operator.aggregates]
    if operator.function is not None:
        named = [f"function: {printable(name_of(operator.function))}"]
    if operator.loop is not None:
        named = _looped(operator.loop)
    return [f"reduce: {operator.source}", *by, *named]


def _looped(loop: Loop) -> list[str]:
    kinds = Counter(_WITHIN[type(each)] for each in loop.body)
    body = ", ".join(counted(count, kind) for kind, count in kinds.items())
    return [
        f"recursive: {counted(len(loop.variables), 'collection')} over "
        f"{counted(len(loop.sources), 'source')}, in at most {loop.rounds:,} rounds",
        f"  in each round: {body}",
    ]


_WITHIN = {Linear: "step", Concat: "sum", Reduce: "group", DeltaJoin: "join"}


def _reduced(operator: Reduce) -> str:
    if operator.loop is not None:
        where = "all in one shard" if operator.key == TOTAL_KEY else "by key"
        return f"the rows of the recursion by the rounds in which they change, {where}"
    if operator.function is not None:
        return "all rows of each key, and what its function gives of them"
    return "the results of each key, and what they need"


_WRITTEN: Mapping[type, Callable[[Any], list[str]]] = {
    Upsert: lambda operator: [f"upsert: {operator.input}"],
    Linear: lambda operator: [f"linear: {operator.source}", *steps_lines(operator.steps)],
    Concat: lambda operator: [f"concat: {', '.join(operator.sources)}"],
    StateMachine: _machine,
    Reduce: _reduce,
    WindowFunctions: windowing.written,
    DeltaJoin: joining.written,
    AsOfJoin: joining.written,
}
_TEXTS: Mapping[type, Callable[[Any], str]] = {
    Upsert: lambda _: "the current value of each key",
    StateMachine: lambda _: "the states of each key's machine",
    Reduce: _reduced,
    WindowFunctions: windowing.state_of,
}
