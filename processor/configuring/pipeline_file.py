"""The schema of the pipeline file, its operators and outputs, and the plan that they become.

One model a section, with the file's own keys; a key that is not here is refused, and so
is a value of another type, in our words.  Numbers may also be written as text, since
that is what a substituted variable is.  Ranges, and whether the parts fit together, are
for `Plan` and `Settings` to judge.
"""

from collections.abc import Callable, Mapping
from itertools import starmap
from typing import Annotated, Any, NamedTuple, get_args

from pydantic import (
    BeforeValidator,
    Field,
    field_validator,
)

from ikebana.codecs.formats import OutputFormat
from ikebana.errors import PlanError
from ikebana.processor.configuring.input_part import InputPart
from ikebana.processor.configuring.part import Part
from ikebana.processor.configuring.settings_part import SettingsPart
from ikebana.processor.configuring.values import (
    Expression,
    Text,
    Whole,
    as_aggregates,
    as_by,
    as_conditions,
    as_finite_seconds,
    as_flag,
    as_flat_mapped,
    as_joined,
    as_names,
    as_orders,
    as_selected,
    as_texts,
    choice,
    refuse,
)
from ikebana.processor.joins.query import AsOfJoin, At, DeltaJoin, JoinInput, Retract, Strategy
from ikebana.processor.linear.steps import Call, Kind, Negate, Sql, Step, project
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import (
    Concat,
    Linear,
    OnChange,
    OnError,
    Operator,
    Output,
    Plan,
    Reduce,
    StateMachine,
    TimeDomain,
    Upsert,
)
from ikebana.processor.planning.unread import ALL_READ, Unread
from ikebana.processor.relational import sections
from ikebana.processor.relational.deriving import Derived, from_sql, resolved
from ikebana.processor.relational.outer import Outer
from ikebana.processor.relational.rows import SetOperation

_PYTHON: tuple[Kind, ...] = get_args(Kind)


class StepPart(Part):
    """A step of a linear operator: SQL, or one Python function, or a change of signs."""

    where: Annotated[tuple[str, ...], BeforeValidator(as_texts)] = ()
    select: Annotated[tuple[tuple[str, str], ...] | None, BeforeValidator(as_selected)] = None
    key: Expression | None = None
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
        """The step that this section describes.  Raises: ValueError, saying why it is none."""
        found: list[Step] = [
            Call(kind, function, moves_time=kind == "join_function")
            for kind in _PYTHON
            if isinstance(function := getattr(self, kind), str)
        ]
        if self.negate:
            found.append(Negate())
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
            found.append(sql)
        if not found:
            raise ValueError(f"says nothing; a step has {', '.join(StepPart.keys())}")
        if len(found) > 1:
            raise ValueError(
                "mixes SQL, Python and negate; write them as steps, in the order that is meant"
            )
        return found[0]


