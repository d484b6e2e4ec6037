"""The plan that a checkpoint has run, and the step from it to the plan of the next run.

Parts with the same definition go on, even if it is written otherwise (`planning.identity`).
Everything else is an edit (`planning.edits`): fresh operators are filled from the state, outputs
get the difference (`engine.editing`), and the state of removed operators is released.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from ikebana.errors import CheckpointError, PlanError
from ikebana.processor.base.texts import shown
from ikebana.processor.checkpoint.checkpoint import (
    CheckpointMetadata,
    described,
    differences,
)
from ikebana.processor.checkpoint.parts import parts_of
from ikebana.processor.planning import identity, planner
from ikebana.processor.planning.backfill import (
    backfill_plan,
    has_caught_up,
    on_errors_before,
    origin_of,
    plan_without_backfill,
    read_again,
)
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.edits import (
    START_ANEW,
    Edit,
    EditProblem,
    edit_between,
    edit_problems,
)
from ikebana.processor.planning.edits_resolved import as_written, generations, resolved
from ikebana.processor.planning.plan import Input, Output, Plan
from ikebana.processor.topics.replays import why_not_placed
from ikebana.processor.topics.source_offset import SourceOffset


class UnreadableError(CheckpointError):
    """The recorded plan has parts that this version does not know."""


def recorded(metadata: CheckpointMetadata) -> Plan:
    """The plan in a checkpoint's metadata.

    It only has whether errors are dropped; any other `errors.policy` is recorded as `record`.

    Raises: CheckpointError, if the plan cannot be made any more.
    """
    try:
        return read_plan(metadata.plan)
    except msgspec.ValidationError as error:
        raise UnreadableError(
            f"the plan that the checkpoint has run cannot be read by this version: {error}",
            hint="Go on with the version of ikebana that has run it.",
        ) from None
    except PlanError as error:
        listed = "; ".join(f"{path}: {problem}" for path, problem in error.problems)
        raise CheckpointError(
            f"the plan that the checkpoint has run cannot be made any more: {listed}",
            hint="An edit takes back what that plan has made, and so needs all that it names. Put "
            "back what is gone, run the old pipeline file with --once first, and then the new "
            "one; what only the old one names may go when `ikebana plan` says that nothing "
            "changes.",
        ) from None


def plan_if_readable(metadata: CheckpointMetadata) -> Plan | None:
    """The plan in a checkpoint's metadata; None if this version cannot read it."""
    try:
        return read_plan(metadata.plan)
    except (msgspec.ValidationError, PlanError):
        return None


def read_plan(plain: dict[str, Any]) -> Plan:
    """Read a recorded plan.

    Raises: msgspec.ValidationError or PlanError, if this version cannot.
    """
    return _read_plan(msgspec.json.encode(plain))


@functools.lru_cache(maxsize=4)
def _read_plan(plain: bytes) -> Plan:
    # Cached, because a start asks several times, and checking a plan checks all its SQL.  An
    # error is not cached: a module of functions may be there the next time.
    plan = msgspec.json.decode(plain, type=Plan)
    checked(as_written(plan))
    return plan


class ImpossibleEditError(CheckpointError):
    """An edit cannot be made on a checkpoint, for these problems."""

    def __init__(self, problems: Sequence[EditProblem]) -> None:
        super().__init__(
            "the checkpoint was made by another plan: "
            + "; ".join(f"{each.path} {each.reason}" for each in problems),
            hint=_remedies(problems),
            paths=[each.path for each in problems],
        )
        self.problems = problems


def without_unlogged_edit(
    metadata: CheckpointMetadata, logged: SourceOffset | None
) -> CheckpointMetadata:
    """Revert the last edit in the metadata, if no batch of it has been logged.

    A start writes the metadata before the first batch of an edit.  If it ends in between, the
    next start may have yet another plan, which is then an edit of the plan that has run.

    Raises: CheckpointError, if this version cannot make the plan that has run, or the metadata are
        older than the log.
    """
    if logged is not None and logged.transition.edits > metadata.edits:
        raise CheckpointError(
            f'the metadata of the checkpoint at "{metadata.location}" are of before edit '
            f"{logged.transition.edits} of the plan, under which batch {logged.batch} was begun",
            hint="Restore the newest ikebana.json. If it is lost, move the checkpoint away, and "
            "create it again with `ikebana recover`. If another instance has just edited the "
            "pipeline, start again.",
        )
    if not (metadata.start if logged is None else logged).transition.is_behind(metadata.edits):
        return metadata
    before = recorded(msgspec.structs.replace(metadata, plan=metadata.before))
    # The plan that has not run may belong to a version with other functions.  It has no state,
    # and parts that it took over from released ones are emptied before they are used.
    after = plan_if_readable(metadata)
    parts = frozenset[str]() if after is None else parts_of(after)
    released = {*metadata.released, *parts} - parts_of(before)
    return msgspec.structs.replace(
        metadata,
        plan=metadata.before,
        released=tuple(sorted(released)),
        edits=metadata.edits - 1,
        generations=metadata.generations_before,
        last_edit={},
    )


