"""Describe, before a start, what a run with a plan would change in a checkpoint."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import msgspec

from ikebana.processor.base.texts import shown
from ikebana.processor.checkpoint import parts
from ikebana.processor.checkpoint.checkpoint import Figures, StateFigures
from ikebana.processor.checkpoint.edit_description import (
    EditDescription,
    EditedKind,
    FillSource,
    PartChange,
    RefusedChange,
    Rescaled,
    StateSize,
)
from ikebana.processor.checkpoint.next_step import Desired, Observed, next_step
from ikebana.processor.checkpoint.recorded_plan import edit_to
from ikebana.processor.checkpoint.refusal import Refusal
from ikebana.processor.kernels import arrange, hold, single_value
from ikebana.processor.linear.scope import plain
from ikebana.processor.planning import planner, progress, starts
from ikebana.processor.planning.backfill import plan_without_backfill, read_again
from ikebana.processor.planning.edits import Edit, can_be_recomputed
from ikebana.processor.planning.edits_resolved import with_renamed_input
from ikebana.processor.planning.joins.query import AsOfJoin
from ikebana.processor.planning.joins.stages import Shared, joined
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.plan import ERRORS, Input, Operator, Output, Plan, Reading


class PartSizes:
    """The counts of a state by the parts of plans; None if nothing was counted."""

    def __init__(self, figures: StateFigures | None) -> None:
        self._figures = figures
        self._parts = None if figures is None else figures.parts

    def keys_of_root(self, plan: Plan, root: str) -> int | None:
        """Count the keys that are read for the collection of a root.

        For a join, they are the keys of the arrangement of its first input.
        """
        stages = joined(plan)
        if (origin := stages.origins.get(root)) is not None:
            return self.keys_of_arrangement(origin, stages.arrangements[origin])
        return self._keys(_part_of(plan, root))

    def keys_of_arrangement(self, name: str, shared: Shared) -> int | None:
        """Count the keys of an arrangement, by its name among operators."""
        return self._keys(name if shared.is_own else arrange.PART.prefix + name)

    def bytes_of(self, operator: str) -> int | None:
        """Sum the bytes of all parts of an operator; 0 for one without state."""
        if self._parts is None:
            return None
        # Parts of outputs are left out, because an output may have the name of an operator.
        of_outputs = (hold.OUT.prefix, single_value.PART.prefix)
        return sum(
            each.bytes
            for part, each in self._parts.items()
            if part.rpartition(" ")[2] == operator and not part.startswith(of_outputs)
        )

    def of_edit(self, edit: Edit) -> StateSize | None:
        """Compute the size of the state, and how much of it an edit reads, keeps and releases."""
        if self._figures is None:
            return None
        if self._parts is None:
            return StateSize(self._figures.files_bytes)
        stays = parts.parts_of(edit.after)
        whole = sum(each.bytes for each in self._parts.values())
        staying = sum(each.bytes for name, each in self._parts.items() if name in stays)
        stages = joined(edit.after)
        read = [self.keys_of_root(edit.before, root) for root in edit.scanned]
        read += [
            self.keys_of_arrangement(name, stages.arrangements[name])
            for join, name in stages.origins.items()
            if join in edit.fresh and name not in edit.fresh
        ]
        return StateSize(
            self._figures.files_bytes,
            rows_to_read=sum(each or 0 for each in read),
            kept_bytes=staying,
            released_bytes=whole - staying,
        )

    def _keys(self, part: str) -> int | None:
        return None if self._parts is None else self._parts.get(part, Figures()).keys


def _part_of(plan: Plan, root: str) -> str:
    """Name the part of the state that has the collection of a root."""
    operator = next((o for o in plan.operators if o.name == root), None)
    part = None if operator is None else kind_of(operator).part(operator)
    return root if part is None else part.prefix + root


_SECTIONS: dict[EditedKind, str] = {
    "input": "inputs",
    "operator": "operators",
    "output": "outputs",
    "arrangement": "arrangements",
}


def part_changes(
    edit: Edit,
    written: Plan,
    refused: Sequence[RefusedChange] = (),
    figures: StateFigures | None = None,
) -> tuple[tuple[PartChange, ...], StateSize | None]:
    """Describe each part, and the size of the state as far as it was counted.

    `written` is the new plan with the names that its user wrote.
    """
    sizes = PartSizes(figures)
    bad = {each.path for each in refused}
    parts = [
        msgspec.structs.replace(part, does="refused", shows="nothing", filled_from=())
        if any(_is_at(path, part) for path in bad)
        else part
        for part in _Description(edit, written, sizes).parts()
    ]
    return tuple(parts), sizes.of_edit(edit)


def without_checkpoint(plan: Plan, checkpoint: str) -> EditDescription:
    """Describe a plan that begins without a checkpoint."""
    edit = Edit(
        Plan(plan.name, (), (), (), plan.error_topic, plan.time, plan.on_error),
        plan,
        fresh=frozenset(progress.edges(plan)),
        gone=frozenset(),
        replaced=frozenset(),
        added=frozenset(output.name for output in plan.outputs),
        removed=frozenset(),
    )
    parts = tuple(
        # Without state, parts can only be filled from topics.
        part if part.kind == "input" else msgspec.structs.replace(part, filled_from=())
        for part in _Description(edit, plan, PartSizes(None)).parts()
    )
    return EditDescription(plan.name, checkpoint, edited=True, is_new=True, parts=parts)


def _is_at(path: str, part: PartChange) -> bool:
    # Refusals name renamed parts by their names in the checkpoint.
    places = [f"{_SECTIONS[part.kind]}.{name}" for name in (part.name, part.was or part.name)]
    return any(path == place or path.startswith(place + ".") for place in places)


class _Description:
    """Describes the parts of two plans with the names of the checkpoint."""

    def __init__(self, edit: Edit, written: Plan, sizes: PartSizes) -> None:
        self._edit, self._sizes = edit, sizes
        self._before = {each.name: each for each in edit.before.operators}
        self._after = {each.name: each for each in edit.after.operators}
        # Resolving names does not change the order of parts.
        operators = zip(written.operators, edit.after.operators, strict=True)
        outputs = zip(written.outputs, edit.after.outputs, strict=True)
        self._named = {after.name: of_user.name for of_user, after in operators}
        self._named_outputs = {after.name: of_user.name for of_user, after in outputs}
        inputs = zip(written.inputs, edit.after.inputs, strict=True)
        self._named_inputs = {after.name: of_user.name for of_user, after in inputs}
        self._former = {name: self._former_of(each) for name, each in self._after.items()}
        self._stays: dict[str, bool] = {}

    def parts(self) -> Iterator[PartChange]:
        """Yield inputs, operators, arrangements and outputs; removed ones come last in each."""
        yield from self._inputs()
        yield from self._operators()
        yield from self._arrangements()
        yield from self._outputs()
        yield from _errors_of_ended(self._edit)

    def _name(self, name: str) -> str:
        """The name of a part for users."""
        return self._named.get(name) or self._named_inputs.get(name) or shown(name)

    def _inputs(self) -> Iterator[PartChange]:
        edit = self._edit
        before = {source.name: source for source in plan_without_backfill(edit.before).inputs}
        after = {source.name: source for source in edit.after.inputs}
        again = read_again(edit.before, edit.after)
        for name, source in after.items():
            user_name = self._named_inputs[name]
            if name in before:
                why = self._reading_as_before(name)
                part = PartChange("input", user_name, "stays", source.value_format, why=why)
                if user_name != shown(name):
                    part = msgspec.structs.replace(part, does="renamed", was=shown(name))
                yield part
            elif name in again:
                yield self._read_again(user_name, source)
            else:
                yield _new_input(source)
        remaining = {shown(name) for name in after}
        for name, source in before.items():
            if name not in after and shown(name) not in remaining:
                why = "it is not read any more"
                yield PartChange("input", shown(name), "dropped", source.value_format, why=why)

    def _read_again(self, name: str, source: Input) -> PartChange:
        """Describe an input that is read again from its beginning, while others go on."""
        existed = any(shown(each.name) == name for each in self._edit.before.inputs)
        topics = " and ".join(f'"{topic}"' for topic in source.topics)
        begin = "its beginning" if source.start == "earliest" else "where reading began"
        return PartChange(
            "input",
            name,
            "replaced" if existed else "new",
            source.value_format,
            why=f"{topics} is read again from {begin}, while the plan of before goes on",
            filled_from=tuple(FillSource("topic", topic) for topic in source.topics),
        )

    def _reading_as_before(self, name: str) -> str:
        """Describe how an input is read as before, if the new plan alone would change that."""
        after = self._edit.after
        reading = dict(after.readings).get(name)
        if reading is None:
            return ""
        alone = planner.physical(replace(after, readings=())).readings.get(name)
        return "" if alone == reading else f"is read as before, with {_reading_words(reading)}"

    def _operators(self) -> Iterator[PartChange]:
        for name, operator in self._after.items():
            yield self._operator(name, operator)
        for name, operator in self._before.items():
            if operator not in self._former.values():
                kind = kind_of(operator)
                yield PartChange(
                    "operator",
                    shown(name),
                    "dropped",
                    kind.label,
                    why="" if kind.is_linear else "its state is released",
                    bytes=self._sizes.bytes_of(name),
                )

    def _operator(self, name: str, operator: Operator) -> PartChange:
        kind, old = kind_of(operator), self._former[name]
        part = PartChange("operator", self._name(name), "stays", kind.label)
        if old is None:
            origins = tuple(self._origins(operator))
            return msgspec.structs.replace(part, does="new", filled_from=origins)
        part = msgspec.structs.replace(part, bytes=self._sizes.bytes_of(old.name))
        if self._goes_on(name):
            if self._name(name) == shown(old.name):
                return part
            return msgspec.structs.replace(part, does="renamed", was=shown(old.name))
        why = [self._why_replaced(operator, old)]
        if isinstance(operator, AsOfJoin):
            why.append("all rows of its left meet what its right has now")
        return msgspec.structs.replace(
            part,
            does="replaced",
            filled_from=tuple(self._origins(operator)),
            why=", ".join(filter(None, why)),
        )

    def _former_of(self, operator: Operator) -> Operator | None:
        """Find the operator of the old plan that an operator continues or replaces."""
        if (same := self._before.get(operator.name)) is not None:
            return same
        user_name = self._name(operator.name)
        in_both = self._before.keys() & self._after.keys()
        for name, old in self._before.items():
            if name not in in_both and shown(name) == user_name:
                return old
        for name, old in self._before.items():
            # An operator without state can be renamed without any record.
            if name not in in_both and kind_of(old).is_linear and _called(operator, name) == old:
                return old
        return None

    def _why_replaced(self, operator: Operator, old: Operator) -> str:
        """Explain a replacement: by another definition, or by another collection as its source."""
        was = kind_of(old).with_sources(_called(old, ""), shown)
        now = kind_of(operator).with_sources(_called(operator, ""), self._name)
        was, now = (
            with_renamed_input(each, {source.name: shown(source.name) for source in plan.inputs})
            for each, plan in ((was, self._edit.before), (now, self._edit.after))
        )
        if was != now:
            return "since it is defined otherwise"
        changed = [
            self._name(source)
            for source in kind_of(operator).sources(operator)
            if not self._goes_on(source)
        ]
        if not changed:
            return ""
        return f"since it reads {' and '.join(changed)}, which is another collection now"

    def _goes_on(self, name: str) -> bool:
        """Whether a collection is unchanged, with its state if it has one."""
        if name not in self._stays:
            self._stays[name] = self._is_as_it_was(name)
        return self._stays[name]

    def _is_as_it_was(self, name: str) -> bool:
        operator = self._after.get(name)
        if operator is None:
            return any(
                source.name == name for source in plan_without_backfill(self._edit.before).inputs
            )
        kind, old = kind_of(operator), self._former[name]
        if not kind.is_linear:
            return name not in self._edit.fresh
        if old is None or _called(operator, old.name) != old:
            return False
        return all(self._goes_on(source) for source in kind.sources(operator))

    def _origins(self, operator: Operator) -> Iterator[FillSource]:
        """Yield the sources from which a fresh operator is filled; none for one without state."""
        after, kind = self._edit.after, kind_of(operator)
        if kind.is_linear:
            return
        if kind.reads_rows:
            read_before = {
                source.name for source in plan_without_backfill(self._edit.before).inputs
            }
            for source in kind.sources(operator):
                if source not in read_before:
                    yield from (FillSource("topic", topic) for topic in after.input(source).topics)
        elif operator.name in joined(after).last:
            stages = joined(after).stages.values()
            asked = [stage.looks_up for stage in stages if stage.join == operator.name]
            first = joined(after).origins.get(operator.name)
            if (filled := self._edit.filled_joins.get(operator.name)) is not None:
                yield from self._roots(filled)
            for name in dict.fromkeys([*([first] if first else []), *asked]):
                yield self._arranged(name)
        else:
            yield from self._roots(operator.name)

    def _roots(self, name: str) -> Iterator[FillSource]:
        """Yield the roots from which a reduction or an arrangement gets its data."""
        edge = progress.edges(self._edit.after)[name]
        for root in (*edge.after, *edge.exchanges):
            yield self._root(self._edit.after, root)

    def _root(self, plan: Plan, root: str) -> FillSource:
        name = self._name(root)
        if plan is self._edit.after and root in self._edit.fresh:
            return FillSource("operator", name)
        kind: Literal["join", "state"] = "join" if can_be_recomputed(plan, root) else "state"
        return FillSource(kind, name, self._sizes.keys_of_root(plan, root))

    def _arranged(self, name: str) -> FillSource:
        shared = joined(self._edit.after).arrangements[name]
        rows = None
        if name not in self._edit.fresh:
            rows = self._sizes.keys_of_arrangement(name, shared)
        return FillSource("arrangement", self._title(shared), rows)

    def _title(self, shared: Shared) -> str:
        of = shared.arrangement
        return plain(str(replace(of, relation=self._name(of.relation))))

    def _arrangements(self) -> Iterator[PartChange]:
        """Yield the arrangements that joins make, but not those that are an upsert's own state."""
        old, new = joined(self._edit.before).arrangements, joined(self._edit.after).arrangements
        for name, each in new.items():
            if not each.is_own:
                part = PartChange("arrangement", self._title(each), "stays")
                if name in self._edit.fresh:
                    origins = tuple(self._roots(name))
                    yield msgspec.structs.replace(part, does="new", filled_from=origins)
                else:
                    yield msgspec.structs.replace(part, bytes=self._sizes.bytes_of(name))
        for name, each in old.items():
            if not each.is_own and name not in new:
                yield PartChange(
                    "arrangement",
                    plain(shown(str(each.arrangement))),
                    "dropped",
                    why="its state is released",
                    bytes=self._sizes.bytes_of(name),
                )

    def _outputs(self) -> Iterator[PartChange]:
        edit = self._edit
        for output in edit.after.outputs:
            name = self._named_outputs[output.name]
            part = PartChange("output", name, "stays", output.format, topic=output.topic)
            if output.name in edit.added or output.name in edit.others:
                is_new = output.name in edit.added
                part = msgspec.structs.replace(
                    part,
                    does="new" if is_new else "replaced",
                    shows="everything" if is_new else "difference",
                    filled_from=tuple(self._shown_of(output)),
                )
            elif name != shown(output.name):
                part = msgspec.structs.replace(part, does="renamed")
            if name != shown(output.name) and output.name not in edit.added:
                part = msgspec.structs.replace(part, was=shown(output.name))
            yield part
        for output in edit.before.outputs:
            if output.name in edit.removed:
                yield PartChange(
                    "output",
                    shown(output.name),
                    "dropped",
                    output.format,
                    shows="end",
                    topic=output.topic,
                    why="nothing more is written",
                )

    def _shown_of(self, output: Output) -> Iterator[FillSource]:
        """Yield the roots of the old and of the new collection of an output."""
        edit = self._edit
        plans = [edit.before, edit.after] if output.name in edit.replaced else [edit.after]
        if output.name in edit.own_topics:
            plans.remove(edit.before)
        origins: dict[str, FillSource] = {}
        for plan in plans:
            for root in progress.producers(plan)[output.name]:
                origins.setdefault(root, self._root(plan, root))
        yield from origins.values()
        if output.name in edit.own_topics:
            yield FillSource("own", output.topic)


