"""Delta joins and as-of joins, as kinds of operators."""

from collections.abc import Callable, Iterator

from ikebana.processor.joins.query import Join, section_of
from ikebana.processor.joins.relation import Relation
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.judging import judged
from ikebana.processor.linear.scope import KEY, UNKNOWN, VALUE, Scope
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.operators.kind import Around, OperatorKind, Problem, Relations


class JoinKind(OperatorKind[Join]):
    """A root by the key of its results."""

    label = "join"
    is_keyed = True

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
        known = [each for _, each in parts.select] + ([] if parts.key is None else [parts.key])
        types = {name: type_ for each in known for name, type_ in each.reads.items()}
        select = tuple((name, each.sql) for name, each in parts.select)
        step = Sql(select=select, key=None if parts.key is None else parts.key.sql)
        scope = Scope({**types, KEY: JSON, VALUE: JSON})
        results = catalog.taking(judged((step,), scope), lambda at: f"{path}.{at.part}")
        made = {name: UNKNOWN for name, _ in operator.select}
        for name, each in parts.select:
            if results.types.get(name) != UNKNOWN:
                made[name] = each.type
        return Relation(Scope({**made, KEY: JSON, VALUE: JSON}))
