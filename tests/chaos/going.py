"""Bring about one fault in a life, and see what comes of it."""

from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Protocol

import psutil
from confluent_kafka import KafkaException

from chaos.plans import Plan
from chaos.runs import Wrong, restarts
from chaos.scenario import Result, Scenario
from ikebana.errors import IkebanaError


class Lived(Protocol):
    """What has faults; `choice` is that of the scenario and the seed, `did` what was chosen."""

    folder: Path
    seed: int
    choice: Random
    did: list[str]
    plan: Plan

    def under_load(self) -> AbstractContextManager[None]:
        """Have it work for the length of a `with` block."""
        ...

    def recovered(self) -> tuple[float, list[str]]:
        """Wait until it goes on; the seconds that took, and with which errors runs have ended."""
        ...

    def judge(self) -> None:
        """Compare all that it has done with what it should have done.  Raises: Wrong."""
        ...

    def close(self) -> None:
        """Leave nothing running."""
        ...


def gone(life: Lived, scenario: Scenario, *, judged: bool = True) -> Result:
    """Bring about a fault under load, see the life recover, and judge all of it."""
    life.choice = Random(f"{scenario.name} {life.seed}")
    life.did = []
    result = Result(scenario.kind, scenario.name, life.seed, "WRONG", 0.0)
    result.plan = life.plan.name
    known = restarts(life.folder)
    try:
        with life.under_load():
            life.recovered()
            scenario.act(life)
            result.recovery_s, said = life.recovered()
        if judged:
            life.judge()
    except (AssertionError, Wrong, KafkaException, IkebanaError, psutil.Error) as error:
        result.said = f"{type(error).__name__}: {error}"
        life.close()
    else:
        result.said = " / ".join(said)
        result.outcome = "ended" if said else "exact"
        if result.outcome not in scenario.accepts:
            result.outcome, result.said = "WRONG", f"it {result.outcome}: {result.said}"
    result.restarted = list((restarts(life.folder) - known).elements())
    result.did = ", ".join(life.did)
    return result
