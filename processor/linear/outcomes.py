"""The outcome of SQL steps over rows: results, what has failed, and rows that take too long."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ikebana.errors import StuckError
from ikebana.processor.base import calls
from ikebana.processor.linear.steps import Negate, Sql

_LONGEST_WRITTEN = 300


class Made(NamedTuple):
    """The results of rows, as columns of equal length.

    `rows` are the rows that the results come from.  The others are None where nothing
    has changed: keys and values are as they were, diffs are 1, there are no bounds.
    A result counts from `begins` until `ends`, in milliseconds; None is no bound.
    """

    rows: list[int]
    keys: list[bytes] | None
    values: list[bytes] | None
    diffs: list[int] | None
    begins: list[int | None] | None
    ends: list[int | None] | None


class Failed(NamedTuple):
    """A row that has failed, with the step and the reason."""

    row: int
    step: int
    reason: str


class Failure(NamedTuple):
    """A datum that a step failed on, as it was then: how often it counted, and when.

    A key of None is the key of the row.
    """

    row: int
    step: int
    reason: str
    diff: int
    begin: int | None
    end: int | None
    key: bytes | None


def one_by_one(
    told: Callable[[pa.Table], tuple[Made, list[Failure]]],
    table: pa.Table,
    keys: Sequence[Any] | None,
    what: str,
) -> tuple[Made, list[Failure]]:
    """The outcome of rows that took too long together, or one of which does.

    `told` gives that of some of them; `what` are the expressions.

    Raises:
        StuckError: it names the row, or says that it is the number of them.
    """
    most_s = calls.longest_s(os.environ)
    until = time.monotonic() + most_s
    found: tuple[Made, list[Failure]] | None = None
    for row in range(table.num_rows):
        try:
            found = joined(found, told(table.slice(row, 1)))
        except StuckError as error:
            raise of_row(error, None if keys is None else keys[row]) from None
        if time.monotonic() > until:
            raise StuckError(
                f"{what} took more than {most_s:.4g} s for {row + 1:,} of {table.num_rows:,} rows",
                hint="Lower source.max_records_per_batch, or raise run.max_batch.",
            )
    assert found is not None, "no rows"
    return found


def texts_of(steps: Sequence[Sql | Negate]) -> str:
    """The expressions of steps, shortened, as an error names them."""
    text = "; ".join(_expressions(steps))
    return text if len(text) <= _LONGEST_WRITTEN else text[: _LONGEST_WRITTEN - 1] + "…"


def _expressions(steps: Sequence[Sql | Negate]) -> Iterator[str]:
    """The expressions of steps, each with its part."""
    for step in steps:
        if isinstance(step, Negate):
            continue
        if step.flat_map is not None:
            yield f"flat_map {step.flat_map[1]}"
        yield from (f"where {text}" for text in step.where)
        for part in ("valid_from", "valid_until", "diff", "key"):
            if (text := getattr(step, part)) is not None:
                yield f"{part} {text}"
        yield from (f"select.{name} {text}" for name, text in step.select or ())


def joined(
    one: tuple[Made, list[Failure]] | None, other: tuple[Made, list[Failure]]
) -> tuple[Made, list[Failure]]:
    """The outcome of rows, and of those behind them."""
    if one is None:
        return other
    columns = (
        None if a is None or b is None else a + b for a, b in zip(one[0], other[0], strict=True)
    )
    return Made(*columns), one[1] + other[1]  # type: ignore[arg-type]


def of_row(error: StuckError, key: Any) -> StuckError:
    """The error of a single row, which names its key by a digest: it may be secret."""
    if key is None:
        return error
    digest = hashlib.sha256(bytes(key)).hexdigest()[:16]
    return StuckError(
        f"{error.message}, over one row, whose key has SHA-256 {digest}…", hint=error.hint
    )
