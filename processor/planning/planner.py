"""Make a physical plan: fuse linear steps into branches, and push work into decoding.

Every collection is derived from *roots*, such as upserts and inputs in `mode: diffs`.  The
linear operators between a root and its outputs are fused into one *branch*, which is one
pass; concat only joins branches.  The branches of an upsert run in the shards, where its
updates are computed; those of a diffs input run in the task that decodes it.

Three kinds of work are pushed into decoding.  The results are the same without them
(`optimized=False`), and a property test compares the two:

* *Columns.*  If the branches, and the joins behind them, read only some fields, the others
  are not decoded.  An old and a new value that agree in these fields would have cancelled anyway.
* *Conditions over the key.*  Before an upsert only these may drop messages, since a key
  passes always or never.  If a condition fails on a key, the message passes, and the
  failure becomes an error record after the upsert, as without pushing.
* *Conditions over the value, and select*, if a single branch reads the upsert and messages
  have whole rows.  The upsert keeps their result: the selected value, or a
  tombstone where a condition is false.  Dropping the message instead would keep the old
  value.  A row on which a step fails has no value and an error record, as it would have
  after the upsert.

All columns of a message and the declared columns decide whether an image is partial, never the
decoded columns.  So outputs and errors do not change with partial images, or when a
table gets another column.  All declared columns are checked against their types and
encodings, whether anything reads them or not (`topics.input_codec`); in other columns a value
that contradicts a schema in its message is no error (`change.Needs.judges`).  There are two
exceptions.  A message with a key that does not pass is not decoded, so it is no error.  And a key
has one error at a time: the error of a message replaces the error of a pushed step on the row
before.
"""

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ikebana.processor.linear.chain import Chain, Named, chain
from ikebana.processor.linear.expressions import parse
from ikebana.processor.linear.json_text import JSON, quoted
from ikebana.processor.linear.scope import KEY, ExpressionError, Scope, frozen
from ikebana.processor.linear.steps import Arrange, Negate, Sql, moves_time
from ikebana.processor.linear.syntax import Node, changed, condition_texts, text_of, tree
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.graph import graph_of
from ikebana.processor.planning.input_rows import (
    comes_out_of_decoding,
    dating_query,
    scope_of_input,
)
from ikebana.processor.planning.joins.query import Join
from ikebana.processor.planning.joins.stages import columns_read, joined, looked_up
from ikebana.processor.planning.kind import Way
from ikebana.processor.planning.kinds import keeps_key
from ikebana.processor.planning.plan import Input, Plan, Reading
from ikebana.processor.planning.relations import derivation_of


def remaining_steps(
    pushed: Sequence[Named], branches: Sequence[tuple[Named, ...]], names: Collection[str]
) -> list[tuple[Named, ...]] | None:
    """The remaining steps of branches over rows to which `pushed` has been applied.

    `names` has the columns of the original rows.  None, if these rows lack something, or if the
    failure of a pushed step, which does not belong to the branch, may have dropped a row.
    """
    for _, step in pushed[:-1]:
        if isinstance(step, Sql) and step.select is not None:
            names = [name for name, _ in step.select]
    results = [_left(pushed, steps, names) for steps in branches]
    if len(branches) > 1 and any(steps[: len(pushed)] != tuple(pushed) for steps in branches):
        # A step that may fail belongs to one operator, which records its errors once.
        results = results if all(_never_fails(step, names) for _, step in pushed) else [None]
    left = [steps for steps in results if steps is not None]
    return left if len(left) == len(results) else None


def _left(
    pushed: Sequence[Named], steps: tuple[Named, ...], names: Collection[str]
) -> tuple[Named, ...] | None:
    same = len(pushed)
    if steps[:same] == tuple(pushed):
        return steps[same:]
    *begin, (before, old) = pushed
    if steps[: same - 1] != tuple(begin) or len(steps) < same:
        return None
    name, new = steps[same - 1]
    if not isinstance(old, Sql) or not isinstance(new, Sql):
        return None
    if name != before and not _never_fails(old, names):
        # Its errors name the operator.
        return None
    step = _over(old, new, names)
    return None if step is None else ((name, step), *steps[same:])


def _never_fails(step: object, names: Collection[str]) -> bool:
    """Whether a step makes one row of each, from unchanged columns."""
    return (
        isinstance(step, Sql)
        and Sql(select=step.select) == step
        and all(derivation_of(text, names=names).is_same for _, text in step.select or ())
    )


