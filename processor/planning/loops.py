"""Plan loops: the operators of a loop's body become the nodes of a program.

Steps that are the only reader of a reduction become part of it, so that they see its changes, but
changes that they drop, such as a count of each round, go no further.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.codecs.change import Column
from ikebana.processor.kernels import reduce
from ikebana.processor.kernels.loop import (
    GroupNode,
    JoinNode,
    LoopNode,
    LoopUpdates,
    MapNode,
    NodeLookup,
    Pass,
    Program,
    Steps,
    SumNode,
)
from ikebana.processor.linear.chain import chain
from ikebana.processor.linear.json_text import JSON, quoted
from ikebana.processor.linear.scope import KEY, VALUE, Scope, frozen
from ikebana.processor.linear.steps import AnyStep, Call, Sql, moves_time
from ikebana.processor.planning.aggregates import split_reduction
from ikebana.processor.planning.joins.binding import BoundJoin, alias_of
from ikebana.processor.planning.joins.query import DeltaJoin
from ikebana.processor.planning.kind import OperatorCatalog
from ikebana.processor.planning.plan import (
    Concat,
    Input,
    Linear,
    Loop,
    Operator,
    Reduce,
    WindowFunctions,
)

# The columns of a loop's input and result rows: the number of a collection, and its row.
OF, ROW = "of", "row"


def source_name(number: int) -> str:
    """The name by which a loop's body reads a source."""
    return f"s{number}"


def variable_name(number: int) -> str:
    """The name by which a loop's body reads a variable."""
    return f"x{number}"


def collections(loop: Loop) -> Iterator[Input]:
    """The sources and the variables of a loop, as the inputs of its body."""
    named = [(source_name(at), columns) for at, columns in enumerate(loop.columns)]
    named += [(variable_name(at), each.columns) for at, each in enumerate(loop.variables)]
    for name, columns in named:
        yield variable(name, columns)


def variable(name: str, columns: Sequence[tuple[str, str]]) -> Input:
    """A collection with these columns, as an input."""
    declared = tuple(Column(column, kind) for column, kind in columns)
    return Input(name, (name,), "diff", mode="diffs", columns=declared)


def why_not_in_loop(operator: Operator) -> str | None:
    """Why an operator cannot be within a loop; None if it can."""
    match operator:
        case Linear(steps=steps) if any(map(moves_time, steps)):
            return "rows that come and go in time cannot be within a recursion: let it read a view"
        case Linear(steps=steps) if any(isinstance(step, Call) for step in steps):
            return "a step in Python cannot be within a recursion"
        case Loop():
            return "a recursion within another one that it reads is not supported"
        case Reduce(total=True):
            return (
                "an aggregate without GROUP BY has a row where there is none to read, which is "
                "not supported within a recursion: write GROUP BY"
            )
        case WindowFunctions():
            return "window functions cannot be within a recursion: write them over its result"
        case Linear() | Concat() | Reduce() | DeltaJoin():
            return None
        case _:
            return "only joins, groups and steps over single rows can be within a recursion"


def loop_problems(loop: Loop, catalog: OperatorCatalog) -> Iterator[str]:
    """All problems of a loop."""
    named = {source.name for source in collections(loop)}
    for operator in loop.body:
        if (problem := why_not_in_loop(operator)) is not None:
            yield f"{operator.name}: {problem}"
        named.add(operator.name)
    for each in loop.variables:
        if each.source not in named:
            yield f'there is no "{each.source}" in the body'
    if loop.rounds < 1:
        yield "at least one round is needed"
    inner = catalog.within(loop)
    problems = inner.problems()
    yield from (f"{path}: {problem}" for path, problem in problems)
    for operator in loop.body:
        scopes = inner.relation(operator.name).scopes
        if not problems and any(each.types != scopes[0].types for each in scopes):
            yield f"{operator.name}: its parts have columns of different types"


def program(loop: Loop, catalog: OperatorCatalog) -> Program:
    """The program of a loop; `catalog` has the collections of its body."""
    return _Planning(loop, catalog).program()


