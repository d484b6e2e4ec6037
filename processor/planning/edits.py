"""Compare two plans that run one after the other on one checkpoint, and say which edits cannot be.

A part of the new plan *stays* if its definition and all of its sources are unchanged: its state
is kept.  Any other operator with state is *fresh*: it begins at the frontier of the edit, with
the contents that its sources have then.  `edits_resolved` names the parts so that they can be
compared.

If an edit changes the collection of an output that stays, the output gets the difference between
the new and the old collection, as updates at the edit's time.

Problems of an edit say what to do instead.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.formats import OUTPUT_FORMATS
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.texts import shown
from ikebana.processor.planning import outputs, planner, progress
from ikebana.processor.planning.backfill import plan_without_backfill, why_not
from ikebana.processor.planning.edits_resolved import WRITTEN, inputs_of_state
from ikebana.processor.planning.graph import graph_of
from ikebana.processor.planning.identity import without_free_settings
from ikebana.processor.planning.joins.query import DeltaJoin
from ikebana.processor.planning.joins.stages import joined
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.plan import ERRORS, Operator, Output, Plan, StateMachine
from ikebana.processor.planning.planner import Branch

# Decision (new as-of joins from the state): A new as-of join without an arrangement of its left
# takes the edit's portions as rows of the time t, as hydration would give them. Its left would
# need an arrangement for nothing else.

# Reasons begin with the kind and the name of the part that made an error; names have no space.
_STEP, _OUTPUT, _INPUT = "operator ", "output ", "input "
_AT = " at time "


@dataclass(frozen=True, slots=True)
class EndedErrors:
    """The errors that end: all of them (`everything`), or those of these topics and writers.

    * `topics`: the topics that nothing reads any more;
    * `writers`: the beginnings of reasons, as in "output late".
    """

    everything: bool = False
    topics: frozenset[str] = frozenset()
    writers: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.everything or bool(self.topics or self.writers)

    def of(self, updates: Iterable[KeyedUpdate]) -> list[KeyedUpdate]:
        """The updates of ended error records, among these, that no state has."""
        return [update for update in updates if self._has(update)]

    def _has(self, update: KeyedUpdate) -> bool:
        if self.everything:
            return True
        record = canonical.decode(update.value)
        writer = record["reason"].partition(": ")[0].partition(_AT)[0]
        if writer.startswith((_STEP, _OUTPUT)):
            return writer in self.writers
        # The state has the errors of keys.
        return update.key is None and (
            writer in self.writers if writer.startswith(_INPUT) else record["topic"] in self.topics
        )


def of_steps(ended: Iterable[str], others: Iterable[str]) -> frozenset[str]:
    """The beginnings of errors of ended operators or steps, except names that others share.

    Their names are those in the checkpoint; errors have the names that users know.
    """
    return frozenset(_STEP + name for name in {*map(shown, ended)}.difference(map(shown, others)))


def of_inputs(ended: Iterable[str]) -> frozenset[str]:
    """The beginnings of errors of inputs that share their topics."""
    return frozenset(_INPUT + name for name in ended)


def of_outputs(ended: Iterable[str]) -> frozenset[str]:
    """The beginnings of errors of outputs."""
    return frozenset(_OUTPUT + name for name in ended)


# The old plan (-1) or the new one (1): the sign with which contents count in the difference.
PlanSign = Literal[-1, 1]


@dataclass(frozen=True)
class Edit:
    """Two plans with the names that their parts have in the checkpoint.

    * `fresh`: the operators of `after` that begin with the edit, among them arrangements and
      stages of joins.
    * `gone`: the roots of `before` that end with it.
    * `replaced`, `added`, `removed`: the outputs with a changed collection, new outputs, and
      outputs that end.
    """

    before: Plan
    after: Plan
    fresh: frozenset[str]
    gone: frozenset[str]
    replaced: frozenset[str]
    added: frozenset[str]
    removed: frozenset[str]

    @property
    def sides(self) -> tuple[tuple[Plan, PlanSign], tuple[Plan, PlanSign]]:
        """Both plans, with the signs with which they count."""
        return (self.before, -1), (self.after, 1)

    @cached_property
    def affected(self) -> frozenset[str]:
        """The outputs that get updates at the time of the edit."""
        return self.replaced | self.added

    @cached_property
    def own_topics(self) -> frozenset[str]:
        """Replaced outputs with old contents that cannot be computed from state.

        They are read from the own topics of the outputs.  Contents that no state has, but that
        are the same in both plans, are not read: they stay in the topic.
        """
        names = {
            name
            for root, branches in planner.physical(self.before).branches.items()
            if not has_contents(self.before, root)
            for branch in branches
            if branch not in branches_of(self.after, root)
            for name in self.replaced.intersection(branch.outputs)
        }
        return frozenset(names | {ERRORS} if self.ended_errors.everything else names)

    @cached_property
    def read_back(self) -> dict[str, str]:
        """The outputs to read from their topics, by topic, if messages are updates or facts.

        The error topic is among them if errors end that only it has.
        """
        names = self.own_topics | {ERRORS} if self.ended_errors else self.own_topics
        return {
            output.topic: output.name
            for output in self.after.published
            if output.name in names and output.traits.codec is None
        }

    @cached_property
    def ended_errors(self) -> EndedErrors:
        """The errors that the edit retracts from the error topic."""
        before, after = self.before, self.after
        if before.on_error == "drop":
            # Nothing was written.
            return EndedErrors()
        if after.on_error == "drop":
            return EndedErrors(everything=True)
        names = {source.name for source in after.inputs}
        inputs = [
            source for source in plan_without_backfill(before).inputs if source.name not in names
        ]
        named = {i.name for i in inputs if i.mode != "upsert" or before.shares_topics(i)}
        topics = {topic for source in inputs for topic in source.topics}
        formatted = [each.name for each in before.outputs if not each.traits.as_updates]
        outputs = of_outputs(self.removed.intersection(formatted))
        return EndedErrors(
            topics=frozenset(topics.difference(after.topics)),
            writers=of_inputs(named) | outputs | self._steps_ended(),
        )

    def _steps_ended(self) -> frozenset[str]:
        """Prefixes of errors of ended as-of joins, and of removed steps without rows in state."""
        before, in_state = planner.physical(self.before).branches, set[str]()
        ended = {
            join.name
            for join in self.before.joins
            if join.name in self.gone and not can_be_recomputed(self.before, join.name)
        }
        for root, branches in before.items():
            steps = {name for branch in branches for name, _ in branch.steps}
            if has_contents(self.before, root):
                in_state |= steps
            else:
                go_on = branches_of(self.after, root)
                ended |= steps - {name for branch in go_on for name, _ in branch.steps}
        others = in_state | {each.name for each in self.before.operators if each.name not in ended}
        return of_steps(ended - in_state, others)

    @cached_property
    def others(self) -> frozenset[str]:
        """The outputs that show other data than before, not only renamed steps."""
        return frozenset(filter(self._shows_other, self.replaced))

    def _shows_other(self, name: str) -> bool:
        sides = []
        for plan, _ in self.sides:
            (output,) = (each for each in plan.outputs if each.name == name)
            ends = [
                (
                    # An operator that ends differs from one that begins, even under the same name.
                    way.root if way.root not in self.fresh | self.gone else (id(plan), way.root),
                    [step for _, step in way.steps],
                )
                for way in graph_of(plan).ways(output.source)
            ]
            sides.append(sorted(map(repr, ends)))
        return sides[0] != sides[1]

    @cached_property
    def takers(self) -> frozenset[str]:
        """The fresh operators that are filled from the state.

        Joins and their stages are not: they wait until the arrangements that they look up are
        filled.  Operators that read the rows of an input have nothing to be filled with, and
        outputs get the difference.
        """
        others = {join.name for join in self.after.joins}
        others.update(planner.gathered(self.after).values())
        return self.frozen - others - joined(self.after).stages.keys()

    @cached_property
    def filled_joins(self) -> dict[str, str]:
        """New as-of joins with a left that comes from state, each with its first stage.

        No arrangement has their lefts.  They begin as joins with an arrangement do: at the edit's
        time, with the rows from before it.
        """
        stages = joined(self.after)
        joins = {}
        for join in self.after.joins:
            if join.name not in self.fresh or join.name in stages.origins:
                continue
            first = stages.first_stage(join.name)
            edge = progress.edges(self.after)[first]
            if all(
                root not in stages.arrangements
                and (root in self.fresh or has_contents(self.after, root))
                for root in (*edge.after, *edge.exchanges)
            ):
                joins[join.name] = first
        return joins

    @cached_property
    def frozen(self) -> frozenset[str]:
        """Fresh operators that wait at the edit's time until the edit is filled."""
        graph = progress.edges(self.after)
        return frozenset(name for name in self.fresh if not graph[name].from_source)

    @cached_property
    def scanned(self) -> tuple[str, ...]:
        """The roots that the edit has to read, in a fixed order."""
        return tuple(
            root
            for root in graph_of(self.before).roots
            if root in self.gone
            or self.passes_differ(root)
            or any(
                self.goes(branch, sign)
                for plan, sign in self.sides
                for branch in branches_of(plan, root)
            )
        )

    @cached_property
    def joins_before(self) -> tuple[str, ...]:
        """Joins of the old plan with results that the edit computes again.

        They keep no results, but their arrangements have everything that is needed.
        """
        return tuple(root for root in self.scanned if can_be_recomputed(self.before, root))

    @cached_property
    def looked_up(self) -> frozenset[str]:
        """The arrangements of the old plan from which these results are computed."""
        stages = joined(self.before)
        first = {join: stages.stages[stages.first_stage(join)].alias for join in self.joins_before}
        return frozenset(
            name
            for stage in stages.stages.values()
            if first.get(stage.join) == stage.alias
            for name in (stage.looks_up, stages.origins[stage.join])
        )

    @cached_property
    def moving(self) -> frozenset[str]:
        """Operators that the edit reads while they keep running."""
        roots = {root for root in self.scanned if root not in self.joins_before}
        return frozenset(roots - self.gone)

    def goes(self, branch: Branch, sign: PlanSign) -> bool:
        """Whether any output or operator takes the results of a branch of a side."""
        return bool(self.shown_by(branch, sign) or (sign > 0 and self.filled_with(branch)))

    def shown_by(self, branch: Branch, sign: PlanSign) -> list[str]:
        """List the outputs that take the results of a branch of a side.

        An output of a concatenation of a collection with itself is named twice.
        """
        changed = self.affected if sign > 0 else self.replaced - self.own_topics
        return [name for name in branch.outputs if name in changed]

    def filled_with(self, branch: Branch) -> frozenset[str]:
        """List the fresh operators that are filled with the results of a branch."""
        takers = self.takers.union(self.filled_joins.values())
        return takers & {*branch.inlets, *branch.exchanges}

    def passes_differ(self, root: str) -> bool:
        """Whether the steps after a root change, so that other rows may fail on them."""
        old, new = (
            {branch.steps for branch in branches_of(plan, root) if branch.steps}
            for plan, _ in self.sides
        )
        return old != new


