"""From a plan to what runs: linear steps fused into branches, what can be pushed pushed.

Every collection that an output shows comes from *roots*: upserts, and inputs in
`mode: diffs`.  The linear operators between a root and its outputs are one *branch*, one
pass; concat only joins branches.  Branches of an upsert run where its updates come out,
those of a diffs input in the task that decodes it.

What is pushed into decoding, and why the result is the same (with `optimized=False`
nothing is, and a property test compares the two):

* *Columns.*  If no branch reads more than some fields, the others are not decoded.
  Equal in those fields, the old and the new value cancel in any case.
* *Conditions over the key.*  Before an upsert only these may drop rows: a key passes
  always or never.  A key that they fail on is let through, to be an error as before.
* *Conditions over the value, and select*, if one branch is all that reads the upsert and
  messages carry whole rows.  They make the symbol, or a tombstone, that the upsert then
  keeps; dropping the symbol instead would leave the old value standing.  A row that they
  fail on has no value and an error record, as it would have behind the upsert.

Outputs are the same in any case.  Errors are the same if every message can be decoded.
One that cannot is no error where its key does not pass; and since a key has one error at
a time, it takes the place of the one that a pushed step has made of the row before it.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ikebana.codecs.progress import Promise
from ikebana.processor.linear.chain import Chain, Named, chain
from ikebana.processor.linear.json_text import BLOB, JSON
from ikebana.processor.linear.scope import KEY, VALUE, ExpressionError, Scope, frozen
from ikebana.processor.linear.steps import Call, Negate, Sql, moves_time
from ikebana.processor.planning.aggregates import arranged, result_scope
from ikebana.processor.planning.plan import (
    PLAIN_FORMATS,
    UPDATE_FORMATS,
    Concat,
    Input,
    Linear,
    Output,
    Plan,
    Reduce,
)

if TYPE_CHECKING:
    from ikebana.processor.linear.query import Query


@dataclass(frozen=True, slots=True)
class Path:
    """One way from a root to a collection."""

    root: str
    steps: tuple[Named, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """Fused steps from a root to the outputs that show the same.

    The first steps of several branches are often those of one operator.  Its errors are
    told by one of them: `silent` are the operators whose errors another branch tells.
    `reductions` get its updates in the same pass, `hops` are those that get them by a hop.
    """

    root: str
    steps: tuple[Named, ...]
    outputs: tuple[str, ...]
    silent: frozenset[str] = frozenset()
    reductions: tuple[str, ...] = ()
    hops: tuple[str, ...] = ()

    @property
    def moves_time(self) -> bool:
        """Whether updates may come out in the future, to be held until then."""
        return any(moves_time(step) for _, step in self.steps)


@dataclass(frozen=True, slots=True)
class Reading:
    """What an input's decoding does besides decoding.

    `columns` are all that is wanted of a row, None for all.  A row is dropped if it passes
    none of `key_filters`, each the conditions of one branch; an empty tuple drops none.
    `pushed` is what makes an upsert's symbols.
    """

    columns: tuple[str, ...] | None = None
    key_filters: tuple[tuple[str, ...], ...] = ()
    pushed: tuple[Named, ...] = ()


@dataclass(frozen=True, slots=True)
class Physical:
    """What runs: how each input is read, and the branches by their roots.

    With `fused`, branches of an input in `mode: diffs` run where it is decoded, else in the
    shards like all others.
    """

    readings: dict[str, Reading]
    branches: dict[str, tuple[Branch, ...]]
    fused: bool = True


@functools.lru_cache(maxsize=32)
def physical(plan: Plan, *, optimized: bool | None = None) -> Physical:
    """Fuse and push down; whether to push is the plan's to say, unless `optimized` does."""
    optimized = plan.pushdown if optimized is None else optimized
    readings = {source.name: Reading() for source in plan.inputs}
    branches: dict[str, tuple[Branch, ...]] = {}
    for root in roots(plan):
        found = tuple(map(_needed, _branches(plan, root)))
        if optimized and _is_of_input(plan, root):
            source = input_of(plan, root)
            if source.value_format not in UPDATE_FORMATS:
                readings[source.name], found = _pushed(plan, source, found)
        branches[root] = found
    # Data of a diffs input come to the shards of the keys that its branches make.
    return Physical(readings, branches, fused=optimized or bool(plan.reductions))


