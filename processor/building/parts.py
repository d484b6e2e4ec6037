"""The parts of a pipeline under construction, each with its place in the user's code."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ikebana.errors import ConfigError, PlanError
from ikebana.processor.linear.sql_functions import SqlFunction, as_written
from ikebana.processor.linear.steps import Step
from ikebana.processor.planning.plan import Input, Linear, Operator, Output

if TYPE_CHECKING:
    from ikebana.processor.relational.sections import Derived

# Frames of files in this folder are ours.
_OURS = str(Path(__file__).resolve().parents[1])


class CodePlace(NamedTuple):
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


def calling_place() -> CodePlace:
    """Find the line outside of ikebana from which this was called."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return CodePlace(frame.f_code.co_filename, frame.f_lineno)


def _is_ours(file: str) -> bool:
    # The package is imported through symbolic links.
    return str(Path(file).resolve()).startswith(_OURS)


def with_places(error: PlanError, plan: str, places: Mapping[str, CodePlace]) -> PlanError:
    """Add the place of each problem to an error, as far as it is known."""
    problems = [
        (path, f"{as_written(problem)}{_at(path, places)}") for path, problem in error.problems
    ]
    return PlanError(plan, problems)


def _at(path: str, places: Mapping[str, CodePlace]) -> str:
    while path:
        if path in places:
            return f" ({places[path]})"
        path = path.rpartition(".")[0]
    return ""


Part = TypeVar("Part")


class Parts:
    """The inputs, operators and outputs of a pipeline, by name, in order of creation."""

    def __init__(self, pipeline: str) -> None:
        self.pipeline = pipeline
        self.inputs: dict[str, Input] = {}
        self.operators: dict[str, Operator] = {}
        self.outputs: dict[str, Output] = {}
        self.functions: dict[str, SqlFunction] = {}
        """Functions of Python by their names in SQL, in small letters."""
        self.places: dict[str, CodePlace] = {}
        """Lines of the user's code by the paths of problems, such as `operators.large`."""

    def read(self, source: Input) -> None:
        """Add an input; raise a ConfigError if another one has its name."""
        if source.event_time is not None:
            source = replace(source, event_time=self.with_functions(source.event_time))
        self._have("inputs", self.inputs, source)

    def add(self, operator: Operator, places: tuple[CodePlace, ...] = ()) -> str:
        """Add an operator whose steps were written at `places`, and return its name.

        Raises:
            ConfigError: another operator has its name.
        """
        operator = self.with_functions(operator)
        path = self._have("operators", self.operators, operator, *places[-1:])
        for at, place in enumerate(places):
            self.places.setdefault(f"{path}.steps.{at}", place)
        return operator.name

    def derive(self, section: str, *arguments: Any, **options: Any) -> str:
        """Add the operators that a section becomes, and return the name of the last.

        `section` is the name of a function of `relational.sections`, which is called with the
        arguments and options.

        Raises:
            ConfigError: the section is refused, or reads a collection with a problem of its own.
        """
        # DuckDB takes a while to import, and memory: only where there is SQL.
        from ikebana.processor.linear.scope import ExpressionError
        from ikebana.processor.relational import sections
        from ikebana.processor.relational.making import KnownRelations, MakingError, ReportedError

        derived: Derived = getattr(sections, section)(*self.with_functions(arguments), **options)
        try:
            operators = derived.make(KnownRelations(self.inputs.values(), self.operators.values()))
        except (MakingError, ExpressionError) as error:
            part = getattr(error, "part", "") or derived.kind
            raise ConfigError(
                f'cannot make "{derived.name}": {part}: {as_written(str(error))}'
            ) from None
        except ReportedError:
            raise ConfigError(
                f'cannot make "{derived.name}": it reads a collection that has a problem of its '
                "own",
                hint="Look at `plan()` without it: it lists every problem.",
            ) from None
        for operator in operators:
            self.add(operator)
        return operators[-1].name

    def publish(self, output: Output) -> None:
        """Add an output; raise a ConfigError if another one has its name."""
        self._have("outputs", self.outputs, output)

    def free_name(self, source: str, steps: tuple[Step, ...]) -> str:
        """Return the name of the linear operator with these steps, or choose a free name."""
        steps = self.with_functions(steps)
        for operator in self.operators.values():
            if operator == Linear(operator.name, source, steps):
                return operator.name
        used = {*self.operators, *self.inputs}
        return next(name for name in _numbered(source) if name not in used)

    def with_functions(self, part: Part) -> Part:
        """The part with function names in its expressions replaced by their long names."""
        if not self.functions:
            return part
        # DuckDB takes a while to import, and memory: only where there are functions.
        from ikebana.processor.linear.syntax import with_long_names_in

        result: Part = with_long_names_in(part, self.functions)
        return result

    def _have(
        self, kind: str, parts: dict[str, Any], part: Any, place: CodePlace | None = None
    ) -> str:
        path = f"{kind}.{part.name}"
        if parts.setdefault(part.name, part) != part:
            raise ConfigError(
                f'pipeline "{self.pipeline}" has {path} twice, and they differ: '
                f"{self.places[path]} and {calling_place()}",
                hint="Give one of them another name with name=..., or for steps with .named(...).",
            )
        self.places.setdefault(path, place or calling_place())
        return path


def _numbered(source: str) -> Iterator[str]:
    number = 1
    while True:
        yield f"{source}_{number}"
        number += 1
