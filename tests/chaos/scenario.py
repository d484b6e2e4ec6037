"""What a scenario is, and what came of one."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

Kind = Literal[
    "kill",
    "stop",
    "network",
    "transaction",
    "file",
    "disk",
    "clock",
    "cluster",
    "serve",
    "edit",
    "loss",
    "bucket",
    "executor",
    "sink-files",
    "sink-database",
    "sink-bucket",
]
Outcome = Literal["exact", "ended", "WRONG"]
# What a scenario is for: a pipeline, or a server of its output.
L = TypeVar("L")


@dataclass(frozen=True)
class Scenario:
    """One fault: what it does, how it ends, and what has to come of it.

    `act` brings the fault about and returns when it is over.  The run may have ended by itself
    then, or be stopped: whoever judges starts it again.  `accepts` has what is right afterwards:

    * `exact`: the run went on, or did so after it was killed; every closed time is exact.
    * `ended`: the run ended with a named error; started again, it went on, and every closed
      time is exact.
    """

    name: str
    kind: Kind
    does: str
    ends: str
    act: Callable[[Any], None]
    accepts: tuple[Outcome, ...] = ("exact",)


@dataclass
class Result:
    """What came of one scenario with one seed."""

    kind: Kind
    name: str
    seed: int
    outcome: Outcome
    recovery_s: float
    """From the end of the fault, or of the start after it, to the next time that was closed."""
    said: str = ""
    """The error with which the run ended, or what is wrong."""
    did: str = ""
    """What was chosen, where the scenario chooses."""
    restarted: list[str] = field(default_factory=list)
    """After what the run has started its query again."""
    plan: str = "upsert"
    """Of what pipeline the run was."""
    version: str = ""
    """The commit that was run."""

    def plain(self) -> dict[str, Any]:
        """The result as plain data."""
        return asdict(self)


_ALL: dict[str, Scenario] = {}


def scenario(
    kind: Kind, *, does: str, ends: str, accepts: tuple[Outcome, ...] = ("exact",)
) -> Callable[[Callable[[L], None]], Scenario]:
    """Make a scenario of a function, named after it, and list it."""

    def made(act: Callable[[L], None]) -> Scenario:
        name = act.__name__.strip("_").replace("_", "-")
        _ALL[name] = found = Scenario(name, kind, does, ends, act, accepts)
        return found

    return made


def scenarios() -> dict[str, Scenario]:
    """All scenarios by name."""
    from chaos import (  # noqa: F401
        buckets,
        clocks,
        disks,
        edits,
        executors,
        files,
        kills,
        links,
        losses,
        pauses,
        replicas,
        servers,
        sinks,
        transactions,
    )

    return dict(_ALL)