def roots(plan: Plan) -> tuple[str, ...]:
    """The names of all collections that are no linear function of another one.

    Reductions come after what they read.
    """
    diffs = (source.name for source in plan.inputs if source.mode == "diffs")
    upserts = (upsert.name for upsert in plan.upserts)
    machines = (machine.name for machine in plan.machines)
    return (*upserts, *machines, *diffs, *(reduction.name for reduction in in_order(plan)))


def in_order(plan: Plan) -> list[Reduce]:
    """The reductions, each after those that it reads."""
    left = {reduction.name: reduction for reduction in plan.reductions}
    found: list[Reduce] = []
    while left:
        ready = [
            reduction
            for reduction in left.values()
            if not any(path.root in left for path in paths(plan, reduction.source))
        ]
        assert ready, "reductions read each other"
        for reduction in ready:
            found.append(left.pop(reduction.name))
    return found


def input_of(plan: Plan, root: str) -> Input:
    """The input that a root reads; of several, the first."""
    read = {upsert.name: upsert.input for upsert in plan.upserts}
    read |= {machine.name: machine.input for machine in plan.machines}
    if root in read:
        return plan.input(read[root])
    for reduction in plan.reductions:
        if reduction.name == root:
            return input_of(plan, next(paths(plan, reduction.source)).root)
    return plan.input(root)


def reduced_paths(plan: Plan, reduction: Reduce) -> Iterator[tuple[Path, bool]]:
    """The ways to a reduction, with the step before it, and whether each needs a hop.

    Data of an upsert lie in the shard of its key, as long as steps leave the key alone, and
    those of an input in `mode: diffs` are sent to the shards of whatever keys they have.
    All others have to change shards: the loopback topic takes them there, in a hop.
    """
    before = (reduction.name, arranged(reduction).step)
    sent = {source.name for source in plan.inputs if comes_out_of_decoding(source)}
    for path in paths(plan, reduction.source):
        whole = Path(path.root, (*path.steps, before))
        yield whole, path.root not in sent and not keeps_key(whole)


def comes_out_of_decoding(source: Input) -> bool:
    """Whether an input's own updates are known where it is decoded, and its branches run there.

    The facts of CDCv2 are known only when the shards have told which are new.
    """
    return source.mode == "diffs" and "cdcv2" not in source.value_format


def has_hops(plan: Plan) -> bool:
    """Whether anything goes through the loopback topic."""
    return any(hop for reduction in plan.reductions for _, hop in reduced_paths(plan, reduction))


def _is_of_input(plan: Plan, root: str) -> bool:
    """Whether a root is an upsert or an input itself, so that decoding can be told of it."""
    others = {machine.name for machine in plan.machines}
    return root not in others | {reduction.name for reduction in plan.reductions}


def paths(plan: Plan, source: str) -> Iterator[Path]:
    """All ways from roots to the collection `source`."""
    operator = next((o for o in plan.operators if o.name == source), None)
    match operator:
        case Linear():
            own = tuple((operator.name, step) for step in operator.steps)
            for path in paths(plan, operator.source):
                yield Path(path.root, path.steps + own)
        case Concat():
            for name in operator.sources:
                yield from paths(plan, name)
        case _:
            yield Path(source, ())


def scope_of_root(plan: Plan, root: str) -> Scope:
    """What expressions over a root's data may name."""
    for reduction in plan.reductions:
        if reduction.name == root:
            path = next(paths(plan, reduction.source))
            steps = (*path.steps, (reduction.name, arranged(reduction).step))
            before = chain(steps, frozen(scope_of_root(plan, path.root))).scope
            return result_scope(reduction, before)
    scope = scope_of_input(input_of(plan, root))
    if any(machine.name == root for machine in plan.machines):
        # What a machine shows is what its functions give.
        return Scope({KEY: scope.types[KEY], VALUE: JSON}, open=True)
    return scope


