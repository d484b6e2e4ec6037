"""Why an edit of a plan cannot be made on its checkpoint."""

from collections.abc import Iterator, Mapping

import msgspec

from ikebana.processor.ground.generations import shown
from ikebana.processor.planning import planner
from ikebana.processor.planning.edits import Edit, branches_of
from ikebana.processor.planning.edits_resolved import WRITTEN, inputs_kept
from ikebana.processor.planning.identity import lasting
from ikebana.processor.planning.joined import joined
from ikebana.processor.planning.operators.table import kind_of
from ikebana.processor.planning.plan import Plan, StateMachine


def problems(edit: Edit, used: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield each reason why an edit cannot be made on the checkpoint, with its path.

    `used` has the last generations before the edit.
    """
    before, after = edit.before, edit.after
    for part in ("name", "time", "error_topic", "is_dated", "transaction_topics"):
        old, new = getattr(before, part), getattr(after, part)
        if old != new:
            was, now = (msgspec.json.encode(each).decode() for each in (old, new))
            yield _PATHS.get(part, part), f"was {was}, is {now}, which no edit can change"
    yield from _inputs(before, after)
    yield from _readers(edit)
    yield from _outputs(edit, used)
    yield from _rows(before, after)
    yield from _sources_missing(edit)
    yield from _joins(edit)


_PATHS = {"error_topic": "errors.topic", "is_dated": "event_time"}


def _inputs(before: Plan, after: Plan) -> Iterator[tuple[str, str]]:
    known = {source.name: source for source in before.inputs}
    for source in after.inputs:
        old = known.get(source.name)
        if old is None:
            if read := [t for t in source.topics if t in before.topics]:
                yield (
                    f"inputs.{source.name}",
                    f'is new, and topic "{read[0]}" has been read already: what it had is not '
                    "read again",
                )
            elif source.start != "earliest":
                yield (
                    f"inputs.{source.name}.start",
                    "is latest: an input that is added later is read from the beginning",
                )
        elif lasting(old) != lasting(source):
            yield f"inputs.{source.name}", "was changed: what its topic has had is not read again"


def _readers(edit: Edit) -> Iterator[tuple[str, str]]:
    """Yield operators that would need an input from its beginning, which is not read again."""
    known = {source.name for source in edit.before.inputs}
    old = {shown(operator.name) for operator in edit.before.operators}
    for operator in edit.after.operators:
        kind = kind_of(operator)
        if not kind.reads_rows or operator.name not in edit.fresh:
            continue
        read = [source for source in kind.sources(operator) if source in known]
        name = shown(operator.name)
        is_what = "was changed" if name in old else "is new"
        is_machine = isinstance(operator, StateMachine) and name in old
        remedy = " (with a greater version it goes on with its states)" if is_machine else ""
        for source in read:
            yield (
                f"operators.{name}",
                f'{is_what}, and reads input "{source}": what its topic has had is not read '
                f"again{remedy}",
            )


def _rows(before: Plan, after: Plan) -> Iterator[tuple[str, str]]:
    old, new = planner.physical(before).readings, planner.physical(after).readings
    for name in sorted(inputs_kept(before, after)):
        if old[name] == new[name]:
            continue
        columns, steps = old[name].columns, [step for step, _ in old[name].pushed]
        if steps:
            kept = f"what {', '.join(dict.fromkeys(map(shown, steps)))} makes"
        elif columns is not None and not old[name].key_filters:
            kept = f"the columns {', '.join(columns)}"
        else:
            kept = "the rows of some keys"
        yield (
            f"inputs.{name}",
            f"has been read so that the state has only {kept}, and the new plan needs more of "
            "its rows (`pushdown: false` keeps whole ones from the start)",
        )


def _outputs(edit: Edit, used: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    before = {output.name: output for output in edit.before.outputs}
    topics = {output.topic: output.name for output in edit.before.outputs}
    for output in edit.after.outputs:
        path = f"outputs.{shown(output.name)}"
        if output.name in edit.added and output.topic in topics:
            yield (
                path,
                f'writes to topic "{output.topic}", which has been of '
                f'"{shown(topics[output.topic])}" in another format or under that name',
            )
        elif output.name in edit.added and WRITTEN + output.topic in used:
            yield (
                path,
                f'writes to topic "{output.topic}", which has what an output has written that is '
                "gone: give it a new topic",
            )
        if output.name in edit.replaced:
            watched = [
                planner.watches(plan, each)
                for plan, each in ((edit.before, before[output.name]), (edit.after, output))
            ]
            if watched == [False, True]:
                yield (
                    path,
                    "shows what may have several values of a key now: give it a new topic",
                )


def _sources_missing(edit: Edit) -> Iterator[tuple[str, str]]:
    """Yield collections that new readers need, and that the state does not have completely."""
    for plan in (edit.before, edit.after):
        for root, branches in planner.physical(plan).branches.items():
            if not _has_contents(plan, root) and (plan is edit.before or root not in edit.fresh):
                for branch in branches:
                    yield from _lacking(edit, plan, root, branch)


def _lacking(
    edit: Edit, plan: Plan, root: str, branch: planner.Branch
) -> Iterator[tuple[str, str]]:
    names = edit.affected if plan is edit.after else edit.replaced
    is_join = any(join.name == root for join in plan.joins)
    what = "it keeps no results" if is_join else "nothing keeps what it has had"
    for name in sorted(names & set(branch.outputs)):
        if plan is edit.after and branch in branches_of(edit.before, root):
            continue
        yield f"outputs.{shown(name)}", f'shows other data of "{shown(root)}", and {what}'
    if plan is edit.after:
        stages = joined(plan).stages
        for name in (*branch.inlets, *branch.hops):
            if name in edit.fresh and name not in stages:
                yield (
                    f"operators.{shown(name)}",
                    f'is new, and reads "{shown(root)}": {what}',
                )


def _joins(edit: Edit) -> Iterator[tuple[str, str]]:
    old, new = joined(edit.before), joined(edit.after)
    for name, stage in new.stages.items():
        if name in old.stages and old.stages[name] != stage:
            yield (
                f"operators.{shown(stage.join)}",
                "would be laid out otherwise than it is, since other joins come or go",
            )
    for join in edit.after.joins:
        if join.name in edit.fresh and join.name not in new.origins:
            relation = shown(join.inputs[0].relation)
            yield (
                f"operators.{shown(join.name)}",
                f'is new, and nothing has all that its input "{relation}" was: '
                "it has no arrangement",
            )
    timed = {source.name for source in edit.after.inputs if source.event_time is not None}
    for root, branches in planner.physical(edit.after).branches.items():
        for branch in branches:
            if not branch.moves_time and root not in timed:
                continue
            for name in (*branch.inlets, *branch.hops):
                found = new.stages.get(name)
                if found is not None and name in edit.fresh and root not in edit.fresh:
                    yield (
                        f"operators.{shown(found.join)}",
                        f'is new, and changes of "{shown(root)}" that are not due yet wait '
                        "elsewhere",
                    )


def _has_contents(plan: Plan, root: str) -> bool:
    """Whether the state has the whole collection of a root."""
    operator = next((each for each in plan.operators if each.name == root), None)
    return operator is not None and kind_of(operator).keeps_contents
