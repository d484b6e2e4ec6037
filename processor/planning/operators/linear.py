"""Linear and concat, as kinds of operators."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from ikebana.processor.linear.chain import Named
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.results import StepProblem, result_of
from ikebana.processor.linear.scope import KEY, VALUE
from ikebana.processor.linear.steps import AnyStep, Arrange, Call, Negate, Sql
from ikebana.processor.planning.operators.kind import Around, OperatorKind, Problem, Relations
from ikebana.processor.planning.plan import Concat, Linear
from ikebana.processor.planning.relations import (
    NOTHING,
    Keyed,
    Keys,
    Relation,
    behind,
    of_scopes,
)


class LinearKind(OperatorKind[Linear]):
    """Steps, which run in the same pass as their source."""

    label = "linear"
    is_linear = True

    def sources(self, operator: Linear) -> tuple[str, ...]:
        return (operator.source,)

    def with_sources(self, operator: Linear, named: Callable[[str], str]) -> Linear:
        return msgspec.structs.replace(operator, source=named(operator.source))

    def steps(self, operator: Linear) -> tuple[Named, ...]:
        return tuple((operator.name, step) for step in operator.steps)

    def problems(self, operator: Linear, around: Around) -> Iterator[Problem]:
        path = f"operators.{operator.name}.linear"
        yield from around.missing_collection(path, operator.source)

    def relation(self, operator: Linear, catalog: Relations) -> Relation:
        path = f"operators.{operator.name}"

        def place(at: StepProblem) -> str:
            within = "" if len(operator.steps) == 1 else f".steps.{at.step}"
            return f"{path}{within}.{at.part}"

        source, steps = catalog.relation(operator.source), self.steps(operator)
        result = of_scopes(
            catalog.taking(result_of(operator.steps, scope), place) for scope in source.scopes
        )
        unique = source.unique
        if not all(_only_chooses(step) for step in operator.steps):
            unique = tuple(key for key in unique if key == (KEY,) and keeps_key(steps))
        return replace(result, unique=unique, size=source.size)

    def keys(
        self, operator: Linear, keyed: Callable[[str], Keyed], types: Mapping[str, str]
    ) -> Keys:
        return _vouched(behind(keyed(operator.source), operator.steps), operator, types)


class ConcatKind(OperatorKind[Concat]):
    """The sum of collections: it only unites their ways."""

    label = "concat"
    is_linear = True

    def sources(self, operator: Concat) -> tuple[str, ...]:
        return operator.sources

    def with_sources(self, operator: Concat, named: Callable[[str], str]) -> Concat:
        return msgspec.structs.replace(operator, sources=tuple(map(named, operator.sources)))

    def problems(self, operator: Concat, around: Around) -> Iterator[Problem]:
        path = f"operators.{operator.name}.concat"
        if not operator.sources:
            yield path, "at least one operator is needed"
        for source in operator.sources:
            yield from around.missing_collection(path, source)

    def relation(self, operator: Concat, catalog: Relations) -> Relation:
        sources = [catalog.relation(name) for name in operator.sources]
        result = of_scopes(scope for source in sources for scope in source.scopes)
        if len(sources) != 1:
            return result
        return replace(result, unique=sources[0].unique, size=sources[0].size)

    def keys(
        self, operator: Concat, keyed: Callable[[str], Keyed], types: Mapping[str, str]
    ) -> Keys:
        if len(operator.sources) == 1:
            return keyed(operator.sources[0]).keys
        return _vouched(NOTHING, operator, types)


def _vouched(keys: Keys, operator: Linear | Concat, types: Mapping[str, str]) -> Keys:
    """The derived keys, and those that the operator claims in addition."""
    for key in operator.unique:
        keys = keys.with_unique(key, [KEY, VALUE, *types])
    return keys


def keeps_key(steps: Sequence[Named]) -> bool:
    """Whether steps make at most one pair from each pair, with the same key."""
    return all(
        isinstance(step, Negate)
        or (isinstance(step, Arrange) and step.keys in ((KEY,), (quoted(KEY),)))
        or (isinstance(step, Call) and step.kind == "filter")
        or (isinstance(step, Sql) and step.key is None and step.flat_map is None)
        for _, step in steps
    )


def _only_chooses(step: AnyStep) -> bool:
    if isinstance(step, Sql):
        return Sql(where=step.where) == step
    return isinstance(step, Call) and step.kind == "filter"
