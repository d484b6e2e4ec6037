"""Put measured figures into docs/performance.md: tables, and plots beside it.

    python bench/page.py bench/results/*.json

It takes results that the other commands of this folder have written.  Runs of one command and
one size are rows of one table: least, median and greatest, with the ratio to the peer that ran
in the same command.  What is between the marks in the page is replaced, and the plots in
docs/performance/ are drawn again; what no result is given for is left out.
"""

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cluster_table
import matplotlib as mpl
from markdown import cell, is_number, table
from matplotlib import pyplot

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
PLOTS = PAGE.parent / "performance"
BEGIN, END = "<!-- made by python bench/page.py -->", "<!-- end -->"
_PEERS = ("flink", "kafka-streams")
# By the figure's name in the results: what the page calls it, and whether less is better.
_JOINED = {
    "us a line, warm": "CPU us a line, warm",
    "us a change, warm": "CPU us a change, warm",
    "us a order, warm": "CPU us an order, warm",
    "lines/s, warm": "lines/s, warm",
    "orders/s, warm": "orders/s, warm",
    "state_mib": "state, MiB",
}
_BESIDE = {
    "CPU s/M, with the start": "CPU s a million, with the start",
    "records/s, with the start": "records/s, with the start",
    "CPU s/M, backlogs": "CPU s a million",
    "records/s, backlogs": "records/s",
    "s a backlog, p99": "s a backlog, p99",
    "s of a restart, with a backlog": "s of a restart, until a backlog is through",
    "s of a restart without local state": "the same after local state is lost",
    "local MiB": "state on disk, MiB",
    "peak MiB": "memory, MiB",
}


class Compared(NamedTuple):
    """A figure of two systems, run by run."""

    job: str
    figure: str
    system: str
    ours: list[float]
    peer: str
    theirs: list[float]

    @property
    def ratios(self) -> list[float]:
        """Ours over theirs, of each run."""
        return [a / b for a, b in zip(self.ours, self.theirs, strict=True) if b]


