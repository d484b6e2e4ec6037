"""SIGSTOP for longer than transactions and sessions last, then SIGCONT."""

import time

from chaos.life import Life
from chaos.runs import Wrong, paused
from chaos.scenario import Scenario, scenario
from ikebana.errors import EXIT_FENCED


def _stopping(what: str, does: str) -> Scenario:
    def act(life: Life) -> None:
        life.at_some_moment()
        with paused(life.processes(what)):
            life.wait(life.stopped_s)

    act.__name__ = f"stop_{what}"
    return scenario("stop", does=f"SIGSTOP of {does}", ends="SIGCONT")(act)


stop_driver = _stopping("driver", "the driver")
stop_jvm = _stopping("jvm", "Spark's JVM")
stop_worker = _stopping("worker", "Spark's Python workers")
stop_owner = _stopping("owner", "the processes that own shards")
stop_broker = _stopping("broker", "the broker")
stop_all = _stopping("all", "all processes of the run")


def _replacing(name: str, what: str, does: str) -> Scenario:
    def act(life: Life) -> None:
        life.at_some_moment()
        older = life.run
        with paused(life.processes(what)):
            life.start()
            if not life.goes_on():
                raise Wrong(f"the newer one ended: {life.run.text}")
        status = older.wait(120)
        # The brokers tell it, or Spark's offset log.
        if status != EXIT_FENCED:
            raise Wrong(f"the older one ended with status {status}: {older.text}")

    act.__name__ = name
    return scenario(
        "stop",
        does=f"SIGSTOP of {does} while another instance takes over",
        ends="SIGCONT; the older one has to end by itself and write nothing",
    )(act)


stop_and_replace = _replacing("stop_and_replace", "all", "all processes of the run")
stop_owners_and_replace = _replacing(
    "stop_owners_and_replace", "owner", "the processes that own shards"
)


# Of each second that a machine is slow.
_RUNS_S = 0.05
_SLOW_S = 40.0


def _slowly(life: Life, seconds: float) -> None:
    """Let all processes of the run have a twentieth of the time, those that it starts too."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and (all_of_them := life.processes("all")):
        with paused(all_of_them):
            life.wait(1 - _RUNS_S)
        life.wait(_RUNS_S)


@scenario(
    "stop", does="5% of the time for the run, by SIGSTOP and SIGCONT each second", ends="all of it"
)
def slow_machine(life: Life) -> None:
    life.at_some_moment()
    _slowly(life, _SLOW_S)


@scenario(
    "stop",
    does="SIGKILL of the run, and 5% of the time for the next one from its start on",
    ends="all of it",
)
def slow_machine_at_start(life: Life) -> None:
    life.kill()
    life.start()
    _slowly(life, _SLOW_S)
