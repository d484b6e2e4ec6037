"""Delta joins and as-of joins, as kinds of operators."""

from collections.abc import Callable, Iterator

from ikebana.processor.joins.binding import examined
from ikebana.processor.joins.query import Join, section_of
from ikebana.processor.joins.relation import Relation
from ikebana.processor.linear.chain import chain
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.scope import KEY, UNKNOWN, VALUE, Scope, frozen
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.operators.kind import (
    Around,
    Compiled,
    Judged,
    OperatorKind,
    Problem,
)


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

    def judged(self, operator: Join, judge: Judged) -> list[Scope]:
        from ikebana.processor.linear.judging import judged

        section = section_of(operator)
        path = f"operators.{operator.name}"
        relations = {
            each.relation: Relation(judge.scopes(each.relation)[0]) for each in operator.inputs
        }
        told = examined(operator, relations)
        for part, problem in told.problems:
            judge.tell(f"{path}.{part.replace('inputs', section, 1)}", problem)
        known = [each for _, each in told.select] + ([] if told.key is None else [told.key])
        types = {name: type_ for each in known for name, type_ in each.reads.items()}
        select = tuple((name, each.sql) for name, each in told.select)
        step = Sql(select=select, key=None if told.key is None else told.key.sql)
        scope = Scope({**types, KEY: JSON, VALUE: JSON})
        results = judge.taking(judged((step,), scope), lambda at: f"{path}.{at.part}")
        made = {name: UNKNOWN for name, _ in operator.select}
        for name, each in told.select:
            if results.types.get(name) != UNKNOWN:
                made[name] = each.type
        return [Scope({**made, KEY: JSON, VALUE: JSON})]

    def scope(self, operator: Join, compiled: Compiled) -> Scope:
        types = {name: made.type for name, made in compiled.join(operator.name).select}
        return Scope({**types, KEY: JSON, VALUE: JSON})

    def compile(self, operator: Join, compiled: Compiled) -> None:
        super().compile(operator, compiled)
        made = compiled.join(operator.name)
        select = tuple((name, each.sql) for name, each in made.select)
        scope = Scope({**made.types(), KEY: JSON, VALUE: JSON})
        chain(((operator.name, Sql(select=select, key=made.key.sql)),), frozen(scope))
