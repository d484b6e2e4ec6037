"""What a running pipeline holds, sampled over time, and whether that grows."""

import itertools
import math
import os
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import markdown
import psutil
from measure import Watched
from prometheus_client.parser import text_string_to_metric_families

KINDS = ("jvm", "driver", "owners", "workers")


class Sample(NamedTuple):
    """What was there at a time: seconds since the beginning, and values by series."""

    at_s: float
    values: dict[str, float]


class Slope(NamedTuple):
    """How a series goes on: its mean, its slope an hour, and the standard error of that."""

    mean: float
    hourly: float
    error: float

    def is_flat(self, tolerance: float, floor: float) -> bool:
        """Whether an hour changes it by less than a share of its mean, or by less than a floor.

        What twice the slope's error could explain is no growth either.
        """
        allowed = max(tolerance * abs(self.mean), floor, 2 * self.error)
        return self.hourly <= allowed


class Sampler:
    """Samples a command in a thread; `more` adds values that the command cannot tell."""

    def __init__(
        self,
        watched: Watched,
        folders: Mapping[str, Path],
        url: str,
        every_s: float,
        more: Callable[[Mapping[str, float]], Mapping[str, float]],
    ) -> None:
        self.samples: list[Sample] = []
        self._watched, self._folders, self._url = watched, folders, url
        self._every_s, self._more = every_s, more
        self._begun = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> list[Sample]:
        """End, and return all samples."""
        self._ended.set()
        self._thread.join()
        return self.samples

    def since(self, at_s: float) -> list[Sample]:
        """The samples from a time on."""
        return [sample for sample in self.samples if sample.at_s >= at_s]

    @property
    def now_s(self) -> float:
        """The time of a sample that would be taken now."""
        return time.monotonic() - self._begun

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            values = {**held(self._watched), **on_disk(self._folders)}
            told = metrics(self._url)
            self.samples.append(Sample(self.now_s, {**values, **self._more(told)}))


def held(watched: Watched) -> dict[str, float]:
    """Memory, open files and threads of all processes; memory and threads of each kind."""
    found = dict.fromkeys((f"{kind} PSS MiB" for kind in KINDS), 0.0)
    found |= dict.fromkeys((f"{kind} threads" for kind in KINDS), 0)
    found |= {"PSS MiB": 0.0, "open files": 0, "threads": 0, "processes": 0}
    for process in watched.processes():
        try:
            name, files, threads = process.name(), process.num_fds(), process.num_threads()
            pss = pss_mib(process.pid)
        except (psutil.Error, OSError):
            continue
        kind = {"java": "jvm", "ikebana-owner": "owners"}.get(name, "workers")
        if process.pid == watched.process.pid:
            kind = "driver"
        found[f"{kind} PSS MiB"] += pss
        found["PSS MiB"] += pss
        found["open files"] += files
        found[f"{kind} threads"] += threads
        found["threads"] += threads
        found["processes"] += 1
    return found


def pss_mib(pid: int) -> float:
    """Memory of a process, where what it shares with others counts in parts."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def on_disk(folders: Mapping[str, Path]) -> dict[str, float]:
    """The size of folders, and how many files they have."""
    found: dict[str, float] = {}
    for name, folder in folders.items():
        size = files = 0
        for root, _, names in os.walk(folder):
            for each in names:
                try:
                    size += os.lstat(Path(root, each)).st_size
                except OSError:
                    continue
                files += 1
        found |= {f"{name} MiB": size / 2**20, f"{name} files": files}
    return found


def metrics(url: str) -> dict[str, float]:
    """The metrics of a run, summed over labels; nothing if it does not answer."""
    found: dict[str, float] = {}
    for sample in _samples(url):
        found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def slope(points: Sequence[tuple[float, float]]) -> Slope:
    """Fit a line through (second, value) by least squares.

    Its error allows for samples that depend on the ones before them.

    >>> found = slope([(0.0, 1.0), (1800.0, 2.0), (3600.0, 3.0)])
    >>> found.mean, round(found.hourly, 6), round(found.error, 6)
    (2.0, 2.0, 0.0)
    """
    hours = [at / 3600 for at, _ in points]
    values = [value for _, value in points]
    mean, middle = statistics.fmean(values), statistics.fmean(hours)
    spread = sum((hour - middle) ** 2 for hour in hours)
    if len(points) < 3 or not spread:
        return Slope(mean, 0.0, math.inf)
    products = zip(hours, values, strict=True)
    hourly = sum((hour - middle) * (value - mean) for hour, value in products) / spread
    rests = [
        value - mean - hourly * (hour - middle) for hour, value in zip(hours, values, strict=True)
    ]
    square = sum(rest * rest for rest in rests)
    error = math.sqrt(square / (len(points) - 2) / spread)
    return Slope(mean, hourly, error * _dependence(rests))


def _dependence(rests: Sequence[float]) -> float:
    """How much larger the error of a slope is, since each rest resembles the one before it.

    That of rests which are an autoregressive series of first order: samples of a series that
    wavers slowly are worth fewer ones that are independent.
    """
    square = sum(rest * rest for rest in rests)
    if not square:
        return 1.0
    like = sum(one * next_one for one, next_one in itertools.pairwise(rests)) / square
    like = min(max(like, 0.0), 0.99)
    return math.sqrt((1 + like) / (1 - like))


# What a series may grow in an hour, however small its mean is.
FLOORS = {
    "PSS MiB": 30.0,
    "open files": 10.0,
    "threads": 5.0,
    "processes": 2.0,
    "lag s": 1.0,
    "records behind": 1_000.0,
    "MiB": 20.0,
    "files": 50.0,
}


def judged(samples: Sequence[Sample], tolerance: float) -> list[tuple[str, Slope, bool]]:
    """Every series with its slope, and whether it is flat."""
    names = dict.fromkeys(name for sample in samples for name in sample.values)
    found = []
    for name in names:
        points = [(each.at_s, each.values[name]) for each in samples if name in each.values]
        floor = next((most for end, most in FLOORS.items() if name.endswith(end)), 0.0)
        line = slope(points)
        found.append((name, line, line.is_flat(tolerance, floor)))
    return found


def table(found: Sequence[tuple[str, Slope, bool]], samples: Sequence[Sample]) -> list[str]:
    """The judgement as Markdown."""
    rows = []
    for name, line, flat in found:
        values = [sample.values[name] for sample in samples if name in sample.values]
        cells = (line.mean, min(values), max(values), line.hourly, line.error)
        rows.append((name, *(f"{cell:,.1f}" for cell in cells), "yes" if flat else "**no**"))
    return markdown.table(("series", "mean", "least", "most", "slope an hour", "±", "flat"), rows)


def by_label(url: str, name: str) -> list[float]:
    """The values of each series of a metric; nothing if the run does not answer."""
    return [sample.value for sample in _samples(url) if sample.name == name]


def by_name(url: str, name: str, **labels: str) -> float:
    """The value of a metric with these labels; 0 if there is none."""
    found: list[float] = [
        sample.value
        for sample in _samples(url)
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return sum(found)


def _samples(url: str) -> list[Any]:
    """All samples that a run tells of itself; nothing if it does not answer."""
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except OSError:
        return []
    families = text_string_to_metric_families(text)
    return [sample for family in families for sample in family.samples]
