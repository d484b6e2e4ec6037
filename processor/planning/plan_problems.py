"""Find why the parts of a plan do not fit: names, references, topics, steps, formats."""

import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ikebana.processor.linear.json_text import BLOB
from ikebana.processor.linear.scope import KEY, VALUE, Scope
from ikebana.processor.linear.steps import moves_time
from ikebana.processor.planning.compiling import compiled_scopes, compiling_problems
from ikebana.processor.planning.graph import graph_of, node_of
from ikebana.processor.planning.input_problems import input_problems
from ikebana.processor.planning.judging import Judge
from ikebana.processor.planning.operators.kind import Around, Problem
from ikebana.processor.planning.operators.table import kind_of
from ikebana.processor.planning.output_problems import format_problems, output_problems
from ikebana.processor.planning.plan import LOG_CLOCKS, Plan, Reduce
from ikebana.processor.planning.topic_problems import topic_problems
from ikebana.processor.planning.unread import ALL_READ, Unread

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def problems_of(plan: Plan, unread: Unread = ALL_READ) -> Iterator[Problem]:
    """All problems of a plan, as (path of the part, problem).

    A problem that only follows from another one, or from `unread` parts, is left out.
    """
    found = list(_structure_problems(plan, unread))
    yield from found
    sound = [] if found or unread.paths else list(compiling_problems(plan))
    if found or unread.paths or sound:
        judge = Judge(plan, unread)
        yield from judge.problems or sound
        scopes = judge.scopes
    else:
        scopes = functools.partial(compiled_scopes, plan)
    yield from _time_axis_problems(plan, unread)
    for output in plan.outputs:
        if is_whole(plan, output.source, unread):
            yield from format_problems(plan, output, scopes(output.source))
    for reduction in plan.reductions:
        if reduction.function is not None and is_whole(plan, reduction.name, unread):
            yield from _function_problems(reduction, scopes(reduction.source))


def _structure_problems(plan: Plan, unread: Unread) -> Iterator[Problem]:
    """What is wrong with names, references, topics and settings, whatever the SQL is."""
    yield from _name_problems("pipeline", plan.name)
    for kind, parts in (
        ("inputs", plan.inputs),
        ("operators", plan.operators),
        ("outputs", plan.outputs),
    ):
        # Inputs may be collections by themselves.
        shown = kind == "operators" and (_diffs(plan) or unread.any_of("inputs"))
        needed = not unread.any_of(kind) and not shown
        if not parts and needed:
            yield kind, "at least one is needed"
        counted = Counter(part.name for part in parts)
        for name, count in counted.items():
            yield from _name_problems(f"{kind}.{name}", name)
            if count > 1:
                yield f"{kind}.{name}", f"the name is used {count} times"
    for source in plan.inputs:
        yield from input_problems(source, unread)
    around = Around(plan.inputs, plan.operators, unread)
    yield from _operator_problems(plan, around)
    yield from output_problems(plan, around)
    yield from topic_problems(plan)


def _operator_problems(plan: Plan, around: Around) -> Iterator[Problem]:
    for name in _diffs(plan):
        if name in {operator.name for operator in plan.operators}:
            yield f"operators.{name}", 'an input with mode "diffs" has this name'
    graph = graph_of(plan)
    for operator in plan.operators:
        yield from kind_of(operator).problems(operator, around)
        if operator.name in graph.behind(node_of(operator)):
            yield f"operators.{operator.name}", "it reads its own results"


def _diffs(plan: Plan) -> list[str]:
    return [source.name for source in plan.inputs if source.is_collection]


def _time_axis_problems(plan: Plan, unread: Unread) -> Iterator[Problem]:
    """Inputs whose times cannot be combined."""
    inputs = [each for each in plan.inputs if not unread.may_have("inputs", each.name)]
    if any(each.is_dated for each in inputs) and plan.time == "offset":
        yield "time", "offset does not go with inputs that have times of their own"
    clocks = {i.event_time.clock in LOG_CLOCKS for i in inputs if i.event_time is not None}
    if len(clocks) > 1:
        yield "inputs", "times in milliseconds and positions in a log are not of one axis"
    if len(plan.transaction_topics) > 1:
        yield "inputs", "positions in the logs of several sources are not of one axis"
    steps = (step for o in plan.operators for _, step in kind_of(o).steps(o))
    if any(map(moves_time, steps)) and (plan.time == "offset" or True in clocks):
        yield "time", "validity in time needs times in milliseconds, not offsets"


def is_whole(plan: Plan, name: str, unread: Unread) -> bool:
    """Whether all that a collection is derived from exists, and could be read."""
    graph = graph_of(plan)
    inputs = {source.name for source in plan.inputs}
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        node = graph.nodes.get(at)
        if node is None or unread.may_have("operators", at) or at in graph.behind(node):
            return False
        if node.input is not None and (node.input not in inputs or unread.hides_rows(node.input)):
            return False
        waiting += node.sources
    return True


def _function_problems(reduction: Reduce, scopes: Sequence[Scope]) -> Iterator[Problem]:
    """What a reduction's function cannot be given of data that have one of these scopes."""
    for part, word, setting, remedy in (
        (KEY, "key", "by", "make a key in JSON of it here"),
        (VALUE, "value", "reduce", "make values in JSON of them by a select before"),
    ):
        made_here = part == KEY and reduction.key is not None
        if not made_here and any(scope.types[part] == BLOB for scope in scopes):
            yield (
                f"operators.{reduction.name}.{setting}",
                f"a function is not given a {word} in bytes; {remedy}",
            )


def _name_problems(path: str, name: str) -> Iterator[tuple[str, str]]:
    if not _NAME.fullmatch(name):
        yield path, f"{name!r} is not a name (letters, digits, '.', '_', '-')"
