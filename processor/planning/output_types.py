"""The SQL types of what outputs show, as far as the plan knows them, for their readers."""

import functools
from collections.abc import Mapping
from types import MappingProxyType

from ikebana.codecs.sql_type import JSON, NULL, Scalar, SqlType, type_of, within
from ikebana.processor.linear.scope import KEY, UNKNOWN, VALUE, ExpressionError
from ikebana.processor.linear.typed_json import from_json
from ikebana.processor.planning.graph import Graph
from ikebana.processor.planning.plan import Output, Plan

# Of which nothing is known, or tables of other programs have no values.
_UNTOLD = {JSON, NULL, Scalar("INTERVAL"), Scalar("VARIANT"), Scalar(UNKNOWN)}


@functools.lru_cache(maxsize=256)
def output_types(plan: Plan, output: Output) -> Mapping[str, str]:
    """The types of the columns of an output's values, by name, as far as they are known."""
    if not output.source:
        return MappingProxyType({})
    graph = Graph(plan)
    types = graph.scope_after(graph.ways(output.source)[0]).types
    told = {name: kind for name, kind in types.items() if name not in (KEY, VALUE)}
    return MappingProxyType({name: kind for name, kind in told.items() if _is_told(type_of(kind))})


def _is_told(kind: SqlType) -> bool:
    if not _UNTOLD.isdisjoint(within(kind)):
        return False
    try:
        return bool(from_json("x", str(kind)))
    except ExpressionError:
        return False
