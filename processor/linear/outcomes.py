"""The outcome of SQL steps over rows: results, failures, and rows that take too long."""

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


class Results(NamedTuple):
    """The results of rows, as columns of equal length.

    `rows` has the rows that the results come from.  The other columns are None if they are
    unchanged: the same keys and values, diffs of 1, no bounds.
    A result counts from `begins` until `ends`, in milliseconds; None is no bound.
    """

    rows: list[int]
    keys: list[bytes] | None
    values: list[bytes] | None
    diffs: list[int] | None
    begins: list[int | None] | None
    ends: list[int | None] | None


class FailedRow(NamedTuple):
    """A row that has failed, with the step and the reason."""

    row: int
    step: int
    reason: str


class FailedDatum(NamedTuple):
    """A datum that a step failed on, with its diff and bounds at that step.

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
    outcome_of: Callable[[pa.Table], tuple[Results, list[FailedDatum]]],
    table: pa.Table,
    keys: Sequence[Any] | None,
    what: str,
) -> tuple[Results, list[FailedDatum]]:
    """Evaluate rows one by one, after they took too long together.

    `outcome_of` evaluates some of them; `what` has the expressions, for errors.

    Raises:
        StuckError: it names the row, or says that there are too many rows.
    """
    most_s = calls.longest_s(os.environ)
    until = time.monotonic() + most_s
    outcome: tuple[Results, list[FailedDatum]] | None = None
    for row in range(table.num_rows):
        try:
            outcome = joined(outcome, outcome_of(table.slice(row, 1)))
        except StuckError as error:
            raise of_row(error, None if keys is None else keys[row]) from None
        if time.monotonic() > until:
            raise StuckError(
                f"{what} took more than {most_s:.4g} s for {row + 1:,} of {table.num_rows:,} rows",
                hint="Lower source.max_records_per_batch, or raise run.max_batch.",
            )
    assert outcome is not None, "no rows"
    return outcome


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
    one: tuple[Results, list[FailedDatum]] | None, other: tuple[Results, list[FailedDatum]]
) -> tuple[Results, list[FailedDatum]]:
    """Unite the outcomes of two runs of rows."""
    if one is None:
        return other
    columns = (
        None if a is None or b is None else a + b for a, b in zip(one[0], other[0], strict=True)
    )
    return Results(*columns), one[1] + other[1]  # type: ignore[arg-type]


def of_row(error: StuckError, key: Any) -> StuckError:
    """The error of a single row; it has a digest of the key, which may be secret."""
    if key is None:
        return error
    digest = hashlib.sha256(bytes(key)).hexdigest()[:16]
    return StuckError(
        f"{error.message}, over one row, whose key has SHA-256 {digest}…", hint=error.hint
    )