def has_contents(plan: Plan, root: str) -> bool:
    """Whether the whole collection of a root is in the state, or can be computed from it."""
    operator = next((each for each in plan.operators if each.name == root), None)
    in_state = operator is not None and kind_of(operator).part(operator) is not None
    return in_state or can_be_recomputed(plan, root)


def can_be_recomputed(plan: Plan, root: str) -> bool:
    """Whether a root is a join with results that are a function of its inputs' contents now.

    The results of an as-of join are not: they depend on when each row of the left arrived.
    """
    is_delta = any(join.name == root and isinstance(join, DeltaJoin) for join in plan.joins)
    return is_delta and root in joined(plan).origins


def branches_of(plan: Plan, root: str) -> tuple[Branch, ...]:
    """List the branches of a root; none if the plan lacks the root."""
    return tuple(planner.physical(plan).branches.get(root, ()))


@lru_cache(maxsize=8)
def edit_between(before: Plan, after: Plan) -> Edit:
    """Compare two plans with the names of parts in the checkpoint."""
    old, new = set(progress.edges(before)), set(progress.edges(after))
    staying = old & new
    outputs = {output.name: output for output in before.outputs}
    replaced = {
        output.name
        for output in after.outputs
        if output.name in outputs
        and _collection(before, outputs[output.name], staying)
        != _collection(after, output, staying)
    }
    names = {output.name for output in after.outputs}
    return Edit(
        before,
        after,
        fresh=frozenset(new - old),
        gone=frozenset(graph_of(before).roots) - new,
        replaced=frozenset(replaced),
        added=frozenset(names - outputs.keys()),
        removed=frozenset(outputs.keys() - names),
    )


