"""What it costs to check the types of declared columns that nobody reads, in decoding alone.

    python bench/declared.py
    python bench/declared.py --messages 50000

Messages are decoded in-process, with declared columns and without; CPU is that of this process.
The figure is the least of several rounds.
"""

import argparse
import json
import time
from collections.abc import Iterator

import generate
import pushdown
from rich.console import Console
from rich.table import Table

from ikebana import Column, Input, Linear, Output, Plan, Upsert, steps
from ikebana.codecs.formats import Format
from ikebana.processor.planning import planner
from ikebana.processor.planning.plan import Reading
from ikebana.processor.topics.intake import Intake, intake_of
from ikebana.processor.topics.messages import Message

_CHUNK, _ROUNDS = 5_000, 3
_KINDS = {"id": "BIGINT", "text": "VARCHAR", "amount": "DECIMAL(12,2)", "count": "BIGINT"}
_KINDS |= {"name": "VARCHAR", "updated": "BIGINT", "share": "DOUBLE", "status": "VARCHAR"}


def main() -> None:
    """Decode everything with and without declared columns."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=20_000)
    count = parser.parse_args().messages
    table = Table("messages", "declared columns", "read", "CPU us a message")
    upserts = list(generate.upserts(count, count // 10))
    changes = list(pushdown.messages(count))
    measured: list[tuple[str, Format, list[tuple[bytes, bytes | None]]]] = [
        ("json, 4 columns", "json", upserts),
        ("debezium-json, 30 columns", "debezium-json", changes),
    ]
    for name, format_, found in measured:
        names = sorted(_row_of(found))
        few = [each for each in names if each in ("id", "status", "amount")]
        given = [Message(at, key, value) for at, (key, value) in enumerate(found)]
        for declared, read in ((few, few), (names, few), ([], None), (names, None)):
            cost = _cost(format_, declared, read, given)
            shown = "all" if read is None else str(len(read))
            table.add_row(name, str(len(declared)), shown, f"{cost:.2f}")
    Console().print(table)


def _row_of(found: list[tuple[bytes, bytes | None]]) -> dict[str, object]:
    row = json.loads(next(value for _, value in found if value))
    after: dict[str, object] = row.get("after", row)
    return after


def _cost(
    value_format: Format, declared: list[str], read: list[str] | None, given: list[Message]
) -> float:
    columns = tuple(Column(name, _KINDS[name.partition("_")[0]]) for name in declared)
    source = Input(
        "t", ("t",), value_format, columns=columns, key=("id",) * (value_format != "json")
    )
    shown = () if read is None else (Linear("l", "u", (steps.project(*read),)),)
    plan = Plan(
        "p", (source,), (Upsert("u", "t"), *shown), (Output("o", "l" if shown else "u", "o"),)
    )
    # The select itself would be measured as well.
    physical = planner.physical(plan)
    reading = Reading(physical.readings["t"].columns)
    intake = intake_of(source, planner.Physical({"t": reading}, physical.branches), None)
    assert isinstance(intake, Intake)
    return min(_round(intake, given) for _ in range(_ROUNDS)) / len(given) * 1e6


def _round(intake: Intake, given: list[Message]) -> float:
    start = time.process_time()
    for chunk in _chunks(given):
        taken = intake.upserts(chunk, ("t", 0))
        assert not taken.bad
        assert not taken.errors
    return time.process_time() - start


def _chunks(given: list[Message]) -> Iterator[list[Message]]:
    for at in range(0, len(given), _CHUNK):
        yield given[at : at + _CHUNK]


if __name__ == "__main__":
    main()