def _over(old: Sql, new: Sql, names: Collection[str]) -> Sql | None:
    """The step from the results of `old` to those of `new`; None if there is none."""
    if old.select is None or new.select is None or Sql(where=new.where, select=new.select) != new:
        return None
    sources = {name: derivation_of(text, names=names) for name, text in old.select}
    plain = {column: name for name, of in sources.items() if of.is_same for column in of.of}
    computed = {text: name for name, text in old.select if not sources[name].is_same}
    if not set(old.where) <= set(new.where) or not computed.keys() <= {t for _, t in new.select}:
        # Rows on which one of them failed are missing.
        return None
    more = tuple(text for text in new.where if text not in old.where)
    if more and computed:
        # A row that they drop may have failed on a computed column.
        return None
    # The whole key stays, whatever the names of columns are.
    plain = {**{name: quoted(column) for name, column in plain.items()}, KEY: KEY}
    where = [_of_stored(text, plain, names) for text in more]
    select = [
        (name, quoted(computed[text]) if text in computed else _of_stored(text, plain, names))
        for name, text in new.select
    ]
    whole = [text for text in where if text is not None]
    columns = [(name, text) for name, text in select if text is not None]
    if len(whole) < len(where) or len(columns) < len(select):
        return None
    return Sql(where=tuple(whole), select=tuple(columns))


def _of_stored(text: str, plain: Mapping[str, str], names: Collection[str]) -> str | None:
    """An expression over columns as SQL over the stored ones; None if a column is not stored."""
    of = derivation_of(text, names=names)
    if not of.of <= plain.keys():
        return None
    if of.is_same:
        return "".join(plain[column] for column in of.of)

    def change(node: Node) -> Node | None:
        if node["class"] != "COLUMN_REF":
            return None
        first, *rest = node["column_names"]
        (column,) = derivation_of(quoted(first), names=names).of
        if column not in plain:
            # A parameter of a lambda.
            return None
        return {**node, "column_names": [tree(plain[column])["column_names"][0], *rest]}

    return text_of(changed(tree(text), change))


@dataclass(frozen=True, slots=True)
class Branch:
    """Fused steps from a root to outputs with the same collection.

    Several branches may begin with the steps of one operator, but its errors must be recorded
    once: another branch records the errors of the operators in `silent`.  `inlets` has the
    operators that get the updates by key in the same pass, `exchanges` those that get them
    through an exchange, one micro-batch later.
    """

    root: str
    steps: tuple[Named, ...]
    outputs: tuple[str, ...]
    silent: frozenset[str] = frozenset()
    inlets: tuple[str, ...] = ()
    exchanges: tuple[str, ...] = ()

    @property
    def moves_time(self) -> bool:
        """Whether it may emit updates at future times, which are held until then."""
        return any(moves_time(step) for _, step in self.steps)


@dataclass(frozen=True, slots=True, eq=False)
class Physical:
    """A physical plan: how each input is read, and the branches of each root.

    With `fused`, branches of an input in `mode: diffs` run in the task that decodes it,
    otherwise in the shards like all others.
    """

    readings: dict[str, Reading]
    branches: dict[str, tuple[Branch, ...]]
    fused: bool = True


@functools.lru_cache(maxsize=32)
def physical(plan: Plan, *, optimized: bool | None = None) -> Physical:
    """Fuse steps and push work down, if the plan, or `optimized` instead, says so."""
    optimized = plan.pushdown if optimized is None else optimized
    graph = graph_of(plan)
    readings = {source.name: Reading() for source in plan.inputs}
    branches: dict[str, tuple[Branch, ...]] = {}
    ways = _ways_to_inlets(plan)
    for root in graph.roots:
        root_branches = tuple(map(_needed, _branches(plan, root, ways.get(root, ()))))
        if optimized and graph.is_of_input(root):
            source = graph.input_of(root)
            if not source.traits.is_updates:
                reading = dict(plan.readings).get(source.name)
                if reading is None:
                    reading, root_branches = _pushed(plan, source, root_branches)
                else:
                    # As the checkpoint's state needs it, whatever the planner would choose.
                    names = scope_of_input(source).types
                    root_branches = _behind_reading(reading, root_branches, names)
                readings[source.name] = reading
        branches[root] = root_branches
    # Data of a diffs input are sent to the shards of the keys that its branches make.
    return Physical(readings, branches, fused=optimized or any(True for _ in inlets(plan)))


def _behind_reading(
    reading: Reading, branches: tuple[Branch, ...], names: Collection[str]
) -> tuple[Branch, ...]:
    """The branches behind a reading that the checkpoint's state needs."""
    if not reading.pushed:
        return branches
    left = remaining_steps(reading.pushed, [branch.steps for branch in branches], names)
    assert left is not None, "rows are kept that lack something"
    return tuple(
        replace(branch, steps=steps) for branch, steps in zip(branches, left, strict=True)
    )


