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

What a message lacks is told by all of its columns, and by those that are declared, never by
those that are decoded: outputs and errors are the same with images that are partial, or of a
table that has got columns since.  So are those of values that are not of the type or encoding
that their columns are declared with: all declared columns are checked, whoever reads them
(`reading.column_types`).  There are three exceptions.  A message whose key does not pass is
not decoded, and no error, whatever it is like.  A value that is not what a schema in the
message says is an error where its column is decoded.  And since a key has one error
at a time, that of a message takes the place of the one that a pushed step has made of the row
before it.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ikebana.codecs.progress import Promise
from ikebana.processor.joins.query import AsOfJoin
from ikebana.processor.linear.chain import Chain, Named, chain
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.scope import KEY, ExpressionError, Scope, frozen
from ikebana.processor.linear.steps import Arrange, Negate, Sql, moves_time
from ikebana.processor.planning.aggregates import arranged
from ikebana.processor.planning.joined import is_gathered, joined, looked_up
from ikebana.processor.planning.plan import UPDATE_FORMATS, Input, Linear, Output, Plan
from ikebana.processor.planning.ways import (
    Path,
    comes_out_of_decoding,
    dating_query,
    input_of,
    is_of_input,
    is_plain,
    keeps_key,
    paths,
    roots,
    scope_of_input,
    scope_of_root,
    signs,
    single_valued,
    sources_of,
)


@dataclass(frozen=True, slots=True)
class Branch:
    """Fused steps from a root to the outputs that show the same.

    The first steps of several branches are often those of one operator.  Its errors are
    told by one of them: `silent` are the operators whose errors another branch tells.
    `inlets` are operators that get its updates by key in the same pass, `hops` those that get
    them by a hop.
    """

    root: str
    steps: tuple[Named, ...]
    outputs: tuple[str, ...]
    silent: frozenset[str] = frozenset()
    inlets: tuple[str, ...] = ()
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
        if optimized and is_of_input(plan, root):
            source = input_of(plan, root)
            if source.value_format not in UPDATE_FORMATS:
                readings[source.name], found = _pushed(plan, source, found)
        branches[root] = found
    # Data of a diffs input come to the shards of the keys that its branches make.
    return Physical(readings, branches, fused=optimized or any(True for _ in inlets(plan)))


class Inlet(NamedTuple):
    """An operator that gets updates of a collection by key, behind steps of its own."""

    name: str
    source: str
    steps: tuple[Named, ...]


def inlets(plan: Plan) -> Iterator[Inlet]:
    """The reductions, and what joins are fed by."""
    for reduction in plan.reductions:
        before = (reduction.name, arranged(reduction).step)
        yield Inlet(reduction.name, reduction.source, (before,))
    for name, by, nulls in joined(plan).feeds:
        # Conditions by themselves, to be pushed down; errors tell what the key is of.
        told = str(by)
        steps = ((told, Sql(where=by.filters)), (told, Arrange(by.keys, nulls)))
        yield Inlet(name, by.relation, steps)


def inlet_paths(plan: Plan, inlet: Inlet) -> Iterator[tuple[Path, bool]]:
    """The ways to an inlet, with the steps before it, and whether each needs a hop.

    Data of an upsert lie in the shard of its key, as long as steps leave the key alone, and
    those of an input in `mode: diffs` are sent to the shards of whatever keys they have.
    All others have to change shards: the loopback topic takes them there, in a hop.
    """
    sent = {source.name for source in plan.inputs if comes_out_of_decoding(source)}
    for path in paths(plan, inlet.source):
        whole = Path(path.root, (*path.steps, *inlet.steps))
        yield whole, path.root not in sent and not _stays(plan, whole)


def _stays(plan: Plan, path: Path) -> bool:
    """Whether data at the end of a path lie in the shards of their keys."""
    if any(join.name == path.root for join in plan.joins) and not is_gathered(plan, path.root):
        return False
    # A key in bytes is another one as JSON.
    arranges = any(isinstance(step, Arrange) for _, step in path.steps)
    in_json = scope_of_root(plan, path.root).types[KEY] == JSON
    return keeps_key(path) and (in_json or not arranges)


def chain_of(plan: Plan, branch: Branch, of: Physical) -> Chain:
    """The compiled steps of a branch, behind what is pushed."""
    scope = scope_of_root(plan, branch.root)
    if is_of_input(plan, branch.root):
        pushed = of.readings[input_of(plan, branch.root).name].pushed
        scope = chain(pushed, frozen(scope)).scope
    return chain(branch.steps, frozen(scope))