def _called(operator: Operator, name: str) -> Operator:
    return msgspec.structs.replace(operator, name=name)


def _new_input(source: Input) -> PartChange:
    origins = tuple(FillSource("topic", topic) for topic in source.topics)
    topics = " and ".join(f'"{topic}"' for topic in source.topics)
    latest = source.start == "latest"
    return PartChange(
        "input",
        source.name,
        "new",
        source.value_format,
        why=f"{topics} is read from {starts.words(source.start)}",
        filled_from=() if latest else origins,
    )


def _reading_words(reading: Reading) -> str:
    words = []
    if reading.columns is not None:
        words.append(
            f"the columns {', '.join(reading.columns)}" if reading.columns else "no column"
        )
    if reading.key_filters:
        words.append("the rows of some keys")
    if reading.pushed:
        steps = dict.fromkeys(shown(step) for step, _ in reading.pushed)
        words.append(f"what {', '.join(steps)} makes")
    return " and ".join(words) or "whole rows"


def _errors_of_ended(edit: Edit) -> Iterator[PartChange]:
    """Yield the error topic as a part, if the edit retracts errors in it."""
    if not edit.ended_errors:
        return
    which = "all errors" if edit.ended_errors.everything else "errors of what ends"
    why = f"{which} are taken back"
    if edit.ended_errors.everything:
        why += ", since errors.policy is drop now"
    topic = edit.after.error_topic
    yield PartChange(
        "output",
        ERRORS,
        "replaced",
        "diff",
        why=why,
        filled_from=(FillSource("own", topic),),
        shows="difference",
        topic=topic,
    )