def has_enough(reading: Reading, plan: Plan, source: str) -> bool:
    """Whether rows decoded in one way have all that another way needs."""
    needed = physical(plan).readings[source]
    columns = reading.columns is None or (
        needed.columns is not None and set(needed.columns) <= set(reading.columns)
    )
    filters = not reading.key_filters or reading.key_filters == needed.key_filters
    return columns and filters and _has_rows(reading, plan, source)


def _has_rows(reading: Reading, plan: Plan, source: str) -> bool:
    """Whether rows to which steps have been applied have all that the plan's branches need."""
    if not reading.pushed:
        return True
    graph, ways = graph_of(plan), _ways_to_inlets(plan)
    names = scope_of_input(plan.input(source)).types
    return all(
        remaining_steps(
            reading.pushed,
            [_needed(b).steps for b in _branches(plan, root, ways.get(root, ()))],
            names,
        )
        is not None
        for root in graph.roots
        if graph.is_of_input(root) and graph.input_of(root).name == source
    )


class Inlet(NamedTuple):
    """A reader of a collection's updates by key, with the steps before it."""

    name: str
    source: str
    steps: tuple[Named, ...]


def inlets(plan: Plan) -> Iterator[Inlet]:
    """The inlets of a plan: operators that read by key, feeds of joins, and gathered outputs."""
    for node in graph_of(plan).makers_of_keys:
        for source in node.sources:
            yield Inlet(node.name, source, node.before)
    for name, by, nulls in joined(plan).feeds:
        # Conditions are a separate step, to be pushed down; errors name the arrangement.
        label = str(by)
        steps = ((label, Sql(where=by.filters)), (label, Arrange(by.keys, nulls)))
        yield Inlet(name, by.relation, steps)
    for output in plan.outputs:
        if (inlet := gathered(plan).get(output.name)) is not None:
            yield Inlet(inlet, output.source, ())


@functools.lru_cache(maxsize=64)
def gathered(plan: Plan) -> Mapping[str, str]:
    """The outputs with an exchange to the shards of their rows' keys, each with its inlet.

    A diff output may write rows in any shard.  A format that combines the rows of a key, or counts
    equal ones, needs them in one shard.
    """
    return {
        output.name: inlet_of(output.name)
        for output in plan.outputs
        if not output.traits.as_updates
        and any(exchange for _, exchange in inlet_paths(plan, Inlet("", output.source, ())))
    }


def inlet_of(output: str) -> str:
    """The inlet of an output, if it is gathered; names of users have no slash."""
    return f"{output}/by-key"


def inlet_paths(plan: Plan, inlet: Inlet) -> Iterator[tuple[Way, bool]]:
    """The ways to an inlet, including its steps, and whether each needs an exchange.

    Rows of an upsert are in the shard of its key as long as no step changes the key.  Rows of
    an input in `mode: diffs` are sent to the shard of the key that its steps make.  All
    others go through the exchange topic.
    """
    for path in graph_of(plan).ways(inlet.source):
        whole = Way(path.root, (*path.steps, *inlet.steps))
        node = graph_of(plan).nodes[path.root]
        is_sent = node.operator is None and comes_out_of_decoding(plan.input(path.root))
        yield whole, not is_sent and not _stays(plan, whole)


def _stays(plan: Plan, path: Way) -> bool:
    """Whether rows at the end of a path are in the shards of their keys already."""
    if isinstance(graph_of(plan).nodes[path.root].operator, Join):
        return False
    # A key in bytes is another one as JSON.
    arranges = any(isinstance(step, Arrange) for _, step in path.steps)
    in_json = catalog_of(plan).relation(path.root).scope.types[KEY] == JSON
    return keeps_key(path.steps) and (in_json or not arranges)


@functools.lru_cache(maxsize=256)
def chain_of(plan: Plan, branch: Branch, of: Physical) -> Chain:
    """The compiled steps of a branch that are not pushed."""
    scope = catalog_of(plan).relation(branch.root).scope
    if graph_of(plan).is_of_input(branch.root):
        pushed = of.readings[graph_of(plan).input_of(branch.root).name].pushed
        scope = chain(pushed, frozen(scope)).scope
    return chain(branch.steps, frozen(scope))


class _WayToInlet(NamedTuple):
    """The steps from a root to an inlet, and whether rows go through an exchange."""

    inlet: str
    steps: tuple[Named, ...]
    exchange: bool


def _ways_to_inlets(plan: Plan) -> Mapping[str, Sequence[_WayToInlet]]:
    """The ways to all inlets, by their roots."""
    ways: dict[str, list[_WayToInlet]] = {}
    for inlet in inlets(plan):
        for path, exchange in inlet_paths(plan, inlet):
            ways.setdefault(path.root, []).append(_WayToInlet(inlet.name, path.steps, exchange))
    return ways