# Their readers rely on one value a key.
SINGLE_VALUE_FORMATS = ("upsert", "debezium-json")


@functools.lru_cache(maxsize=64)
def watches(plan: Plan, output: Output) -> bool:
    """Whether an output keeps state to find keys with more values than its format has one for."""
    return output.format in SINGLE_VALUE_FORMATS and promise(plan, output) != "upserts"


def promise(plan: Plan, output: Output) -> Promise:
    """What a reader of `output` may rely on."""
    # Two bad values that stand in different places can give the same error record twice,
    # and an error that a negated datum gives is negative itself.
    if not output.source:
        revised = any(isinstance(j, AsOfJoin) and j.retract == "current" for j in plan.joins)
        signed = any(signs(s) for o in _linears(plan) for s in o.steps)
        return "changes" if signed or revised else "collection"
    ways = list(paths(plan, output.source))
    if any(_may_be_negative(plan, way) for way in ways):
        return "changes"
    single = len(ways) == 1 and ways[0].root in single_valued(plan) and keeps_key(ways[0])
    return "upserts" if single else "collection"


def _may_be_negative(plan: Plan, way: Path) -> bool:
    """Whether a datum that a way gives may count less than nothing."""
    if why_negative(plan, way) is not None:
        return True
    return any(
        source.name == root and source.mode == "diffs"
        for root in _roots_behind(plan, way)
        for source in plan.inputs
    )


def why_negative(plan: Plan, way: Path) -> str | None:
    """The operator by which a datum that a way gives may count less than nothing, whatever comes.

    Of inputs in `mode: diffs` it is what they say that decides.
    """
    for name, step in way.steps:
        if signs(step):
            return name
    for join in plan.joins:
        if join.name == way.root:
            # What a retraction meets need not be what its insertion has met.
            if isinstance(join, AsOfJoin) and join.retract == "current":
                lefts = paths(plan, join.left.relation)
                if not all(_only_grows(plan, left) for left in lefts):
                    return join.name
            others = (o for source in sources_of(join) for o in paths(plan, source))
            return next(filter(None, (why_negative(plan, other) for other in others)), None)
    return None


def _roots_behind(plan: Plan, way: Path) -> Iterator[str]:
    """The root of a way, and those of what joins read."""
    yield way.root
    for join in plan.joins:
        if join.name == way.root:
            for source in sources_of(join):
                for other in paths(plan, source):
                    yield from _roots_behind(plan, other)


def _only_grows(plan: Plan, way: Path) -> bool:
    """Whether nothing is ever retracted at the end of a way."""
    appended = {source.name for source in plan.inputs if source.mode == "append"}
    return way.root in appended and not any(signs(s) or moves_time(s) for _, s in way.steps)


def _linears(plan: Plan) -> Iterator[Linear]:
    return (o for o in plan.operators if isinstance(o, Linear))


def _branches(plan: Plan, root: str) -> Iterator[Branch]:
    outputs: dict[tuple[Named, ...], list[str]] = {}
    near: dict[tuple[Named, ...], list[str]] = {}
    hops: dict[tuple[Named, ...], list[str]] = {}
    for output in plan.outputs:
        for path in paths(plan, output.source):
            if path.root == root:
                # An output that reaches the root twice in the same way shows it twice.
                outputs.setdefault(path.steps, []).append(output.name)
    for inlet in inlets(plan):
        for path, hop in inlet_paths(plan, inlet):
            if path.root == root:
                outputs.setdefault(path.steps, [])
                (hops if hop else near).setdefault(path.steps, []).append(inlet.name)
    if root in looked_up(plan):
        # Whatever else is wanted of it, its state is asked for whole rows.
        outputs.setdefault((), [])
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
            tuple(near.get(steps, ())),
            tuple(hops.get(steps, ())),
        )


def _needed(branch: Branch) -> Branch:
    """A branch without steps that do nothing, as before a reduction by a function."""
    return replace(branch, steps=tuple(named for named in branch.steps if named[1] != Sql()))


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
    whole_rows = is_plain(source) and source.mode == "upsert"
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
    from ikebana.processor.linear.expressions import parse
    from ikebana.processor.linear.syntax import conjuncts

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
