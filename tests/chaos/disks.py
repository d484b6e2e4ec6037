"""Disks that are full for a while: the checkpoint's, that of local databases, the broker's."""

from chaos.life import Life
from chaos.scenario import Scenario, scenario
from chaos.small_disks import full


def _full(name: str, of: str, does: str) -> Scenario:
    def act(life: Life) -> None:
        with full(life.folder / of):
            life.wait(life.stopped_s)

    act.__name__ = name
    return scenario(
        "disk",
        does=f"the disk of {does} is full",
        ends="there is space again",
        accepts=("exact", "ended"),
    )(act)


checkpoint_full = _full("disk_of_checkpoint", "checkpoint", "the checkpoint")
local_full = _full("disk_of_local_databases", "local", "local databases")


@scenario(
    "disk",
    does="the disk of the checkpoint is full when the pipeline starts",
    ends="there is space again",
    accepts=("exact", "ended"),
)
def disk_full_at_start(life: Life) -> None:
    life.kill()
    with full(life.folder / "checkpoint"):
        life.start()
        life.runs.ended(30)


@scenario(
    "disk",
    does="the disk of local databases is full when the pipeline starts",
    ends="there is space again",
    accepts=("exact", "ended"),
)
def disk_of_local_databases_full_at_start(life: Life) -> None:
    life.kill()
    with full(life.folder / "local"):
        life.start()
        life.runs.ended(30)


@scenario(
    "disk",
    does="the disk of the broker is full",
    ends="there is space again, and another start of it if it has ended",
    accepts=("exact", "ended"),
)
def disk_of_broker(life: Life) -> None:
    with full(life.broker.data):
        life.wait(life.stopped_s)
    if not life.broker.alive:
        life.did.append("the broker ended")
        life.broker.kill()
        life.broker.start()
