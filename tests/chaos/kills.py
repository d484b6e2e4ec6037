"""SIGKILL of each process, and a second instance beside the first."""

import time
from collections.abc import Callable

from chaos.damages import empty
from chaos.life import RECOVERS_S, Life
from chaos.runs import Wrong
from chaos.scenario import scenario
from ikebana.errors import EXIT_FENCED
from support.process_trees import kill
from support.waiting import patient

# How long what is left of a killed instance may go on beside the next one.
_ZOMBIES_S = 3.0
MANY = 10
LONGEST_START_S = 12.0


def _start_over_it(life: Life) -> None:
    """Perhaps let what is left go on beside the next instance."""
    if life.choice.random() < 0.5:
        life.did.append("started over what was left")
        life.start()
    else:
        life.wait(_ZOMBIES_S)


@scenario("kill", does="SIGKILL of the driver alone", ends="another start, at once or later")
def kill_driver(life: Life) -> None:
    life.at_some_moment()
    life.run.kill_driver()
    life.runs.killed()
    _start_over_it(life)


@scenario("kill", does="SIGKILL of Spark's JVM", ends="by itself")
def kill_jvm(life: Life) -> None:
    life.at_some_moment()
    if not life.run.kill_jvm():
        raise Wrong("there was no JVM")


@scenario("kill", does="SIGKILL of a Python worker of Spark", ends="by itself")
def kill_worker(life: Life) -> None:
    life.at_some_moment()
    kill([life.one("worker")])


@scenario("kill", does="SIGKILL of the process that owns a shard", ends="by itself")
def kill_owner(life: Life) -> None:
    life.at_some_moment()
    kill([life.one("owner")])


@scenario("kill", does="SIGKILL of all Python processes but the driver", ends="by itself")
def kill_pythons(life: Life) -> None:
    life.at_some_moment()
    spared = {p.pid for what in ("driver", "jvm") for p in life.processes(what)}
    if not kill(p for p in life.processes("all") if p.pid not in spared):
        raise Wrong("there were none")


@scenario("kill", does="SIGKILL of the broker", ends="another start of it")
def kill_broker(life: Life) -> None:
    life.at_some_moment()
    life.broker.kill()
    life.wait(life.choice.uniform(0, 3))
    life.broker.start()


@scenario("kill", does="SIGKILL of all processes of the run", ends="another start")
def kill_all(life: Life) -> None:
    life.at_some_moment()
    life.kill()


@scenario("kill", does="SIGKILL of the run and of the broker", ends="another start of both")
def kill_everything(life: Life) -> None:
    life.at_some_moment()
    life.broker.kill()
    life.kill()
    life.broker.start()


@scenario("kill", does="a second instance is started", ends="the older one ends by itself")
def second_driver(life: Life) -> None:
    life.at_some_moment()
    older = life.run
    newer = life.start()
    begun = time.monotonic()
    while older.poll() is None:
        if newer.poll() is not None:
            raise Wrong(f"the newer one ended: {newer.text}")
        if time.monotonic() - begun > patient(RECOVERS_S):
            raise Wrong(f"the older one goes on: {older.text}")
        life.wait(0.1)
    if older.poll() != EXIT_FENCED:
        raise Wrong(f"the older one ended with status {older.poll()}: {older.text}")


def _one_of(what: str) -> Callable[[Life], object]:
    return lambda life: kill(life.processes(what)[:1])


def _kill_and_wipe(life: Life) -> None:
    life.kill()
    empty(life.folder / "local")


@scenario(
    "kill",
    does=f"{MANY} such faults at random, one after the other, also in starts",
    ends="starts; nothing is judged before the last",
)
def kill_again_and_again(life: Life) -> None:
    faults: dict[str, Callable[[Life], object]] = {
        **{f"a {what}": _one_of(what) for what in ("worker", "owner", "jvm")},
        "the driver": kill_driver.act,
        "the broker": kill_broker.act,
        "all": kill_all.act,
        "all, without local databases": _kill_and_wipe,
        "replaced": second_driver.act,
    }
    for _ in range(MANY):
        if life.run.poll() is not None:
            life.start()
        life.wait(life.choice.uniform(0, LONGEST_START_S))
        if life.run.poll() is None:
            name = life.choice.choice(list(faults))
            life.did.append(name)
            faults[name](life)