def _collection(plan: Plan, output: Output, staying: set[str]) -> Any:
    """Describe an output's collection by its ways from roots; roots that do not stay differ."""
    ends = [
        (way.root if way.root in staying else (id(plan), way.root), way.steps)
        for way in graph_of(plan).ways(output.source)
    ]
    return sorted(map(repr, ends))


START_ANEW = (
    "start with a new checkpoint, a new pipeline name, new output topics, and a new errors.topic "
    "if one is named"
)


class EditProblem(NamedTuple):
    """Why an edit cannot be made: the path in the file, the reason, and an alternative."""

    path: str
    reason: str
    instead: str = ""

    @property
    def remedy(self) -> str:
        """The action to take."""
        if not self.instead:
            return f"Leave {self.path} as it was, or {START_ANEW}."
        return f"{self.instead}; or leave {self.path} as it was, or {START_ANEW}."


def edit_problems(edit: Edit, used: Mapping[str, int], user_plan: Plan) -> Iterator[EditProblem]:
    """Yield each reason why an edit cannot be made on the checkpoint.

    `used` has the last generations before the edit.  `user_plan` is the new plan with the names of
    its user: the edit has renamed parts under their names in the checkpoint.
    """
    names = {
        f"{section}.{shown(part.name)}": f"{section}.{shown(named.name)}"
        for section in ("inputs", "operators", "outputs")
        for part, named in zip(
            getattr(edit.after, section), getattr(user_plan, section), strict=True
        )
    }
    for each in _problems(edit, used):
        # Names may have dots themselves.
        parts = [part for part in names if f"{each.path}.".startswith(f"{part}.")]
        part = max(parts, key=len, default="")
        yield each._replace(path=names.get(part, "") + each.path[len(part) :])