# What the conditions of the other kind of join are called, and those of each.
_CONDITIONS = {"delta_join": ("on", "where"), "as_of_join": ("where", "on")}


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
        own = {name: kind for name, kind in super().keys().items() if name not in steps}
        return {**own, **steps}

    def operators(self, name: str) -> tuple[Operator | Derived, ...]:
        """The operators that this section describes, or how it is made.  Raises: PlanError."""
        kinds = [kind for kind in KINDS if getattr(self, kind)]
        path = f"operators.{name}"
        if len(kinds) != 1:
            both = f"; is {' and '.join(kinds)}" if kinds else ""
            raise PlanError(name, [(path, f"must be one of {', '.join(KINDS)}{both}")])
        (kind,) = kinds
        section = _SECTIONS[kind]
        given = self.model_fields_set - {kind, *section.keys}
        if kind == "linear":
            given -= {*StepPart.model_fields, "steps"}
        if given:
            other = ", ".join(sorted(given))
            remedy = "; add a linear operator" if given & {*StepPart.model_fields, "steps"} else ""
            if (conditions := _CONDITIONS.get(kind)) and conditions[0] in given:
                remedy = f'; its conditions are "{conditions[1]}"'
            raise PlanError(name, [(path, f"{kind} takes no {other}{remedy}")])
        return section.made(self, name, getattr(self, kind))

    def as_upsert(self, name: str, source: str) -> tuple[Operator, ...]:
        """What `upsert` becomes."""
        return (Upsert(name, source),)

    def as_concat(self, name: str, sources: tuple[str, ...]) -> tuple[Operator, ...]:
        """What `concat` becomes."""
        return (Concat(name, sources),)

    def as_reduce(self, name: str, source: str) -> tuple[Operator, ...]:
        """What `reduce` becomes; its conditions are a linear operator behind it."""
        groups = f"{name}.groups" if self.having else name
        reduce = Reduce(groups, source, self.aggregates, self.by, self.function, self.total)
        step = Sql(where=self.having)
        return (reduce, Linear(name, groups, (step,))) if self.having else (reduce,)

    def as_machine(self, name: str, source: str) -> tuple[Operator, ...]:
        """What `state_machine` becomes.  Raises: PlanError."""
        if self.step is None:
            raise PlanError(name, [(f"operators.{name}.step", "is missing")])
        return (StateMachine(name, source, self.step, self.view, self.version, self.migrate),)

    def as_join(
        self, name: str, given: tuple[tuple[str, str], ...]
    ) -> tuple[Operator | Derived, ...]:
        """What `delta_join` and `as_of_join` become.  Raises: PlanError."""
        path = f"operators.{name}"
        inputs = tuple(starmap(JoinInput, given))
        select = self.select or ()
        problems: list[tuple[str, str]] = []
        if not select:
            problems.append((f"{path}.select", "at least one field is needed"))
        elif select == project(*(field for field, _ in select)).select:
            problem = "must be a mapping of names to SQL in a join, such as {price: p.price}"
            problems.append((f"{path}.select", problem))
        if self.as_of_join and len(inputs) != 2:
            problem = "must have two inputs: the left, and the right that it meets"
            problems.append((f"{path}.as_of_join", problem))
        if problems:
            raise PlanError(name, problems)
        if self.as_of_join:
            left, right = inputs
            how = self.at, self.outer, self.retract, self.locked_by
            return (AsOfJoin(name, left, right, self.on, select, self.key, *how),)
        ways = self.orders, self.cartesian, self.strategy
        join = DeltaJoin(name, inputs, self.where, select, self.key, *ways)
        is_outer = self.left or self.full
        return (sections.delta(join, self.left, self.full) if is_outer else join,)

    def as_linear(self, name: str, source: str) -> tuple[Operator, ...]:
        """What `linear` becomes.  Raises: PlanError."""
        path = f"operators.{name}"
        given = {field for field in self.model_fields_set if field in StepPart.model_fields}
        if given and self.steps:
            problem = "has steps, and a step beside them; write it among them"
            raise PlanError(name, [(path, problem)])
        steps: list[Step] = []
        problems: list[tuple[str, str]] = []
        for at, part in enumerate(self.steps or [self]):
            try:
                steps.append(part.as_step())
            except ValueError as error:
                problems.append((f"{path}.steps.{at}" if self.steps else path, str(error)))
        if problems:
            raise PlanError(name, problems)
        return (Linear(name, source, tuple(steps)),)

    def as_sql(self, name: str, text: str) -> tuple[Derived, ...]:
        """What `sql` becomes."""
        return (from_sql(name, text, self.key),)

    def as_distinct(self, name: str, source: str) -> tuple[Derived, ...]:
        """What `distinct` becomes."""
        return (sections.distinct(name, source, self.select),)

    def as_set_operation(self, name: str, sources: tuple[str, ...]) -> tuple[Derived, ...]:
        """What `union`, `minus` and `intersect` become."""
        if self.union:
            return (sections.set_operation(name, "union", "union", sources, every=self.all),)
        kind = "minus" if self.minus else "intersect"
        operation: SetOperation = "except" if self.minus else "intersect"
        return (sections.set_operation(name, kind, operation, sources, every=self.all),)

    def as_matching(self, name: str, inputs: tuple[tuple[str, str], ...]) -> tuple[Derived, ...]:
        """What `semi_join` and `anti_join` become."""
        kind = "semi_join" if self.semi_join else "anti_join"
        return (sections.matching(name, kind, inputs, self.on),)

    def as_outer(self, name: str, inputs: tuple[tuple[str, str], ...]) -> tuple[Derived, ...]:
        """What `left_join`, `right_join` and `full_join` become."""
        kind: Outer = "left" if self.left_join else "right" if self.right_join else "full"
        return (sections.outer(name, kind, inputs, self.on, self.select),)

    def as_first(self, name: str, source: str) -> tuple[Derived, ...]:
        """What `first` becomes."""
        return (sections.first(name, source, self.partition, self.order, self.count),)

    def as_windows(self, name: str, source: str) -> tuple[Derived, ...]:
        """What `tumble`, `hop` and `session` become.  Raises: PlanError."""
        kind = "tumble" if self.tumble else "hop" if self.hop else "session"
        needed = {"tumble": ("over", "size"), "hop": ("over", "every", "size")}
        missing = [key for key in needed.get(kind, ("over", "gap")) if not getattr(self, key)]
        if missing or self.over is None:
            problems = [(f"operators.{name}.{key}", "is missing") for key in missing]
            raise PlanError(name, problems)
        if kind == "session":
            return (sections.session(name, source, self.over, self.gap, self.partition),)
        every = self.every if kind == "hop" else self.size
        made = sections.windows(name, kind, source, self.over, every=every, size=self.size)
        return (made,)

    def as_far_as_read(self, name: str, unread: Unread) -> tuple[Operator | Derived, ...]:
        """The operators, of which something was not read; none if nothing is known of them.

        What steps behind one that was not read may name, nobody knows.
        """
        kinds = [kind for kind in KINDS if getattr(self, kind)]
        if self.linear is None or len(kinds) != 1:
            try:
                return self.operators(name)
            except PlanError:
                return ()
        steps: list[Step] = []
        path = f"operators.{name}"
        for at, part in enumerate(self.steps or [self]):
            lost = unread.keys(f"{path}.steps.{at}" if self.steps else path)
            # A flat_map makes a column for the rest of its step.
            known = lost & set(StepPart.keys())
            if "flat_map" in known or "steps" in lost or (lost and not known):
                break
            try:
                steps.append(part.as_step())
            except ValueError:
                break
            if lost:
                break
        # Steps that say nothing, so that those before them keep their places.
        others = len(self.steps) - len(steps)
        return (Linear(name, self.linear, (*steps, *[Negate()] * others)),)


