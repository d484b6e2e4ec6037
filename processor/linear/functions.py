"""Python functions as steps: their modules and names, how to call them, and their results.

Each step is the one linear operator, `join_function`, with its own logic.  A logic is a function
of one datum: `logic(data)` gives (data', time', diff') triples, and an update (data, time, diff)
becomes (data', max(time, time'), diff * diff'); a time' of None is no later time.  It follows that
the operator is linear, keeps no state, and that two of them in a row are one: `composed`.

Modules are searched where Python searches, and last in the folder of the pipeline file, so
that no file there hides an installed module.  The folder is in an environment variable, which
Spark passes on to its Python workers.

Source of the method: differential dataflow's `join_function`, as in
github.com/TimelyDataflow/differential-dataflow, file `collection.rs`.
"""

import contextlib
import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ikebana.arrangements.update import LARGEST
from ikebana.codecs import canonical
from ikebana.processor.base import calls
from ikebana.processor.linear.steps import Call

# The folder of the pipeline file that this process runs.
FOLDER_VARIABLE = "IKEBANA_MODULES"


class ModuleError(Exception):
    """A module cannot be imported; the message says where it was searched, or why."""


def look_in(folder: str) -> None:
    """Look for modules in this folder, too, here and in Spark's workers."""
    os.environ[FOLDER_VARIABLE] = folder


