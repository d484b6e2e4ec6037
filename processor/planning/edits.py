"""Compare two plans that run one after the other on one checkpoint.

A part of the new plan *stays* if its definition and all of its sources are unchanged: its state
is kept.  Any other operator with state is *fresh*: it begins at the frontier of the edit, with
the contents that its sources have then.  `edits_resolved` names the parts so that they can be
compared.

If an edit changes the collection of an output that stays, the output gets the difference between
the new and the old collection, as updates at the edit's time.
"""

# Decision (new as-of joins from the state): A new as-of join without an arrangement of its left
# takes the edit's portions as rows of the time t, as hydration would give them. Its left would
# need an arrangement for nothing else.

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

from ikebana.codecs import canonical
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.sharding import shown
from ikebana.processor.planning import planner, progress
from ikebana.processor.planning.backfill import core
from ikebana.processor.planning.graph import graph_of
from ikebana.processor.planning.joined import joined
from ikebana.processor.planning.joins.query import DeltaJoin
from ikebana.processor.planning.operators.table import kind_of
from ikebana.processor.planning.plan import ERRORS, Output, Plan
from ikebana.processor.planning.planner import Branch

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
Side = Literal[-1, 1]


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
    def sides(self) -> tuple[tuple[Plan, Side], tuple[Plan, Side]]:
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
        inputs = [source for source in core(before).inputs if source.name not in names]
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
        return self.standing - others - joined(self.after).stages.keys()

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
            first = stages.begins(join.name)
            edge = progress.edges(self.after)[first]
            if all(
                root not in stages.arrangements
                and (root in self.fresh or has_contents(self.after, root))
                for root in (*edge.after, *edge.hops)
            ):
                joins[join.name] = first
        return joins

    @cached_property
    def standing(self) -> frozenset[str]:
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
        first = {join: stages.stages[stages.begins(join)].alias for join in self.joins_before}
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

    def goes(self, branch: Branch, sign: Side) -> bool:
        """Whether any output or operator takes the results of a branch of a side."""
        return bool(self.shown_by(branch, sign) or (sign > 0 and self.taken_from(branch)))

    def shown_by(self, branch: Branch, sign: Side) -> list[str]:
        """List the outputs that take the results of a branch of a side.

        An output of a concatenation of a collection with itself is named twice.
        """
        changed = self.affected if sign > 0 else self.replaced - self.own_topics
        return [name for name in branch.outputs if name in changed]

    def taken_from(self, branch: Branch) -> frozenset[str]:
        """List the fresh operators that are filled with the results of a branch."""
        takers = self.takers.union(self.filled_joins.values())
        return takers & {*branch.inlets, *branch.hops}

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
def edit_of(before: Plan, after: Plan) -> Edit:
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
