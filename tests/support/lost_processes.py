"""Moments of a start at which one of its processes is killed, and what has come of it."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import psutil

from ikebana.processor.spark.workers import daemon, serving
from support.pipeline_processes import Pipeline, Run
from support.process_trees import kill, name_of
from support.waiting import wait_until

_APPEARS_S = 120.0
_ENDS_S = 240.0
_DAEMON = "pyspark.daemon"


class Moment(NamedTuple):
    """So many seconds after a process of a kind has appeared, and the start has told a step."""

    kind: str
    after_s: float
    step: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.after_s} {self.step}".rstrip()


class Outcome(NamedTuple):
    """What has come of a loss: `left` are the processes that outlive the run."""

    status: int
    text: str
    left: list[str]


def _command(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _is_daemon(process: psutil.Process) -> bool:
    """Whether it is a fork that starts Python workers; its own forks are these workers."""
    return name_of(process) == _DAEMON and not _is_worker(process)


def _is_worker(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        parent = process.parent()
        return name_of(process) == _DAEMON and parent is not None and name_of(parent) == _DAEMON
    return False


def _stands_in_for(module: str) -> Callable[[psutil.Process], bool]:
    return lambda process: "stand_in.py" in (of := _command(process)) and of.endswith(module)


def _is_spark(process: psutil.Process) -> bool:
    return name_of(process) == "java" and "SparkSubmit" in _command(process)


def _is_host(process: psutil.Process) -> bool:
    """The host itself: its forks have another name, or it for a parent."""
    return "-m ikebana.processor.spark.workers.host" in _command(process) and name_of(
        process
    ).startswith("python")


# A process of a kind, and how many of the kind appear before it.
_KINDS: dict[str, tuple[Callable[[psutil.Process], bool], int]] = {
    "look at Java": (lambda process: _command(process).endswith("java -version"), 0),
    "JVM": (_is_spark, 0),
    "host": (_is_host, 0),
    "stand-in of the lookup": (_stands_in_for("lookup_data_sources"), 0),
    "stand-in of the source": (_stands_in_for("create_data_source"), 0),
    "stand-in of the offsets": (_stands_in_for("python_streaming_source_runner"), 0),
    "stand-in of the planner": (_stands_in_for("plan_data_source_read"), 0),
    "stand-in of the workers": (_stands_in_for(f"{daemon.MODULE} pyspark.worker"), 0),
    "daemon of the lookup": (_is_daemon, 0),
    "daemon of the source": (_is_daemon, 1),
    "daemon of the planner": (_is_daemon, 2),
    "daemon of the workers": (_is_daemon, 3),
    "lookup": (_is_worker, 0),
    "source": (_is_worker, 1),
    "planner": (_is_worker, 2),
    "worker": (_is_worker, 3),
    "offsets": (lambda process: name_of(process).startswith("pyspark.sql.str"), 0),
    "reader": (lambda process: name_of(process) == serving.READER_NAME, 0),
    "owner": (lambda process: name_of(process) == serving.OWNER_NAME, 0),
}

_LOOKS, _TAKES = "looking at the input topics", "taking over the outputs"
_SPARK, _QUERY, _WAITS = "starting Spark", "starting the query", "waiting for records"
_ELSEWHERE = ("look at Java", "JVM", "host", "reader", "owner")

# 40 of them, from the first process to the first batch.
MOMENTS = (
    Moment("look at Java", 0.0),
    *(Moment("JVM", after) for after in (0.0, 0.5)),
    *(Moment("JVM", 0.0, step) for step in (_LOOKS, _TAKES, _WAITS)),
    *(Moment("JVM", after, step) for step in (_SPARK, _QUERY) for after in (0.0, 0.5, 1.5)),
    *(Moment("host", after) for after in (0.0, 0.3)),
    *(Moment("host", after, step) for step in (_SPARK, _QUERY) for after in (0.0, 1.0)),
    *(Moment(kind, 0.0) for kind in _KINDS if kind not in _ELSEWHERE),
    *(Moment(kind, after) for kind in ("reader", "owner") for after in (0.0, 0.3, 1.0)),
    Moment("offsets", 0.5),
    Moment("offsets", 2.0),
)


def lost(pipeline: Pipeline, moment: Moment) -> Outcome:
    """Start a pipeline that ends when it has caught up, and kill a process at a moment."""
    with pipeline.start("--once") as run:
        process = _appeared(run, moment.kind)
        run.wait_for(moment.step)
        appeared = time.monotonic()
        wait_until(lambda: time.monotonic() >= appeared + moment.after_s, _APPEARS_S, str(moment))
        kill([process])
        status = run.wait(_ENDS_S)
        with suppress(AssertionError):
            wait_until(lambda: not run.family.alive(), 10, "the end of what was started")
        left = [f"{name_of(each)} {each.pid}" for each in run.family.alive()]
        return Outcome(status, run.text, left)


def _appeared(run: Run, kind: str) -> psutil.Process:
    """The process of a kind."""
    is_of, before = _KINDS[kind]
    seen: dict[int, psutil.Process] = {}

    def is_there() -> bool:
        for process in run.family.alive():
            if process.pid not in seen and is_of(process):
                seen[process.pid] = process
        return len(seen) > before or run.poll() is not None

    wait_until(is_there, _APPEARS_S, kind)
    assert len(seen) > before, f"there was no {kind}: {run.text}"
    return list(seen.values())[before]