def _problems(edit: Edit, used: Mapping[str, int]) -> Iterator[EditProblem]:
    before, after = edit.before, edit.after
    for part in ("name", "time", "error_topic", "is_dated", "transaction_topics"):
        old, new = getattr(before, part), getattr(after, part)
        if old != new:
            was, now = (msgspec.json.encode(each).decode() for each in (old, new))
            path = _PATHS.get(part, part)
            yield EditProblem(path, f"was {was}, is {now}, which no edit can change")
    if before.on_error == "drop" and after.on_error != "drop":
        yield EditProblem(
            "errors.policy",
            f"was drop, is {after.on_error}: nothing knows which errors stand that were dropped, "
            "and each one would be taken back that was never written",
            "Move the checkpoint away, and create it again by `ikebana recover` with this file, "
            "which writes the errors that there are",
        )
    yield from _inputs(before, after)
    yield from _readers(edit)
    yield from _machines(edit)
    yield from _outputs(edit, used)
    yield from _rows(before, after)
    yield from _sources_missing(edit)
    yield from _joins(edit)


_PATHS = {"error_topic": "errors.topic", "is_dated": "event_time"}


def _inputs(before: Plan, after: Plan) -> Iterator[EditProblem]:
    old_inputs = {source.name: source for source in before.inputs}
    names = {source.name for source in after.inputs}
    for source in after.inputs:
        old = old_inputs.get(source.name)
        if old is None and source.history is not None:
            yield EditProblem(
                f"inputs.{source.name}.history",
                "is read by a new checkpoint alone, and the input is added to one",
                "Write the rows to a topic, and read that by the input as well",
            )
        if old is None:
            read = [t for t in source.topics if t in before.topics]
            if read and (why := why_not(before, source)) is not None:
                reader = next(s.name for s in before.inputs if read[0] in s.topics)
                yield EditProblem(
                    f"inputs.{source.name}",
                    f'is new, and topic "{read[0]}" has been read already: {why}',
                    f'Read the topic by the input "{reader}", as before'
                    if reader in names
                    else f'Call it "{reader}", as the input was called that has read the topic',
                )
        elif without_free_settings(old) != without_free_settings(source):
            yield EditProblem(
                f"inputs.{source.name}",
                f"was changed: {why_not(before, source) or _OTHER_TOPIC}",
                "Leave it, and read another topic by a new input beside it",
            )


def _machines(edit: Edit) -> Iterator[EditProblem]:
    """Yield machines that keep states of another version, and cannot read them.

    The batch with the first such state would fail, and so would every retry.
    """
    before = {each.name: each for each in edit.before.operators if isinstance(each, StateMachine)}
    for machine in edit.after.operators:
        if not isinstance(machine, StateMachine) or machine.name in edit.fresh:
            continue
        old = before.get(machine.name)
        if old is not None and old.version != machine.version and machine.migrate is None:
            yield EditProblem(
                f"operators.{shown(machine.name)}",
                f"has version {machine.version}, and its states are of version {old.version} or "
                "before, which nothing converts",
                f"Give it a `migrate` for them, or version {old.version} again",
            )


