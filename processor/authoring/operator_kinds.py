"""The kinds of operators in the pipeline file: their keys, steps, and translation."""

from collections.abc import Callable, Mapping
from itertools import starmap
from typing import Annotated, Any, NamedTuple, get_args

from pydantic import (
    BeforeValidator,
    field_validator,
)

from ikebana.errors import PlanError
from ikebana.processor.authoring.values import (
    ExpressionText,
    Section,
    Text,
    WholeNumber,
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
from ikebana.processor.linear.steps import Call, CallKind, Negate, Sql, Step, project
from ikebana.processor.planning.joins.query import (
    AsOfJoin,
    At,
    DeltaJoin,
    JoinInput,
    Retract,
    Strategy,
)
from ikebana.processor.planning.plan import (
    Concat,
    Linear,
    Operator,
    Reduce,
    StateMachine,
    Unread,
    Upsert,
    reduction,
)
from ikebana.processor.relational import sections
from ikebana.processor.relational.outer_joins import Outer
from ikebana.processor.relational.sections import Derived, from_sql, iterated, windowed

_PYTHON: tuple[CallKind, ...] = get_args(CallKind)


class StepSection(Section):
    """A step of a linear operator: SQL, or one Python function, or a change of signs."""

    where: Annotated[tuple[str, ...], BeforeValidator(as_texts)] = ()
    select: Annotated[tuple[tuple[str, str], ...] | None, BeforeValidator(as_selected)] = None
    key: Annotated[str | None, BeforeValidator(as_by)] = None
    flat_map: Annotated[tuple[str, str] | str | None, BeforeValidator(as_flat_mapped)] = None
    diff: ExpressionText | None = None
    valid_from: ExpressionText | None = None
    valid_until: ExpressionText | None = None
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
            raise ValueError(f"says nothing; a step has {', '.join(StepSection.keys())}")
        if len(steps) > 1:
            raise ValueError(
                "mixes SQL, Python and negate; write them as steps, in the order that is meant"
            )
        return steps[0]


class OperatorSection(StepSection):
    """`operators.<name>`."""

    upsert: Text | None = None
    sql: ExpressionText | None = None
    linear: Text | None = None
    concat: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    state_machine: Text | None = None
    reduce: Text | None = None
    steps: tuple[StepSection, ...] = ()
    step: Text | None = None
    view: Text | None = None
    version: WholeNumber = 1
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
    count: WholeNumber = 1
    partition: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    order: Annotated[tuple[str, ...], BeforeValidator(as_texts)] = ()
    on: Annotated[tuple[str, ...], BeforeValidator(as_texts)] = ()
    window: Text | None = None
    functions: Annotated[tuple[tuple[str, str], ...], BeforeValidator(as_functions)] = ()
    frame: Text = ""
    iterate: ExpressionText | None = None
    columns: Annotated[tuple[tuple[str, str], ...], BeforeValidator(as_typed)] = ()
    rounds: WholeNumber = 0
    tumble: Text | None = None
    hop: Text | None = None
    session: Text | None = None
    over: ExpressionText | None = None
    size: Annotated[float, BeforeValidator(as_finite_seconds)] = 0.0
    every: Annotated[float, BeforeValidator(as_finite_seconds)] = 0.0
    offset: Annotated[float, BeforeValidator(as_finite_seconds)] = 0.0
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
        steps = StepSection.keys()
        of_operators = {name: kind for name, kind in super().keys().items() if name not in steps}
        return {**of_operators, **steps}


_Operators = Operator | Derived | tuple[Operator, ...]
# By kind of join: the key of the other kind's conditions, and the right one.
_CONDITIONS = {"delta_join": ("on", "where"), "as_of_join": ("where", "on")}


def operators(section: OperatorSection, name: str) -> tuple[Operator | Derived, ...]:
    """The operators of a section, or what becomes them later.  Raises: PlanError."""
    kinds = [kind for kind in KINDS if getattr(section, kind)]
    path = f"operators.{name}"
    if not kinds and (empty := [kind for kind in KINDS if kind in section.model_fields_set]):
        raise PlanError(name, [(f"{path}.{empty[0]}", "must not be empty")])
    if len(kinds) != 1:
        stated = f"is {' and '.join(kinds)}" if kinds else _without_kind(section)
        raise PlanError(name, [(path, f"must be one of {', '.join(KINDS)}; {stated}")])
    (kind,) = kinds
    of_kind = _OF_KIND[kind]
    extra = section.model_fields_set - {kind, *of_kind.keys}
    if kind == "linear":
        extra -= {*StepSection.model_fields, "steps"}
    if extra:
        other = ", ".join(sorted(extra))
        remedy = "; add a linear operator" if extra & {*StepSection.model_fields, "steps"} else ""
        if (conditions := _CONDITIONS.get(kind)) and conditions[0] in extra:
            remedy = f'; its conditions are "{conditions[1]}"'
        raise PlanError(name, [(path, f"{kind} takes no {other}{remedy}")])
    built = of_kind.build(section, name, kind, getattr(section, kind))
    return built if isinstance(built, tuple) else (built,)


def _without_kind(section: OperatorSection) -> str:
    """What an operator has that is none of the kinds."""
    keys = section.model_fields_set
    if not keys:
        return "a key without a value counts as absent"
    of_steps = "; a step is of a linear operator" if keys & {*StepSection.model_fields} else ""
    return f"has only {', '.join(sorted(keys))}{of_steps}"


def readable_operators(
    section: OperatorSection, name: str, unread: Unread
) -> tuple[Operator | Derived, ...]:
    """The operators of a section with parts that could not be parsed, as far as it was parsed.

    Steps after such a part are dropped, because the names they may use are not known.
    """
    kinds = [kind for kind in KINDS if getattr(section, kind)]
    if section.linear is None or len(kinds) != 1:
        try:
            return operators(section, name)
        except PlanError:
            return ()
    steps: list[Step] = []
    path = f"operators.{name}"
    for at, each in enumerate(section.steps or [section]):
        lost = unread.keys(f"{path}.steps.{at}" if section.steps else path)
        # A flat_map makes a column for the rest of its step.
        keys = lost & set(StepSection.keys())
        if "flat_map" in keys or "steps" in lost or (lost and not keys):
            break
        try:
            steps.append(each.as_step())
        except ValueError:
            break
        if lost:
            break
    # Steps without effect on problems, so that the number of steps stays.
    others = len(section.steps) - len(steps)
    return (Linear(name, section.linear, (*steps, *[Negate()] * others)),)


def _as_reduce(section: OperatorSection, name: str, source: str) -> tuple[Operator, ...]:
    """What `reduce` becomes; `having` becomes a linear operator after it.  Raises: PlanError."""
    groups = f"{name}.groups" if section.having else name
    written = Reduce(groups, source, section.aggregates, section.by, section.total)
    reduce = reduction(written, section.function)
    step = Sql(where=section.having)
    return (reduce, Linear(name, groups, (step,))) if section.having else (reduce,)


def _as_machine(section: OperatorSection, name: str, source: str) -> StateMachine:
    """What `state_machine` becomes.  Raises: PlanError."""
    if section.step is None:
        raise PlanError(name, [(f"operators.{name}.step", "is missing")])
    return StateMachine(name, source, section.step, section.view, section.version, section.migrate)


def _as_join(
    section: OperatorSection, name: str, kind: str, pairs: tuple[tuple[str, str], ...]
) -> Operator | Derived:
    """What `delta_join` and `as_of_join` become.  Raises: PlanError."""
    path = f"operators.{name}"
    inputs = tuple(starmap(JoinInput, pairs))
    select = section.select or ()
    problems: list[tuple[str, str]] = []
    if not select:
        problems.append((f"{path}.select", "at least one field is needed"))
    elif select == project(*(field for field, _ in select)).select:
        problem = "must be a mapping of names to SQL in a join, such as {price: p.price}"
        problems.append((f"{path}.select", problem))
    if kind == "as_of_join" and len(inputs) != 2:
        problem = "must have two inputs: the left, and the right that it meets"
        problems.append((f"{path}.as_of_join", problem))
    if problems:
        raise PlanError(name, problems)
    if kind == "as_of_join":
        left, right = inputs
        how = section.at, section.outer, section.retract, section.locked_by
        return AsOfJoin(name, left, right, section.on, select, section.key, *how)
    ways = section.orders, section.cartesian, section.strategy
    join = DeltaJoin(name, inputs, section.where, select, section.key, *ways)
    return (
        sections.delta(join, section.left, section.full) if section.left or section.full else join
    )


def _as_linear(section: OperatorSection, name: str, source: str) -> Linear:
    """What `linear` becomes.  Raises: PlanError."""
    path = f"operators.{name}"
    step_keys = {field for field in section.model_fields_set if field in StepSection.model_fields}
    if step_keys and section.steps:
        problem = "has steps, and a step beside them; write it among them"
        raise PlanError(name, [(path, problem)])
    steps: list[Step] = []
    problems: list[tuple[str, str]] = []
    for at, each in enumerate(section.steps or [section]):
        try:
            steps.append(each.as_step())
        except ValueError as error:
            problems.append((f"{path}.steps.{at}" if section.steps else path, str(error)))
    if problems:
        raise PlanError(name, problems)
    return Linear(name, source, tuple(steps))


def _as_windows(section: OperatorSection, name: str, kind: str, source: str) -> Derived:
    """What `tumble`, `hop` and `session` become.  Raises: PlanError."""
    needed = {"tumble": ("over", "size"), "hop": ("over", "every", "size")}
    missing = [key for key in needed.get(kind, ("over", "gap")) if not getattr(section, key)]
    if missing or section.over is None:
        problems = [(f"operators.{name}.{key}", "is missing") for key in missing]
        raise PlanError(name, problems)
    if kind == "session":
        return sections.session(name, source, section.over, section.gap, section.partition)
    every = section.every if kind == "hop" else section.size
    lengths = {"every": every, "size": section.size, "offset": section.offset}
    return sections.windows(name, kind, source, section.over, **lengths)


class _Kind(NamedTuple):
    """A kind of operator: the keys of its section, and the function that translates it.

    `build` gets the section, the name of the operator, its kind, and the value under the key of
    the kind.  It returns the operator, or several of which the last one has the name.
    """

    keys: tuple[str, ...]
    build: Callable[[OperatorSection, str, str, Any], _Operators]


_OUTER_KINDS: Mapping[str, Outer] = {
    "left_join": "left",
    "right_join": "right",
    "full_join": "full",
}
_SET_OPERATION = _Kind(
    ("all",),
    lambda section, name, kind, of: sections.set_operation(name, kind, of, every=section.all),
)
_MATCHING = _Kind(
    ("on",), lambda section, name, kind, of: sections.matching(name, kind, of, section.on)
)
_OUTER = _Kind(
    ("on", "select"),
    lambda section, name, kind, of: sections.outer(
        name, _OUTER_KINDS[kind], of, section.on, section.select
    ),
)

_OF_KIND: Mapping[str, _Kind] = {
    "upsert": _Kind((), lambda section, name, kind, of: Upsert(name, of)),
    "linear": _Kind((), lambda section, name, kind, of: _as_linear(section, name, of)),
    "concat": _Kind((), lambda section, name, kind, of: Concat(name, of)),
    "state_machine": _Kind(
        ("step", "view", "version", "migrate"),
        lambda section, name, kind, of: _as_machine(section, name, of),
    ),
    "reduce": _Kind(
        ("by", "total", "aggregates", "function", "having"),
        lambda section, name, kind, of: _as_reduce(section, name, of),
    ),
    "delta_join": _Kind(
        ("where", "left", "full", "select", "key", "orders", "cartesian", "strategy"), _as_join
    ),
    "as_of_join": _Kind(("on", "select", "key", "at", "outer", "retract", "locked_by"), _as_join),
    "sql": _Kind(("key",), lambda section, name, kind, of: from_sql(name, of, section.key)),
    "distinct": _Kind(
        ("select",), lambda section, name, kind, of: sections.distinct(name, of, section.select)
    ),
    **dict.fromkeys(("union", "minus", "intersect"), _SET_OPERATION),
    **dict.fromkeys(("semi_join", "anti_join"), _MATCHING),
    **dict.fromkeys(_OUTER_KINDS, _OUTER),
    "first": _Kind(
        ("count", "partition", "order"),
        lambda section, name, kind, of: sections.first(
            name, of, section.partition, section.order, section.count
        ),
    ),
    "window": _Kind(
        ("functions", "partition", "order", "frame", "having"),
        lambda section, name, kind, of: windowed(
            name,
            of,
            section.functions,
            section.partition,
            section.order,
            section.frame,
            section.having,
        ),
    ),
    "iterate": _Kind(
        ("columns", "rounds"),
        lambda section, name, kind, of: iterated(name, of, section.columns, section.rounds),
    ),
    "tumble": _Kind(("over", "size", "offset"), _as_windows),
    "hop": _Kind(("over", "every", "size", "offset"), _as_windows),
    "session": _Kind(("over", "gap", "partition"), _as_windows),
}
KINDS = tuple(_OF_KIND)


def keys_of_kind(kind: str) -> tuple[str, ...]:
    """The keys that a section of this kind may have."""
    return _OF_KIND[kind].keys