class _Planning:
    def __init__(self, loop: Loop, catalog: OperatorCatalog) -> None:
        self._name, self._loop, self._catalog = loop.name, loop, catalog
        self._numbers = {each.name: at for at, each in enumerate(collections(loop))}
        self._nodes: list[LoopNode] = []
        self._readers = Counter(each.source for each in loop.variables)
        for operator in loop.body:
            self._readers.update(self._catalog.sources(operator.name))

    def program(self) -> Program:
        loop, begin = self._loop, len(self._numbers)
        # The linear steps that become part of the operator before them.
        steps_behind = {
            each.source: each
            for each in loop.body
            if isinstance(each, Linear) and self._readers[each.source] == 1
        }
        done: set[str] = set()
        for operator in loop.body:
            if operator.name in done:
                continue
            behind = steps_behind.get(operator.name) if isinstance(operator, Reduce) else None
            self._nodes.append(self._node(operator, behind))
            for each in (operator, behind):
                if each is not None:
                    done.add(each.name)
                    self._numbers[each.name] = begin + len(self._nodes) - 1
        variables = tuple(self._numbers[each.source] for each in loop.variables)
        return Program(len(loop.columns), variables, tuple(self._nodes), loop.rounds)

    def _node(self, operator: Operator, behind: Linear | None) -> LoopNode:
        match operator:
            case Linear():
                (source,) = self._inputs(operator)
                return MapNode((source,), self._steps(operator.source, operator.steps))
            case Concat():
                return SumNode(self._inputs(operator))
            case Reduce():
                return self._reduction(operator, behind)
            case DeltaJoin():
                return self._join(operator)
            case _:
                raise AssertionError(f"{operator.name} is in a loop")

    def _inputs(self, operator: Operator) -> tuple[int, ...]:
        return tuple(self._numbers[name] for name in self._catalog.sources(operator.name))

    def _steps(self, source: str, steps: Sequence[AnyStep]) -> Steps:
        return self._over(self._catalog.relation(source).scope, steps)

    def _over(self, scope: Scope, steps: Sequence[AnyStep]) -> Steps:
        named = tuple((self._name, step) for step in steps if step != Sql())
        if not named:
            return _as_they_are
        fused = chain(named, frozen(scope))

        def passed(updates: LoopUpdates) -> Pass:
            result = fused.apply(updates)
            return Pass(result.updates, result.errors)

        return passed

    def _reduction(self, operator: Reduce, behind: Linear | None) -> GroupNode:
        name, aggregates = self._name, self._catalog.aggregates(operator)

        def results(updates: LoopUpdates) -> Pass:
            until = max(update.time for update in updates) + 1
            reduced = reduce.step(MemoryStore(), updates, Interval(0, until), aggregates, name)
            return Pass(*reduced)

        before = self._steps(operator.source, [split_reduction(operator).step])
        after = _as_they_are if behind is None else self._steps(operator.name, behind.steps)
        (number,) = self._inputs(operator)
        return GroupNode((number,), before, results, after)

    def _join(self, join: DeltaJoin) -> JoinNode:
        bound = self._catalog.examined(join).whole()
        flats = [*bound.predicates, *(flat for _, flat in bound.select), bound.key]
        reads = {column: kind for flat in flats for column, kind in flat.reads.items()}
        sides = [self._side(bound, at, reads) for at, _ in enumerate(bound.inputs)]
        results = Sql(
            where=tuple(flat.sql for flat in bound.predicates),
            select=tuple((name, flat.sql) for name, flat in bound.select),
            key=bound.key.sql,
        )
        return JoinNode(
            self._inputs(join),
            tuple(sides),
            tuple(_path(bound, at) for at, _ in enumerate(bound.inputs)),
            self._over(Scope({**reads, KEY: JSON, VALUE: JSON}), [results]),
        )

    def _side(self, bound: BoundJoin, at: int, reads: Iterable[str]) -> Steps:
        """The steps that make the fields of an input: its keys, and the columns that are read."""
        side = bound.inputs[at]
        terms = bound.terms(at)
        select = [(_field(number, at), term.local) for number, term in terms]
        select += [
            (column, quoted(column.partition(".")[2]))
            for column in reads
            if alias_of(column) == side.alias
        ]
        # Null is equal to nothing.
        nonnull = (f"({term.local}) IS NOT NULL" for _, term in terms)
        step = Sql(
            where=(*side.filters, *nonnull), select=tuple(select) or ((_field(-1, at), "true"),)
        )
        return self._steps(side.relation, [step])


def _field(number: int, at: int) -> str:
    """The name of an input's field for a variable of a join; no alias begins like this."""
    return f"={number}.{at}"


def _path(bound: BoundJoin, first: int) -> tuple[NodeLookup, ...]:
    """The lookups for changes of an input; the next input shares the most variables so far."""
    numbers = [
        frozenset(number for number, _ in bound.terms(at)) for at in range(len(bound.inputs))
    ]
    holders = dict.fromkeys(numbers[first], first)
    ahead = [at for at, _ in enumerate(bound.inputs) if at != first]
    path = []
    while ahead:
        next_ = max(ahead, key=lambda at: (len(numbers[at] & holders.keys()), -at))
        ahead.remove(next_)
        shared = sorted(numbers[next_] & holders.keys())
        asks = tuple(_field(number, holders[number]) for number in shared)
        path.append(NodeLookup(next_, asks, tuple(_field(number, next_) for number in shared)))
        holders = {**dict.fromkeys(numbers[next_], next_), **holders}
    return tuple(path)


def _as_they_are(updates: LoopUpdates) -> Pass:
    return Pass(updates, ())
