"""The kinds of operators: one row for each type of a plan's operators."""

from collections.abc import Mapping
from typing import Any

from ikebana.processor.planning.joins.query import AsOfJoin, DeltaJoin
from ikebana.processor.planning.operators.join import JoinKind
from ikebana.processor.planning.operators.kind import OperatorKind
from ikebana.processor.planning.operators.linear import ConcatKind, LinearKind
from ikebana.processor.planning.operators.reduce import ReduceKind
from ikebana.processor.planning.operators.state_machine import StateMachineKind
from ikebana.processor.planning.operators.upsert import UpsertKind
from ikebana.processor.planning.operators.window_functions import WindowFunctionsKind
from ikebana.processor.planning.plan import (
    Concat,
    Linear,
    Operator,
    Reduce,
    StateMachine,
    Upsert,
    WindowFunctions,
)

# A batch goes through the roots of a plan in the order of these kinds.
KINDS: Mapping[type, OperatorKind[Any]] = {
    Upsert: UpsertKind(),
    StateMachine: StateMachineKind(),
    Linear: LinearKind(),
    Concat: ConcatKind(),
    Reduce: ReduceKind(),
    WindowFunctions: WindowFunctionsKind(),
    DeltaJoin: JoinKind("where", "select", "key"),
    AsOfJoin: JoinKind("on", "select", "key"),
}


def kind_of(operator: Operator) -> OperatorKind[Any]:
    """The kind of an operator."""
    return KINDS[type(operator)]