def dating_query(source: Input) -> "Query | None":
    """What makes the event times of an input's rows, as a bound in milliseconds.

    Raises:
        ExpressionError, StepError: the expression is none.
    """
    if source.event_time is None or source.event_time.of is None:
        return None
    from ikebana.processor.linear.query import compiled

    return compiled((Sql(valid_from=source.event_time.of),), frozen(scope_of_input(source)))


def scope_of_input(source: Input) -> Scope:
    """What expressions over an input's rows may name."""
    types: dict[str, str] = {}
    if source.columns:
        # DuckDB takes a while to import, and memory: only where there is SQL.
        from ikebana.processor.linear.expressions import type_named

        types = {column.name: type_named(column.type) for column in source.columns}
    raw = source.value_format == "bytes"
    types[KEY] = BLOB if source.key_format == "bytes" and _plain(source) else JSON
    types[VALUE] = BLOB if raw else JSON
    # Whoever declares columns declares all that may be named: a misspelt one is told.
    return Scope(types, not raw and not source.columns, f"inputs.{source.name}.columns")


def chain_of(plan: Plan, branch: Branch, of: Physical) -> Chain:
    """The compiled steps of a branch, behind what is pushed."""
    scope = scope_of_root(plan, branch.root)
    if _is_of_input(plan, branch.root):
        pushed = of.readings[input_of(plan, branch.root).name].pushed
        scope = chain(pushed, frozen(scope)).scope
    return chain(branch.steps, frozen(scope))


def scope_of_output(plan: Plan, output: Output) -> Scope:
    """The relation that an output shows; of several paths, the first."""
    path = next(paths(plan, output.source))
    return chain(path.steps, frozen(scope_of_root(plan, path.root))).scope


def promise(plan: Plan, output: Output) -> Promise:
    """What a reader of `output` may rely on."""
    # Two bad values that stand in different places can give the same error record twice,
    # and an error that a negated datum gives is negative itself.
    if not output.source:
        return (
            "changes" if any(signs(s) for o in _linears(plan) for s in o.steps) else "collection"
        )
    ways = list(paths(plan, output.source))
    steps = [step for way in ways for _, step in way.steps]
    diffs = {source.name for source in plan.inputs if source.mode == "diffs"}
    if any(map(signs, steps)) or any(way.root in diffs for way in ways):
        return "changes"
    one = {upsert.name for upsert in plan.upserts}
    # A function may give several values.
    one |= {reduction.name for reduction in plan.reductions if reduction.function is None}
    single = len(ways) == 1 and ways[0].root in one and keeps_key(ways[0])
    return "upserts" if single else "collection"


def keeps_key(path: Path) -> bool:
    """Whether each datum of the root gives at most one, of the same key."""
    return all(
        isinstance(step, Negate)
        or (isinstance(step, Call) and step.kind == "filter")
        or (isinstance(step, Sql) and step.key is None and step.flat_map is None)
        for _, step in path.steps
    )


def _linears(plan: Plan) -> Iterator[Linear]:
    return (o for o in plan.operators if isinstance(o, Linear))


def signs(step: Sql | Call | Negate) -> bool:
    """Whether a step may turn a diff around."""
    match step:
        case Negate():
            return True
        case Call():
            return step.kind in ("explode", "join_function")
        case Sql():
            if step.flat_map is None:
                return step.diff is not None
            from ikebana.processor.linear.expressions import called

            repeats = called(step.flat_map[1])
            return step.diff is not None or bool(repeats and repeats[0] == "repeat_row")


