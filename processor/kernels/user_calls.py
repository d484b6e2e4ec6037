"""Calls of users' functions and of user-defined aggregates: results as JSON, or why they failed.

A user-defined aggregate is a class in Python; an instance aggregates the rows of a key.  It adds
arguments by `accumulate`, removes them by `retract`, and returns the aggregate by `result`.
Between batches its attributes are stored, which are JSON data, so a change costs calls for the
arguments that change.  A class without `retract` is called with all values of a key, in order,
whenever one of them changes.

The author of the class guarantees that the result depends on the arguments alone, not on their
order or on earlier ones.  An argument for which `accumulate` or `retract` raises waits.  It is
tried again when other arguments change, or cancels with its retraction; meanwhile the key has an
error record, and the result is that of the other arguments.  The result of no values is null.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ikebana.codecs import canonical
from ikebana.processor.base import calls
from ikebana.processor.base.texts import shown
from ikebana.processor.linear.functions import exception_line, function_named, name_of
from ikebana.processor.linear.sql_functions import SqlFunction, fits


class Refused(Exception):
    """Raise this in a function to refuse its arguments, with the reason.

    The reason becomes an error record; it should not hold the payload.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class FailureError(Exception):
    """A function failed, or returned data without a JSON form; the message says why."""

    def reason(self, operator: str) -> str:
        """The reason of the error record of an operator."""
        return f"operator {shown(operator)}: {self}" if operator else str(self)


def canonical_results(
    role: str, function: Any, called: Callable[[], Any], operator: str = ""
) -> list[bytes]:
    """Call a user's function; return each datum of its result as canonical bytes.

    `role` says in error messages what the function is for, such as "step".  Raises: FailureError.
    """

    def name() -> str:
        return f"{role} {name_of(function)}"

    calls.begin((operator, name, None))
    try:
        return _results(name, called)
    except calls.CallStopped:
        raise calls.stuck() from None
    finally:
        calls.end()


def _results(name: Callable[[], str], called: Callable[[], Any]) -> list[bytes]:
    try:
        result = called()
        # Text and objects are iterable too, but a function that returns one means a single datum.
        several = isinstance(result, Iterable) and not isinstance(result, str | bytes | Mapping)
        items = list(result) if several else []
    except Refused as refused:
        # An error record is UTF-8, and a text may have surrogates, which UTF-8 cannot encode.
        raise FailureError(str(refused).encode(errors="replace").decode()) from None
    except BaseException as error:
        # Whatever a user's function raises becomes an error record.
        if not calls.is_own_doing(error):
            raise
        raise FailureError(f"{name()} {exception_line(error)}") from None
    if not several:
        problem = f"gave a {type(result).__name__} in place of a collection"
        raise FailureError(f"{name()} {problem}")
    try:
        return list(map(canonical.encode, items))
    except BaseException as error:
        # Encoding may call methods of the user's objects, which may raise anything.
        if not calls.is_own_doing(error):
            raise
        problem = "gave data that have no JSON form"
        raise FailureError(f"{name()} {problem}") from None


NO_RESULT = msgspec.Raw(b"null")


class UserState(msgspec.Struct, array_like=True):
    """The stored state of one aggregate of a key.

    `waiting` are arguments that could not be added or removed, with their counts; `record` is the
    error record of the key, as long as a call fails.
    """

    attributes: msgspec.Raw = NO_RESULT
    result: msgspec.Raw = NO_RESULT
    waiting: list[tuple[msgspec.Raw, int]] = []
    record: str | None = None


class UserAggregate:
    """A class of a user, as a reduction calls it."""

    def __init__(self, function: SqlFunction) -> None:
        self._function = function
        self._class: Callable[[], Any] = function_named(function.function)
        self.retracts = callable(getattr(self._class, "retract", None))

    def change(
        self, state: UserState, diffs: Mapping[bytes, int], operator: str, *, is_empty: bool
    ) -> str:
        """Add and remove arguments as often as their diffs say; return the failure, if any.

        With `is_empty`, the key has no arguments after the change, and its state is reset.
        """
        sums = {bytes(argument): diff for argument, diff in state.waiting}
        for argument, diff in diffs.items():
            sums[argument] = sums.get(argument, 0) + diff
        # Retractions come last, so that no state has fewer arguments in between.
        ordered = sorted((diff < 0, argument, diff) for argument, diff in sums.items() if diff)
        arguments = [(argument, diff) for _, argument, diff in ordered]
        state.waiting, failure = [], ""
        try:
            state.attributes = self._called(state.attributes, arguments, operator)
        except FailureError:
            for argument, diff in arguments:
                try:
                    state.attributes = self._called(state.attributes, [(argument, diff)], operator)
                except FailureError as error:
                    state.waiting.append((msgspec.Raw(argument), diff))
                    failure = failure or str(error)
        if is_empty and not state.waiting:
            state.attributes = state.result = NO_RESULT
            return ""
        try:
            state.result = self._result(state.attributes, operator)
        except FailureError as error:
            state.result, failure = NO_RESULT, failure or str(error)
        return failure

    def recompute(self, state: UserState, values: Sequence[Any], operator: str) -> str:
        """Compute the result of all values; return the failure, if any."""
        state.result = NO_RESULT
        if not values:
            return ""
        arguments = [
            (bytes(value) if isinstance(value, msgspec.Raw) else canonical.write(value), 1)
            for value in values
        ]
        try:
            attributes = self._called(NO_RESULT, arguments, operator)
            state.result = self._result(attributes, operator)
        except FailureError as error:
            return str(error)
        return ""

    def _called(
        self, attributes: msgspec.Raw, arguments: Sequence[tuple[bytes, int]], operator: str
    ) -> msgspec.Raw:
        """The attributes after some arguments.  Raises: FailureError."""

        def call() -> list[Any]:
            instance = self._instance(attributes)
            for argument, diff in arguments:
                values = self._values(argument)
                method = instance.accumulate if diff > 0 else instance.retract
                for _ in range(abs(diff)):
                    method(*values)
            return [vars(instance)]

        return msgspec.Raw(canonical_results("aggregate", self._class, call, operator)[0])

    def _result(self, attributes: msgspec.Raw, operator: str) -> msgspec.Raw:
        """The result of an instance with these attributes.  Raises: FailureError."""

        def call() -> list[Any]:
            value = self._instance(attributes).result()
            if value is not None and not fits(value, self._function.returns):
                raise Refused(
                    f"aggregate {name_of(self._class)} gave a {type(value).__name__} in place of "
                    f"{self._function.returns}"
                )
            return [value]

        return msgspec.Raw(canonical_results("aggregate", self._class, call, operator)[0])

    def _instance(self, attributes: msgspec.Raw) -> Any:
        instance = self._class()
        if attributes != NO_RESULT:
            vars(instance).clear()
            vars(instance).update(canonical.decode(bytes(attributes)))
        return instance

    def _values(self, argument: bytes) -> Sequence[Any]:
        value = canonical.decode(argument)
        count = len(self._function.parameters)
        return (value,) if count == 1 else [value[field_of(at)] for at in range(count)]


def field_of(at: int) -> str:
    """The field of a parameter in the argument of a reduction that has several."""
    return f"p{at}"