def main() -> None:
    """Read the results, and write the page and its plots."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path)
    given = sorted(parser.parse_args().results)
    found = [(path.stem, json.loads(path.read_text())) for path in given]
    compared = [*_joins(found), *_beside(found)]
    sections = [_compared(compared), _estimated(found), _places(found), *_scale(found)]
    text = "\n\n".join(section for section in sections if section)
    if not text:
        sys.exit("none of these results has a figure for the page")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
    print(f"{PAGE}: {len(compared)} figures beside peers, from {len(found)} files")


def _joins(found: Iterable[tuple[str, Any]]) -> Iterator[Compared]:
    """Figures of `joins.py` and `tpch.py`: a job of each system in one file."""
    runs: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for name, told in found:
        if not name.startswith(("joins-", "tpch-")):
            continue
        by_job: dict[str, dict[str, Any]] = defaultdict(dict)
        for row in told["results"]:
            job, _, system = row["job"].rpartition(", ")
            by_job[job][system] = row
        for job, rows in by_job.items():
            for peer in [peer for peer in _PEERS if {"ikebana", peer} <= rows.keys()]:
                for figure in _JOINED.keys() & rows["ikebana"].keys() & rows[peer].keys():
                    pair = tuple(_mean(rows[system][figure]) for system in ("ikebana", peer))
                    of = name.split("-")[0] + " " + job
                    runs[of, figure, peer].append((pair[0], pair[1]))
    for (job, figure, peer), pairs in sorted(runs.items()):
        ours, theirs = (list(each) for each in zip(*pairs, strict=True))
        yield Compared(job, _JOINED[figure], "ikebana", ours, peer, theirs)


def _estimated(found: Iterable[tuple[str, Any]]) -> str:
    """What `ikebana explain` says of the jobs of `joins.py` and `tpch.py`, and what they took."""
    measured: dict[str, list[float]] = defaultdict(list)
    # Of several results the newest has the estimate of today.
    estimated: dict[str, float] = {}
    for name, told in found:
        if not name.startswith(("joins-", "tpch-")):
            continue
        for row in told["results"]:
            job, _, system = row["job"].rpartition(", ")
            said = [value for figure, value in row.items() if figure.endswith(", estimated")]
            if system == "ikebana" and said and row["records"]:
                warm = next(value for figure, value in row.items() if _is_cpu(figure))
                of = name.split("-")[0] + " " + job
                measured[of] += [_mean(warm)]
                estimated[of] = said[0]
    rows = [
        (
            job,
            f"{estimated[job]:.0f}",
            cell(us := statistics.median(found)),
            f"{estimated[job] / us:.2f}",
            str(len(found)),
        )
        for job, found in sorted(measured.items())
    ]
    if not rows:
        return ""
    heads = ("job", "estimated, CPU us a change", "measured, warm", "ratio", "runs")
    told = (
        "`ikebana explain` estimates the CPU time of a change without data: each condition\n"
        "holds for half of the rows, and a lookup meets one row, or as many as declared sizes\n"
        "say. Measured are backlogs of the same pipelines, of all processes."
    )
    lines = ["### What `ikebana explain` estimates", "", told, "", *table(heads, rows)]
    return "\n".join(lines)


def _is_cpu(figure: str) -> bool:
    return figure.startswith("us a ") and figure.endswith(", warm")


def _beside(found: Iterable[tuple[str, Any]]) -> Iterator[Compared]:
    """Figures of `beside.py`: rounds, in each of which every system ran once."""
    runs: dict[tuple[str, str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for name, told in found:
        if not name.startswith("beside-"):
            continue
        args = told["args"]
        size = args["records"] if args["what"] == "dense" else args["keys"]
        job = f"{args['what']}, {size:,} {'upserts' if args['what'] == 'dense' else 'keys'}"
        for each in told["rounds"]:
            by_system = {row["system"]: row for row in each}
            for peer in by_system.keys() & {*_PEERS, "kafka-streams*2"}:
                for system in [each for each in by_system if not each.startswith(_PEERS)]:
                    for figure in _BESIDE.keys() & by_system[system].keys():
                        pair = by_system[system][figure], by_system[peer][figure]
                        later = "backlog" in figure or "restart" in figure
                        of = f"{job}, {_backlogs(args)}" if later else job
                        runs[of, figure, system, peer].append(pair)
    for (job, figure, system, peer), pairs in sorted(runs.items()):
        ours, theirs = (list(each) for each in zip(*pairs, strict=True))
        yield Compared(job, _BESIDE[figure], f"ikebana, {system}", ours, peer, theirs)


def _backlogs(args: Mapping[str, Any]) -> str:
    rate = args.get("rate")
    stream = f", {rate:,.0f} records a second" if rate else ""
    return f"backlogs of {args['size']:,}{stream}"


def _compared(found: Sequence[Compared]) -> str:
    if not found:
        return ""
    rows = [
        (
            each.job,
            each.figure,
            each.system,
            _spread(each.ours),
            f"{each.peer}: {_spread(each.theirs)}",
            _spread(each.ratios),
            str(len(each.ratios)),
        )
        for each in found
    ]
    head = ("job", "figure", "system", "min, median, max", "peer", "ratio", "runs")
    _bars(
        "beside-peers",
        [
            (f"{each.job}\n{each.system.removeprefix('ikebana, ')} / {each.peer}", each.ratios)
            for each in found
            if each.figure.startswith("CPU")
        ],
    )
    picture = "![CPU as a share of the peer's](performance/beside-peers.svg)"
    return "\n".join(["### Beside peers\n", *table(head, rows), "", picture])


def _places(found: Iterable[tuple[str, Any]]) -> str:
    """The newest result of `cluster.py`."""
    told = [each for name, each in found if name.startswith("cluster-")]
    if not told:
        return ""
    lines = cluster_table.tables(told[-1]["args"]["on"], told[-1]["results"])
    return "\n".join(["### One machine, the image, executors\n", *lines])


def _scale(found: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """The tables of `scale.py`, each the newest of its kind, with a plot of its cost."""
    newest: dict[str, list[dict[str, Any]]] = {}
    for name, told in found:
        if name.startswith("scale-"):
            newest |= told["results"]
    for name, rows in newest.items():
        head = list(rows[0])
        cost = next((each for each in head if each.startswith(("CPU", "median CPU"))), None)
        told = table(head, ([cell(value) for value in row.values()] for row in rows))
        section = "\n".join([f"### By {name}\n", *told])
        points = [(row[head[0]], row[cost]) for row in rows if cost and is_number(row[cost])]
        if cost and len(points) > 1:
            _line(f"by-{name}", head[0], cost, points)
            section += f"\n\n![{cost} by {head[0]}](performance/by-{name}.svg)"
        yield section


def _bars(name: str, bars: Sequence[tuple[str, Sequence[float]]]) -> None:
    def draw(axes: Any) -> None:
        names = [of for of, _ in bars]
        middle = [statistics.median(ratios) for _, ratios in bars]
        low = [m - min(ratios) for m, (_, ratios) in zip(middle, bars, strict=True)]
        high = [max(ratios) - m for m, (_, ratios) in zip(middle, bars, strict=True)]
        axes.barh(names, middle, xerr=[low, high], color="#4c78a8", ecolor="#333333")
        axes.axvline(1, color="#999999", linewidth=1)
        axes.set_xlabel("CPU as a share of the peer's in the same run: median, least and greatest")
        axes.invert_yaxis()

    _drawn(name, draw, height=1.2 + 0.5 * len(bars))


def _line(name: str, of: str, figure: str, points: Sequence[tuple[Any, float]]) -> None:
    def draw(axes: Any) -> None:
        axes.plot([str(at) for at, _ in points], [value for _, value in points], commit="o")
        axes.set_ylim(bottom=0)
        axes.set_xlabel(of)
        axes.set_ylabel(figure)

    _drawn(name, draw, height=3)


def _drawn(name: str, draw: Callable[[Any], None], height: float) -> None:
    # The same figures give the same bytes: no date, and identifiers that are not random.
    mpl.rcParams["svg.hashsalt"] = "ikebana"
    PLOTS.mkdir(exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(7.5, height), layout="constrained")
    draw(axes)
    figure.savefig(PLOTS / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(figure)


def _spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return cell(values[0])
    return ", ".join(map(cell, (min(values), statistics.median(values), max(values))))


def _mean(value: float | Mapping[str, float] | Sequence[float]) -> float:
    return statistics.fmean(value) if isinstance(value, list) else float(value)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
