"""Types of command-line options, and bytes of keys and values as readable JSON data."""

import base64
import json
import math
from typing import Any

import click

from ikebana.processor.base import texts


def shown(raw: bytes) -> Any:
    """Decode JSON; return other UTF-8 text as a string, and other bytes as base64.

    >>> shown(b'{"a":1}'), shown(b"N12345"), shown(b"\\xff")
    ({'a': 1}, 'N12345', {'base64': '/w=='})
    """
    try:
        return json.loads(raw)
    except ValueError:
        pass
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


class Number(click.FloatRange):
    """A finite number within bounds; click's own type accepts NaN."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the argument, or refuse it as click refuses what is no number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a valid {self.name}.", param, ctx)
        return number


class Time(click.ParamType[int]):
    """A time of an output: a whole number, or a date with or without a time of day."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Parse the argument, or refuse it with the forms that it may have."""
        if isinstance(value, int):
            return value
        try:
            return texts.parse_moment(str(value))
        except ValueError:
            self.fail(
                f'"{value}" is no time: give a whole number, or, where times are milliseconds, '
                "a date like 2024-02-29 or 2024-02-29T12:30:00Z (UTC if it names no zone)",
                param,
                ctx,
            )


# The value of "now" in `TimeOrNow`, a time that no output has.
NOW = -(2**64)


class TimeOrNow(Time):
    """A time of an output, or `now`."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Parse the argument, or refuse it with the forms that it may have."""
        return NOW if value == "now" else super().convert(value, param, ctx)