def look_beside_program() -> None:
    """Look for modules beside the program that runs, too, unless another folder is set."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file and not os.environ.get(FOLDER_VARIABLE):
        look_in(str(Path(file).resolve().parent))


def module_named(name: str) -> ModuleType:
    """A module by its name.  Raises: ModuleError."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder and folder not in sys.path:
        sys.path.append(folder)
    try:
        with _while(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ModuleError(_raised(error)) from None
        raise ModuleError(f'there is no "{error.name}"{_looked(folder)}') from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- it is a user's code that runs
        raise ModuleError(_raised(error)) from None


def main_module() -> str | None:
    """The name by which another process can import the running program, if it is a file."""
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:
        return str(spec.name)
    stem = Path(getattr(main, "__file__", None) or "").stem
    return stem if stem.isidentifier() else None


def importing() -> str | None:
    """The module that `module_named` is importing right now; None otherwise."""
    return _importing[-1] if _importing else None


_importing: list[str] = []


@contextlib.contextmanager
def _while(name: str) -> Iterator[None]:
    _importing.append(name)
    try:
        yield
    finally:
        _importing.pop()


def _looked(folder: str | None) -> str:
    path = os.environ.get("PYTHONPATH")
    beside = f" in {folder}, the pipeline file's folder," if folder else ""
    return f"{beside} on PYTHONPATH ({path or 'not set'}) or among what is installed"


def _raised(error: BaseException) -> str:
    """The exception that a module raised while it was imported, and its place."""
    if isinstance(error, SyntaxError):
        place = f"{error.filename}, line {error.lineno}"
        return f"it raised {type(error).__name__}: {error.msg} ({place})"
    frames = traceback.extract_tb(error.__traceback__)
    place = next(
        (
            f" ({frame.filename}, line {frame.lineno})"
            for frame in reversed(frames)
            if not frame.filename.startswith("<frozen")
        ),
        "",
    )
    message = " ".join(str(error).split())
    return f"it raised {type(error).__name__}{': ' * bool(message)}{message}{place}"


class Failure(NamedTuple):
    """The failure of a step in place of its result; the reason has no data of the record."""

    operator: str
    reason: str
    key: bytes | None


class FunctionError(Exception):
    """There is no such function; the message says why."""


def name_of(function: Any) -> str:
    """The name of a function as "module:function", even if it cannot be imported by it."""
    if isinstance(function, str):
        return function
    module = getattr(function, "__module__", "?")
    if module == "__main__":
        # Another process imports the program's file as a module.
        module = main_module() or module
    return f"{module}:{getattr(function, '__qualname__', repr(type(function)))}"


def function_named(function: Any) -> Any:
    """Import a function by its name.  Raises: FunctionError."""
    if not isinstance(function, str):
        return function
    module, colon, name = function.partition(":")
    if not colon or not name or not all(part.isidentifier() for part in module.split(".")):
        raise FunctionError(
            f'"{function}" is not of the form module:function; write the function in a module, '
            "and name both here"
        )
    try:
        here: Any = module_named(module)
    except ModuleError as error:
        raise FunctionError(f'module "{module}" cannot be imported: {error}') from None
    for part in name.split("."):
        if not hasattr(here, part):
            raise FunctionError(f'module "{module}" has no "{name}"')
        here = getattr(here, part)
    if not callable(here):
        raise FunctionError(f'"{function}" is not callable')
    return here


def why_not_portable(function: Any) -> str | None:
    """Why another process cannot import the function by its name; None if it can."""
    if isinstance(function, str):
        return None
    name = name_of(function)
    if getattr(function, "__module__", "") == "__main__" and main_module() is None:
        name_there = getattr(function, "__qualname__", "it").rpartition(".")[2]
        name_there = name_there if name_there.isidentifier() else "kept"
        return (
            f'"{name.rpartition(":")[2]}" is known to this notebook or program alone, and workers '
            f"import functions by name: write it into a file beside it, such as my_functions.py, "
            f"and give what `from my_functions import {name_there}` has"
        )
    problem = f"{name} is no function of a module; give it a name in one"
    if "<" in name:
        return problem
    try:
        there = function_named(name)
    except FunctionError as error:
        return f"{problem} ({error})"
    # Another process that imports the program's file has other function objects.
    of_program = getattr(function, "__module__", "") == "__main__"
    return None if there is function or of_program else problem


Triple = tuple[Any, int | None, int]
Logic = Callable[[Any], Iterable[Triple]]


def composed(first: Logic, second: Logic) -> Logic:
    """The logic of `first`, then `second`, in one pass with no list in between."""

    def both(data: Any) -> Iterator[Triple]:
        for between, time, diff in first(data):
            if not diff:
                continue
            for result, later, count in second(between):
                yield result, _later(time, later), diff * count

    return both


def _later(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def mapping(function: Callable[[Any], Any]) -> Logic:
    """Map each datum to one datum."""
    return lambda data: ((function(data), None, 1),)


def filtering(predicate: Callable[[Any], object]) -> Logic:
    """Keep the data for which `predicate` is true."""
    return lambda data: ((data, None, 1),) if predicate(data) else ()


def flat_mapping(function: Callable[[Any], Iterable[Any]]) -> Logic:
    """Map each datum to any number of data."""
    return lambda data: ((result, None, 1) for result in function(data))


def exploding(function: Callable[[Any], Iterable[tuple[Any, int]]]) -> Logic:
    """Map each datum to data with multiplicities, which may be negative or zero."""
    return lambda data: ((result, None, diff) for result, diff in function(data))


_LOGICS: dict[str, Callable[[Any], Logic]] = {
    "map": mapping,
    "filter": filtering,
    "flat_map": flat_mapping,
    "explode": exploding,
    "join_function": lambda function: function,
}


def guarded(operator: str, step: Call, *, raw_key: bool, raw_value: bool) -> Logic:
    """The logic of a step over messages; each failure becomes a `Failure`.

    The function gets separate copies of data, and its results become bytes: so a later function
    cannot tell whether there was a topic in between.
    """
    logic_of = _LOGICS[step.kind](function_named(step.function))
    name = f"{step.kind} {name_of(step.function)}"

    def results(message: Any) -> list[Triple]:
        if isinstance(message, Failure):
            return [(message, None, 1)]
        key, value = message
        try:
            data = (_data(key, raw=raw_key), _data(value, raw=raw_value))
            # Each call has a new tuple.
            calls.begin((operator, name, None))
            try:
                triples = [_triple(result) for result in logic_of(data)]
            finally:
                calls.end()
        except calls.CallStopped:
            raise calls.stuck() from None
        except BaseException as error:
            if not calls.is_own_doing(error):
                raise
            return [(Failure(operator, f"{name} {exception_line(error)}", key), None, 1)]
        try:
            if problem := _problem(triples, step):
                return [(Failure(operator, f"{name} {problem}", key), None, 1)]
            return [
                (
                    (
                        None if new_key is None else _as_bytes(new_key, raw=raw_key),
                        _as_bytes(new_value, raw=raw_value),
                    ),
                    later,
                    diff,
                )
                for (new_key, new_value), later, diff in triples
                if diff
            ]
        except BaseException as error:
            # The results may be instances of the user's classes, which may raise anything.
            if not calls.is_own_doing(error):
                raise
            return [(Failure(operator, "a result has no JSON form", key), None, 1)]

    return results


_LONGEST_MESSAGE = 200
# The address of an object differs between processes.
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")


def exception_line(error: BaseException) -> str:
    """The exception of a user's function, in one line of bounded length.

    The message is the function's, and so may hold data.  It has to be the same whenever
    the function fails on the same data, or the error could not be retracted.

    >>> exception_line(KeyError("amount"))
    "raised KeyError: 'amount'"
    """
    name = type(error).__name__
    if isinstance(error, RecursionError | MemoryError):
        # The messages of these errors depend on where they were raised.
        return f"raised {name}"
    try:
        message = " ".join(str(error).split())
    except BaseException as also:
        # Making the message runs the user's code, too.
        if not calls.is_own_doing(also):
            raise
        message = ""
    message = _ADDRESS.sub("0x…", message).encode(errors="replace").decode()
    if len(message) > _LONGEST_MESSAGE:
        message = message[: _LONGEST_MESSAGE - 1] + "…"
    return f"raised {name}: {message}" if message else f"raised {name}"


def _problem(triples: list[Triple], step: Call) -> str | None:
    for new, later, diff in triples:
        if not isinstance(new, tuple) or len(new) != 2:
            return "gave data that is not a pair (key, value)"
        for number in (diff, 0 if later is None else later):
            # Subclasses of int may compute and compare differently.
            if type(number) is not int and type(number) is not bool:
                return f"gave a {type(number).__name__} as time or diff"
            if not -LARGEST <= number <= LARGEST:
                return "gave a time or a diff of more than 64 bits"
        if later is not None and not step.moves_time:
            return "gave a time, but says that it moves none"
    return None


def _data(message: bytes | None, *, raw: bool) -> Any:
    return message if raw or message is None else canonical.decode(message)


def _as_bytes(data: Any, *, raw: bool) -> bytes:
    """Data as bytes.  Raises: TypeError, ValueError and others, if data have no such form."""
    if not raw:
        return canonical.encode(data)
    if not isinstance(data, bytes):
        raise TypeError
    return data


def _triple(result: Any) -> Triple:
    data, time, diff = result
    return data, time, diff
