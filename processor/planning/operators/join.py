"""Delta joins and as-of joins, as kinds of operators."""

from collections.abc import Callable, Iterator, Mapping

from ikebana.processor.kernels import arrange, locked
from ikebana.processor.linear.chain import consolidated
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.results import result_of
from ikebana.processor.linear.scope import KEY, UNKNOWN, VALUE, ExpressionError, Scope
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import tree
from ikebana.processor.linear.trees import conjuncts
from ikebana.processor.planning.joins.query import AsOfJoin, Join, section_of
from ikebana.processor.planning.operators.kind import (
    Around,
    OperatorBatch,
    OperatorKind,
    Problem,
    Relations,
)
from ikebana.processor.planning.relations import (
    NOTHING,
    Derivation,
    Keyed,
    Keys,
    Relation,
    equalities,
    joined,
    made_of,
)


class JoinKind(OperatorKind[Join]):
    """A root by the key of its results."""

    label = "join"
    is_keyed = True
    parts = (arrange.PART, locked.PART)

    def __init__(self, *sql: str) -> None:
        self.sql = sql

    def sources(self, operator: Join) -> tuple[str, ...]:
        return tuple(each.relation for each in operator.inputs)

    def with_sources(self, operator: Join, named: Callable[[str], str]) -> Join:
        return operator.with_relations(named)

    def problems(self, operator: Join, around: Around) -> Iterator[Problem]:
        for each in operator.inputs:
            path = f"operators.{operator.name}.{section_of(operator)}.{each.alias}"
            yield from around.missing_collection(path, each.relation)

    def relation(self, operator: Join, catalog: Relations) -> Relation:
        section = section_of(operator)
        path = f"operators.{operator.name}"
        parts = catalog.examined(operator)
        for part, problem in parts.problems:
            catalog.tell(f"{path}.{part.replace('inputs', section, 1)}", problem)
        flats = [each for _, each in parts.select] + ([] if parts.key is None else [parts.key])
        types = {name: type_ for each in flats for name, type_ in each.reads.items()}
        select = tuple((name, each.sql) for name, each in parts.select)
        step = Sql(select=select, key=None if parts.key is None else parts.key.sql)
        scope = Scope({**types, KEY: JSON, VALUE: JSON})
        results = catalog.taking(result_of((step,), scope), lambda at: f"{path}.{at.part}")
        columns = {name: UNKNOWN for name, _ in operator.select}
        for name, each in parts.select:
            if results.types.get(name) != UNKNOWN:
                columns[name] = each.type
        return Relation(Scope({**columns, KEY: JSON, VALUE: JSON}))

    def keys(
        self, operator: Join, keyed: Callable[[str], Keyed], types: Mapping[str, str]
    ) -> Keys:
        if isinstance(operator, AsOfJoin):
            return NOTHING
        sides = [(each.alias, keyed(each.relation)) for each in operator.inputs]
        read = {f"{alias}.{name}": of for alias, side in sides for name, of in side.types.items()}
        try:
            conditions = [each for text in operator.where for each in conjuncts(tree(text))]
        except ExpressionError:
            return NOTHING
        whole = joined(
            (side.keys.prefixed(alias) for alias, side in sides), equalities(conditions, read)
        )
        key = f"{operator.inputs[0].alias}.{KEY}"
        columns = {KEY: Derivation(frozenset((key,)), one_to_one=True)}
        if operator.key is not None:
            columns[KEY] = made_of(operator.key, 2, names=read)
        columns |= {name: made_of(text, 2, names=read) for name, text in operator.select}
        return whole.selected(columns)

    def step(self, operator: Join, batch: OperatorBatch, catalog: Relations) -> None:
        # Updates that cancel need not meet, so lookups may be made in portions.
        for some in batch.portions():
            # Without retractions nothing cancels.
            cancels = any(update.diff < 0 for update in some)
            batch.emit(consolidated(some) if cancels else some)