_NOT_AGAIN = "what its topic has had is not read again"
_OTHER_TOPIC = "it reads another topic, and nothing says what is in both"


def _readers(edit: Edit) -> Iterator[EditProblem]:
    """Yield operators that need an input from its beginning, if it cannot be read again."""
    # An input that was changed itself is reported already.
    old_inputs = {
        source.name
        for source in edit.before.inputs
        if not any(
            s.name == source.name and without_free_settings(s) != without_free_settings(source)
            for s in edit.after.inputs
        )
    }
    old = {shown(operator.name) for operator in edit.before.operators}
    for operator in edit.after.operators:
        kind = kind_of(operator)
        if not kind.reads_rows or operator.name not in edit.fresh:
            continue
        read = [source for source in kind.sources(operator) if source in old_inputs]
        name = shown(operator.name)
        is_what = "was changed" if name in old else "is new"
        is_machine = isinstance(operator, StateMachine) and name in old
        remedy = " (with a greater version it goes on with its states)" if is_machine else ""
        for source in read:
            keeps = [
                shown(each.name)
                for each in edit.after.operators
                if each.name not in edit.fresh
                and kind_of(each).part(each) is not None
                and source in kind_of(each).sources(each)
            ]
            instead = "Read a copy of the topic by a new input"
            if is_machine:
                instead = "Give it a greater version, and `migrate` its states if need be"
            elif keeps:
                instead = f'Make it of "{keeps[0]}", which keeps what the input has had'
            yield EditProblem(
                f"operators.{name}",
                f'{is_what}, and reads input "{shown(source)}": '
                f"{why_not(edit.before, edit.before.input(source)) or _NOT_AGAIN}{remedy}",
                instead,
            )


def _rows(before: Plan, after: Plan) -> Iterator[EditProblem]:
    old, new = planner.physical(before).readings, planner.physical(after).readings
    for name in sorted(inputs_of_state(before, after)):
        if old[name] == new[name]:
            continue
        columns, steps = old[name].columns, [step for step, _ in old[name].pushed]
        if steps:
            rows = f"what {', '.join(dict.fromkeys(map(shown, steps)))} makes"
        elif columns is not None and not old[name].key_filters:
            rows = f"the columns {', '.join(columns)}"
        else:
            rows = "the rows of some keys"
        yield EditProblem(
            f"inputs.{name}",
            f"has been read so that the state has only {rows}, and the new plan needs more of "
            "its rows (`pushdown: false` keeps whole ones from the start)",
            "Read a copy of its topic by a new input, of which all is kept that is needed now",
        )


def _outputs(edit: Edit, used: Mapping[str, int]) -> Iterator[EditProblem]:
    before = {output.name: output for output in edit.before.outputs}
    topics = {output.topic: output.name for output in edit.before.outputs}
    for output in edit.after.outputs:
        path = f"outputs.{shown(output.name)}"
        if output.name in edit.added and output.topic in topics:
            yield EditProblem(
                path,
                f'writes to topic "{output.topic}", which has been the topic of '
                f'"{shown(topics[output.topic])}" in another format or under that name',
                "Give it a topic that no output has had",
            )
        elif output.name in edit.added and WRITTEN + output.topic in used:
            yield EditProblem(
                path,
                f'writes to topic "{output.topic}", which has what an output has written that is '
                "gone: its progress has ended, and readers would miss the batches since",
                "Give it a topic that no output has had",
            )
        if output.name in edit.others and output.on_change != "difference":
            yield _of_change(edit, before[output.name], output)
        if output.name not in edit.added:
            watched = [
                outputs.watches_values(plan, each)
                for plan, each in ((edit.before, before[output.name]), (edit.after, output))
            ]
            if watched[0] != watched[1]:
                when = "now" if watched[1] else "until now"
                yield EditProblem(
                    path,
                    f"shows what may have several values of a key {when}: give it a new topic",
                    "Give it a topic that no output has had",
                )


def _of_change(edit: Edit, old: Output, new: Output) -> EditProblem:
    """Why an output may not get the difference, and what changed its collection."""
    path = f"outputs.{shown(new.name)}"
    causes = _causes(edit, old, new)
    since = f", since {' and '.join(causes)} changed" if causes else ""
    anew = "ive it a topic that no output has had, in which it begins with all that there is"
    if new.on_change == "new-topic":
        return EditProblem(
            path,
            f"shows other data{since}, for which its on_change wants a new topic",
            f"G{anew}",
        )
    return EditProblem(
        path,
        f"shows other data{since}, which its on_change refuses",
        f"Set its on_change to difference, so that the topic gets that, or g{anew}",
    )


