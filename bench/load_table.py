"""The results of `load.py` as Markdown: a row for each case, and the slopes of long runs."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import markdown

Found = dict[str, Any]
# Of the series of a long run, those that a reader looks for.
_SERIES = ("PSS MiB", "open files", "threads", "lag s", "local MiB", "checkpoint MiB")


def table(paths: Sequence[Path]) -> list[str]:
    """The last result of each case, and the slopes of the last long run."""
    last: dict[str, tuple[Found, Found]] = {}
    for path in paths:
        told = json.loads(path.read_text())
        for found in told["results"]:
            last[_name(found)] = found, told
    rows = []
    for name, (found, told) in sorted(last.items(), key=lambda each: list(_ROWS).index(each[0])):
        case, came, memory = _ROWS[name](found)
        load = f"{told['machine']['load'][0]:.0f} to {told['load_at_the_end'][0]:.0f}"
        exact = "no: " + ", ".join(found["wrong"]) if found["wrong"] else "yes"
        rows.append((case, came, memory, exact, told["begun"], load))
    head = "case", "what came of it", "memory of all processes, MiB", "exact", "run at", "load"
    lines = markdown.table(head, rows)
    if "steady" in last:
        lines += ["", *_slopes(last["steady"][0])]
    return lines


def _name(found: Found) -> str:
    return "burst" if found.get("burst") else found["job"]


def _slopes(found: Found) -> list[str]:
    rows = []
    for name in _SERIES:
        if name in found["series"]:
            line = found["series"][name]
            cells = (f"{line[part]:,.1f}" for part in ("mean", "hourly", "error"))
            rows.append((name, *cells, "yes" if line["flat"] else "**no**"))
    return markdown.table(("series", "mean", "slope an hour", "±", "flat"), rows)


def _steady(found: Found) -> tuple[str, str, str]:
    came = f"{found['records']:,} records; "
    came += "flat" if all(each["flat"] for each in found["series"].values()) else "see below"
    case = f"{found['rate']:,.0f} records/s"
    if found["maximum"] is not None:
        share = found["rate"] / found["maximum"]
        case += f", {share:.0%} of the {found['maximum']:,.0f} that it read at its most"
    memory = found["series"]["PSS MiB"]
    return case, came, f"{memory['mean']:,.0f}, {memory['hourly']:+,.0f} an hour"


def _burst(found: Found) -> tuple[str, str, str]:
    burst = found["burst"]
    case = f"{burst['times']:g} times {found['rate']:,.0f} records/s for {burst['seconds']:g} s"
    came = f"{burst['most_behind']:,.0f} records behind; read after {burst['recovered_s']:g} s"
    return case, came, f"{burst['memory_before_mib']:,} before, {burst['memory_peak_mib']:,} peak"


def _cold(found: Found) -> tuple[str, str, str]:
    each = found["records"] / found["took_s"]
    came = f"{found['took_s']:,.0f} s, {each:,.0f} records/s"
    memory = f"{found['peaks']['PSS MiB']:,} peak (at most {found['within_mib']:,.0f})"
    return f"a start on {found['records']:,} records", came, memory


def _skewed(what: str) -> Callable[[Found], tuple[str, str, str]]:
    def row(found: Found) -> tuple[str, str, str]:
        share = "" if found["most_of_a_shard"] is None else f"{found['most_of_a_shard']:.0%}"
        came = f"{found['took_s']:,.0f} s, longest batch {found['longest_batch_s']:g} s; "
        came += f"a shard has {share}; {len(found['warned'])} warning(s)"
        return f"{found['records']:,} records, {what}", came, f"{found['peak_mib']:,} peak"

    return row


def _hot_join(found: Found) -> tuple[str, str, str]:
    case = f"a join key with {found['matches']:,} rows, and single changes of the other side"
    came = f"{found['one_change_s']:g} s a change; the other side as a whole is refused by name"
    memory = f"{found['before']['mib']:,} before, {found['single']['peak_mib']:,} peak"
    return case, came, memory


def _expanded(found: Found) -> tuple[str, str, str]:
    one, more, gone = (found[step] for step in ("one record", "three records", "their tombstones"))
    came = f"{one['took_s']:g} s; three more {more['took_s']:g} s, "
    came += f"all taken back {gone['took_s']:g} s"
    memory = f"{found['before']['mib']:,} before; one {one['peak_mib']:,}, "
    memory += f"three {more['peak_mib']:,}, taken back {gone['peak_mib']:,} peak"
    return f"a record that comes to {found['rows']:,} rows", came, memory


def _errors(found: Found) -> tuple[str, str, str]:
    steps = [name for name, each in found.items() if isinstance(each, dict) and "took_s" in each]
    came = "; ".join(f"{name} {found[name]['took_s']:,.0f} s" for name in steps)
    state = "; state in MiB: " + ", ".join(f"{found[name]['state_mib']:g}" for name in steps)
    memory = f"{found['before']['mib']:,} before, {found['peak_mib']:,} peak"
    return f"{found['errors']:,} errors of each kind, one after the other", came + state, memory


_ROWS: dict[str, Callable[[Found], tuple[str, str, str]]] = {
    "steady": _steady,
    "burst": _burst,
    "cold": _cold,
    "hot-key": _skewed("half of one key"),
    "uneven": _skewed("one shard with ten times those of each other"),
    "hot-join": _hot_join,
    "expand": _expanded,
    "errors": _errors,
}
