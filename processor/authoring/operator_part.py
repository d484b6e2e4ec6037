"""The sections of operators and their steps in the pipeline file, with all their keys."""

from typing import Annotated, Any, get_args

from pydantic import (
    BeforeValidator,
    field_validator,
)

from ikebana.processor.authoring.values import (
    Expression,
    Part,
    Text,
    Whole,
    as_aggregates,
    as_by,
    as_conditions,
    as_finite_seconds,
    as_flag,
    as_flat_mapped,
    as_functions,
    as_joined,
    as_names,
    as_orders,
    as_selected,
    as_texts,
    as_typed,
    choice,
    refuse,
)
from ikebana.processor.linear.steps import Call, Kind, Negate, Sql, Step
from ikebana.processor.planning.joins.query import At, Retract, Strategy

_PYTHON: tuple[Kind, ...] = get_args(Kind)


class StepPart(Part):
    """A step of a linear operator: SQL, or one Python function, or a change of signs."""

    where: Annotated[tuple[str, ...], BeforeValidator(as_texts)] = ()
    select: Annotated[tuple[tuple[str, str], ...] | None, BeforeValidator(as_selected)] = None
    key: Annotated[str | None, BeforeValidator(as_by)] = None
    flat_map: Annotated[tuple[str, str] | str | None, BeforeValidator(as_flat_mapped)] = None
    diff: Expression | None = None
    valid_from: Expression | None = None
    valid_until: Expression | None = None
    map: Text | None = None
    filter: Text | None = None
    explode: Text | None = None
    join_function: Text | None = None
    negate: Annotated[bool, BeforeValidator(as_flag)] = False

    def as_step(self) -> Step:
        """The step that this section describes.  Raises: ValueError, with the reason."""
        steps: list[Step] = [
            Call(kind, function, moves_time=kind == "join_function")
            for kind in _PYTHON
            if isinstance(function := getattr(self, kind), str)
        ]
        if self.negate:
            steps.append(Negate())
        sql = Sql(
            self.where,
            self.select,
            self.key,
            self.flat_map if isinstance(self.flat_map, tuple) else None,
            self.diff,
            self.valid_from,
            self.valid_until,
        )
        if sql != Sql():
            steps.append(sql)
        if not steps:
            raise ValueError(f"says nothing; a step has {', '.join(StepPart.keys())}")
        if len(steps) > 1:
            raise ValueError(
                "mixes SQL, Python and negate; write them as steps, in the order that is meant"
            )
        return steps[0]


class OperatorPart(StepPart):
    """`operators.<name>`."""

    upsert: Text | None = None
    sql: Expression | None = None
    linear: Text | None = None
    concat: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    state_machine: Text | None = None
    reduce: Text | None = None
    steps: tuple[StepPart, ...] = ()
    step: Text | None = None
    view: Text | None = None
    version: Whole = 1
    migrate: Text | None = None
    by: Annotated[str | None, BeforeValidator(as_by)] = None
    having: Annotated[tuple[str, ...], BeforeValidator(as_texts)] = ()
    aggregates: Annotated[tuple[tuple[str, str], ...], BeforeValidator(as_aggregates)] = ()
    function: Text | None = None
    total: Annotated[bool, BeforeValidator(as_flag)] = False
    delta_join: Annotated[tuple[tuple[str, str], ...], BeforeValidator(as_joined)] = ()
    as_of_join: Annotated[tuple[tuple[str, str], ...], BeforeValidator(as_joined)] = ()
    distinct: Text | None = None
    union: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    minus: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    intersect: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    all: Annotated[bool, BeforeValidator(as_flag)] = False
    semi_join: Annotated[tuple[tuple[str, str], ...], BeforeValidator(as_joined)] = ()
    anti_join: Annotated[tuple[tuple[str, str], ...], BeforeValidator(as_joined)] = ()
    left_join: Annotated[tuple[tuple[str, str], ...], BeforeValidator(as_joined)] = ()
    right_join: Annotated[tuple[tuple[str, str], ...], BeforeValidator(as_joined)] = ()
    full_join: Annotated[tuple[tuple[str, str], ...], BeforeValidator(as_joined)] = ()
    first: Text | None = None
    count: Whole = 1
    partition: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    order: Annotated[tuple[str, ...], BeforeValidator(as_texts)] = ()
    on: Annotated[tuple[str, ...], BeforeValidator(as_texts)] = ()
    window: Text | None = None
    functions: Annotated[tuple[tuple[str, str], ...], BeforeValidator(as_functions)] = ()
    frame: Text = ""
    iterate: Expression | None = None
    columns: Annotated[tuple[tuple[str, str], ...], BeforeValidator(as_typed)] = ()
    rounds: Whole = 0
    tumble: Text | None = None
    hop: Text | None = None
    session: Text | None = None
    over: Expression | None = None
    size: Annotated[float, BeforeValidator(as_finite_seconds)] = 0.0
    every: Annotated[float, BeforeValidator(as_finite_seconds)] = 0.0
    gap: Annotated[float, BeforeValidator(as_finite_seconds)] = 0.0
    at: Annotated[At, choice(At)] = "alt"
    outer: Annotated[bool, BeforeValidator(as_flag)] = False
    retract: Annotated[Retract, choice(Retract)] = "current"
    locked_by: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    orders: Annotated[tuple[tuple[str, tuple[str, ...]], ...], BeforeValidator(as_orders)] = ()
    left: Annotated[tuple[tuple[str, tuple[str, ...]], ...], BeforeValidator(as_conditions)] = ()
    full: Annotated[tuple[tuple[str, tuple[str, ...]], ...], BeforeValidator(as_conditions)] = ()
    cartesian: Annotated[bool, BeforeValidator(as_flag)] = False
    strategy: Annotated[Strategy, choice(Strategy)] = "auto"

    @field_validator("steps", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else refuse(value, "a list of steps")

    @classmethod
    def keys(cls) -> dict[str, Any]:
        steps = StepPart.keys()
        of_operators = {name: kind for name, kind in super().keys().items() if name not in steps}
        return {**of_operators, **steps}