def _branches(plan: Plan, root: str) -> Iterator[Branch]:
    outputs: dict[tuple[Named, ...], list[str]] = {}
    reductions: dict[tuple[Named, ...], list[str]] = {}
    hops: dict[tuple[Named, ...], list[str]] = {}
    for output in plan.outputs:
        for path in paths(plan, output.source):
            if path.root == root:
                # An output that reaches the root twice in the same way shows it twice.
                outputs.setdefault(path.steps, []).append(output.name)
    for reduction in plan.reductions:
        for path, hop in reduced_paths(plan, reduction):
            if path.root == root:
                outputs.setdefault(path.steps, [])
                (hops if hop else reductions).setdefault(path.steps, []).append(reduction.name)
    # An operator over one root is known by the steps up to its own last.
    told: set[tuple[Named, ...]] = set()
    for steps, names in outputs.items():
        ends = {name: at for at, (name, _) in enumerate(steps)}
        prefixes = {name: steps[: at + 1] for name, at in ends.items()}
        silent = frozenset(name for name, prefix in prefixes.items() if prefix in told)
        told |= set(prefixes.values())
        yield Branch(
            root,
            steps,
            tuple(names),
            silent,
            tuple(reductions.get(steps, ())),
            tuple(hops.get(steps, ())),
        )


def _needed(branch: Branch) -> Branch:
    """A branch without steps that do nothing, as before a reduction by a function."""
    return replace(branch, steps=tuple(named for named in branch.steps if named[1] != Sql()))


def _plain(source: Input) -> bool:
    return source.value_format in PLAIN_FORMATS


def _pushed(
    plan: Plan, source: Input, branches: tuple[Branch, ...]
) -> tuple[Reading, tuple[Branch, ...]]:
    """What can be done in decoding, and the branches without what that makes needless."""
    scope = scope_of_input(source)
    filters = [_key_conditions(branch.steps, source, scope) for branch in branches]
    key_filters = tuple(filters) if filters and all(filters) else ()
    if source.event_time is not None:
        # Rows that nobody wants move the frontier like all others.
        key_filters = ()
    columns: tuple[str, ...] | None = None
    if source.value_format != "bytes" and branches:
        wanted = [chain(branch.steps, frozen(scope)).columns for branch in branches]
        wanted.append(_dating_columns(source))
        read = [each for each in wanted if each is not None]
        if len(read) == len(wanted):
            columns = tuple(sorted({name for each in read for name in each}))
    pushed: tuple[Named, ...] = ()
    whole_rows = _plain(source) and source.mode == "upsert"
    if len(branches) == 1 and whole_rows:
        (branch,) = branches
        count = _how_many(branch.steps)
        pushed = branch.steps[:count]
        branches = (replace(branch, steps=branch.steps[count:]),)
    return Reading(columns, key_filters, pushed), branches


def _dating_columns(source: Input) -> tuple[str, ...] | None:
    """The columns that event times are made of; None for all."""
    query = dating_query(source)
    if query is None:
        return ()
    return None if query.reads_value else query.fields


def _how_many(steps: Sequence[Named]) -> int:
    """How many of the first steps only choose and make values."""
    count = 0
    for _, step in steps:
        simple = isinstance(step, Sql) and Sql(where=step.where, select=step.select) == step
        if not simple:
            break
        count += 1
    return count


def _key_conditions(steps: Sequence[Named], source: Input, scope: Scope) -> tuple[str, ...]:
    """The conditions over the key alone that every datum has to pass first."""
    if not any(isinstance(step, Sql) and step.where for _, step in steps):
        return ()
    from ikebana.processor.linear.expressions import conjuncts, parse

    found: list[str] = []
    own = {KEY, *source.key}
    for _, step in steps:
        if isinstance(step, Negate):
            continue
        if not isinstance(step, Sql) or step.flat_map is not None:
            break
        for text in step.where:
            for condition in conjuncts(text):
                try:
                    read = parse(condition, scope, condition=True).columns
                except ExpressionError:
                    return tuple(found)
                if not read or not read <= own:
                    # It might fail on a row that a condition behind it drops.
                    return tuple(found)
                found.append(condition)
        if Sql(where=step.where) != step:
            break
    return tuple(found)
