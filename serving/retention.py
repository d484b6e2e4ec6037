"""How long the history of a served collection is kept."""

import re
from typing import NamedTuple

from ikebana.errors import ConfigError
from ikebana.processor.base.texts import EPOCH_MS

_MS = {"ms": 1, "s": 1_000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Retention(NamedTuple):
    """How much history to keep: milliseconds if it was written with a unit, else times.

    `otherwise` is the number of times to keep of collections without milliseconds as times.
    """

    length: int
    is_duration: bool
    otherwise: int | None = None

    def since(self, upper: int, collection: str) -> int:
        """Return the earliest time to keep if all times before `upper` are closed.

        Raises:
            ConfigError: it is a duration, and the times of the collection are not milliseconds.
        """
        # The frontier is 0 if the topic has no closed time yet.
        if self.is_duration and upper and upper not in EPOCH_MS:
            if self.otherwise is not None:
                return upper - 1 - self.otherwise
            raise ConfigError(
                f'cannot keep a duration of "{collection}": its times are not milliseconds, '
                f"its frontier is {upper}",
                hint="Give --retain a number of times, such as --retain 100000.",
            )
        return upper - 1 - self.length


# An hour; for offset times about an hour of some hundred records a second.
USUAL = Retention(3_600_000, is_duration=True, otherwise=1_000_000)

EVERYTHING = Retention(2**62, is_duration=False)


def parsed(text: str) -> Retention:
    """Read a duration such as `90s`, `30m`, `1h` or `7d`, or a number of times.

    >>> parsed("1h").length, parsed("7").is_duration
    (3600000, False)

    Raises:
        ValueError: the text is neither.
    """
    match = re.fullmatch(r"(\d+)\s*(ms|s|min|m|h|d)?", text.strip())
    if match is None:
        raise ValueError(text)
    unit = match[2]
    return Retention(int(match[1]) * (_MS[unit] if unit else 1), unit is not None)