def _causes(edit: Edit, old: Output, new: Output) -> list[str]:
    """The paths of the file with changes that affect an output's collection."""
    before = {shown(operator.name): operator for operator in edit.before.operators}
    after = {operator.name: operator for operator in edit.after.operators}
    causes = []
    if shown(old.source) != shown(new.source):
        causes.append(f"outputs.{shown(new.name)}.from")
    for name in graph_of(edit.after).behind(new.source):
        if (operator := after.get(name)) is None:
            continue
        was = before.get(shown(name))
        if was is None or _as_named(was) != _as_named(operator):
            causes.append(f"operators.{shown(name)}")
    return causes


def _as_named(operator: Operator) -> Operator:
    """An operator with the names that users know."""
    moved: Operator = kind_of(operator).with_sources(operator, shown)
    return msgspec.structs.replace(moved, name=shown(operator.name))


def _sources_missing(edit: Edit) -> Iterator[EditProblem]:
    """Yield collections that new readers need, if the state lacks some of their contents."""
    for plan in (edit.before, edit.after):
        for root, branches in planner.physical(plan).branches.items():
            if not has_contents(plan, root) and (plan is edit.before or root not in edit.fresh):
                for branch in branches:
                    yield from _lacking(edit, plan, root, branch)


_READ_BACK = tuple(name for name, its in OUTPUT_FORMATS.items() if its.codec is None)


def _lacking(edit: Edit, plan: Plan, root: str, branch: planner.Branch) -> Iterator[EditProblem]:
    what = "nothing keeps what it has had"
    instead = "Read a copy of its topic by a new input, which is read from its beginning"
    if any(join.name == root for join in plan.joins):
        what = (
            "the results of an as-of join depend on when the rows of its left came: they are not "
            "kept, and cannot be computed once more"
        )
        instead = (
            "Define it under another name, and show it in a new topic by another output: it "
            "begins there with the rows that its left has now"
        )
    names = edit.affected
    if plan is edit.before:
        names = edit.own_topics.difference(edit.read_back.values())
        what += f", and only topics of the formats {' and '.join(_READ_BACK)} are read back"
        instead = "Show it in a new topic by another output, and drop this one"
    for name in sorted(names & set(branch.outputs)):
        if name not in edit.own_topics and branch in branches_of(edit.before, root):
            # These contents are in the topic, and stay there.
            continue
        reason = f'shows other data of "{shown(root)}", and {what}'
        yield EditProblem(f"outputs.{shown(name)}", reason, instead)
    if plan is edit.after:
        stages, gathered = joined(plan).stages, planner.gathered(plan).values()
        for name in (*branch.inlets, *branch.exchanges):
            if name in edit.fresh and name not in stages and name not in gathered:
                reason = f'is new, and reads "{shown(root)}": {what}'
                yield EditProblem(f"operators.{shown(name)}", reason, instead)


def _joins(edit: Edit) -> Iterator[EditProblem]:
    old, new = joined(edit.before), joined(edit.after)
    for name, stage in new.stages.items():
        if name in old.stages and old.stages[name] != stage:
            yield EditProblem(
                f"operators.{shown(stage.join)}",
                "would be laid out otherwise than it is, since other joins come or go",
                "Give it another name, so that it starts again with what is there",
            )
    for join in edit.after.joins:
        if join.name in edit.fresh - new.origins.keys() - edit.filled_joins.keys():
            relation = shown(join.inputs[0].relation)
            yield EditProblem(
                f"operators.{shown(join.name)}",
                f'is new, and nothing has all that its input "{relation}" was: '
                "it has no arrangement",
                "Let another of its inputs come first, or add it to a new checkpoint",
            )
    timed = {source.name for source in edit.after.inputs if source.event_time is not None}
    for root, branches in planner.physical(edit.after).branches.items():
        for branch in branches:
            if not branch.moves_time and root not in timed:
                continue
            for name in (*branch.inlets, *branch.exchanges):
                reader = new.stages.get(name)
                if reader is not None and name in edit.fresh and root not in edit.fresh:
                    yield EditProblem(
                        f"operators.{shown(reader.join)}",
                        f'is new, and changes of "{shown(root)}" that are not due yet wait '
                        "elsewhere",
                        "Let what moves times come behind the join",
                    )