def describe(
    location: str,
    observed: Observed | None,
    desired: Desired,
    figures: StateFigures | None = None,
) -> EditDescription:
    """Describe what a run of a plan would change, with the reasons if it would be refused.

    Without a checkpoint everything is new.  `figures` are the sizes of the state.  Whether the
    topics belong to the checkpoint is checked by `preflight`, not here.
    """
    plan = desired.plan
    if observed is None:
        return without_checkpoint(plan, location)
    metadata, offset = observed.metadata, observed.logged.offset
    step = next_step(observed, desired)
    refused = _refused(step) if isinstance(step, Refusal) else ()
    edited = isinstance(step, Refusal) or step.following.after != metadata
    edit = edit_to(metadata, plan)
    parts: tuple[PartChange, ...] = ()
    state: StateSize | None = None
    if edit is not None:
        parts, state = part_changes(edit, plan, refused, figures)
    if not edited:
        # Without an edit, a part that was renamed in an earlier one counts as unchanged.
        parts = tuple(_as_before(part) for part in parts)
    return EditDescription(
        plan.name,
        location,
        edited=edited,
        parts=parts,
        frontier=None if offset is None else offset.upper,
        refused=refused,
        state=state,
        finishes=None if isinstance(step, Refusal) else step.pending,
        rescaled=(
            None
            if desired.shards == metadata.shards
            else Rescaled(metadata.shards, desired.shards)
        ),
    )


def _refused(refusal: Refusal) -> tuple[RefusedChange, ...]:
    """Name each change that a run would refuse, or the reason why it would refuse any."""
    if not refusal.problems:
        return (RefusedChange("", refusal.message, refusal.hint or ""),)
    return tuple(RefusedChange(each.path, each.reason, each.remedy) for each in refusal.problems)


def _as_before(part: PartChange) -> PartChange:
    return msgspec.structs.replace(part, does="stays") if part.does == "renamed" else part