def with_checkpoint_names(metadata: CheckpointMetadata, plan: Plan) -> Plan:
    """Give the unchanged parts of a plan their names and spellings in the checkpoint."""
    old = plan_if_readable(metadata)
    return plan if old is None else _resumed(old, plan, tuple(metadata.generations.items()))


@functools.lru_cache(maxsize=4)
def _resumed(old: Plan, plan: Plan, used: tuple[tuple[str, int], ...]) -> Plan:
    # Cached, because a start asks several times, and comparing SQL means parsing it.
    read = planner.physical(old).readings
    written = as_written(old)
    inputs = zip(written.inputs, plan_without_backfill(old).inputs, strict=True)
    decoded = {source.name: read[in_core.name].columns for source, in_core in inputs}
    same = identity.with_old_parts(written, as_written(plan), decoded)
    return resolved(old, same, dict(used))


def ineffective_hints(metadata: CheckpointMetadata, plan: Plan) -> list[str]:
    """List hints of a plan that joins do not follow, since their state follows earlier hints."""
    old = plan_if_readable(metadata)
    return [] if old is None else identity.ineffective_hints(as_written(old), plan)


def metadata_after(metadata: CheckpointMetadata, plan: Plan) -> CheckpointMetadata:
    """Update the metadata for a plan, if its changes are allowed.

    Raises:
        CheckpointError: some changes are not allowed; it names all of them.
    """
    of_file, plan = plan, with_checkpoint_names(metadata, plan)
    try:
        old = recorded(metadata)
    except UnreadableError:
        raise _refused(differences("", metadata.plan, described(plan))) from None
    if _bound(old) == _bound(plan):
        return metadata
    if problems := list(edit_problems(edit_between(old, plan), metadata.generations, of_file)):
        raise ImpossibleEditError(problems)
    return _edited(metadata, old, plan)


def unreadable_inputs(
    metadata: CheckpointMetadata, plan: Plan, last: SourceOffset
) -> Iterator[EditProblem]:
    """Yield inputs that cannot be read again, since the times of their records are not known.

    `last` is the last batch.
    """
    old, going = recorded(metadata), with_checkpoint_names(metadata, plan)
    names = read_again(old, going)
    for of_file, source in zip(plan.inputs, going.inputs, strict=True):
        origin = origin_of(old, source)
        if source.name not in names or source.event_time is None or origin is None:
            continue
        if (why := why_not_placed(last.input_times.get(origin.name))) is not None:
            yield EditProblem(
                f"inputs.{shown(of_file.name)}",
                f"would have to be read again: {why}",
                "Read a copy of its topic by a new input beside it",
            )


class NextPlan(NamedTuple):
    """The plan that a checkpoint runs next: the plan itself, or an intermediate one.

    An intermediate plan `backfills`: it reads inputs again (`planning.backfill`), until they have
    caught up.  `final` is the plan itself, with its names in the checkpoint, and `after` are the
    metadata when it runs.
    """

    plan: Plan
    metadata: CheckpointMetadata
    final: Plan
    after: CheckpointMetadata
    backfills: bool = False


def step_to(metadata: CheckpointMetadata, plan: Plan, offset: SourceOffset | None) -> NextPlan:
    """Find the plan that runs next after the last batch, if the changes are allowed.

    `offset` is None if no batch is in the log: before the first one, and after a rescaling, which
    puts the last batch into the metadata.

    Raises:
        CheckpointError: some changes are not allowed; it names all of them.
    """
    going = with_checkpoint_names(metadata, plan)
    after = metadata_after(metadata, plan)
    last = offset or metadata.start
    if after == metadata or last.batch < 0:
        return NextPlan(going, after, going, after)
    old = recorded(metadata)
    between = backfill_plan(old, going)
    if between is None:
        return NextPlan(going, after, going, after)
    if problems := list(unreadable_inputs(metadata, plan, last)):
        raise ImpossibleEditError(problems)
    if between.backfills == old.backfills and _bound(between) == _bound(old):
        if has_caught_up(old, last.positions):
            return NextPlan(going, after, going, after)
        meanwhile = metadata
    else:
        meanwhile = _edited(metadata, old, between)
    beside_it = plan_as_run(meanwhile, going)
    return NextPlan(beside_it, meanwhile, going, after, backfills=True)


