"""The report on scenarios: a JSON line each, and a table made of them."""

import functools
import json
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from chaos.scenario import Result, Scenario

KEPT = Path(__file__).parent / "reports"
"""Where the reports that a table is made of by default are kept."""
BEGIN, END = "<!-- made by python -m chaos table -->", "<!-- end -->"


def kept() -> list[Path]:
    """The reports that are kept with the code."""
    return sorted(KEPT.glob("*.jsonl"))


def append(file: Path, result: Result) -> None:
    """Add a result to a report, with the version that was run."""
    file.parent.mkdir(parents=True, exist_ok=True)
    result.version = result.version or version()
    with file.open("a") as lines:
        lines.write(json.dumps(result.plain(), ensure_ascii=False) + "\n")


def read(files: Iterable[Path]) -> list[Result]:
    """Read reports."""
    return [Result(**json.loads(line)) for file in files for line in file.read_text().splitlines()]


@functools.cache
def version() -> str:
    """The commit that the harness runs, with a `+` if files have changed since; "" without git."""
    asked = ["git", "describe", "--always", "--exclude=*", "--abbrev=7", "--dirty=+"]
    found = subprocess.run(
        asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


def table(known: dict[str, Scenario], results: Iterable[Result]) -> str:
    """A row for each scenario that was run: runs, seeds, outcomes, recovery times."""
    by_name: dict[str, list[Result]] = defaultdict(list)
    joined: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        has_joins = result.plan != "upsert" and result.kind != "edit"
        (joined if has_joins else by_name)[result.name].append(result)
    rows = [
        "| class | fault | ends by | runs (seeds) | went on exactly | ended by name, then exact "
        "| wrong | recovery s, median (most) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    # Scenarios are known in the order in which their modules were imported.
    for name, scenario in sorted(known.items(), key=lambda each: (each[1].kind, each[0])):
        if found := by_name.get(name):
            rows.append(_row(scenario, found))
        if found := joined.get(name):
            rows.append(_row(replace(scenario, does=f"{scenario.does}; with joins"), found))
    every = [one for each in (*by_name.values(), *joined.values()) for one in each]
    wrong = sum(result.outcome == "WRONG" for result in every)
    seeds = _ranges({result.seed for result in every})
    names = len(by_name.keys() | joined.keys())
    versions = ", ".join(sorted({f"`{each.version}`" for each in every if each.version}))
    told = f"{len(every)} faults in {names} scenarios, seeds {seeds}"
    told += f", commits {versions}" if versions else ""
    rows += ["", f"{told}; {wrong} wrong."]
    return "\n".join(rows)


def _row(scenario: Scenario, found: list[Result]) -> str:
    outcomes = [result.outcome for result in found]
    times = [result.recovery_s for result in found if result.outcome != "WRONG"]
    recovery = f"{median(times):.1f} ({max(times):.1f})" if times else ""
    seeds = _ranges({result.seed for result in found})
    cells = [
        scenario.kind,
        scenario.does,
        scenario.ends,
        f"{len(found)} ({seeds})",
        *(str(outcomes.count(kind)) for kind in ("exact", "ended", "WRONG")),
        recovery,
    ]
    return "| " + " | ".join(cells) + " |"


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers as `1-3, 5`."""

    def runs() -> Iterator[str]:
        rest = sorted(numbers)
        while rest:
            first = last = rest.pop(0)
            while rest and rest[0] == last + 1:
                last = rest.pop(0)
            yield str(first) if first == last else f"{first}-{last}"

    return ", ".join(runs())


def of_page(page: Path) -> str:
    """The table that is between its marks in a page."""
    return page.read_text().partition(BEGIN)[2].partition(END)[0].strip()


def written_into(page: Path, made: str) -> None:
    """Put a table between its marks in a page."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{after}")