class _Section(NamedTuple):
    """What belongs to a kind of operator: its own keys, and what a section of it becomes.

    `made` is given the section, the operator's name, and what stands under the kind.
    """

    keys: tuple[str, ...]
    made: Callable[[OperatorPart, str, Any], tuple[Operator | Derived, ...]]


_SECTIONS: Mapping[str, _Section] = {
    "upsert": _Section((), OperatorPart.as_upsert),
    "linear": _Section((), OperatorPart.as_linear),
    "concat": _Section((), OperatorPart.as_concat),
    "state_machine": _Section(("step", "view", "version", "migrate"), OperatorPart.as_machine),
    "reduce": _Section(
        ("by", "total", "aggregates", "function", "having"), OperatorPart.as_reduce
    ),
    "delta_join": _Section(
        ("where", "left", "full", "select", "key", "orders", "cartesian", "strategy"),
        OperatorPart.as_join,
    ),
    "as_of_join": _Section(
        ("on", "select", "key", "at", "outer", "retract", "locked_by"), OperatorPart.as_join
    ),
    "sql": _Section(("key",), OperatorPart.as_sql),
    "distinct": _Section(("select",), OperatorPart.as_distinct),
    **dict.fromkeys(
        ("union", "minus", "intersect"), _Section(("all",), OperatorPart.as_set_operation)
    ),
    **dict.fromkeys(("semi_join", "anti_join"), _Section(("on",), OperatorPart.as_matching)),
    **dict.fromkeys(
        ("left_join", "right_join", "full_join"),
        _Section(("on", "select"), OperatorPart.as_outer),
    ),
    "first": _Section(("count", "partition", "order"), OperatorPart.as_first),
    "tumble": _Section(("over", "size"), OperatorPart.as_windows),
    "hop": _Section(("over", "every", "size"), OperatorPart.as_windows),
    "session": _Section(("over", "gap", "partition"), OperatorPart.as_windows),
}
KINDS = tuple(_SECTIONS)