def plan_as_run(metadata: CheckpointMetadata, plan: Plan) -> Plan:
    """The recorded plan, with the settings of `plan` that apply at once or are not recorded.

    Raises: CheckpointError, if it cannot be made any more.
    """
    old = recorded(metadata)
    inputs = {source.name: source for source in plan.inputs}
    outputs = {(output.topic, output.format): output for output in plan.outputs}
    return replace(
        old,
        on_error=on_errors_before(old.on_error, plan.on_error),
        inputs=tuple(_input(source, inputs.get(source.name)) for source in old.inputs),
        outputs=tuple(
            _output(output, outputs.get((output.topic, output.format))) for output in old.outputs
        ),
    )


def _input(old: Input, new: Input | None) -> Input:
    if new is None:
        return old
    event, now = old.event_time, new.event_time
    if event is not None and now is not None:
        event = msgspec.structs.replace(event, lateness_ms=now.lateness_ms, idle_ms=now.idle_ms)
    return replace(old, start=new.start, event_time=event, on_new_column=new.on_new_column)


def _output(old: Output, new: Output | None) -> Output:
    if new is None:
        return old
    return replace(
        old,
        partitions=new.partitions,
        tombstones=new.tombstones,
        subjects=new.subjects,
        record=new.record,
    )


def _edited(metadata: CheckpointMetadata, old: Plan, plan: Plan) -> CheckpointMetadata:
    """The metadata after an edit from the present plan to another."""
    released = {*metadata.released, *parts_of(old)} - parts_of(plan)
    return msgspec.structs.replace(
        metadata,
        plan=described(plan),
        released=tuple(sorted(released)),
        edits=metadata.edits + 1,
        before=metadata.plan,
        generations=generations(plan, generations(old, metadata.generations)),
        generations_before=metadata.generations,
    )


def edit_of(metadata: CheckpointMetadata) -> Edit | None:
    """Read the last edit of a checkpoint; None if there was none.

    Raises: CheckpointError, if this version cannot read the plan before the edit.
    """
    if not metadata.edits:
        return None
    try:
        old, new = map(read_plan, (metadata.before, metadata.plan))
    except (msgspec.ValidationError, PlanError) as error:
        raise CheckpointError(
            f"the plan that checkpoint {metadata.id} had before its last edit cannot be made any "
            f"more: {error}",
            hint="The edit takes back what that plan has made, and so needs all that it names. "
            "Put back what is gone, or finish the edit with the version of ikebana that began "
            "it: run that with --once.",
        ) from None
    return edit_between(old, new)


def edit_under_way(
    metadata: CheckpointMetadata, offset: SourceOffset, *, is_done: bool = False
) -> Edit | None:
    """The edit that the batches from `offset` on belong to; None if none is under way.

    With `is_done`, the batch of `offset` itself does not count.

    When all portions are done, the updates of an edit wait in outputs until its time is closed.
    The old plan is not needed for that: if it cannot be made any more, the result is an edit that
    changes nothing.

    Raises: CheckpointError, if portions are missing and this version cannot read the old plan.
    """
    # The batch after the last portion has to know which outputs go on with it.
    of = offset.transition
    fills = of.is_behind(metadata.edits) or of.fills or (of.is_filled and not is_done)
    if not fills and (not of.at or of.rebuilds):
        return None
    try:
        return edit_of(metadata)
    except CheckpointError:
        if fills:
            raise
        plan = recorded(metadata)
        return edit_between(plan, plan)


def edit_to(metadata: CheckpointMetadata, plan: Plan) -> Edit | None:
    """Compute what a run with a plan would change, allowed or not.

    None if this version cannot read the checkpoint's plan.
    """
    old = plan_if_readable(metadata)
    return None if old is None else edit_between(old, with_checkpoint_names(metadata, plan))


def _refused(problems: Iterable[str]) -> CheckpointError:
    return CheckpointError(
        "the checkpoint was made by another plan: " + "; ".join(problems),
        hint=f"Go{_ELSE}",
    )


_ELSE = f" on with the old plan, or {START_ANEW}. docs/edits.md lists what may change."


def _remedies(problems: Sequence[EditProblem]) -> str:
    """The remedy of each problem, and at the end the one that all have in common."""
    remedies = "".join(
        f"{f'{each.path}: ' if len(problems) > 1 else ''}{each.instead}. "
        for each in dict.fromkeys(problems)
        if each.instead
    )
    return f"{remedies}Or go{_ELSE}" if remedies else f"Go{_ELSE}"


def _bound(plan: Plan) -> dict[str, Any]:
    """Describe the parts of a plan that the checkpoint depends on.

    Settings of how far batches go, and of how topics are created, are left out.
    """
    return described(replace(plan, inputs=tuple(map(identity.without_free_settings, plan.inputs))))
