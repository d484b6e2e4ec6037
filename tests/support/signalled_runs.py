"""Signals at given moments of `ikebana run` and `ikebana demo`, and what they leave."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, NamedTuple

from support.pipeline_processes import Pipeline, Run
from support.process_trees import name_of
from support.waiting import wait_until

# Whom a signal is sent to: a terminal sends it to the group, a service manager to all.
Target = Literal["process", "group", "all"]
END_S = 180.0
_LOOK_S = 600.0


class Moment(NamedTuple):
    """A moment of a run, and the exit statuses with which a signal may end it then."""

    name: str
    reached: Callable[[Run, Pipeline], bool]
    statuses: frozenset[int]


class Outcome(NamedTuple):
    """How a run has ended after a signal."""

    status: int
    seconds: float
    left: list[str]
    text: str


STOPPED = frozenset({0})
# By the signal itself, or by us with the status of one.
KILLED = frozenset({-signal.SIGINT, -signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGTERM})


def _said(text: str) -> Callable[[Run, Pipeline], bool]:
    return lambda run, _: text in run.text


def _has_jvm(run: Run, _: Pipeline) -> bool:
    return any(name_of(process) == "java" for process in run.family.alive())


def _in_a_batch(run: Run, pipeline: Pipeline) -> bool:
    logged, committed = pipeline.log("offsets"), pipeline.log("commits")
    return bool(logged) and logged[-1:] != committed[-1:]


def _in_a_later_batch(run: Run, pipeline: Pipeline) -> bool:
    return bool(pipeline.log("commits")) and _in_a_batch(run, pipeline)


def _committed(run: Run, pipeline: Pipeline) -> bool:
    return len(pipeline.log("commits")) > 1


def _is_idle(run: Run, pipeline: Pipeline) -> bool:
    if "batch 0" not in run.text:
        return False
    pipeline.wait_until_read()
    return True


def _ready_to_end(run: Run, pipeline: Pipeline) -> bool:
    """Send one signal; the one that is measured comes while the run ends."""
    if "batch 0" not in run.text:
        return False
    os.kill(run.pid, signal.SIGTERM)
    return True


OF_RUN = [
    Moment("imports", lambda run, _: _age_s(run) > 0.3, KILLED | STOPPED),
    Moment("reading the file", lambda run, _: _age_s(run) > 1.0, KILLED | STOPPED),
    Moment("looking at topics", _said("looking at the input topics"), STOPPED),
    Moment("taking over", _said("taking over the outputs"), STOPPED),
    Moment("starting Spark", _said("starting Spark"), STOPPED),
    Moment("the JVM is there", _has_jvm, STOPPED),
    Moment("starting the query", _said("starting the query"), STOPPED),
    Moment("query started", _said("waiting for records"), STOPPED),
    Moment("first batch", _in_a_batch, STOPPED),
    Moment("a batch is committed", _committed, STOPPED),
    Moment("in a later batch", _in_a_later_batch, STOPPED),
    Moment("idle", _is_idle, STOPPED),
    Moment("ending", _ready_to_end, KILLED | STOPPED),
]
OF_DEMO = [
    Moment("imports", lambda run, _: _age_s(run) > 0.5, KILLED),
    Moment("reading flights", lambda run, _: _age_s(run) > 2.0, KILLED),
    Moment("starting the broker", _said("1  "), KILLED),
    Moment("the broker is there", _has_jvm, KILLED),
    Moment("writing", _said("2  "), KILLED),
    Moment("taking over", _said("taking over the outputs"), KILLED),
    Moment("starting Spark", _said("starting Spark"), KILLED),
    Moment("query started", _said("starting the query"), KILLED),
    Moment("in a batch", _said("batch 0"), KILLED),
    Moment("checking", _said("4  "), KILLED | STOPPED),
]


def signalled(
    run: Run, pipeline: Pipeline, moment: Moment, number: signal.Signals, target: Target
) -> Outcome:
    """Send a signal at a moment of a run, and see how it ends."""
    with run:
        wait_until(
            lambda: run.poll() is not None or moment.reached(run, pipeline), _LOOK_S, moment.name
        )
        begun = time.monotonic()
        match target:
            case "process":
                with suppress(ProcessLookupError):
                    os.kill(run.pid, number)
            case "group":
                with suppress(ProcessLookupError):
                    os.killpg(run.pid, number)
            case "all":
                for process in run.family.alive():
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, number)
        status = run.wait(END_S)
        left = [f"{name_of(process)} {process.pid}" for process in run.family.alive()]
        return Outcome(status, time.monotonic() - begun, left, run.text)


def problems(outcome: Outcome, moment: Moment) -> list[str]:
    """What is not as it should be."""
    found = []
    if outcome.status not in moment.statuses:
        found.append(f"status {outcome.status}")
    if "Traceback" in outcome.text or "Exception ignored" in outcome.text:
        found.append("a traceback")
    if outcome.left:
        found.append("left: " + ", ".join(outcome.left))
    return found


def _age_s(run: Run) -> float:
    return time.monotonic() - run.begun