def _branches(plan: Plan, root: str, ways: Sequence[_WayToInlet]) -> Iterator[Branch]:
    outputs: dict[tuple[Named, ...], list[str]] = {}
    near: dict[tuple[Named, ...], list[str]] = {}
    exchanges: dict[tuple[Named, ...], list[str]] = {}
    for output in plan.outputs:
        for path in graph_of(plan).ways(output.source):
            if path.root == root:
                # An output that reads the root twice by the same steps shows it twice.
                outputs.setdefault(path.steps, []).append(output.name)
    for way in ways:
        outputs.setdefault(way.steps, [])
        (exchanges if way.exchange else near).setdefault(way.steps, []).append(way.inlet)
    if root in looked_up(plan):
        # Joins look up whole rows in its state.
        outputs.setdefault((), [])
    # The steps up to its last one identify an operator over a root.
    seen: set[tuple[Named, ...]] = set()
    for steps, names in outputs.items():
        ends = {name: at for at, (name, _) in enumerate(steps)}
        prefixes = {name: steps[: at + 1] for name, at in ends.items()}
        silent = frozenset(name for name, prefix in prefixes.items() if prefix in seen)
        seen |= set(prefixes.values())
        yield Branch(
            root,
            steps,
            tuple(names),
            silent,
            tuple(near.get(steps, ())),
            tuple(exchanges.get(steps, ())),
        )


def _needed(branch: Branch) -> Branch:
    """A branch without steps that change nothing, as before a reduction by a function."""
    return replace(branch, steps=tuple(named for named in branch.steps if named[1] != Sql()))


def _pushed(
    plan: Plan, source: Input, branches: tuple[Branch, ...]
) -> tuple[Reading, tuple[Branch, ...]]:
    """The work to do in decoding, and the branches without that work."""
    scope = scope_of_input(source)
    filters = [_key_conditions(branch.steps, source, scope) for branch in branches]
    key_filters = tuple(filters) if filters and all(filters) else ()
    if source.event_time is not None:
        # Rows that no branch needs move the frontier, too.
        key_filters = ()
    columns: tuple[str, ...] | None = None
    if source.traits.has_columns and branches:
        needs = [columns_of(plan, branch, scope) for branch in branches]
        needs.append(dating_columns(source))
        read = [each for each in needs if each is not None]
        if len(read) == len(needs):
            columns = tuple(sorted({name for each in read for name in each}))
    pushed: tuple[Named, ...] = ()
    whole_rows = source.traits.kind == "rows" and source.mode == "upsert"
    if len(branches) == 1 and whole_rows:
        (branch,) = branches
        count = _how_many(branch.steps)
        pushed = branch.steps[:count]
        branches = (replace(branch, steps=branch.steps[count:]),)
    return Reading(columns, key_filters, pushed), branches


def columns_of(plan: Plan, branch: Branch, scope: Scope) -> tuple[str, ...] | None:
    """The columns that the steps of a branch, and joins behind it, read; None for all."""
    steps = chain(branch.steps, frozen(scope))
    if branch.outputs or (asked := steps.arranges_by) is None:
        return steps.columns
    feeds = {feed.name: feed.by.relation for feed in joined(plan).feeds}
    # A branch without steps is an upsert's state that joins look up, or a function's input.
    fed = [feeds.get(name) for name in (*branch.inlets, *branch.exchanges)]
    read = [None if name is None else columns_read(plan, name) for name in fed]
    if not branch.steps and branch.root in looked_up(plan):
        read.append(columns_read(plan, branch.root))
    if not read or None in read:
        return None
    return tuple(sorted({*asked, *(name for each in read if each for name in each)}))


def dating_columns(source: Input) -> tuple[str, ...] | None:
    """The columns that event times are computed from; None for all."""
    if (query := dating_query(source)) is None:
        return ()
    return None if query.reads_value else query.fields


def _how_many(steps: Sequence[Named]) -> int:
    """The number of leading steps that only filter rows and compute values."""
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
    conditions: list[str] = []
    key_columns = {KEY, *source.key}
    for _, step in steps:
        if isinstance(step, Negate):
            continue
        if not isinstance(step, Sql) or step.flat_map is not None:
            break
        for text in step.where:
            for condition in condition_texts(text):
                try:
                    read = parse(condition, scope, condition=True).columns
                except ExpressionError:
                    return tuple(conditions)
                if not read or not read <= key_columns:
                    # It might fail on a row that a condition behind it drops.
                    return tuple(conditions)
                conditions.append(condition)
        if Sql(where=step.where) != step:
            break
    return tuple(conditions)