def own_keys(kind: str) -> tuple[str, ...]:
    """The keys that belong to a kind of operator alone."""
    return _SECTIONS[kind].keys


class OutputPart(Part):
    """`outputs.<name>`."""

    source: Text = Field(alias="from")
    topic: Text
    format: Annotated[OutputFormat, choice(OutputFormat)] = "diff"
    partitions: Whole | None = None
    tombstones: Annotated[bool, BeforeValidator(as_flag)] = True
    on_change: Annotated[OnChange, choice(OnChange)] = "difference"


class ErrorsPart(Part):
    """`errors`."""

    topic: Text = ""
    policy: Annotated[OnError, choice(OnError)] = "record"


class PlanPart(Part):
    """The sections that say what is computed."""

    pipeline: Text
    inputs: dict[str, InputPart]
    operators: dict[str, OperatorPart] = {}
    outputs: dict[str, OutputPart]
    errors: ErrorsPart = ErrorsPart()
    time: Annotated[TimeDomain, choice(TimeDomain)] = "ingest"
    pushdown: Annotated[bool, BeforeValidator(as_flag)] = True

    def plan(self, unread: Unread = ALL_READ) -> Plan:
        """The plan that these sections describe, of which `unread` could not be read.

        Raises: PlanError.
        """
        problems: list[tuple[str, str]] = []
        operators: list[Operator | Derived] = []
        lost: set[str] = set()
        for name, part in self.operators.items():
            if unread.may_have("operators", name):
                # What it lacks may be what was not read, and so is no problem of its own.
                operators += part.as_far_as_read(name, unread)
                continue
            try:
                operators += part.operators(name)
            except PlanError as error:
                lost.add(f"operators.{name}")
                problems += error.problems
        inputs = [source.input(name) for name, source in self.inputs.items()]
        found = resolved(inputs, operators, unread)
        of_operators = found.operators
        problems += found.problems
        lost |= {f"operators.{name}" for name in found.lost}
        if not lost and not unread.paths:
            return checked(self._made(of_operators))
        # There, and not above, since it looks into the steps, for which it needs DuckDB.
        from ikebana.processor.planning.plan_problems import problems_of

        problems += problems_of(self._made(of_operators), Unread(unread.paths | lost))
        raise PlanError(self.pipeline, problems)

    def _made(self, operators: tuple[Operator, ...]) -> Plan:
        return Plan(
            name=self.pipeline,
            inputs=tuple(i.input(name) for name, i in self.inputs.items()),
            operators=operators,
            outputs=tuple(
                Output(name, o.source, o.topic, o.format, o.partitions, o.tombstones, o.on_change)
                for name, o in self.outputs.items()
            ),
            error_topic=self.errors.topic,
            time=self.time,
            on_error=self.errors.policy,
            pushdown=self.pushdown,
        )


class PipelineFile(SettingsPart, PlanPart):
    """The whole file."""
