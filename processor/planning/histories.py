"""Problems of the history of an input."""

import re
from collections.abc import Iterator

from ikebana.processor.planning.operators.kind import Problem
from ikebana.processor.planning.plan import History, Input

PARQUET = (".parquet",)
LINES = tuple(
    f".{name}{packed}" for name in ("jsonl", "ndjson", "json") for packed in ("", ".gz", ".zst")
)


def is_pattern(name: str) -> bool:
    """Whether the last part of a path is a pattern for several files."""
    return any(letter in name for letter in "*?[")


# Parts of the names of properties that are secrets.
_SECRETS = ("secret", "token", "password", "credential", "authorization")
# A password in a URL.
_WITH_PASSWORD = re.compile("://[^/@]*:[^/@]*@")


def history_problems(source: Input) -> Iterator[Problem]:
    """All problems of the history of an input."""
    history, path = source.history, f"inputs.{source.name}.history"
    if history is None:
        return
    if source.traits.is_updates:
        yield path, f"a topic of {source.value_format} has all that there was by itself"
    elif source.event_time is not None:
        yield path, "rows of files have no place among event times: leave `event_time` out"
    elif not source.traits.has_columns:
        yield path, "rows have columns, and bytes have none"
    yield from _source_problems(history, path)
    for file in history.files:
        name = file.rpartition("/")[2]
        is_file = "." in name and not is_pattern(name)
        if is_file and not name.endswith((*PARQUET, *LINES)):
            kinds = ", ".join((*PARQUET, *LINES[::3]))
            yield f"{path}.files", f"{file!r} is no file of {kinds}, nor a folder of such"
    if source.key and history.key:
        yield f"{path}.key", "is the key of the input, which has one"
    elif source.mode == "upsert" and not source.key and not history.key:
        yield f"{path}.key", "is needed: a row of a file has no Kafka key"
    if history.bare and len(history.key) != 1:
        yield f"{path}.key", "one column alone can be the key by itself"
    if "sequence" in dict(source.options) and not source.key:
        yield path, "rows with a sequence need the key of the input, by its columns"


def _source_problems(history: History, path: str) -> Iterator[Problem]:
    """Problems of where the rows come from."""
    named = [name for name in ("files", "iceberg", "delta") if getattr(history, name)]
    if len(named) != 1:
        places = ", ".join(named) or "none"
        yield path, f"has to have one of files, iceberg and delta; it has {places}"
    if history.files and history.version is not None:
        yield f"{path}.version", "is of a table, and files have none"
    if history.iceberg and "." not in history.iceberg:
        yield f"{path}.iceberg", f"{history.iceberg!r} has no namespace, as in shop.orders"
    if history.catalog and not history.iceberg:
        yield f"{path}.catalog", "is of an Iceberg table"
    for name, value in history.catalog:
        if any(part in name.lower() for part in _SECRETS) or _WITH_PASSWORD.search(value):
            yield (
                f"{path}.catalog",
                f"{name} has a secret, and the checkpoint would keep it: give it to the process, "
                "as a variable of PyIceberg or of the file system",
            )
